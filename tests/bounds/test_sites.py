"""Sites of the data at any q(u), leave-one-out predictions, and conversions of q(u)."""

import numpy as np
import pytest
from support import definitions
from support.gp_problems import lower_factor
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs

M, N, D = 6, 30, 2
FROM = ["whitened", "marginal", "absorbed-sites", "dual-sites", "likelihood", "likelihood-plain"]
TO = [fs.Whitened, fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites]


def problem(rng, name="whitened", P=None, likelihood=None, mean=None):
    batch = () if P is None else (P,)
    covariance, Z = fs.Matern52(1.1, np.array([0.9, 1.4])), rng.uniform(-2, 2, (M, D))
    q = EVERY[name].make(rng, covariance.Kuu(Z) + JITTER * np.eye(M), batch)
    model = fs.SVGP(covariance, Z, q, likelihood or fs.Gaussian(0.3), mean)
    return model, rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("kind", TO, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", FROM)
def test_the_same_q_in_other_parameters(rng, name, kind, P):
    model, X, Y = problem(rng, name, P)
    same = fs.posteriors.convert(model, kind, jitter=JITTER)
    assert type(same.posterior) is kind
    A = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M)
    for ours, truth in zip(
        definitions.q_of_u(same.posterior, A), definitions.q_of_u(model.posterior, A), strict=True
    ):
        np.testing.assert_allclose(ours, truth, rtol=1e-8, atol=1e-9)
    for f in (
        lambda m: fs.elbo(m, X, Y, jitter=JITTER),
        lambda m: fs.predict_f(m, X, full_cov=True, jitter=JITTER)[1],
    ):
        np.testing.assert_allclose(f(same), f(model), rtol=1e-8, atol=1e-8)
    again = fs.posteriors.convert(same, fs.Whitened, jitter=JITTER).posterior
    truth = fs.posteriors.convert(model, fs.Whitened, jitter=JITTER).posterior
    np.testing.assert_allclose(again.scale_tril, truth.scale_tril, rtol=1e-8, atol=1e-9)


def test_other_posteriors_are_not_converted(rng):
    model, X, Y = problem(rng)
    with pytest.raises(
        TypeError, match="convert: `kind` must be Whitened, .* or DualSites, got Relaxed"
    ):
        fs.posteriors.convert(model, fs.posteriors.Relaxed)
    with pytest.raises(TypeError, match="convert: `kind` must be .*, got Whitened"):
        fs.posteriors.convert(model, model.posterior)
    relaxed = fs.replace(model, posterior=fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M)))
    with pytest.raises(TypeError, match="convert: a Relaxed posterior cannot be converted"):
        fs.posteriors.convert(relaxed, fs.Whitened)
    for call in (fs.posteriors.convert, fs.sites.dual_parameters, fs.sites.leave_one_out):
        with pytest.raises(
            TypeError, match=f"{call.__name__}: `model` must be a fastsvgp.SVGP, got SGPR"
        ):
            call(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y)
    with pytest.raises(
        TypeError,
        match="leave_one_out: the sites do not determine the covariance of a Relaxed posterior",
    ):
        fs.sites.leave_one_out(relaxed, X, Y)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", list(EVERY))
