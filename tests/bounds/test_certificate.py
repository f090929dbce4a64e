"""The evidence of the exact process is between the bounds of ``fs.certificate``."""

import numpy as np
import pytest
from oracles import certificate as dense, covariances
from oracles.linear_algebra import solve
from support import definitions
from support.rank_problems import on_ranks

import fastsvgp as fs
from fastsvgp.collapsed import certificate as made

FAMILIES = fs.RBF, fs.Matern12, fs.Matern32, fs.Matern52
JITTER = 1e-6


def problem(rng, N=40, M=7, D=2, P=None, mean=None):
    X = rng.standard_normal((N, D))
    Y = np.sin(2 * X.sum(axis=1)) + 0.2 * rng.standard_normal(N)
    Y = Y if P is None else np.stack([Y + p * X[:, 0] for p in range(P)], axis=1)
    covariance = fs.Matern52(1.2, np.full(D, 1.1)) + fs.Linear(0.4)
    return fs.SGPR(covariance, rng.standard_normal((M, D)), 0.3, mean), X, Y


def matrices(model, X, jitter=JITTER):
    """Return Kff and Qff."""
    b = definitions.blocks(model.covariance, model.inducing, X, jitter)
    return covariances.matrix(model.covariance, X, X), b.Kuf.T @ solve(b.Kuu, b.Kuf)


def exact(model, X, Y, weights=None):
    """Return the evidence of the exact process, summed over outputs."""
    K = covariances.matrix(model.covariance, X, X)
    w = np.ones(len(X)) if weights is None else weights
    residuals = np.atleast_2d(Y.T) - definitions.prior_mean(model.mean, X)
    return sum(dense.evidence(K, y, float(model.noise_variance), w) for y in residuals)


def assert_between(found, value):
    slack = 1e-9 * (1 + abs(value))
    assert found.lower <= value + slack and value <= found.upper + slack
    assert found.lower <= found.upper


def never(*_):
    raise AssertionError("a product with Kff was made")


@pytest.mark.parametrize("part", range(4))
def test_the_exact_evidence_is_between_the_bounds(rng, part):
    """Two hundred models in all: with the product, without it, and by the tighter bound."""
    for trial in range(50):
        N, D, M = int(rng.integers(5, 70)), int(rng.integers(1, 4)), int(rng.integers(1, 40))
        X, w = rng.standard_normal((N, D)), None
        k = FAMILIES[part](float(rng.gamma(2, 1)) + 0.01, rng.gamma(3, 0.4, D) + 0.1)
        k = k + fs.Linear(0.3) if trial % 5 == 0 else k
        Z = X[:M] if trial % 7 == 0 else rng.standard_normal((M, D))
        model = fs.SGPR(k, Z, float(10 ** rng.uniform(-2, 0.5)))
        y = rng.standard_normal(N) * rng.gamma(2, 1)
        if trial % 3 == 0:
            w = rng.uniform(0.1, 3, N)
        value = exact(model, X, y, w)
        found = fs.certificate(model, X, y, weights=w)
        assert_between(found, value)
        assert_between(fs.certificate(model, X, y, weights=w, within=1e-12), value)
        assert found.lower == fs.collapsed_bound(model, X, y, weights=w)
        assert fs.bounds.tighter_bound(model, X, y, weights=w) <= found.upper + 1e-9 * abs(value)


@pytest.mark.parametrize("run", [7, 1024])
def test_both_bounds_follow_their_definition(rng, tune, run):
    tune(tighter_block_rows=run, collapsed_chunk_rows=run)
    model, X, y = problem(rng)
    w = rng.uniform(0.2, 2, len(X))
    K, Q = matrices(model, X)
    for weights, of_rows in ((None, np.ones(len(X))), (w, w)):
        found = fs.certificate(model, X, y, weights=weights)
        expected = dense.product_bound(K, Q, y, 0.3, of_rows)
        np.testing.assert_allclose(found.upper, expected, rtol=1e-9)
        assert found.num_data == pytest.approx(of_rows.sum())
        assert found.per_row == (found.upper - found.lower) / found.num_data
        cheap = fs.certificate(model, X, y, weights=weights, within=1e-12)
        np.testing.assert_allclose(cheap.upper, dense.titsias(K, Q, y, 0.3, of_rows), rtol=1e-9)
        assert cheap.lower == found.lower and found.upper < cheap.upper


