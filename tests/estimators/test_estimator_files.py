"""Estimators as files, and scikit-learn kernels as covariances."""

import json
import tracemalloc

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as sk

import fastsvgp as fs
from fastsvgp import recipes
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, fixed_fields, from_kernel, load, save

QUICK = {"n_inducing": 8, "max_iter": 5, "random_state": 0}
SETTINGS = {
    "names": {},
    "records": {
        "covariance": fs.RBF(0.5, np.array([1.0, 2.0])) + fs.Linear(),
        "likelihood": fs.StudentT(0.3, df=5.0),
    },
    "kernel": {
        "covariance": sk.ConstantKernel(2.0) * sk.Matern([1.0, 2.0], nu=2.5) + sk.WhiteKernel(0.1)
    },
    "arrays": {"inducing": np.linspace(-1, 1, 8).reshape(4, 2), "jitter": 1e-5},
    "pair": {"n_inducing": (3, 4), "posterior": "whitened_orthogonal"},
}


def data(rng):
    X = rng.uniform(-2, 2, (40, 2))
    return X, np.sin(2 * X[:, 0]) + 5 * X[:, 1]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_regressor_comes_back_from_its_file(rng, tmp_path, name):
    X, y = data(rng)
    model = SVGPRegressor(**QUICK | SETTINGS[name]).fit(
        X, np.stack([y, -y], 1) if name == "names" else y
    )
    save(tmp_path / "model", model)
    again = load(tmp_path / "model")
    for one, other in zip(
        again.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.inducing_, model.inducing_)
    np.testing.assert_array_equal(again.lower_bounds_, model.lower_bounds_)
    assert (again.jitter_, again.n_iter_, again.lower_bound_) == (
        model.jitter_,
        model.n_iter_,
        model.lower_bound_,
    )
    assert str(again) == str(model)
    again.fit(X, y)  # with the same settings
    np.testing.assert_array_equal(again.predict(X), model.fit(X, y).predict(X))


@pytest.mark.parametrize("posterior", recipes.POSTERIORS)
def test_every_posterior_comes_back(rng, tmp_path, posterior):
    X, y = data(rng)
    for targets in (y, y[:, None], np.stack([y, -y], 1)):
        model = SVGPRegressor(posterior=posterior, **QUICK | {"max_iter": 1}).fit(X, targets)
        save(tmp_path / "model", model)
        np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 7], [True, False], [1.0, 2.0]])
def test_a_classifier_comes_back_with_its_labels(rng, tmp_path, labels):
    X, y = data(rng)
    y = np.array(labels)[(y > 0).astype(int)]
    for targets in (y, y.astype(object)) if isinstance(labels[0], str) else (y,):
        model = SVGPClassifier(**QUICK).fit(X, targets)
        save(tmp_path / "model", model)
        again = load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert (
            again.predict(X).tolist() == model.predict(X).tolist()
            and again.classes_.dtype == model.classes_.dtype
        )


def test_what_cannot_be_stored(rng, tmp_path):
    X, y = data(rng)
    with pytest.raises(NotFittedError):
        save(tmp_path / "model", SVGPRegressor())
    with pytest.raises(TypeError, match="must be an SVGPRegressor or SVGPClassifier, got dict"):
        save(tmp_path / "model", {})
    with pytest.raises(TypeError, match="`random_state`"):
        save(
            tmp_path / "model",
            SVGPRegressor(**QUICK | {"random_state": np.random.RandomState(0)}).fit(X, y),
        )
    assert not (tmp_path / "model").exists()


def changed(path, **changes):
    """The file with another description of its estimator."""
    model, extra = fs.records.load_with_extra(path)
    fs.save(path, model, estimator=json.loads(json.dumps(extra["estimator"] | changes)))


def numbers(*values):
    return {"array": values, "dtype": "<f8"}


SCALE = {"x_mean": numbers(0.0, 0.0), "x_scale": numbers(1.0, 1.0), "x_map": None}
SCALE |= {"y_mean": 0.0, "y_scale": 1.0, "kind": "Scale"}


