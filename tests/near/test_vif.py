"""A VIF: near rows make the bound exact where they are all earlier rows, and FITC where none."""

import numpy as np
import pytest
from support.rows import nearest_earlier

import fastsvgp as fs
from fastsvgp.near.index import Nearest, earlier_rows
from fastsvgp.near.record import follow
from fastsvgp.records import leaves

N, M, NOISE = 48, 6, 0.05


@pytest.fixture
def problem():
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(N)
    return fs.Matern32(1.3, np.array([0.9, 1.2])), X, Y, X[:M] + 0.01


def vif(problem, k, q=None, mean=None, dtype=np.float64):
    covariance, X, Y, Z = problem
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z) if q is None else q
    model = fs.VIF(covariance, Z, q, fs.Gaussian(NOISE), mean)
    if dtype is np.float32:
        model = fs.records.tree_map(np.float32, model)
    return fs.replace(model, near=fs.neighbours(X, covariance, k, Y=Y))


def any_q(outputs=()):
    rng = np.random.default_rng(1)
    tril = np.tril(0.2 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    return fs.Whitened(rng.standard_normal((*outputs, M)), tril)


def evidence(K, y):
    _, log_det = np.linalg.slogdet(K)
    return -0.5 * (len(y) * np.log(2 * np.pi) + log_det + y @ np.linalg.solve(K, y))


def test_all_earlier_rows_give_the_exact_process(problem):
    covariance, X, Y, Z = problem
    model, _ = fs.natural_step(vif(problem, N - 1), X, Y, step_size=1.0)
    K = covariance.matrix(X) + NOISE * np.eye(N)
    assert fs.elbo(model, X, Y) == pytest.approx(evidence(K, Y), abs=1e-8)
    # N - 1 of N rows are near at a test input, so these are all rows but the farthest
    Xs = np.array([[0.3, -0.4], [1.0, 1.5]])
    k = covariance.matrix(X, Xs)
    mean, var = fs.predict_f(model, Xs)
    np.testing.assert_allclose(mean, k.T @ np.linalg.solve(K, Y), atol=1e-4)
    exact = covariance.matrix(Xs) - k.T @ np.linalg.solve(K, k)
    np.testing.assert_allclose(var, np.diag(exact), atol=1e-6)
    mean, cov = fs.predict_f(model, Xs, full_cov=True)  # near rows of either are all rows
    np.testing.assert_allclose(mean, k.T @ np.linalg.solve(K, Y), atol=1e-8)
    np.testing.assert_allclose(cov, exact, atol=1e-8)


def test_no_near_rows_are_fitc(problem):
    covariance, X, Y, Z = problem
    model, _ = fs.natural_step(vif(problem, 0), X, Y, step_size=1.0)
    Kuf = covariance.matrix(Z, X)
    Q = Kuf.T @ np.linalg.solve(covariance.matrix(Z) + 1e-6 * np.eye(M), Kuf)
    K = Q + np.diag(covariance.diag(X) - np.diag(Q) + NOISE)
    assert fs.elbo(model, X, Y) == pytest.approx(evidence(K, Y), abs=1e-8)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize(
    "covariance",
    [
        fs.Matern32(1.3, np.array([0.9, 1.2])),
        fs.RBF(0.7, 0.8) + fs.Matern12(0.5, np.array([1.1, 2.0])),
        fs.RBF(0.7, 0.8).on(0) * fs.Matern52(1.5, 1.0).on(1),
    ],
)
def test_gradient(problem, covariance, outputs):
    _, X, Y, Z = problem
    Y = np.stack([Y, -2 * Y**2], axis=1) if outputs else Y
    mean = fs.means.LinearMean(np.array([0.3, -0.2]), 0.1)
    problem = covariance, X, Y, Z
    model = vif(problem, 5, any_q(outputs), mean)
    rng = np.random.default_rng(3)
    rows = rng.permutation(N)[:30]
    options = {"weights": rng.uniform(0.5, 2, 30), "rows": rows, "num_data": N}
    _, grad = fs.elbo_and_grad(model, X[rows], Y[rows], **options)

    def bound(model):
        return fs.elbo(model, X[rows], Y[rows], **options)

    fs.testing.assert_gradient(bound, model, grad, step=3e-5)  # Matern12 bends near its kinks
    _, of_noise = fs.elbo_and_grad(model, X[rows], Y[rows], wrt="likelihood", **options)
    assert of_noise.likelihood.variance == pytest.approx(grad.likelihood.variance, rel=1e-12)


def test_long_batches_have_no_other_bound(problem):
    """There the posterior's pass can leave variances out, where only their sum counts."""
    covariance = problem[0]
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1500, 2))
    Y, Z = np.sin(3 * X[:, 0]), X[:100] + 0.01
    q = fs.Whitened(rng.standard_normal(100), np.tril(0.1 * rng.standard_normal((100, 100)), -1))
    q = fs.replace(q, scale_tril=q.scale_tril + np.eye(100))
    model = vif((covariance, X, Y, Z), 3, q)
    value, grad = fs.elbo_and_grad(model, X, Y, wrt="posterior")
    assert value == pytest.approx(fs.elbo(model, X, Y), rel=1e-11)
    whole = fs.elbo_and_grad(model, X, Y)[1]
    np.testing.assert_allclose(grad.posterior.scale_tril, whole.posterior.scale_tril, atol=1e-7)


