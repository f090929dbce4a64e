"""A VIF on a device, emulated or real: bounds, gradients, steps, predictions and training."""

import numpy as np
import pytest
from support.device_models import assert_same, check_bound

import fastsvgp as fs

N, M, D = 30, 5, 2
NOISE = np.float64(0.05)


@pytest.fixture
def data(rng):
    X = rng.uniform(-2, 2, (N, D))
    return X, np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(N)


def vif(rng, X, Y, k=4, likelihood=None, outputs=(), mean=None, covariance=None):
    tril = np.tril(0.2 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    if covariance is None:
        covariance = fs.Matern32(np.float64(1.3), np.array([0.9, 1.2]))
    near = fs.neighbours(X, covariance, k, Y=Y)
    q = fs.Whitened(rng.standard_normal((*outputs, M)), tril)
    likelihood = fs.Gaussian(NOISE) if likelihood is None else likelihood
    return fs.VIF(covariance, X[:M] + 0.01, q, likelihood, mean, near)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_bounds_and_gradients(gpu, rng, data, outputs):
    X, Y = data
    Y = np.stack([Y, -2 * Y**2], axis=1) if outputs else Y
    mean = fs.means.LinearMean(np.array([0.3, -0.2]), np.float64(0.1))
    covariance = fs.RBF(np.float64(0.7), np.float64(0.8)) + fs.Matern12(
        np.float64(0.5), np.array([1.1, 2.0])
    )
    model = vif(rng, X, Y, 5, outputs=outputs, mean=mean, covariance=covariance)
    here, there = (model, X, Y), (fs.to_device(model), gpu.there(X), gpu.there(Y))
    check_bound(gpu, fs.elbo_and_grad, here, there)
    rows = rng.permutation(N)[:20]
    weights = rng.uniform(0.5, 2, 20)
    some = [(m, x[r], y[r], w) for m, x, y, r, w in (
        (*here, rows, weights), (*there, gpu.there(rows), gpu.there(weights)))]  # fmt: skip
    found = []
    for m, x, y, w in some:
        found.append(
            fs.elbo_and_grad(m, x, y, rows=rows, weights=w, num_data=N, wrt=("likelihood", "mean"))
        )
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-12)
    assert_same(found[1][1], found[0][1])
    assert fs.elbo(*there) == pytest.approx(fs.elbo(*here), rel=1e-12)


def test_codes(gpu, rng, data):
    X, Y = data
    X[:, 1] = rng.integers(0, 3, N)
    codes = fs.covariances.Coregion(np.ones((3, 1)), np.ones(3)).on(1)
    covariance = fs.RBF(np.float64(1.0), np.float64(0.5)).on(0) * codes
    model = fs.replace(vif(rng, X, Y, covariance=covariance), inducing=X[:M])
    there = fs.to_device(model), gpu.there(X), gpu.there(Y)
    check_bound(gpu, fs.elbo_and_grad, (model, X, Y), there)
    assert_same(fs.predict_f(*there[:2]), fs.predict_f(model, X))


def test_natural_steps(gpu, rng, data):
    X, Y = data
    model = vif(rng, X, Y)
    there = fs.to_device(model), gpu.there(X), gpu.there(Y)
    stepped, info = fs.natural_step(model, X, Y, step_size=0.7)
    found, its_info = fs.natural_step(*there, step_size=0.7)
    assert its_info.value == pytest.approx(info.value, rel=1e-12)
    assert_same(found, stepped)
    *_, value, grad = fs.optim.natural_step_and_grad(model, X, Y, step_size=0.7)
    *_, its_value, its_grad = fs.optim.natural_step_and_grad(*there, step_size=0.7)
    assert its_value == pytest.approx(value, rel=1e-12)
    assert_same(its_grad, grad)


def test_predictions(gpu, rng, data):
    X, Y = data
    model, Xs = (
        vif(rng, X, Y, mean=fs.means.ConstantMean(np.float64(0.2))),
        rng.uniform(-2, 2, (7, D)),
    )
    there, at = fs.to_device(model), gpu.there(Xs)
    assert hasattr(there.near.X, "get") and type(there.near.earlier) is np.ndarray
    assert_same(fs.predict_f(there, at), fs.predict_f(model, Xs))
    assert_same(fs.predict_y(there, at), fs.predict_y(model, Xs))
    assert_same(
        fs.predict_f(there, at, full_cov=True), fs.predict_f(model, Xs, full_cov=True), 1e-9
    )
    densities = fs.predict_log_density(there, at, gpu.there(Y[:7]))
    assert_same((densities,), (fs.predict_log_density(model, Xs, Y[:7]),))
    *_, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    *_, its_vjp = fs.bounds.predict_f_and_vjp(there, at)
    bars = rng.standard_normal((2, 7))
    assert_same((its_vjp(*map(gpu.there, bars)),), (vjp(*bars),), 1e-9)
    back = fs.to_host(there)
    assert type(back.near.X) is type(back.near.Y) is np.ndarray
    np.testing.assert_array_equal(fs.predict_f(back, Xs), fs.predict_f(model, Xs))


