"""The checks of each toy in ``tests/extending``, which is one file that follows only docs/."""

import numpy as np

import fastsvgp as fs
from fastsvgp.testing import assert_gradient


def assert_bound(model, X, Y, rng, **options):
    """Assert value and all gradients, including that in the inputs, of a minibatch; and ``wrt``."""
    options = {"num_data": 3.0 * len(X), "jitter": 1e-2} | options
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert value == fs.elbo_and_grad(model, X, Y, **options)[0]
    np.testing.assert_allclose(value, fs.elbo(model, X, Y, **options), rtol=1e-12)
    assert type(grad) is type(model)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y, **options), model, grad, rng=rng)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y, **options), X, X_bar, rng=rng)
    alone = fs.elbo_and_grad(model, X, Y, wrt=(), inputs=True, **options)[2]
    np.testing.assert_allclose(alone, X_bar, rtol=1e-9, atol=1e-9 * np.abs(X_bar).max())
    for path, _, whole in fs.records.leaves(grad):
        alone = fs.elbo_and_grad(model, X, Y, wrt=(path,), **options)[1]
        for other, _, bar in fs.records.leaves(alone):
            if other == path:
                np.testing.assert_allclose(
                    bar, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max(), err_msg=path
                )
            else:
                assert bar is None, (path, other)


def assert_single_precision(model, X, Y):
    """Assert that float32 gives float32, close to float64, and that no argument is modified."""
    single = fs.records.tree_map(lambda leaf: np.asarray(leaf, np.float32)[()], model)
    kept = [np.copy(leaf) for _, _, leaf in fs.records.leaves(single)]
    x, y = X.astype(np.float32), Y.astype(np.float32) if Y.dtype.kind == "f" else Y
    value, grad, x_bar = fs.elbo_and_grad(single, x, y, inputs=True, jitter=1e-2)
    exact, exact_grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, jitter=1e-2)
    np.testing.assert_allclose(value, exact, rtol=1e-3)
    for (path, _, bar), (_, _, truth) in zip(
        fs.records.leaves(grad), fs.records.leaves(exact_grad), strict=True
    ):
        assert bar.dtype == np.float32, path
        np.testing.assert_allclose(
            bar, truth, rtol=0, atol=1e-2 * (1 + np.abs(truth).max()), err_msg=path
        )
    assert x_bar.dtype == np.float32
    np.testing.assert_allclose(x_bar, X_bar, rtol=0, atol=1e-2 * (1 + np.abs(X_bar).max()))
    for before, (path, _, leaf) in zip(kept, fs.records.leaves(single), strict=True):
        np.testing.assert_array_equal(leaf, before, err_msg=path)


def assert_trains_and_is_kept(model, X, Y, folder, steps=20):
    """Assert that the flat vector, Adam on every leaf, and files work."""
    vector, unravel = fs.ravel(model)
    np.testing.assert_allclose(fs.elbo(unravel(vector), X, Y), fs.elbo(model, X, Y), rtol=1e-9)
    optimiser, moved = fs.adam(0.01), model
    state = optimiser.init(model)
    for _ in range(steps):
        value, grad = fs.elbo_and_grad(moved, X, Y, wrt=optimiser.paths(moved))
        moved, state = optimiser.step(moved, grad, state, value)
    assert fs.elbo(moved, X, Y) > fs.elbo(model, X, Y)
    for (path, _, before), (_, _, after) in zip(
        fs.records.leaves(model), fs.records.leaves(moved), strict=True
    ):
        assert not np.array_equal(before, after), f"{path} rests"
    fs.save(folder / "model.npz", moved)
    again = fs.load(folder / "model.npz")
    assert type(again) is type(model) and fs.elbo(again, X, Y) == fs.elbo(moved, X, Y)
    return moved


def assert_fits(model, X, Y, **options):
    """Assert that ``fit`` raises the bound on minibatches."""
    trained, info = fs.fit(model, X, Y, steps=30, batch_size=len(X) // 2, rng=0, **options)
    assert info.steps == 30 and fs.elbo(trained, X, Y) > fs.elbo(model, X, Y)
    return trained


def assert_joint_predictions(model, X):
    """Assert that diagonals of covariances are the variances, and the shapes of samples."""
    mean, var = fs.predict_f(model, X)
    joint, cov = fs.predict_f(model, X, full_cov=True)
    np.testing.assert_allclose(joint, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diagonal(cov, axis1=-2, axis2=-1).T, var, rtol=1e-7, atol=1e-9)
    assert fs.sample_f(model, X, 3, rng=0).shape == (3, *mean.shape)
