"""The calls of ``first_times.py`` in families, each with its floor and with a reference.

A family is a function of the rates of the device, a dtype, and whether the arrays are tiny. It
yields rows. Inputs are made when a row is requested, so one family's arrays are there at a time.
"""

import pathlib
import sys
from typing import Any, NamedTuple

import first_references as reference
import numpy as np
from problems import step_flops, step_problem

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # the package, and the oracles
# instructions a second of an H200's lanes: 132 x 128 (64) at 1.755 GHz
LANES = {"float32": 2.97e13, "float64": 1.48e13}
# cotangents that a training step needs of a covariance matrix
SLOPES = "X1", "variance", "lengthscales"
JITTER = {"float64": 1e-6, "float32": 1e-4}
STEPS = {True: 3, False: 40}  # of a training; fewer with tiny arrays
AT_A_TIME = 2**26  # numbers


class Row(NamedTuple):
    """A call that is timed.

    Parameters
    ----------
    name : str
    call : function without arguments
        Its results are overwritten, or equal, at every call.
    floor : float
        Seconds that it takes at least, at the rates of the device.
    what : str
        What determines the floor.
    error : function
        Of the result of ``call``: its largest relative error.
    waits : bool
        Whether the call synchronises; then it cannot be captured.
    """

    name: str
    call: Any
    floor: float
    what: str
    error: Any
    waits: bool = False


def numbers(*shape, dtype="float64", xp=None):
    """Return numbers in (-1, 1) that are as good as random: the bits of their indices, mixed."""
    if xp is None:
        import cupy as xp
    out = xp.empty(int(np.prod(shape)), dtype)
    for start in range(0, out.size, AT_A_TIME):
        stop = min(start + AT_A_TIME, out.size)
        bits = xp.arange(start + 1, stop + 1, dtype=np.uint64)
        for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
            bits *= np.uint64(factor)
            bits ^= bits >> np.uint64(32)
        out[start:stop] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
    return out.reshape(shape)


def against(truth):
    """Return the ``error`` of a row whose results are to equal ``truth()``."""

    def error(found):
        import cupy

        found = found if isinstance(found, tuple) else (found,)
        there = truth()
        return reference.error_of(cupy, found, there if isinstance(there, tuple) else (there,))

    return error


def product(*factors):
    """Return a product of matrices in float64."""
    import cupy

    first, *others = reference.doubles(cupy, *factors)
    for other in others:
        first = first @ other
    return first


# --- products of matrices, and factors ------------------------------------------------------------


def products(card, dtype, small):
    """Yield the parts of a training step with B = M."""
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda.common import blas
    from fastsvgp.runtime import deferred_checks

    rate = card.gemm[dtype]
    for M in (70,) if small else (512, 1000, 2000, 4000):
        B, C, W = numbers(M, M, dtype=dtype), cupy.empty((M, M), dtype), cupy.empty((M, M), dtype)
        K = B @ B.T / M + cupy.eye(M, dtype=dtype)
        L, info = kernels.cholesky(K), cupy.empty(1, np.int32)

        def potrf(K=K, W=W, info=info):
            W[...] = K
            return blas.potrf(W, info)

        def cholesky(K=K):
            with deferred_checks.deferred(K):  # so that it does not wait
                return kernels.cholesky(K)

        def trsm(L=L, B=B, W=W):
            W[...] = B
            return blas.solve(L, W)

        def squares_of_upper(U, K=K):
            U = cupy.triu(U)
            return against(lambda: K)(product(U.T, U))

        def squares_of_lower(L, K=K):
            return against(lambda: K)(product(L, L.T))

        def times_factor(X, L=L, B=B):
            return against(lambda: B)(product(L, X))

        def stepped(K=K, L=L):
            D = cupy.tril(product(L.T, K, L)) - cupy.eye(len(K))
            D[cupy.arange(len(D)), cupy.arange(len(D))] /= 2
            return product(L) - 0.5 * product(L, D)

        for name, call, flops, error in (
            ("cholesky", cholesky, M**3 / 3, squares_of_lower),
            ("copy and potrf", potrf, M**3 / 3, squares_of_upper),
            ("copy and trsm", trsm, M**3, times_factor),
            (
                "gemm",
                lambda K=K, B=B, C=C: blas.gemm(K, B, C),
                2 * M**3,
                against(lambda K=K, B=B: product(K, B)),
            ),
            (
                "multiply_triangular",
                lambda L=L, B=B: kernels.multiply_triangular(L, B),
                M**3,
                against(lambda L=L, B=B: product(L, B)),
            ),
            (
                "tril_product",
                lambda K=K, B=B: kernels.tril_product(K, B),
                M**3,
                against(lambda K=K, B=B: cupy.tril(product(K, B.T))),
            ),
            (
                "inverse_triangular",
                lambda L=L: kernels.inverse_triangular(L),
                M**3 / 3,
                lambda X, L=L: against(lambda: cupy.eye(len(L)))(product(L, X)),
            ),
            (
                "newton_schulz_step",
                lambda K=K, L=L: kernels.newton_schulz_step(K, L, 0.5),
                4 * M**3 / 3,
                against(stepped),
            ),
        ):
            yield Row(f"{name}, {M}", call, flops / rate, "flops", error)


