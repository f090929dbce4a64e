"""Outside the training range a searched model is unsure: its covariance, coverage and messages."""

import warnings

import numpy as np
import pytest
from support.numerics import assert_adjoint, symmetric

import fastsvgp as fs
from fastsvgp.recipes import beyond_range
from fastsvgp.recipes.beyond_range import BeyondRange, inside, rows_outside
from fastsvgp.records import leaves
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor
from fastsvgp.testing import assert_gradient

D, M, N = 3, 4, 12
LOW, MIDDLE, HIGH = (-1.0, 0.0, 0.5), (0.0, 0.0, 0.5), (1.0, 2.0, 0.5)  # the last is constant
BASES = {
    "matern": lambda rng: fs.Matern32(0.7, rng.uniform(0.8, 2, D)),
    "network": lambda rng: fs.covariances.OnFeatures(
        fs.RBF(0.8, 1.2), fs.covariances.Network.random((D, 4, 2), rng=1)
    ),
}
every = pytest.mark.parametrize(
    "base, held", [("matern", True), ("matern", False), ("network", True)]
)


def covariance_of(rng, base, held=True, dtype=np.float64):
    ends = {"low": LOW, "middle": MIDDLE, "high": HIGH}
    found = BeyondRange(BASES[base](rng), **ends, variance=1.7, held=held)
    return fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], found)


def points(rng, dtype=np.float64):
    """Rows inside, outside some faces and outside all, none of them near a face."""
    X = rng.uniform(0.1, 0.9, (N, D)) * (np.array(HIGH) - LOW) + LOW
    beyond = np.arange(N) % 4
    X[beyond == 1, 0] = -1.0 - rng.uniform(0.1, 3, (beyond == 1).sum())
    X[beyond == 2, 1:] = 2.5 + rng.uniform(0.1, 3, ((beyond == 2).sum(), 2))
    X[beyond == 3] = 4 + rng.uniform(0, 3, ((beyond == 3).sum(), D))
    return X.astype(dtype)


def defined(covariance, X, Y=None):
    """The covariance by its definition."""
    Y = X if Y is None else Y

    def parts(X):
        near = np.minimum(np.maximum(X, LOW), HIGH)
        below, above = np.array([1.0, 2e-3, 1.0]), np.array([1.0, 2.0, 1.0])
        s = np.sqrt(3) * np.where(X < LOW, (X - near) / below, (X - near) / above)
        return (near if covariance.held else X).astype(X.dtype), s / np.sqrt(
            1 + (s**2).sum(1, keepdims=True)
        )

    (b, u), (c, w) = parts(X), parts(Y)
    return covariance.covariance.matrix(b, c) + covariance.variance * (u @ w.T)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_follow_their_definition(rng, base, held, dtype):
    covariance, X = covariance_of(rng, base, held, dtype), points(rng, dtype)
    K, tolerance = defined(covariance, X), 100 * np.finfo(dtype).eps
    for found, truth in (
        (covariance.Kff(X), K),
        (covariance.Kff(X, X[:5]), K[:, :5]),
        (covariance.kff(X), K.diagonal()),
    ):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, truth, rtol=0, atol=tolerance * 3)
    np.testing.assert_array_equal(covariance.Kff(X), covariance.Kff(X).T)
    np.testing.assert_allclose(covariance.Kff(X, X), K, rtol=0, atol=tolerance * 3)


@every
def test_inside_nothing_changes_to_the_bit(rng, base, held):
    covariance = covariance_of(rng, base, held)
    X = rng.uniform(LOW, HIGH, (N, D))
    X[0], X[1] = LOW, HIGH
    model = svgp(rng, covariance)
    free = fs.replace(model, covariance=covariance.covariance)
    for found, truth in zip(fs.predict_f(model, X), fs.predict_f(free, X), strict=True):
        np.testing.assert_array_equal(found, truth)
    assert fs.elbo(model, X, X[:, 0]) == pytest.approx(fs.elbo(free, X, X[:, 0]), rel=1e-12)


