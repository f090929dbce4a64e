"""Sums of rows in a basis of sines: against dense products, combined, and from files and ranks."""

import numpy as np
import pytest
from support.fixed_basis import features

import fastsvgp as fs
from fastsvgp.bounds import HilbertBasis, sufficient_sums

SHAPES = {1: (40,), 2: (9, 7), 3: (5, 4, 6)}


def problem(rng, D, n=300, P=()):
    X = rng.uniform(-1, 2, (n, D)) * (1 + np.arange(D))
    Y = np.sin(3 * X[:, 0])[(...,) + (None,) * len(P)] + 0.1 * rng.standard_normal((n, *P))
    return HilbertBasis(X.min(0), X.max(0), np.array(SHAPES[D]), 1.4), X, Y


def same(ours, other, rtol=1e-9):
    for name in ("products", "crossed", "squares", "count", "rows"):
        one = getattr(other, name)
        scale = np.abs(one).max()
        np.testing.assert_allclose(getattr(ours, name), one, atol=rtol * scale)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_sums_are_the_dense_products(rng, D):
    basis, X, Y = problem(rng, D, P=(2,))
    w = rng.uniform(0.5, 2, len(X))
    sums, Phi = sufficient_sums(basis, X, Y, weights=w), features(X, basis)
    size = len(X) * np.prod(basis.half_width) ** -1.0
    np.testing.assert_allclose(sums.gram(), Phi.T * w @ Phi, atol=1e-10 * size)
    np.testing.assert_allclose(sums.crossed, Phi.T * w @ Y, atol=1e-10 * size)
    np.testing.assert_allclose(sums.squares, w @ Y**2)
    assert len(sums) == len(X) and np.isclose(sums.count, w.sum())


@pytest.mark.parametrize("groups", [((0,), (1,), (2,)), ((0,), (1, 2))])
def test_several_groups(rng, groups):
    basis, X, Y = problem(rng, 3)
    basis = fs.replace(basis, groups=groups)
    sums, Phi = sufficient_sums(basis, X, Y), features(X, basis)
    assert Phi.shape[1] == basis.size
    np.testing.assert_allclose(sums.gram(), Phi.T @ Phi, atol=1e-9)
    np.testing.assert_allclose(sums.crossed, Phi.T @ Y, atol=1e-9)


