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


def single(tree):
    return fs.records.tree_map(lambda v: np.asarray(v, np.float32)[()], tree)


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


def test_each_model_of_a_mixture_takes_the_rows(rng):
    sgpr, X, Y = problem(rng)
    other = fs.replace(sgpr, noise_variance=0.3)
    first, rest = slice(0, 20), slice(20, None)
    parts = [fs.optimal_svgp(one, X[first], Y[first], jitter=JITTER) for one in (sgpr, other)]
    both = fs.condition(fs.Mixture(parts, shares=(0.3, 0.7)), X[rest], Y[rest], jitter=JITTER)
    assert type(both) is fs.Mixture and both.shares == (0.3, 0.7)
    for ours, one in zip(both.models, (sgpr, other), strict=True):
        assert_same(ours, fs.optimal_svgp(one, X, Y, jitter=JITTER), X[:5])


def test_float32(rng):
    sgpr, X, Y = problem(rng)
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
    assert fs.predict_f(ours := fs.condition(old, X[50:], Y[50:], inducing=more), X)[1].mean() < (
        fs.predict_f(old, X)[1].mean()
    )
    assert type(ours.posterior) is kind


def dense_move(model, Z, X, Y, precisions, jitter):
    """Moments of u at Z after rows X of a model with a Marginal q: formulas on u, by inverses.

    The old q(u) is its prior times a site in u_old = P u, P = K(Z_old, Z) K(Z, Z)^-1 (Bui et al.);
    an inducing input that stays is one variable, jitter included.
    """
    old, k, q = model.inducing, model.covariance, model.posterior
    K_old = k.Kuu(old) + jitter * np.eye(len(old))
    K = k.Kuu(Z) + jitter * np.eye(len(Z))
    cross = k.Kuf(old, Z) + jitter * (old[:, None] == Z[None]).all(-1)
    W = np.tril(q.scale_tril)
    S_inverse = np.linalg.inv(W @ W.T)
    P, A = cross @ np.linalg.inv(K), np.linalg.solve(K, k.Kuf(Z, X)).T
    precision = np.linalg.inv(K) + P.T @ (S_inverse - np.linalg.inv(K_old)) @ P
    S = np.linalg.inv(precision + A.T * precisions @ A)
    return S @ (P.T @ S_inverse @ q.mean + A.T @ (precisions * Y)), S


