"""Forecasts fed back with their covariances, against draws and against one step."""

import numpy as np
import pytest

import fastsvgp as fs


def series(rng, T=150):
    y = np.zeros(T)
    for t in range(2, T):
        y[t] = 1.6 * np.tanh(y[t - 1]) - 0.7 * y[t - 2] + 0.25 * rng.standard_normal()
    return y


def trained(rng, y, more=0):
    X, Y = fs.bounds.lagged(y, 2)
    X = np.concatenate([X, np.cos(np.arange(len(X)))[:, None]][: 1 + more], axis=1)
    covariance = fs.RBF(1.0, np.array([1.5, 1.5]))
    if more:
        covariance = covariance.on(0, 1) * fs.Matern32(1.0, 2.0).on(2)
    Z = X[rng.permutation(len(X))[:25]]
    return fs.optimal_svgp(fs.SGPR(covariance, Z, 0.07), X, Y)


def test_lags():
    X, Y = fs.bounds.lagged(np.arange(6.0), 3)
    np.testing.assert_array_equal(X, [[2, 1, 0], [3, 2, 1], [4, 3, 2]])
    np.testing.assert_array_equal(Y, [3, 4, 5])


def test_moments_are_those_of_draws(rng):
    """The third step of normal lags is not exact: its difference from draws is some per cent."""
    y = series(rng)
    model = trained(rng, y)
    mean, var = fs.bounds.forecast(model, y[-2:], 3)
    S = 200_000
    state = np.repeat(y[-2:][::-1][None], S, axis=0)
    for step in range(3):
        m, v = fs.predict_y(model, state)
        drawn = m + np.sqrt(v) * rng.standard_normal(S)
        far = 6 * drawn.std() / np.sqrt(S)
        exact = step < 2
        assert abs(mean[step] - drawn.mean()) < far + (0 if exact else 0.1 * drawn.std())
        apart = abs(np.sqrt(var[step]) / drawn.std() - 1)
        assert apart < (6 / np.sqrt(S) if exact else 0.15)
        state = np.stack([drawn, state[:, 0]], axis=1)


def test_one_step_several_origins_and_known_inputs(rng):
    y = series(rng)
    model = trained(rng, y)
    mean, var = fs.bounds.forecast(model, y[-2:], 4)
    expected = fs.predict_y(model, y[-1:-3:-1][None])
    np.testing.assert_allclose([mean[0], var[0]], np.ravel(expected), rtol=1e-9)
    both = fs.bounds.forecast(fs.predictor(model), np.stack([y[-4:-2], y[-2:]]), 4)
    np.testing.assert_allclose(both[0][1], mean, rtol=1e-8)
    np.testing.assert_allclose(both[1][1], var, rtol=1e-8)
    wide, inputs = trained(rng, y, more=1), np.cos(np.arange(3.0))[:, None]
    mean, var = fs.bounds.forecast(wide, y[-2:], 3, inputs=inputs)
    assert mean.shape == var.shape == (3,) and (var > 0.07).all()
    first = fs.predict_y(wide, np.array([[y[-1], y[-2], 1.0]]))
    np.testing.assert_allclose([mean[0], var[0]], np.ravel(first), rtol=1e-9)
    single = fs.records.tree_map(lambda v: np.asarray(v, np.float32)[()], model)
    assert fs.bounds.forecast(single, y[-2:], 2)[0].dtype == np.float32


def test_bad_input_is_refused_by_name(rng):
    y = series(rng, 40)
    model, forecast = trained(rng, y), fs.bounds.forecast
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    counts = fs.replace(model, likelihood=fs.Poisson())
    rough = fs.replace(model, covariance=fs.Matern32(1.0, 1.5))
    two = fs.optimal_svgp(sgpr, *[np.stack([y[:30], y[1:31]], 1)] * 2)
    cases = [
        (lambda: forecast(sgpr, y[-2:], 3), "info.svgp"),
        (lambda: forecast(counts, y[-2:], 3), "Gaussian likelihood"),
        (lambda: forecast(rough, y[-2:], 3), "Matern32"),
        (lambda: forecast(two, y[-2:], 3), "one output"),
        (lambda: forecast(model, y[-3:], 3), "`history` has 3 values"),
        (lambda: forecast(model, [np.nan, 1.0], 3), "`history`"),
        (lambda: forecast(model, y[-2:], 0), "`steps`"),
        (lambda: forecast(model, y[-2:], 3, inputs=np.ones((2, 1))), "`inputs` must have shape"),
        (lambda: forecast(model, np.ones((1, 1, 2)), 3), "`history` must be"),
        (lambda: fs.bounds.lagged(y, 40), "`lags`"),
        (lambda: fs.bounds.lagged(np.ones((4, 2)), 2), "`series`"),
    ]
    for call, text in cases:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert text in str(caught.value), str(caught.value)
