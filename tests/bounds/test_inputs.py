"""The gradient in the inputs: every posterior, covariance, likelihood and mean function."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_derivative, extended
from support.looped import looped
from support.posterior_problems import of_means

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.testing import assert_gradient
from tests.bounds.test_elbo import COVARIANCES, LIKELIHOODS, MEANS, each_posterior, full_problem

SCALE, JITTER = 3.5, 1e-2


def check(rng, **options):
    model, X, Y, random = full_problem(rng, **options)
    arguments = {"num_data": SCALE * len(X), "jitter": JITTER, **random}
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **arguments)
    assert X_bar.shape == X.shape and X_bar.dtype == X.dtype and not np.shares_memory(X_bar, X)

    def definition(X):
        return definitions.elbo(model, X, Y, SCALE, JITTER, **random)

    for _ in range(2):
        assert_derivative(definition, extended(X), X_bar, rng.standard_normal(X.shape), name="X")
    one = np.zeros(X.shape)
    # a single row, which no other hides
    one[rng.integers(len(X))] = rng.standard_normal(X.shape[1])
    assert_derivative(definition, extended(X), X_bar, one, name="a row of X")
    without, same = fs.elbo_and_grad(model, X, Y, **arguments)
    assert without == pytest.approx(value, rel=1e-13)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(grad), fs.records.leaves(same), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=path)


@each_posterior
@looped("covariance", COVARIANCES)
def test_every_posterior_and_covariance(rng, posterior, covariance):
    check(rng, posterior=posterior, covariance=covariance, mean="linear")


@each_posterior
@looped("likelihood", LIKELIHOODS)
def test_every_posterior_and_likelihood(rng, posterior, likelihood):
    check(rng, posterior=posterior, likelihood=likelihood)


@looped("P", [None, 1, 2])
@pytest.mark.parametrize("mean", MEANS)
def test_every_mean_function(rng, mean, P):
    check(rng, mean=mean, P=P, covariance="tree")


@each_posterior
@looped("M, B, D, P", [(1, 1, 1, None), (6, 1, 3, 2), (3, 40, 2, 2), (2, 130, 1, None)])
def test_odd_shapes(rng, posterior, M, B, D, P):
    check(rng, posterior=posterior, likelihood="student", mean="constant", M=M, B=B, D=D, P=P)


@each_posterior
def test_several_runs_of_rows_with_outputs(rng, tune, posterior):
    tune(bound_chunk_columns=5, bound_chunk_numbers=1)
    check(
        rng, posterior=posterior, covariance="tree", likelihood="poisson", mean="linear", B=23, P=2
    )


@each_posterior
def test_the_data_term_has_the_same_gradient_in_the_inputs(rng, posterior):
    """The KL term does not depend on X; ``wrt=()`` leaves X_bar alone."""
    model, X, Y, random = full_problem(rng, posterior, mean="linear", P=2)
    arguments = {"num_data": 40, "jitter": JITTER, **random}
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **arguments)
    data, data_grad, other = fs.bounds.data_term_and_grad(model, X, Y, inputs=True, **arguments)
    assert data == pytest.approx(
        fs.bounds.data_term_and_grad(model, X, Y, **arguments)[0], rel=1e-13
    )
    np.testing.assert_allclose(other, X_bar, rtol=1e-11, atol=1e-11)
    for function, whole in ((fs.elbo_and_grad, value), (fs.bounds.data_term_and_grad, data)):
        for wrt in ((), ("likelihood",), (of_means(model.posterior),), "mean.weights"):
            got, some, alone = function(model, X, Y, wrt=wrt, inputs=True, **arguments)
            assert got == pytest.approx(whole, rel=1e-12)
            np.testing.assert_allclose(alone, X_bar, rtol=1e-10, atol=1e-11)
            names = (wrt,) if isinstance(wrt, str) else wrt
            found = {path for path, _, bar in fs.records.leaves(some) if bar is not None}
            assert found == {
                path
                for path, _, _ in fs.records.leaves(grad)
                if any(f"{path}.".startswith(f"{n}.") for n in names)
            }


def test_num_data_scales_the_gradient_in_the_inputs(rng):
    """``num_data`` scales it; disjoint batches have disjoint gradients."""
    model, X, Y, _ = full_problem(rng, B=12)
    X_bar = fs.elbo_and_grad(model, X, Y, inputs=True)[2]
    np.testing.assert_allclose(
        fs.elbo_and_grad(model, X, Y, num_data=30, inputs=True)[2], 2.5 * X_bar, rtol=1e-12
    )
    halves = [
        fs.elbo_and_grad(model, X[half], Y[half], wrt=(), inputs=True)[2]
        for half in (slice(0, 5), slice(5, 12))
    ]
    np.testing.assert_allclose(np.concatenate(halves), X_bar, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wrt, kernel_does", [
    ((), [{"X2"}]),
    (("posterior",), [{"X2"}]),
    ("covariance.variance", [{"X2", "variance"}, {"variance"}]),
    (None, [{"X1", "X2", "variance", "lengthscales"}, {"X1", "variance", "lengthscales"}]),
])  # fmt: skip
def test_the_backward_pass_of_inputs_skips_Kuu(rng, monkeypatch, wrt, kernel_does):
    """With only X needed, there is no backward pass through Kuu."""
    calls, plain = [], kernels.stationary_vjp
    monkeypatch.setattr(
        kernels,
        "stationary_vjp",
        lambda *a, need, **k: calls.append(set(need)) or plain(*a, need=need, **k),
    )
    model, X, Y, _ = full_problem(rng)
    fs.elbo_and_grad(model, X, Y, wrt=wrt, inputs=True)
    assert calls == kernel_does


@each_posterior
def test_with_inputs_only_the_pass_is_not_finished(rng, monkeypatch, posterior):
    """Cotangents of the posterior and of Kuu are not computed."""
    model, X, Y, random = full_problem(rng, posterior)
    Kuu, needs = model.covariance.Kuu(model.inducing), (("blocks",), ("posterior", "blocks"))
    kinds = {type(model.posterior.start(Kuu, JITTER, len(X), need, **random)) for need in needs}
    expected = fs.elbo_and_grad(model, X, Y, wrt=(), inputs=True, **random)[2]

    def refused(*_):
        raise AssertionError("what all rows share was not requested")

    for kind in kinds:
        monkeypatch.setattr(kind, "finish", refused)
    np.testing.assert_array_equal(
        fs.elbo_and_grad(model, X, Y, wrt=(), inputs=True, **random)[2], expected
    )
    with pytest.raises(AssertionError, match="not requested"):
        fs.elbo_and_grad(model, X, Y, inputs=True, **random)


@each_posterior
def test_gradients_of_drawn_points_and_probes(rng, posterior):
    """The gradient is that of the estimate: the same seed gives the same points."""
    model, X, Y, random = full_problem(rng, posterior, likelihood="softmax")
    arguments = {"jitter": JITTER, "rng": 3, **{name: 2 for name in random}}
    _, _, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **arguments)
    assert_gradient(lambda X: fs.elbo(model, X, Y, **arguments), X, X_bar, rng=rng)


@each_posterior
def test_a_layer_below(rng, posterior):
    """The weights of a linear map under the process, by the chain rule."""
    model, X, Y, random = full_problem(
        rng, posterior, covariance="matern52", likelihood="logit", mean="linear"
    )
    W = rng.standard_normal((X.shape[1], 2))
    W_bar = X.T @ fs.elbo_and_grad(model, X @ W, Y, wrt=(), inputs=True, **random)[2]
    assert_gradient(lambda W: fs.elbo(model, X @ W, Y, **random), W, W_bar, rng=rng)


@each_posterior
@looped("covariance", ["matern12", "tree"])
def test_inputs_at_inducing_inputs_are_no_trouble(rng, posterior, covariance):
    model, X, Y, random = full_problem(rng, posterior, covariance=covariance)
    X[:3] = model.inducing[:3]
    assert np.isfinite(fs.elbo_and_grad(model, X, Y, inputs=True, **random)[2]).all()


@each_posterior
def test_dtypes_of_the_gradient_in_the_inputs(rng, posterior):
    model, X, Y, random = full_problem(
        rng, posterior, dtype=np.float32, mean="linear", covariance="tree"
    )
    narrow = fs.elbo_and_grad(model, X, Y, jitter=JITTER, inputs=True, **random)[2]
    wide = fs.records.tree_map(lambda a: np.float64(a), model), X.astype(float), Y.astype(float)
    truth = fs.elbo_and_grad(*wide, jitter=JITTER, inputs=True, **random)[2]
    assert narrow.dtype == np.float32 and truth.dtype == np.float64
    np.testing.assert_allclose(narrow, truth, rtol=0, atol=1e-3 * np.abs(truth).max())
    whole = fs.elbo_and_grad(wide[0], np.arange(12).reshape(6, 2), wide[2], inputs=True, **random)[
        2
    ]
    assert whole.dtype == np.float64


@pytest.mark.parametrize(
    "function", [fs.elbo_and_grad, fs.bounds.data_term_and_grad], ids=lambda f: f.__name__
)
def test_without_inputs_two_results_come_back(rng, function):
    model, X, Y, _ = full_problem(rng)
    for options in ({}, {"inputs": False}, {"inputs": np.False_}):
        assert len(function(model, X, Y, **options)) == 2
    assert len(function(model, X, Y, inputs=np.True_)) == 3
    for wrong in ("yes", None, 1, 0, [], "X", np.ones(1, bool)):
        with pytest.raises(TypeError, match="`inputs` must be True or False, got"):
            function(model, X, Y, inputs=wrong)


def test_functions_that_have_no_inputs_say_so(rng):
    model, X, Y, _ = full_problem(rng)
    for call in (
        lambda: fs.bounds.kl_term_and_grad(model, inputs=True),
        lambda: fs.elbo(model, X, Y, inputs=True),
    ):
        with pytest.raises(TypeError, match="has no option `inputs`"):
            call()
