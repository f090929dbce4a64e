"""Bad input of the estimators: each message names the argument and says what to do."""

import inspect
import logging

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk
from support.estimator_data import QUICK, classes, real

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

# settings, and the message that refuses them
SETTINGS = [
    (
        {"solver": "lbfgs", "posterior": "relaxed"},
        "solver 'lbfgs': natural steps do not move all of a Relaxed posterior",
    ),
    (
        {"solver": "natural", "posterior": "relaxed"},
        "a Relaxed posterior has no natural-gradient steps",
    ),
    ({"solver": "adam", "posterior": "dual_sites"}, "takes natural-gradient steps only"),
    ({"max_iter": 0}, "`max_iter` must be a whole number of at least 1, got 0"),
    ({"n_iter_no_change": 2.5}, "`n_iter_no_change` must be a whole number"),
    (
        {"n_restarts_optimizer": -1},
        "`n_restarts_optimizer` must be a whole number of at least 0",
    ),
    ({"early_stopping": "yes"}, "`early_stopping` must be True or False, got 'yes'"),
    ({"normalize_y": 1}, "`normalize_y` must be True or False, got 1"),
    ({"learning_rate": -0.1}, "`learning_rate` must be positive, got -0.1"),
    ({"validation_fraction": 2.0}, "`validation_fraction` must be above 0 and below 1, got 2"),
    ({"jitter": -1.0}, "`jitter` must be zero or positive"),
    (
        {"covariance": sk.RBF() + sk.WhiteKernel(), "likelihood": "laplace"},
        "has a WhiteKernel, which is Gaussian noise",
    ),
    ({"inducing": np.ones((3, 5))}, "`inducing` has 5 columns where `X` has 2"),
    (
        {"n_inducing": (3, 4)},
        (
            r"`n_inducing` is \(3, 4\), and the posterior, Whitened, has one set of .*; give"
            r" one number"
        ),
    ),
    (
        {"n_inducing": [3], "posterior": "orthogonal"},
        r"is \(3,\), and the posterior, Orthogonal, has 2 sets .* one for all",
    ),
    ({"n_inducing": ()}, r"`n_inducing` is \(\), and the posterior, Whitened, has one set"),
    (
        {
            "inducing": fs.posteriors.InducingPair(np.ones((3, 2)), np.ones((3, 1))),
            "posterior": "orthogonal",
        },
        "`inducing.O` has 1 columns where `X` has 2",
    ),
    ({"verbose": "x"}, "`verbose` must be a whole number of at least 0, got 'x'"),
    ({"verbose": -1}, "`verbose` must be a whole number of at least 0, got -1"),
    ({"n_inducing": 0}, "`n_inducing` must be a whole number of at least 1, got 0"),
    ({"n_inducing": (3, "4")}, "`n_inducing` must be a whole number of at least 1, got '4'"),
    (
        {"inducing": 20},
        "`inducing` must be one of 'kmeans', 'greedy', 'random', or an .M, D. array; got 20",
    ),
    ({"tol": -1}, "`tol` must be non-negative, got -1"),
    (
        {"early_stopping": True, "validation_fraction": 0.999},
        "=0.999 cannot hold out rows of the 60 given",
    ),
]


@pytest.mark.parametrize(
    "name",
    ["covariance", "likelihood", "posterior", "solver", "inducing", "mean", "natural_step_size"],
)
@pytest.mark.parametrize("kind", [SVGPRegressor, SVGPClassifier])
def test_unknown_names_are_answered_by_those_there_are(rng, kind, name):
    X, y = classes(rng)
    settings = {name: "Adam's"}
    with pytest.raises(ValueError, match=f"`{name}` must be one of .*'.*got \"Adam's\""):
        kind(**settings).fit(X, np.arange(60.0) if kind is SVGPRegressor else y)


def test_cells_without_a_number_and_sparse_inputs(rng):
    X, y = real(rng)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN.*sklearn.impute.SimpleImputer"):
        SVGPRegressor(**QUICK).fit(X, y)
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="`X`, which must be dense"):
        SVGPRegressor(**QUICK).fit(csr_array(np.eye(60)), y)


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
@pytest.mark.parametrize("kind", [SVGPRegressor, SVGPClassifier])
def test_masked_arrays_are_refused_by_all_methods(rng, kind, name):
    """The masked entries of y are 1e5: training or scoring with them would be wrong."""
    X, y = real(rng) if kind is SVGPRegressor else classes(rng, labels=(0, 1))
    model = kind(**QUICK).fit(X, y)
    data = {"X": X, "y": y, "sample_weight": np.ones(len(X))}
    hidden = np.zeros(data[name].shape, bool)
    hidden[3] = True
    masked = np.ma.masked_array(np.where(hidden, 10**5, data[name]), hidden)
    calls = [kind(**QUICK).fit, model.score]
    if name != "sample_weight":
        calls.append(lambda X, y, sample_weight: model.log_predictive_density(X, y))
    if name == "X":
        methods = ["predict", "sample_y", *["predict_proba"] * (kind is SVGPClassifier)]
        calls += [
            lambda X, y, sample_weight, method=method: getattr(model, method)(X)
            for method in methods
        ]
    for call in calls:
        for value in (masked, list(masked), np.ma.masked_array(data[name])):
            with pytest.raises(
                TypeError,
                match=f"`{name}` is a masked array; fill or drop the masked entries first",
            ):
                call(**data | {name: value})
        call(**data)
        call(**data | {name: data[name].tolist()})


