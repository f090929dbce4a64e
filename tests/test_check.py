"""Bad input: each message names the argument, what came, and what to do."""

import re

import numpy as np
import pytest
from support.posterior_problems import ROWS

import fastsvgp as fs


def good(rng, likelihood=None, P=None):
    batch = () if P is None else (P,)
    q = fs.Whitened(
        rng.standard_normal((*batch, 3)), np.broadcast_to(np.eye(3), (*batch, 3, 3)).copy()
    )
    return fs.SVGP(
        fs.RBF(1.0, np.ones(2)), rng.standard_normal((3, 2)), q, likelihood or fs.Gaussian(0.1)
    )


X, Y = np.linspace(-1, 1, 10).reshape(5, 2), np.linspace(0, 1, 5)
NAN = np.where(np.arange(10).reshape(5, 2) == 3, np.nan, X)

DATA = [
    (
        (X[:, 0], Y),
        {},
        ValueError,
        r"`X` must have shape \(N, D\), got \(5,\); for 5 points with one input use X\[:, None\]",
    ),
    ((X[:0], Y[:0]), {}, ValueError, "`X` is an empty batch"),
    ((X[:, :1], Y), {}, ValueError, "`X` has 1 columns where `inducing` has 2"),
    ((NAN, Y), {}, ValueError, r"`X` contains nan at index \(1, 1\); remove or impute"),
    ((X, Y[:4]), {}, ValueError, "`Y` must have one row for each of the 5 rows of `X`, got shape"),
    ((X, Y[:, None]), {}, None, None),
    (
        (X, np.stack([Y, Y], 1)),
        {},
        ValueError,
        r"`Y` has shape \(5, 2\) .* leading axes \(\): use Y \(N,\) with mean \(M,\)",
    ),
    ((X, Y[:, None, None]), {}, ValueError, r"`Y` has shape \(5, 1, 1\)"),
    (
        (X, np.where(np.arange(5) == 3, np.nan, Y)[:, None]),
        {},
        ValueError,
        "`Y` contains nan at index 3",
    ),
    ((X, np.full(5, np.inf)), {}, ValueError, "`Y` contains inf"),
    (
        ([[1.0, 2.0], [3.0]], Y),
        {},
        ValueError,
        "`X` cannot be converted to an array .*give rows of equal length",
    ),
    ((X, None), {}, TypeError, "`Y` must hold real numbers"),
    ((None, None), {}, TypeError, "`X` must hold real numbers"),
    ((X.astype(str), Y), {}, TypeError, "`X` must hold real numbers, got dtype <U"),
    ((X.astype(complex), Y), {}, TypeError, "`X` must hold real numbers, got dtype complex128"),
    ((X.astype(np.float16), Y.astype(np.float16)), {}, None, None),
    ((np.ma.masked_array(X), Y), {}, TypeError, "`X` is a masked array"),
    ((X, Y), {"num_data": 4}, ValueError, "`num_data` is 4, smaller than the batch of 5"),
    ((X, Y), {"num_data": np.nan}, ValueError, "`num_data` must be finite"),
    ((X, Y), {"num_data": "many"}, TypeError, "`num_data` must be a number, got 'many'"),
    ((X, Y), {"num_data": "30"}, TypeError, "`num_data` must be a number, got '30'"),
    (
        (X, Y),
        {"num_data": np.array("30")},
        TypeError,
        "`num_data` must be a number, got array.'30'",
    ),
    (
        (X, Y),
        {"num_data": np.ones(1)},
        TypeError,
        r"`num_data` must be a number, got an array of shape \(1,\)",
    ),
    ((X, Y), {"num_data": np.array(30)}, None, None),
    ((X, Y), {"num_data": np.float32(30), "jitter": np.float64(1e-3)}, None, None),
    ((X, Y), {"jitter": "1e-6"}, TypeError, "`jitter` must be a number, got '1e-6'"),
    ((X, Y), {"jitter": b"1"}, TypeError, "`jitter` must be a number, got b'1'"),
    ((X, Y), {"jitter": True}, TypeError, "`jitter` must be a number, got True"),
    ((X, Y), {"jitter": np.bool_(True)}, TypeError, "`jitter` must be a number, got np.True_"),
    ((X, Y), {"jitter": -1e-6}, ValueError, "`jitter` must be zero or positive, got -1e-06"),
    ((X, Y), {"jitter": np.inf}, ValueError, "`jitter` must be finite"),
]


@pytest.mark.parametrize("arguments, options, error, message", DATA)
def test_data(rng, arguments, options, error, message):
    model = good(rng)
    if error is None:
        # float16 is promoted by the model's float64
        assert np.isfinite(fs.elbo(model, *arguments, **options))
        return
    for function in (fs.elbo, fs.elbo_and_grad, fs.data_term_and_grad, fs.natural_step):
        with pytest.raises(error, match=message):
            function(model, *arguments, **options)