def test_gradient_of_a_prediction_in_its_inputs(problem):
    model = vif(problem, 5, any_q(), fs.means.LinearMean(np.array([0.3, -0.2]), 0.1))
    Xs, h = np.array([[0.3, -0.4], [1.0, 1.5], [5.0, 5.0]]), 1e-5
    mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    found = vjp(np.ones(3), 2 * np.ones(3))
    for column in range(2):
        step = np.zeros((3, 2))
        step[:, column] = h
        up, down = (fs.predict_f(model, Xs + s * step) for s in (1, -1))
        slope = (up[0] - down[0] + 2 * (up[1] - down[1])) / (2 * h)
        np.testing.assert_allclose(found[:, column], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "kind",
    [fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites],
)
def test_every_posterior_is_served(problem, kind):
    covariance, X, Y, Z = problem
    model = vif(problem, 5, any_q())
    plain = fs.SVGP(*(getattr(model, name) for name in fs.SVGP._leaf_names))
    if kind is not fs.Marginal:  # of sites: one that they can express
        plain, _ = fs.natural_step(plain, X, Y, step_size=0.5)
        model = fs.replace(model, posterior=plain.posterior)
    other = fs.replace(model, posterior=fs.posteriors.convert(plain, kind).posterior)
    assert fs.elbo(other, X, Y) == pytest.approx(fs.elbo(model, X, Y), rel=1e-8)
    stepped, same = (fs.natural_step(m, X, Y, step_size=0.5)[0] for m in (other, model))
    assert fs.elbo(stepped, X, Y) == pytest.approx(fs.elbo(same, X, Y), rel=1e-7)


def test_batches_add_up(problem):
    _, X, Y, _ = problem
    model = vif(problem, 5, any_q())
    parts = [
        fs.bounds.data_term_and_grad(model, X[i::3], Y[i::3], rows=np.arange(i, N, 3))
        for i in range(3)
    ]
    value, grad = fs.bounds.data_term_and_grad(model, X, Y)
    kl, kl_grad = fs.bounds.kl_term_and_grad(model)
    assert value - kl == pytest.approx(fs.elbo(model, X, Y), rel=1e-12)
    assert not kl_grad.covariance.lengthscales.any()  # of a whitened q(u)
    assert sum(part[0] for part in parts) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(sum(part[1].inducing for part in parts), grad.inducing, atol=1e-9)


def test_float32_is_computed_in_float64(problem):
    _, X, Y, _ = problem
    model, single = vif(problem, 5, any_q()), vif(problem, 5, any_q(), dtype=np.float32)
    single = fs.replace(single, near=model.near)
    value, grad = fs.elbo_and_grad(single, X.astype(np.float32), Y.astype(np.float32), jitter=1e-6)
    assert value == pytest.approx(fs.elbo(model, X, Y), rel=1e-4)
    assert grad.inducing.dtype == grad.posterior.mean.dtype == np.float32
    assert fs.predict_f(single, X.astype(np.float32))[0].dtype == np.float32


