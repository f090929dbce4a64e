"""Weights that turn prior functions into functions under q: their moments, without any sampling."""

import numpy as np
import pytest
from support.posterior_problems import EVERY, JITTER, problem

import fastsvgp as fs
from fastsvgp.posteriors.base import Joint, PriorFactor

M, N = 7, 5


def coefficients(q, prior, P):
    """Return ``(v, A, B)``: v (P, M) without random numbers, and the coefficients of these.

    ``path_weights`` is affine in its random numbers: the values of the prior are L z, with
    coefficients A (P, M, M) of z, and B (P, M, H) are those of all H numbers that it draws.
    """
    M, sizes = len(prior.Kuu), []

    def zeros(P, M, count):
        sizes.append(M)
        return np.zeros((P, M, count))

    q.path_weights(prior, np.zeros((P, M, 1)), zeros)
    starts = iter(1 + M + np.cumsum([0, *sizes]))
    values = np.zeros((P, M, 1 + M + sum(sizes)))
    values[:, :, 1 : 1 + M] = np.linalg.cholesky(prior.Kuu + prior.jitter * np.eye(M))

    def units(P, M, count):
        columns, start = np.zeros((P, M, count)), next(starts)
        columns[:, :, start : start + M] = np.eye(M)
        return columns

    v = q.path_weights(prior, values, units)
    return v[..., 0], *np.split(v[..., 1:] - v[..., :1], [M], axis=-1)


def moments(q, blocks, jitter, P):
    """Return the ``Joint`` moments (P, N) of f0 + Kfu v, for a prior function f0 without error."""
    v, A, B = coefficients(q, PriorFactor(blocks.Kuu, jitter), P)
    L = np.linalg.cholesky(blocks.Kuu + jitter * np.eye(len(v[0])))
    Lam = np.linalg.solve(L, blocks.Kuf)
    of_z, of_h = Lam.T + blocks.Kuf.T @ A, blocks.Kuf.T @ B
    cov = blocks.Kff - Lam.T @ Lam + of_z @ of_z.swapaxes(1, 2) + of_h @ of_h.swapaxes(1, 2)
    return Joint(v @ blocks.Kuf, cov)


@pytest.mark.parametrize("P", [None, 1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_functions_have_the_joint_moments_of_q(rng, name, P):
    q, blocks, _ = problem(rng, name, M, N, P)
    mean, cov = moments(q, blocks, JITTER, P or 1)
    expected = q.start(blocks.Kuu, JITTER).joint(blocks.Kuf, blocks.Kff)
    assert mean.shape == (P or 1, N)
    np.testing.assert_allclose(mean.reshape(expected.mean.shape), expected.mean, atol=1e-11)
    np.testing.assert_allclose(cov.reshape(expected.cov.shape), expected.cov, atol=1e-11)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", EVERY)
def test_a_posterior_without_a_rule_uses_the_joint_distribution_of_u(rng, name, P):
    """The jitter is added to the covariance of u."""
    q, blocks, _ = problem(rng, name, M, N, P)
    jitter = 1e-9

    class Own(type(q)):
        path_weights = fs.posteriors.Posterior.path_weights

    own = Own(**{field: getattr(q, field) for field, _ in q._record_fields})
    expected = q.start(blocks.Kuu, jitter).joint(blocks.Kuf, blocks.Kff)
    mean, cov = moments(own, blocks, jitter, P or 1)
    np.testing.assert_allclose(mean.reshape(expected.mean.shape), expected.mean, atol=1e-10)
    np.testing.assert_allclose(cov.reshape(expected.cov.shape), expected.cov, atol=1e-7)


def test_a_posterior_without_joint_moments_is_named(rng):
    q, blocks, _ = problem(rng, "whitened", M, N)

    class Short(fs.posteriors.Posterior):
        def start_from(self, prior, columns=0, need=()):
            return fs.posteriors.Pass()

    prior = PriorFactor(blocks.Kuu, JITTER)
    with pytest.raises(TypeError, match="sample_paths: a Short posterior has no rule for paths"):
        Short().path_weights(prior, np.zeros((1, M, 2)), None)


@pytest.mark.parametrize("name", ["likelihood", "likelihood-plain", "relaxed", "inverse-free"])
def test_posteriors_without_a_factor_of_Kuu_need_none(rng, name):
    q, blocks, _ = problem(rng, name, M, N)

    class Unfactorised(PriorFactor):
        @property
        def L(self):
            raise AssertionError

    values = rng.standard_normal((1, M, 3))
    prior = Unfactorised(blocks.Kuu, JITTER)
    assert q.path_weights(prior, values, lambda *shape: rng.standard_normal(shape)).shape == (
        1,
        M,
        3,
    )


@pytest.mark.parametrize("name", EVERY)
def test_float32(rng, name):
    q, blocks, _ = problem(rng, name, M, N, 2)
    narrow = fs.records.tree_map(lambda a: a.astype(np.float32), q)
    u0, h = rng.standard_normal((2, M, 3)), []

    def normal(*shape):
        h.append(rng.standard_normal(shape))
        return h[-1].astype(np.float32)

    K = blocks.Kuu.astype(np.float32)
    v = narrow.path_weights(PriorFactor(K, JITTER), u0.astype(np.float32), normal)
    again = iter(h)
    due = q.path_weights(PriorFactor(blocks.Kuu, JITTER), u0.copy(), lambda *shape: next(again))
    assert v.dtype == np.float32
    np.testing.assert_allclose(v, due, atol=2e-3 * np.abs(due).max())