FIELDS = [
    ("covariance.variance", -1.0, ValueError, "`covariance.variance` must be positive, got -1"),
    ("covariance.variance", np.nan, ValueError, "`covariance.variance` contains nan"),
    (
        "covariance.lengthscales",
        np.array([1.0, 0.0]),
        ValueError,
        "`covariance.lengthscales` must be positive, got 0",
    ),
    (
        "covariance.lengthscales",
        np.ones(3),
        ValueError,
        r"RBF: `lengthscales` has shape \(3,\), but the inputs have D = 2",
    ),
    ("inducing", np.ones(3), ValueError, r"`inducing` must have shape \(M, D\)"),
    (
        "inducing",
        np.ones((0, 2)),
        ValueError,
        r"`inducing` must have shape \(M, D\) with M and D > 0",
    ),
    ("inducing", np.full((3, 2), np.inf), ValueError, "`inducing` contains inf"),
    (
        "posterior.mean",
        np.zeros(4),
        ValueError,
        r"`posterior` has mean \(4,\) and scale_tril \(3, 3\).*3 inducing inputs",
    ),
    (
        "posterior.mean",
        np.array([0.0, np.nan, 0.0]),
        ValueError,
        r"`posterior.mean` contains nan at index 1;",
    ),
    (
        "posterior.scale_tril",
        np.ones(3),
        ValueError,
        r"`posterior.scale_tril` must have shape \(..., M, M\), got \(3,\)",
    ),
    (
        "posterior.scale_tril",
        -np.eye(3),
        ValueError,
        "`diagonal of posterior.scale_tril` must be positive",
    ),
    (
        "posterior.scale_tril",
        np.array([[1.0, 0, 0], [0, 1, 0], [np.nan, 0, 1]]),
        ValueError,
        "`posterior.scale_tril` contains",
    ),
    ("likelihood.variance", 0.0, ValueError, "`likelihood.variance` must be positive, got 0"),
    (
        "likelihood.variance",
        np.ones(5),
        ValueError,
        r"Gaussian: `variance` has shape \(5,\); give one number",
    ),
    ("likelihood.variance", "loud", TypeError, "`likelihood.variance` must hold real numbers"),
]


@pytest.mark.parametrize("path, value, error, message", FIELDS)
def test_fields(rng, path, value, error, message):
    with pytest.raises(error, match=message):
        fs.elbo_and_grad(fs.replace_at(good(rng), path, value), X, Y)


def test_float16_alone_is_refused(rng):
    half = fs.tree_map(lambda a: np.asarray(a, np.float16)[()], good(rng))
    with pytest.raises(
        TypeError, match="`covariance.variance` must be float64 or float32.*got float16"
    ):
        fs.elbo(half, X.astype(np.float16), Y.astype(np.float16))


def test_labels(rng):
    with pytest.raises(ValueError, match="`Y`"):
        fs.elbo(good(rng, fs.BernoulliProbit()), X, np.array([0, 1, -1, 1, 0]))
    with pytest.raises(ValueError, match="`Y`"):
        fs.elbo(good(rng, fs.RobustMax(num_classes=4), P=4), X, np.array([0, 1, 4, 1, 0]))
    with pytest.raises(ValueError, match="`Y`"):
        fs.elbo(good(rng, fs.Poisson()), X, np.array([0, 1, -4, 1, 0]))
    with pytest.raises(ValueError, match=r"leading axes \(2,\).*4 classes needs \(4,\)"):
        fs.elbo(good(rng, fs.Softmax(num_classes=4), P=2), X, np.zeros(5, int))
    with pytest.raises(ValueError, match="one integer label per row"):
        fs.elbo(good(rng, fs.RobustMax(num_classes=4), P=4), X, np.zeros((5, 4), int))


class OnTheGpu(np.ndarray):
    """Stands in for an array on a device: only its interface attribute counts."""

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
        fs.kernels.deflate(X.view(OnTheGpu), 0, 0, *[X[:, 0].view(OnTheGpu)] * 2)


def test_wrong_model_and_wrong_names(rng):
    with pytest.raises(TypeError, match="`model` must be a fastsvgp.(DeepGP or )?SVGP, got dict"):
        fs.elbo({}, X, Y)
    with pytest.raises(
        ValueError, match="`wrt` names 'lengthscale', which is not a field.*covariance.lengthscales"
    ):
        fs.elbo_and_grad(good(rng), X, Y, wrt=("lengthscale",))
    for wrong in (3, ("inducing", 3)):
        with pytest.raises(
            TypeError, match="`wrt` must hold names of fields, such as 'covariance'"
        ):
            fs.elbo_and_grad(good(rng), X, Y, wrt=wrong)
    with pytest.raises(ValueError, match="`step_size` must be positive, got 0"):
        fs.natural_step(good(rng), X, Y, step_size=0.0)
    with pytest.raises(AttributeError, match="no attribute 'SVPG'"):
        fs.SVPG  # noqa: B018