def triangular(card, dtype, small):
    """Yield batched solves."""
    import cupy

    from fastsvgp import kernels

    size = np.dtype(dtype).itemsize
    for batch, M, R in (
        ((2, 64, 64),)
        if small
        else ((4096, 32, 256), (1024, 64, 256), (528, 128, 256), (64, 512, 512))
    ):
        L = cupy.tril(numbers(batch, M, M, dtype=dtype), -1) / np.sqrt(M).astype(dtype)
        L, B = L + cupy.eye(M, dtype=dtype), numbers(batch, M, R, dtype=dtype)
        floor = max(2 * B.size * size / card.copy, batch * M * M * R / card.gemm[dtype])
        yield Row(
            f"solve_triangular, {batch} x {M} x {R}",
            lambda L=L, B=B: kernels.solve_triangular(L, B),
            floor,
            "bytes or flops",
            lambda X, L=L, B=B: against(lambda: B)(product(L, X)),
        )


# --- covariances ----------------------------------------------------------------------------------


def pairwise(card, dtype, small):
    """Yield covariance matrices and their reverse rules, for inducing inputs."""
    import cupy

    from fastsvgp import kernels

    for n, D in (
        ((70, 8),)
        if small
        else ((1000, 8), (8192, 3), (8192, 8), (8192, 16), (8192, 40), (8192, 100))
    ):
        X, scale = numbers(2 * n, D, dtype=dtype), cupy.ones(D, dtype)
        X1, X2 = X[:n], X[n:]
        bar, floor = numbers(n, n, dtype=dtype), n * n * np.dtype(dtype).itemsize / card.write
        for family in ("rbf", "matern32"):
            arguments = family, X1, X2, 1.0, scale
            K = kernels.stationary(*arguments)
            yield Row(
                f"stationary {family}, {n}, D = {D}",
                lambda a=arguments: kernels.stationary(*a),
                floor,
                "K written",
                against(lambda a=arguments: reference.stationary(cupy, *a)),
            )

            def back(a=arguments, K=K, bar=bar):
                found = kernels.stationary_vjp(bar, *a, need=SLOPES, K=K)
                return tuple(found[i] for i in (0, 2, 3))

            yield Row(
                f"stationary_vjp {family}, {n}, D = {D}",
                back,
                floor,
                "K written",
                against(lambda a=arguments, bar=bar: reference.stationary_vjp(cupy, bar, *a)),
            )


