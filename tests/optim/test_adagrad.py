"""AdaGrad: dense and sparse gradients give one trajectory, at the cost of the rows, in place."""

import numpy as np
import pytest
from support.gp_problems import lower_factor
from support.weight_problems import basis_of, weights

import fastsvgp as fs


def model_of(rng, k=2, name="relevance"):
    return fs.QSGP(basis_of(rng, name, 8), weights(rng, 8, k), fs.Gaussian(variance=0.2))


def plain(x, g, total, size, positive):
    """Update one coordinate array by the definition."""
    slope = np.where(positive, g * x, g)
    total = total + slope**2
    step = size * slope / (np.sqrt(total) + 1e-10)
    return np.where(positive, x * np.exp(step), x + step), total


def test_adagrad_steps_follow_the_definition(rng):
    q = fs.Whitened(rng.standard_normal(4), lower_factor(rng, 4))
    model = fs.SVGP(
        fs.RBF(1.3, np.array([0.5, 2.0])), rng.standard_normal((4, 2)), q, fs.Gaussian(0.1)
    )
    positive = {
        "covariance.variance": True,
        "covariance.lengthscales": True,
        "likelihood.variance": True,
        "posterior.scale_tril": np.eye(4, dtype=bool),
    }
    optimiser = fs.optim.adagrad(fs.optim.schedules.log_linear(0.1, 0.02, 3))
    state, there = optimiser.init(model), model
    expected = {
        path: (np.asarray(value, float), 0.0) for path, _, value in fs.records.leaves(model)
    }
    for t, size in enumerate((0.1, 0.002**0.5, 0.02, 0.02)):
        np.testing.assert_allclose(optimiser.step_size_at(state), size)
        grad = fs.records.tree_map(lambda a: rng.standard_normal(np.shape(a)), model)
        bars = {path: bar for path, _, bar in fs.records.leaves(grad)}
        there, state = optimiser.step(there, grad, state)
        for path, _, found in fs.records.leaves(there):
            expected[path] = plain(
                *[expected[path][0], bars[path], expected[path][1]], size, positive.get(path, False)
            )
            np.testing.assert_allclose(found, expected[path][0], rtol=1e-13, err_msg=path)
        assert state.count == t + 1
    assert isinstance(there.covariance.variance, np.floating) and model.covariance.variance == 1.3


@pytest.mark.parametrize("k", [0, 2, 8])
def test_sparse_gradients_are_dense_ones_with_zeros(rng, k):
    model = model_of(rng, k)
    X, Y, optimiser = rng.standard_normal((7, 2)), rng.standard_normal(7), fs.optim.adagrad(0.1)
    sparse, dense = (model, optimiser.init(model)), (model, optimiser.init(model))
    for seed in range(6):
        sample = fs.qsgp.draw_basis_sample(model.basis, 3, rng=seed)
        _, grad, _ = fs.qsgp.sampled_bound_and_grad(sparse[0], X, Y, sample, num_data=70)
        sizes = {path: len(np.atleast_1d(value)) for path, _, value in fs.records.leaves(model)}
        full = {
            path: bar.dense(sizes[path]) if isinstance(bar, fs.qsgp.SparseRows) else bar
            for path, _, bar in fs.records.leaves(grad)
        }
        whole = grad
        for path, bar in full.items():
            whole = fs.records.replace_at(whole, path, bar)
        sparse, dense = (
            optimiser.step(sparse[0], grad, sparse[1]),
            optimiser.step(dense[0], whole, dense[1]),
        )
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(sparse[0]), fs.records.leaves(dense[0]), strict=True
        ):
            np.testing.assert_array_equal(
                np.tril(a) if path.endswith("columns") else a,
                np.tril(b) if path.endswith("columns") else b,
                err_msg=path,
            )
    assert (sparse[0].posterior.diagonal > 0).all() and (
        sparse[0].posterior.columns.diagonal() > 0
    ).all()


def test_steps_are_in_place_after_one_copy_and_only_in_the_rows(rng):
    model = model_of(rng, 0)
    kept, optimiser = (
        model.posterior.mean.copy(),
        fs.optim.adagrad(0.1, fixed=("basis", "likelihood", "posterior.columns")),
    )
    state = optimiser.init(model)
    assert state.sums.basis.inducing is None and state.sums.posterior.mean.shape == (8,)

    def grad(row, value=1.0):
        rows, values = np.array([row]), np.array([value])
        return fs.QSGP(
            None,
            fs.qsgp.ChevronWeights(
                fs.qsgp.SparseRows(rows, values), None, fs.qsgp.SparseRows(rows, values)
            ),
            None,
        )

    first, state = optimiser.step(model, grad(2), state)
    np.testing.assert_array_equal(model.posterior.mean, kept)  # the first step copies
    assert first.basis.inducing is model.basis.inducing and list(
        np.flatnonzero(first.posterior.mean != kept)
    ) == [2]
    second, state = optimiser.step(first, grad(5), state)
    assert second.posterior.mean is first.posterior.mean and first.posterior.mean[5] != kept[5]
    before = second.posterior.mean.copy(), state.sums.posterior.mean.copy()
    with pytest.raises(ValueError, match="NaN or infinity in 'posterior.diagonal' at step 3"):
        bad = grad(1)
        bad = fs.records.replace_at(
            bad, "posterior.diagonal", fs.qsgp.SparseRows(np.array([1]), np.array([np.nan]))
        )
        optimiser.step(second, bad, state)
    np.testing.assert_array_equal(second.posterior.mean, before[0])
    np.testing.assert_array_equal(state.sums.posterior.mean, before[1])
    with pytest.raises(ValueError, match="field 'posterior.mean' is free here, but None came"):
        optimiser.step(second, fs.QSGP(None, fs.qsgp.ChevronWeights(None, None, None), None), state)