def test_blocks_are_checked(rng):
    m = good(rng)
    k = np.eye(3)
    for blocks in (
        fs.Blocks(k, np.ones((2, 5)), np.ones(5)),
        fs.Blocks(k, np.ones((3, 5)), np.ones(4)),
        fs.Blocks(k, Y, Y),
    ):
        with pytest.raises(ValueError, match="`blocks` must hold Kuu"):
            fs.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y)
    blocks = m.covariance.blocks(m.inducing, X)
    with pytest.raises(ValueError, match="`num_data` is 4, smaller than the batch of 5"):
        fs.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y, num_data=4)
    with pytest.raises(ValueError, match="`Y` must have one row for each of the 5 rows"):
        fs.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y[:4])
    with pytest.raises(ValueError, match="`blocks.Kuf` contains nan"):
        fs.elbo_and_grad_from_blocks(
            fs.Blocks(k, np.full((3, 5), np.nan), np.ones(5)), m.posterior, m.likelihood, Y
        )


def test_blocks_of_predictions_are_checked(rng):
    m = good(rng)
    q, whole = m.posterior, m.covariance.blocks(m.inducing, X, full_cov=True)
    mean, cov = fs.predict_from_blocks(whole, q, full_cov=True)
    assert mean.shape == (5,) and cov.shape == (5, 5)
    for changes, error, message in (
        (
            {"Kff": None},
            TypeError,
            r"`full_cov` needs `blocks.Kff`, the covariances \(N, N\) .* and it is None",
        ),
        (
            {"Kff": np.ones((5, 4))},
            ValueError,
            r"`blocks` must hold Kuu .*, Kff \(B, B\) for full_cov, got .* \(5, 4\)",
        ),
        ({"Kff": np.full((5, 5), np.inf)}, ValueError, "`blocks.Kff` contains inf"),
        ({"Kuf": np.ones(5)}, ValueError, r"`blocks` must hold Kuu \(M, M\)"),
        ({"kff": None}, TypeError, "`blocks.kff` is None; give the array"),
        ({"Kuu": np.eye(4)}, ValueError, "`blocks` must hold Kuu"),
        ({"Kuu": np.zeros((3, 3))}, fs.NotPositiveDefinite, "pivot 0 with jitter 0 in float64"),
    ):
        with pytest.raises(error, match=message):
            fs.predict_from_blocks(fs.replace(whole, **changes), q, full_cov=True, jitter=0.0)
    np.testing.assert_allclose(
        fs.predict_from_blocks(fs.replace(whole, Kff=None), q)[0], mean, rtol=1e-12
    )
    with pytest.raises(TypeError, match="`full_cov` must be True or False, got 'yes'"):
        fs.predict_from_blocks(whole, q, full_cov="yes")
    for call in (
        fs.predict_from_blocks,
        lambda *a: fs.elbo_and_grad_from_blocks(*a, m.likelihood, Y),
    ):
        with pytest.raises(
            TypeError, match=r"`blocks` must be fastsvgp.Blocks\(Kuu, Kuf, kff\), got ndarray"
        ):
            call(np.eye(3), q)
        with pytest.raises(
            TypeError, match=r"`posterior` of the model must .* fastsvgp.Whitened\(...\), got RBF"
        ):
            call(whole, m.covariance)
        with pytest.raises(ValueError, match=r"`posterior` has mean \(4,\)"):
            call(whole, fs.Whitened(np.zeros(4), np.eye(4)))
    hidden = fs.Whitened(q.mean, q.scale_tril + np.tril(np.full((3, 3), np.nan), -1))
    with pytest.raises(ValueError, match="`posterior.scale_tril` contains nan"):
        fs.predict_from_blocks(whole, hidden)


MEANS = [
    (
        fs.ConstantMean(np.zeros(1)),
        None,
        r"ConstantMean: `value` has shape \(1,\); these inputs and outputs need \(\)",
    ),
    (
        fs.ConstantMean(np.zeros(3)),
        2,
        r"`value` has shape \(3,\); these inputs and outputs need \(\) or \(2,\)",
    ),
    (
        fs.LinearMean(np.ones(3)),
        None,
        r"LinearMean: `weights` has shape \(3,\); these inputs and outputs need \(2,\)",
    ),
    (
        fs.LinearMean(np.ones((2, 2))),
        None,
        r"`weights` has shape \(2, 2\); these inputs and outputs need \(2,\)",
    ),
    (
        fs.LinearMean(np.ones((3, 2))),
        4,
        r"`weights` has shape \(3, 2\); these inputs and outputs need \(2,\) or \(4, 2\)",
    ),
    (
        fs.LinearMean(np.ones(2), np.zeros(3)),
        None,
        r"`bias` has shape \(3,\); these inputs and outputs need \(\)",
    ),
]