def test_the_product_is_first_order_in_the_residual(rng):
    """With many inducing inputs the product bound is far nearer than that without a product."""
    X = np.linspace(0, 10, 200)[:, None]
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(200)
    model = fs.SGPR(fs.RBF(1.0, 0.7), np.linspace(0, 10, 14)[:, None], 0.1)
    value = exact(model, X, y)
    found, cheap = fs.certificate(model, X, y), fs.certificate(model, X, y, within=1e-12)
    assert found.upper - value < 0.2 * (cheap.upper - value)


@pytest.mark.parametrize("jitter", [0.0, 1e-8, 1e-4, 1e-2, 0.3])
def test_jitter_keeps_the_order(rng, jitter):
    model, X, y = problem(rng)
    found = fs.certificate(model, X, y, jitter=jitter)
    assert_between(found, exact(model, X, y))
    assert found.lower <= fs.certificate(model, X, y, jitter=0.0).lower


def test_all_rows_as_inducing_inputs_leave_no_gap(rng):
    model, X, y = problem(rng, N=20)
    found = fs.certificate(fs.replace(model, inducing=X), X, y, jitter=1e-10, within=1e-6)
    np.testing.assert_allclose([found.lower, found.upper], exact(model, X, y), rtol=1e-8)
    assert found.enough is True


def test_the_cheap_half_comes_first(rng, monkeypatch):
    """No product where the trace term is too large, or Titsias' interval narrow enough."""
    model, X, y = problem(rng)
    full = fs.certificate(model, X, y)
    cheap = fs.certificate(model, X, y, within=1e-12)
    with monkeypatch.context() as patched:
        patched.setattr(made, "_products", never)
        with pytest.raises(AssertionError, match="a product"):
            fs.certificate(model, X, y)
        assert fs.certificate(model, X, y, within=1e-12).enough is False
        assert fs.certificate(model, X, y, within=1.001 * cheap.per_row).enough is True
        with pytest.raises(AssertionError, match="a product"):
            fs.certificate(model, X, y, within=0.5 * (cheap.per_row + full.per_row))
    assert fs.certificate(model, X, y, within=1.001 * full.per_row).enough is True
    K, Q = matrices(model, X)
    assert full.upper - full.lower >= np.trace(K - Q) / (2 * 0.3) > 0


def test_whole_weights_are_repeated_rows(rng):
    """A row of weight 0 has no target."""
    model, X, Y = problem(rng, P=2, mean=fs.means.LinearMean(np.ones(2), 0.3))
    whole = rng.permutation(np.arange(len(X)) % 4)
    rows = np.repeat(np.arange(len(X)), whole)
    Y[whole == 0] = np.nan
    found = fs.certificate(model, X, Y, weights=whole)
    repeated = fs.certificate(model, X[rows], Y[rows])
    np.testing.assert_allclose(found.lower, repeated.lower, rtol=1e-10)
    np.testing.assert_allclose(found.upper, repeated.upper, rtol=1e-10)
    assert found.num_data == repeated.num_data


def test_outputs_and_mean_functions(rng):
    mean = fs.means.LinearMean(np.array([0.4, -1.0]), 0.3)
    model, X, Y = problem(rng, P=3, mean=mean)
    found = fs.certificate(model, X, Y)
    assert_between(found, exact(model, X, Y))
    alone = [fs.certificate(model, X, y) for y in Y.T]
    np.testing.assert_allclose(found.upper, sum(one.upper for one in alone), rtol=1e-12)
    assert found.num_data == len(X)
    bare = fs.certificate(fs.replace(model, mean=None), X, Y - mean(X)[:, None])
    np.testing.assert_allclose(bare.upper, found.upper, rtol=1e-12)
    zero = fs.certificate(fs.replace(model, mean=None), X, np.zeros_like(Y))
    assert zero.lower < zero.upper < np.inf


