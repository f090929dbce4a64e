"""Measure the rates of a GPU, and single calls of each kernel against their floors, in minutes.

    python bench/first_times.py                     # into bench/results/first_times_cuda.md
    python bench/first_times.py --small             # tiny arrays, seconds: a test that it runs
    python bench/first_times.py pairwise chevron    # some families of kernels

The table has four times of each call, in microseconds. Graph: only the kernels, replayed from a
CUDA graph; "-" if a call cannot be captured, like those of CuPy's cuBLAS and cuSOLVER. Back to
back: consecutive calls on the device, by its clock. Wall: one call including synchronisation. Host:
the time of Python and CuPy to launch one call. The floor is the minimal time of the flops, bytes or
instructions of a call at the rates above the table; the ratio is that of the first time, or else
the second, to the floor. Results are not checked.
"""

import argparse
import pathlib
import sys
import time

import device
import numpy as np
import report
from problems import step_flops, step_problem

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
# instructions a second of an H200's lanes: 132 x 128 (64) at 1.755 GHz
LANES = {"float32": 2.97e13, "float64": 1.48e13}
DTYPES = "float64", "float32"
SLOPES = (
    "X1",
    "variance",
    "lengthscales",
)  # cotangents that a training step needs of a covariance matrix


# --- times and rates ------------------------------------------------------------------------------


def elapsed(call, count):
    """Return the seconds per call on the device, over ``count`` consecutive calls."""
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(count):
        call()
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / count / 1e3


def best(call, count):
    return min(elapsed(call, count) for _ in range(5))


def times(call):
    """Return the seconds of one call: ``(graph or None, back to back, wall, host)``."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    for _ in range(2):
        call()
    stream.synchronize()
    count = int(min(200, max(5, 0.2 / max(elapsed(call, 3), 1e-6))))
    back, walls = best(call, count), []
    for _ in range(count):
        start = time.perf_counter()
        call()
        stream.synchronize()
        walls.append(time.perf_counter() - start)
    launches = min(count, 50)
    start = time.perf_counter()
    for _ in range(launches):
        call()
    host = (time.perf_counter() - start) / launches
    stream.synchronize()
    replay = captured(call)
    return replay and best(replay, count), back, float(np.median(walls)), host


def captured(call):
    """Return a function that replays a call as a graph, or None if it cannot be captured."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    try:
        stream.begin_capture()
        try:
            kept = call()
        finally:
            graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    except Exception:  # for any error of CuPy, cuBLAS or the driver there is no graph
        return None
    return lambda written=kept: (
        graph.launch()
    )  # the graph refers to this memory, so it must stay allocated


class Card:
    """The rates of a device: bytes/s copied, bytes/s written, and cuBLAS flop/s per dtype."""

    def __init__(self, small):
        import cupy

        size, n = (2**18, 256) if small else (2**29, 8192)
        source, target = cupy.zeros(size, cupy.uint8).data, cupy.empty(size, cupy.uint8).data
        self.copy = 2 * size / best(lambda: target.copy_from_device_async(source, size), 10)
        self.write = size / best(lambda: target.memset_async(0, size), 10)
        self.gemm = {}
        for dtype in DTYPES:
            A, B, C = (numbers(n, n, dtype=dtype) for _ in range(3))
            self.gemm[dtype] = 2 * n**3 / best(lambda A=A, B=B, C=C: cupy.matmul(A, B, out=C), 3)

    def __str__(self):
        flops = ", ".join(f"{rate / 1e12:.1f} TFLOP/s {dtype}" for dtype, rate in self.gemm.items())
        return (
            f"Copy {self.copy / 1e12:.2f} TB/s (read and written), memset {self.write / 1e12:.2f}"
            f" TB/s; cuBLAS gemm {flops}."
        )


def numbers(*shape, dtype="float64"):
    """Return random numbers in (-1, 1), which a cache cannot compress."""
    import cupy

    return (
        cupy.sin(cupy.arange(int(np.prod(shape)), dtype=np.float64) * 1.2345)
        .astype(dtype)
        .reshape(shape)
    )


# --- calls: (name, call, seconds of the floor, what that is) --------------------------------------


def products(card, dtype, small):
    """Yield the parts of a training step with B = M."""
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda.common import blas

    rate = card.gemm[dtype]
    for M in (200,) if small else (512, 1000, 2000, 4000):
        B, C, W = numbers(M, M, dtype=dtype), cupy.empty((M, M), dtype), cupy.empty((M, M), dtype)
        K = B @ B.T / M + cupy.eye(M, dtype=dtype)
        L, info = kernels.cholesky(K), cupy.empty(1, np.int32)

        def factorised(K=K, W=W, info=info):
            W[...] = K
            blas.potrf(W, info)

        yield f"copy and potrf, {M}", factorised, M**3 / 3 / rate, "flops"
        yield f"trsm, {M}", lambda L=L, W=W: blas.solve(L, W), M**3 / rate, "flops"
        yield f"gemm, {M}", lambda K=K, B=B, C=C: blas.gemm(K, B, C), 2 * M**3 / rate, "flops"
        yield (
            f"multiply_triangular, {M}",
            lambda L=L, B=B: kernels.multiply_triangular(L, B),
            M**3 / rate,
            "flops",
        )
        yield (
            f"tril_product, {M}",
            lambda K=K, B=B: kernels.tril_product(K, B),
            M**3 / rate,
            "flops",
        )
        yield (
            f"inverse_triangular, {M}",
            lambda L=L: kernels.inverse_triangular(L),
            M**3 / 3 / rate,
            "flops",
        )
        step = lambda K=K, L=L: kernels.newton_schulz_step(K, L, 0.5)  # noqa: E731
        yield f"newton_schulz_step, {M}", step, 4 * M**3 / 3 / rate, "flops"