def svgp(rng, covariance):
    columns = 2 if isinstance(covariance.covariance, fs.covariances.OnFeatures) else D
    q = fs.Whitened(rng.standard_normal(M), np.eye(M) + np.tril(rng.uniform(0, 0.3, (M, M))))
    return fs.SVGP(covariance, rng.standard_normal((M, columns)), q, fs.Gaussian(0.1))


@every
def test_gradients(rng, base, held):
    covariance, X = covariance_of(rng, base, held), points(rng)
    X[:, 2] += 1  # a constant column is at its border
    model, y = svgp(rng, covariance), np.sin(X[:, 0])
    _, grad, X_bar = fs.elbo_and_grad(model, X, y, inputs=True, jitter=1e-2)
    assert {path for path, *_ in leaves(grad)} == {path for path, *_ in leaves(model)}
    assert_gradient(lambda moved: fs.elbo(moved, X, y, jitter=1e-2), model, grad)
    assert_gradient(lambda moved: fs.elbo(model, moved, y, jitter=1e-2), X, X_bar)

    def matrix(X, *Y):
        return defined(covariance, np.asarray(X, float), *(np.asarray(one, float) for one in Y))

    K_bar, wide = symmetric(rng, N), rng.standard_normal((N, 5))
    for bar, inputs, bars in (
        (K_bar, (X,), covariance.Kff_vjp(K_bar, None, X)[1:2]),
        (wide, (X, X[3:8]), covariance.Kff_vjp(wide, None, X, X[3:8])[1:]),
    ):
        # rows can lie near each other, where a Matern covariance bends
        assert_adjoint(matrix, inputs, bars, bar, rng, h=2e-4, condition=10.0)
    assert covariance.Kff_vjp(K_bar, None, X, need=("X",))[0] is None
    assert covariance.Kff_vjp(K_bar, None, X, need=("covariance",))[1] is None


@every
def test_variance_outside_is_continuous_and_tends_to_its_limit(rng, base, held):
    covariance = covariance_of(rng, base, held)
    at = np.array([0.5, 1.0, 0.5])
    steps = np.array([0, 1e-9, 1e-4, 0.1, 1.0, 10.0, 1e12, 1e150])
    X = at + steps[:, None] * np.array([0.0, 1.0, 0.0]) + np.array([0, 1.0, 0])
    extra = covariance.kff(X) - covariance.covariance.kff(covariance.outside(X)[0])
    assert extra[0] == 0 and extra[1] < 1e-12 and (np.diff(extra) >= -1e-12).all()
    # as a Matern 3/2 that is known at the border: variance 1.7, lengthscale 2, to second order
    known = 1.7 - fs.Matern32(1.7, 2.0).matrix(np.zeros((1, 1)), np.full((1, 1), 1e-4)) ** 2 / 1.7
    np.testing.assert_allclose(extra[2], known[0, 0], rtol=1e-3)
    np.testing.assert_allclose(extra[-2:], 1.7, rtol=1e-10)


