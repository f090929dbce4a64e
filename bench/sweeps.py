"""Time kernels on a GPU with other values of the constants that choose between their forms.

    python bench/sweeps.py                     # all sweeps, one after the other
    python bench/sweeps.py slices --small      # one of them with tiny arrays: a test that it runs

Times are microseconds back to back, by the clock of the device; the values in force are in
brackets. ``slices``: ``BLOCKS_EACH`` of ``tiled``, slices of cut sums per multiprocessor; 0: whole
sums.
``direct``: covariances by direct differences and by products, for numbers of features around
``DIRECT_BELOW``. ``cholesky``: factors by our kernels and by cuSOLVER, for sizes around
``own_cholesky_rows``, and cuSOLVER's alone. ``inverse``: two solves of a step, and the inverse with
two products.
"""

import argparse
import contextlib
import sys
from unittest import mock

import device
import first_families
import numpy as np
from first_times import DTYPES, best

numbers = first_families.numbers


def timed(call, small):
    """Return the microseconds of a call; with tiny arrays only of one."""
    call()
    return 1e6 * (best(call, 1, 1) if small else best(call, 20))


def line(name, found, small):
    """Print the microseconds of several calls, given by name, each with a context."""
    print(f"{name}:", end="", flush=True)
    for words, (call, context) in found.items():
        with context:
            print(f" {words} {timed(call, small):.1f}", end=",", flush=True)
    print(flush=True)


@contextlib.contextmanager
def constants(module, **values):
    """Give constants of a module other values, for plans that are made in this context."""
    from fastsvgp.kernels.cuda import tiled

    tiled._plan.cache_clear()
    with mock.patch.multiple(module, **values):
        yield
    tiled._plan.cache_clear()


PLAIN = contextlib.nullcontext()


def matrix(n, dtype):
    """Return a positive definite matrix, and its factor."""
    import cupy

    from fastsvgp import kernels

    A = numbers(n, n, dtype=dtype)
    A = A @ A.T / n + cupy.eye(n, dtype=dtype)
    return A, kernels.cholesky(A)


# --- sweeps ---------------------------------------------------------------------------------------


def slices(dtype, small):
    from fastsvgp import kernels
    from fastsvgp.kernels.cuda import tiled

    for n in (70,) if small else (256, 512, 1000, 2000, 4000):
        A, L = matrix(n, dtype)
        for name, call in (
            ("newton_schulz_step", lambda A=A, L=L: kernels.newton_schulz_step(A, L, 0.5)),
            ("multiply_triangular", lambda A=A, L=L: kernels.multiply_triangular(L, A)),
            ("tril_product", lambda A=A: kernels.tril_product(A, A)),
        ):
            found = {}
            for each in (2, 3, 4, 6, 8, 12):
                words = f"[{each}]" if each == tiled.BLOCKS_EACH else f"{each}"
                found[words] = call, constants(tiled, BLOCKS_EACH=each, CUT_UP_TO=3 * each)
            found["0"] = call, constants(tiled, LEAST=2**30)
            line(f"{name}, {n}, {dtype}, by slices per multiprocessor", found, small)


def direct(dtype, small):
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda import pairwise

    n = 70 if small else 8192
    for D in (8,) if small else (16, 24, 32, 40, 48, 64, 100):
        X, scale = numbers(2 * n, D, dtype=dtype), cupy.ones(D, dtype)
        bar = numbers(n, n, dtype=dtype)
        arguments = "rbf", X[:n], X[n:], 1.0, scale
        K = kernels.stationary(*arguments)
        for name, call in (
            ("stationary", lambda a=arguments: kernels.stationary(*a)),
            (
                "stationary_vjp",
                lambda a=arguments, K=K, bar=bar: kernels.stationary_vjp(
                    bar, *a, need=first_families.SLOPES, K=K
                ),
            ),
        ):
            below = pairwise.DIRECT_BELOW
            words = ("[direct]", "products") if below > D else ("direct", "[products]")
            found = {
                word: (call, constants(pairwise, DIRECT_BELOW=limit))
                for word, limit in zip(words, (D + 1, D), strict=True)
            }
            line(f"{name} rbf, {n}, D = {D}, {dtype}", found, small)


def cholesky(dtype, small):
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda.common import blas
    from fastsvgp.runtime import deferred_checks, tuning

    for n in (70,) if small else (128, 256, 512, 1000, 2000, 4000, 8000):
        A, _ = matrix(n, dtype)
        W, info = cupy.empty_like(A), cupy.empty(1, np.int32)

        def factor(A=A):
            with deferred_checks.deferred(A):
                return kernels.cholesky(A)

        def library(A=A, W=W, info=info):
            W[...] = A
            return blas.potrf(W, info)

        ours = n <= tuning.current.own_cholesky_rows
        words = ("[own]", "cuSOLVER") if ours else ("own", "[cuSOLVER]")
        found = {
            word: (factor, tuning.override(own_cholesky_rows=rows))
            for word, rows in zip(words, (n, 0), strict=True)
        }
        line(f"factor, {n}, {dtype}", found | {"copy and potrf": (library, PLAIN)}, small)


def inverse(dtype, small):
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda.common import blas

    for n in (70,) if small else (128, 256, 512, 1000, 2000, 4000, 8000):
        A, L = matrix(n, dtype)
        W, out = cupy.empty_like(A), cupy.empty_like(A)

        def solves(A=A, L=L, W=W):
            W[...] = A
            return blas.solve(L, blas.solve(L, W), transpose=True)

        def products(A=A, L=L, out=out):
            X = kernels.inverse_triangular(L)
            half = kernels.multiply_triangular(X, A)
            return blas.gemm(X, half, out, transpose_a=True)

        line(
            f"L'^-1 L^-1 A, {n}, {dtype}",
            {"solves": (solves, PLAIN), "by inverse": (products, PLAIN)},
            small,
        )


SWEEPS = {f.__name__: f for f in (slices, cholesky, direct, inverse)}


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", nargs="*", metavar="SWEEP", help=f"some of {', '.join(SWEEPS)}")
    parser.add_argument("--small", action="store_true", help="tiny arrays: a test that it runs")
    args = parser.parse_args(arguments)
    if unknown := set(args.sweeps) - set(SWEEPS):
        parser.error(f"no sweep {', '.join(sorted(unknown))}; there are {', '.join(SWEEPS)}")
    if device.REASON:
        parser.error(device.REASON)
    import cupy

    failed = 0
    with cupy.cuda.Stream(non_blocking=True), contextlib.suppress(KeyboardInterrupt):
        for name in args.sweeps or SWEEPS:
            for dtype in DTYPES:
                try:
                    SWEEPS[name](dtype, args.small)
                except Exception as error:
                    failed = 1
                    print(f"{name}, {dtype}: {type(error).__name__}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