def triangular(card, dtype, small):
    """Yield batched solves."""
    import cupy

    from fastsvgp import kernels

    size = np.dtype(dtype).itemsize
    for batch, M, R in (
        ((4, 64, 64),)
        if small
        else ((4096, 32, 256), (1024, 64, 256), (528, 128, 256), (64, 512, 512))
    ):
        L, B = (
            cupy.eye(M, dtype=dtype) + cupy.zeros((batch, M, M), dtype),
            numbers(batch, M, R, dtype=dtype),
        )
        floor = max(2 * B.size * size / card.copy, batch * M * M * R / card.gemm[dtype])
        yield (
            f"solve_triangular, {batch} x {M} x {R}",
            lambda L=L, B=B: kernels.solve_triangular(L, B),
            floor,
            "bytes or flops",
        )


def pairwise(card, dtype, small):
    """Yield covariance matrices and their reverse rules, for inducing inputs."""
    import cupy

    from fastsvgp import kernels

    for n, D in (
        ((100, 8),)
        if small
        else ((1000, 8), (8192, 3), (8192, 8), (8192, 16), (8192, 40), (8192, 100))
    ):
        X1, X2, scale = numbers(n, D, dtype=dtype), numbers(n, D, dtype=dtype), cupy.ones(D, dtype)
        bar, floor = numbers(n, n, dtype=dtype), n * n * np.dtype(dtype).itemsize / card.write
        for family in ("rbf", "matern32"):
            arguments = family, X1, X2, 1.0, scale
            K = kernels.stationary(*arguments)
            yield (
                f"stationary {family}, {n}, D = {D}",
                lambda a=arguments: kernels.stationary(*a),
                floor,
                "K written",
            )
            back = lambda a=arguments, K=K, bar=bar: kernels.stationary_vjp(  # noqa: E731
                bar, *a, need=SLOPES, K=K
            )
            yield f"stationary_vjp {family}, {n}, D = {D}", back, floor, "K written"


def patches(card, dtype, small):
    """Yield sums over the patches of images of MNIST's size, and their reverse rule."""
    import cupy

    from fastsvgp import kernels

    N, M = (2, 8) if small else (100, 750)
    geometry, P, d = (28, 28, 1, 5, 5, 1), 576, 25
    X, Z, A, scale = (
        numbers(N, 784, dtype=dtype),
        numbers(M, d, dtype=dtype),
        cupy.ones(P, dtype),
        cupy.ones(d, dtype),
    )
    arguments, bar = ("rbf", Z, X, A, 1.0, scale, geometry), numbers(M, N, dtype=dtype)
    forward = lambda: kernels.patch_sums(*arguments)  # noqa: E731
    back = lambda: kernels.patch_sums_vjp(bar, *arguments)  # noqa: E731
    entries = M * N * P
    yield (
        f"patch_sums, {M} x {N} x {P}",
        forward,
        entries * (3 * d + 25) / 2 / LANES[dtype],
        "issue",
    )
    yield (
        f"patch_sums_vjp, {M} x {N} x {P}",
        back,
        entries * (6 * d + 50) / 2 / LANES[dtype],
        "issue",
    )


def chevron(card, dtype, small):
    """Yield products with a factor of 10^7 rows."""
    import cupy

    from fastsvgp import kernels

    (m, k), rows = (10_000, 100) if small else (10_000_000, 100), 2_000 if small else 20_000
    size = np.dtype(dtype).itemsize
    dense, diagonal, z = cupy.ones((m, k), dtype), cupy.ones(m - k, dtype), cupy.ones((1, m), dtype)
    for transpose in (False, True):
        call = lambda t=transpose: kernels.chevron_multiply(  # noqa: E731
            dense, diagonal, z, transpose=t
        )
        yield (
            f"chevron_multiply, transpose={transpose}",
            call,
            m * (k + 3) * size / card.copy,
            "bytes",
        )
    some = cupy.asarray(
        np.sort(np.random.default_rng(0).choice(np.arange(k, m), rows, replace=False))
    )
    head, rest = cupy.ones((1, k), dtype), cupy.ones((1, rows), dtype)
    call = lambda: kernels.chevron_multiply_rows(dense, diagonal, some, head, rest)  # noqa: E731
    yield f"chevron_multiply_rows, {rows}", call, rows * (k + 3) * size / card.copy, "bytes"