def test_masked_labels_are_refused_by_the_recipe(rng):
    X, y = classes(rng)
    with pytest.raises(TypeError, match="`y` is a masked array"):
        fs.recipes.classification(X, np.ma.masked_array(y, y == "yes"), inducing=5)
    assert fs.recipes.classification(X, y.tolist(), inducing=5).scale.classes.tolist() == [
        "no",
        "yes",
    ]


def test_more_inducing_inputs_than_rows_are_capped(rng, caplog):
    X, y = real(rng, 20)
    with caplog.at_level(logging.INFO, "fastsvgp"):
        model = SVGPRegressor(n_inducing=50, max_iter=3).fit(
            np.concatenate([X, X]), np.concatenate([y, y])
        )
    assert (
        len(model.inducing_) == 20
        and "50 inducing inputs were requested; the 20 distinct rows are used" in caplog.text
    )


@pytest.mark.parametrize(
    "settings, what",
    SETTINGS,
)
def test_settings_that_do_not_go_together(rng, settings, what):
    X, y = real(rng)
    with pytest.raises((ValueError, TypeError), match=what):
        SVGPRegressor(**settings).fit(X, y)


@pytest.mark.parametrize(
    "weights, what",
    [
        (-1.0, "[Nn]egative values"),
        (np.nan, "NaN"),
        (0.0, "zero"),
        ([1.0] * 59, "[Ss]ample_?.?weight"),
    ],
)
def test_weights_that_are_none(rng, weights, what):
    X, y = real(rng)
    with pytest.raises(ValueError, match=what):
        SVGPRegressor(**QUICK).fit(
            X, y, sample_weight=np.full(60, weights) if np.ndim(weights) == 0 else weights
        )


def test_standard_deviations_or_covariances(rng):
    X, y = real(rng)
    with pytest.raises(ValueError, match="`return_std` and `return_cov` cannot be combined"):
        SVGPRegressor(**QUICK).fit(X, y).predict(X, return_std=True, return_cov=True)


def test_one_class_and_classes_of_a_bernoulli_likelihood(rng):
    X, y = classes(rng, ("a", "b", "c"))
    with pytest.raises(ValueError, match="one class only, a"):
        SVGPClassifier(**QUICK).fit(X, np.full(60, "a"))
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        SVGPClassifier(likelihood="bernoulli-logit", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="Softmax has 2 classes, but `y` has 3"):
        SVGPClassifier(likelihood=fs.Softmax(num_classes=2), **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="Gaussian is for numbers, and here targets are classes"):
        SVGPClassifier(likelihood=fs.Gaussian(0.1), **QUICK).fit(X, y)
    with pytest.raises(
        ValueError, match="early_stopping=True.*=0.1 cannot hold out rows of the 10 given"
    ):
        SVGPClassifier(early_stopping=True, **QUICK).fit(X[:10], y[:10] != "a")
    with pytest.raises(ValueError, match="must be numbers, got <U1, for example '[abc]'"):
        SVGPRegressor(**QUICK).fit(X, y)


def test_a_budget_beside_other_settings_is_refused(rng):
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    with pytest.raises(ValueError, match="drop `time_budget`, or `max_iter`, `solver`"):
        SVGPRegressor(time_budget=5, max_iter=3, solver="natural").fit(X, y)
    with pytest.raises(ValueError, match="`time_budget` is for one target, but `y` has 2"):
        SVGPRegressor(time_budget=5).fit(X, np.c_[y, y])
    for budget, error in (
        (0, ValueError),
        (-1, ValueError),
        (np.nan, ValueError),
        ("a", TypeError),
    ):
        with pytest.raises(error, match="`time_budget`"):
            SVGPRegressor(time_budget=budget).fit(X, y)


@pytest.mark.parametrize(
    "name, message",
    [
        ("kernel", "has no setting `kernel`; did you mean `covariance`"),
        ("seed", "has no setting `seed`; did you mean `random_state`"),
        ("num_inducing", "has no setting `num_inducing`; did you mean `n_inducing` or `inducing`"),
        ("zzz", r"has no setting `zzz`; .*\(\).get_params\(\) holds its settings"),
    ],
)
@pytest.mark.parametrize("estimator", [SVGPClassifier, SVGPRegressor])
def test_unknown_settings_name_the_nearest(estimator, name, message):
    with pytest.raises(TypeError, match=f"^{estimator.__name__} {message}"):
        estimator(**{name: 1})


def test_other_wrong_arguments_of_a_constructor_keep_their_messages():
    with pytest.raises(TypeError, match="positional arguments but 3 were given"):
        SVGPRegressor("rbf", 3)
    assert list(inspect.signature(SVGPRegressor).parameters) == list(vars(SVGPRegressor()))
