"""Messages for bad data, fields and options: argument, value received, remedy."""

import numpy as np
import pytest
from support.small_models import X, Y, good, relaxed

import fastsvgp as fs
from fastsvgp import check

NAN = np.where(np.arange(10).reshape(5, 2) == 3, np.nan, X)

BAD_DATA = [  # X, Y, error, message
    (X[:, 0], Y, ValueError,
     r"`X` must have shape \(N, D\), got \(5,\); for 5 points with one input use X\[:, None\]"),
    (X[:0], Y[:0], ValueError, "`X` is an empty batch"),
    (X[:, :1], Y, ValueError, "`X` has 1 columns where `inducing` has 2"),
    (NAN, Y, ValueError, r"`X` contains nan at index \(1, 1\); remove or impute"),
    (X, Y[:4], ValueError, "`Y` must have one row for each of the 5 rows of `X`, got shape"),
    (X, np.stack([Y, Y], 1), ValueError,
     r"`Y` has shape \(5, 2\) .* leading axes \(\): use Y \(N,\) with mean \(M,\)"),
    (X, Y[:, None, None], ValueError, r"`Y` has shape \(5, 1, 1\)"),
    (X, np.where(np.arange(5) == 3, np.nan, Y)[:, None], ValueError, "`Y` contains nan at index 3"),
    (X, np.full(5, np.inf), ValueError, "`Y` contains inf"),
    ([[1.0, 2.0], [3.0]], Y, ValueError,
     "`X` cannot be converted to an array .*give rows of equal length"),
    (X, None, TypeError, "`Y` must hold real numbers"),
    (None, None, TypeError, "`X` must hold real numbers"),
    (None, Y, TypeError, "`X` must hold real numbers"),
    (X.astype(str), Y, TypeError, "`X` must hold real numbers, got dtype <U"),
    (X.astype(complex), Y, TypeError, "`X` must hold real numbers, got dtype complex128"),
    (np.ma.masked_array(X), Y, TypeError, "`X` is a masked array"),
]  # fmt: skip
BAD_OPTIONS = [  # name, value, error, message
    ("num_data", 4, ValueError, "`num_data` is 4, smaller than the batch of 5"),
    ("num_data", np.nan, ValueError, "`num_data` must be finite"),
    ("num_data", "many", TypeError, "`num_data` must be a number, got 'many'"),
    ("num_data", "30", TypeError, "`num_data` must be a number, got '30'"),
    ("num_data", np.array("30"), TypeError, "`num_data` must be a number, got array.'30'"),
    ("num_data", np.ones(1), TypeError,
     r"`num_data` must be a number, got an array of shape \(1,\)"),
    ("jitter", "1e-6", TypeError, "`jitter` must be a number, got '1e-6'"),
    ("jitter", b"1", TypeError, "`jitter` must be a number, got b'1'"),
    ("jitter", True, TypeError, "`jitter` must be a number, got True"),
    ("jitter", np.bool_(True), TypeError, "`jitter` must be a number, got np.True_"),
    ("jitter", -1e-6, ValueError, "`jitter` must be zero or positive, got -1e-06"),
    ("jitter", np.inf, ValueError, "`jitter` must be finite"),
]  # fmt: skip
ACCEPTED = [  # X, Y, options
    (X, Y[:, None], {}),
    (X.astype(np.float16), Y.astype(np.float16), {}),  # promoted by the model's float64
    (X, Y, {"num_data": np.array(30)}),
    (X, Y, {"num_data": np.float32(30), "jitter": np.float64(1e-3)}),
]
BOUNDS = fs.elbo, fs.elbo_and_grad, fs.bounds.data_term_and_grad, fs.natural_step


@pytest.mark.parametrize("inputs, targets, error, message", BAD_DATA)
def test_bad_data_are_refused(rng, inputs, targets, error, message):
    for function in BOUNDS:
        with pytest.raises(error, match=message):
            function(good(rng), inputs, targets)


@pytest.mark.parametrize("name, value, error, message", BAD_OPTIONS)
def test_bad_options_are_refused(rng, name, value, error, message):
    for function in BOUNDS:
        with pytest.raises(error, match=message):
            function(good(rng), X, Y, **{name: value})


@pytest.mark.parametrize("inputs, targets, options", ACCEPTED)
def test_other_dtypes_and_columns_are_accepted(rng, inputs, targets, options):
    assert np.isfinite(fs.elbo(good(rng), inputs, targets, **options))


