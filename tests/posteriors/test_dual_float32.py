"""Strong sites in float32: 2,000 data on 60 inducing inputs, scaled to up to 10^7."""

import numpy as np
import pytest

import fastsvgp as fs

M, N, JITTER = 60, 2000, 1e-4
LIKELIHOODS = [fs.Gaussian(0.1), fs.likelihoods.BernoulliLogit()]
each_size = pytest.mark.parametrize("num_data", [N, 1e7])
each_likelihood = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda v: type(v).__name__)


def problem(rng, likelihood):
    X, Z = (rng.uniform(-2, 2, (count, 2)).astype(np.float32) for count in (N, M))
    f = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1])
    Y = (
        f + 0.3 * rng.standard_normal(N)
        if isinstance(likelihood, fs.Gaussian)
        else rng.random(N) < 1 / (1 + np.exp(-2 * f))
    )
    model = fs.SVGP(
        fs.RBF(np.float32(1.0), np.float32(0.7)),
        Z,
        fs.posteriors.AbsorbedDualSites(np.zeros(M), np.zeros((M, M))),
        likelihood,
    )
    return in_dtype(model, np.float32), X, Y.astype(np.float32)


def in_dtype(tree, dtype):
    return fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], tree)


def steps(model, X, Y, num_data, count=4):
    for _ in range(count):
        model, info = fs.natural_step(model, X, Y, step_size=0.7, num_data=num_data, jitter=JITTER)
        assert not info.backed_off
    return model


def off(moments, truth):
    """Largest errors of mean and variance over the data, relative to the standard deviation."""
    sd = np.sqrt(truth[1])
    return max(
        np.max(np.abs(moments[0] - truth[0]) / sd), np.max(np.abs(moments[1] - truth[1]) / truth[1])
    )


def e_step_errors(rng, likelihood, num_data):
    """Errors of predictions after E-steps: sites step by step, several steps per call, and q."""
    model, X, Y = problem(rng, likelihood)
    wide = X.astype(float), Y.astype(float)
    truth = fs.predict_f(steps(in_dtype(model, float), *wide, num_data), wide[0], jitter=JITTER)
    whitened = fs.posteriors.convert(model, fs.Whitened, jitter=JITTER)
    many, _ = fs.sites.natural_steps(
        model, X, Y, steps=4, step_size=0.7, num_data=num_data, jitter=JITTER
    )
    assert {a.dtype for _, _, a in fs.records.leaves(many.posterior)} == {np.dtype(np.float32)}
    found = steps(model, X, Y, num_data), many, steps(whitened, X, Y, num_data)
    return [off(fs.predict_f(m, X, jitter=JITTER), truth) for m in found]


@each_size
@each_likelihood
def test_e_steps_are_as_accurate_as_those_of_q_itself(rng, likelihood, num_data):
    """Compare medians: one problem with very strong sites can be ten times worse for either."""
    single, many, q = np.median(
        [e_step_errors(rng, likelihood, num_data) for _ in range(5)], axis=0
    )
    assert max(single, many) < 4 * q + 2e-3


def m_step_errors(rng, likelihood, num_data):
    """Relative errors of value and gradients after the prior has moved, for sites and for q."""
    model, X, Y = problem(rng, likelihood)
    wide, found = (X.astype(float), Y.astype(float)), []
    options = {
        "num_data": num_data,
        "jitter": JITTER,
        "wrt": ("covariance", "inducing", "likelihood"),
    }
    moved = fs.replace(steps(in_dtype(model, float), *wide, num_data), covariance=fs.RBF(1.5, 0.8))
    for q in (moved, fs.posteriors.convert(moved, fs.Whitened, jitter=JITTER)):
        narrow = in_dtype(q, np.float32)
        truth, expected = fs.elbo_and_grad(in_dtype(narrow, float), *wide, **options)
        value, grad = fs.elbo_and_grad(narrow, X, Y, **options)
        pairs = zip(
            (bar for _, _, bar in fs.records.leaves(grad)),
            (bar for _, _, bar in fs.records.leaves(expected)),
            strict=True,
        )
        bars = [
            np.max(np.abs(bar - one)) / np.max(np.abs(one)) for bar, one in pairs if one is not None
        ]
        assert {bar.dtype for _, _, bar in fs.records.leaves(grad) if bar is not None} == {
            np.dtype(np.float32)
        }
        found.append([abs(value / truth - 1), *bars])
    return found


@each_size
@each_likelihood
def test_m_step_of_sites_is_as_accurate_as_that_of_q(rng, likelihood, num_data):
    """Compare medians for sites computed in float64 and then rounded.

    Very strong sites are as accurate as q itself.
    """
    sites, q = np.median([m_step_errors(rng, likelihood, num_data) for _ in range(15)], axis=0)
    strong = num_data > N
    # over a dozen seeds 4.04 q[0] at most
    assert sites[0] < (max(2e-4, 8 * q[0]) if strong else 5e-5)
    assert (sites[1:] < (np.maximum(1.5e-2, 8 * q[1:]) if strong else 4e-3)).all()


def test_dual_sites_are_invalid_in_float32_with_many_data(rng):
    """The rounding error of lambda_2 exceeds the least eigenvalue of Kuu."""
    model, X, Y = problem(rng, fs.Gaussian(0.1))
    good = fs.posteriors.convert(
        steps(in_dtype(model, float), X.astype(float), Y.astype(float), 1e7),
        fs.posteriors.DualSites,
        jitter=JITTER,
    )
    with pytest.raises(
        ValueError,
        match=("`posterior.lambda2` holds no valid sites: Kuu .* float64 .*, or AbsorbedDualSites"),
    ):
        fs.elbo(in_dtype(good, np.float32), X, Y, num_data=1e7, jitter=JITTER)