def test_sites_of_gaussian_data_are_the_data(rng, name, P):
    """For any posterior: lambda1 = (y - mean function) / noise, lambda2 = 1 / noise."""
    model, X, Y = problem(rng, "whitened", P, mean=fs.means.ConstantMean(0.7))
    if name in ("WhitenedOrthogonal", "Orthogonal", "Decoupled", "DecoupledWeights"):
        model = fs.replace(
            model, inducing=fs.posteriors.InducingPair(model.inducing[:4], model.inducing[4:])
        )
    A = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M)
    model = fs.replace(model, posterior=EVERY[name].make(rng, A, () if P is None else (P,)))
    sites = fs.sites.dual_parameters(model, X, Y, jitter=JITTER)
    np.testing.assert_allclose(sites.lambda1, (Y.T - 0.7) / 0.3, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sites.lambda2, np.full(Y.T.shape, 1 / 0.3), rtol=1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [fs.likelihoods.BernoulliLogit(), fs.Poisson(), fs.StudentT(0.3, df=4.0)],
    ids=lambda v: type(v).__name__,
)
def test_the_optimum_is_the_prior_times_the_sites(rng, likelihood):
    model, X, Y = problem(rng, "absorbed-sites", likelihood=likelihood)
    targets = {"Poisson": np.abs(np.round(Y)), "BernoulliLogit": (Y > 0) * 1.0}
    Y = targets.get(type(likelihood).__name__, Y)
    model = fs.replace(
        model, posterior=fs.posteriors.AbsorbedDualSites(np.zeros(M), np.zeros((M, M)))
    )
    for _ in range(200):
        model, _ = fs.natural_step(model, X, Y, step_size=0.3, jitter=JITTER)
    sites = fs.sites.dual_parameters(model, X, Y, jitter=JITTER)
    A = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M)
    weights = np.linalg.solve(A, model.covariance.Kuf(model.inducing, X))
    np.testing.assert_allclose(
        model.posterior.lambda1, weights @ sites.lambda1, rtol=1e-6, atol=1e-7
    )
    np.testing.assert_allclose(
        model.posterior.lambda2, (weights * sites.lambda2) @ weights.T, rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("kind", TO, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "P, mean",
    [(None, None), (2, None), (None, fs.means.ConstantMean(0.7))],
    ids=["one", "two", "mean"],
)
def test_left_out_data_of_gaussian_noise_are_exact(rng, kind, P, mean):
    """Against the optimal q(u) of the other data, same inducing inputs and parameters."""
    model, X, Y = problem(rng, "whitened", P, mean=mean)
    best, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    found = fs.sites.leave_one_out(
        fs.posteriors.convert(best, kind, jitter=JITTER), X, Y, jitter=JITTER
    )
    assert found.shape == (N,)
    for i in (0, 7, N - 1):
        others = np.arange(N) != i
        without, _ = fs.natural_step(model, X[others], Y[others], step_size=1.0, jitter=JITTER)
        truth = fs.predict_log_density(without, X[i : i + 1], Y[i : i + 1], jitter=JITTER)
        np.testing.assert_allclose(found[i : i + 1], truth, rtol=1e-8, atol=1e-9)


def test_left_out_data_of_classes_are_near_refitting(rng):
    model, X, Y = problem(rng, "absorbed-sites", likelihood=fs.likelihoods.BernoulliLogit())
    Y = (Y + X[:, 0] > 0) * 1.0

    def fitted(X, Y):
        found = fs.replace(
            model, posterior=fs.posteriors.AbsorbedDualSites(np.zeros(M), np.zeros((M, M)))
        )
        for _ in range(60):
            found, _ = fs.natural_step(found, X, Y, step_size=0.5, jitter=JITTER)
        return found

    found, truth = fs.sites.leave_one_out(fitted(X, Y), X, Y, jitter=JITTER), np.empty(N)
    for i in range(N):
        others = np.arange(N) != i
        truth[i] = fs.predict_log_density(
            fitted(X[others], Y[others]), X[i : i + 1], Y[i : i + 1], jitter=JITTER
        )[0]
    assert abs(np.mean(found - truth)) < 2e-3 and np.abs(found - truth).max() < 0.05


def test_a_site_stronger_than_q_is_refused(rng):
    """Far from the optimum a site can be stronger than q."""
    model, X, Y = problem(rng)
    tight = fs.replace(model, posterior=fs.Whitened(np.zeros(M), 10 * lower_factor(rng, M)))
    with pytest.raises(
        ValueError,
        match="leave_one_out: without datum 0 its marginal would have no positive variance",
    ):
        fs.sites.leave_one_out(fs.records.replace_at(tight, "likelihood.variance", 1e-6), X, Y)