FIELDS = [  # path, value, error, message
    ("covariance.variance", -1.0, ValueError, "`covariance.variance` must be positive, got -1"),
    ("covariance.variance", np.nan, ValueError, "`covariance.variance` contains nan"),
    ("covariance.lengthscales", np.array([1.0, 0.0]), ValueError,
     "`covariance.lengthscales` must be positive, got 0"),
    ("covariance.lengthscales", np.array([1.0, np.inf]), ValueError,
     r"`covariance.lengthscales` contains inf at index 1;"),
    ("covariance.lengthscales", np.ones(3), ValueError,
     r"RBF: `lengthscales` has shape \(3,\), but the inputs have D = 2"),
    ("inducing", np.ones(3), ValueError, r"`inducing` must have shape \(M, D\)"),
    ("inducing", np.ones((0, 2)), ValueError,
     r"`inducing` must have shape \(M, D\) with M and D > 0"),
    ("inducing", np.full((3, 2), np.inf), ValueError, "`inducing` contains inf"),
    ("posterior.mean", np.zeros(4), ValueError,
     r"`posterior` has mean \(4,\) and scale_tril \(3, 3\).*3 inducing inputs"),
    ("posterior.mean", np.array([0.0, np.nan, 0.0]), ValueError,
     r"`posterior.mean` contains nan at index 1;"),
    ("posterior.mean", np.array([0.0, np.inf, -np.inf]), ValueError,
     r"`posterior.mean` contains inf at index 1;"),
    ("posterior.scale_tril", np.ones(3), ValueError,
     r"`posterior.scale_tril` must have shape \(..., M, M\), got \(3,\)"),
    ("posterior.scale_tril", -np.eye(3), ValueError,
     "`diagonal of posterior.scale_tril` must be positive"),
    ("posterior.scale_tril", np.diag([1.0, np.nan, 1.0]), ValueError,
     r"`diagonal of posterior.scale_tril` contains nan at index 1;"),
    ("posterior.scale_tril", np.array([[1.0, 0, 0], [0, 1, 0], [np.nan, 0, 1]]), ValueError,
     "`posterior.scale_tril` contains"),
    ("likelihood.variance", 0.0, ValueError, "`likelihood.variance` must be positive, got 0"),
    ("likelihood.variance", np.float32(np.inf), ValueError, "`likelihood.variance` contains inf"),
    ("likelihood.variance", np.ones(5), ValueError,
     r"Gaussian: `variance` has shape \(5,\); give one number"),
    ("likelihood.variance", "loud", TypeError, "`likelihood.variance` must hold real numbers"),
]  # fmt: skip


@pytest.mark.parametrize("path, value, error, message", FIELDS)
def test_bad_fields_are_refused(rng, path, value, error, message):
    with pytest.raises(error, match=message):
        fs.elbo_and_grad(fs.records.replace_at(good(rng), path, value), X, Y)


def test_large_finite_fields_are_accepted(rng):
    """Numbers whose sum overflows."""
    model = fs.records.replace_at(good(rng), "covariance.lengthscales", np.full(2, 1.7e308))
    assert np.isfinite(fs.elbo(model, X, Y))


def test_casts_are_those_of_each_model(rng):
    """One sequence of dtypes, as one leaf with an array and as two leaves."""
    x, ints, lone = rng.standard_normal(3), np.arange(1, 4), np.float32(0.5)
    for _ in range(2):
        alone, dtype = check.parameters(fs.means.ConstantMean(x), ints)
        assert alone.value is x and dtype == np.float64
        both, dtype = check.parameters(fs.means.LinearMean(x, ints))
        assert both.bias.dtype == dtype == np.float64
        for value, expected in ((lone, np.float32), (0.5, np.float64), (np.array(0.5), np.float64)):
            found, dtype = check.parameters(fs.means.ConstantMean(value))
            assert type(found.value) is expected and dtype == expected


