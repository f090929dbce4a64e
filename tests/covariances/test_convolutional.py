"""Compare convolutional covariances with loops over all pairs of patches."""

import tracemalloc

import numpy as np
import pytest
from oracles import covariances, patches
from support.convolutional_problems import COLUMNS, TABLE, D, M, N, everything, problem
from support.numerics import assert_adjoint, exactly, symmetric

import fastsvgp as fs
from fastsvgp.kernels.cpu.common import scratch
from fastsvgp.records import leaves, replace_at, tree_map


def diagonal(covariance, X):
    return patches.Kff(covariance, X, X).diagonal()


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks(rng, name, dtype):
    covariance, Z, V, X, Y = problem(rng, name, dtype=dtype)
    covariance.check_dim(covariance.num_columns(Z))
    assert covariance.num_columns(Z) == COLUMNS and covariance.num_inducing(Z) == (M,)
    exact, u, v, x, y = (
        exactly(a)[0] if isinstance(a, np.ndarray) else a for a in (covariance, Z, V, X, Y)
    )
    size = np.abs(diagonal(covariance, X)).max() + 1
    for found, truth in (
        (covariance.Kuu(Z), patches.Kuu(exact, u, u)),
        (covariance.Kuu(Z, V), patches.Kuu(exact, u, v)),
        (covariance.Kuf(Z, X), patches.Kuf(exact, u, x)),
        (covariance.kff(X), diagonal(exact, x)),
        (covariance.Kff(X), patches.Kff(exact, x, x)),
        (covariance.Kff(X, Y), patches.Kff(exact, x, y)),
    ):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, truth, rtol=0, atol=200 * np.finfo(dtype).eps * size)
    K = np.block(
        [[covariance.Kuu(Z), covariance.Kuf(Z, X)], [covariance.Kuf(Z, X).T, covariance.Kff(X)]]
    ).astype(float)
    assert np.linalg.eigvalsh(K).min() > -100 * np.finfo(dtype).eps * np.abs(K).max()
    np.testing.assert_array_equal(covariance.Kff(X), covariance.Kff(X).T)


@everything
@pytest.mark.parametrize("scalar", [True, False])
def test_each_block_reversed(rng, name, scalar, tune):
    """Check every field and input by differences of the definition, in chunks and singly."""
    tune(window_chunk_numbers=3 * D, window_range=4)
    covariance, Z, V, X, Y = problem(rng, name, scalar)
    paths = [path for path, _, value in leaves(covariance) if value is not None]
    fields = [value for _, _, value in leaves(covariance) if value is not None]

    def check(K_bar, rule, of, *arguments, names):
        bars = rule(K_bar, *([] if rule == covariance.kff_vjp else [None]), *arguments)
        found = dict((path, bar) for path, _, bar in leaves(bars[0]))

        def f(*values):
            moved = covariance
            for path, value in zip(paths, values, strict=False):
                moved = replace_at(moved, path, value)
            return of(moved, *values[len(paths) :])

        inputs = [bar for bar in bars[1:] if bar is not None]
        assert_adjoint(
            f,
            exactly(*fields, *arguments),
            (*(found[path] for path in paths), *inputs),
            K_bar,
            rng,
            h=1e-4,
        )
        if len(arguments) == 1 and len(names) == 2:
            arguments = (*arguments, None)
        for i, one in enumerate(names):
            alone = rule(
                K_bar, *([] if rule == covariance.kff_vjp else [None]), *arguments, need=(one,)
            )
            assert [bar is None for bar in alone] == [j != i + 1 for j in range(len(bars))] or bars[
                i + 1
            ] is None
            if bars[i + 1] is not None:
                np.testing.assert_allclose(alone[i + 1], bars[i + 1], rtol=1e-9, atol=1e-11)
        for path in paths:
            alone = rule(
                K_bar,
                *([] if rule == covariance.kff_vjp else [None]),
                *arguments,
                need=(f"covariance.{path}",),
            )
            assert all(bar is None for bar in alone[1:])
            got = {p: bar for p, _, bar in leaves(alone[0]) if bar is not None}
            np.testing.assert_allclose(got.pop(path), found[path], rtol=1e-9, atol=1e-11)
            assert not got

    check(
        symmetric(rng, M),
        covariance.Kuu_vjp,
        lambda k, u: patches.Kuu(k, u, u),
        Z,
        names=("inducing", "other"),
    )
    check(
        rng.standard_normal((M, M - 1)),
        covariance.Kuu_vjp,
        patches.Kuu,
        Z,
        V,
        names=("inducing", "other"),
    )
    check(
        rng.standard_normal((M, N)), covariance.Kuf_vjp, patches.Kuf, Z, X, names=("inducing", "X")
    )
    check(rng.standard_normal(N), covariance.kff_vjp, diagonal, X, names=("X",))
    check(
        symmetric(rng, N),
        covariance.Kff_vjp,
        lambda k, x: patches.Kff(k, x, x),
        X,
        names=("X", "other"),
    )
    check(
        rng.standard_normal((N, N - 1)), covariance.Kff_vjp, patches.Kff, X, Y, names=("X", "other")
    )


