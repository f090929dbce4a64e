"""Layers on patches: feature maps under a plain, a convolutional and another patch layer."""

import numpy as np
import pytest
from oracles import patches as oracle
from support import definitions
from support.derivatives import assert_derivative, assert_gradient, extended
from support.feature_map_problems import CHAINS, B, M, feature_map, problem, top
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.bounds import layer_pass
from fastsvgp.bounds.relay import chunks
from fastsvgp.layers import convolutional
from fastsvgp.layers.chain_pass import Chain

OPTIONS = {"num_data": 3.5 * B, "jitter": JITTER}


@pytest.mark.parametrize("kind", CHAINS)
def test_value_and_gradients_follow_the_definition(rng, kind):
    model, X, Y, draws = problem(rng, kind)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, **OPTIONS)

    def definition(model, X=X):
        return definitions.deep_elbo(model, X, Y, 3.5, JITTER, draws)

    assert value == pytest.approx(definition(model).real, rel=1e-10)
    assert_gradient(definition, model, grad, rng)
    exact = fs.records.tree_map(extended, model)
    assert_derivative(
        lambda X: definition(exact, X), extended(X), X_bar, rng.standard_normal(X.shape), name="X"
    )


def leaf_values(tree):
    return {path: bar for path, _, bar in fs.records.leaves(tree) if bar is not None}


def assert_close(a, b, rtol=1e-12):
    a, b = leaf_values(a), leaf_values(b)
    assert list(a) == list(b)
    for path, bar in b.items():
        np.testing.assert_allclose(
            a[path], bar, rtol=rtol, atol=rtol * max(1, np.abs(bar).max()), err_msg=path
        )


@pytest.mark.parametrize("kind", CHAINS)
def test_merged_patches_and_chunks_give_the_same_result(rng, kind, monkeypatch, tune):
    """Patches pass one by one if X has a gradient; else constant patches are merged."""
    model, X, Y, draws = problem(rng, kind)
    value, grad, _ = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, **OPTIONS)
    sizes, plain = [], convolutional.merge_patches
    monkeypatch.setattr(
        convolutional,
        "merge_patches",
        lambda rows: sizes.append((len(rows), len(plain(rows)[0]))) or plain(rows),
    )
    merged = fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)
    assert sizes[0][0] == B * model.layers[0].rows_each > sizes[0][1] and all(
        n == kept for n, kept in sizes[1:]
    )
    tune(bound_chunk_columns=2 * model.layers[0].rows_each, bound_chunk_numbers=1)
    assert len(list(chunks(Chain(model, JITTER, draws=draws), X))) == B
    for found in (merged, fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)):
        assert found[0] == pytest.approx(value, rel=1e-13)
        assert_close(found[1], grad)


def test_only_equal_constant_patches_are_merged(rng):
    patches = rng.standard_normal((9, 4))
    patches[[0, 3, 4]], patches[[2, 8]], patches[6] = 0.0, 0.5, -1.0
    rows, which = convolutional.merge_patches(patches)
    np.testing.assert_array_equal(rows[which], patches)
    assert len(rows) == 6
    assert convolutional.merge_patches(patches[4:8]) == (pytest.approx(patches[4:8]), None)


@pytest.mark.parametrize("name", ["whitened", "likelihood", "Orthogonal"])
def test_a_layer_of_one_window_is_a_plain_layer(rng, name):
    below = feature_map(rng, (2, 3, 2), (2, 3), 4, 3, name)
    plain = fs.layers.Layer(below.covariance, below.inducing, below.posterior, below.mean)
    above, X, Y = top(rng, below, "plain"), rng.standard_normal((B, 12)), rng.standard_normal(B)
    model, due = (fs.DeepGP((layer, above), fs.Gaussian(0.3)) for layer in (below, plain))
    (value, grad, X_bar), (due_value, due_grad, due_X_bar) = (
        fs.elbo_and_grad(one, X, Y, rng=0, inputs=True, **OPTIONS) for one in (model, due)
    )
    assert value == pytest.approx(due_value, rel=1e-13)
    for (path, _, bar), (_, _, due_bar) in zip(
        fs.records.leaves(grad), fs.records.leaves(due_grad), strict=True
    ):
        np.testing.assert_allclose(bar, due_bar, rtol=1e-11, atol=1e-12, err_msg=path)
    np.testing.assert_allclose(X_bar, due_X_bar, rtol=1e-11, atol=1e-12)
    for call in (fs.predict_f, lambda m, X, **kw: fs.sample_f(m, X, 2, rng=1, **kw)):
        np.testing.assert_allclose(
            call(model, X, jitter=JITTER), call(due, X, jitter=JITTER), rtol=1e-11, atol=1e-12
        )


