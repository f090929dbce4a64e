"""Contract of every covariance: its matrix and diagonal, and the reverse rule of all blocks."""

import numpy as np
import pytest
from oracles import covariances as oracle
from support.covariance_problems import (
    NEED,
    TABLE,
    assert_same,
    cast,
    every_size,
    everything,
    inputs,
)
from support.looped import looped
from support.numerics import assert_adjoint, assert_typically_as_accurate_as, exactly, symmetric

from fastsvgp import kernels
from fastsvgp.covariances import RBF, Constant, Linear, Matern12, Matern32, Matern52
from fastsvgp.records import Blocks, leaves, matches, replace, replace_at, tree_map


@every_size
@looped("dtype", [np.float64, np.float32])
def test_matrix_and_diag(rng, name, D, dtype):
    covariance = cast(TABLE[name](rng, D), dtype)
    exact = cast(covariance, np.longdouble)
    for N1, N2 in ((17, 65), (1, 3), (3, 1)):
        fast, plain, truth = [], [], []
        for X1, X2 in [inputs(rng, N1, N2, D, dtype) for _ in range(15)]:
            K = covariance.matrix(X1, X2)
            assert K.dtype == dtype and K.shape == (N1, N2)
            fast.append(K)
            plain.append(oracle.matrix(covariance, X1, X2))
            truth.append(oracle.matrix(exact, *exactly(X1, X2)))
        assert_typically_as_accurate_as(
            fast, plain, truth, slack=8 if "cosine" in name else 4, dtype=dtype
        )
    K = covariance.matrix(X1 := inputs(rng, 65, 0, D, dtype)[0])
    np.testing.assert_array_equal(K, K.T)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        K, oracle.matrix(covariance, X1, X1), rtol=0, atol=40 * eps * K.max()
    )
    k = covariance.diag(X1)
    assert k.dtype == dtype
    np.testing.assert_allclose(k, np.diag(K), rtol=8 * eps)


@every_size
def test_blocks_reversed(rng, name, D):
    """Check each field and input along a random direction by differences of the definition."""
    covariance = TABLE[name](rng, D)
    Z, X = inputs(rng, 17, 65, D)
    blocks = covariance.blocks(Z, X, full_cov=True)
    bar = Blocks(
        symmetric(rng, 17),
        rng.standard_normal((17, 65)),
        rng.standard_normal(65),
        symmetric(rng, 65),
    )
    kept = tree_map(np.copy, bar)
    covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    for (_, _, a), (_, _, b) in zip(leaves(bar), leaves(kept), strict=True):
        np.testing.assert_array_equal(a, b)  # cotangents are not overwritten
    assert type(covariance_bar) is type(covariance)
    assert [np.shape(v) for _, _, v in leaves(covariance_bar)] == [
        np.shape(v) for _, _, v in leaves(covariance)
    ]
    pairs = zip(leaves(covariance), leaves(covariance_bar), strict=True)
    paths, fields, field_bars = zip(
        *((path, a, b) for (path, _, a), (_, _, b) in pairs), strict=True
    )

    def together(*parts):
        return np.concatenate([np.ravel(part) for part in parts])

    def f(*arguments):
        *fields, Z, X = arguments
        moved = covariance
        for path, field in zip(paths, fields, strict=True):
            moved = replace_at(moved, path, field)
        K = oracle.matrix(moved, X, X)
        return together(oracle.matrix(moved, Z, Z), oracle.matrix(moved, Z, X), np.diag(K), K)

    y_bar = together(bar.Kuu, bar.Kuf, bar.kff, bar.Kff)
    # far from the kinks
    assert_adjoint(f, exactly(*fields, Z, X), (*field_bars, Z_bar, X_bar), y_bar, rng, h=1e-4)


@everything
def test_cotangents_are_none_unless_needed(rng, name):
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 7, 3)
    blocks = covariance.blocks(Z, X)
    assert blocks.Kff is None
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    complete = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    for i, need in enumerate(NEED):
        results = covariance.blocks_vjp(bar, blocks, Z, X, need=(need,))
        assert [r is None for r in results] == [j != i for j in range(3)]
        assert_same(results[i], complete[i])
    nothing = Blocks(None, None, None)
    alone = [replace(nothing, **{part: getattr(bar, part)}) for part in ("Kuu", "Kuf", "kff")]
    parts = [covariance.blocks_vjp(one, blocks, Z, X, NEED) for one in alone]
    assert_same(tree_map(lambda *v: sum(v), *(part[0] for part in parts)), complete[0])
    for i in (1, 2):
        assert_same(sum(part[i] for part in parts), complete[i])
    zero = covariance.blocks_vjp(nothing, blocks, Z, X, NEED)
    assert_same(zero[0], tree_map(lambda v: 0 * v, covariance))
    assert not zero[1].any() and not zero[2].any()


