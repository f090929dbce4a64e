"""The estimators with scikit-learn's tools, and against its exact Gaussian process."""

import copy
import doctest
import pickle

import numpy as np
import pytest
from joblib import Parallel, cpu_count, delayed
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from support.estimator_data import QUICK, classes, real

import fastsvgp as fs
import fastsvgp.sklearn
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, classifier, files, kernels, regressor


@pytest.mark.parametrize("module", [regressor, classifier, files, kernels])
def test_examples_of_the_documentation(module):
    done = doctest.testmod(module)
    assert done.attempted and not done.failed


@pytest.mark.parametrize("name", fastsvgp.sklearn.__all__)
def test_parameters_and_results_are_described(name):
    validate = pytest.importorskip("numpydoc.validate")
    errors = validate.validate(f"fastsvgp.sklearn.{name}")["errors"]
    assert not [error for error in errors if error[0] in {"PR01", "PR02", "RT01", "SS03", "EX01"}]


def test_estimator_is_the_exact_gp_if_all_rows_are_inducing(rng):
    X, y = real(rng)
    ours = SVGPRegressor(
        "rbf", n_inducing=len(X), normalize_X=False, normalize_y=False, max_iter=20
    ).fit(X, y)
    covariance, noise = ours.model_.covariance, float(ours.model_.likelihood.variance)
    kernel = sk.ConstantKernel(float(covariance.variance)) * sk.RBF(covariance.lengthscales)
    exact = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(X, y)
    Xs = rng.uniform(-2, 2, (7, 2))
    for of_f, want in (
        (
            ours.predict(Xs, return_std=True, include_noise=False),
            exact.predict(Xs, return_std=True),
        ),
        (
            ours.predict(Xs, return_cov=True, include_noise=False),
            exact.predict(Xs, return_cov=True),
        ),
    ):
        np.testing.assert_allclose(of_f[0], want[0], atol=2e-4)
        np.testing.assert_allclose(of_f[1], want[1], atol=2e-3)
    assert ours.lower_bound_ == pytest.approx(exact.log_marginal_likelihood(), abs=0.05)
    std = ours.predict(Xs, return_std=True)[1]
    np.testing.assert_allclose(std**2, np.diag(ours.predict(Xs, return_cov=True)[1]), rtol=1e-9)
    np.testing.assert_allclose(
        std**2 - ours.predict(Xs, return_std=True, include_noise=False)[1] ** 2, noise, rtol=1e-6
    )


def test_units_of_the_data_do_not_matter(rng):
    X, y = real(rng)
    here, there = (
        SVGPRegressor(**QUICK).fit(*data) for data in ((X, y), (1000 * X + 7, 0.01 * y - 3))
    )
    mean, std = there.predict(1000 * X + 7, return_std=True)
    want, wanted_std = here.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 0.01 * want - 3, rtol=1e-6)
    np.testing.assert_allclose(std, 0.01 * wanted_std, rtol=1e-5)
    np.testing.assert_allclose(there.inducing_, 1000 * here.inducing_ + 7, rtol=1e-6)
    density = there.log_predictive_density(1000 * X + 7, 0.01 * y - 3)
    np.testing.assert_allclose(density, norm.logpdf(0.01 * y - 3, mean, std), rtol=1e-8)


@pytest.mark.parametrize("columns", [1, 2])
def test_several_targets_share_a_covariance(rng, columns):
    X, y = real(rng)
    Y = np.stack([y, 30 - 5 * X[:, 1]], axis=1)[:, :columns]
    model = SVGPRegressor(**QUICK).fit(X, Y)
    mean, std = model.predict(X[:5], return_std=True)
    _, cov = model.predict(X[:5], return_cov=True)
    assert mean.shape == std.shape == (5, columns) and cov.shape == (5, 5, columns)
    np.testing.assert_allclose(std**2, np.diagonal(cov).T, rtol=1e-9)
    assert model.sample_y(X[:5], 3).shape == (5, columns, 3)
    want = norm.logpdf(Y[:5], mean, std).sum(axis=1)
    np.testing.assert_allclose(model.log_predictive_density(X[:5], Y[:5]), want, rtol=1e-8)
    assert np.ndim(model.model_.covariance.variance) == 0
    with pytest.raises(ValueError, match=r"`y` has shape \(60,\)"):
        model.log_predictive_density(X, y)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace", "student-t"])
