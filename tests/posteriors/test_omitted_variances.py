"""Steps without single variances, where the data term is linear in them."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.bounds import small_step
from fastsvgp.posteriors.whitening import common_cotangents, summed_variances
from fastsvgp.posteriors.whitening.summed_variances import SummedVariances

M, N = 12, 40
POSTERIORS = fs.Whitened, fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites
LIKELIHOODS = {
    "gaussian": fs.Gaussian(0.2),
    "known": fs.likelihoods.KnownNoise(0.1),
    "switched": fs.likelihoods.Switched((fs.Gaussian(0.1), fs.Gaussian(0.4))),
}


def problem(rng, P=None, likelihood="gaussian", dtype="float64"):
    """Return a whitened model, X, and Y in its layout for one function per output."""
    shape = () if P is None else (P,)
    X, Z = (rng.standard_normal((n, 2)).astype(dtype) for n in (N, M))
    q = fs.Whitened(
        rng.standard_normal((*shape, M)).astype(dtype), lower_factor(rng, *shape, M).astype(dtype)
    )
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal((*shape, N))
    second = {
        "known": rng.uniform(0.1, 0.5, y.shape),
        "switched": rng.integers(0, 2, y.shape).astype(float),
    }
    Y = y if likelihood == "gaussian" else np.stack([y, second[likelihood]])
    covariance = fs.RBF(1.3, np.array([0.7, 0.9], dtype))
    return fs.SVGP(covariance, Z, q, LIKELIHOODS[likelihood]), X, Y.T.astype(dtype)


@pytest.fixture
def omitted(monkeypatch):
    """Collect what passes took from their sums; small ones do so too."""
    taken, plain = [], SummedVariances.omitted_variances

    def kept(self):
        taken.append(plain(self))
        return taken[-1]

    monkeypatch.setattr(small_step, "MOST", 0)
    monkeypatch.setattr(summed_variances, "SUMMED_FROM", 0)
    monkeypatch.setattr(common_cotangents, "LEAST", 0)
    monkeypatch.setattr(SummedVariances, "omitted_variances", kept)
    return taken


def without(monkeypatch, function, *args, **named):
    """Call a function while no pass omits variances."""
    with monkeypatch.context() as patched:
        patched.setattr(SummedVariances, "can_omit", False)
        return function(*args, **named)


def assert_close(one, other, rtol):
    """Compare records field by field, relative to the largest entry; None equals None."""
    for (name, _, a), (_, _, b) in zip(
        fs.records.leaves(one), fs.records.leaves(other), strict=True
    ):
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), err_msg=name)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("kind", POSTERIORS, ids=lambda kind: kind.__name__)
def test_value_and_step_are_those_with_variances(rng, omitted, monkeypatch, kind, P, dtype, rtol):
    model, X, Y = problem(rng, P, dtype=dtype)
    given = {"num_data": 3.0 * N, "jitter": 1e-3, "weights": rng.uniform(0, 2, N).astype(dtype)}
    model = fs.posteriors.convert(model, kind, jitter=given["jitter"])
    stepped, info = fs.natural_step(model, X, Y, step_size=0.4, **given)
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y, **given), rtol=rtol)
    assert len(omitted) == 1 and omitted[0] < 0
    both, again, value, _ = fs.optim.natural_step_and_grad(model, X, Y, step_size=0.4, **given)
    np.testing.assert_allclose(again.value, info.value, rtol=rtol)
    np.testing.assert_allclose(value, fs.elbo(both, X, Y, **given), rtol=rtol)
    gaussian_factor = kind in (fs.Whitened, fs.Marginal)
    assert len(omitted) == (3 if P and gaussian_factor else 2)
    plain, _ = without(monkeypatch, fs.natural_step, model, X, Y, step_size=0.4, **given)
    assert_close(stepped, plain, rtol)
    assert_close(both, plain, rtol)


@pytest.mark.parametrize("wrt", [None, ("posterior",), ("covariance", "likelihood"), ("inducing",)])
@pytest.mark.parametrize("P", [2, 5])
@pytest.mark.parametrize("kind", [fs.Whitened, fs.Marginal], ids=lambda kind: kind.__name__)
def test_gradients_of_several_outputs(rng, omitted, monkeypatch, kind, P, wrt):
    """N = 40 has the batch form at P = 5 and the Gram form at P = 2, if Kuf is needed."""
    model, X, Y = problem(rng, P)
    model = fs.posteriors.convert(model, kind)
    for weights in (None, rng.uniform(0, 2, N)):
        given = {"num_data": 3.0 * N, "weights": weights, "wrt": wrt}
        value, grad = fs.elbo_and_grad(model, X, Y, **given)
        expected, plain = without(monkeypatch, fs.elbo_and_grad, model, X, Y, **given)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        assert_close(grad, plain, 1e-10)
    assert len(omitted) == 2


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize(
    "kind",
    [fs.posteriors.WhitenedOrthogonal, fs.posteriors.Orthogonal],
    ids=lambda kind: kind.__name__,
)
def test_two_sets_of_inducing_inputs(rng, omitted, monkeypatch, kind, P):
    one, X, Y = problem(rng, P)
    pair, shape = (
        fs.posteriors.InducingPair(one.inducing[:7], one.inducing[7:]),
        () if P is None else (P,),
    )
    fields = [
        field
        for m in (7, 5)
        for field in (rng.standard_normal((*shape, m)), lower_factor(rng, *shape, m))
    ]
    model = fs.replace(one, inducing=pair, posterior=kind(*fields))
    stepped, info = fs.natural_step(model, X, Y, step_size=0.4)
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y), rtol=1e-12)
    plain, _ = without(monkeypatch, fs.natural_step, model, X, Y, step_size=0.4)
    assert_close(stepped, plain, 1e-12)
    value, grad = fs.elbo_and_grad(model, X, Y)
    expected, every = without(monkeypatch, fs.elbo_and_grad, model, X, Y)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    assert_close(grad, every, 1e-10)
    assert len(omitted) == (2 if P else 1)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("wrt", [(), ("likelihood",), ("posterior.mean",), ("mean", "likelihood")])
def test_a_gradient_without_sums_takes_all_variances(rng, omitted, wrt, P):
    model, X, Y = problem(rng, P)
    model = fs.replace(model, mean=fs.means.ConstantMean(0.3))
    value, grad = fs.elbo_and_grad(model, X, Y, wrt=wrt)
    assert not omitted
    np.testing.assert_allclose(value, fs.elbo(model, X, Y), rtol=1e-12)
    whole = fs.elbo_and_grad(model, X, Y)[1]
    if "likelihood" in wrt:
        np.testing.assert_allclose(grad.likelihood.variance, whole.likelihood.variance, rtol=1e-10)


def test_a_gradient_that_no_sum_determines(rng, omitted):
    """The noise variance of ``KnownNoise`` needs each variance."""
    model, X, Y = problem(rng, 3, "known")
    fs.elbo_and_grad(model, X, Y)
    assert not omitted


@pytest.mark.parametrize("P", [2, 3])
def test_outputs_with_weights_of_their_own_take_products(rng, omitted, P):
    """Slopes that differ by datum and output have no common sum: the pass computes V after all."""
    model, X, Y = problem(rng, P)
    weights = rng.uniform(0, 2, (N, P))
    value, grad = fs.elbo_and_grad(model, X, Y, weights=weights)
    assert len(omitted) == 1
    one = [
        fs.elbo_and_grad(
            fs.replace(
                model, posterior=fs.Whitened(model.posterior.mean[p], model.posterior.scale_tril[p])
            ),
            X,
            Y[:, p].copy(),
            weights=weights[:, p].copy(),
        )
        for p in range(P)
    ]
    np.testing.assert_allclose(value, sum(v for v, _ in one), rtol=1e-12)
    np.testing.assert_allclose(grad.inducing, sum(g.inducing for _, g in one), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        grad.likelihood.variance, sum(g.likelihood.variance for _, g in one), rtol=1e-11
    )


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_likelihoods_that_are_linear_in_the_variances(rng, omitted, likelihood, P):
    model, X, Y = problem(rng, P, likelihood)
    _, info = fs.natural_step(model, X, Y, step_size=0.4)
    assert len(omitted) == 1
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y), rtol=1e-12)
    shape = (N,) if P is None else (P, N)
    of_f = [
        model.likelihood.expected_log_prob(Y.T, fs.records.Marginals(mean, np.full(shape, var)))
        for mean, var in ((np.zeros(shape), 0.5), (rng.standard_normal(shape), 3.0))
    ]
    np.testing.assert_array_equal(of_f[0][1].var, of_f[1][1].var)


@fs.records.record
class Tempered(fs.Gaussian):
    """Gaussian noise with an expectation that is not linear in the variances."""

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        ell, bars, _ = super().expected_log_prob(Y, f, weights=weights)
        ell -= np.sum(f.var**2)
        bars = fs.records.Marginals(bars.mean, bars.var - 2 * f.var)
        return ell, bars, Tempered(np.zeros_like(f.mean[0]))


def test_a_subclass_with_an_expectation_of_its_own_is_not_linear(rng, omitted):
    model, X, Y = problem(rng)
    model = fs.replace(model, likelihood=Tempered(0.2))
    _, info = fs.natural_step(model, X, Y, step_size=0.1)
    assert not omitted and fs.Gaussian.linear_in_var
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y), rtol=1e-12)


def test_other_likelihoods_and_short_batches_take_all_variances(rng, omitted):
    model, X, Y = problem(rng)
    poisson = fs.replace(model, likelihood=fs.Poisson())
    mixed = fs.replace(model, likelihood=fs.likelihoods.Switched((fs.Gaussian(0.1), fs.Poisson())))
    parts = np.stack([np.round(Y**2), np.arange(N) % 2], axis=-1)
    fs.natural_step(poisson, X, parts[:, 0])
    fs.natural_step(mixed, X, parts)
    fs.natural_step(model, X[: M + 3], Y[: M + 3])
    assert not omitted
    fs.natural_step(model, X[: M + 4], Y[: M + 4])
    assert len(omitted) == 1


def test_repeated_steps_that_share_projections(rng, omitted):
    model, X, Y = problem(rng)
    _, infos = fs.sites.natural_steps(model, X, Y, steps=3, step_size=0.4)
    assert len(omitted) == 3
    for info in infos:
        np.testing.assert_allclose(info.value, fs.elbo(model, X, Y), rtol=1e-10)
        model, _ = fs.natural_step(model, X, Y, step_size=0.4)


def test_chunks_of_a_long_batch(rng, omitted, tune):
    model, X, Y = problem(rng)
    _, whole = fs.natural_step(model, X, Y, step_size=0.4)
    tune(bound_chunk_numbers=9 * M, bound_chunk_columns=9)
    _, chunks = fs.natural_step(model, X, Y, step_size=0.4)
    assert len(omitted) == 2
    np.testing.assert_allclose(chunks.value, whole.value, rtol=1e-13)


@pytest.mark.parametrize("jitter", [0.0, 1e-17, 1e-6])
@pytest.mark.parametrize("P", [None, 3])
def test_variances_that_may_round_to_their_floor_are_computed(rng, omitted, monkeypatch, P, jitter):
    """At inducing inputs without jitter the prior explains all of a variance but rounding."""
    model, X, Y = problem(rng, P)
    model = fs.replace(model, inducing=3.0 * np.arange(M)[:, None] * np.ones(2))
    X = np.concatenate([model.inducing, X])[:N]
    _, info = fs.natural_step(model, X, Y, step_size=0.4, jitter=jitter)
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y, jitter=jitter), rtol=1e-12)
    for wrt in (None, ("posterior",)):
        value, grad = fs.elbo_and_grad(model, X, Y, jitter=jitter, wrt=wrt)
        args = model, X, Y
        expected, plain = without(monkeypatch, fs.elbo_and_grad, *args, jitter=jitter, wrt=wrt)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        assert_close(grad, plain, 1e-10)
    assert len(omitted) == ((3 if P else 2) if jitter == 1e-6 else 0)