def test_float32_is_certified_in_float64(rng):
    model, X, Y = problem(rng)
    small, X, Y = fs.records.tree_map(np.float32, model), X.astype("f4"), Y.astype("f4")
    found = fs.certificate(small, X, Y)
    wide = fs.records.tree_map(lambda leaf: np.asarray(leaf, float), small)
    again = fs.certificate(wide, X.astype(float), Y.astype(float))
    assert (found.lower, found.upper) == (again.lower, again.upper)
    assert_between(found, exact(wide, X.astype(float), Y.astype(float)))


@pytest.mark.parametrize("rows", ["all", "own"])
def test_ranks_share_the_product(rng, tune, rows):
    tune(tighter_block_rows=5)
    model, X, Y = problem(rng, P=2, mean=fs.means.ConstantMean(0.3))
    w = rng.uniform(0.2, 2, len(X))
    for weights in (None, w):
        for within in (None, 1e-12):
            alone = fs.certificate(model, X, Y, weights=weights, within=within)

            def work(group, weights=weights, within=within):
                own = np.array_split(np.arange(len(X)), [5, 21])[group.rank]
                ours = own if rows == "own" else slice(None)
                more = {} if weights is None else {"weights": weights[ours]}
                return fs.certificate(model, X[ours], Y[ours], within=within, group=group, **more)

            for found in on_ranks(3, work, rows):
                np.testing.assert_allclose(found.lower, alone.lower, rtol=1e-12)
                np.testing.assert_allclose(found.upper, alone.upper, rtol=1e-12)
                assert found.num_data == pytest.approx(alone.num_data)


def test_an_svgp_counts_as_its_sgpr(rng):
    model, X, y = problem(rng, mean=fs.means.ConstantMean(0.2))
    best = fs.optimal_svgp(model, X, y)
    far = fs.replace(best, posterior=fs.posteriors.at_prior(fs.Whitened, model.covariance, X[:7]))
    for one in (best, far):
        assert fs.certificate(one, X, y, within=0.5) == fs.certificate(model, X, y, within=0.5)
    Z, O = X[:7], X[7:12]  # noqa: E741
    pair = fs.posteriors.InducingPair(Z, O)
    q = fs.posteriors.at_prior(fs.posteriors.WhitenedOrthogonal, model.covariance, pair)
    two = fs.SVGP(model.covariance, pair, q, fs.Gaussian(0.3), model.mean)
    found = fs.certificate(two, X, y)
    assert found == fs.certificate(fs.replace(model, inducing=X[:12]), X, y)
    assert fs.elbo(two, X, y) <= found.lower


# --- predictions ----------------------------------------------------------------------------------


def assert_moments_inside(model, X, Y, Xs, weights=None, **options):
    """Compare with the exact process on dense matrices; return the widest relative interval."""
    w = np.ones(len(X)) if weights is None else weights
    more = {} if weights is None else {"weights": weights}
    lower, upper = fs.bounds.moment_interval(model, X, Y, Xs, **more, **options)
    K, k = (covariances.matrix(model.covariance, X, other) for other in (X, Xs))
    by_k = solve(K + np.diag(float(model.noise_variance) / w), k)
    residuals = Y.T - definitions.prior_mean(model.mean, X)
    mean = (residuals @ by_k + definitions.prior_mean(model.mean, Xs)).T.reshape(lower.mean.shape)
    prior = covariances.matrix(model.covariance, Xs, Xs).diagonal()
    var, slack = prior - (k * by_k).sum(axis=0), 1e-8
    assert (lower.mean <= mean + slack).all() and (mean <= upper.mean + slack).all()
    assert (lower.var <= var + slack).all() and (var <= upper.var + slack).all()
    assert (lower.var >= 0).all() and (upper.var <= prior).all()
    return np.max(upper.mean - lower.mean), np.max(upper.var - lower.var)


def test_moments_of_the_exact_process_are_inside_their_intervals(rng):
    for trial in range(60):
        N, D, M = int(rng.integers(5, 60)), int(rng.integers(1, 4)), int(rng.integers(1, 40))
        X = rng.standard_normal((N, D))
        k = FAMILIES[trial % 4](float(rng.gamma(2, 1)) + 0.01, rng.gamma(3, 0.4, D) + 0.1)
        Z = X[:M] if trial % 7 == 0 else rng.standard_normal((M, D))
        model = fs.SGPR(k, Z, float(10 ** rng.uniform(-2, 0.5)))
        w = rng.uniform(0.1, 3, N) if trial % 3 == 0 else None
        y = rng.standard_normal(N) * rng.gamma(2, 1)
        assert_moments_inside(model, X, y, rng.standard_normal((6, D)), w)