def patches(card, dtype, small):
    """Yield sums over the patches of images of MNIST's size, and their reverse rule."""
    import cupy

    from fastsvgp import kernels

    N, M = (1, 3) if small else (100, 750)
    geometry, P, d = (28, 28, 1, 5, 5, 1), 576, 25
    X, Z, A, scale = (
        numbers(N, 784, dtype=dtype),
        numbers(M, d, dtype=dtype),
        cupy.ones(P, dtype),
        cupy.ones(d, dtype),
    )
    arguments, bar = ("rbf", Z, X, A, 1.0, scale, geometry), numbers(M, N, dtype=dtype)
    entries = M * N * P / 2 / LANES[dtype]
    yield Row(
        f"patch_sums, {M} x {N} x {P}",
        lambda: kernels.patch_sums(*arguments),
        entries * (3 * d + 25),
        "issue",
        against(lambda: reference.patch_sums(cupy, *arguments)),
    )
    yield Row(
        f"patch_sums_vjp, {M} x {N} x {P}",
        lambda: kernels.patch_sums_vjp(bar, *arguments),
        entries * (6 * d + 50),
        "issue",
        against(lambda: reference.patch_sums_vjp(cupy, bar, *arguments)),
    )


# --- features -------------------------------------------------------------------------------------


def chevron(card, dtype, small):
    """Yield products with a factor of 10^7 rows."""
    import cupy

    from fastsvgp import kernels

    m, k = (1_000, 100) if small else (10_000_000, 100)
    size = np.dtype(dtype).itemsize
    factor = numbers(m, k, dtype=dtype), numbers(m - k, dtype=dtype)
    z = numbers(1, m, dtype=dtype)
    yield Row(
        "chevron_multiply",
        lambda: kernels.chevron_multiply(*factor, z),
        m * (k + 3) * size / card.copy,
        "bytes",
        against(lambda: reference.chevron(cupy, *factor, z)),
    )


def cotangents(u, X, w, *model):
    """Return the cotangents of X, w, variance and lengthscales for u of Phi w."""
    from fastsvgp import kernels

    need = "X", "W", "variance", "lengthscales"
    found = kernels.fourier_sweep(X, *model, W=w[None], U=u[None], need=need)
    return found[4], found[2][0], *found[5:]


def fourier(card, dtype, small):
    """Yield products with random features; the floor counts D + 19 instructions per pair."""
    import cupy

    from fastsvgp import kernels

    shapes = (500, 20_000, 8), (8192, 20_000, 8), (500, 20_000, 64), (500, 20_000, 784)
    for n, count, D in ((32, 64, 8),) if small else shapes:
        X, w, u = (
            numbers(n, D, dtype=dtype),
            numbers(2 * count, dtype=dtype),
            numbers(n, dtype=dtype),
        )
        scale, indices = cupy.ones(D, dtype), cupy.arange(count)
        family = "rbf", 3, indices, 10 * count, 1.0, scale
        floor, shape = n * count * (D + 19) / LANES[dtype], f"{n} x {count}, D = {D}"

        def phi(X=X, D=D, family=family):
            omega = kernels.fourier_frequencies("rbf", 3, family[2], D, np.dtype(dtype))
            return omega, reference.features(cupy, omega, X, *family[3:])

        def bars(X=X, u=u, w=w, scale=scale, phi=phi):
            omega, Phi = phi()
            return reference.features_vjp(cupy, Phi, omega, X, u, w, 1.0, scale)

        for name, call, error in (
            (
                "fourier_multiply",
                lambda X=X, w=w, f=family: kernels.fourier_multiply(X, w, *f),
                against(lambda w=w, phi=phi: product(phi()[1], w)),
            ),
            (
                "fourier_multiply, transposed",
                lambda X=X, u=u, f=family: kernels.fourier_multiply(X, u, *f, transpose=True),
                against(lambda u=u, phi=phi: product(u, phi()[1])),
            ),
            (
                "fourier_sweep, cotangents",
                lambda X=X, w=w, u=u, f=family: cotangents(u, X, w, *f),
                against(bars),
            ),
        ):
            yield Row(f"{name}, {shape}", call, floor, "issue", error)


# --- training steps -------------------------------------------------------------------------------