@pytest.mark.parametrize("mean, P, message", MEANS)
def test_means(rng, mean, P, message):
    model, targets = (
        fs.replace(good(rng, P=P), mean=mean),
        (Y if P is None else np.tile(Y[:, None], P)),
    )
    with pytest.raises(ValueError, match=message):
        fs.elbo_and_grad(model, X, targets)
    with pytest.raises(ValueError, match=message):
        fs.predict_f(model, X)
    with pytest.raises(ValueError, match=message):
        fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.1, mean), X, targets)


def test_parts_in_the_wrong_place(rng):
    m = good(rng)
    for wrong, message in (
        (
            fs.SVGP(m.covariance, m.inducing, m.likelihood, m.posterior),
            r"`posterior` of .*Whitened\(...\), got Gaussian",
        ),
        (
            fs.replace(m, likelihood=None),
            r"`likelihood` of the model must .*Gaussian\(...\), got NoneType",
        ),
        (
            fs.replace(m, covariance=fs.RBF),
            r"`covariance` .* fastsvgp.RBF\(...\), got RBF, a class; call it: fs.RBF\(...\)",
        ),
        (
            fs.replace(m, mean=0.3),
            r"`mean` of the model .* fastsvgp.ConstantMean\(...\) or None, got float",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            fs.elbo(wrong, X, Y)
    with pytest.raises(TypeError, match="`covariance` of the model"):
        fs.collapsed_bound(fs.SGPR("rbf", m.inducing, 0.1), X, Y)


@pytest.mark.parametrize("kind, Z, line", [
    (fs.Whitened, "Z", "fs.at_prior(fs.Whitened, covariance, Z)"),
    (fs.DualSites, "Z", "fs.at_prior(fs.DualSites, covariance, Z)"),
    (fs.Orthogonal, "O", "fs.at_prior(fs.Orthogonal, covariance, fs.InducingPair(Z, O))"),
    (fs.Relaxed, "Z", "fs.Relaxed(...)"),
])  # fmt: skip
def test_a_class_in_the_place_of_a_posterior(rng, kind, Z, line):
    """What the message says to write does, and what takes no data says it too."""
    m = good(rng)
    covariance, Z = (
        m.covariance,
        (m.inducing if Z == "Z" else fs.InducingPair(m.inducing, m.inducing + 0.1)),
    )
    wrong = fs.SVGP(covariance, Z, kind, fs.Gaussian())
    for call in (
        fs.elbo,
        fs.elbo_and_grad,
        fs.fit,
        lambda m, *_: fs.predict_y(m, X),
        lambda m, *_: fs.ravel(m),
    ):
        with pytest.raises(TypeError, match=re.escape(line)):
            call(wrong, X, Y)
    if "at_prior" in line:
        names = {"fs": fs, "covariance": covariance, "Z": m.inducing, "O": m.inducing + 0.1}
        assert np.isfinite(fs.elbo(fs.replace(wrong, posterior=eval(line, names)), X, Y))


def test_a_class_in_the_place_of_a_posterior_of_classes(rng):
    m = good(rng)
    wrong = fs.SVGP(m.covariance, m.inducing, fs.Whitened, fs.Softmax(num_classes=4))
    with pytest.raises(TypeError, match=r"fs.at_prior\(fs.Whitened, covariance, Z, outputs=4\)"):
        fs.elbo(wrong, X, np.zeros(5, int))
    right = fs.replace(
        wrong, posterior=fs.at_prior(fs.Whitened, m.covariance, m.inducing, outputs=4)
    )
    assert np.isfinite(fs.elbo(right, X, np.zeros(5, int), rng=0))


def test_nothing_at_all(rng):
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
    empty = fs.Blocks(np.eye(3), np.zeros((3, 0)), np.zeros(0))
    value, _ = fs.elbo_and_grad_from_blocks(
        empty, m.posterior, m.likelihood, Y[:0], num_data=7, jitter=0.0
    )
    # the KL term alone
    np.testing.assert_allclose(value, -0.5 * np.sum(m.posterior.mean**2), rtol=1e-14)


def test_nan_inside_a_factor_is_found_wherever_it_shows(rng):
    m = good(rng)
    hidden = fs.replace_at(
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
        fs.elbo_and_grad_from_blocks(blocks, hidden.posterior, m.likelihood, Y)


def test_settings(rng):
    with pytest.raises(ValueError, match="StudentT: `df` must be positive and finite, got -1"):
        fs.elbo(good(rng, fs.StudentT(1.0, df=-1)), X, Y)
    with pytest.raises(ValueError, match="RobustMax: `epsilon` must be between 0 and 1, got 2"):
        fs.predict_y(good(rng, fs.RobustMax(num_classes=4, epsilon=2), P=4), X)


def test_duplicated_inducing_inputs_say_so(rng):
    model = fs.replace(good(rng), inducing=np.zeros((3, 2)))
    causes = r"\(1\) duplicated.*\(2\) inputs on a much smaller scale.*\(3\) float32.*\(4\) NaN"
    with pytest.raises(
        fs.NotPositiveDefinite, match=rf"pivot 1 with jitter 0 in float64.*{causes}.*Raise `jitter`"
    ):
        fs.elbo(model, X, Y, jitter=0.0)
    assert np.isfinite(fs.elbo(model, X, Y))  # the default jitter mends it, visibly


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_duplicates_that_pass_cholesky_by_rounding_are_refused_without_jitter(
    rng, posterior, dtype
):
    """Half of all duplicates leave a pivot of some eps above zero: a bound of -1e16 would be the answer."""
    raised = passed = 0
    for _ in range(40):
        Z = rng.standard_normal((8, 2)).astype(dtype)
        covariance = fs.RBF(dtype(rng.uniform(0.1, 10)), dtype(0.5))
        model = fs.SVGP(
            covariance,
            Z,
            posterior(np.ones(8, dtype), np.eye(8, dtype=dtype)),
            fs.Gaussian(dtype(0.1)),
        )
        # distinct ones are well apart
        assert np.isfinite(fs.elbo(model, X.astype(dtype), Y.astype(dtype), jitter=0.0))
        Z = Z.copy()
        Z[5] = Z[2]
        try:
            fs.kernels.cholesky(covariance.matrix(Z))
            passed += 1
        except fs.NotPositiveDefinite:
            pass
        twice = fs.replace(model, inducing=Z)
        for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
            with pytest.raises(
                fs.NotPositiveDefinite, match=r"pivot 5 with jitter 0 .*\(1\) duplicated"
            ) as caught:
                call(twice, X.astype(dtype), Y.astype(dtype), jitter=0.0)
            raised += caught.value.size == 8
        with pytest.raises(fs.NotPositiveDefinite, match="pivot 5 with jitter 0"):
            fs.collapsed_bound(
                fs.SGPR(covariance, Z, dtype(0.1)), X.astype(dtype), Y.astype(dtype), jitter=0.0
            )
        # with the default jitter nothing changes
        assert np.isfinite(fs.elbo(twice, X.astype(dtype), Y.astype(dtype)))
    assert raised == 120 and passed > 5


# --- None where a number should be ------------------------------------------------------------------------------------


def relaxed(rng):
    q = fs.Relaxed(rng.standard_normal(3), np.ones(3), np.eye(3))
    return fs.replace(good(rng), posterior=q)


@pytest.mark.parametrize("path", ["covariance.variance", "covariance.lengthscales", "inducing", "posterior.mean",
                                  "posterior.variance", "posterior.inverse_tril", "likelihood.variance"])  # fmt: skip
def test_none_in_a_leaf_is_refused_by_its_path(rng, path):
    model = fs.replace_at(relaxed(rng), path, None)
    for call in (fs.elbo, fs.elbo_and_grad, fs.data_term_and_grad):
        with pytest.raises(
            TypeError, match=f"`{path}` is None where a number or an array must be; a gradient"
        ):
            call(model, X, Y)
    for call in (fs.predict_f, fs.predict_y, fs.sample_f):
        with pytest.raises(TypeError, match=f"`{path}` is None"):
            call(model, X)
    with pytest.raises(TypeError, match=f"`{path}` is None"):
        fs.fit(model, X, Y, steps=1)


def test_what_tree_map_leaves_after_a_partial_gradient(rng):
    model = good(rng)
    _, grad = fs.elbo_and_grad(model, X, Y, wrt=("covariance.variance", "posterior.mean"))
    moved = fs.tree_map(lambda p, g: p + 0.01 * g, model, grad)
    with pytest.raises(
        TypeError,
        match=r"`likelihood` of the model must.* got NoneType; a gradient.*fastsvgp.replace_at",
    ):
        fs.elbo(moved, X, Y)
    with pytest.raises(
        TypeError, match=r"`covariance.lengthscales` is None.*outside `wrt`.*fastsvgp.replace_at"
    ):
        fs.elbo(fs.replace(moved, likelihood=model.likelihood), X, Y)
    _, grad = fs.elbo_and_grad(model, X, Y)
    # of all fields
    assert np.isfinite(fs.elbo(fs.tree_map(lambda p, g: p + 1e-3 * g, model, grad), X, Y))
    mended = fs.replace_at(model, "posterior.mean", moved.posterior.mean)  # as the message says
    assert np.isfinite(fs.elbo(mended, X, Y))


def test_none_inside_sums_and_collapsed_models(rng):
    parts = fs.Sum((fs.RBF(), fs.Product((fs.Linear(), fs.Constant(None)))))
    with pytest.raises(TypeError, match=r"`covariance.parts.1.parts.1.variance` is None"):
        fs.elbo(fs.replace(good(rng), covariance=parts), X, Y)
    with pytest.raises(TypeError, match="`noise_variance` is None"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, None), X, Y)
    with pytest.raises(TypeError, match="`mean.value` is None"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), X, 0.1, fs.ConstantMean(None)), X, Y)
    with pytest.raises(TypeError, match="`covariance.variance` is None"):
        fs.greedy_variance_inducing(X, 2, fs.RBF(None))