def test_intervals_of_outputs_with_a_mean_and_of_an_svgp(rng):
    model, X, Y = problem(rng, P=3, mean=fs.means.LinearMean(np.array([0.4, -1.0]), 0.3))
    Xs = rng.standard_normal((9, 2))
    assert_moments_inside(model, X, Y, Xs)
    of_sgpr = fs.bounds.moment_interval(model, X, Y, Xs)
    of_svgp = fs.bounds.moment_interval(fs.optimal_svgp(model, X, Y), X, Y, Xs)
    for one, other in zip(of_sgpr, of_svgp, strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)
    off, spread = assert_moments_inside(fs.replace(model, inducing=X), X, Y, Xs, jitter=1e-9)
    assert off < 1e-3 and spread < 1e-3


def test_bad_input_of_intervals(rng):
    model, X, y = problem(rng)
    with pytest.raises(ValueError, match="`Xs`"):
        fs.bounds.moment_interval(model, X, y, X[:, :1])
    with pytest.raises(ValueError, match="`Xs`"):
        fs.bounds.moment_interval(model, X, y, np.full((2, 2), np.nan))
    counts = fs.replace(fs.optimal_svgp(model, X, y), likelihood=fs.Poisson())
    with pytest.raises(TypeError, match="moment_interval: none is known for Poisson; one is for"):
        fs.bounds.moment_interval(counts, X, np.round(y**2), X)


# --- Poisson, Exponential and Gamma by duality ----------------------------------------------------

LOG_LINK = {
    "Poisson": fs.Poisson(exposure=1.5),
    "Exponential": fs.likelihoods.Exponential(),
    "Gamma": fs.likelihoods.Gamma(shape=2.5),
}


def trained(model, X, Y, **options):
    for _ in range(40):
        model, _ = fs.natural_step(model, X, Y, step_size=0.7, **options)
    return model


def with_log_link(rng, name, M, N=30, P=None):
    X = rng.uniform(0, 4, (N, 1))
    f = 0.5 + np.sin(2 * X[:, 0]) if P is None else 0.5 + np.sin(X + np.arange(P))
    Y = rng.poisson(np.exp(f)).astype(float) + (name != "Poisson")
    k, Z = fs.RBF(1.0, np.array([0.9])), np.linspace(0, 4, M)[:, None]
    q = fs.posteriors.at_prior(fs.Whitened, k, Z, outputs=P)
    return fs.SVGP(k, Z, q, LOG_LINK[name], fs.means.ConstantMean(0.4)), X, Y


def full_vgp(model, X, Y, **options):
    """Return the largest bound with all rows as inducing inputs."""
    P = None if Y.ndim == 1 else Y.shape[1]
    q = fs.posteriors.at_prior(fs.Whitened, model.covariance, X, outputs=P)
    full = trained(fs.replace(model, inducing=X, posterior=q), X, Y, jitter=1e-9, **options)
    return fs.elbo(full, X, Y, jitter=1e-9, **options)


@pytest.mark.parametrize("name", LOG_LINK)
def test_the_full_bound_is_between(rng, name):
    for M, width in ((4, np.inf), (9, 0.01), (14, 1e-4)):
        model, X, Y = with_log_link(rng, name, M)
        best, full = full_vgp(model, X, Y), trained(model, X, Y)
        # any q gives a bound from above
        for one in (model, trained(model, X, Y), full):
            assert_between(fs.certificate(one, X, Y), best - 1e-6)
        found = fs.certificate(full, X, Y, within=0.5)
        assert found.per_row < width and found.lower == fs.elbo(full, X, Y)
        assert found.enough == (found.per_row <= 0.5)