def test_draws_have_the_moments_of_predictions(rng, likelihood):
    X, y = real(rng)
    model = SVGPRegressor(likelihood=likelihood, **QUICK).fit(X, y)
    model.model_ = (
        fs.replace(model.model_, likelihood=fs.StudentT(0.3, df=12.0))
        if likelihood == "student-t"
        else model.model_
    )
    mean, std = model.predict(X[:4], return_std=True)
    draws = model.sample_y(X[:4], 20_000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.03)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.05)
    np.testing.assert_array_equal(
        model.sample_y(X[:4], 2), model.sample_y(X[:4], 2, random_state=0)
    )


def test_counts_are_not_standardised(rng):
    X, y = real(rng)
    counts = rng.poisson(5 * np.exp(y))
    model = SVGPRegressor(likelihood="poisson", **QUICK | {"max_iter": 40}).fit(X, counts)
    mean, std = model.predict(X, return_std=True)
    draws = model.sample_y(X, 4000)
    assert model.scale_.y_scale == 1 and (draws == np.round(draws)).all()
    np.testing.assert_allclose(draws.mean(axis=1), mean, rtol=0.25)
    assert (std**2 > mean).all()
    with pytest.raises(ValueError, match="Poisson likelihood adds no noise"):
        model.predict(X, return_cov=True)


@pytest.mark.parametrize(
    "likelihood", ["bernoulli-probit", "bernoulli-logit", "softmax", "robustmax"]
)
def test_labels_are_drawn_by_their_probabilities(rng, likelihood):
    X, y = classes(rng, ("a", "b", "c")[: 2 if likelihood.startswith("bernoulli") else 3])
    model = SVGPClassifier(
        likelihood=likelihood, **QUICK | {"max_iter": 40, "learning_rate": 0.05}
    ).fit(X, y)
    p = model.predict_proba(X[:6])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    draws = model.sample_y(X[:6], 4000)
    np.testing.assert_allclose((draws[..., None] == model.classes_).mean(axis=1), p, atol=0.04)
    own = p[np.arange(6), np.searchsorted(model.classes_, y[:6])]
    np.testing.assert_allclose(model.log_predictive_density(X[:6], y[:6]), np.log(own), rtol=1e-6)
    assert model.score(X, y) > 0.7
    with pytest.raises(
        ValueError, match="holds the class z, which is none of those of the model: a, b"
    ):
        model.log_predictive_density(X[:1], ["z"])


@pytest.mark.parametrize("batch_size", [512, 20])
@pytest.mark.parametrize("solver", ["lbfgs", "natural"])
def test_a_weight_is_as_many_rows(rng, solver, batch_size):
    X, y = real(rng)
    weights = rng.integers(0, 4, len(X))
    model = SVGPRegressor(solver=solver, batch_size=batch_size, **QUICK)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    repeated = clone(model).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert abs(weighted.predict(X) - clone(model).fit(X, y).predict(X)).max() > 1e-3


def test_weights_of_nothing_are_refused(rng):
    X, y = real(rng)
    for weights, what in (
        (np.zeros(60), "zero"),
        (-np.ones(60), "[Nn]egative"),
        (np.full(60, np.nan), "NaN"),
    ):
        with pytest.raises(ValueError, match=what):
            SVGPRegressor(**QUICK).fit(X, y, sample_weight=weights)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lbfgs", "natural", "adam"])
def test_a_warm_start_goes_on_from_the_model(rng, solver):
    X, y = real(rng)
    model = SVGPRegressor(solver=solver, warm_start=True, learning_rate=0.05, **QUICK).fit(X, y)
    before, scale = model.lower_bound_, model.scale_
    assert model.fit(X, y).lower_bound_ > before
    assert model.scale_ is scale and model.n_iter_ == 10
    more, targets = real(rng, 30)
    model.fit(np.concatenate([X, more]), np.concatenate([y, targets]))
    assert model.scale_ is scale and model.score(more, targets) > 0.3
    with pytest.raises(ValueError, match="continue from .warm_start=True. has targets .N,."):
        model.fit(X, np.stack([y, y], axis=1))


def test_a_warm_start_knows_its_classes(rng):
    X, y = classes(rng)
    model = SVGPClassifier(warm_start=True, **QUICK).fit(X, y)
    # in a warm start, rows of one of the known classes are enough
    model.fit(X, np.where(y == "no", "no", "no"))
    assert model.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="holds the class maybe"):
        model.fit(X, np.where(y == "no", "no", "maybe"))


@pytest.mark.parametrize("solver", ["lbfgs", "natural"])
def test_training_stops_early_at_the_best_held_out_density(rng, solver):
    X, y = real(rng, 80)
    y[:40] = rng.standard_normal(40)
    settings = {**QUICK, "n_inducing": 40, "max_iter": 200}
    model = SVGPRegressor(
        solver=solver, early_stopping=True, n_iter_no_change=3, learning_rate=0.1, **settings
    ).fit(X, y)
    assert 3 < model.n_iter_ < 200 and len(model.lower_bounds_) == model.n_iter_


