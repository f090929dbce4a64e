"""New rows in a trained model, against all rows at once."""

import numpy as np
import pytest
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs

KINDS = [fs.Whitened, fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites]
N, M, NOISE = 90, 9, 0.05
FEW_DIGITS = {fs.posteriors.DualSites: 1e-8}


def problem(rng, P=None, mean=None):
    X = rng.uniform(-2, 2, (N, 2))
    F = np.sin(2 * X[:, 0]) * X[:, 1]
    Y = F + 0.2 * rng.standard_normal(N) if P is None else F[:, None] * [1, -0.5, 2][:P]
    covariance, Z = fs.RBF(1.2, np.array([0.8, 1.1])), fs.inducing.kmeans(X, M, rng=0)
    return fs.SGPR(covariance, Z, NOISE, mean), X, Y


def untrained(sgpr, kind=fs.Whitened, likelihood=None, batch=()):
    P = batch[0] if batch else None
    q = fs.posteriors.at_prior(kind, sgpr.covariance, sgpr.inducing, outputs=P)
    likelihood = likelihood or fs.Gaussian(NOISE)
    return fs.SVGP(sgpr.covariance, sgpr.inducing, q, likelihood, sgpr.mean)


def in_turn(model, X, Y, parts, **options):
    for rows in parts:
        more = {name: value[rows] for name, value in options.items()}
        model = fs.condition(model, X[rows], Y[rows], **more)
    return model


