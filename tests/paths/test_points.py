"""Points of all functions and of each: values, gradients, runs of points, files, dtypes."""

import numpy as np
import pytest
from support.looped import looped
from support.path_problems import FEW, D, assert_slopes, chain, images, layer, sites, svgp
from support.peak_memory import peak_numbers
from support.posterior_problems import JITTER
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.kernels.cpu import products

S, n = 3, 4


def multi(rng):
    latents = layer(rng, D, None), layer(rng, D, 2)
    mean = fs.means.LinearMean(rng.standard_normal((2, D)), np.ones(2))
    return fs.MultiGP(latents, fs.Gaussian(0.1), rng.standard_normal((2, 3)), mean)


def vgp(rng):
    return fs.sites.VGP(
        fs.Matern52(1.2, 0.9), sites(rng, 8, 2), fs.Gaussian(0.1), fs.means.IdentityMean()
    )


def weighted(name):
    return lambda rng: fs.QSGP(basis_of(rng, name, 12), weights(rng, 12, 2), fs.Gaussian(0.1))


MODELS = {
    "one output": lambda rng: svgp(rng, mean=fs.means.LinearMean(np.ones(D), 0.2)),
    "three outputs": lambda rng: svgp(
        rng, "marginal", 3, "matern32", fs.means.ConstantMean(np.ones(3))
    ),
    "one mean": lambda rng: svgp(rng, "marginal", 3, mean=fs.means.LinearMean(np.ones(D), 0.2)),
    "one of one": lambda rng: svgp(rng, "likelihood", 1),
    "pair": lambda rng: svgp(rng, "Orthogonal", 2),
    "decoupled weights": lambda rng: svgp(rng, "DecoupledWeights", 2),
    "vgp": vgp,
    "fourier": weighted("fourier"),
    "inducing": weighted("inducing"),
    "multi": multi,
    "deep": chain,
    "deep outputs": lambda rng: chain(rng, 2),
    "images": images,
}
each_model = pytest.mark.parametrize("name", MODELS)


def columns_of(name):
    return 12 if name == "images" else D


def paths_of(rng, name, frequencies="own", count=S):
    """Return ``(paths, shared points, own points)``."""
    model, columns = MODELS[name](rng), columns_of(name)
    options = FEW | {"frequencies": frequencies}
    if isinstance(model, fs.sites.VGP):
        options["site_inputs"] = rng.uniform(-2, 2, (8, D))
    if isinstance(model, fs.QSGP):
        options = {}
    paths = fs.sample_paths(model, count, rng=1, **options)
    return paths, rng.uniform(-2, 2, (n, columns)), rng.uniform(-2, 2, (S, n, columns))


@looped("frequencies", ["own", "shared"])
@each_model
def test_gradients(rng, name, frequencies):
    paths, shared, own = paths_of(rng, name, frequencies)
    assert_slopes(paths, shared, rng)
    assert_slopes(paths, own, rng)


