"""The GPLVM: its bound against those that it equals, its gradient, training, bad input."""

import numpy as np
import pytest
from support.rank_problems import on_ranks

import fastsvgp as fs

N, P, Q, M = 23, 4, 3, 7


def problem(rng, prior=False):
    inputs = fs.GaussianInputs(rng.standard_normal((N, Q)), rng.uniform(0.05, 0.5, (N, Q)))
    covariance, Z = fs.RBF(1.3, rng.uniform(0.8, 1.6, Q)), rng.standard_normal((M, Q))
    given = None
    if prior:
        given = fs.GaussianInputs(rng.standard_normal((N, Q)), rng.uniform(0.5, 1.5, (N, Q)))
    model = fs.bounds.GPLVM(covariance, Z, inputs, 0.2, given)
    return model, rng.standard_normal((N, P))


def kl_of_rows(model):
    prior = model.prior or fs.GaussianInputs(np.zeros((N, Q)), np.ones((N, Q)))
    mean, var = model.inputs.mean, model.inputs.var
    ratio = (var + (mean - prior.mean) ** 2) / prior.var
    return 0.5 * (ratio - 1 - np.log(var / prior.var)).sum()


def some_missing(rng):
    weights = rng.uniform(0.5, 1.5, (N, P)) * (rng.uniform(size=(N, P)) < 0.7)
    weights[:, 1] = weights[:, 0]  # a group of two columns
    weights[0, 2] = 1.0
    return weights


WEIGHTS = {
    "none": lambda rng: None,
    "of rows": lambda rng: rng.uniform(0.5, 2, N),
    "of numbers": some_missing,
}


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_it_is_the_bound_at_the_optimal_q(rng, kind, prior):
    """That bound is computed from predictions at the uncertain inputs."""
    model, Y = problem(rng, prior)
    weights = WEIGHTS[kind](rng)
    best = fs.optimal_svgp(model, None, Y, weights=weights)
    mean, var = fs.predict_f(best, model.inputs)
    w = 1.0 if weights is None else weights.reshape(N, -1)
    logs = -0.5 * (np.log(2 * np.pi * 0.2) + ((Y - mean) ** 2 + var) / 0.2)
    kl = fs.bounds.kl_term_and_grad(best)[0]
    expected = (w * logs).sum() - kl - kl_of_rows(model)
    found = fs.collapsed_bound(model, None, Y, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_without_errors_it_is_an_sgpr(rng):
    model, Y = problem(rng)
    var = np.full((N, Q), 1e-14)
    exact = fs.replace(model, inputs=fs.GaussianInputs(model.inputs.mean, var))
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2)
    found = fs.collapsed_bound(exact, None, Y) + kl_of_rows(exact)
    np.testing.assert_allclose(found, fs.collapsed_bound(sgpr, model.inputs.mean, Y), rtol=1e-10)


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_gradient_in_every_field(rng, kind, prior):
    model, Y = problem(rng, prior)
    weights = WEIGHTS[kind](rng)
    value, grad = fs.collapsed_bound_and_grad(model, None, Y, weights=weights)
    assert value == fs.collapsed_bound(model, None, Y, weights=weights)
    assert grad.prior is model.prior
    vector, unravel = fs.ravel(model, unconstrained=False)
    slope = unravel.pullback(vector, grad)
    scale = np.abs(slope).max()

    def at(t, move):
        return fs.collapsed_bound(unravel(vector + t * move), None, Y, weights=weights)

    for path, here in unravel.slices.items():
        move, h = np.zeros(vector.size), 1e-4
        move[here] = rng.standard_normal(here.stop - here.start)
        near, far = at(h, move) - at(-h, move), at(2 * h, move) - at(-2 * h, move)
        expected = (8 * near - far) / (12 * h)
        np.testing.assert_allclose(
            slope @ move, expected, rtol=1e-7, atol=1e-7 * scale, err_msg=path
        )