def test_none_where_it_is_the_default_is_no_error(rng):
    model = good(rng)
    assert model.mean is None and np.isfinite(fs.elbo(model, X, Y))
    blocks = model.covariance.blocks(model.inducing, X)
    assert blocks.Kff is None
    assert np.isfinite(
        fs.elbo_and_grad_from_blocks(blocks, model.posterior, model.likelihood, Y)[0]
    )


# --- NaN from finite numbers --------------------------------------------------------------------------------------------


def test_nan_out_of_a_finite_model_is_an_error(rng):
    """Squares that overflow on both sides of a difference."""
    model = fs.replace_at(relaxed(rng), "posterior.inverse_tril", 1e200 * np.eye(3))
    calls = [lambda: fs.elbo(model, X, Y), lambda: fs.elbo_and_grad(model, X, Y), lambda: fs.kl_term_and_grad(model),
             lambda: fs.collapsed_bound(fs.SGPR(fs.RBF(), X[:3], 0.1), X, 1e200 * Y)]  # fmt: skip
    for call in calls:
        with (
            np.errstate(all="ignore"),
            pytest.raises(ValueError, match="the value is nan, though model and data.*standardise"),
        ):
            call()
    assert np.isfinite(
        fs.elbo(fs.replace_at(model, "posterior.inverse_tril", 1e20 * np.eye(3)), X, Y)
    )


