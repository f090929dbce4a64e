"""Pullback of predictions: every posterior, covariance, mean function; chunks, repeated calls."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_derivative, extended
from support.looped import looped
from support.numerics import assert_adjoint
from support.posterior_problems import EVERY

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.bounds.layer_pass import LayerPass
from fastsvgp.testing import assert_gradient
from tests.bounds.test_elbo import COVARIANCES, MEANS, each_posterior, full_problem

JITTER = 1e-2
each = pytest.mark.parametrize("posterior", EVERY)


def problem(rng, posterior="whitened", P=None, M=6, N=7, D=2, **options):
    """``(model, Xs)`` with a posterior of the row, one of two sets of inducing inputs too."""
    return full_problem(rng, posterior, P=P, M=M, B=N, D=D, **options)[:2]


def defined(model, Xs, mean_bar, var_bar):
    """<mean_bar, mean> + <var_bar, var> by definition; cotangents in the shapes of users."""
    Z = model.inducing
    Z = np.concatenate([Z.Z, Z.O]) if isinstance(Z, fs.posteriors.InducingPair) else Z
    mean, var, _ = definitions.moments(
        model.posterior, definitions.blocks(model.covariance, Z, Xs, JITTER)
    )
    mean = mean + definitions.prior_mean(model.mean, Xs)
    return sum(
        (bar.T.reshape(len(a), -1) * a).sum() for bar, a in ((mean_bar, mean), (var_bar, var))
    )


def check(rng, posterior, **options):
    model, Xs = problem(rng, posterior, **options)
    before = Xs.copy()
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    for found, plain in zip((mean, var), fs.predict_f(model, Xs, jitter=JITTER), strict=True):
        assert found.shape == plain.shape and found.dtype == Xs.dtype
        np.testing.assert_allclose(found, plain, rtol=1e-11, atol=1e-11)
    bars = rng.standard_normal(mean.shape), rng.standard_normal(var.shape)
    Xs_bar = vjp(*bars)
    assert Xs_bar.shape == Xs.shape and Xs_bar.dtype == Xs.dtype and Xs_bar.flags.c_contiguous
    np.testing.assert_array_equal(Xs, before)
    row = np.zeros(Xs.shape)
    # a single one, which no other hides
    row[rng.integers(len(Xs))] = rng.standard_normal(Xs.shape[1])
    for d in (rng.standard_normal(Xs.shape), row):
        assert_derivative(lambda Xs: defined(model, Xs, *bars), extended(Xs), Xs_bar, d, name="Xs")
    return model, Xs, bars, vjp, Xs_bar


@each
@looped("P", [None, 2])
@looped("covariance", ["rbf", "tree"])
def test_every_posterior(rng, posterior, P, covariance):
    check(rng, posterior, P=P, covariance=covariance, mean="linear")


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_every_covariance(rng, covariance):
    check(rng, "whitened", covariance=covariance)


@looped("P", [None, 1, 2])
@pytest.mark.parametrize("mean", MEANS)
def test_every_mean_function(rng, mean, P):
    check(rng, "marginal", mean=mean, P=P)


@each
@looped(
    "M, N, D, P", [(2, 1, 1, None), (6, 1, 3, 2), (3, 40, 2, 2), (2, 130, 1, None), (3, 17, 1, 1)]
)
def test_odd_shapes(rng, posterior, M, N, D, P):
    check(rng, posterior, mean="constant", M=M, N=N, D=D, P=P)


@each
def test_against_five_points_of_predictions(rng, posterior):
    model, Xs = problem(rng, posterior, covariance="matern52", mean="linear", P=2)
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    bars = rng.standard_normal(mean.shape), rng.standard_normal(var.shape)

    def product(Xs):
        found = fs.predict_f(model, Xs, jitter=JITTER)
        return sum(np.vdot(bar, a) for bar, a in zip(bars, found, strict=True))

    assert_gradient(product, Xs, vjp(*bars), rng=rng, rtol=1e-9)


@each
def test_adjoint_of_either_result(rng, posterior):
    model, Xs = problem(rng, posterior, mean="linear")
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    for i, y_bar in enumerate((rng.standard_normal(mean.shape), rng.standard_normal(var.shape))):
        bars = [None, None]
        bars[i] = y_bar
        assert_adjoint(
            lambda X, i=i: fs.predict_f(model, X, jitter=JITTER)[i], [Xs], [vjp(*bars)], y_bar, rng
        )


@each
@looped("P", [None, 2])
def test_any_number_of_calls(rng, posterior, P):
    """Linear in the cotangents, in every call; changes of Xs between calls have no effect."""
    model, Xs = problem(rng, posterior, P=P)
    mean, _, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    Xs[:] = np.nan
    a, b = rng.standard_normal((2, *mean.shape))
    first = vjp(a, b)
    close = dict(rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(vjp(a, b), first, **close)
    np.testing.assert_allclose(vjp(a, None) + vjp(None, b), first, **close)
    np.testing.assert_allclose(vjp(2 * a, 2 * b), 2 * first, **close)
    np.testing.assert_array_equal(vjp(None, None), np.zeros(first.shape))


@each
@pytest.mark.parametrize("keep", [0, 2**24])
@looped("P", [None, 2])
def test_chunks_of_rows_cached_or_not(rng, monkeypatch, posterior, keep, P, tune):
    model, Xs = problem(rng, posterior, P=P, N=23, mean="linear")
    whole = fs.bounds.predict_f_and_vjp(model, Xs)
    bars = rng.standard_normal((2, *whole[0].shape))
    expected = whole[2](*bars)
    monkeypatch.setattr(kernels, "chunk_numbers", lambda array: 5 * 6)
    tune(prediction_cache_numbers=keep)
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    np.testing.assert_allclose((mean, var), whole[:2], rtol=1e-10, atol=1e-10)
    for _ in range(2):
        np.testing.assert_allclose(vjp(*bars), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("P", [None, 1, 3])
def test_cached_residuals_are_bounded_for_any_number_of_outputs(rng, monkeypatch, P, tune):
    model, Xs = problem(rng, P=P)
    numbers, runs, plain = 6 * 7 * (P or 1), [], LayerPass.forward
    monkeypatch.setattr(LayerPass, "forward", lambda *a: runs.append(1) or plain(*a))
    for keep, due in ((numbers, 1), (numbers - 1, 2)):
        tune(prediction_cache_numbers=keep)
        mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
        vjp(mean, var)
        assert len(runs) == due
        runs.clear()


def test_derivatives_of_each_row_in_two_calls(rng):
    """A prediction depends only on its own row."""
    model, Xs = problem(rng, N=3)
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    of_means = vjp(np.ones(3), None)
    for n, one in enumerate(np.eye(3)):
        alone = vjp(one, None)
        np.testing.assert_allclose(alone[n], of_means[n], rtol=1e-11)
        assert not alone[np.arange(3) != n].any()


def test_a_pass_begins_once(rng, monkeypatch):
    """One factor of Kuu; the pass is not finished, so M^3 work is done once."""
    model, Xs = problem(rng)
    kind, factored = (
        type(model.posterior.start(model.covariance.Kuu(model.inducing), 0.1, 7, ("blocks",))),
        [],
    )
    plain = kernels.cholesky
    monkeypatch.setattr(kernels, "cholesky", lambda *a, **k: factored.append(1) or plain(*a, **k))
    monkeypatch.setattr(
        kind, "finish", lambda *_: pytest.fail("what all rows share was not requested")
    )
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    for _ in range(3):
        vjp(mean, var)
    assert len(factored) == 1


@each
def test_dtypes_of_the_pullback(rng, posterior):
    model, Xs = problem(rng, posterior, dtype=np.float32, mean="linear", covariance="tree")
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    bars = rng.standard_normal((2, *mean.shape))
    narrow = vjp(*bars)  # float64 cotangents of a float32 prediction
    truth = fs.bounds.predict_f_and_vjp(
        fs.records.tree_map(np.float64, model), Xs.astype(float), jitter=JITTER
    )[2](*bars)
    assert mean.dtype == var.dtype == narrow.dtype == np.float32 and truth.dtype == np.float64
    np.testing.assert_allclose(narrow, truth, rtol=0, atol=1e-3 * np.abs(truth).max())


def test_integers_and_lists(rng):
    model, _ = problem(rng)
    Xs = np.arange(8).reshape(4, 2)
    _, _, vjp = fs.bounds.predict_f_and_vjp(model, Xs.tolist(), jitter=JITTER)
    _, _, same = fs.bounds.predict_f_and_vjp(model, Xs.astype(float), jitter=JITTER)
    np.testing.assert_allclose(
        vjp([1, 0, 2, 3], [0.5] * 4), same(np.array([1.0, 0, 2, 3]), np.full(4, 0.5)), rtol=1e-12
    )


@each_posterior
def test_at_inducing_inputs(rng, posterior):
    model, Xs = problem(rng, posterior, covariance="matern12")
    Xs[:3] = model.inducing[:3]
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    assert np.isfinite(vjp(mean, var)).all()


@pytest.mark.parametrize("bar, P, error, said", [
    (np.ones(6), None, ValueError,
     r"must have the shape \(7,\) of the `(mean|var)` whose cotangent it is, got \(6,\)"),
    (np.ones((7, 1)), None, ValueError, r"shape \(7,\).*got \(7, 1\)"),
    (np.ones((2, 7)), 2, ValueError, r"shape \(7, 2\).*got \(2, 7\)"),
    (1.0, None, ValueError, r"shape \(7,\).*got \(\)"),
    (np.full(7, np.nan), None, ValueError, "contains nan at index 0"),
    (np.full(7, np.inf), None, ValueError, "contains inf"),
    (np.ones(7, np.float16), None, TypeError, "must be float64 or float32.*got float16"),
    (np.ones(7, complex), None, TypeError, "real numbers, got dtype complex128"),
    ("no", None, TypeError, "real numbers"),
])  # fmt: skip
def test_bad_cotangents_are_named(rng, bar, P, error, said):
    model, Xs = problem(rng, P=P)
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    for i, name in enumerate(("mean_bar", "var_bar")):
        bars = [mean, var]
        bars[i] = bar
        with pytest.raises(error, match=f"`{name}` .*{said}"):
            vjp(*bars)
    assert np.isfinite(vjp(mean, var)).all()  # it is as good as before


def test_bad_arguments_are_those_of_predictions(rng):
    model, Xs = problem(rng)
    for wrong, said in (
        (Xs[0], "`Xs` must have shape"),
        (Xs[:, :1], "`Xs` has 1 columns"),
        (Xs * np.nan, "`Xs` contains nan"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.bounds.predict_f_and_vjp(model, wrong)
    with pytest.raises(ValueError, match="`jitter` must be zero or positive"):
        fs.bounds.predict_f_and_vjp(model, Xs, jitter=-1)
    with pytest.raises(TypeError, match="has no option `full_cov` for SVGP"):
        fs.bounds.predict_f_and_vjp(model, Xs, full_cov=True)


OTHERS = [fs.SGPR(fs.RBF(1.0, 1.0), np.ones((1, 1)), 0.1), fs.RBF(1.0, 1.0)]


@pytest.mark.parametrize("model", OTHERS, ids=lambda model: type(model).__name__)
def test_other_kinds_of_models_say_so(model):
    kind = type(model).__name__
    with pytest.raises(
        TypeError,
        match=rf"predict_f_and_vjp: `model` must be a fastsvgp.*SVGP.*, got {kind}",
    ):
        fs.bounds.predict_f_and_vjp(model, np.ones((2, 1)))
