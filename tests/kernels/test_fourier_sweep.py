"""One sweep: products with features and squares, forward and back, in any combination."""

import itertools

import numpy as np
import pytest
from oracles import fourier as oracle
from support import fourier_problems as problems
from support.numerics import nine_point

from fastsvgp import kernels
from fastsvgp.kernels.cpu import fourier

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
NAMES = "out", "squares", "W", "v", "X", "variance", "lengthscales"
NUM, VARIANCE = 40, 1.7


def problem(rng, N, D, n, R, squares=True, dtype=np.float64):
    """``(X, model, sides)``; v and its differences have both signs."""
    X, U, W, indices, _, lengthscales = problems.problem(rng, N, D, n, R, dtype)
    sides = {"W": W, "U": U} if R else {}
    if squares:
        sides |= {
            "v": rng.standard_normal(2 * n).astype(dtype),
            "u": rng.standard_normal(N).astype(dtype),
        }
    return X, ("rbf", 3, indices % NUM, NUM, VARIANCE, lengthscales), sides


def by_definition(X, model, sides):
    """All seven results, in extended precision."""
    _, seed, indices, num, variance, lengthscales = model
    n, N = len(indices), len(X)
    X, lengthscales = X.astype(np.longdouble), np.asarray(lengthscales, np.longdouble)
    omega = oracle.frequencies("rbf", seed, indices, X.shape[1])
    Phi = oracle.features(omega, X, num, np.longdouble(variance), lengthscales)
    W, U = (sides.get(name, np.zeros((0, size))) for name, size in (("W", 2 * n), ("U", N)))
    v, u = (sides.get(name, np.zeros(size)) for name, size in (("v", 2 * n), ("u", N)))
    out, squares, W_bar, v_bar = W @ Phi.T, Phi**2 @ v, U @ Phi, u @ Phi**2
    Phi_bar = U.T @ W + 2 * u[:, None] * v * Phi
    theta_bar = Phi_bar[:, 1::2] * Phi[:, ::2] - Phi_bar[:, ::2] * Phi[:, 1::2]
    X_bar = theta_bar @ omega / lengthscales
    variance_bar = ((W * W_bar).sum() / 2 + v @ v_bar) / variance
    return out, squares, W_bar, v_bar, X_bar, variance_bar, -(X_bar * X).sum(axis=0) / lengthscales


def wanted(sides, need=NAMES):
    """The results that exist for these sides."""
    missing = {"out", "W"} if "W" not in sides else set()
    return tuple(
        name
        for name in need
        if name not in (missing if "v" in sides else missing | {"squares", "v"})
    )


def close(found, truth, dtype, scale=None):
    found, truth = np.asarray(found), np.asarray(truth, float)
    assert (
        found.dtype == dtype
        and found.shape == truth.shape
        and (found.ndim == 0 or found.flags.c_contiguous)
    )
    size = np.abs(truth).max(initial=0) if scale is None else scale
    np.testing.assert_allclose(found, truth, rtol=0, atol=200 * np.finfo(dtype).eps * max(1, size))


SHAPES = [
    (1, 1, 1, 1),
    (17, 1, 5, 0),
    (65, 8, 1, 2),
    (130, 17, 33, 5),
    (300, 3, 333, 1),
    (33, 20, 9, 15),
    (700, 2, 130, 16),
]


@every_dtype
@pytest.mark.parametrize("squares", [True, False])
@pytest.mark.parametrize("shape", [*SHAPES, (90, 9, 50, 70)])
def test_by_definition(rng, shape, squares, dtype):
    if not (squares or shape[-1]):
        return
    X, model, sides = problem(rng, *shape, squares, dtype)
    found = kernels.fourier_sweep(X, *model, **sides, need=wanted(sides))
    for name, one, truth in zip(NAMES, found, by_definition(X, model, sides), strict=True):
        assert (one is not None) == (name in wanted(sides))
        if one is not None:
            close(
                one,
                truth,
                dtype,
                None if name in ("out", "squares", "W", "v", "X") else len(X) * shape[2],
            )