@looped("frequencies", ["own", "shared"])
@each_model
def test_own_points_and_slices_have_the_same_functions(rng, name, frequencies):
    paths, X, own = paths_of(rng, name, frequencies)
    values, each = paths(X), paths(own)
    scale = {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(paths(np.stack([X] * S)), values, **scale)
    assert len(paths) == S and values.shape[:2] == each.shape[:2] == (S, n)
    for s, one in enumerate(paths):
        np.testing.assert_allclose(one(X)[0], values[s], **scale)
        np.testing.assert_allclose(one(own[s])[0], each[s], **scale)
        np.testing.assert_allclose(one(own[s : s + 1])[0], each[s], **scale)
    for index in (slice(1, 3), slice(None, None, -1), [2, 0], np.array([True, False, True]), -1):
        some = paths[index]
        kept = np.atleast_1d(np.arange(S)[index])
        assert len(some) == len(kept)
        np.testing.assert_allclose(some(X), values[kept], **scale)
        np.testing.assert_allclose(some(own[kept]), each[kept], **scale)


@pytest.mark.parametrize("name", ["one output", "inducing", "fourier", "deep"])
def test_gradients_of_each_function(rng, name):
    paths, X, own = paths_of(rng, name)
    values, slopes = paths.and_grad(own)
    np.testing.assert_allclose(values, paths(own), rtol=1e-13)
    _, vjp = paths.and_vjp(own)
    np.testing.assert_allclose(slopes, vjp(np.ones((S, n))), rtol=1e-12, atol=1e-13)
    at_all, slopes = paths.and_grad(np.broadcast_to(X, (S, *X.shape)))
    np.testing.assert_allclose(at_all, paths(X), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(slopes.sum(axis=0), paths.and_vjp(X)[1](np.ones((S, n))), rtol=1e-9)


@looped("numbers", [1, 20, 60, 200])
@each_model
def test_runs_of_points(rng, monkeypatch, name, numbers):
    paths, shared, own = paths_of(rng, name)
    due = [paths.and_vjp(X) for X in (shared, own)]
    monkeypatch.setattr(products, "CHUNK", numbers)
    for X, (values, vjp) in zip((shared, own), due, strict=True):
        found, there = paths.and_vjp(X)
        np.testing.assert_allclose(found, values, rtol=1e-11, atol=1e-11)
        bar = rng.standard_normal(values.shape)
        np.testing.assert_allclose(there(bar), vjp(bar), rtol=1e-10, atol=1e-10)


def test_memory_grows_with_the_results_only(rng):
    paths = fs.sample_paths(svgp(rng, M=200), 2, rng=0, **FEW)
    X = rng.uniform(-2, 2, (60_000, D))
    assert peak_numbers(lambda: paths(X)) < 3 * 2**21 + 20 * len(X)  # K has 12 million


@each_model
def test_files(rng, name, tmp_path):
    paths, X, own = paths_of(rng, name)
    fs.save(tmp_path / "paths.npz", paths)
    loaded = fs.load(tmp_path / "paths.npz")
    assert type(loaded) is fs.posteriors.Paths
    for points in (X, own):
        np.testing.assert_array_equal(loaded(points), paths(points))
    np.testing.assert_array_equal(loaded[1:](X), paths[1:](X))
    again, *_ = paths_of(np.random.default_rng([0, 1]), name)  # another model
    assert not np.array_equal(again(X), paths(X))


@each_model
def test_a_seed_gives_the_same_functions(rng, name):
    state = rng.bit_generator.state
    first, X, _ = paths_of(rng, name)
    rng.bit_generator.state = state
    second, _, _ = paths_of(rng, name)
    np.testing.assert_array_equal(first(X), second(X))


@each_model
def test_float32(rng, name):
    model, columns = MODELS[name](rng), columns_of(name)
    narrow = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    options = FEW | (
        {"site_inputs": rng.uniform(-2, 2, (8, D))} if isinstance(model, fs.sites.VGP) else {}
    )
    options = {} if isinstance(model, fs.QSGP) else options
    wide = fs.sample_paths(model, S, rng=1, **options)
    if "site_inputs" in options:
        options["site_inputs"] = options["site_inputs"].astype(np.float32)
    paths = fs.sample_paths(narrow, S, rng=1, **options)
    for shape in ((n, columns), (S, n, columns)):
        X = rng.uniform(-2, 2, shape).astype(np.float32)
        values, vjp = paths.and_vjp(X)
        due, due_vjp = wide.and_vjp(X.astype(float))
        assert values.dtype == np.float32 and values.shape == due.shape
        np.testing.assert_allclose(values, due, atol=5e-3 * np.abs(due).max())
        bar = rng.standard_normal(values.shape)
        X_bar, due_bar = vjp(bar.astype(np.float32)), due_vjp(bar)
        assert X_bar.dtype == np.float32
        np.testing.assert_allclose(X_bar, due_bar, atol=1e-2 * np.abs(due_bar).max())


def test_nothing_is_modified(rng):
    model = svgp(rng, "marginal", 2, mean=fs.means.LinearMean(np.ones(D)))
    before = [np.array(value) for _, _, value in fs.records.leaves(model)]
    paths = fs.sample_paths(model, S, rng=0, **FEW)
    X, bar = rng.uniform(-2, 2, (S, n, D)), rng.standard_normal((S, n, 2))
    copies = X.copy(), bar.copy(), [np.array(value) for _, _, value in fs.records.leaves(paths)]
    _, vjp = paths.and_vjp(X)
    first = vjp(bar)
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(bar, copies[1])
    for found, kept in ((paths, copies[2]), (model, before)):
        for (path, _, value), due in zip(fs.records.leaves(found), kept, strict=True):
            np.testing.assert_array_equal(value, due, err_msg=path)
    X[:] = 0  # the pullback has a copy
    np.testing.assert_array_equal(vjp(bar), first)


def test_weights_of_a_decoupled_model_are_not_repeated(rng):
    paths = fs.sample_paths(svgp(rng, "DecoupledWeights"), 50, rng=0, **FEW)
    of_Z, of_O = paths.functions.terms
    assert of_Z.weights.shape == (50, 1, 5) and of_O.weights.shape == (1, 1, 2)
    assert len(paths[:1]) == 1 and len(paths[:7]) == 7


def test_points_of_other_kinds(rng):
    paths, X, _ = paths_of(rng, "one output")
    whole = np.array([[1, 2], [0, -1]])
    np.testing.assert_array_equal(paths(whole), paths(whole.astype(float)))
    np.testing.assert_array_equal(paths(whole.tolist()), paths(whole.astype(float)))
    np.testing.assert_array_equal(paths(X[::-1]), paths(X)[:, ::-1])
    assert fs.sample_paths(svgp(rng), rng=0, jitter=JITTER)(X).shape == (1, n)
