"""``optimal_weights`` by blocks: dense solves, data in files, resuming, and refusals."""

import logging

import numpy as np
import pytest
from oracles.dual_blocks import optimal_mean, primal
from support.weight_problems import COVARIANCE, basis_of, weights

import fastsvgp as fs
from fastsvgp.train import optimal_weights as module


def mean_field(basis, noise, dtype=np.float64):
    m = basis.num_functions()
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(basis, q, fs.Gaussian(noise))
    return fs.records.tree_map(lambda value: np.asarray(value, dtype)[()], model)


def data(rng, N, dtype=np.float64):
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(N)
    return X.astype(dtype), Y.astype(dtype)


def by_blocks(model, X, Y, **options):
    return fs.qsgp.optimal_weights(
        model, X, Y, method="blocks", **{"rng": 0, "epochs": 200, "tolerance": 1e-11} | options
    )


@pytest.mark.parametrize("m, block", [(300, 500), (300, 170), (300, 2000), (60, None)])
def test_blocks_of_few_features_equal_a_dense_solve(rng, m, block):
    X, Y = data(rng, 2000)
    model = mean_field(fs.qsgp.RandomFourier(fs.RBF(1.0, 1.0), num_features=m, seed=1), 0.1)
    found, info = by_blocks(model, X, Y, block=block)
    expected = optimal_mean(model.basis.features(X), Y, 0.1)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.posterior.mean, expected, atol=1e-8 * scale)
    assert info.products == (m <= 2 * (block or 500)) and info.discarded is None
    assert info.residual == info.residuals[-1] <= 1e-11 and min(info.gains) >= 0
    np.testing.assert_allclose(
        found.posterior.diagonal, fs.qsgp.optimal_diagonal(model, X).posterior.diagonal, rtol=1e-10
    )


@pytest.mark.parametrize("dtype, atol", [(np.float64, 1e-8), (np.float32, 2e-3)])
def test_blocks_of_many_features(rng, dtype, atol):
    """With the covariance of the rows in place of the products of their features."""
    X, Y = data(rng, 300, dtype)
    model = mean_field(
        fs.qsgp.RandomFourier(fs.RBF(1.0, 1.5), num_features=4000, seed=1), 0.3, dtype
    )
    found, info = by_blocks(model, X, Y, block=70, epochs=150)
    phi = model.basis.features(X).astype(float)
    expected = phi.T @ np.linalg.solve(phi @ phi.T + 0.3 * np.eye(300), Y)
    np.testing.assert_allclose(found.posterior.mean, expected, atol=atol * np.abs(expected).max())
    assert not info.products and found.posterior.mean.dtype == found.posterior.diagonal.dtype
    assert found.posterior.mean.dtype == dtype


@pytest.mark.parametrize("dtype, rtol", [(np.float64, 1e-8), (np.float32, 2e-3)])
def test_functions_at_all_rows(rng, dtype, rtol):
    X, Y = data(rng, 200, dtype)
    covariance = fs.Matern32(1.3, np.array([0.8, 1.4]))
    model = mean_field(fs.qsgp.InducingBasis(covariance, X), 0.2, dtype)
    found, info = by_blocks(model, X, Y, block=33)
    K = model.basis.features(X).astype(float)
    expected = np.linalg.solve(K + 0.2 * np.eye(200), Y)
    np.testing.assert_allclose(found.posterior.mean, expected, atol=rtol * np.abs(expected).max())
    assert found.posterior.mean.dtype == dtype and not info.products
    np.testing.assert_allclose(
        found.posterior.diagonal,
        fs.qsgp.optimal_diagonal(model, X).posterior.diagonal,
        rtol=1e-10 if dtype == np.float64 else 1e-4,
    )


def test_residual_bounds_the_loss_of_an_early_stop(rng):
    X, Y = data(rng, 300)
    model = mean_field(fs.qsgp.RandomFourier(fs.RBF(1.0, 0.7), num_features=2000, seed=1), 0.05)
    phi = model.basis.features(X)
    best = phi.T @ np.linalg.solve(phi @ phi.T + 0.05 * np.eye(300), Y)
    found, info = by_blocks(model, X, Y, block=50, epochs=4)
    mean = found.posterior.mean
    lost = primal(phi, Y, 0.05, best) - primal(phi, Y, 0.05, mean)
    # of blocks as their turn came, so not below that at the end
    assert 0 < lost <= info.residual**2 * (Y @ Y) / (2 * 0.05)
    assert len(info.residuals) == 4 and info.iterations == len(info.gains) == 24


