"""Natural steps without single variances: where the data term is linear in them."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.posteriors.whitening import gram

M, N = 12, 40
POSTERIORS = fs.Whitened, fs.Marginal, fs.AbsorbedDualSites, fs.DualSites
LIKELIHOODS = {
    "gaussian": fs.Gaussian(0.2),
    "known": fs.KnownNoise(0.1),
    "switched": fs.Switched((fs.Gaussian(0.1), fs.Gaussian(0.4))),
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
    """Count the passes that omitted variances; small ones do too."""
    taken, plain = [], gram.GramWhitenedPass.of_omitted_variances

    def counted(self):
        taken.append(plain(self))
        return taken[-1]

    monkeypatch.setattr(gram, "SUMMED_FROM", 0)
    monkeypatch.setattr(gram.GramWhitenedPass, "of_omitted_variances", counted)
    return taken


def assert_equal(one, other):
    for (name, _, a), (_, _, b) in zip(fs.leaves(one), fs.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("kind", POSTERIORS, ids=lambda kind: kind.__name__)
def test_value_and_step_are_those_with_variances(rng, omitted, monkeypatch, kind, P, dtype, rtol):
    model, X, Y = problem(rng, P, dtype=dtype)
    given = {"num_data": 3.0 * N, "jitter": 1e-3, "weights": rng.uniform(0, 2, N).astype(dtype)}
    model = fs.convert(model, kind, jitter=given["jitter"])
    stepped, info = fs.natural_step(model, X, Y, step_size=0.4, **given)
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y, **given), rtol=rtol)
    both, again, value, _ = fs.natural_step_and_grad(model, X, Y, step_size=0.4, **given)
    np.testing.assert_allclose(again.value, info.value, rtol=rtol)
    np.testing.assert_allclose(value, fs.elbo(both, X, Y, **given), rtol=rtol)
    assert len(omitted) == 2
    monkeypatch.setattr(gram, "SUMMED_FROM", np.inf)
    plain, _ = fs.natural_step(model, X, Y, step_size=0.4, **given)
    assert len(omitted) == 2
    assert_equal(stepped, plain)
    assert_equal(both, plain)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_likelihoods_that_are_linear_in_the_variances(rng, omitted, likelihood, P):
    model, X, Y = problem(rng, P, likelihood)
    _, info = fs.natural_step(model, X, Y, step_size=0.4)
    assert len(omitted) == 1
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y), rtol=1e-12)
    shape = (N,) if P is None else (P, N)
    of_f = [
        model.likelihood.expected_log_prob(Y.T, fs.Marginals(mean, np.full(shape, var)))
        for mean, var in ((np.zeros(shape), 0.5), (rng.standard_normal(shape), 3.0))
    ]
    np.testing.assert_array_equal(of_f[0][1].var, of_f[1][1].var)


def test_other_likelihoods_and_short_batches_take_all_variances(rng, omitted):
    model, X, Y = problem(rng)
    poisson = fs.replace(model, likelihood=fs.Poisson())
    mixed = fs.replace(model, likelihood=fs.Switched((fs.Gaussian(0.1), fs.Poisson())))
    parts = np.stack([np.round(Y**2), np.arange(N) % 2], axis=-1)
    fs.natural_step(poisson, X, parts[:, 0])
    fs.natural_step(mixed, X, parts)
    fs.natural_step(model, X[: M + 3], Y[: M + 3])
    assert not omitted
    fs.natural_step(model, X[: M + 4], Y[: M + 4])
    assert len(omitted) == 1


def test_repeated_steps_that_share_projections(rng, omitted):
    model, X, Y = problem(rng)
    _, infos = fs.natural_steps(model, X, Y, steps=3, step_size=0.4)
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


def test_a_clipped_variance_is_computed(rng, omitted):
    """At inducing inputs without jitter the prior explains all of a variance but rounding."""
    model, X, Y = problem(rng)
    model = fs.replace(model, inducing=3.0 * np.arange(M)[:, None] * np.ones(2))
    X = np.concatenate([model.inducing, X])[:N]
    _, info = fs.natural_step(model, X, Y, step_size=0.4, jitter=0.0)
    assert not omitted
    np.testing.assert_allclose(info.value, fs.elbo(model, X, Y, jitter=0.0), rtol=1e-12)