def test_far_lengthscales_and_little_noise_stay_finite(problem):
    covariance, X, _, _ = problem
    Y = X[:, 0] - 0.5 * X[:, 1]
    wide = fs.Matern32(1e5, np.array([700.0, 900.0])), X, Y, X[:M]
    model = fs.replace(vif(wide, 20), likelihood=fs.Gaussian(6e-9))
    model, _ = fs.natural_step(model, X, Y, step_size=1.0)
    value, grad = fs.elbo_and_grad(model, X, Y)
    assert np.isfinite(value) and np.isfinite(grad.inducing).all()
    assert np.abs(fs.predict_f(model, X + 0.01)[0] - (Y + 0.005)).max() < 1e-3


def test_fit_follows_the_lengthscales_and_resumes_bit_for_bit(problem, tmp_path):
    covariance, X, Y, Z = problem
    start = fs.VIF(
        fs.Matern32(1.0, np.array([0.3, 3.0])), Z, any_q(), fs.Gaussian(0.1), neighbours=4
    )
    options = {"batch_size": 16, "natural_step_size": 0.2, "optimiser": fs.adam(0.1), "rng": 0}
    whole, info = fs.fit(start, X, Y, steps=14, **options)
    path = tmp_path / "half.npz"
    fs.fit(start, X, Y, steps=6, checkpoint=path, **options)
    again, _ = fs.fit(start, X, Y, steps=14, resume=path, **options)
    for (name, _, one), (_, _, other) in zip(leaves(whole), leaves(again), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
    np.testing.assert_array_equal(whole.near.earlier, again.near.earlier)
    assert not np.array_equal(whole.near.scales, fs.neighbours(X, start.covariance, 4).scales)
    assert np.mean(info.values[-4:]) > np.mean(info.values[:4])
    fs.save(path, whole)
    np.testing.assert_array_equal(fs.predict_y(fs.load(path), X[:5]), fs.predict_y(whole, X[:5]))


def test_ranks_equal_one_process(problem):
    _, X, Y, _ = problem
    model = vif(problem, 5, any_q())
    value, grad = fs.elbo_and_grad(model, X, Y)
    results = fs.distributed.threads(2, rows="all").run(
        lambda group: fs.elbo_and_grad(model, X, Y, group=group)
    )
    with pytest.raises(ValueError, match='a group whose `rows` are "all"'):
        fs.distributed.threads(2, rows="own").run(
            lambda group: fs.fit(model, X[:24], Y[:24], steps=1, group=group)
        )
    for one, its_grad in results:
        assert one == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(its_grad.inducing, grad.inducing, atol=1e-9)


def test_rows_of_weight_zero_are_never_near(problem):
    covariance, X, Y, Z = problem
    weights = np.ones(N)
    weights[::3] = 0
    holed = np.where(weights > 0, Y, np.nan)
    near = fs.neighbours(X, covariance, 5, Y=holed, weights=weights)
    assert (weights[near.earlier[near.earlier >= 0]] > 0).all()
    model = fs.replace(vif(problem, 5, any_q()), near=near)
    value = fs.elbo(model, X, holed, weights=weights)
    assert np.isfinite(value)
    assert np.isfinite(fs.predict_y(model, X)[0]).all()


def test_weights_of_targets_are_refused(problem):
    covariance, X, Y, Z = problem
    model = fs.VIF(covariance, Z, any_q((2,)), fs.Gaussian(NOISE), neighbours=3)
    Y = np.stack([Y, Y], axis=1)
    with pytest.raises(ValueError, match="one for each row: near rows have all targets"):
        fs.elbo(model, X, Y, weights=np.ones((N, 2)) * [1, 2])


def test_equal_rows_without_noise_are_named(problem):
    covariance, X, Y, Z = problem
    X = X.copy()
    X[9] = X[4]
    model = fs.replace(vif((covariance, X, Y, Z), 6, any_q()), likelihood=fs.Gaussian(1e-30))
    with pytest.raises(fs.NotPositiveDefinite, match=r"near rows (4 and 9|9 and 4) are 0 apart"):
        fs.elbo(model, X, Y, jitter=1e-30)


def test_bad_input(problem):
    covariance, X, Y, Z = problem
    model = vif(problem, 5, any_q())
    with pytest.raises(ValueError, match="`k` must be below the number of rows, got 48"):
        fs.neighbours(X, covariance, N)
    with pytest.raises(ValueError, match="got 20 and 15 rows; give fewer"):
        fs.elbo(fs.replace(model, near=None), X[:15], Y[:15])
    with pytest.raises(ValueError, match="got 20 and 15 rows; give fewer"):
        fs.fit(fs.replace(model, near=None), X[:15], Y[:15], steps=1)
    with pytest.raises(ValueError, match="row 3 of `X` is not that row of `model.near`"):
        fs.elbo(model, np.where(np.arange(N)[:, None] == 3, 0.5, X), Y)
    with pytest.raises(ValueError, match="`X` has 10 rows, and `model.near` 48"):
        fs.elbo(model, X[:10], Y[:10])
    with pytest.raises(ValueError, match="`rows` must hold row numbers, 0 to 47"):
        fs.elbo(model, X[:1], Y[:1], rows=[N])
    with pytest.raises(ValueError, match="no near rows: train it"):
        fs.predict_f(fs.replace(model, near=None), X)
    with pytest.raises(ValueError, match="2 columns|has 3 columns"):
        fs.predict_f(model, np.zeros((4, 3)))
    with pytest.raises(TypeError, match="needs one latent function"):
        fs.elbo(fs.replace(model, likelihood=fs.Softmax(num_classes=3)), X, abs(np.rint(Y)))
    with pytest.raises(TypeError, match="rows of the data of a VIF"):
        fs.elbo_and_grad(model, X, Y, inputs=True)
    with pytest.raises(ValueError, match="contains nan"):
        fs.neighbours(np.where(X > 1.9, np.nan, X), covariance, 3)
    with pytest.raises(ValueError, match="row 0 of `Y` is not that row of `model.near`"):
        fs.fit(model, X, Y + 1, steps=1)
    with pytest.raises(ValueError, match="`e_steps`"):
        fs.fit(model, X, Y, steps=1, e_steps=2, natural_step_size=0.1)


@pytest.mark.parametrize("D", [1, 3, 12])
@pytest.mark.parametrize("codes", [False, True])
def test_earlier_rows_are_those_of_brute_force(D, codes):
    rng = np.random.default_rng(D)
    points = rng.standard_normal((90, D))
    order = rng.permutation(90)[:80]
    of = rng.integers(0, 3, 90) if codes else None
    found = earlier_rows(points, order, 7, of)
    np.testing.assert_array_equal(found, nearest_earlier(points, order, 7, of))
    at = Nearest(points, order, of).query(
        points[order[:5]], 4, None if of is None else of[order[:5]]
    )
    np.testing.assert_array_equal(at[:, 0], order[:5])


def test_features_that_changed_have_other_near_rows(problem):
    _, X, Y, Z = problem
    rng = np.random.default_rng(5)
    covariances = [
        fs.covariances.OnFeatures(
            fs.RBF(1.0, 0.5),
            fs.covariances.Network((rng.standard_normal((2, 2)),), ()),
        )
        for _ in range(2)
    ]
    near = fs.neighbours(X, covariances[0], 5)
    other = fs.neighbours(X, covariances[1], 5)
    assert follow(near, covariances[0]) is near
    np.testing.assert_array_equal(follow(near, covariances[1]).earlier, other.earlier)
    near.nearest(covariances[0], X)
    np.testing.assert_array_equal(near.nearest(covariances[1], X), other.nearest(covariances[1], X))


def test_codes_have_their_own_neighbours(problem):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, 60), rng.integers(0, 3, 60)])
    covariance = fs.RBF(1.0, 0.5).on(0) * fs.covariances.Coregion(np.ones((3, 1)), np.ones(3)).on(1)
    near = fs.neighbours(X, covariance, 4)
    late = near.order[40:]
    assert (X[near.earlier[late], 1] == X[late, 1][:, None]).mean() > 0.95