def test_classes_are_held_out_in_their_proportions(rng, monkeypatch):
    X, y = classes(rng, N=100)
    y[:] = "no"
    y[:10] = "yes"
    seen = []
    start = SVGPClassifier._start
    monkeypatch.setattr(
        SVGPClassifier,
        "_start",
        lambda self, X, y, *rest: seen.append(y) or start(self, X, y, *rest),
    )
    SVGPClassifier(early_stopping=True, validation_fraction=0.2, **QUICK).fit(X, y)
    assert len(seen[0]) == 80 and (seen[0] == "yes").sum() == 8


def test_restarts_keep_the_best(rng):
    X, y = real(rng)
    bounds = [
        SVGPRegressor(n_restarts_optimizer=restarts, **QUICK).fit(X, y).lower_bound_
        for restarts in (0, 3)
    ]
    assert bounds[1] >= bounds[0]


def test_the_bound_is_printed_by_iterations_and_by_epochs(rng, capsys):
    X, y = real(rng)
    model = SVGPRegressor(
        solver="natural", batch_size=25, verbose=1, **QUICK | {"max_iter": 4}
    ).fit(X, y)
    assert model.n_iter_ == 4 and model.lower_bounds_[-1] > model.lower_bounds_[0]
    assert "step 10 of 10, ELBO" in capsys.readouterr().err
    SVGPRegressor(**QUICK).fit(X, y)
    assert capsys.readouterr().err == ""


