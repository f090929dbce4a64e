"""Starts: their choices, their errors, and training from them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import relevance
from fastsvgp.recipes.fitted import scale_from_json, scale_to_json


def data(rng, N=50, D=3):
    X = 10 * rng.standard_normal((N, D)) + 5
    return X, np.sin(X[:, 0] / 5) * 40 - 100


def test_a_start_trains_and_predicts_in_the_units_of_the_data(rng):
    X, y = data(rng, 200)
    for solver in ("lbfgs", "natural"):
        start = fs.recipes.regression(X, y, inducing=50, solver=solver, rng=0)
        Xs, ys = start.scale.X(X), start.scale.y(y)
        model, _ = fs.fit(start.model, Xs, ys, **start.fit)
        model, jitter = fs.recipes.finish(model, Xs, ys)
        mean, var = start.scale.back(*fs.predict_y(model, Xs, jitter=jitter))
        assert np.sqrt(np.mean((mean - y) ** 2)) < 0.2 * y.std()
        assert 0 < np.sqrt(var.max()) < y.std()


def test_a_start_of_classes_trains(rng):
    X, y = data(rng, N=120)  # of 50 rows the bound can prefer no function at all
    labels = np.array(["a", "b", "c"])[np.digitize(y, [-120, -80])]
    start = fs.recipes.classification(X, labels, inducing=20, rng=0)
    model, _ = fs.fit(start.model, start.scale.X(X), start.scale.y(labels), **start.fit)
    p, _ = fs.predict_y(model, start.scale.X(X))
    assert (
        type(model.likelihood) is fs.Softmax
        and np.mean(start.scale.back(p.argmax(axis=1)) == labels) > 0.8
    )


@pytest.mark.parametrize("inducing", [20, 200])
@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("N", [40, 400])
def test_weighted_row_equals_repeated_rows(rng, inducing, ard, N):
    X, y = data(rng, N)
    weights = rng.integers(0, 3, N)
    weighted = fs.recipes.regression(X, y, inducing, ard=ard, weights=weights, rng=0)
    repeated = fs.recipes.regression(
        X.repeat(weights, axis=0), y.repeat(weights), inducing, ard=ard, rng=0
    )
    np.testing.assert_allclose(weighted.scale.X(X), repeated.scale.X(X), rtol=1e-12, atol=1e-12)
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(weighted.model), fs.records.leaves(repeated.model), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=path)
    np.testing.assert_array_equal(weighted.fit["weights"], weights)


def test_medians_of_few_rows_are_over_all_pairs(rng):
    X, y = data(rng, 4, 2)
    start = fs.recipes.regression(X, y, rng=0)
    Xs = start.scale.X(X)
    distances = np.sort(np.abs(Xs[:, None] - Xs)[np.triu_indices(4, 1)], axis=0)
    # the lower median
    np.testing.assert_allclose(
        start.model.covariance.lengthscales, np.sqrt(2) * distances[2], rtol=1e-12
    )


def test_distinct_rows_are_inducing_inputs_where_there_are_few(rng):
    X, y = data(rng)
    start = fs.recipes.regression(np.concatenate([X, X]), np.concatenate([y, y]), inducing=60)
    np.testing.assert_array_equal(start.model.inducing, np.unique(start.scale.X(X), axis=0))
    assert start.fit["fixed"] == ("inducing",)
    pair = fs.recipes.regression(X, y, inducing=60, posterior="whitened_orthogonal").model.inducing
    together = np.unique(np.concatenate([pair.Z, pair.O]), axis=0)
    np.testing.assert_allclose(together, np.unique(start.scale.X(X), axis=0), rtol=1e-9)


@pytest.mark.parametrize("chosen", fs.recipes.CHOICES)
def test_each_choice_selects_distinct_inducing_inputs(rng, chosen):
    X, y = data(rng)
    for sizes, posterior in ((7, "whitened"), ((3, 4), "orthogonal")):
        Z = fs.recipes.regression(
            X, y, sizes, posterior=posterior, chosen=chosen, solver="natural", rng=1
        ).model.inducing
        rows = Z if posterior == "whitened" else np.concatenate([Z.Z, Z.O])
        assert rows.shape == (7, 3) and len(np.unique(rows, axis=0)) == 7


@pytest.mark.parametrize("posterior", fs.recipes.POSTERIORS)
def test_every_posterior_starts_and_takes_a_step(rng, posterior):
    X, y = data(rng)
    start = fs.recipes.regression(
        X,
        np.stack([y, -y], axis=1),
        8,
        posterior=posterior,
        likelihood="laplace",
        max_iter=1,
        rng=0,
    )
    assert type(start.model.posterior) is fs.recipes.POSTERIORS[posterior]
    _, info = fs.fit(
        start.model, start.scale.X(X), start.scale.y(np.stack([y, -y], axis=1)), **start.fit
    )
    assert np.isfinite(info.values).all() and info.steps == 1


def test_the_ramp_of_natural_steps_is_a_part_of_a_short_training(rng):
    X, y = data(rng)
    labels = y > -100
    for max_iter, ramp in ((50, 10), (5000, 100)):
        start = fs.recipes.classification(X, labels, 8, max_iter=max_iter, solver="natural")
        schedule = start.fit["natural_step_size"]
        assert schedule.size(ramp - 1, None) == 0.1 > schedule.size(ramp - 2, None)


def test_scales_survive_json(rng):
    X, y = data(rng)
    for targets in (y, np.stack([y, 2 * y], axis=1)):
        scale = fs.recipes.regression(X, targets).scale
        again = scale_from_json(json.loads(json.dumps(scale_to_json(scale))))
        np.testing.assert_array_equal(again.y(targets), scale.y(targets))
        np.testing.assert_allclose(scale.X_back(scale.X(X)), X, rtol=1e-12)
        mean, var = scale.back(scale.y(targets), np.ones_like(targets))
        np.testing.assert_allclose(mean, targets, rtol=1e-12)
        np.testing.assert_allclose(
            var, np.broadcast_to(targets.var(axis=0), targets.shape), rtol=1e-12
        )


@pytest.mark.parametrize(
    "change, what",
    [
        (
            {"covariance": "rbv"},
            (
                "`covariance` must be one of 'rbf', 'matern12', 'matern32', 'matern52', or a"
                " Covariance"
            ),
        ),
        (
            {"likelihood": "softmax"},
            "must be one of 'gaussian', 'student-t', 'laplace', 'heteroskedastic'",
        ),
        ({"likelihood": "Gaussian"}, "`likelihood` has no choice 'Gaussian'; did you mean 'gauss"),
        (
            {"likelihood": fs.likelihoods.Laplace},
            "`likelihood` is Laplace, a class; call it: fs.likelihoods.Laplace",
        ),
        ({"likelihood": "poisson", "y": np.full(50, 0.5)}, "`y` must hold counts; got 0.5"),
        (
            {"covariance": fs.RBF().on(0) * fs.covariances.Categorical().on(1)},
            "`X` contains .* in a column of codes",
        ),
        ({"latents": 10**9}, "`latents` must be at most 10000, got 1000000000"),
        (
            {"likelihood": fs.Softmax(num_classes=3)},
            "Softmax is for classes, and here targets are numbers",
        ),
        (
            {
                "covariance": fs.covariances.Convolutional(
                    fs.RBF(), 1.0, image_shape=(3, 1), patch_shape=(1, 1)
                )
            },
            "inputs are patches",
        ),
        ({"posterior": fs.Whitened}, "`posterior` must be one of 'whitened'"),
        ({"solver": "sgd"}, "`solver` must be one of 'auto', 'lbfgs', 'adam', 'natural'"),
        ({"y": np.full(50, np.nan)}, "`y` contains nan"),
        (
            {"y": np.ones(49)},
            r"`y` must be \(50,\) or \(50, P\), a row for each of `X`, got \(49,\)",
        ),
        ({"weights": -np.ones(50)}, "`weights` must be zero or more"),
        ({"weights": np.ones((50, 2)), "y": np.ones((50, 2))}, "one for each row, to start from"),
        ({"inducing": 2.5}, "`inducing` must be a whole number"),
        ({"X": np.ones((50, 3)), "posterior": "orthogonal"}, "needs 2 distinct rows"),
        ({"X": np.full((50, 3), -1e200)}, "`X` holds -1e[+]200, too large to be squared"),
        ({"y": np.full(50, 1e200)}, "`y` holds 1e[+]200, too large to be squared"),
        ({"mean": "zero"}, "`mean` must be one of None, 'constant', 'linear'"),
        (
            {"solver": "natural", "natural_step_size": 2},
            "`natural_step_size` must be above 0 and at most 1, got 2",
        ),
        (
            {"solver": "natural", "natural_step_size": 0},
            "`natural_step_size` must be above 0 and at most 1, got 0",
        ),
        (
            {"solver": "natural", "natural_step_size": None},
            "`natural_step_size` must be a number, got None",
        ),
    ],
)
def test_bad_arguments_of_regression_are_refused(rng, change, what):
    X, y = data(rng)
    with pytest.raises((ValueError, TypeError), match=what):
        fs.recipes.regression(**{"X": X, "y": y} | change)


@pytest.mark.parametrize("N", [1, 50])
@pytest.mark.parametrize("level", [0.0, 3.1])
@pytest.mark.parametrize("normalize_y", [True, False])
def test_equal_targets_say_nothing_about_their_noise(rng, caplog, N, level, normalize_y):
    X, y = data(rng, N)[0], np.full((N, 2), level)
    start = fs.recipes.regression(X, y, 8, normalize_y=normalize_y)
    assert "which says nothing about their noise" in caplog.text
    model, _ = fs.fit(start.model, start.scale.X(X), start.scale.y(y), **start.fit)
    assert model.noise_variance == start.model.noise_variance


def test_a_jitter_of_zero_is_kept_where_it_can_be(rng):
    X, y = data(rng)
    model = fs.recipes.regression(X, y, 8).model
    assert fs.recipes.finish(model, X, y, 0.0)[1] == 0
    twice = fs.replace(model, inducing=np.repeat(model.inducing[:4], 2, axis=0))
    assert fs.recipes.finish(twice, X, y, 0.0)[1] == pytest.approx(1e-5)


def test_data_on_a_device_are_refused(rng):
    class Far:
        __cuda_array_interface__ = {}

    X, y = data(rng)
    for arguments in ((Far(), y), (X, Far())):
        with pytest.raises(TypeError, match="is on a device; start from arrays on the host"):
            fs.recipes.regression(*arguments)


# --- relevance ------------------------------------------------------------------------------------


@pytest.fixture
def few_rows_are_drawn(tune):
    tune(relevance_rows=100)


def twelve(rng, N=160):
    """Make twelve inputs in various units; only the first two matter."""
    X = 10 * rng.uniform(-1, 1, (N, 12)) + 5
    return X, np.sin((X[:, 0] - 5) / 5) * (X[:, 1] - 5)


def typical(start, X):
    """Return the part of each input in the squared scaled distance of a typical pair of rows."""
    Xs = start.scale.X(X)
    return np.square(
        fs.inducing.median_lengthscales(Xs, rng=0)
        / np.sqrt(12)
        / start.model.covariance.lengthscales
    )


@pytest.mark.parametrize("solver", ["lbfgs", "natural"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("target", ["real", "two", "laplace", "poisson", "binary", "classes"])
def test_relevant_inputs_start_with_shorter_lengthscales(
    rng, few_rows_are_drawn, target, dtype, solver
):
    X, y = twelve(rng)
    if solver == "lbfgs" and target != "real":
        return
    recipe, settings = fs.recipes.regression, {"rng": 0, "solver": solver}
    if target == "two":
        y = np.stack([y, -2 * y], axis=1)
    elif target in ("laplace", "poisson"):
        y, settings = (
            (rng.poisson(np.exp(2 + y / 3)) if target == "poisson" else y),
            settings | {"likelihood": target},
        )
    elif target != "real":
        recipe, y = (
            fs.recipes.classification,
            np.digitize(y, [0.0] if target == "binary" else [-2.0, 2.0]),
        )
    X = X.astype(dtype)
    start = recipe(X, y, 20, **settings)
    parts = typical(start, X)
    assert parts[:2].min() > 1.2 * parts[2:].max() and parts.sum() == pytest.approx(1, abs=0.1)
    assert start.model.covariance.lengthscales.dtype == start.model.inducing.dtype == dtype
    again = recipe(X, y, 20, **settings)
    np.testing.assert_array_equal(start.model.inducing, again.model.inducing)
    before = recipe(X, y, 20, ard=False, **settings).model.covariance.lengthscales
    assert np.ndim(before) == 0  # one lengthscale has no relevances


@pytest.mark.parametrize("matter", [2, 9])
def test_relevance_counts_where_few_inputs_matter(rng, monkeypatch, matter):
    X = rng.standard_normal((50, 12)) * np.arange(1, 13)
    X[:, 11] = 2.0
    start, longer = (
        fs.inducing.median_lengthscales(X, rng=0),
        np.where(np.arange(12) < matter, 7.0, 700.0),
    )

    def found(model, *_, **__):
        covariance = fs.replace(
            model.covariance, lengthscales=longer * model.covariance.lengthscales
        )
        return fs.replace(model, covariance=covariance), SimpleNamespace(interrupted=False)

    monkeypatch.setattr(relevance, "fit", found)
    here = relevance.relevant_lengthscales(fs.RBF, start, X, X[:, 0], rng=np.random.default_rng(0))
    if matter == 9:
        return np.testing.assert_array_equal(here, start)
    parts = np.square(start / np.sqrt(12) / here)
    np.testing.assert_allclose(parts[:11], np.where(np.arange(11) < 2, 1, 0.01) / 2.09, rtol=1e-12)
    assert here[11] == start[11] == 1  # a constant input has no part in any distance


def test_relevance_is_skipped_if_it_is_not_needed(rng, few_rows_are_drawn, monkeypatch):
    """Few rows, all rows as inducing inputs, equal targets, or a covariance record."""
    monkeypatch.setattr(
        relevance, "fit", lambda *_, **__: pytest.fail("an exact process was fitted")
    )
    X, y = twelve(rng)
    record = fs.RBF(1.0, np.full(12, 3.0))
    assert (
        fs.recipes.regression(X, y, 20, record, rng=0).model.covariance.lengthscales.tolist()
        == [3.0] * 12
    )
    for rows, targets, inducing in ((100, y, 20), (160, y, 160), (160, np.full(160, 3.0), 20)):
        start = fs.recipes.regression(X[:rows], targets[:rows], inducing, rng=0)
        np.testing.assert_allclose(typical(start, X[:rows]), 1 / 12, rtol=0.1)


def test_ctrl_c_while_relevance_is_computed_is_raised(rng, few_rows_are_drawn, monkeypatch):
    monkeypatch.setattr(
        relevance, "fit", lambda model, *_, **__: (model, SimpleNamespace(interrupted=True))
    )
    with pytest.raises(KeyboardInterrupt):
        fs.recipes.regression(*twelve(rng), 20)


def test_ranks_start_at_the_model_of_one_process(rng, few_rows_are_drawn):
    X, y = twelve(rng)
    parts = fs.recipes.Settings(20, "rbf")
    method = fs.recipes.Method(solver="natural", likelihood=fs.Gaussian(0.1), seed=4)
    scale = fs.recipes.regression(X, y, 20).scale

    def model_of(group):
        return fs.recipes.begin(scale.X(X), scale.y(y), parts, method, group=group)[0]

    alone = model_of(None)
    for found in fs.distributed.threads(2).run(model_of):
        for (path, _, one), (_, _, other) in zip(
            fs.records.leaves(found), fs.records.leaves(alone), strict=True
        ):
            np.testing.assert_array_equal(one, other, err_msg=path)
    assert np.ptp(alone.covariance.lengthscales) > 1  # by relevance