@pytest.mark.parametrize("name", LOG_LINK)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_dual_follows_its_definition(rng, name, weighted):
    model, X, Y = with_log_link(rng, name, 6)
    model = trained(model, X, Y)
    w = rng.uniform(0.2, 2, len(X)) if weighted else np.ones(len(X))
    K, Q = matrices(model, X)
    mean, var = fs.predict_f(model, X)
    marginals = fs.records.Marginals(mean, var)
    ell, bars, _ = model.likelihood.expected_log_prob(Y[None][0], marginals, weights=w)
    expected = dense.by_duality(K, Q, 0.4, ell, (bars.mean, bars.var), mean, var)
    found = fs.certificate(model, X, Y, weights=w if weighted else None)
    np.testing.assert_allclose(found.upper, expected, rtol=1e-9)
    assert found.num_data == pytest.approx(w.sum())


def test_the_dual_of_several_outputs_and_weights(rng, tune):
    tune(bound_chunk_numbers=30, bound_chunk_columns=8)
    model, X, Y = with_log_link(rng, "Poisson", 9, P=2)
    model, w = trained(model, X, Y), rng.uniform(0.5, 2, Y.shape)
    found = fs.certificate(model, X, Y)
    parts = []
    for p in range(2):
        q = fs.Whitened(model.posterior.mean[p], model.posterior.scale_tril[p])
        parts.append(fs.certificate(fs.replace(model, posterior=q), X, Y[:, p]))
    np.testing.assert_allclose(found.upper, sum(one.upper for one in parts), rtol=1e-12)
    np.testing.assert_allclose(found.lower, sum(one.lower for one in parts), rtol=1e-12)
    assert found.num_data == len(X)
    assert_between(fs.certificate(model, X, Y, weights=w), full_vgp(model, X, Y, weights=w))
    assert fs.certificate(model, X, Y, weights=w).num_data == pytest.approx(w.sum() / 2)


def test_an_exposure_for_each_row(rng):
    model, X, Y = with_log_link(rng, "Poisson", 9)
    column = fs.replace(model, likelihood=fs.Poisson(exposure="column"))
    same = fs.certificate(model, X, Y), fs.certificate(column, X, np.stack([Y, 0 * Y + 1.5], 1))
    np.testing.assert_allclose(same[0].upper, same[1].upper, rtol=1e-12)


# --- arguments ------------------------------------------------------------------------------------


def test_bad_input(rng):
    model, X, y = problem(rng)
    svgp = fs.optimal_svgp(model, X, y)
    probit = fs.replace(svgp, likelihood=fs.BernoulliProbit())
    with pytest.raises(TypeError, match="none is known for BernoulliProbit; one is for Gaussian"):
        fs.certificate(probit, X, y > 0)
    known = fs.replace(svgp, likelihood=fs.likelihoods.KnownNoise())
    with pytest.raises(TypeError, match="none is known for KnownNoise"):
        fs.certificate(known, X, np.stack([y, y**2 + 1], axis=1))
    counts = fs.replace(svgp, likelihood=fs.Poisson())
    with pytest.raises(ValueError, match="with Poisson it is for one process; leave `group` out"):
        fs.certificate(counts, X, np.round(y**2), group=fs.distributed.threads(1))
    with pytest.raises(ValueError, match="Poisson targets are|`Y`"):
        fs.certificate(counts, X, y)
    with pytest.raises(TypeError, match="`model` must be a fastsvgp.SGPR or SVGP"):
        fs.certificate(model.covariance, X, y)
    for within in (0, -0.1):
        for one in (model, counts):
            with pytest.raises(ValueError, match="`within` must be above 0, got .*nats a row"):
                fs.certificate(one, X, np.round(y**2), within=within)
    with pytest.raises(TypeError, match="`within` must be a number"):
        fs.certificate(model, X, y, within="0.1")
    with pytest.raises(ValueError, match="`within` must be finite"):
        fs.certificate(model, X, y, within=np.nan)
    with pytest.raises(ValueError, match="`Y` must be"):
        fs.certificate(model, X, y[:-1])
    with pytest.raises(ValueError, match=r"`X` has .*(nan|NaN)|`X`"):
        fs.certificate(model, np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="`weights` must be zero or more"):
        fs.certificate(model, X, y, weights=-np.ones(len(X)))


def test_its_text(rng):
    model, X, y = problem(rng)
    text = repr(fs.certificate(model, X, y, within=0.5))
    assert text.startswith("Certificate(lower=-") and "per_row=" in text and "enough=" in text
    assert fs.certificate(model, X, y).enough is None