@everything
def test_no_images_and_two_sets(rng, name):
    covariance, Z, _, X, _ = problem(rng, name)
    none = covariance.blocks(Z, X[:0])
    bars = covariance.blocks_vjp(none, none, Z, X[:0], ("covariance", "inducing", "X"))
    assert none.Kuf.shape == (M, 0) and none.kff.shape == (0,) and bars[2].shape == (0, COLUMNS)
    assert all(
        np.shape(bar) == np.shape(a)
        for (_, _, bar), (_, _, a) in zip(leaves(bars[0]), leaves(covariance), strict=True)
    )
    pair = fs.posteriors.InducingPair(Z[:2], Z[2:])
    assert covariance.num_inducing(pair) == (2, M - 2) and covariance.num_columns(pair) == COLUMNS
    blocks = covariance.blocks(Z, X)
    np.testing.assert_array_equal(covariance.Kuf(pair, X), blocks.Kuf)
    of_pair = covariance.blocks_vjp(blocks, blocks, pair, X)[1]
    of_stack = covariance.blocks_vjp(blocks, blocks, Z, X)[1]
    np.testing.assert_allclose(np.vstack([of_pair.Z, of_pair.O]), of_stack, rtol=1e-12)


@pytest.mark.parametrize(
    "patch", [fs.RBF(1.2, 3.0), fs.Matern12(0.8, 2.0), fs.RBF(1.1, 2.0) * fs.Linear(0.3)], ids=str
)
def test_patch_of_image_size_gives_the_patch_covariance(rng, patch):
    covariance = fs.covariances.Convolutional(patch, 1.0, image_shape=(3, 4), patch_shape=(3, 4))
    Z, X = rng.standard_normal((M, D)), rng.standard_normal((N, D))
    ours, plain = covariance.blocks(Z, X, full_cov=True), patch.blocks(Z, X, full_cov=True)
    for (_, _, a), (_, _, b) in zip(leaves(ours), leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    bar = tree_map(lambda a: np.sin(5 * a), plain)
    ours, plain = (
        k.blocks_vjp(bar, b, Z, X, ("covariance", "inducing", "X"))
        for k, b in ((covariance, ours), (patch, plain))
    )
    for (_, _, a), (_, _, b) in zip(
        leaves(ours[0].patch_covariance), leaves(plain[0]), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(ours[1:], plain[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["rbf", "sum", "rbf, places"])
def test_memory_does_not_grow_with_the_patches(rng, name):
    """Memory is 2^21 numbers besides X and blocks; N P M is nearly twice that, and P P more."""
    _, location = TABLE[name]
    windows = 39 * 39
    place = location and fs.Matern52(1.3, 2.0)
    covariance = fs.covariances.Convolutional(
        fs.RBF(1.2, 3.0) if name != "sum" else fs.RBF(1.2, 3.0) + fs.Linear(),
        1.0,
        place,
        image_shape=(40, 41),
        patch_shape=(2, 3),
    )
    Z, X = rng.standard_normal((260, 8 if place else 6)), rng.standard_normal((10, 40 * 41))
    assert 260 * 10 * windows > 1.8 * 2**21 and windows**2 > 2**21

    def step():
        blocks = covariance.blocks(Z, X)
        covariance.blocks_vjp(blocks, blocks, Z, X)

    step()
    scratch.clear()
    tracemalloc.start()
    try:
        step()
        peak = tracemalloc.get_traced_memory()[1] / 8
    finally:
        tracemalloc.stop()
    assert peak < 2**21 + 4 * (260 * 260 + 260 * 10)


def test_oracle_matches_one_image_written_out(rng):
    """Write out the loops of the oracle for one image of two patches."""
    covariance = fs.covariances.Convolutional(
        fs.RBF(1.3, 2.0), np.array([0.5, 2.0]), image_shape=(1, 3), patch_shape=(1, 2)
    )
    x, z = rng.standard_normal((1, 3)), rng.standard_normal((1, 2))

    def k(a, b):
        return covariances.stationary("rbf", a[None], b[None], 1.3, 2.0)[0, 0]

    a, b = x[0, :2], x[0, 1:]
    np.testing.assert_allclose(
        covariance.Kuf(z, x), [[0.5 * k(z[0], a) + 2 * k(z[0], b)]], rtol=1e-13
    )
    np.testing.assert_allclose(
        covariance.kff(x), [0.25 * k(a, a) + 2 * k(a, b) + 4 * k(b, b)], rtol=1e-13
    )