def test_rows_out_of_range_are_rejected(rng):
    """Also with arrays that are not contiguous."""
    model = model_of(rng, 2)
    model = fs.records.replace_at(
        model, "posterior.columns", np.asfortranarray(model.posterior.columns)
    )
    optimiser = fs.optim.adagrad(
        0.1, fixed=("basis", "likelihood", "posterior.mean", "posterior.diagonal")
    )
    state = optimiser.init(model)

    def grad(*rows):
        return fs.QSGP(
            None,
            fs.qsgp.ChevronWeights(
                None, fs.qsgp.SparseRows(np.array(rows), np.ones((len(rows), 2))), None
            ),
            None,
        )

    for rows in ((-1, 2), (2, 8)):
        with pytest.raises(
            IndexError,
            match=f"in 'posterior.columns' names rows {rows[0]} to {rows[1]}, but there are 8",
        ):
            optimiser.step(model, grad(*rows), state)
    there, state = optimiser.step(model, grad(3, 7), state)
    odd = fs.records.replace_at(
        there, "posterior.columns", np.asfortranarray(there.posterior.columns)
    )
    before = there.posterior.columns.copy()
    for one in (there, odd):
        moved, _ = optimiser.step(one, grad(5), fs.records.tree_map(np.copy, state))
        expected = before.copy()
        expected[5] += 0.1 / (1 + 1e-10)
        np.testing.assert_allclose(
            np.tril(moved.posterior.columns), np.tril(expected), rtol=1e-14, atol=1e-16
        )


def test_rows_outside_the_gradient_are_not_read(rng):
    model = model_of(rng, 0)
    optimiser = fs.optim.adagrad(0.1, fixed=("basis", "likelihood", "posterior.columns"))
    model = fs.records.replace_at(
        model, "posterior.mean", np.where(np.arange(8) == 3, np.nan, model.posterior.mean)
    )
    rows = fs.qsgp.SparseRows(np.array([0, 7]), np.ones(2))
    moved, _ = optimiser.step(
        model, fs.QSGP(None, fs.qsgp.ChevronWeights(rows, None, rows), None), optimiser.init(model)
    )
    assert np.isfinite(moved.posterior.mean[[0, 7]]).all() and np.isnan(moved.posterior.mean[3])


def test_states_are_saved_in_files(rng, tmp_path):
    model, optimiser = model_of(rng), fs.optim.adagrad(0.1)
    grad = fs.records.tree_map(np.ones_like, model)
    moved, state = optimiser.step(model, grad, optimiser.init(model))
    fs.save(tmp_path / "state", state)
    loaded = fs.load(tmp_path / "state")
    one, _ = optimiser.step(fs.records.tree_map(np.copy, moved), grad, loaded)
    two, _ = optimiser.step(moved, grad, state)
    for (_, _, a), (_, _, b) in zip(fs.records.leaves(one), fs.records.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_hyperparameters_by_another_optimiser(rng):
    """An Adam for the basis that starts late, AdaGrad for the weights."""
    model, X, Y = model_of(rng, 1, "fourier"), rng.standard_normal((9, 2)), rng.standard_normal(9)
    optimiser = fs.optim.by_field(
        fs.optim.adagrad(0.1),
        {"basis": fs.adam(0.01), "likelihood": fs.adam(0.01)},
        after={"basis": 2},
    )
    state, start, values = optimiser.init(model), model, []
    for seed in range(60):
        sample = fs.qsgp.draw_basis_sample(model.basis, 4, rng=seed)
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, wrt=optimiser.moving(model, state)
        )
        model, state = optimiser.step(model, grad, state, value)
        assert (model.basis.covariance.variance == start.basis.covariance.variance) == (seed < 2)
        values.append(fs.qsgp.bound(model, X, Y))
    assert values[-1] > values[0] + 1


def test_training_finds_the_optimum_of_the_exact_bound(rng):
    m, N = 40, 60
    basis = fs.qsgp.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=2)
    X = rng.uniform(-2, 2, (N, 1))
    Y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    model = fs.QSGP(
        basis,
        fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m)),
        fs.Gaussian(variance=0.05),
    )
    best, _ = fs.qsgp.optimal_weights(model, X, Y, tolerance=1e-9)
    optimiser = fs.optim.adagrad(0.2, fixed=("basis", "likelihood", "posterior.columns"))
    state, start = optimiser.init(model), fs.qsgp.bound(model, X, Y)
    for _ in range(1500):
        rows = rng.choice(N, 20, replace=False)
        sample = fs.qsgp.draw_basis_sample(basis, 10, rng=rng)
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model,
            X[rows],
            Y[rows],
            sample,
            num_data=N,
            wrt=("posterior.mean", "posterior.diagonal"),
        )
        model, state = optimiser.step(model, grad, state, value)
    reached, optimum = fs.qsgp.bound(model, X, Y), fs.qsgp.bound(best, X, Y)
    assert start < reached < optimum and optimum - reached < 0.05 * (optimum - start)


@pytest.mark.parametrize(
    "options, error, said",
    [
        ({"epsilon": 0.0}, ValueError, "`epsilon` must be positive"),
        ({"step_size": -1.0}, ValueError, "step_size"),
        ({"fixed": 3}, TypeError, "`fixed`"),
    ],
)
def test_bad_settings_are_rejected(options, error, said):
    with pytest.raises(error, match=said):
        fs.optim.adagrad(**options)


def test_unknown_fixed_fields_are_rejected(rng):
    with pytest.raises(ValueError, match="`fixed` names 'nothing'"):
        fs.optim.adagrad(fixed="nothing").init(model_of(rng))