LABELS = [  # likelihood, P, labels, message
    (fs.BernoulliProbit(), None, np.array([0, 1, -1, 1, 0]), "`Y`"),
    (fs.likelihoods.RobustMax(num_classes=4), 4, np.array([0, 1, 4, 1, 0]), "`Y`"),
    (fs.Poisson(), None, np.array([0, 1, -4, 1, 0]), "`Y`"),
    (fs.Softmax(num_classes=4), 2, np.zeros(5, int),
     r"leading axes \(2,\).*4 classes needs \(4,\)"),
    (fs.likelihoods.RobustMax(num_classes=4), 4, np.zeros((5, 4), int),
        "one integer label per row"),
]  # fmt: skip


@pytest.mark.parametrize("likelihood, P, labels, message", LABELS)
def test_bad_labels_are_refused(rng, likelihood, P, labels, message):
    with pytest.raises(ValueError, match=message):
        fs.elbo(good(rng, likelihood, P=P), X, labels)


def test_float16_alone_is_refused(rng):
    half = fs.records.tree_map(lambda a: np.asarray(a, np.float16)[()], good(rng))
    with pytest.raises(
        TypeError, match="`covariance.variance` must be float64 or float32.*got float16"
    ):
        fs.elbo(half, X.astype(np.float16), Y.astype(np.float16))


class OnTheGpu(np.ndarray):
    """Stand-in for an array on a device: only its interface attribute is read."""

    __cuda_array_interface__ = {}


def test_mixed_devices(rng):
    with pytest.raises(TypeError, match="different devices: `X` on the GPU, `Y` on the CPU"):
        fs.elbo(good(rng), X.view(OnTheGpu), Y)
    with pytest.raises(
        TypeError,
        match=(
            "`X`, `Y` on the GPU, .*`inducing`, `posterior.mean`, `posterior.scale_tril` on the CPU"
        ),
    ):
        fs.elbo(good(rng), X.view(OnTheGpu), Y.view(OnTheGpu))
    with pytest.raises(TypeError, match="different devices"):
        fs.kernels.matmul(X, X.view(OnTheGpu), transpose_b=True)
    with pytest.raises(TypeError, match="no CUDA kernels"):
        fs.kernels.whitened_kl(*[X.view(OnTheGpu)] * 2)


def test_empty_data_are_refused(rng):
    with pytest.raises(TypeError, match="`X` must hold real numbers"):
        fs.elbo(good(rng), None, Y)
    with pytest.raises(ValueError, match=r"`posterior` has mean \(0, 3\)"):
        fs.elbo(good(rng, P=0), X, np.zeros((5, 0)))
    for bound in (fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp):
        with pytest.raises(ValueError, match="`X` is an empty batch"):
            bound(fs.SGPR(fs.RBF(), X, 0.1), X[:0], Y[:0])
    with pytest.raises(ValueError, match=r"`Y` must be .* got \(5, 0\)"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, 0.1), X, np.zeros((5, 0)))
    with pytest.raises(ValueError, match=r"`noise_variance` has shape \(2,\); give one number"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, np.ones(2)), X, np.zeros((5, 2)))
    m = good(rng)
    empty = fs.records.Blocks(np.eye(3), np.zeros((3, 0)), np.zeros(0))
    value, _ = fs.bounds.elbo_and_grad_from_blocks(
        empty, m.posterior, m.likelihood, Y[:0], num_data=7, jitter=0.0
    )
    # only the KL term
    np.testing.assert_allclose(value, -0.5 * np.sum(m.posterior.mean**2), rtol=1e-14)


def test_nan_inside_a_factor_is_found_from_the_value(rng):
    m = good(rng)
    hidden = fs.records.replace_at(
        m, "posterior.scale_tril", np.array([[1.0, 0, 0], [0, 1, 0], [0, np.nan, 1]])
    )
    for call in (
        lambda: fs.predict_f(hidden, X),
        lambda: fs.predict_f(hidden, X, full_cov=True),
        lambda: fs.sample_f(hidden, X),
    ):
        with pytest.raises(
            ValueError, match=r"`posterior.scale_tril` contains nan at index \(2, 1\)"
        ):
            call()
    blocks = m.covariance.blocks(m.inducing, X)
    with pytest.raises(ValueError, match="`posterior.scale_tril` contains nan"):
        fs.bounds.elbo_and_grad_from_blocks(blocks, hidden.posterior, m.likelihood, Y)


