"""Gradients of the bound by definition: posteriors, covariances, likelihoods, odd shapes."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_gradient, assert_restricted
from support.looped import looped
from support.posterior_problems import ROWS, in_model, of_means

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.bounds import relay as bound, small_step
from fastsvgp.bounds.layer_pass import LayerPass
from fastsvgp.records import leaves

COVARIANCES = {
    "rbf": lambda D: fs.RBF(1.3, np.linspace(0.8, 1.6, D)),
    "rbf-shared": lambda D: fs.RBF(1.3, 1.1),
    "matern12": lambda D: fs.Matern12(0.7, np.linspace(0.8, 1.6, D)),
    "matern32": lambda D: fs.Matern32(0.7, np.linspace(0.8, 1.6, D)),
    "matern52": lambda D: fs.Matern52(0.7, np.linspace(0.8, 1.6, D)),
    "linear": lambda D: fs.covariances.Sum(
        (fs.Linear(np.linspace(0.3, 0.9, D)), fs.covariances.Constant(0.4), fs.RBF(0.5, 1.0))
    ),
    "tree": (
        lambda D: (
            fs.RBF(1.1, 1.3) * (fs.Matern52(0.8, 0.9) + fs.Linear(0.5))
            + fs.covariances.Constant(0.2)
        )
    ),
}
LIKELIHOODS = {
    "gaussian": (fs.Gaussian(0.3), lambda f, rng: f),
    "probit": (fs.BernoulliProbit(), lambda f, rng: (f > 0).astype(int)),
    "logit": (fs.likelihoods.BernoulliLogit(), lambda f, rng: (f > 0).astype(int)),
    "poisson": (fs.Poisson(exposure=0.7), lambda f, rng: rng.poisson(np.exp(f))),
    "laplace": (fs.likelihoods.Laplace(0.4), lambda f, rng: f),
    "student": (fs.StudentT(0.5, df=4.0), lambda f, rng: f),
    "heteroskedastic": (fs.likelihoods.HeteroskedasticGaussian(), lambda f, rng: f),
    "robustmax": (
        fs.likelihoods.RobustMax(num_classes=3),
        lambda f, rng: rng.integers(0, 3, f.shape[0]),
    ),
    "softmax": (fs.Softmax(num_classes=3), lambda f, rng: rng.integers(0, 3, f.shape[0])),
}
MEANS = {
    "none": lambda D, P: None,
    "zero": lambda D, P: fs.means.ZeroMean(),
    "constant": lambda D, P: fs.means.ConstantMean(0.3 if P is None else np.linspace(-0.5, 0.5, P)),
    "linear": lambda D, P: fs.means.LinearMean(
        *((np.ones(D), 0.1) if P is None else (np.ones((P, D)), np.linspace(0, 1, P)))
    ),
}


each_posterior = pytest.mark.parametrize("posterior", ROWS)


def problem(rng, covariance="rbf", likelihood="gaussian", mean="none", M=5, B=6, D=2, P=None):
    """``(model, X, Y, leading axes of the posterior)``; the model still lacks a posterior."""
    lik, targets = LIKELIHOODS[likelihood]
    P = 3 if lik.num_latent else P
    X, Z = rng.standard_normal((B, D)), 1.5 * rng.standard_normal((M, D))
    f = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(B)
    Y = (
        targets(f, rng)
        if lik.num_latent or P is None
        else np.stack([targets(f + p, rng) for p in range(P)], axis=1)
    )
    axes = () if P is None else (P,)
    if lik.latents_per_output > 1:
        axes = (lik.latents_per_output * (P or 1),)
    return (
        fs.SVGP(COVARIANCES[covariance](D), Z, None, lik, MEANS[mean](D, *(axes or (None,)))),
        X,
        Y,
        axes,
    )


def full_problem(rng, posterior="whitened", dtype=np.float64, **options):
    """``(model, X, Y, random quantities)`` with a posterior of the row."""
    model, X, Y, batch = problem(rng, **options)
    model, random = in_model(rng, posterior, model, batch, jitter=1e-2)
    path, _, first = next(leaves(model.posterior, "posterior."))
    model = fs.records.replace_at(
        model, path, 0.5 * first
    )  # exp(f) of Poisson targets stays moderate
    cast = lambda a: a.astype(dtype) if isinstance(a, np.ndarray) else a  # noqa: E731
    return (
        fs.records.tree_map(cast, model),
        X.astype(dtype),
        Y.astype(dtype) if Y.dtype.kind == "f" else Y,
        random,
    )


def check(rng, **options):
    model, X, Y, random = full_problem(rng, **options)
    scale, jitter = 3.5, 1e-2
    arguments = {"num_data": scale * len(X), "jitter": jitter, **random}
    value, grad = fs.elbo_and_grad(model, X, Y, **arguments)
    assert isinstance(value, float)
    np.testing.assert_allclose(value, fs.elbo(model, X, Y, **arguments), rtol=1e-12)

    def definition(m):
        return definitions.elbo(m, X, Y, scale, jitter, **random)

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-10, atol=1e-9)
    assert_gradient(definition, model, grad, rng)


@each_posterior
@looped("likelihood", LIKELIHOODS)
def test_gradients_for_every_likelihood(rng, posterior, likelihood):
    check(rng, posterior=posterior, covariance="matern52", likelihood=likelihood)


@each_posterior
@looped("covariance", COVARIANCES)
def test_gradients_for_every_covariance(rng, posterior, covariance):
    check(rng, posterior=posterior, covariance=covariance)


@each_posterior
@looped("M, B, D", [(1, 1, 1), (1, 6, 2), (6, 1, 3), (9, 4, 1), (3, 40, 2)])
@looped("P", [None, 1, 2])
def test_gradients_for_odd_shapes(rng, posterior, M, B, D, P):
    check(rng, posterior=posterior, likelihood="student", M=M, B=B, D=D, P=P)


@looped("P", [None, 2])
@pytest.mark.parametrize("mean", MEANS)
def test_gradients_for_every_mean(rng, mean, P):
    check(rng, mean=mean, P=P)


@each_posterior
def test_data_and_kl_terms_make_the_bound(rng, posterior):
    model, X, Y, random = full_problem(rng, posterior, mean="constant", P=2)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=50, jitter=1e-3, **random)
    data, data_grad = fs.bounds.data_term_and_grad(model, X, Y, num_data=50, jitter=1e-3, **random)
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=1e-3, **random)
    np.testing.assert_allclose(value, data - kl, rtol=1e-12)
    for (path, _, g), (_, _, d), (_, _, k) in zip(
        *(fs.records.leaves(t) for t in (grad, data_grad, kl_grad)), strict=True
    ):
        np.testing.assert_allclose(g, d - k, rtol=1e-9, atol=1e-9, err_msg=path)
    assert_gradient(lambda m: definitions.kl_term(m, 1e-3, **random), model, kl_grad, rng)


@each_posterior
def test_wrt_leaves_out_the_rest_and_changes_nothing(rng, posterior):
    model, X, Y, random = full_problem(
        rng, posterior, covariance="tree", likelihood="student", mean="linear"
    )
    _, whole = fs.elbo_and_grad(model, X, Y, **random)
    for wrt in [
        ("covariance", of_means(model.posterior)),
        ("inducing",),
        "likelihood.scale",
        ("covariance.parts.0.parts.0.variance", "mean.bias"),
        ("posterior",),
        (),
    ]:
        _, grad = fs.elbo_and_grad(model, X, Y, wrt=wrt, **random)
        assert_restricted(grad, whole, wrt, rtol=1e-10, atol=1e-10)
    assert fs.elbo_and_grad(model, X, Y, wrt=("inducing",), **random)[1].covariance is None


@pytest.mark.parametrize("wrt, kernel_does", [
    ("covariance.variance", {"variance"}),
    (("covariance.lengthscales", "posterior.mean"), {"lengthscales"}),
    (("inducing", "covariance.variance"), {"X1", "variance"}),
    (("posterior", "likelihood"), None),
    (None, {"X1", "variance", "lengthscales"}),
])  # fmt: skip
def test_gradients_outside_wrt_are_not_computed(rng, monkeypatch, wrt, kernel_does):
    calls = []
    monkeypatch.setattr(small_step, "MOST", 0)
    plain = kernels.stationary_vjp
    monkeypatch.setattr(
        kernels,
        "stationary_vjp",
        lambda *a, need, **k: calls.append(set(need)) or plain(*a, need=need, **k),
    )
    model, X, Y, _ = full_problem(rng)
    fs.elbo_and_grad(model, X, Y, wrt=wrt)
    assert calls == ([] if kernel_does is None else [kernel_does] * 2)
    calls.clear()
    fs.bounds.kl_term_and_grad(model, wrt=wrt)
    assert all(need == kernel_does for need in calls)


@each_posterior
def test_block_level_form_is_the_same_bound(rng, posterior):
    model, X, Y, random = full_problem(rng, posterior, likelihood="student", P=2)
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, Y, num_data=40, jitter=1e-3, inputs=True, **random
    )
    blocks = model.covariance.blocks(model.inducing, X)
    got, (blocks_bar, posterior_bar, likelihood_bar) = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, num_data=40, jitter=1e-3, **random
    )
    np.testing.assert_allclose(got, value, rtol=1e-12)
    for (path, _, ours), (_, _, theirs) in zip(
        fs.records.leaves(posterior_bar), fs.records.leaves(grad.posterior), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11, err_msg=path)
    np.testing.assert_allclose(likelihood_bar.scale, grad.likelihood.scale, rtol=1e-12)
    bars = model.covariance.blocks_vjp(
        blocks_bar, blocks, model.inducing, X, ("covariance", "inducing", "X")
    )
    np.testing.assert_allclose(bars[0].lengthscales, grad.covariance.lengthscales, rtol=1e-11)
    np.testing.assert_allclose(bars[1], grad.inducing, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(bars[2], X_bar, rtol=1e-11, atol=1e-11)


@each_posterior
@pytest.mark.parametrize("likelihood, P", [("student", 2), ("softmax", None), ("gaussian", None)])
def test_a_long_batch_in_chunks_is_the_same_bound(rng, tune, posterior, likelihood, P):
    model, X, Y, random = full_problem(
        rng, posterior, covariance="tree", likelihood=likelihood, mean="constant", B=23, P=P
    )
    arguments = {"num_data": 100, "jitter": 1e-3}
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **arguments, **random)
    natural = bool(model.posterior.natural_fields)
    if natural:
        stepped, info = fs.natural_step(model, X, Y, step_size=0.1, **arguments)
    tune(bound_chunk_columns=5, bound_chunk_numbers=1)
    batch = bound.Batch(X, np.ascontiguousarray(Y.T))
    parts = list(bound.sweep(model, LayerPass(model, 1e-3, **random), batch, need=False))
    assert [len(part.residuals.X) for part in parts] == [5, 5, 5, 5, 3]
    in_parts, part_grad, part_X_bar = fs.elbo_and_grad(
        model, X, Y, inputs=True, **arguments, **random
    )
    np.testing.assert_allclose(in_parts, value, rtol=1e-12)
    np.testing.assert_allclose(fs.elbo(model, X, Y, **arguments, **random), value, rtol=1e-12)
    np.testing.assert_allclose(part_X_bar, X_bar, rtol=1e-9, atol=1e-9)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(part_grad), fs.records.leaves(grad), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=path)
    _, some = fs.elbo_and_grad(model, X, Y, wrt=("mean", "inducing"), **arguments, **random)
    np.testing.assert_allclose(some.inducing, grad.inducing, rtol=1e-9, atol=1e-9)
    assert some.posterior is None and some.covariance is None
    if natural:
        again, also = fs.natural_step(model, X, Y, step_size=0.1, **arguments)
        np.testing.assert_allclose(also.value, info.value, rtol=1e-12)
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(again.posterior), fs.records.leaves(stepped.posterior), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10, err_msg=path)


@each_posterior
def test_inputs_are_not_modified_and_results_repeat_to_the_bit(rng, posterior):
    model, X, Y, random = full_problem(rng, posterior, covariance="tree", likelihood="softmax")
    frozen = fs.records.tree_map(lambda a: a, model)
    for _, _, leaf in fs.records.leaves(frozen):
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
    X.flags.writeable = Y.flags.writeable = False
    first, grad, X_bar = fs.elbo_and_grad(frozen, X, Y, inputs=True, **random)
    second, again, X_bar_again = fs.elbo_and_grad(frozen, X, Y, inputs=True, **random)
    assert first == second
    np.testing.assert_array_equal(X_bar_again, X_bar)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(grad), fs.records.leaves(again), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)


def test_integers_become_float64_and_python_numbers_are_weak(rng):
    model, X, Y, _ = full_problem(rng, dtype=np.float32)
    _, grad = fs.elbo_and_grad(model, X, Y)
    assert grad.covariance.variance.dtype == np.float32  # variance is a Python float
    whole = fs.SVGP(
        fs.RBF(),
        np.array([[0, 1], [2, 3]]),
        fs.Whitened(np.zeros(2, int), np.eye(2, dtype=int)),
        fs.Gaussian(0.1),
    )
    value, grad = fs.elbo_and_grad(whole, np.array([[1, 2], [0, 0], [3, 3]]), [1, 0, 2])
    assert grad.inducing.dtype == np.float64 and np.isfinite(value)


def test_clamped_variances_warn_once(rng, tune):
    tune(bound_chunk_columns=1, bound_chunk_numbers=1)
    Z = np.array([[0.0], [1.0], [2.0]])
    model = fs.SVGP(
        fs.RBF(1.0, 0.5), Z, fs.Whitened(np.zeros(3), 1e-12 * np.eye(3)), fs.Gaussian(0.1)
    )
    with pytest.warns(fs.VarianceClampWarning, match=r"3 marginal variance") as caught:
        fs.elbo(model, Z, np.zeros(3), jitter=0.0)
    assert len(caught) == 1


def _predict_joint(model, X, **options):
    return fs.predict_f(model, X, full_cov=True, **options)


def _fit_one_step(model, X, Y, **options):
    return fs.fit(model, X, Y, steps=1, **options)


@pytest.mark.parametrize("call", [fs.elbo, fs.elbo_and_grad, fs.bounds.data_term_and_grad,
    fs.natural_step,
                                  _fit_one_step, fs.predict_f,
                                  fs.predict_y, _predict_joint])  # fmt: skip
def test_the_warning_of_clamped_variances_names_the_callers_line(call):
    Z = np.array([[0.0], [1.0], [2.0]])
    model = fs.SVGP(
        fs.RBF(1.0, 0.5), Z, fs.Whitened(np.zeros(3), 1e-12 * np.eye(3)), fs.Gaussian(0.1)
    )
    data = (Z,) if call in (fs.predict_f, fs.predict_y, _predict_joint) else (Z, np.zeros(3))
    with pytest.warns(fs.VarianceClampWarning) as caught:
        call(model, *data, jitter=0.0)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, np.float64(2), [1, 2]])
@pytest.mark.parametrize(
    "bound",
    [fs.elbo, fs.elbo_and_grad, fs.bounds.data_term_and_grad, fs.natural_step],
    ids=lambda f: f.__name__,
)
def test_a_bad_rng_is_refused_if_points_are_drawn(rng, bound, wrong):
    model, X, Y, _ = full_problem(rng, likelihood="softmax")
    with pytest.raises(
        TypeError,
        match=(
            r"`rng` must be None, a seed \(a whole number from 0\) or a numpy.random.Generator, got"
        ),
    ):
        bound(model, X, Y, rng=wrong)
    assert fs.elbo(model, X, Y, rng=np.uint8(3)) == fs.elbo(model, X, Y, rng=3)