@pytest.mark.parametrize("leaving", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_other_inducing_inputs_are_those_of_the_dense_formula(rng, kind, weighted, leaving):
    Z = np.stack(np.meshgrid([-2.0, 0, 2], [-1.5, 1.5]), -1).reshape(-1, 2)
    Z += rng.uniform(-0.3, 0.3, Z.shape)
    new = Z[::-1][: len(Z) - leaving], rng.uniform(-0.3, 0.3, (2, 2)) + [[3.6, 0], [-3.6, 0]]
    sgpr = fs.SGPR(fs.Matern52(1.1, np.array([0.9, 1.4])), Z, NOISE)
    X, Y = rng.uniform(-2, 2, (30, 2)), rng.standard_normal(30)
    w = rng.uniform(0.2, 2, 10) if weighted else np.ones(10)
    old = fs.optimal_svgp(sgpr, X[:20], Y[:20], jitter=JITTER)
    old = fs.posteriors.convert(old, kind, jitter=JITTER)
    options = dict(weights=w if weighted else None, inducing=np.concatenate(new), jitter=JITTER)
    given = old, X[20:], Y[20:]
    if leaving:
        with pytest.warns(UserWarning, match="condition: `inducing` leaves out"):
            ours = fs.condition(*given, **options)
    else:
        ours = fs.condition(*given, **options)
    marginal = lambda model: fs.posteriors.convert(model, fs.Marginal, jitter=JITTER)  # noqa: E731
    mean, S = dense_move(marginal(old), options["inducing"], X[20:], Y[20:], w / NOISE, JITTER)
    q = marginal(ours).posterior
    W = np.tril(q.scale_tril)
    np.testing.assert_allclose(q.mean, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(W @ W.T, S, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("P", [None, 2])
def test_inducing_inputs_added_with_each_batch_lose_nothing(rng, P):
    """Rows of Z are added, and put in another order, between batches: all rows at once."""
    sgpr, X, Y = problem(rng, P)
    start = untrained(sgpr, batch=() if P is None else (P,))
    whole = np.concatenate([sgpr.inducing, np.linspace(2.6, 3.4, 3)[:, None] * [1, 0.2]])
    parts = np.array_split(np.arange(N), 3)
    best = fs.optimal_svgp(fs.replace(sgpr, inducing=whole), X, Y)
    for first, second, third in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        model = fs.condition(start, X[parts[first]], Y[parts[first]], inducing=whole)
        model = fs.condition(model, X[parts[second]], Y[parts[second]])
        model = fs.condition(model, X[parts[third]], Y[parts[third]], inducing=whole[::-1])
        assert_same(model, best, X, 1e-10)
    np.testing.assert_array_equal(model.inducing, whole[::-1])


def test_float32_inducing_inputs(rng):
    sgpr, X, Y = problem(rng)
    ends = np.array([[2.75, 0], [-2.75, 0]], np.float32)
    old = single(fs.optimal_svgp(sgpr, X[:50], Y[:50], jitter=1e-4))
    wide = fs.records.tree_map(lambda v: np.asarray(v, float)[()], old)
    more = np.concatenate([old.inducing, ends])
    X32, Y32 = X.astype(np.float32), Y.astype(np.float32)
    ours = fs.condition(old, X32[50:], Y32[50:], inducing=more)
    assert ours.inducing.dtype == ours.posterior.scale_tril.dtype == np.float32
    truth = fs.condition(wide, X[50:], Y[50:], inducing=more.astype(float), jitter=1e-4)
    assert_same(ours, truth, X32, 5e-3)


def test_left_out_inducing_inputs_are_reported(rng):
    sgpr, X, Y = problem(rng)
    old = fs.optimal_svgp(sgpr, X[:50], Y[:50])
    with pytest.warns(UserWarning, match="condition: `inducing` leaves out .* forgets"):
        fs.condition(old, X[50:], Y[50:], inducing=np.concatenate([sgpr.inducing[:5], X[50:55]]))


def test_bad_input(rng):
    sgpr, X, Y = problem(rng)
    model = untrained(sgpr)
    network = fs.covariances.Network.random((2, 4, 2), rng=rng)
    mapped = fs.replace(model, covariance=fs.covariances.OnFeatures(sgpr.covariance, network))
    twice = np.concatenate([sgpr.inducing, sgpr.inducing[:1]])
    relaxed = fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M))
    cases = [
        (lambda: fs.condition(sgpr, X, Y), TypeError, "condition: .*got SGPR: .*optimal_svgp"),
        (
            lambda: fs.condition(fs.replace(model, posterior=relaxed), X, Y),
            TypeError,
            "condition: a Relaxed posterior cannot hold sites of new rows; .*convert",
        ),
        (
            lambda: fs.condition(model, X[:, :1], Y),
            ValueError,
            "`X` has 1 columns where `inducing` has 2",
        ),
        (lambda: fs.condition(model, X[:0], Y[:0]), ValueError, "`X` is an empty batch"),
        (
            lambda: fs.condition(model, X, Y[:-1]),
            ValueError,
            "`Y` must have one row for each of the 90",
        ),
        (
            lambda: fs.condition(model, X, np.where(Y > 0, Y, np.nan)),
            ValueError,
            "`Y` contains nan at index",
        ),
        (
            lambda: fs.condition(model, X, Y, weights=-np.ones(N)),
            ValueError,
            "`weights` must be zero or more, and finite; got -1",
        ),
        (
            lambda: fs.condition(model, X, Y, weights=np.zeros(N)),
            ValueError,
            "`weights` are all zero",
        ),
        (
            lambda: fs.condition(model, X, Y, weights=np.ones(3)),
            ValueError,
            r"`weights` must have shape \(90,\)",
        ),
        (
            lambda: fs.condition(model, X, Y, jitter=-1.0),
            ValueError,
            "`jitter` must be zero or positive, got -1",
        ),
        (
            lambda: fs.condition(model, X, Y, inducing=X[:, :1]),
            ValueError,
            "`inducing` has 1 columns where the model has 2",
        ),
        (
            lambda: fs.condition(model, X, Y, inducing=X[:0]),
            ValueError,
            "`inducing` is an empty batch",
        ),
        (
            lambda: fs.condition(model, X, Y, inducing=X[0]),
            ValueError,
            r"`inducing` must have shape \(N, D\), got \(2,\)",
        ),
        (
            lambda: fs.condition(model, X, Y, inducing=X * np.nan),
            ValueError,
            "`inducing` contains nan",
        ),
        (
            lambda: fs.condition(model, X, Y, inducing=twice, jitter=0),
            ValueError,
            r"`inducing\[9\]` and `inducing\[0\]` are the same",
        ),
        (
            lambda: fs.condition(mapped, X, Y, inducing=X),
            TypeError,
            "condition: inducing inputs of a OnFeatures covariance cannot change",
        ),
        (
            lambda: fs.condition(model, X, Y, indcing=X),
            TypeError,
            "condition has no option `indcing`; did you mean `inducing`",
        ),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()


def test_models_without_sites_are_refused_with_the_way_out(rng):
    sgpr, X, Y = problem(rng)
    best = fs.optimal_svgp(sgpr, X, Y)
    near = fs.neighbours(X, sgpr.covariance, 5, Y=Y)
    detailed = fs.VIF(best.covariance, best.inducing, best.posterior, best.likelihood, near=near)
    layer = fs.layers.Layer(sgpr.covariance, sgpr.inducing, best.posterior)
    several = fs.MultiGP((layer, layer), fs.Gaussian(NOISE))
    cases = [
        (fs.layers.deep_gp(X, fs.Gaussian(NOISE), 2, 5, rng=0), "DeepGP: fs.fit .* old and new"),
        (detailed, "VIF: fs.fit .* old and new rows"),
        (fs.predictor(best), "a predictor only predicts; give the model that it was made of"),
        (fs.predictor(several), "a predictor only predicts; give the model that it was made of"),
    ]
    for model, message in cases:
        with pytest.raises(TypeError, match=f"condition: .*{message}"):
            fs.condition(model, X, Y)