def test_an_epoch_that_fails_is_undone(rng, monkeypatch, tmp_path):
    """Few features and little noise: the covariance of the rows is a poor stand-in."""
    monkeypatch.setattr(module, "FEW", 0)
    X, Y = data(rng, 300)
    model = mean_field(fs.qsgp.RandomFourier(fs.RBF(1e4, 0.2), num_features=80, seed=1), 1e-3)
    means = []
    found, info = by_blocks(
        model, X, Y, block=100, epochs=12, tolerance=0.0,
        callback=lambda there, info: means.append(there.posterior.mean.copy()),
    )  # fmt: skip
    assert info.products and 1 <= info.discarded < 12
    kept = info.discarded - 1
    assert len(info.residuals) == 12 - 1
    last = means[3 * kept - 1] if kept else np.zeros(80)
    np.testing.assert_array_equal(means[3 * info.discarded - 1], last)
    falls = np.diff(np.array([1.0, *info.residuals])[: kept + 1])
    assert (falls < 0).all()
    path = tmp_path / "state.npz"
    stop = 3 * info.discarded - 1  # in the epoch that is undone
    by_blocks(
        model, X, Y, block=100, epochs=12, tolerance=0.0, checkpoint=path,
        callback=lambda there, info: info.iterations == stop,
    )  # fmt: skip
    again, also = by_blocks(model, X, Y, block=100, epochs=12, tolerance=0.0, resume=path)
    np.testing.assert_array_equal(again.posterior.mean, found.posterior.mean)
    assert also == info


