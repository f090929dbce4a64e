"""Lines, planes, curves and sines by the default search, against scikit-learn's exact process.

Both have the same rows; the reference is optimised once, from the start of the search.
"""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from support.numerics import generator

from fastsvgp.sklearn import SVGPRegressor

FUNCTIONS = {
    "line": (1, lambda X: 2 * X[:, 0]),
    "plane": (2, lambda X: X @ [3.0, -2.0]),
    "plane of five inputs": (5, lambda X: X @ [1.0, 2.0, -1.0, 0.5, 0.0]),
    "parabola": (1, lambda X: X[:, 0] ** 2),
    "exponential": (1, lambda X: np.exp(2 * X[:, 0])),
    "sine": (1, lambda X: np.sin(5 * X[:, 0])),
}
NOISE = 1e-3, 1e-2, 1e-1  # parts of the standard deviation of the function
NEW = 300


def data(name, N, noise):
    """Return ``(X, y, X_new, f_new, y_new, sd of the noise)``."""
    D, function = FUNCTIONS[name]
    rng = generator(N, sorted(FUNCTIONS).index(name), NOISE.index(noise))
    X, X_new = rng.uniform(-1, 1, (N, D)), rng.uniform(-0.9, 0.9, (NEW, D))
    f, f_new = function(X), function(X_new)
    e = noise * f.std()
    y, y_new = f + e * rng.standard_normal(N), f_new + e * rng.standard_normal(NEW)
    return X, y, X_new, f_new, y_new, e


def reference(X, y, X_new):
    mean, sd, D = X.mean(0), X.std(0), X.shape[1]
    kernel = ConstantKernel(1.0, (1e-6, 1e4)) * Matern(np.full(D, np.sqrt(D)), (1e-3, 1e4), nu=1.5)
    process = GaussianProcessRegressor(kernel + WhiteKernel(0.1, (1e-9, 1e2)), normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lengthscale at its bound
        process.fit((X - mean) / sd, y)
    return process.predict((X_new - mean) / sd, return_std=True)


def scores(mean, sd, f, y, e):
    """Return RMSE and mean sd in units of the noise, and the coverage of 95 % intervals."""
    return np.array(
        [np.sqrt(np.mean((mean - f) ** 2)) / e, sd.mean() / e, np.mean(abs(y - mean) < 1.96 * sd)]
    )


@pytest.mark.parametrize("N", [8, 12, 20, 40])
def test_few_rows_are_predicted_as_by_an_exact_process(N):
    coverage = []
    for name in FUNCTIONS:
        for noise in NOISE:
            X, y, X_new, f, y_new, e = data(name, N, noise)
            model = SVGPRegressor(random_state=0).fit(X, y)
            ours = scores(*model.predict(X_new, return_std=True), f, y_new, e)
            exact = scores(*reference(X, y, X_new), f, y_new, e)
            said = name, noise, ours, exact
            assert ours[0] < 2 * (exact[0] + 1), said
            assert ours[1] < 1.6 * max(exact[1], 1.25), said
            coverage.append(ours[2] - exact[2])
    assert np.mean(coverage) > -0.1, coverage


@pytest.mark.parametrize(
    "name, N",
    [
        ("line", 150),
        ("plane of five inputs", 150),
        ("parabola", 150),
        ("plane", 300),
        ("line", 900),
    ],
)
@pytest.mark.parametrize("noise", [1e-3, 1e-1])
def test_of_more_rows_the_intervals_are_those_of_the_noise(name, N, noise):
    X, y, X_new, f, y_new, e = data(name, N, noise)
    model = SVGPRegressor(random_state=0).fit(X, y)
    rmse, sd, coverage = scores(*model.predict(X_new, return_std=True), f, y_new, e)
    wider = 2.2 if name == "parabola" else 1.3  # a Matern 3/2 needs more rows for a parabola
    assert rmse < 0.5 * wider and 0.75 < sd < wider and coverage > 0.85


@pytest.mark.parametrize("settings", [{}, {"covariance": "rbf"}])
@pytest.mark.parametrize("N, cycles", [(60, 8), (150, 20)])
def test_sines_of_many_cycles_are_found(rng, settings, N, cycles):
    """From the median distance of rows they look like noise."""
    X = (np.arange(N)[:, None] + rng.random((N, 1))) / N
    y = np.sin(2 * np.pi * cycles * X[:, 0]) + 0.05 * rng.standard_normal(N)
    new = np.linspace(0.02, 0.98, 200)[:, None]
    model = SVGPRegressor(random_state=0, **settings).fit(X, y)
    assert model.score(new, np.sin(2 * np.pi * cycles * new[:, 0])) > 0.7