def test_ctrl_c_leaves_a_model_and_is_raised_again(rng, monkeypatch):
    X, y = real(rng)
    model = SVGPRegressor(solver="natural", n_restarts_optimizer=5, **QUICK)

    def interrupt(self, step, value, info):
        if step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("fastsvgp.sklearn.base.Progress.__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.n_iter_ == 3 and np.isfinite(model.predict(X)).all()


def test_float32_stays_float32(rng):
    X, y = real(rng)
    for solver in ("lbfgs", "natural"):
        model = SVGPRegressor(solver=solver, **QUICK).fit(X.astype(np.float32), y)
        mean, std = model.predict(X.astype(np.float32), return_std=True)
        assert (
            mean.dtype == std.dtype == model.inducing_.dtype == np.float32
            and model.score(X, y) > 0.5
        )
        assert model.jitter_ >= 1e-4
        for scale in (np.float32(1e-25), np.float32(1e25)):  # their squares are outside float32
            again = SVGPRegressor(solver=solver, **QUICK).fit(
                X.astype(np.float32), scale * y.astype(np.float32)
            )
            np.testing.assert_allclose(again.predict(X, return_std=True)[1], scale * std, rtol=0.01)


@pytest.mark.parametrize("N", [1, 40])
def test_targets_without_difference_are_no_certainty(rng, N):
    """The bound would rise without limit as the noise goes to zero; also in a warm start."""
    X, y = real(rng, N)
    model = SVGPRegressor(warm_start=True, **QUICK)
    for _ in range(2):
        std = model.fit(X, np.full(N, 3.0)).predict(X, return_std=True)[1]
        assert (std > 0.1).all()


# --- among scikit-learn's tools -------------------------------------------------------------------


def test_pipelines_searches_copies_and_importances(rng):
    X, y = real(rng)
    grid = {"svgpregressor__covariance": ["rbf", "matern52"], "svgpregressor__n_inducing": [4, 12]}
    pipeline = make_pipeline(
        PolynomialFeatures(1, include_bias=False), SVGPRegressor(max_iter=10, random_state=0)
    )
    search = GridSearchCV(pipeline, grid, n_jobs=2, cv=2).fit(X, y)
    assert search.best_params_["svgpregressor__n_inducing"] == 12 and search.best_score_ > 0.5
    best = search.best_estimator_
    for twin in (pickle.loads(pickle.dumps(best)), copy.deepcopy(best)):
        np.testing.assert_array_equal(twin.predict(X), best.predict(X))
    importances = permutation_importance(best, X, y, n_repeats=2, random_state=0).importances_mean
    assert importances[0] > 10 * abs(importances[1])


def test_workers_of_joblib_share_the_cores():
    """joblib sets OMP_NUM_THREADS in each worker."""
    assert (
        Parallel(n_jobs=2)(delayed(fs.get_num_threads)() for _ in range(2))
        == [max(1, cpu_count() // 2)] * 2
    )


def test_a_setting_may_be_a_record(rng):
    X, y = real(rng)
    model = SVGPRegressor(
        fs.RBF(0.5, 2.0) + fs.Linear(1.0), likelihood=fs.Gaussian(0.3), mean="linear", **QUICK
    )
    again = clone(model).fit(X, y)
    assert (
        type(again.model_.covariance) is fs.covariances.Sum
        and type(again.model_.mean) is fs.means.LinearMean
    )
    own = SVGPRegressor(
        inducing=X[:7], **QUICK | {"max_iter": 1, "solver": "adam", "learning_rate": 1e-9}
    ).fit(X, y)
    np.testing.assert_allclose(own.inducing_, X[:7], atol=1e-6)


def test_names_of_features_are_kept(rng, monkeypatch):
    """The names of a data frame, if pandas or polars is installed."""
    X, y = real(rng)
    names = [["length", "width"]]
    monkeypatch.setattr(
        "sklearn.utils.validation._get_feature_names", lambda X: np.array(names[-1], object)
    )
    model = SVGPRegressor(**QUICK).fit(X, y)
    assert model.feature_names_in_.tolist() == ["length", "width"] and model.predict(X).shape == (
        60,
    )
    names.append(["width", "length"])
    for use in (model.predict, model.sample_y, lambda X: model.log_predictive_density(X, y)):
        with pytest.raises(ValueError, match="feature names"):
            use(X)


# --- the search -----------------------------------------------------------------------------------


def test_without_settings_it_searches(rng):
    X = np.c_[np.exp(rng.standard_normal(300)), rng.standard_normal(300)]
    y = np.sin(2 * np.log(X[:, 0])) + X[:, 1] + 0.1 * rng.standard_normal(300)
    model = SVGPRegressor(random_state=3).fit(X, y)
    assert model.story_ and model.plan_["seconds"] == pytest.approx(8.6)
    again = SVGPRegressor(random_state=3).fit(X, y)  # the budget is work, not time
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert model.inducing_.shape[1] == 2 and np.isfinite(model.lower_bound_)
    assert model.score(X, y) > 0.9
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (300,) and model.sample_y(X[:3], 2).shape == (3, 2)
    timed = SVGPRegressor(time_budget=4.5, random_state=3).fit(X, y)
    assert any("inputs, because" in line for line in timed.story_)
    other = SVGPRegressor(max_iter=3).fit(X, y)
    assert other.plan_ is None and other.story_ == ()
    two = SVGPRegressor().fit(X[:50], np.c_[y, y][:50])
    assert two.plan_ is None and two.predict(X).shape == (300, 2)


def test_a_searched_estimator_is_saved(rng, tmp_path):
    X = np.c_[np.exp(rng.standard_normal(300)), rng.standard_normal(300)]
    y = np.sin(2 * np.log(X[:, 0])) + X[:, 1]
    model = SVGPRegressor(random_state=0).fit(X, y)
    model.scale_ = model.scale_.add_column_maps(X)
    for covariance in (
        model.model_.covariance,
        fs.covariances.OnFeatures(
            fs.RBF(1.0, np.ones(2)), fs.covariances.Network.random((2, 4, 2), rng=0)
        ),
    ):
        model.model_ = fs.replace(model.model_, covariance=covariance)
        files.save(tmp_path / "model.npz", model)
        loaded = files.load(tmp_path / "model.npz")
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        assert loaded.story_ == model.story_ and loaded.plan_["seconds"] == model.plan_["seconds"]


def test_classifier_without_settings_searches(rng):
    X = rng.standard_normal((260, 2))
    y = np.where(np.hypot(X[:, 0], X[:, 1]) > 1.2, "out", "in")
    model = SVGPClassifier(random_state=3).fit(X, y)
    assert model.story_ and model.plan_["seconds"] == pytest.approx(8.52)
    again = SVGPClassifier(random_state=3).fit(X, y)  # work is the clock, not time
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert model.score(X, y) > 0.85 and np.isfinite(model.lower_bound_)
    assert model.inducing_.shape[1] == 2 and model.sample_y(X[:3], 2).shape == (3, 2)
    other = SVGPClassifier(max_iter=3).fit(X, y)
    assert other.plan_ is None and other.story_ == ()
    with pytest.raises(ValueError, match="drop `time_budget`, or `solver`"):
        SVGPClassifier(time_budget=5, solver="natural").fit(X, y)


def test_searched_classifier_of_ranks_is_saved(rng, tmp_path):
    X = np.c_[np.exp(rng.standard_normal(60)), rng.standard_normal(60)]
    y = X[:, 0] > 1
    model = SVGPClassifier(random_state=0).fit(X, y)
    model.scale_ = model.scale_.add_column_maps(X)
    files.save(tmp_path / "model.npz", model)
    loaded = files.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.story_ == model.story_ and loaded.classes_.tolist() == [False, True]