def in_likelihood_form(p, variance, jitter, scale):
    """Return value and gradients by path of the bound with ``LikelihoodForm(mean, variance)``."""
    from oracles import gp_gradients, inverse_free

    given = p["Z"], p["X"], p["variance"], p["lengthscales"]
    K, Kuu, Kuf, kff = gp_gradients.blocks(*given, jitter)
    value, bars = inverse_free.gaussian_bars(
        Kuu, Kuf, kff, p["y"], p["noise"], p["mean"], variance, scale
    )
    grad = gp_gradients.to_parameters(bars["Kuu"], bars["Kuf"], bars["kff"], K, Kuf, *given)
    own = {
        "posterior.mean": bars["mean"],
        "posterior.variance": bars["variance"],
        "likelihood.variance": bars["noise"],
    }
    return value, grad | own


def error_of_step(truth):
    """Return the ``error`` of value and gradients, both against NumPy's on the host."""

    def error(found):
        import fastsvgp as fs

        (value, grad), (true_value, true_grad) = found, truth()
        pairs = [(value, true_value)]
        for path, kind, bar in fs.records.leaves(fs.to_host(grad)):
            pairs.append((np.tril(bar) if kind == "tril" else bar, true_grad[path]))
        return reference.error_of(np, *zip(*pairs, strict=True))

    return error


def error_of_training(other):
    """Return the ``error`` of a training: the losses of ``other()`` are to be equal."""
    return lambda found: reference.error_of(np, (found[1].values,), (other()[1].values,))


def step(card, dtype, small):
    """Yield whole training steps; each waits for its value."""
    import cupy
    from oracles import gp_gradients

    import fastsvgp as fs

    jitter, steps, scale = JITTER[dtype], STEPS[small], 10.0
    for M, B in ((40, 40),) if small else ((1000, 1000), (1000, 10_000), (4000, 1000)):
        p = step_problem(M, B, dtype)
        doubled = {name: np.float64(a) for name, a in p.items()}
        covariance, variance = fs.RBF(p["variance"], p["lengthscales"]), np.full(M, 0.5, dtype)
        X, y = cupy.asarray(p["X"]), cupy.asarray(p["y"])
        for name, posterior, flops, truth in (
            (
                "Whitened",
                fs.Whitened(p["mean"], p["scale_tril"]),
                step_flops(M, B),
                lambda d=doubled: gp_gradients.whitened(**d, jitter=jitter, scale=scale),
            ),
            (
                "LikelihoodForm",
                fs.posteriors.LikelihoodForm(p["mean"], variance),
                3 * M * M * B + 2 * M**3,
                lambda d=doubled, s=variance: in_likelihood_form(d, np.float64(s), jitter, scale),
            ),
        ):
            model = fs.to_device(fs.SVGP(covariance, p["Z"], posterior, fs.Gaussian(p["noise"])))
            call = lambda m=model, X=X, y=y, B=B: fs.elbo_and_grad(  # noqa: E731
                m, X, y, num_data=scale * B, jitter=jitter
            )
            floor, shape = flops / card.gemm[dtype], f"{name}, M = {M}, B = {B}"
            error = error_of_step(truth)
            yield Row(f"elbo_and_grad {shape}", call, floor, "flops", error, waits=True)
            if B != M:
                continue

            # the time includes the start of a training and two captures
            def train(graph, m=model, X=X, y=y, B=B):
                return fs.fit(m, X, y, steps=steps, batch_size=B, jitter=jitter, rng=0, graph=graph)

            error = error_of_training(lambda t=train: t(False))
            for words, graph in (("one graph each", True), ("not captured", False)):
                yield Row(
                    f"{steps} steps of fit, {words}, {shape}",
                    lambda t=train, graph=graph: t(graph),
                    steps * floor,
                    "flops",
                    error,
                    waits=True,
                )


FAMILIES = {
    f.__name__: f for f in (step, products, triangular, pairwise, patches, chevron, fourier)
}