def test_one_output_one_lengthscale_and_fields_left_out(rng):
    model, Y = problem(rng)
    model = fs.replace(model, covariance=fs.RBF(1.3, 0.9))
    wide = fs.replace(model, covariance=fs.RBF(1.3, np.full(Q, 0.9)))
    value, grad = fs.collapsed_bound_and_grad(model, None, Y[:, 0])
    other, wide_grad = fs.collapsed_bound_and_grad(wide, None, Y[:, :1])
    np.testing.assert_allclose(value, other, rtol=1e-12)
    np.testing.assert_allclose(
        grad.covariance.lengthscales, wide_grad.covariance.lengthscales.sum(), rtol=1e-9
    )
    assert fs.optimal_svgp(model, None, Y[:, 0]).posterior.mean.shape == (M,)
    some = fs.collapsed_bound_and_grad(model, None, Y[:, 0], wrt=("inputs.mean",))[1]
    np.testing.assert_array_equal(some.inputs.mean, grad.inputs.mean)
    assert some.inputs.var is None and some.covariance is None and some.noise_variance is None


def test_single_precision(rng):
    model, Y = problem(rng)
    single = fs.records.tree_map(lambda v: np.asarray(v, np.float32)[()], model)
    value, grad = fs.collapsed_bound_and_grad(single, None, Y.astype(np.float32))
    np.testing.assert_allclose(value, fs.collapsed_bound(model, None, Y), rtol=1e-5)
    assert grad.inputs.mean.dtype == np.float32
    assert fs.optimal_svgp(single, None, Y.astype(np.float32)).posterior.mean.dtype == np.float32


def test_missing_numbers_are_not_read(rng):
    model, Y = problem(rng)
    weights = some_missing(rng)
    holed = np.where(weights > 0, Y, np.nan)
    values = [fs.collapsed_bound(model, None, y, weights=weights) for y in (Y, holed)]
    assert values[0] == values[1]


def test_ranks_equal_one_process(rng):
    model, Y = problem(rng, prior=True)
    for weights in (None, some_missing(rng)):
        value, grad = fs.collapsed_bound_and_grad(model, None, Y, weights=weights)
        expected = fs.ravel(grad, unconstrained=False)[0]
        found = on_ranks(
            2,
            lambda group, w=weights: fs.collapsed_bound_and_grad(
                model, None, Y, weights=w, group=group
            ),
        )
        for one, bars in found:
            np.testing.assert_allclose(one, value, rtol=1e-11)
            bars = fs.ravel(bars, unconstrained=False)[0]
            np.testing.assert_allclose(
                bars, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max()
            )


def curve(rng, N=60):
    """Rows on a curve in P columns, standardised."""
    t = rng.uniform(-2, 2, N)
    Y = np.stack([np.sin(2 * t), np.cos(1.5 * t), t, t**2], 1)
    Y += 0.05 * rng.standard_normal(Y.shape)
    return (Y - Y.mean(0)) / Y.std(0)


def test_training_and_rows_with_missing_numbers(rng, tmp_path):
    Y = curve(rng)
    start = fs.bounds.start_gplvm(Y, 2, 15, rng=0)
    trained, info = fs.fit(start, None, Y, steps=80, checkpoint=tmp_path / "state")
    assert info.values[-1] > info.values[0] + 50
    assert fs.load(tmp_path / "state").model.inputs.mean.shape == (60, 2)
    np.testing.assert_allclose(info.values[-1], fs.collapsed_bound(trained, None, Y), rtol=1e-9)
    fs.save(tmp_path / "model", fs.replace(trained, prior=trained.inputs))
    again = fs.load(tmp_path / "model")
    assert (again.prior.mean == trained.inputs.mean).all()
    seen = np.ones(Y.shape)
    seen[:, 1] = 0
    found = fs.bounds.infer_inputs(info.svgp, np.where(seen > 0, Y, np.nan), weights=seen)
    mean, var = fs.predict_y(info.svgp, found)
    error = (mean - Y)[:, 1]
    assert np.sqrt((error**2).mean()) < 0.7
    # honest: the squared errors have about the variance that is predicted
    assert 0.2 < (error**2 / var[:, 1]).mean() < 5