def test_infinity_is_a_value(rng):
    """So that a line search can turn back."""
    model = fs.replace_at(good(rng, fs.Poisson()), "posterior.mean", np.full(3, 1e4))
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


def test_what_comes_near_an_svgp_names_what_to_call_instead(rng):
    sgpr = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:3], noise_variance=0.1)
    orthogonal = fs.OrthogonalSGPR(
        fs.RBF(1.0, np.ones(2)), fs.InducingPair(X[:2], X[2:3]), noise_variance=0.1
    )
    both = (
        r": predict with info.svgp of model, info = fs.fit\(...\), or fs.optimal_svgp\(model, X,"
        r" Y\); .* fs.collapsed_bound$"
    )
    for model in (sgpr, orthogonal):
        for call in (
            lambda m: fs.elbo(m, X, Y), lambda m: fs.elbo_and_grad(m, X, Y), lambda m: fs.predict_f(m, X),
            lambda m: fs.predict_y(m, X), lambda m: fs.predict_log_density(m, X, Y), lambda m: fs.predict_quantiles(m, X, 0.5),
            lambda m: fs.predict_cdf(m, X, Y), lambda m: fs.sample_f(m, X), lambda m: fs.predict_f_and_vjp(m, X),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=f"got {type(model).__name__}{both}"):
                call(model)
    trained = fs.fit(good(rng), X, Y, steps=1)
    with pytest.raises(
        TypeError,
        match=r"got tuple: fit gives the model and what .* model, info = fastsvgp.fit\(\.\.\.\)",
    ):
        fs.predict_f(trained, X)
    assert fs.predict_f(trained[0], X)[0].shape == (5,)
    with pytest.raises(TypeError, match="got tuple$"):
        fs.predict_f((1, 2), X)
    with pytest.raises(TypeError, match="got TrainingState: give its .model"):
        fs.predict_f(fs.TrainingState(model=good(rng)), X)


SVGP_ONLY = {  # name: arguments beside the model
    "elbo": (X, Y), "elbo_and_grad": (X, Y), "data_term_and_grad": (X, Y), "likelihood_direction": (X, Y), "kl_term_and_grad": (),
    "natural_step": (X, Y), "refresh_inverse": (), "predict_f": (X,), "predict_y": (X,), "predict_log_density": (X, Y),
    "predict_cdf": (X, Y), "predict_quantiles": (X, 0.5), "sample_f": (X,),
}  # fmt: skip
SGPR_ONLY = {"collapsed_bound": (X, Y), "collapsed_bound_and_grad": (X, Y), "optimal_svgp": (X, Y)}


@pytest.mark.parametrize("name", SVGP_ONLY)
def test_what_an_sgpr_does_not_offer(name):
    sgpr = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:3], noise_variance=0.1)
    kinds = "(DeepGP(,| or) )?(QSGP or )?SVGP(, SiteSVGP or VGP)?"  # those whose rooms are loaded
    message = rf"{name}: `model` must be a fastsvgp.{kinds}, got SGPR: predict with info.svgp of "
    with pytest.raises(TypeError, match=message):
        getattr(fs, name)(sgpr, *SVGP_ONLY[name])