@pytest.mark.parametrize(
    "changes, what",
    [
        (
            {"format": 5},
            "has estimator format 5, but this version of fastsvgp reads 6; load it with the",
        ),
        ({"class": "SVC"}, "damaged.*SVC"),
        ({"settings": {"kernel": 1}}, "damaged.*kernel"),
        ({"scale": {}}, "damaged"),
        ({"n_features_in_": 3}, "number of features are inconsistent"),
        ({"class": "SVGPClassifier"}, "damaged"),
        (
            {"scale": SCALE | {"x_scale": numbers(1.0, 0.0)}},
            "`x_scale` of the scaling must hold numbers above 0",
        ),
        ({"settings": {"covariance": {"kernel": "sqrt", "settings": {}}}}, "damaged"),
        ({"settings": {"inducing": {"array": [1.0], "dtype": "<V99999999"}}}, "damaged"),
        ({"jitter_": "small"}, "damaged.*`jitter` must be a number"),
        ({"n_iter_": []}, "damaged.*`n_iter_` must be a number"),
        ({"y_shape": [3]}, "number of targets are inconsistent"),
        (
            {"scale": SCALE | {"y_mean": numbers(0.0, 1.0)}},
            "targets are inconsistent",
        ),
        (
            {"scale": SCALE | {"kind": "ClassScale", "classes": numbers(0.0, 1.0)}},
            "2 classes|an estimator of classes",
        ),
    ],
)
def test_files_that_are_no_estimators_of_this_version(rng, tmp_path, changes, what):
    X, y = data(rng)
    save(tmp_path / "model", SVGPRegressor(**QUICK).fit(X, y))
    changed(tmp_path / "model", **changes)
    with pytest.raises(fs.DataFileError, match=what):
        load(tmp_path / "model")
    fs.save(tmp_path / "model", fs.RBF())
    with pytest.raises(
        fs.DataFileError, match="holds a RBF, not an estimator; read it with fastsvgp.load"
    ):
        load(tmp_path / "model")


def test_no_file_takes_more_memory_than_it_says(rng, tmp_path):
    X, y = data(rng)
    save(tmp_path / "model", SVGPRegressor(**QUICK).fit(X, y))
    changed(
        tmp_path / "model", settings={"inducing": {"array": ["a"] * 1000, "dtype": "<U99999999"}}
    )
    tracemalloc.start()
    assert load(tmp_path / "model").inducing.shape == (1000,)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


# --- kernels --------------------------------------------------------------------------------------

