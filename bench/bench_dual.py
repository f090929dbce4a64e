"""E-steps and M-steps of dual sites against their flops.

An M-step is value and gradients with fixed sites.

Floors include the flops at the rate of gemm, and the covariance blocks and the likelihood, timed at
the same moments. The rows of digits have the sizes of Adam et al. 2021, section 5: ten classes,
softmax, 784 columns.
"""

import time

import numpy as np
import pytest
from harness import gemm_rates, record, relative_error
from problems import step_problem

import fastsvgp as fs

JITTER = {"float64": 1e-6, "float32": 1e-4}
WITHOUT_SITES = ("covariance", "inducing", "likelihood")
SIZES = [(256, 8192), (512, 1024), (1000, 1000)]
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def problem(M, B, kind="AbsorbedDualSites", dtype="float64"):
    """Return ``(model, X, y)`` with the q of a step problem."""
    p = step_problem(M, B)
    q = fs.Whitened(p["mean"], p["scale_tril"])
    model = fs.SVGP(
        fs.RBF(p["variance"], p["lengthscales"]), p["Z"], q, fs.Gaussian(variance=p["noise"])
    )
    model = fs.posteriors.convert(model, getattr(fs.posteriors, kind), jitter=JITTER[dtype])
    return (
        fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model),
        p["X"].astype(dtype),
        p["y"].astype(dtype),
    )


def digits(M=100, B=200, D=784, P=10):
    """Return ten batches with the sizes of MNIST."""
    rng = np.random.default_rng(0)
    X, labels = rng.uniform(0, 1, (10 * B, D)), rng.integers(0, P, 10 * B)
    covariance, Z = fs.RBF(1.0, 8.0), X[:M].copy()
    model = fs.SVGP(
        covariance,
        Z,
        fs.posteriors.at_prior(fs.posteriors.AbsorbedDualSites, covariance, Z, outputs=P),
        fs.Softmax(num_classes=P),
    )
    return model, X, labels


def floor_of(flops, model, X, y, M, dtype="float64", blocks=1, back=False):
    """Return the seconds of flops at the gemm rate, covariance blocks, and one likelihood.

    Blocks include their reverse rules.
    """
    covariance, Z = model.covariance, model.inducing
    f = fs.predict_f(model, X, jitter=JITTER[dtype])
    f = fs.records.Marginals(*(np.ascontiguousarray(a.T) for a in f))

    def timed():
        rate = np.median(gemm_rates(M, len(X), dtype))
        start = time.perf_counter()
        for _ in range(blocks):
            Kuf = covariance.Kuf(Z, X)
        Kuu = covariance.Kuu(Z)
        model.likelihood.expected_log_prob(y, f, 0)
        if back:
            covariance.Kuf_vjp(Kuf, Kuf, Z, X, ("covariance", "inducing"))
            covariance.Kuu_vjp(Kuu, Kuu, Z, None, ("covariance", "inducing"))
        return flops / rate + time.perf_counter() - start

    return timed


def of_variances(M, B):
    """Return the flops of the sum of variances that Gaussian noise takes, from S or from V."""
    return M**2 * min(B, M / 3)


def unit(M, B, P=1, dtype="float64"):
    return (P * M * M + M * B) * np.dtype(dtype).itemsize


def q_error(stepped, model, X, y, dtype, **options):
    """Return the error of the new q, against the same step of the whitened q in float64."""
    wide = fs.records.tree_map(lambda a: np.asarray(a, float)[()], model)
    options |= {"jitter": JITTER[dtype]}
    truth, _ = fs.natural_step(
        fs.posteriors.convert(wide, fs.Whitened, jitter=JITTER[dtype]),
        X.astype(float),
        y.astype(float),
        **options,
    )
    moments, expected = (
        fs.predict_f(one, X.astype(float)[:200], jitter=JITTER[dtype]) for one in (stepped, truth)
    )
    return max(relative_error(a, b) for a, b in zip(moments, expected, strict=True))


@every_dtype
@pytest.mark.parametrize("M, B", SIZES)
@pytest.mark.parametrize("kind", ["AbsorbedDualSites", "DualSites", "Whitened"])
def bench_e_step(benchmark, kind, M, B, dtype):
    if kind == "DualSites" and dtype == "float32":
        pytest.skip("Kuu + lambda2 equals lambda2 within rounding")
    model, X, y = problem(M, B, kind, dtype)
    options = {"step_size": 0.1, "num_data": 10.0 * B}

    def call():
        return fs.natural_step(model, X, y, jitter=JITTER[dtype], **options)[0]

    cubes = {"AbsorbedDualSites": 3, "DualSites": 1, "Whitened": 5 / 3}[kind]
    flops = 2 * M**2 * B + cubes * M**3 + of_variances(M, B)
    error = q_error(call(), model, X, y, dtype, **options)
    record(
        benchmark,
        call,
        flops,
        floor_seconds=floor_of(flops, model, X, y, M, dtype),
        error=error,
        unit=unit(M, B, 1, dtype),
    )