@pytest.mark.parametrize("name", SGPR_ONLY)
def test_what_an_svgp_does_not_offer(rng, name):
    message = (
        f"{name}: `sgpr` must be a fastsvgp.(OrthogonalSGPR or )?SGPR, got SVGP, which offers"
        " convert, data_term_and_grad"
    )
    with pytest.raises(TypeError, match=message):
        getattr(fs, name)(good(rng), *SGPR_ONLY[name])


@pytest.mark.parametrize("name", SVGP_ONLY | SGPR_ONLY)
def test_what_is_no_model_at_all(rng, name):
    """Not even where it has the parts of one."""
    m = good(rng)

    class Parts:
        covariance, inducing, posterior, likelihood, mean = (
            m.covariance,
            m.inducing,
            m.posterior,
            m.likelihood,
            None,
        )

    for wrong, kind in (
        (Parts(), "Parts"),
        (m.posterior, "Whitened"),
        (None, "NoneType"),
        (fs.SVGP, "type"),
    ):
        kinds = "(DeepGP(,| or) )?(QSGP or )?SVGP(, SiteSVGP or VGP)?|(OrthogonalSGPR or )?SGPR"
        message = rf"{name}: `(model|sgpr)` must be a fastsvgp.({kinds}), got {kind}$"
        with pytest.raises(TypeError, match=message):
            getattr(fs, name)(wrong, *(SVGP_ONLY | SGPR_ONLY)[name])


def test_a_kind_of_model_says_what_it_offers_and_takes(rng, monkeypatch):
    monkeypatch.setattr(
        fs.models, "_SERVES", {kind: dict(offers) for kind, offers in fs.models._SERVES.items()}
    )
    monkeypatch.setattr(fs.models, "_INSTEAD", dict(fs.models._INSTEAD))

    class Kind:
        pass

    class Finer(Kind):
        pass

    fs.models.register(Kind, elbo=lambda model, X, Y, *, jitter=None: jitter)
    fs.models.register(Kind, kl_term_and_grad=lambda model: "no options")
    fs.models.register(Finer, predict_f=lambda model, Xs, **options: options)
    assert fs.elbo(Kind(), X, Y, jitter=0.1) == fs.elbo(model=Kind(), X=X, Y=Y, jitter=0.1) == 0.1
    assert fs.elbo(Kind(), X, Y) is None
    assert fs.predict_f(Finer(), X, chunk_size=3) == {"chunk_size": 3}
    with pytest.raises(
        TypeError,
        match=(
            "elbo: `model` must be a fastsvgp.(DeepGP or )?SVGP, got Finer, which offers predict_f"
        ),
    ):
        fs.elbo(Finer(), X, Y)  # a derived class is a kind of its own
    with pytest.raises(TypeError, match="register: 'elboo' is no public function.*elbo_and_grad"):
        fs.models.register(Kind, elboo=fs.elbo)
    with pytest.raises(TypeError, match="register: `kind` must be the class of a model, got"):
        fs.models.register(Kind(), elbo=fs.elbo)
    with pytest.raises(
        TypeError, match="elbo has no option `num_data` for Kind; it takes `jitter`"
    ):
        fs.elbo(Kind(), X, Y, num_data=9)
    with pytest.raises(
        TypeError, match="kl_term_and_grad has no option `wrt` for Kind; it takes no options"
    ):
        fs.kl_term_and_grad(Kind(), wrt=("inducing",))
    with pytest.raises(
        TypeError,
        match="predict_f: `model` must be .*got Kind, which offers elbo, kl_term_and_grad",
    ):
        fs.predict_f(Kind(), X)
    fs.models.register(Kind, instead="ask its maker")
    with pytest.raises(
        TypeError,
        match=(
            "predict_y: `model` must be a fastsvgp.(DeepGP, )?QSGP or SVGP, got Kind: ask its maker"
        ),
    ):
        fs.predict_y(Kind(), X)


def test_keywords_that_nobody_knows(rng):
    m = good(rng)
    blocks = m.covariance.blocks(m.inducing, X)
    for name, arguments in (
        ("elbo", (m, X, Y)),
        ("elbo_and_grad", (m, X, Y)),
        ("data_term_and_grad", (m, X, Y)),
        ("kl_term_and_grad", (m,)),
        ("elbo_and_grad_from_blocks", (blocks, m.posterior, m.likelihood, Y)),
    ):
        call = getattr(fs, name)
        for unknown in ("direction", "argument", "name"):
            for value in (3, None):
                with pytest.raises(
                    TypeError,
                    match=f"{name} has no option `{unknown}`.* it takes .*`jitter`,.*`probes`",
                ):
                    call(*arguments, **{unknown: value})
        with pytest.raises(
            TypeError,
            match=(
                "`probes` is no random quantity of a Whitened posterior, which has none: leave it"
            ),
        ):
            call(*arguments, probes=3)
        call(*arguments, probes=None)  # is not given
    for unknown in ("plan", "checked", "about"):  # arguments of what fit calls
        with pytest.raises(
            TypeError,
            match=f"fit has no option `{unknown}` for SVGP; it takes `batch_size`, .*`steps`",
        ):
            fs.fit(m, X, Y, steps=1, **{unknown: 10})