def test_a_last_layer_on_patches_is_an_svgp_of_them(rng):
    """Predictions, whole functions and a natural step; outputs go by channel within a window."""
    layer, X = feature_map(rng, (4, 5), (2, 2), 1, 3), rng.standard_normal((B, 20))
    patches = oracle.gather(X, layer.geometry).reshape(-1, 4)
    model = fs.DeepGP((layer,), fs.Gaussian(0.3))
    svgp = fs.SVGP(layer.covariance, layer.inducing, layer.posterior, model.likelihood, layer.mean)
    for found, due in zip(
        fs.predict_f(model, X, jitter=JITTER),
        fs.predict_f(svgp, patches, jitter=JITTER),
        strict=True,
    ):
        np.testing.assert_allclose(found, due.reshape(B, -1), rtol=1e-12)
    due = fs.sample_f(svgp, patches, 2, rng=1, jitter=JITTER).reshape(2, B, -1)
    np.testing.assert_allclose(fs.sample_f(model, X, 2, rng=1, jitter=JITTER), due, rtol=1e-12)
    Y = rng.standard_normal((B, 36))
    moved, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    due, _ = fs.natural_step(svgp, patches, Y.reshape(-1, 3), step_size=1.0, jitter=JITTER)
    assert_close(moved.layers[0].posterior, due.posterior, 1e-9)


def test_a_variance_at_its_floor_has_no_gradient(rng):
    """At one channel in one window of one image."""
    model, X, _, _ = problem(rng, "plain")
    layer, work = model.layers[0], Chain(model, JITTER).passes[0]
    patches = oracle.gather(X, layer.geometry)
    kff = np.stack([layer.covariance.kff(one) for one in patches])  # (B, windows)
    np.testing.assert_allclose(
        work.floor(X), np.finfo(float).eps * np.repeat(kff, 2, axis=1).T, rtol=1e-12
    )
    var = work.forward(X)[0].var.copy()
    var[11, 1] = work.floor(X)[11, 1]
    root = np.sqrt(var).T.reshape(1, B, -1)
    half = Chain._half(work, -1, X, var, root)
    assert half[0, 1, 11] == 0
    np.testing.assert_allclose(
        np.delete(half.ravel(), root[0].size // B + 11),
        0.5 / np.delete(root, root[0].size // B + 11),
    )


def test_convolutional_layers_train_and_save(rng, tmp_path):
    """Flat vector, natural updates of a hidden layer, its inverse factor, files."""
    model, X, Y, draws = problem(rng, "plain")
    vector, unravel = fs.ravel(model)
    _, grad = fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)
    due = unravel.pullback(vector, grad) @ (d := rng.standard_normal(vector.size))
    up, down = (
        fs.elbo(unravel(vector + h * d), X, Y, draws=draws, **OPTIONS) for h in (1e-5, -1e-5)
    )
    assert (up - down) / 2e-5 == pytest.approx(due, rel=1e-6)
    refreshed, info = fs.optim.update_inverse_factor(model)
    assert info[1] is None and isinstance(refreshed.layers[0], fs.layers.ConvolutionalLayer)
    other, X, Y, draws = problem(rng, "places")
    before, grad = fs.elbo_and_grad(other, X, Y, draws=draws, **OPTIONS)
    first = other.layers[0]
    first = fs.replace(
        first, posterior=fs.optim.natural_update(first.posterior, grad.layers[0].posterior, 1e-3)
    )
    moved = fs.replace(other, layers=(first, *other.layers[1:]))
    assert fs.elbo(moved, X, Y, draws=draws, **OPTIONS) > before
    fs.save(tmp_path / "model.npz", moved)
    loaded = fs.load(tmp_path / "model.npz")
    assert loaded.layers[0].geometry == first.geometry and loaded.layers[0].output_shape == (
        3,
        2,
        3,
    )
    assert fs.elbo(loaded, X, Y, draws=draws, **OPTIONS) == fs.elbo(
        moved, X, Y, draws=draws, **OPTIONS
    )


@pytest.mark.parametrize("kind", ["convolutional", "maps"])
def test_float32_is_close_to_float64(rng, kind):
    model, X, Y, draws = problem(rng, kind)
    due, due_grad = fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)
    single = fs.records.tree_map(np.float32, model)
    for inputs in (False, True):
        value, grad, *bars = fs.elbo_and_grad(
            single,
            X.astype(np.float32),
            Y.astype(np.float32),
            draws=draws,
            inputs=inputs,
            **OPTIONS,
        )
        assert value == pytest.approx(due, rel=1e-3) and all(
            bar.dtype == np.float32 for bar in bars
        )
        largest = max(np.abs(b).max() for _, _, b in fs.records.leaves(due_grad))
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(grad), fs.records.leaves(due_grad), strict=True
        ):
            assert a.dtype == np.float32, path
            # sums can cancel down to the rounding of their terms
            atol = max(2e-2 * np.abs(b).max(), 1e-6 * largest)
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=atol, err_msg=path)
    assert all(
        a.dtype == np.float32
        for a in fs.predict_f(single, X.astype(np.float32), jitter=JITTER, num_samples=4)
    )