@everything
def test_single_fields(rng, name):
    """A dotted name gives that field, or all fields below it, and requested inputs."""
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 7, 3)
    blocks = covariance.blocks(Z, X)
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    complete, Z_bar, _ = covariance.blocks_vjp(bar, blocks, Z, X)
    complete = {path: value for path, _, value in leaves(complete)}
    above = {path.rsplit(".", 1)[0] for path in complete if "." in path} | (
        {"parts"} if hasattr(covariance, "parts") else set()
    )
    for field in (*complete, *above):
        for more in ((), ("inducing",)):
            covariance_bar, some_Z_bar, X_bar = covariance.blocks_vjp(
                bar, blocks, Z, X, (f"covariance.{field}", *more)
            )
            got = {path: value for path, _, value in leaves(covariance_bar) if value is not None}
            assert set(got) == {path for path in complete if matches(path, (field,))}
            for path, value in got.items():
                np.testing.assert_allclose(
                    value, complete[path], rtol=1e-10, atol=1e-12, err_msg=path
                )
            assert X_bar is None and (some_Z_bar is None) == (not more)
            if more:
                assert_same(some_Z_bar, Z_bar)


@pytest.fixture
def needs(monkeypatch):
    """Record ``need`` of each call of the reverse kernels of stationary and linear covariances."""
    calls = []
    for name in ("stationary_vjp", "inner_vjp"):
        plain = getattr(kernels, name)

        def spy(*args, need, plain=plain, **kwargs):
            calls.append(set(need))
            return plain(*args, need=need, **kwargs)

        monkeypatch.setattr(kernels, name, spy)
    return calls


@pytest.mark.parametrize(
    "need, kernels_do",
    [
        (("covariance.parts.0.parts.0.variance",), [{"variance"}]),
        (
            ("covariance.parts.0.parts.0.lengthscales", "inducing"),
            [{"X1", "lengthscales"}, {"X1"}, {"X1"}],
        ),
        (("covariance.parts.0.parts.1",), [{"variance", "lengthscales"}]),
        (
            ("covariance.parts.1.variance", "covariance.parts.0.parts.1.variance"),
            [{"variance"}, {"weights"}],
        ),
        (("covariance.parts.2",), []),
        (("inducing",), [{"X1"}, {"X1"}, {"X1"}]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_kernels_compute_nothing_else(rng, needs, need, kernels_do):
    covariance = RBF(1.1, np.full(3, 2.0)) * Matern52(0.8, 1.5) + Linear(0.5) + Constant(0.2)
    Z, X = inputs(rng, 5, 7, 3)
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    covariance.blocks_vjp(bar, covariance.blocks(Z, X), Z, X, need)
    # once for Kuu, once for Kuf
    assert sorted(map(sorted, needs)) == sorted(map(sorted, 2 * kernels_do))


@everything
def test_matrix_reversed_without_the_matrix(rng, name):
    covariance = TABLE[name](rng, 3)
    X1, X2 = inputs(rng, 5, 7, 3)
    K, K_bar = covariance.matrix(X1, X2), rng.standard_normal((5, 7))
    for a, b in zip(
        covariance.matrix_vjp(K_bar, None, X1, X2),
        covariance.matrix_vjp(K_bar, K, X1, X2),
        strict=True,
    ):
        assert_same(a, b)


@everything
@looped("dtype", [np.float64, np.float32])
def test_gradients_have_the_dtype_of_the_arrays(rng, name, dtype):
    covariance = cast(TABLE[name](rng, 3), dtype)
    Z, X = inputs(rng, 5, 7, 3, dtype)
    bar = Blocks(symmetric(rng, 5).astype(dtype), np.ones((5, 7), dtype), np.ones(7, dtype))
    covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(
        bar, covariance.blocks(Z, X), Z, X, need=NEED
    )
    assert Z_bar.dtype == dtype and X_bar.dtype == dtype
    assert all(v.dtype == dtype for _, _, v in leaves(covariance_bar))


@looped("D", [2, 50])
@looped("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", [RBF, Matern12, Matern32, Matern52])
def test_lengthscales_may_be_tiny(rng, family, dtype, D):
    """No overflow (a warning would be an error), and only equal points are correlated."""
    Z, X = inputs(rng, 5, 7, D, dtype)
    X[3] = Z[2]
    bar = Blocks(
        symmetric(rng, 5).astype(dtype),
        rng.standard_normal((5, 7)).astype(dtype),
        np.ones(7, dtype),
    )
    for lengthscales in (
        np.finfo(dtype).tiny,
        np.finfo(dtype).tiny ** 0.5,
        np.finfo(dtype).smallest_subnormal,
    ):
        for shape in ((), (D,)):
            covariance = family(dtype(1.5), np.full(shape, lengthscales, dtype)[()])
            blocks = covariance.blocks(Z, X)
            np.testing.assert_array_equal(blocks.Kuu, dtype(1.5) * np.eye(5, dtype=dtype))
            np.testing.assert_array_equal(
                blocks.Kuf, dtype(1.5) * (np.arange(5)[:, None] == 2) * (np.arange(7) == 3)
            )
            covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, NEED)
            expected = np.trace(bar.Kuu, dtype=float) + bar.Kuf[2, 3] + 7
            np.testing.assert_allclose(covariance_bar.variance, expected, rtol=1e-5)
            assert not np.any(covariance_bar.lengthscales) and not Z_bar.any() and not X_bar.any()


@everything
def test_empty_batch(rng, name):
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 0, 3)
    blocks = covariance.blocks(Z, X, full_cov=True)
    assert blocks.Kuf.shape == (5, 0) and blocks.kff.shape == (0,) and blocks.Kff.shape == (0, 0)
    bar = Blocks(symmetric(rng, 5), np.zeros((5, 0)), np.zeros(0))
    _, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    assert Z_bar.shape == (5, 3) and X_bar.shape == (0, 3)
