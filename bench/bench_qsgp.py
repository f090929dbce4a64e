"""Steps in weight space: a sampled bound and its gradient, AdaGrad, and the advance of a control.

500 data; two samples of 10,000 functions, 5,000 random Fourier frequencies; k dense columns. The
floor is the sines and cosines of all sweeps of a step, three with Gaussian noise (p_j; p_i and its
reverse; the reverse for j) and two with only one sample, and the flops of their phases and products
at the rate of gemm. It excludes drawing units and frequencies, gathering and summing rows, and
AdaGrad. Error: of the gradient in the mean, against features written out.
"""

import time

import device
import numpy as np
import pytest
from bench_fourier import floor_of, floor_there
from harness import gemm_rate, record, relative_error

import fastsvgp as fs

N, UNITS, NUM_DATA = 500, 5000, 1e6


def model_of(m, k, D, likelihood, dtype=np.float64):
    rng = np.random.default_rng(0)
    columns = np.zeros((m, k), dtype)
    columns[:] = 1e-3 * rng.standard_normal((m, k), np.float32)
    columns[range(k), range(k)] = 0.5
    q = fs.qsgp.ChevronWeights(np.zeros(m, dtype), columns, np.full(m - k, 0.5, dtype))
    q.mean[:] = rng.standard_normal(m, np.float32)
    return fs.QSGP(
        fs.qsgp.RandomFourier(
            fs.RBF(dtype(1.0), np.full(D, np.sqrt(D), dtype)), num_features=m, seed=1
        ),
        q,
        likelihood,
    )


def floor(sweeps, k, D, reverse=False):
    """Return the floor of the sweeps.

    Per pair of datum and frequency: one wave, 2 D flops of a phase, and 4 (1 + k) of a product.
    """
    waves = floor_of(N, sweeps * UNITS, 0, 0, np.float64)
    products = (4 if sweeps == 3 else 2) * 4 * (1 + k)
    phases = sweeps if D <= 8 else 1  # with many inputs the phases are kept between sweeps
    flops = N * UNITS * (phases * 2 * D + products + (2 * (2 * D + 4 * (1 + k)) if reverse else 0))
    return lambda: waves() + flops / gemm_rate(1000, 1000)


def gradient_error(model, X, Y, sample, found):
    """Return the error of the gradient in the mean, for k = 0 and Gaussian noise.

    The reference is rho (Phi_i' r_j + Phi_j' r_i) / 2 - w mu.
    """
    w, mu = model.basis.num_functions() / len(sample.i) / 2, model.posterior.mean
    sides = []
    for units in (sample.i, sample.j):
        functions = model.basis.functions(units)
        phi = model.basis.features(X, units)
        sides.append((functions, phi, Y - phi @ (w * mu[functions])))
    expected = np.zeros(len(mu))
    c = NUM_DATA / N / float(model.likelihood.variance)
    for (functions, phi, _), (_, _, other) in (sides, sides[::-1]):
        expected[functions] += 0.5 * c * w * (phi.T @ other)
    expected[sides[0][0]] -= w * mu[sides[0][0]]
    rows = found.posterior.mean.rows
    return relative_error(
        found.posterior.mean.values / np.abs(expected).max(),
        expected[rows] / np.abs(expected).max(),
    )


def step(benchmark, m, k=0, D=8, likelihood=None, control=0, hyperparameters=False, sweeps=3):
    """Time consecutive steps, each with its own sample."""
    likelihood = fs.Gaussian(variance=0.1) if likelihood is None else likelihood
    rng, model = np.random.default_rng(1), model_of(m, k, D, likelihood)
    X, Y = rng.standard_normal((N, D)), rng.standard_normal(N)
    if not isinstance(likelihood, fs.Gaussian):
        Y = (Y > 0).astype(float)
    fixed = (
        ()
        if hyperparameters
        else [path for path, _, _ in fs.records.leaves(model) if not path.startswith("posterior")]
    )
    optimiser = fs.optim.adagrad(1e-3, fixed=fixed)
    state, kriging = (
        optimiser.init(model),
        (
            fs.qsgp.kriging_control_variate(model, rng.standard_normal((control, D)))
            if control
            else None
        ),
    )
    pair = isinstance(likelihood, fs.Gaussian) or k > 0
    wrt, count, error = optimiser.paths(model), 0, None
    if k == 0 and pair and not control and not hyperparameters:
        sample = fs.qsgp.draw_basis_sample(model.basis, UNITS, rng=0)
        _, grad, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=NUM_DATA, wrt=wrt)
        error = gradient_error(model, X, Y, sample, grad)

    def call():
        nonlocal model, state, kriging, count
        count += 1
        sample = fs.qsgp.draw_basis_sample(model.basis, UNITS, rng=count, pair=pair)
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, num_data=NUM_DATA, wrt=wrt, control=kriging
        )
        before = None if kriging is None else model.posterior.mean[grad.posterior.mean.rows]
        model, state = optimiser.step(model, grad, state, value)
        if kriging is not None:
            rows = grad.posterior.mean.rows
            change = fs.qsgp.ChevronWeights(
                fs.qsgp.SparseRows(rows, model.posterior.mean[rows] - before), None, None
            )
            kriging = fs.qsgp.update_control_variate(model, kriging, change)

    record(
        benchmark,
        call,
        error=error,
        floor_seconds=floor(sweeps, k, D, hyperparameters),
        seconds=2.0,
    )