def odd(rng):
    """Return {name: (model, columns of X, expected message)}."""
    below = feature_map(rng, (5, 5), (2, 3))
    above, fit = top(rng, below, "plain"), fs.Gaussian(0.3)
    other = feature_map(rng, (4, 4), (2, 2), 1, 2)
    turned = feature_map(rng, (3, 4, 2), (2, 2))

    def of(first, *rest):
        return fs.DeepGP((first, *rest), fit)

    return {
        "columns of X": (
            of(below, above),
            24,
            r"`X` has 24 columns where an image \(5, 5\) has 25",
        ),
        "columns of X of a plain layer": (
            fs.DeepGP((top(rng, below, "convolutional"),), fit),
            25,
            r"`X` has 25 columns where an image \(4, 3, 2\) has 24",
        ),
        "a map of another size": (
            of(below, other, top(rng, other, "plain")),
            25,
            r"`layers\[0\]` has 4 x 3 x 2 = 24 outputs, but .* `layers\[1\]` are for"
            " 4 x 4 x 1 = 16 columns",
        ),
        "a map on its side": (
            of(below, turned, top(rng, turned, "plain")),
            25,
            r"`layers\[0\]` has 4 x 3 x 2 = 24 outputs, but .* `layers\[1\]` are for"
            " 3 x 4 x 2 = 24 columns",
        ),
        "a covariance of another map": (
            of(below, top(rng, turned, "convolutional")),
            25,
            r"`layers\[0\]` has 4 x 3 x 2 = 24 .* for 2 x 3 x 2 = 12 columns",
        ),
        "a plain layer of fewer columns": (
            of(below, top(rng, other, "plain")),
            25,
            r"`layers\[0\]` has 4 x 3 x 2 = 24 outputs, but .* for 18 columns",
        ),
        "patches of another size": (
            of(fs.replace(below, patch_shape=(2, 2)), above),
            25,
            r"`layers\[0\]`: `inducing` is for 6 columns, but .* 2 x 2 x 1 = 4",
        ),
        "no channels": (
            of(fs.replace(below, posterior=fs.Whitened(np.zeros(M), np.eye(M))), above),
            25,
            r"`layers\[0\]`: .* need one leading axis, its channels, got \(\): use mean \(P, 4\)",
        ),
        "a large patch": (
            of(fs.replace(below, patch_shape=(6, 1)), above),
            25,
            r"`layers\[0\]`: `patch_shape` \(6, 1\) is larger",
        ),
        "no stride": (
            of(fs.replace(below, stride=0), above),
            25,
            r"`layers\[0\]`: `stride` must be a whole number of at least 1",
        ),
        "a mean of images": (
            of(fs.replace(below, mean=fs.means.IdentityMean()), above),
            25,
            r"`layers\[0\]`: IdentityMean: the inputs have 6 columns",
        ),
    }


def test_shapes_that_do_not_fit_are_rejected(rng):
    for name, (model, columns, said) in odd(rng).items():
        with pytest.raises(ValueError, match=said):
            fs.elbo(model, np.zeros((B, columns)), np.zeros(B))
            pytest.fail(name)


def test_images_that_are_the_same_are_named_by_their_rows(rng, monkeypatch):
    model, X, _, _ = problem(rng, "plain")
    monkeypatch.setattr(layer_pass, "joint_samples", lambda *_: kernels.cholesky(-np.eye(2)))
    with pytest.raises(fs.NotPositiveDefinite, match=r"`Xs\[2\]` and `Xs\[1\]` are the same"):
        fs.sample_f(model, X[[0, 1, 1]], rng=0)
    with pytest.raises(fs.NotPositiveDefinite) as found:
        fs.sample_f(model, X[:2], rng=0)
    assert "are the same" not in str(found.value)