@pytest.mark.parametrize("name", ["fourier", "inducing"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_data_in_files_and_resuming_are_bitwise_the_same(rng, tmp_path, name, dtype):
    X, Y = data(rng, 120, dtype)
    basis = (
        basis_of(rng, name, 400) if name == "fourier" else fs.qsgp.InducingBasis(COVARIANCE[2], X)
    )
    model = mean_field(basis, 0.2, dtype)
    options = {"block": 25, "epochs": 3, "rng": 4}
    whole, info = by_blocks(model, X, Y, **options)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    files = [np.load(tmp_path / f"{one}.npy", mmap_mode="r") for one in "XY"]
    path, seen = tmp_path / "state.npz", []
    for stop in (7, 11, None):
        found, also = by_blocks(
            model, *files, checkpoint=path, resume=path if seen else None,
            callback=lambda there, info, stop=stop: seen.append(info) or info.iterations == stop,
            **options,
        )  # fmt: skip
    for (_, _, a), (_, _, b) in zip(
        fs.records.leaves(found), fs.records.leaves(whole), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert also == info and len(seen) == info.iterations == 15
    saved = fs.load(path)
    np.testing.assert_array_equal(saved.model.posterior.mean, found.posterior.mean)
    assert saved.step == 15
    longer, more = by_blocks(model, X, Y, **options | {"epochs": 5, "resume": path})
    straight, _ = by_blocks(model, X, Y, **options | {"epochs": 5})
    np.testing.assert_array_equal(longer.posterior.mean, straight.posterior.mean)
    assert more.iterations == 25


def test_each_epoch_has_each_row_once(rng):
    blocks = module.EpochBlocks(np.zeros((23, 1)), np.zeros(23), 5, 3)
    assert blocks.per_epoch == 5
    for epoch in range(3):
        rows = [blocks.rows(epoch * 5 + at) for at in range(5)]
        assert max(map(len, rows)) <= 5 and all((np.diff(one) > 0).all() for one in rows)
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(23))


def test_arguments_stay_and_runs_end_early(rng):
    X, Y = data(rng, 60)
    model = fs.QSGP(basis_of(rng, "fourier", 40), weights(rng, 40, 2), fs.Gaussian(0.2))
    given = fs.records.tree_map(np.copy, model)
    found, info = by_blocks(model, X, Y, block=20)
    np.testing.assert_array_equal(found.posterior.columns, model.posterior.columns)
    np.testing.assert_allclose(
        found.posterior.mean,
        fs.qsgp.optimal_weights(model, X, Y, tolerance=1e-11)[0].posterior.mean,
        atol=1e-7,
    )
    for (_, _, a), (_, _, b) in zip(
        fs.records.leaves(model), fs.records.leaves(given), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    none, info = by_blocks(model, X, Y, epochs=0)
    assert not none.posterior.mean.any() and info.residual == 1.0 and info.iterations == 0
    _, info = by_blocks(model, X, np.zeros(60))
    assert info.residual == 0.0 and info.iterations == 1

    def interrupt(there, info):
        raise KeyboardInterrupt

    found, info = by_blocks(model, X, Y, block=20, callback=interrupt)
    assert info.iterations == 1 and found.posterior.mean.any()


REFUSED = [
    ({"method": "newton"}, ValueError, "`method` must be one of"),
    ({"method": None}, ValueError, "`method` must be one of"),
    ({"block": 61}, ValueError, "`block` is 61, but there are 60 rows"),
    ({"block": 0}, ValueError, "`block`"),
    ({"epochs": -1}, ValueError, "`epochs`"),
    ({"rng": -3}, ValueError, "`rng`"),
    ({"iterations": 3}, ValueError, '`iterations` is for method="conjugate_gradients"'),
    ({"callback": 3}, TypeError, "`callback` must be a function"),
    ({"tolerance": np.nan}, ValueError, "`tolerance`"),
    ({"checkpoint": "nowhere/at/all"}, ValueError, "`checkpoint`"),
]


@pytest.mark.parametrize("options, error, said", REFUSED)
def test_bad_arguments(rng, options, error, said):
    X, Y = data(rng, 60)
    model = mean_field(basis_of(rng, "fourier", 40), 0.2)
    with pytest.raises(error, match=said):
        fs.qsgp.optimal_weights(model, X, Y, **{"method": "blocks"} | options)


def test_arguments_of_blocks_are_refused_by_conjugate_gradients(rng):
    X, Y = data(rng, 20)
    model = mean_field(basis_of(rng, "fourier", 8), 0.2)
    for name in ("block", "epochs", "rng", "checkpoint", "checkpoint_every", "resume"):
        with pytest.raises(ValueError, match=f'`{name}` is for method="blocks"'):
            fs.qsgp.optimal_weights(model, X, Y, **{name: 5})


def test_models_and_data_without_blocks_are_refused(rng, tmp_path):
    X, Y = data(rng, 60)
    model = mean_field(basis_of(rng, "fourier", 40), 0.2)
    said = "optimal_weights: the optimum is known for a Gaussian likelihood, not for a StudentT"
    other = fs.replace(model, likelihood=fs.StudentT(0.3, df=4.0))
    with pytest.raises(TypeError, match=said):
        by_blocks(other, X, Y)
    at_rows = mean_field(fs.qsgp.InducingBasis(COVARIANCE[2], X), 0.2)
    for rows, said in ((slice(50), "60 functions for 50 rows"), (slice(None, None, -1), "order")):
        with pytest.raises(ValueError, match=f"to be X, row by row.*{said}"):
            by_blocks(at_rows, X[rows], Y[rows])
    with pytest.raises(ValueError, match="same number of rows"):
        by_blocks(model, X, Y[:-1])
    for name, arrays in (("X", (X.copy(), Y)), ("Y", (X, Y.copy()))):
        arrays["XY".index(name)][17] = np.nan
        with pytest.raises(ValueError, match=rf"`{name}` contains nan at index \(?17"):
            by_blocks(model, *arrays, block=7)
    path = tmp_path / "state.npz"
    by_blocks(model, X, Y, block=20, epochs=1, checkpoint=path)
    for options, changed, said in (
        ({"block": 30}, X, "`block` 20 then, 30 now"),
        ({"block": 20, "rng": 5}, X, "`rng` 0 then, 5 now"),
        ({"block": 20}, X + 1, "other data"),
    ):
        with pytest.raises(ValueError, match=said):
            by_blocks(model, changed, Y, epochs=2, resume=path, **options)


def test_undoing_an_epoch_is_logged(rng, monkeypatch, caplog):
    monkeypatch.setattr(module, "FEW", 0)
    X, Y = data(rng, 300)
    model = mean_field(fs.qsgp.RandomFourier(fs.RBF(1e4, 0.2), num_features=80, seed=1), 1e-3)
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        _, info = by_blocks(model, X, Y, block=100, epochs=12, tolerance=0.0)
    (message,) = (record.getMessage() for record in caplog.records)
    assert f"epoch {info.discarded}" in message