def test_near_rows_alone_and_in_a_mixture(gpu, rng, data):
    X, Y = data
    model, at = vif(rng, X, Y), gpu.there(X)
    near = fs.to_device(model.near)
    there = fs.replace(fs.to_device(fs.replace(model, near=None)), near=near)
    assert_same(fs.predict_f(there, at), fs.predict_f(model, X))
    assert type(fs.to_host(near).X) is np.ndarray
    found = fs.neighbours(at, there.covariance, 4, order="maximin")
    expected = fs.neighbours(X, model.covariance, 4, order="maximin")
    np.testing.assert_array_equal(found.earlier, expected.earlier)
    both = fs.bounds.Mixture((model, model), (0.25, 0.75))
    moved = fs.to_device(both)
    assert hasattr(moved.models[1].near.X, "get")
    assert_same(fs.predict_f(moved, at), fs.predict_f(both, X))


def test_rows_can_stay_on_the_host(gpu, rng, data, tmp_path):
    X, Y = data
    np.save(tmp_path / "X.npy", X)
    model = vif(rng, np.load(tmp_path / "X.npy", mmap_mode="r"), Y)
    near = fs.replace(fs.to_device(model), near=model.near)
    assert_same(fs.predict_f(near, gpu.there(X)), fs.predict_f(model, X))
    value, grad = fs.elbo_and_grad(near, gpu.there(X), gpu.there(Y))
    expected = fs.elbo_and_grad(model, X, Y)
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert_same(grad, expected[1])


def test_sites(gpu, rng, data):
    X, Y = data
    Y = rng.poisson(np.exp(Y)).astype(float)
    model = vif(
        rng,
        X,
        Y,
        likelihood=fs.StudentT(np.float64(0.3)),
        mean=fs.means.ConstantMean(np.float64(0.2)),
    )
    there = fs.to_device(model), gpu.there(X), gpu.there(Y)
    here, moved = (model, X, Y), there
    for _ in range(2):
        stepped, info = fs.natural_step(*here, step_size=0.5)
        found, its_info = fs.natural_step(*moved, step_size=0.5)
        assert its_info.negative == info.negative
        assert its_info.value == pytest.approx(info.value, rel=1e-11)
        assert_same(found, stepped, 1e-9)
        np.testing.assert_allclose(found.near.lambda2, stepped.near.lambda2, rtol=1e-9, atol=1e-10)
        here, moved = (stepped, X, Y), (found, *there[1:])
    value, grad = fs.elbo_and_grad(*moved)
    expected = fs.elbo_and_grad(*here)
    assert value == pytest.approx(expected[0], rel=1e-11)
    assert_same(grad, expected[1], 1e-9)
    assert_same(fs.predict_f(moved[0], moved[1]), fs.predict_f(*here[:2]))


@pytest.mark.parametrize(
    "likelihood, place, weighed",
    [(None, "device", True), (fs.Poisson(), "host", False), (fs.Poisson(), "device", True)],
)
def test_training(gpu, rng, data, tmp_path, likelihood, place, weighed):
    X, Y = data
    Y = Y if likelihood is None else rng.poisson(np.exp(Y)).astype(float)
    start = fs.replace(vif(rng, X, Y, likelihood=likelihood), near=None, neighbours=4)
    options = {"batch_size": 16, "natural_step_size": 0.2, "optimiser": fs.adam(0.2), "rng": 0}
    weights = rng.uniform(0.5, 2, N)
    weights = np.where((np.arange(N) != 3) | (not weighed), weights, 0)
    options |= {"weights": weights} if weighed else {}
    trained, info = fs.fit(start, X, Y, steps=4, **options)
    there = gpu.there if place == "device" else np.asarray
    given = fs.to_device(start), there(X), there(Y)
    options |= {"weights": there(weights)} if weighed else {}
    found, its_info = fs.fit(*given, steps=4, **options)
    np.testing.assert_allclose(its_info.values, info.values, rtol=1e-8)
    assert_same(found, trained, 1e-7)
    np.testing.assert_array_equal(found.near.earlier, trained.near.earlier)
    path = tmp_path / "half.npz"
    fs.fit(*given, steps=2, checkpoint=path, **options)
    again, _ = fs.fit(*given, steps=4, resume=path, **options)
    assert_same(again, fs.to_host(found), 0)
    fs.save(path, again)
    same, at = fs.load(path), X[:3]
    np.testing.assert_array_equal(same.near.X[weights > 0], X[weights > 0])
    assert_same(fs.predict_y(again, gpu.there(at)), fs.predict_y(same, at))