@pytest.mark.parametrize("same", [False, True], ids=["ten batches", "one batch"])
@pytest.mark.parametrize("M, B", SIZES)
def bench_ten_e_steps(benchmark, M, B, same):
    """Time all ten steps; on a constant batch the floor counts Lam and its covariances once."""
    model, X, y = problem(M, B)
    rows = {"steps": 10} if same else {"rows": [np.arange(B)] * 10}

    def call():
        return fs.sites.natural_steps(
            model, X, y, step_size=0.1, num_data=10.0 * B, jitter=1e-6, **rows
        )[0]

    one = model
    for _ in range(10):
        one, _ = fs.natural_step(one, X, y, step_size=0.1, num_data=10.0 * B, jitter=1e-6)
    error = max(
        relative_error(a, b)
        for a, b in zip(fs.predict_f(call(), X[:200]), fs.predict_f(one, X[:200]), strict=True)
    )
    flops = 10 * (2 * M**2 * B + 2 / 3 * M**3 + of_variances(M, B)) - (9 * M**2 * B if same else 0)
    floor = floor_of(flops, model, X, y, M, blocks=1 if same else 10)
    record(benchmark, call, flops, floor_seconds=floor, error=error, unit=unit(M, B))


@every_dtype
@pytest.mark.parametrize("M, B", SIZES)
def bench_m_step(benchmark, M, B, dtype):
    """Floor: the form without Lam, 3 M^2 B + 16/3 M^3, which loses digits.

    fastsvgp uses the form with Lam.
    """
    model, X, y = problem(M, B, dtype=dtype)
    options = {"num_data": 10.0 * B, "jitter": JITTER[dtype], "wrt": WITHOUT_SITES}
    value, grad = fs.elbo_and_grad(model, X, y, **options)
    wide = fs.records.tree_map(lambda a: np.asarray(a, float)[()], model)
    if dtype == "float64":  # with gradients in the sites another form is used
        options |= {"wrt": None}
    truth, expected = fs.elbo_and_grad(wide, X.astype(float), y.astype(float), **options)
    found = {path: bar for path, _, bar in fs.records.leaves(grad) if bar is not None}
    same = {path: bar for path, _, bar in fs.records.leaves(expected)}
    error = max(
        relative_error(value, truth),
        *(relative_error(bar, same[path]) for path, bar in found.items()),
    )
    flops = 3 * M**2 * B + 16 / 3 * M**3
    record(
        benchmark,
        lambda: fs.elbo_and_grad(model, X, y, **options | {"wrt": WITHOUT_SITES}),
        flops,
        floor_seconds=floor_of(flops, model, X, y, M, dtype, back=True),
        error=error,
        unit=unit(M, B, 1, dtype),
    )


@pytest.mark.parametrize("beside", [False, True], ids=["floor", "Whitened natural_step"])
def bench_digits_each_of_10(benchmark, beside, M=100, B=200, P=10):
    """Time ten steps on ten batches against their floor, and natural steps of a whitened q."""
    model, X, y = digits()
    batches = [np.arange(start, start + B) for start in range(0, 10 * B, B)]
    whitened = fs.posteriors.convert(model, fs.Whitened)

    def others():
        start, one = time.perf_counter(), whitened
        for rows in batches:
            one, _ = fs.natural_step(one, X[rows], y[rows], step_size=0.1, num_data=8000, rng=0)
        return time.perf_counter() - start

    flops = 10 * ((1 + 2 * P) * M**2 * B + 2 / 3 * P * M**3)
    of_one = floor_of(flops / 10, model, X[:B], y[:B], M)
    record(
        benchmark,
        lambda: fs.sites.natural_steps(
            model, X, y, rows=batches, step_size=0.1, num_data=8000, rng=0
        ),
        flops,
        floor_seconds=others if beside else lambda: 10 * of_one(),
        unit=unit(M, B, P),
    )


def bench_vgp(benchmark, N=1000):
    """Time value and gradient of the covariance; floor 4 N^3."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, 8)), rng.standard_normal(N)
    model = fs.sites.VGP(
        fs.RBF(1.3, np.full(8, 1.2)), fs.sites.Sites(y / 0.2, np.full(N, 5.0)), fs.Gaussian(0.2)
    )
    K = model.covariance.Kff(X) + 0.2 * np.eye(N)
    truth = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1])
    error = relative_error(fs.sites.bound(model, X, y), truth)
    record(
        benchmark,
        lambda: fs.sites.bound_and_grad(model, X, y, wrt=("covariance", "likelihood")),
        4.0 * N**3,
        error=error,
        gemm=(N, N, "float64"),
        unit=N * N * 8,
    )