def test_bad_settings_are_refused(rng):
    with pytest.raises(ValueError, match="StudentT: `df` must be positive and finite, got -1"):
        fs.elbo(good(rng, fs.StudentT(1.0, df=-1)), X, Y)
    with pytest.raises(ValueError, match="RobustMax: `epsilon` must be between 0 and 1, got 2"):
        fs.predict_y(good(rng, fs.likelihoods.RobustMax(num_classes=4, epsilon=2), P=4), X)


def test_nan_out_of_a_finite_model_is_an_error(rng):
    """Squares that overflow on both sides of a difference."""
    model = fs.records.replace_at(relaxed(rng), "posterior.inverse_tril", 1e200 * np.eye(3))
    calls = [
        lambda: fs.elbo(model, X, Y),
        lambda: fs.elbo_and_grad(model, X, Y),
        lambda: fs.bounds.kl_term_and_grad(model),
        lambda: fs.collapsed_bound(fs.SGPR(fs.RBF(), X[:3], 0.1), X, 1e200 * Y),
    ]
    for call in calls:
        with (
            np.errstate(all="ignore"),
            pytest.raises(ValueError, match="the value is nan, though model and data.*standardise"),
        ):
            call()
    assert np.isfinite(
        fs.elbo(fs.records.replace_at(model, "posterior.inverse_tril", 1e20 * np.eye(3)), X, Y)
    )


def test_infinity_is_a_value(rng):
    """A line search needs it."""
    model = fs.records.replace_at(good(rng, fs.Poisson()), "posterior.mean", np.full(3, 1e4))
    with np.errstate(over="ignore"):
        assert fs.elbo(model, X, np.ones(5)) == -np.inf


def test_num_threads():
    before = fs.get_num_threads()
    try:
        fs.set_num_threads(1)
        assert fs.get_num_threads() == 1
        for bad in (0, -1, 1.5, True):
            with pytest.raises(ValueError, match="`count` must be a positive integer"):
                fs.set_num_threads(bad)
    finally:
        fs.set_num_threads(None)
    assert fs.get_num_threads() == before


class Frame:
    """The parts of a data frame that a message reads."""

    def __init__(self, columns, rows):
        self.columns, self._rows = columns, rows

    def __array__(self, dtype=None, copy=None):
        return np.array(self._rows, dtype=object)


def test_a_mixed_frame_names_the_column(rng):
    mixed = Frame(["size", "colour"], [[1.0, "red"], [2, "blue"]] * 2 + [[0, "red"]])
    for call in (
        lambda: fs.elbo(good(rng), mixed, Y),
        lambda: fs.fit(good(rng), mixed, Y, steps=1),
    ):
        with pytest.raises(
            TypeError,
            match="`X` must hold real numbers, got dtype object .column 'colour' holds 'red'.;",
        ):
            call()
    with pytest.raises(
        TypeError, match="dtype object .column 1 holds None.; convert it to float64"
    ):
        fs.elbo(good(rng), np.array([[1, None]] * 5, object), Y)
    with pytest.raises(TypeError, match="dtype object .of Python numbers.; convert it to float64"):
        fs.elbo(good(rng), X.astype(object), Y)
    assert np.isfinite(fs.elbo(good(rng), X.tolist(), Y.tolist()))


def test_an_overflow_names_what_can_have_caused_it(rng):
    """The number of the model farthest from 1, if one is far; no step before the first."""
    data, size = "targets or inputs on a wild scale (standardise them)", "a step size"
    model = good(rng)
    assert check.divergence.most_extreme(model) is None
    far = fs.records.replace_at(model, "posterior.mean", np.array([0.0, -2e200, 3.0]))
    small = fs.records.replace_at(far, "covariance.variance", 1e-250)
    for given, path, number in (
        (far, "posterior.mean", "2e+200"),
        (small, "covariance.variance", "1e-250"),
    ):
        said = f"`{path}` of the model, which holds {number}"
        first, later = (str(check.diverged_error("it is nan", given, step)) for step in (1, 2))
        assert first.startswith(f"it is nan. Likely causes, in order: {said}; {data}")
        assert later.startswith(f"it is nan. Likely causes, in order: {size} that is too large; ")
        assert said in later
    poisson = fs.replace(model, likelihood=fs.Poisson(), posterior=far.posterior)
    counts = np.arange(5.0)
    with pytest.raises(
        fs.errors.Diverged, match=r"step 1, .* order: `posterior.mean` of the model"
    ):
        with np.errstate(all="ignore"):
            fs.fit(poisson, X, counts, steps=2)