@pytest.mark.parametrize("R", [0, 2, 17])
@pytest.mark.parametrize("D", [2, 9])
def test_every_combination_of_parts(rng, D, R):
    X, model, sides = problem(rng, 33, D, 13, R)
    truth = dict(zip(NAMES, by_definition(X, model, sides), strict=True))
    for count in range(len(NAMES) + 1):
        for need in itertools.combinations(wanted(sides), count):
            found = dict(
                zip(NAMES, kernels.fourier_sweep(X, *model, **sides, need=need), strict=True)
            )
            assert {name for name, one in found.items() if one is not None} == set(need)
            for name in need:
                close(found[name], truth[name], np.float64, 100)


@pytest.mark.parametrize(
    "given, need",
    [
        (("W",), ("out",)),
        (("v",), ("squares",)),
        (("U",), ("W",)),
        (("u",), ("v",)),
        (("W", "v"), ("out", "squares")),
        (("U", "u"), ("W", "v")),
        (("U", "v"), ("squares", "W")),
        (("W", "U", "v"), ("out", "squares", "W", "X", "variance")),
        (("W", "v", "u"), ("v", "lengthscales")),
        (("U", "v", "u"), ("W", "squares", "v", "X", "variance", "lengthscales")),
    ],
)
@pytest.mark.parametrize("R", [2, 17])
def test_sides_that_are_missing_are_zero(rng, R, given, need):
    X, model, sides = problem(rng, 33, 3, 13, R)
    whole = {name: side if name in given else np.zeros_like(side) for name, side in sides.items()}
    truth = dict(zip(NAMES, by_definition(X, model, whole), strict=True))
    found = kernels.fourier_sweep(X, *model, **{name: sides[name] for name in given}, need=need)
    for name, one in zip(NAMES, found, strict=True):
        assert (one is not None) == (name in need)
        if one is not None:
            close(one, truth[name], np.float64, 100)


@pytest.mark.parametrize("R", [1, 17])
@pytest.mark.parametrize("family", problems.FAMILIES)
def test_cotangents_by_differences(rng, family, R):
    """Derivatives of sum(U out) + sum(u squares) in all arguments."""
    X, (_, seed, indices, num, variance, lengthscales), sides = problem(rng, 9, 3, 7, R)
    found = kernels.fourier_sweep(
        X, family, seed, indices, num, variance, lengthscales, **sides, need=NAMES
    )

    def value(W, v, X, variance, lengthscales):
        model = family, seed, indices, num, variance, lengthscales
        out, squares, *_ = kernels.fourier_sweep(X, *model, W=W, v=v, need=("out", "squares"))
        return (sides["U"] * out).sum() + sides["u"] @ squares

    at = [sides["W"], sides["v"], X, np.array(variance), lengthscales]
    # the fastest wave sets it
    step = 1e-3 / max(1, np.abs(kernels.fourier_frequencies(family, seed, indices, 3)).max())
    for k, bar in enumerate(found[2:]):
        d = rng.standard_normal(at[k].shape)
        along = lambda s, k=k, d=d: value(*at[:k], at[k] + s * d, *at[k + 1 :])  # noqa: E731
        assert abs(nine_point(along, step) - np.vdot(bar, d)) < 1e-8 * max(
            1, np.linalg.norm(bar) * np.linalg.norm(d)
        )


def test_a_shared_lengthscale(rng):
    X, (*model, _), sides = problem(rng, 33, 3, 13, 2)
    truth = by_definition(X, (*model, np.full(3, 1.3)), sides)
    found = kernels.fourier_sweep(X, *model, 1.3, **sides, need=NAMES)
    close(found[4], truth[4], np.float64)
    close(found[6], truth[6].sum(), np.float64, 100)