@pytest.mark.parametrize("groups", [None, ((0,), (1,))])
def test_rows_of_the_basis_are_the_adjoint_of_sums(rng, groups):
    basis, X, _ = problem(rng, 2, 70)
    basis = fs.replace(basis, groups=((0, 1),) if groups is None else groups)
    m, Phi = basis.size, features(X, basis)
    W, S = rng.standard_normal((2, m)), rng.standard_normal((3, m, m))
    S = S + S.swapaxes(1, 2)
    angles = basis.angles(X)
    means, squares = basis.rows(W, S)(angles)
    np.testing.assert_allclose(means, W @ Phi.T, atol=1e-9 * m)
    truth = np.einsum("ni,aij,nj->an", Phi, S, Phi)
    np.testing.assert_allclose(squares, truth, atol=1e-9 * m**2)
    a, b = rng.standard_normal((2, 70)), rng.standard_normal((3, 70))
    made = basis.sums(3, 2)
    made.add(angles, b, a)
    grams = np.stack([basis.gram(one) for one in made.products()])
    np.testing.assert_allclose((grams * S).sum(), (b * squares).sum(), rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose((made.crossed() * W).sum(), (a * means).sum(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("D", [1, 2])
def test_sums_add_subtract_and_are_saved(rng, tmp_path, D):
    basis, X, Y = problem(rng, D, P=(2,))
    folds = [sufficient_sums(basis, X[i::3], Y[i::3]) for i in range(3)]
    whole = sufficient_sums(basis, X, Y)
    total = folds[0] + folds[1] + folds[2]
    same(total, whole)
    same(total - folds[1], folds[0] + folds[2])
    fs.save(tmp_path / "sums.npz", total)
    again = fs.load(tmp_path / "sums.npz")
    same(again, total, rtol=0)
    assert again.basis.same_as(basis) is None and again.rows == 300


def test_maps_files_of_rows_and_float32(rng, tmp_path, monkeypatch):
    basis, X, Y = problem(rng, 2)
    monkeypatch.setattr(HilbertBasis, "chunk", 77)
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    wide = HilbertBasis(basis.lower - 0.01, basis.upper + 0.01, basis.num_functions, 1.4)
    whole = sufficient_sums(wide, X.astype(float), Y.astype(float))
    for i in range(3):
        np.save(tmp_path / f"x{i}.npy", X[100 * i : 100 * i + 100])
        np.save(tmp_path / f"y{i}.npy", Y[100 * i : 100 * i + 100])
    rows = [fs.records.row_files([tmp_path / f"{name}{i}.npy" for i in range(3)]) for name in "xy"]
    same(sufficient_sums(wide, *rows), whole)
    np.save(tmp_path / "x.npy", X)
    same(sufficient_sums(wide, np.load(tmp_path / "x.npy", mmap_mode="r"), Y), whole)
    assert whole.gram().dtype == np.float64


@pytest.mark.parametrize("kind", ["all", "own"])
def test_ranks_add_up_by_one_all_reduce(rng, kind):
    basis, X, Y = problem(rng, 2)
    whole, found = sufficient_sums(basis, X, Y), []

    def program(group):
        at = slice(None) if kind == "all" else slice(group.rank, None, 2)
        found.append(sufficient_sums(basis, X[at], Y[at], group=group))

    fs.distributed.threads(2, rows=kind).run(program)
    for one in found:
        same(one, whole)


def test_sites_added_in_one_order_are_the_pooled_chunks_to_the_bit(rng):
    basis, X, Y = problem(rng, 1)
    parts = [slice(0, 100), slice(100, 200), slice(200, 300)]
    one = sum(
        (sufficient_sums(basis, X[at], Y[at]) for at in parts[1:]),
        sufficient_sums(basis, X[parts[0]], Y[parts[0]]),
    )
    two = sum(
        (sufficient_sums(basis, X[at].copy(), Y[at].copy()) for at in parts[1:]),
        sufficient_sums(basis, X[parts[0]].copy(), Y[parts[0]].copy()),
    )
    assert np.array_equal(one.products, two.products) and np.array_equal(one.crossed, two.crossed)


def test_rows_of_weight_zero_are_not_read(rng):
    basis, X, Y = problem(rng, 2)
    w = (np.arange(300) % 3 > 0).astype(float)
    Y, X = Y.copy(), X.copy()
    Y[w == 0], X[w == 0] = np.nan, 1e9
    same(sufficient_sums(basis, X, Y, weights=w), sufficient_sums(basis, X[w > 0], Y[w > 0]))


def test_bad_input(rng):
    basis, X, Y = problem(rng, 2)
    far = X.copy()
    far[[3, 8], 1] = 100
    with pytest.raises(ValueError, match="2 rows are outside of the box.*column 1: row 3 has 100"):
        sufficient_sums(basis, far, Y)
    with pytest.raises(ValueError, match="`Y` has NaN or infinity at row 5"):
        sufficient_sums(basis, X, np.where(np.arange(300) == 5, np.nan, Y))
    with pytest.raises(ValueError, match=r"`Y` must be \(N,\) or \(N, P\)"):
        sufficient_sums(basis, X, Y[:5])
    with pytest.raises(ValueError, match="the basis 2 columns"):
        sufficient_sums(basis, X[:, :1], Y)
    with pytest.raises(TypeError, match="`basis` must be a fastsvgp.bounds.HilbertBasis, got int"):
        sufficient_sums(3, X, Y)
    for weights in (np.ones(4), -np.ones(300), np.zeros(300)):
        with pytest.raises(ValueError, match="`weights` must be"):
            sufficient_sums(basis, X, Y, weights=weights)
    sums = sufficient_sums(basis, X, Y)
    with pytest.raises(ValueError, match="leave nothing"):
        sums - sums
    other = sufficient_sums(fs.replace(basis, boundary=1.5), X, Y)
    with pytest.raises(ValueError, match="another basis: `boundary`"):
        sums + other
    with pytest.raises(ValueError, match="do not combine"):
        sums + sufficient_sums(basis, X, Y[:, None])