def test_measured_inputs_are_priors(rng):
    """Rows of exact measurements stay, and those of vague ones are found by their targets."""
    x = np.sort(rng.uniform(-2, 2, (60, 1)), axis=0)
    Y = 2 * x[:, 0] + 0.02 * rng.standard_normal(60)
    var = np.full((60, 1), 1e-6)
    var[::3] = 0.5
    prior = fs.GaussianInputs(x + np.sqrt(var) * rng.standard_normal((60, 1)), var)
    model = fs.bounds.GPLVM(fs.RBF(4.0, 2.0), x[::5].copy(), prior, 0.01, prior)
    trained, info = fs.fit(model, None, Y, steps=150)
    moved = trained.inputs.mean - prior.mean
    assert np.abs(moved[var[:, 0] < 0.1]).max() < 0.02
    vague = var[:, 0] > 0.1
    before, after = (np.abs((m - x)[vague]).mean() for m in (prior.mean, trained.inputs.mean))
    assert after < 0.7 * before
    again = fs.bounds.infer_inputs(info.svgp, Y, prior=prior, starts=2)
    assert np.abs((again.mean - x)[vague]).mean() < 0.7 * before


def test_start(rng):
    Y = curve(rng)
    start = fs.bounds.start_gplvm(Y, 3, 9, rng=0)
    np.testing.assert_allclose(start.inputs.mean.std(0), 1, rtol=1e-6)
    holed, weights = Y.copy(), np.ones(Y.shape)
    holed[3, 1], weights[3, 1] = np.nan, 0
    with_hole = fs.bounds.start_gplvm(holed, 3, 9, weights=weights, rng=0)
    assert np.isfinite(with_hole.inputs.mean).all()
    assert fs.bounds.start_gplvm(Y.astype(np.float32), 2, 5).inputs.var.dtype == np.float32


def test_bad_input_is_refused_by_name(rng):
    model, Y = problem(rng)
    svgp = fs.optimal_svgp(model, None, Y)
    start, inferred = fs.bounds.start_gplvm, fs.bounds.infer_inputs
    bound = fs.collapsed_bound
    zero = fs.GaussianInputs(model.inputs.mean, np.zeros((N, Q)))
    short = fs.GaussianInputs(model.inputs.mean[:3], model.inputs.var[:3])
    wide = fs.GaussianInputs(model.inputs.mean, np.ones((N, Q, Q)))
    holed = np.where(np.arange(N)[:, None] == 2, np.nan, Y)
    cases = [
        (lambda: bound(fs.replace(model, inputs=zero), None, Y), "`inputs.var`"),
        (lambda: bound(fs.replace(model, inputs=wide), None, Y), "must both be"),
        (lambda: bound(fs.replace(model, inputs=Y), None, Y), "GaussianInputs"),
        (lambda: bound(fs.replace(model, prior=zero), None, Y), "`prior.var` must be positive"),
        (lambda: bound(fs.replace(model, prior=short), None, Y), "`prior.mean` must have shape"),
        (lambda: bound(fs.replace(model, prior=Y), None, Y), "`prior` must be GaussianInputs"),
        (lambda: bound(fs.replace(model, covariance=fs.Matern32()), None, Y), "needs an RBF"),
        (lambda: bound(fs.replace(model, inducing=np.ones((4, 2))), None, Y), "`inducing`"),
        (lambda: bound(model, None, Y[:5]), "`Y` must be"),
        (lambda: bound(model, Y, Y), "`X` must be None"),
        (lambda: bound(model, None, holed), "`Y`"),
        (lambda: bound(model, None, Y, weights=-np.ones(N)), "`weights`"),
        (lambda: fs.predict_f(model, Y), "info.svgp"),
        (lambda: fs.fit(model, None, Y, epochs=3), "`epochs` would have no effect"),
        (lambda: start(Y, 9, 5), "choose a smaller Q"),
        (lambda: start(Y, 2, 99), "choose a smaller M"),
        (lambda: start(Y[:, 0], 1, 5), "`Y` must be"),
        (lambda: start(holed, 1, 5), "`Y`"),
        (lambda: inferred(model, Y), "give info.svgp"),
        (lambda: inferred(svgp, Y[:, :2]), "`Y` must have shape"),
        (lambda: inferred(svgp, holed), "`Y`"),
        (lambda: inferred(svgp, Y, prior=short), "`prior.mean` must have shape"),
    ]
    for call, text in cases:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert text in str(caught.value), str(caught.value)