@pytest.mark.parametrize("D, R", [(5, 2), (33, 2), (33, 17)])
def test_panels_tiles_and_passes_join(rng, D, R, monkeypatch):
    X, model, sides = problem(rng, 65, D, 33, R)
    for name, size in (("PANEL", 8), ("SCRATCH", 100)):
        monkeypatch.setattr(fourier, name, size)
    kept = []
    found = kernels.fourier_sweep(X, *model, **sides, need=NAMES, kept=kept)
    for one, truth in zip(found, by_definition(X, model, sides), strict=True):
        close(one, truth, np.float64, 100)
    assert not kept  # there is more than one pass


@every_dtype
@pytest.mark.parametrize("R", [1, 17])
def test_phases_that_are_kept(rng, R, dtype):
    """The next sweep does not read the points, which are NaN there."""
    X, model, sides = problem(rng, 70, 9, 50, R, dtype=dtype)
    kept = []
    first = kernels.fourier_sweep(X, *model, **sides, need=NAMES, kept=kept)
    assert len(kept) == 1
    need = "out", "squares", "W", "v"
    second = kernels.fourier_sweep(np.full_like(X, np.nan), *model, **sides, need=need, kept=kept)
    again = kernels.fourier_sweep(X, *model, **sides, need=NAMES, kept=kept)
    for name, a, b, c in zip(NAMES, first, second, again, strict=True):
        np.testing.assert_array_equal(c, a)
        if name in need:
            np.testing.assert_array_equal(b, a)


def test_phases_that_are_not_kept(rng, monkeypatch):
    few, many = problem(rng, 33, 8, 13, 2), problem(rng, 33, 9, 13, 2)
    for (X, model, sides), limit, expected in (
        (few, 1 << 20, 0),
        (many, 1 << 20, 1),
        (many, 100, 0),
    ):
        monkeypatch.setattr(fourier, "KEPT", limit)
        kept = []
        kernels.fourier_sweep(X, *model, **sides, kept=kept)
        assert len(kept) == expected
    kept = [np.full((1, 1, 4, 16), np.nan)]  # of other sizes: not looked at
    found = kernels.fourier_sweep(X, *model, **sides, kept=kept)[0]
    close(found, by_definition(X, model, sides)[0], np.float64)


def test_no_points_no_frequencies(rng):
    X, model, sides = problem(rng, 9, 3, 5, 2)
    empty = {"W": sides["W"][:, :0], "v": sides["v"][:0], "U": sides["U"], "u": sides["u"]}
    none = "rbf", 3, model[2][:0], *model[3:]
    out, squares, W_bar, v_bar, X_bar, variance_bar, lengthscales_bar = kernels.fourier_sweep(
        X, *none, **empty, need=NAMES
    )
    assert out.shape == (2, 9) and squares.shape == (9,) and not out.any() and not squares.any()
    assert (
        W_bar.shape == (2, 0)
        and v_bar.shape == (0,)
        and not X_bar.any()
        and variance_bar == 0
        and not lengthscales_bar.any()
    )
    empty = sides | {"U": sides["U"][:, :0], "u": sides["u"][:0]}
    out, squares, W_bar, v_bar, X_bar, variance_bar, _ = kernels.fourier_sweep(
        X[:0], *model, **empty, need=NAMES
    )
    assert (
        out.shape == (2, 0)
        and squares.shape == (0,)
        and X_bar.shape == (0, 3)
        and variance_bar == 0
    )
    assert not W_bar.any() and not v_bar.any()


def test_indices_out_of_range(rng):
    X, (*_, lengthscales), sides = problem(rng, 9, 3, 5, 2)
    with pytest.raises(IndexError, match="`indices` holds 17, but there are 17 frequencies"):
        kernels.fourier_sweep(
            X, "rbf", 1, np.array([0, 1, 2, 3, 17]), 17, 1.0, lengthscales, **sides
        )