@every
def test_paths_have_the_moments_of_predictions(rng, base, held):
    model, X = svgp(rng, covariance_of(rng, base, held)), points(rng)
    values = fs.sample_paths(model, 4000, num_features=400, rng=0)(X)
    mean, var = fs.predict_f(model, X)
    np.testing.assert_allclose(values.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(values.var(axis=0), var, rtol=0.25)


def test_other_numbers_of_columns_are_refused(rng):
    covariance = covariance_of(rng, "matern")
    with pytest.raises(ValueError, match="`low` has 3 entries, but the inputs have D = 2"):
        covariance.check_dim(2)


# --- coverage -------------------------------------------------------------------------------------


def skewed(rng):
    return (
        np.exp(rng.standard_normal((600, 3))),
        1.0,
        lambda X: np.log(np.abs(X[:, 0]) + 0.01) + np.log(np.abs(X[:, 1] + X[:, 2]) + 0.01),
    )


def prices(rng):
    return (
        np.exp(2 * rng.standard_normal((600, 2))),
        1.0,
        lambda X: np.log1p(np.abs(X[:, 0])) - 0.5 * np.log1p(np.abs(X[:, 1])),
    )


def waves(rng):
    return (
        rng.uniform(-1, 1, (1500, 5)),
        3.0,
        lambda X: np.sin(4 * X[:, 0] + 3 * X[:, 1]) + np.sin(5 * X[:, 2] * X[:, 3]) + X[:, 4],
    )


def bends(rng):
    return (
        rng.uniform(0, 1, (1500, 6)),
        3.0,
        lambda X: (
            np.sin(6 * X[:, 0] + 4 * X[:, 1])
            + np.tanh(3 * (X[:, 2] - X[:, 3]))
            + np.cos(8 * X[:, 4] * X[:, 5])
        ),
    )


@pytest.mark.parametrize("table", [skewed, prices, waves, bends])
def test_intervals_hold_outside_the_training_range(tune, table):
    """95 % intervals at 1.5 and 3 times the distance from the median.

    Without the variance outside they hold less, but of one table, which a process on the inputs
    themselves explains.
    """
    tune(race_seconds=0.5, exact_rows=100)
    rng = np.random.default_rng(0)
    X, seconds, f = table(rng)
    y = f(X) + 0.05 * rng.standard_normal(len(X))
    found = fs.search(X, y, seconds, rng=0, by_work=True)
    free = fs.replace(found.model, covariance=inside(found.model.covariance))
    center, some = np.median(X, axis=0), rng.choice(len(X), 300)

    def coverage(k, model=found.model):
        P = center + k * (X[some] - center)
        mean, var = found.scale.back(*fs.predict_y(model, found.scale.X(P)))
        return np.mean(np.abs(f(P) - mean) < 1.96 * np.sqrt(var))

    assert min(coverage(1.5), coverage(3)) >= 0.9
    assert coverage(3, free) < 0.9 or table is bends
    for found_inside, truth in zip(
        fs.predict_f(found.model, found.scale.X(X)),
        fs.predict_f(free, found.scale.X(X)),
        strict=True,
    ):
        np.testing.assert_array_equal(found_inside, truth)


# --- searches -------------------------------------------------------------------------------------


def test_extrapolation_keeps_ranks_and_networks_out(rng, tune):
    tune(race_seconds=0.5)
    X = np.exp(rng.standard_normal((260, 2)))
    y = np.log(X[:, 0])
    for targets, likelihood in (
        (y, "gaussian"),
        (y > 0, "classes"),
        (np.round(X[:, 0]), "poisson"),
    ):
        found = fs.search(
            X, targets, 0.6, likelihood=likelihood, rng=0, by_work=True, extrapolate=True
        )
        tried = {look["candidate"] for look in found.looks}
        assert tried and not any("rank" in name or "network" in name for name in tried)
        assert found.scale.x_map is None and not isinstance(found.model.covariance, BeyondRange)
        assert "neither ranks nor networks" in found.story[0]
    with pytest.raises(TypeError, match="`extrapolate` must be True or False"):
        fs.search(X, y, 1, extrapolate="yes")


@pytest.mark.parametrize("likelihood", ["classes", "poisson"])
@pytest.mark.parametrize("size", [40, 260])
def test_classes_are_uncertain_and_rates_finite_far_away(rng, tune, likelihood, size):
    tune(race_seconds=0.5)
    X = rng.standard_normal((size, 2))
    y = X[:, 0] > 0 if likelihood == "classes" else rng.poisson(np.exp(1 + X[:, 0])).astype(float)
    found = fs.search(X, y, 0.6, likelihood=likelihood, rng=0, by_work=True)
    far = np.array([[1e3, 0.0], [-1e3, 0.0], [1e6, -1e6]])
    mean, _ = fs.predict_y(found.model, found.scale.X(far))
    if likelihood == "classes":
        near, _ = fs.predict_y(found.model, found.scale.X(np.array([[2.0, 0.0], [-2.0, 0.0]])))
        assert near[0] > mean[0] > 0.5 > mean[1] > near[1]
        assert (np.abs(mean - 0.5) < 0.35).all()
    else:
        assert mean.max() < 20 * y.max()


def test_few_rows_and_little_time_leave_a_process_on_inputs_as_it_is(rng):
    X = rng.uniform(-1, 1, (20, 1))
    found = fs.search(X, 2 * X[:, 0], 1.0, rng=0)
    assert not isinstance(found.model.covariance, BeyondRange)


# --- messages, files and warm starts --------------------------------------------------------------


@pytest.fixture
def searched(rng, tune):
    tune(race_seconds=0.5, estimator_seconds=0.6)
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.exp(rng.standard_normal((300, 2))), columns=["size", "age"])
    return SVGPRegressor(random_state=0).fit(X, np.log(X["size"]) + 0.1 * X["age"])