@fs.record
class Beacons:
    """Inducing inputs of a covariance of its own."""

    where: np.ndarray = fs.leaf()
    width: np.ndarray = fs.leaf("positive")


@fs.record
class Lighthouse(fs.RBF):
    """Takes these, and has blocks of its own."""

    inducing_type = Beacons

    def num_inducing(self, inducing):
        return (len(inducing.where),)

    def num_columns(self, inducing):
        return inducing.where.shape[1]

    def Kuf(self, inducing, X):
        return super().Kuf(inducing.where, X) / inducing.width

    def Kuu(self, inducing, other=None):
        return (
            super().Kuu(inducing.where, None if other is None else other.where) / inducing.width**2
        )


def test_inducing_inputs_and_covariances_that_do_not_fit(rng):
    m, beacons = good(rng), Beacons(np.ones((3, 2)), 1.0)
    pair = fs.InducingPair(m.inducing[:2], m.inducing[2:])
    lighthouse = Lighthouse(1.0, np.ones(2))
    assert fs.predict_f(fs.replace(m, covariance=lighthouse, inducing=beacons), X)[0].shape == (5,)
    for covariance, inducing, message in (
        (m.covariance, beacons, r"`inducing` must be an array \(M, D\), which a RBF covariance takes, got a Beacons"),
        (m.covariance, fs.Gaussian(0.1), r"`inducing` must be an array \(M, D\), which a RBF covariance takes, got a Gaussian"),
        (m.covariance + fs.Constant(), beacons, r"`inducing` must be an array .*, which a Sum covariance takes, got a Beacons"),
        (lighthouse, m.inducing, "`inducing` must be a Beacons, which a Lighthouse covariance takes, got an array"),
        (lighthouse, pair, "`inducing` must be a Beacons, which a Lighthouse covariance takes, got a InducingPair"),
        (lighthouse + m.covariance, m.inducing, r"Sum.parts.0: a Lighthouse has inducing variables of its own \(it defines Kuu, "
         r"Kuf\), and Sum combines those that are values of the function; use it alone"),
        (fs.Product((m.covariance, lighthouse)), m.inducing, "Product.parts.1: a Lighthouse has inducing variables of its own"),
        (fs.Constant() + m.covariance * lighthouse, m.inducing, "Product.parts.1: a Lighthouse has inducing variables of its"),
        (m.covariance, pair, "`inducing` is a record InducingPair of 2 sets of inducing inputs, and (a Whitened posterior|SGPR) "
         "takes one: an array"),
    ):  # fmt: skip
        model, sgpr = (
            fs.replace(m, covariance=covariance, inducing=inducing),
            fs.SGPR(covariance, inducing, 0.1),
        )
        calls = [
            (fs.elbo, model, X, Y),
            (fs.natural_step, model, X, Y),
            (fs.predict_f, model, X),
            (fs.kl_term_and_grad, model),
        ]
        for function, *arguments in (
            *calls,
            (fs.collapsed_bound, sgpr, X, Y),
            (fs.fit, sgpr, X, Y),
        ):
            with pytest.raises(TypeError, match=message):
                function(*arguments)
        with pytest.raises(TypeError, match=message):
            fs.fit(model, X, Y, steps=1)


@pytest.mark.parametrize("name", ROWS)
def test_two_sets_for_a_posterior_of_one(rng, name):
    pair = fs.InducingPair(rng.standard_normal((3, 2)), rng.standard_normal((2, 2)))
    q = ROWS[name].make(rng, np.eye(5))
    message = (
        "`inducing` is a record InducingPair of 2 sets of inducing inputs, and a"
        f" {type(q).__name__} posterior takes one"
    )
    with pytest.raises(TypeError, match=message):
        fs.elbo_and_grad(fs.SVGP(fs.RBF(1.0, np.ones(2)), pair, q, fs.Gaussian(0.1)), X, Y)


class Frame:
    """As much of a data frame as a message needs."""

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


def test_a_part_whose_class_is_no_record(rng):
    class Bare(fs.Covariance):
        pass

    with pytest.raises(
        TypeError,
        match=(
            "`covariance` of the model must be a record .*, got Bare; its class lacks the decorator"
        ),
    ):
        fs.elbo(fs.replace(good(rng), covariance=Bare()), X, Y)
    with pytest.raises(
        TypeError, match=r"`covariance` of the model must be a record .*, got float$"
    ):
        fs.elbo(fs.replace(good(rng), covariance=1.0), X, Y)