def assert_same(ours, truth, Xs, tolerance=1e-10):
    for one, other in zip(fs.predict_f(ours, Xs), fs.predict_f(truth, Xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_gaussian_rows_are_exact_in_any_order_and_batches(rng, kind, P):
    sgpr, X, Y = problem(rng, P, fs.means.ConstantMean(0.3))
    best = fs.optimal_svgp(sgpr, X, Y)
    start = untrained(sgpr, kind, batch=() if P is None else (P,))
    parts, Xs = np.array_split(rng.permutation(N), 7), rng.uniform(-2, 2, (20, 2))
    for order in (parts, parts[::-1], [parts[i] for i in (3, 6, 0, 1, 5, 2, 4)]):
        ours = in_turn(start, X, Y, order)
        assert type(ours.posterior) is kind
        assert_same(ours, best, Xs, FEW_DIGITS.get(kind, 1e-10))


def test_single_rows(rng):
    sgpr, X, Y = problem(rng)
    ours = in_turn(untrained(sgpr), X, Y, [slice(i, i + 1) for i in range(N)])
    assert_same(ours, fs.optimal_svgp(sgpr, X, Y), X)


def test_weights_multiply_precisions(rng):
    sgpr, X, Y = problem(rng)
    w = rng.uniform(0, 2, N)
    w[:5], Y[:5] = 0, np.nan
    parts = np.array_split(rng.permutation(N), 3)
    ours = in_turn(untrained(sgpr), X, Y, parts, weights=w)
    assert_same(ours, fs.optimal_svgp(sgpr, X, Y, weights=w), X)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", ["whitened", "marginal", "absorbed-sites", "dual-sites"])
def test_any_gaussian_q_is_a_prior(rng, name, P):
    """Against the dense formula on u; covariances of q larger than the prior's too."""
    covariance, Z = fs.Matern52(1.1, np.array([0.9, 1.4])), rng.uniform(-2, 2, (5, 2))
    batch = () if P is None else (P,)
    K = covariance.Kuu(Z) + JITTER * np.eye(5)
    model = fs.SVGP(covariance, Z, EVERY[name].make(rng, K, batch), fs.Gaussian(0.3))
    X, Y = rng.uniform(-2, 2, (7, 2)), rng.standard_normal((7, *batch))
    ours = fs.condition(model, X, Y, jitter=JITTER)
    A = np.linalg.solve(K, covariance.Kuf(Z, X)).T  # f = A u + noise of the prior
    q = fs.posteriors.convert(model, fs.Marginal, jitter=JITTER).posterior
    new = fs.posteriors.convert(ours, fs.Marginal, jitter=JITTER).posterior
    for p in np.ndindex(batch):
        W = np.tril(q.scale_tril[p])
        precision = np.linalg.inv(W @ W.T)
        S = np.linalg.inv(precision + A.T @ A / 0.3)
        y = Y[(slice(None), *p)]
        m = S @ (precision @ q.mean[p] + A.T @ y / 0.3)
        np.testing.assert_allclose(new.mean[p], m, rtol=1e-6, atol=1e-7)
        W = np.tril(new.scale_tril[p])
        np.testing.assert_allclose(W @ W.T, S, rtol=1e-6, atol=1e-7)


LIKELIHOODS = {
    "bernoulli": (fs.likelihoods.BernoulliLogit(), lambda rng, F: (F > 0).astype(float), 1.0),
    "poisson": (fs.Poisson(), lambda rng, F: rng.poisson(np.exp(F)).astype(float), 0.7),
    "student": (fs.StudentT(0.05, df=4.0), lambda rng, F: F + 0.2 * rng.standard_t(4, len(F)), 0.3),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_batch_of_other_likelihoods_is_the_optimum(rng, name):
    """The fixed point is that of natural steps, so also of their bound."""
    sgpr, X, _ = problem(rng)
    likelihood, targets, size = LIKELIHOODS[name]
    Y = targets(rng, np.sin(2 * X[:, 0]) * X[:, 1])
    ours = fs.condition(untrained(sgpr, likelihood=likelihood), X, Y)
    _, grad = fs.elbo_and_grad(ours, X, Y, wrt=("posterior",))
    assert abs(grad.posterior.mean).max() < 1e-6 and abs(grad.posterior.scale_tril).max() < 1e-6
    steps = untrained(sgpr, likelihood=likelihood)
    for _ in range(60):
        steps, _ = fs.natural_step(steps, X, Y, step_size=size)
    assert fs.elbo(ours, X, Y) >= fs.elbo(steps, X, Y) - 1e-7
    parts = in_turn(untrained(sgpr, likelihood=likelihood), X, Y, np.array_split(np.arange(N), 3))
    assert fs.elbo(ours, X, Y) - 15 < fs.elbo(parts, X, Y) < fs.elbo(ours, X, Y)


def test_a_single_count_takes_few_steps(rng, monkeypatch):
    """Rounding of the divergence does not keep the steps going, or turn them back."""
    sgpr, X, Y = problem(rng)
    old = fs.replace(fs.optimal_svgp(sgpr, X[:60], Y[:60]), likelihood=fs.Poisson())
    monkeypatch.setattr("fastsvgp.conditioning.new_rows.MAX_STEPS", 12)
    counts = rng.poisson(np.exp(Y)).astype(float)
    for i in range(60, N):
        old = fs.condition(old, X[i : i + 1], counts[i : i + 1])


def test_sites_that_still_move_are_reported(rng, monkeypatch):
    sgpr, X, Y = problem(rng)
    monkeypatch.setattr("fastsvgp.conditioning.new_rows.MAX_STEPS", 1)
    start = untrained(sgpr, likelihood=fs.StudentT(0.05, df=4.0))
    with pytest.warns(RuntimeWarning, match="condition: .* still move after 1 steps"):
        fs.condition(start, X, Y)


def test_classes(rng):
    sgpr, X, _ = problem(rng)
    Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    start = untrained(sgpr, likelihood=fs.Softmax(3), batch=(3,))
    ours = fs.condition(start, X, Y)
    assert (fs.predict_f(ours, X)[0].argmax(1) == Y).mean() > 0.8
    assert fs.elbo(ours, X, Y) > fs.elbo(start, X, Y) + 20


def test_multi_gp_with_one_latent_per_output(rng):
    sgpr, X, Y = problem(rng, 2)
    slow = fs.RBF(1.0, np.array([1.5, 1.5]))
    parts = [(sgpr.covariance, sgpr.inducing), (slow, sgpr.inducing[:6])]
    layers = tuple(
        fs.layers.Layer(k, Z, fs.posteriors.at_prior(fs.Whitened, k, Z)) for k, Z in parts
    )
    model = in_turn(fs.MultiGP(layers, fs.Gaussian(NOISE)), X, Y, np.array_split(np.arange(N), 3))
    mean, var = fs.predict_f(model, X)
    for p, (k, Z) in enumerate(parts):
        best = fs.optimal_svgp(fs.SGPR(k, Z, NOISE), X, Y[:, p])
        for ours, truth in zip((mean, var), fs.predict_f(best, X), strict=True):
            np.testing.assert_allclose(ours[:, p], truth, rtol=1e-10, atol=1e-10)
    mixed = fs.replace(model, mixing=np.eye(2))
    with pytest.raises(TypeError, match="condition: a MultiGP with a `mixing` .* or fs.fit"):
        fs.condition(mixed, X, Y)
    with pytest.raises(TypeError, match="inducing"):
        fs.condition(model, X, Y, inducing=sgpr.inducing)


def test_float32(rng):
    sgpr, X, Y = problem(rng)
    single = lambda tree: fs.records.tree_map(lambda v: np.asarray(v, np.float32)[()], tree)  # noqa: E731
    start, X32, Y32 = single(untrained(sgpr)), X.astype(np.float32), Y.astype(np.float32)
    ours = in_turn(start, X32, Y32, np.array_split(np.arange(N), 4))
    assert ours.posterior.mean.dtype == np.float32
    assert_same(ours, fs.optimal_svgp(sgpr, X, Y, jitter=1e-4), X32, 5e-3)
    counts = rng.poisson(np.exp(np.sin(X[:, 0]))).astype(np.float32)
    assert fs.condition(fs.replace(start, likelihood=fs.Poisson()), X32, counts)


def test_the_given_model_and_its_file_stay(rng, tmp_path):
    sgpr, X, Y = problem(rng)
    old = fs.optimal_svgp(sgpr, X[:50], Y[:50])
    before = old.posterior.mean.copy()
    new = fs.condition(old, X[50:], Y[50:])
    np.testing.assert_array_equal(old.posterior.mean, before)
    fs.save(tmp_path / "model.npz", new)
    assert_same(fs.load(tmp_path / "model.npz"), new, X, 0)


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.__name__)
def test_more_inducing_inputs_keep_what_is_known(rng, kind):
    """With all rows of the model in the new set, the old predictions are those of before."""
    sgpr, X, Y = problem(rng)
    old = fs.posteriors.convert(fs.optimal_svgp(sgpr, X[:50], Y[:50]), kind)
    more = np.concatenate([X[:4], sgpr.inducing, X[50:54]])
    untold = fs.condition(old, X[:1], Y[:1], weights=[1e-14], inducing=more)
    assert_same(untold, old, X, 1e-7)
    ours = fs.condition(old, X[50:], Y[50:], inducing=more)
    # conditioning of the old process on rows at inducing inputs of their own is exact
    rows = fs.condition(old, X[50:54], Y[50:54], inducing=more)
    mean, cov = fs.predict_f(old, np.concatenate([X[60:], X[50:54]]), full_cov=True)
    n, C = len(X[60:]), cov[-4:, -4:] + NOISE * np.eye(4)
    truth = mean[:n] + cov[:n, n:] @ np.linalg.solve(C, Y[50:54] - mean[n:])
    np.testing.assert_allclose(fs.predict_f(rows, X[60:])[0], truth, atol=1e-4)
    assert fs.predict_f(ours, X)[1].mean() < fs.predict_f(old, X)[1].mean()


def test_left_out_inducing_inputs_are_reported(rng):
    sgpr, X, Y = problem(rng)
    old = fs.optimal_svgp(sgpr, X[:50], Y[:50])
    with pytest.warns(UserWarning, match="condition: `inducing` leaves out .* forgets"):
        fs.condition(old, X[50:], Y[50:], inducing=np.concatenate([sgpr.inducing[:5], X[50:55]]))


def test_bad_input(rng):
    sgpr, X, Y = problem(rng)
    model = untrained(sgpr)
    relaxed = fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M))
    cases = [
        (lambda: fs.condition(sgpr, X, Y), TypeError, "condition: .*got SGPR: .*optimal_svgp"),
        (
            lambda: fs.condition(fs.replace(model, posterior=relaxed), X, Y),
            TypeError,
            "condition: a Relaxed posterior cannot hold sites of new rows; .*convert",
        ),
        (lambda: fs.condition(model, X[:, :1], Y), ValueError, "X"),
        (lambda: fs.condition(model, X, Y[:-1]), ValueError, "Y"),
        (lambda: fs.condition(model, X, np.where(Y > 0, Y, np.nan)), ValueError, "`?Y"),
        (lambda: fs.condition(model, X, Y, weights=-np.ones(N)), ValueError, "weights"),
        (lambda: fs.condition(model, X, Y, jitter=-1.0), ValueError, "jitter"),
        (lambda: fs.condition(model, X, Y, inducing=X[:, :1]), ValueError, "inducing"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()


def test_a_deep_gp_is_refused_with_the_way_out(rng):
    sgpr, X, Y = problem(rng)
    deep = fs.layers.deep_gp(X, fs.Gaussian(NOISE), 2, 5, rng=0)
    with pytest.raises(TypeError, match="condition: .*got DeepGP: fs.fit .* old and new rows"):
        fs.condition(deep, X, Y)
