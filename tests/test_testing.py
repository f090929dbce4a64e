"""``fastsvgp.testing``: right gradients pass, and each kind of wrong one is named."""

import numpy as np
import pytest
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

JITTER = 1e-2


@pytest.fixture
def problem():
    rng = generator(0)
    X = rng.uniform(-2, 2, (20, 2))
    tril = np.tril(rng.uniform(-0.2, 0.2, (4, 4)), -1) + np.diag(rng.uniform(0.5, 1.5, 4))
    model = fs.SVGP(
        fs.RBF(1.2, np.array([0.8, 1.3])),
        rng.uniform(-2, 2, (4, 2)),
        fs.Whitened(rng.standard_normal(4), tril),
        fs.Gaussian(1e-5),  # far smaller than a step
    )
    return model, X, np.sin(X[:, 0])


def bound(X, Y):
    return lambda model: fs.elbo(model, X, Y, jitter=JITTER)


def test_the_gradient_of_a_bound_passes(problem):
    model, X, Y = problem
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, jitter=JITTER)
    assert_gradient(bound(X, Y), model, grad, rng=generator(1))
    assert_gradient(lambda X: fs.elbo(model, X, Y, jitter=JITTER), X, X_bar, rng=generator(2))


@pytest.mark.parametrize("path", [
    "covariance.variance", "covariance.lengthscales", "inducing",
    "posterior.mean", "posterior.scale_tril", "likelihood.variance",
])  # fmt: skip
@pytest.mark.parametrize("factor", [-1.0, 1 + 1e-5, 0.0])
def test_one_wrong_field_is_named_however_small_it_is(problem, path, factor):
    model, X, Y = problem
    model = fs.records.replace_at(model, "likelihood.variance", 0.1)
    grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)[1]
    bar = {name: value for name, _, value in fs.records.leaves(grad)}[path]
    with pytest.raises(AssertionError, match=rf"^{path}: .* differences .* \(ratio {factor:.6g}"):
        assert_gradient(bound(X, Y), model, fs.records.replace_at(grad, path, factor * bar))


def test_fields_far_smaller_than_others_are_judged_alone():
    record = fs.RBF(1.0, np.array([2.0]))
    value = lambda at: 1e-7 * at.variance + np.square(at.lengthscales).sum()  # noqa: E731
    assert_gradient(value, record, fs.RBF(1e-7, np.array([4.0])), rtol=1e-8)
    with pytest.raises(AssertionError, match="^variance: "):
        assert_gradient(value, record, fs.RBF(2e-7, np.array([4.0])))


@fs.records.record
class SymmetricOfTesting:
    a: object = fs.records.leaf("symmetric")


@fs.records.record
class TrilOfTesting:
    a: object = fs.records.leaf("tril")


@pytest.mark.parametrize("Matrix", [SymmetricOfTesting, TrilOfTesting])
def test_matrices_stay_what_they_are(Matrix):
    kind = "tril" if Matrix is TrilOfTesting else "symmetric"
    rng = generator(3)
    W, a = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    a = a + a.T if kind == "symmetric" else np.tril(a, -1) + np.diag([1e-4, 0.5, 1.0])
    bar = 2 * W * a if kind == "tril" else W * a + (W * a).T
    seen = []

    def value(at):
        seen.append(at.a)
        return (W * at.a * at.a).sum()

    assert_gradient(value, Matrix(a), Matrix(bar))
    for moved in seen:
        if kind == "tril":
            assert not np.triu(moved, 1).any() and (np.diagonal(moved) > 0).all()
        else:
            np.testing.assert_array_equal(moved, moved.T)


def test_only_requested_fields_are_checked(problem):
    model, X, Y = problem
    grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER, wrt=("covariance", "inducing"))[1]
    assert_gradient(bound(X, Y), model, grad, wrt=("covariance", "inducing"))
    assert_gradient(bound(X, Y), model, grad, wrt="covariance.variance")
    with pytest.raises(AssertionError, match="^posterior.mean: the gradient is None; leave"):
        assert_gradient(bound(X, Y), model, grad)
    with pytest.raises(ValueError, match="`wrt` names 'covariances'"):
        assert_gradient(bound(X, Y), model, grad, wrt="covariances")


def test_arrays_and_numbers():
    assert_gradient(lambda x: np.sin(x).sum(), np.arange(4), np.cos(np.arange(4)))
    assert_gradient(lambda x: x**3, 2.0, 12.0)
    with pytest.raises(AssertionError, match="^the array: .*ratio 0.5,"):
        assert_gradient(lambda x: x**3, 2.0, 6.0)
    with pytest.raises(AssertionError, match=r"^the array: the gradient has shape \(1,\)"):
        assert_gradient(np.sum, np.ones(2), np.ones(1))
    with pytest.raises(TypeError, match="`wrt` names fields of a record"):
        assert_gradient(np.sum, np.ones(2), np.ones(2), wrt="x")


def test_values_that_are_not_finite_fail():
    with pytest.raises(AssertionError, match="^the array: values within two steps are .*nan"):
        assert_gradient(lambda x: np.nan if x > 1 else x, 1.0, 1.0)


def test_fields_on_which_the_value_does_not_depend_are_not_tested(problem):
    model, X, Y = problem
    model = fs.replace(
        model, posterior=fs.posteriors.at_prior(fs.Whitened, model.covariance, model.inducing)
    )
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, jitter=JITTER)
    said = ": gradient and differences are exactly 0, so nothing is tested; test at another point"
    for path in ("covariance.lengthscales", "inducing"):
        with pytest.raises(AssertionError, match=f"^{path}{said}"):
            assert_gradient(bound(X, Y), model, grad, wrt=path)
    with pytest.raises(AssertionError, match=f"^the array{said}"):
        assert_gradient(lambda X: fs.elbo(model, X, Y, jitter=JITTER), X, X_bar)
    assert_gradient(bound(X, Y), model, grad, wrt=("covariance.variance", "posterior"))
    assert_gradient(np.sum, np.ones(0), np.ones(0))
    with pytest.raises(AssertionError, match="gradient says .* differences 0"):
        assert_gradient(lambda x: 1.0, 1.0, 1e-3)


def test_incomparable_arguments_are_refused(problem):
    model, X, Y = problem
    grad = fs.elbo_and_grad(model, X, Y)[1]
    with pytest.raises(TypeError, match="`gradient` must have the type of `at`, SVGP, got RBF"):
        assert_gradient(bound(X, Y), model, grad.covariance)
    wrong = fs.records.replace_at(grad, "posterior.mean", np.ones(3))
    with pytest.raises(AssertionError, match=r"^posterior.mean: the gradient has shape \(3,\)"):
        assert_gradient(bound(X, Y), model, wrong)
    single = fs.records.replace_at(model, "inducing", np.float32(model.inducing))
    with pytest.raises(TypeError, match="`inducing` must be float64 for differences, got float32"):
        assert_gradient(bound(X, Y), single, grad)
    with pytest.raises(TypeError, match="step_size.*step"):
        assert_gradient(bound(X, Y), model, grad, step_size=1.0)