def test_rows_far_outside_are_named(searched):
    X = searched.scale_.X_back(searched.scale_.X(np.full((1, 2), 1.0)))
    low, high = (np.array([value, 1.0]) for value in column_ends(searched))
    frame = lambda rows: __import__("pandas").DataFrame(rows, columns=["size", "age"])  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        searched.predict(frame([X[0], low, high]))
    with pytest.warns(UserWarning, match="2 of 3 rows are far outside the training range of size:"):
        _, sd = searched.predict(frame([[1.0, 1.0], [-50, 1], [5e3, 1]]), return_std=True)
    assert (sd[1:] > 5 * sd[0]).all()


def column_ends(estimator):
    covariance = estimator.model_.covariance
    box = np.array([covariance.low, covariance.high])
    return estimator.scale_.X_back(box)[:, 0]


def test_threshold_of_naming(rng):
    """A row is named from s = 1/3: a fifth of the distance from the median."""
    model = svgp(rng, covariance_of(rng, "matern"))
    names, at = ["a", "b", "c"], np.array([[0.5, 2.0, 0.5]])
    step = np.array([0.0, 2 / np.sqrt(27), 0.0])
    assert rows_outside(model, at + 0.99 * step, names) is None
    assert rows_outside(model, at + 1.01 * step, names) == (
        "1 of 1 rows are far outside the training range of b"
    )
    X = points(rng)
    X[1::4, 0] -= 1
    many = rows_outside(model, X, names)
    assert "9 of 12 rows are far outside the training range of " in many
    assert many.endswith(" and 1 more")
    assert rows_outside(fs.replace(model, covariance=fs.RBF()), at + 9, names) is None
    wide = beyond_range.SHOWN + 2
    box = {name: (end,) * wide for name, end in (("low", -1.0), ("middle", 0.0), ("high", 1.0))}
    wider = fs.replace(model, covariance=BeyondRange(fs.RBF(), **box, variance=1.0))
    assert rows_outside(wider, np.full((2, wide), 9.0), [f"x{d}" for d in range(wide)]).endswith(
        "training range of x0, x1 and 2 more"
    )


def test_a_file_keeps_the_range_and_a_warm_start_leaves_it(searched, tmp_path):
    from fastsvgp.sklearn import load, save

    far = np.array([[-50.0, 1.0], [5e3, 1.0]])
    save(tmp_path / "model.npz", searched)
    with pytest.warns(UserWarning):
        np.testing.assert_array_equal(
            load(tmp_path / "model.npz").predict(far, return_std=True),
            searched.predict(far, return_std=True),
        )
    searched.set_params(warm_start=True, max_iter=2).fit(far, np.zeros(2))
    assert not isinstance(searched.model_.covariance, BeyondRange)


def test_estimators_take_the_option(rng, tune):
    tune(race_seconds=0.5, estimator_seconds=0.6)
    X = rng.standard_normal((260, 2))
    for estimator, y in ((SVGPRegressor, X[:, 0]), (SVGPClassifier, X[:, 0] > 0)):
        found = estimator(extrapolate=True, random_state=0).fit(X, y)
        assert "neither ranks nor networks" in found.story_[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.predict(100 * X)
        with pytest.raises(TypeError, match="`extrapolate`"):
            estimator(extrapolate=1).fit(X, y)
