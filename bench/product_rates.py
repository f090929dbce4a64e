"""Time the matrix products of a training step, as multiples of gemm's time for the same flops.

    python bench/product_rates.py                                # five sizes, both dtypes
    OPENBLAS_CORETYPE=Haswell python bench/product_rates.py      # the kernels for AVX2

Each row is one operation at one size, by one call of BLAS or of our own algorithm ("whole"), and in
shares: one range of columns, or of rows of a lower triangle, for each thread, with one BLAS thread
in each. All are interleaved with gemm on (M, M) times (M, B). ``runtime.tuning`` and
``INVERSE_UP_TO`` of ``kernels.cpu.triangular`` hold what is chosen from this table; their values in
force are printed below it.
"""

import argparse
import shlex
import sys
import time

import numpy as np
import report
from problems import STEP_SIZES

import fastsvgp as fs
from fastsvgp.kernels.cpu import triangular
from fastsvgp.kernels.cpu.common import blas, blocked
from fastsvgp.kernels.cpu.common.thread_pool import over_rows
from fastsvgp.runtime import tuning

ROUNDS = 15
CHOICES = "triangle_rows", "bound_chunk_numbers", "bound_chunk_columns"


def by_columns(call, B):
    """Call ``call(columns)`` on a range of columns for each thread."""
    threads = fs.get_num_threads()
    edges = [B * i // threads // 8 * 8 for i in range(threads)] + [B]

    def ranges(start, stop):
        for i in range(start, stop):
            call(slice(edges[i], edges[i + 1]))

    over_rows(ranges, threads, 1e9, products=True, chunks=1)


def operations(M, B, dtype):
    """Return ``{name: (flops, whole, shares or None)}``, each on its own memory."""
    rng = np.random.default_rng(0)
    L = np.tril(rng.standard_normal((M, M))) / np.sqrt(M)
    L[np.diag_indices(M)] = rng.uniform(0.5, 1.0, M)
    L, S = L.astype(dtype), (L @ L.T).astype(dtype)
    X, Y = (rng.standard_normal((M, B)).astype(dtype) for _ in range(2))
    Z, C, D = np.empty_like(X), np.empty_like(S), np.empty_like(S)

    def on_copy(operation, *arguments):
        def call(columns=slice(None)):
            Z[:, columns] = X[:, columns]
            operation(L, Z[:, columns], *arguments)

        return call, lambda: by_columns(call, B)

    def factor(operation, *arguments):
        def call():
            D[...] = S
            operation(*arguments, D)

        return call, None

    def in_shares(half_product):
        with tuning.override(triangle_rows=1):
            half_product()

    def half_products(half_product):
        def whole():
            with tuning.override(triangle_rows=M + 1):
                half_product()

        return whole, lambda: in_shares(half_product)

    def multiply(transpose):
        return lambda L, Z: blas.trmm(L, Z, True, transpose, 1.0)

    ones, half, third = np.ones(B, dtype), M * M * B, M**3 / 3
    return {
        "gemm": (2 * half, lambda: blas.gemm(S, X, Z, blas.N, blas.N, 1.0, 0.0), None),
        "L X": (half, *on_copy(multiply(blas.N))),
        "L' X": (half, *on_copy(multiply(blas.T))),
        "L^-1 X": (half, *on_copy(blocked.solve, blas.N)),
        "L^-T X": (half, *on_copy(blocked.solve, blas.T)),
        "X X'": (half, *half_products(lambda: fs.kernels.weighted_gram(X, ones, out=C))),
        "tril(X Y')": (half, *half_products(lambda: fs.kernels.tril_product(X, Y, out=C))),
        "Cholesky factor": (third, *factor(blocked.cholesky)),
        "L^-T S L^-1": (3 * third, *factor(blocked.inverse_congruence, L)),
    }


def interleaved(calls):
    """Return the median seconds of each call, all of them in every round."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [float(np.median(taken)) for taken in times]


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", help="M,B of each")
    args = parser.parse_args(arguments)
    sizes = [tuple(map(int, s.split(","))) for s in args.sizes] if args.sizes else STEP_SIZES
    command = shlex.join(["python", "bench/product_rates.py", *arguments])
    print(report.header(command, report.PACKAGES, None, report.computing()), end="\n\n")
    print("| M, B | dtype | operation | ms | of gemm's time, whole | in shares |")
    print("|" + " --- |" * 6)
    for M, B in sizes:
        for dtype in ("float64", "float32"):
            found = operations(M, B, dtype)
            calls = [call for _, *both in found.values() for call in both if call is not None]
            times = iter(interleaved(calls))
            rate = None
            for name, (flops, _, shares) in found.items():
                whole = next(times)
                rate = flops / whole if rate is None else rate
                split = f"{next(times) * rate / flops:.2f}" if shares is not None else ""
                if name == "gemm":
                    name = f"gemm, {rate / 1e9:.0f} GFLOP/s"
                entries = f"{1e3 * whole:.3g} | {whole * rate / flops:.2f} | {split}"
                print(f"| {M}, {B} | {dtype} | {name} | {entries} |", flush=True)
    chosen = {name: getattr(tuning.current, name) for name in CHOICES}
    chosen["INVERSE_UP_TO"] = triangular.INVERSE_UP_TO
    print("\nIn force: " + ", ".join(f"{name} = {value}" for name, value in chosen.items()) + ".")


if __name__ == "__main__":
    main(sys.argv[1:])