def test_float32(gpu, rng, data):
    X, Y = (array.astype(np.float32) for array in data)
    model = fs.records.tree_map(np.float32, fs.replace(vif(rng, X, Y), near=None))
    model = fs.replace(model, near=fs.neighbours(X, model.covariance, 4, Y=Y))
    value, grad = fs.elbo_and_grad(model, X, Y)
    given = fs.to_device(model), gpu.there(X), gpu.there(Y)
    its_value, its_grad = fs.elbo_and_grad(*given)
    assert its_value == pytest.approx(value, rel=1e-6)
    assert_same(its_grad, grad, 1e-5)


@pytest.mark.parametrize("on_device", [False, True])
def test_ranks(gpu, rng, data, on_device):
    X, Y = data
    model = vif(rng, X, Y, likelihood=fs.StudentT(np.float64(0.3)))
    groups = fs.distributed.threads(2, rows="all")
    for group in groups:
        group.sums_on_device = on_device
    given = fs.to_device(model), gpu.there(X), gpu.there(Y)
    expected, _ = fs.natural_step(model, X, Y, step_size=0.5)
    for found, _ in groups.run(lambda one: fs.natural_step(*given, step_size=0.5, group=one)):
        assert_same(found, expected)
        np.testing.assert_allclose(found.near.lambda1, expected.near.lambda1, atol=1e-10)
    value, grad = fs.elbo_and_grad(expected, X, Y)
    given = fs.to_device(expected), *given[1:]
    for its_value, its_grad in groups.run(lambda one: fs.elbo_and_grad(*given, group=one)):
        assert its_value == pytest.approx(value, rel=1e-10)
        assert_same(its_grad, grad, 1e-9)


def test_new_rows(gpu, rng, data):
    X, Y = data
    model, new = vif(rng, X[:20], Y[:20], outputs=()), (X[20:], Y[20:])
    expected = fs.condition(model, *new)
    there = fs.to_device(model), *map(gpu.there, new)
    assert_same(fs.condition(*there), expected, 1e-9)
    # rows of the record that stay on the host, and new ones on the device
    found = fs.condition(fs.replace(there[0], near=model.near), *there[1:])
    assert_same(found, expected, 1e-9)
    np.testing.assert_array_equal(found.near.X, X)


def test_the_recipe(gpu, rng, data):
    X, Y = data
    model = vif(rng, X, Y)
    plain = fs.SVGP(model.covariance, model.inducing, model.posterior, model.likelihood)
    found, info = fs.recipes.near_rows(
        fs.to_device(plain), gpu.there(X), gpu.there(Y), neighbours=4, steps=3
    )
    expected, its_info = fs.recipes.near_rows(plain, X, Y, neighbours=4, steps=3)
    assert_same(found, expected, 1e-8)
    assert info.detail == pytest.approx(its_info.detail)


def test_errors(gpu, rng, data):
    X, Y = data
    model, targets = fs.to_device(vif(rng, X, Y)), gpu.there(Y)
    moved = X.copy()
    moved[3] = 0.5
    with pytest.raises(ValueError, match="row 3 of `X` is not that row of `model.near`"):
        fs.elbo(model, gpu.there(moved), targets)
    X[10:20] = X[4]
    twin = vif(rng, X, Y, likelihood=fs.Gaussian(np.float64(1e-30)))
    with pytest.raises(fs.NotPositiveDefinite, match=r"near rows \d+ and \d+ are 0 apart"):
        fs.elbo(fs.to_device(twin), gpu.there(X), targets, jitter=1e-30)


def test_too_many_near_rows_for_a_block(gpu, rng):
    X = rng.uniform(-2, 2, (260, D))
    Y = np.sin(X[:, 0])
    model = fs.to_device(vif(rng, X, Y, 250))
    with pytest.raises(ValueError, match="room for [0-9]+ near rows of each row, got 250"):
        fs.predict_f(model, gpu.there(X[:3]))