@pytest.mark.parametrize("m", [10**5, 10**6, 10**7])
def bench_mean_field(benchmark, m):
    step(benchmark, m)


def bench_kriged_500(benchmark):
    step(benchmark, 10**5, control=500)


def bench_hyperparameters(benchmark):
    step(benchmark, 10**5, hyperparameters=True)


@pytest.mark.parametrize("k", [10, 100])
def bench_dense_columns(benchmark, k):
    step(benchmark, 10**5, k=k)


@pytest.mark.parametrize("D", [8, 784])
def bench_logit(benchmark, D):
    step(benchmark, 10**5, D=D, likelihood=fs.likelihoods.BernoulliLogit(), sweeps=2)


@device.needs_device
@pytest.mark.parametrize("m", [10**5, 10**7])
@pytest.mark.parametrize("control", [0, 500])
def bench_mean_field_on_device(benchmark, m, control):
    """Time the same step on a device, including the drawing.

    It synchronises for the value and for the check of the gradient.
    """
    rng, model = (
        np.random.default_rng(1),
        fs.to_device(model_of(m, 0, 8, fs.Gaussian(variance=0.1))),
    )
    X, Y, points = device.moved(
        rng.standard_normal((N, 8)), rng.standard_normal(N), rng.standard_normal((control, 8))
    )
    optimiser = fs.optim.adagrad(1e-3, fixed=("basis", "likelihood", "posterior.columns"))
    state, kriging = (
        optimiser.init(model),
        fs.qsgp.kriging_control_variate(model, points) if control else None,
    )
    wrt, count, sweep = optimiser.paths(model), 0, floor_there(N, UNITS, 8, 1, np.float64)

    def call():
        nonlocal model, state, kriging, count
        count += 1
        sample = fs.qsgp.draw_basis_sample(model.basis, UNITS, rng=(1, count))
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, num_data=NUM_DATA, wrt=wrt, control=kriging
        )
        rows = grad.posterior.mean.rows
        before = model.posterior.mean[rows]
        model, state = optimiser.step(model, grad, state, value)
        if kriging is not None:
            change = fs.qsgp.ChevronWeights(
                fs.qsgp.SparseRows(rows, model.posterior.mean[rows] - before), None, None
            )
            kriging = fs.qsgp.update_control_variate(model, kriging, change)

    device.record_beside(benchmark, call, lambda: 3 * sweep(), seconds=1.0)


def bench_training_at_ten_million(benchmark, tmp_path):
    """Time ``fit`` of three steps with a checkpoint at the end, m = 10^7.

    The unit of the peak extra memory is the model.
    """
    m = 10**7
    basis = fs.qsgp.RandomFourier(fs.RBF(1.0, np.ones(8)), num_features=m)
    model = fs.QSGP(
        basis, fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m)), fs.Gaussian(0.1)
    )
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5000, 8)), rng.standard_normal(5000)
    paths = iter(range(1000))

    def call():
        path = tmp_path / f"{next(paths)}.npz"
        fs.fit(model, X, Y, steps=3, control=0, closed_form_every=0, checkpoint=path)
        path.unlink()

    record(benchmark, call, bytes=2 * 5 * 8 * 2 * m, unit=8 * 2 * m, seconds=1.0)


def bench_drawing(benchmark):
    """Time two stratified samples of 10^7 functions."""
    basis = model_of(10**7, 0, 8, fs.Gaussian(0.1)).basis
    start = time.perf_counter()
    record(
        benchmark,
        lambda: fs.qsgp.draw_basis_sample(
            basis, UNITS, rng=int(1e6 * (time.perf_counter() - start))
        ),
        seconds=0.3,
    )