KERNELS = [
    sk.RBF(0.7),
    sk.Matern([0.5, 2.0], nu=0.5),
    2.0 * sk.Matern(0.8, nu=1.5),
    sk.Matern(0.8, nu=2.5) * sk.RBF(2.0) * sk.ConstantKernel(3.0),
    sk.Matern(0.8, nu=np.inf) + sk.ConstantKernel(0.3),
    sk.DotProduct(0.0),
    0.5 * sk.DotProduct(2.0) + 0.1 * sk.RBF(),
    2.0 * (sk.RBF() + sk.DotProduct()) * sk.DotProduct(0.5),
    sk.ConstantKernel(2.0) * sk.ConstantKernel(3.0),
    2.0 * sk.RationalQuadratic(0.7, 0.4) + sk.RBF(),
    2.0 * sk.RBF([0.5, 2.0]) ** 3,
    (3.0 * sk.RBF(0.5)) ** 2 * sk.ConstantKernel(0.5),
    0.5 * sk.DotProduct(0.8) ** 3 + sk.DotProduct(0.0) ** 2,
    sk.ConstantKernel(0.7) ** 2 + (sk.RBF() + sk.Matern()) ** 2 * sk.RBF() ** 1,
]
ONE_COLUMN = [sk.ExpSineSquared(0.7, 1.9), 2.0 * sk.ExpSineSquared(0.7, 1.9) * sk.RBF(3.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("noise", [None, 0.25])
def test_a_kernel_and_its_covariance_are_the_same_function(rng, kernel, noise):
    X = rng.standard_normal((6, 2))
    covariance, found = from_kernel(
        kernel if noise is None else sk.WhiteKernel(0.1) + kernel + 1.5 * sk.WhiteKernel(0.1)
    )
    np.testing.assert_allclose(covariance.matrix(X), kernel(X), rtol=1e-12)
    assert found == (noise if noise is None else pytest.approx(noise))


@pytest.mark.parametrize("kernel", ONE_COLUMN, ids=str)
def test_periodic_kernels_of_one_column(rng, kernel):
    X, (covariance, _) = rng.standard_normal((6, 1)), from_kernel(kernel)
    np.testing.assert_allclose(covariance.matrix(X), kernel(X), rtol=1e-12)
    with pytest.raises(ValueError, match="has shape .*1,.*, but the inputs have D = 2 columns"):
        covariance.check_dim(2)


@pytest.mark.parametrize(
    "kernel, what",
    [
        (
            sk.PairwiseKernel(),
            "PairwiseKernel has no counterpart; only ConstantKernel, RBF",
        ),
        (sk.RBF() ** 1.5, "for exponents 1, 2, 3 ..., but not for 1.5"),
        (sk.RBF() ** 0, "for exponents 1, 2, 3 ..., but not for 0"),
        ((sk.RBF() + sk.WhiteKernel()) ** 2, "is a power of noise"),
        (sk.Matern(nu=1.7), "for nu = 0.5, 1.5, 2.5, inf, but not for 1.7"),
        (sk.WhiteKernel() * sk.RBF(), "noise times another kernel"),
        (sk.RBF() * (sk.RBF() + sk.WhiteKernel()), "multiplies noise"),
        (sk.WhiteKernel() + sk.WhiteKernel(), "is only noise"),
        ("rbf", "must be a kernel of sklearn"),
    ],
)
def test_kernels_without_counterpart(kernel, what):
    with pytest.raises((ValueError, TypeError), match=what):
        from_kernel(kernel)


FIXED = [
    (2.0 * sk.RBF(0.7) + sk.WhiteKernel(0.1), []),
    (sk.ConstantKernel(2.0, "fixed") * sk.RBF(0.7) + sk.WhiteKernel(0.1), ["covariance.variance"]),
    (2.0 * sk.RBF([0.7, 0.9], "fixed") + sk.WhiteKernel(0.1), ["covariance.lengthscales"]),
    (
        2.0 * sk.Matern(0.7, (0.1, 10.0), 1.5) + sk.WhiteKernel(0.1, "fixed"),
        ["likelihood.variance"],
    ),
    (
        sk.ConstantKernel(2.0, "fixed") * sk.RBF(0.7, "fixed") + sk.WhiteKernel(0.1, "fixed"),
        ["covariance.variance", "covariance.lengthscales", "likelihood.variance"],
    ),
    (
        sk.Matern(0.8, "fixed", 2.5)
        + sk.ConstantKernel(0.3, "fixed")
        + sk.ConstantKernel(0.5, "fixed") * sk.DotProduct(0.0, "fixed"),
        [
            "covariance.parts.0.lengthscales",
            "covariance.parts.1.variance",
            "covariance.parts.2.variance",
        ],
    ),
    # the size of the product is fixed, so no factor has a trained one
    (
        sk.ConstantKernel(2.0, "fixed") * sk.RBF() * sk.RBF(2.0),
        [f"covariance.parts.{i}.variance" for i in (0, 1)],
    ),
    (sk.ConstantKernel(2.0, "fixed") * sk.ConstantKernel(3.0) * sk.RBF(), []),  # 6 is not fixed
    (sk.WhiteKernel(0.1, "fixed") + sk.RBF() + sk.WhiteKernel(0.1), []),
    (
        sk.ConstantKernel(0.5, "fixed") * (sk.DotProduct(0.5) + 2.0 * sk.RBF()),
        ["covariance.parts.0.variance", "covariance.parts.1.parts.0.variance"],
    ),
    (sk.ConstantKernel(0.5) * sk.DotProduct(0.5, "fixed"), ["covariance.parts.1.parts.1.variance"]),
    (
        sk.ConstantKernel(2.0, "fixed") * sk.RationalQuadratic(0.7, 0.4, (0.1, 10), "fixed"),
        ["covariance.variance", "covariance.alpha"],
    ),
]


@pytest.mark.parametrize("kernel, names", FIXED, ids=str)
def test_the_fields_that_a_kernel_has_fixed(kernel, names):
    assert fixed_fields(kernel) == tuple(names)
    # the fixed parameters according to scikit-learn
    free = kernel.clone_with_theta(kernel.theta + 0.5)
    before, after = from_kernel(kernel), from_kernel(free)
    for (path, _, value), (_, _, moved) in zip(
        fs.records.leaves(before[0]), fs.records.leaves(after[0]), strict=True
    ):
        assert f"covariance.{path}" not in names or np.array_equal(value, moved)
    assert "likelihood.variance" not in names or before[1] == after[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "lbfgs"},
        {"solver": "lbfgs", "n_inducing": 40},
        {"solver": "natural", "early_stopping": True},
        {"solver": "adam", "posterior": "marginal"},
        {"solver": "lbfgs", "n_restarts_optimizer": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel, names", FIXED, ids=str)
def test_fixed_numbers_of_a_kernel_keep_their_bits(rng, kernel, names, settings):
    X, y = (
        (array.astype(np.float32) for array in data(rng))
        if settings["solver"] == "adam"
        else data(rng)
    )
    model = SVGPRegressor(kernel, **QUICK | settings).fit(X, y)
    _check_fixed(model, kernel, names, X.dtype)
    start = model.model_
    model.set_params(warm_start=True).fit(X, y)
    for path, _, value in fs.records.leaves(model.model_):
        if path in names:
            np.testing.assert_array_equal(
                value, dict((p, v) for p, _, v in fs.records.leaves(start))[path]
            )


def _check_fixed(model, kernel, names, dtype):
    covariance, noise = from_kernel(kernel)
    before = {f"covariance.{path}": value for path, _, value in fs.records.leaves(covariance)}
    before["likelihood.variance"] = recipes.NOISE if noise is None else noise
    found = {path: value for path, _, value in fs.records.leaves(model.model_) if path in before}
    assert found.keys() == before.keys() and set(names) <= before.keys()
    for path, value in found.items():
        assert np.array_equal(np.asarray(value, dtype), np.asarray(before[path], dtype)) == (
            path in names
        ), path
    assert model.predict(np.zeros((3, 2), dtype)).dtype == dtype


def test_a_classifier_keeps_what_its_kernel_has_fixed(rng):
    X, y = data(rng)
    model = SVGPClassifier(sk.ConstantKernel(2.0, "fixed") * sk.RBF(0.7), **QUICK).fit(X, y > 0)
    assert model.model_.covariance.variance == 2 and model.model_.covariance.lengthscales != 0.7


def test_a_warm_start_from_another_kernel_holds_what_both_have(rng):
    X, y = data(rng)
    model = SVGPRegressor(sk.ConstantKernel(2.0) * sk.RBF(0.7), warm_start=True, **QUICK).fit(X, y)
    before = model.model_.covariance
    model.set_params(covariance=sk.RBF(0.7, "fixed") + sk.RBF(2.0, "fixed")).fit(X, y)
    assert (
        model.model_.covariance.variance != before.variance
        and type(model.model_.covariance) is fs.RBF
    )
    before = model.model_.covariance
    model.set_params(covariance=sk.ConstantKernel(5.0, "fixed") * sk.RBF(0.7)).fit(X, y)
    assert model.model_.covariance.variance == before.variance != 5