def fourier(card, dtype, small):
    """Yield products with random features; the floor counts D + 19 instructions per pair."""
    import cupy

    from fastsvgp import kernels

    shapes = (500, 20_000, 8), (8192, 20_000, 8), (500, 20_000, 64), (500, 20_000, 784)
    for n, count, D in ((64, 256, 8),) if small else shapes:
        X, w, u = (
            numbers(n, D, dtype=dtype),
            numbers(2 * count, dtype=dtype),
            numbers(n, dtype=dtype),
        )
        family, floor = (
            (
                "rbf",
                3,
                cupy.arange(count),
                10 * count,
                1.0,
                cupy.ones(D, dtype),
            ),
            n * count * (D + 19) / LANES[dtype],
        )
        for name, call in (
            ("fourier_multiply", lambda X=X, w=w, f=family: kernels.fourier_multiply(X, w, *f)),
            (
                "fourier_multiply, transposed",
                lambda X=X, u=u, f=family: kernels.fourier_multiply(X, u, *f, transpose=True),
            ),
            (
                "fourier_multiply_vjp",
                lambda X=X, w=w, u=u, f=family: kernels.fourier_multiply_vjp(u, X, w, *f),
            ),
        ):
            yield f"{name}, {n} x {count}, D = {D}", call, floor, "issue"


def step(card, dtype, small):
    """Yield whole training steps; all four times include the synchronisation for the value."""
    import cupy

    import fastsvgp as fs

    for M, B in ((100, 100),) if small else ((1000, 1000), (1000, 10_000), (4000, 1000)):
        p = step_problem(M, B, dtype)
        covariance = fs.RBF(p["variance"], p["lengthscales"])
        X, y = cupy.asarray(p["X"]), cupy.asarray(p["y"])
        for name, posterior, flops in (
            ("Whitened", fs.Whitened(p["mean"], p["scale_tril"]), step_flops(M, B)),
            (
                "LikelihoodForm",
                fs.LikelihoodForm(p["mean"], np.full(M, 0.5, dtype)),
                3 * M * M * B + 2 * M**3,
            ),
        ):
            model = fs.to_device(fs.SVGP(covariance, p["Z"], posterior, fs.Gaussian(p["noise"])))
            call = lambda m=model, X=X, y=y, B=B: fs.elbo_and_grad(  # noqa: E731
                m, X, y, num_data=10.0 * B, jitter=1e-4
            )
            yield f"elbo_and_grad {name}, M = {M}, B = {B}", call, flops / card.gemm[dtype], "flops"
            # the other fields are equal
            for words, graph in (
                (("one graph each", True), ("not captured", False)) if B == M else ()
            ):
                # the time includes the start of a training and two captures
                steps = 4 if small else 40
                settings = {
                    "steps": steps,
                    "batch_size": B,
                    "jitter": 1e-4,
                    "rng": 0,
                    "graph": graph,
                }
                call = lambda m=model, X=X, y=y, s=settings: fs.fit(m, X, y, **s)  # noqa: E731
                yield (
                    f"{steps} steps of fit, {words}, {name}, M = {M}, B = {B}",
                    call,
                    steps * flops / card.gemm[dtype],
                    "flops",
                )


FAMILIES = {
    f.__name__: f for f in (products, triangular, pairwise, patches, chevron, fourier, step)
}


# --- the table ------------------------------------------------------------------------------------


def row(name, call, floor, what):
    """Return a line of the table; if the call raises an error, the line shows it."""
    try:
        graph, back, wall, host = times(call)
    except Exception as error:
        return [name, f"{type(error).__name__}: {str(error).splitlines()[0][:120]}", *[""] * 5]
    shown = (f"{1e6 * t:.1f}" if t else "-" for t in (graph, back, wall, host))
    return [name, *shown, f"{1e6 * floor:.1f} ({what})", f"{(graph or back) / floor:.2f}"]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "families",
        nargs="*",
        metavar="FAMILY",
        help=f"some of {', '.join(FAMILIES)} (default: all)",
    )
    parser.add_argument("--small", action="store_true", help="tiny arrays; only print the table")
    parser.add_argument(
        "--results", type=pathlib.Path, default=HERE / "results", help="the folder of the table"
    )
    args = parser.parse_args(arguments)
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    if device.REASON:
        parser.error(device.REASON)
    import cupy

    table = [["call", "graph, µs", "back to back", "wall", "host", "floor", "ratio"]]
    with cupy.cuda.Stream(non_blocking=True):
        card = Card(args.small)
        print(card, flush=True)
        for dtype in DTYPES:
            for family in args.families or FAMILIES:
                for name, *call in FAMILIES[family](card, dtype, args.small):
                    table.append(row(f"{dtype}, {name}", *call))
                    print(" | ".join(table[-1]), flush=True)
    if args.small:
        return
    args.results.mkdir(exist_ok=True)
    path = args.results / "first_times_cuda.md"
    head = report.header("python bench/first_times.py", device=device.facts())
    legend = " ".join(__doc__.split("\n\n")[2].split())
    path.write_text(
        f"# First times\n\n{head}\n\n{card}\n\n{legend}\n\n{report.markdown(table)}\n",
        encoding="utf-8",
    )
    print(path)


if __name__ == "__main__":
    main()
