"""Each row given u and its near rows: the part of a pass that does not depend on q(u).

With u = L v, v ~ N(0, I), lam_i = L^-1 k(Z, x_i) and R = K - Lam Lam' the covariance that u leaves,

    A = R_NN + D_N,   a_i = A^-1 R_Ni,   phi_i = lam_i - Lam_N a_i,   s_i = R_ii - a_i' R_Ni,
    p(f_i | v, y_N) = N(phi_i' v + a_i' y_N, s_i),

D the noise of the near rows N (``kernels.near_rows``). The reverse rule of the kernel returns
cotangents of the blocks of K, of Lam and of D. Those of Lam (M, n) go on, Lam = L^-1 Kuf, as

    Kuf_bar = L^-T Lam_bar,   L_bar = -tril(Kuf_bar Lam').

All of it is computed in float64: R is a difference of numbers that agree in nearly all digits where
u explains the rows, and noise can be a millionth of the rest.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..errors import NotPositiveDefinite
from ..records import plus

CLUSTER = 16  # rows whose covariances are computed as one block
SHARE = 1e-6  # of the jitter, which A gets on its diagonal: noise can be far below the jitter


class Conditionals(NamedTuple):
    """What ``conditionals`` computes for n rows with k near rows each.

    phi (n, M); a (n, k); s (n,), positive; factor, places, Lam: as in ``kernels.near_rows``;
    clipped (n,): where rounding left no positive s; lists (n, k): the near rows; blocks: list of
    ``Block``; inner, Kuf (M, u): as in ``LayerPass``
    """

    phi: Any
    a: Any
    s: Any
    factor: Any
    places: Any
    Lam: Any
    clipped: Any
    lists: Any
    blocks: Any
    inner: Any
    Kuf: Any


class Block(NamedTuple):
    """A cluster: its rows, its distinct points, where these are in the rows' blocks."""

    rows: Any
    points: Any
    places: Any
    K: Any


def conditionals(layer, L, X, near, lists, noise, own, jitter):
    """Compute the ``Conditionals`` of some rows.

    layer : record with covariance and inducing inputs, in float64
    X : (n, D) inputs of the rows
    near : NearRows
    lists : (n, k) integers, their near rows, -1 for none
    noise : (n, k) of the near rows
    own : (n,) numbers of the rows, or None if they are not rows of the data
    """
    n, k = lists.shape
    before = 0 if own is not None else n  # new rows come before those of the data
    last = np.arange(n) if own is None else own
    wanted = np.concatenate([lists.astype(np.int64) + before, last[:, None]], axis=1)
    absent = np.zeros(wanted.shape, bool)
    absent[:, :k] = lists < 0
    wanted[absent] = wanted[:, -1:].repeat(k + 1, 1)[absent]
    distinct, places = np.unique(wanted, return_inverse=True)
    places, old = places.reshape(wanted.shape), distinct[before:] - before
    rows = near.inputs(old)
    points = rows if own is not None else np.concatenate([X, rows])
    inner_covariance, inner_rows, _ = inner = layer.covariance.inner(points)
    Kuf = inner_covariance.Kuf(layer.inducing, inner_rows)
    Lam = np.ascontiguousarray(kernels.solve_triangular(L, Kuf).T)
    by = own if own is not None else np.maximum(lists[:, :1].sum(axis=1), 0)
    K, blocks = _blocks(inner_covariance, inner_rows, places, np.argsort(near.place[by]))
    there = np.where(absent, -1, places)
    D = noise + SHARE * jitter
    a, s, phi, factor, failed = kernels.near_rows(K, Lam, there, D)
    _check_factors(failed, lists, near, jitter)
    floor = np.finfo(np.float64).eps * K[:, k, k]
    clipped = s < floor
    return Conditionals(
        phi, a, np.maximum(s, floor), factor, there, Lam, clipped, lists, blocks, inner, Kuf
    )


def _blocks(covariance, rows, places, order):
    """Return the blocks (n, q, q) of K of all rows, and the clusters that they came from.

    order : (n,) such that rows that follow each other are near
    """
    n, q = places.shape
    K, blocks = np.empty((n, q, q)), []
    for start in range(0, n, CLUSTER):
        at = order[start : start + CLUSTER]
        points, there = np.unique(places[at], return_inverse=True)
        there = there.reshape(-1, q)
        of_cluster = covariance.Kff(rows[points])
        K[at] = of_cluster[there[:, :, None], there[:, None, :]]
        blocks.append(Block(at, points, there, of_cluster))
    return K, blocks


def _check_factors(failed, lists, near, jitter):
    """Raise ``NotPositiveDefinite`` for the first row whose near rows have no factor."""
    if not (failed >= 0).any():
        return
    row = int(np.argmax(failed >= 0))
    of = lists[row][lists[row] >= 0]
    x = near.inputs(of)
    apart = np.square(x[:, None] - x).sum(2)
    apart[np.diag_indices(len(of))] = np.inf
    first, second = np.unravel_index(np.argmin(apart), apart.shape)
    error = NotPositiveDefinite((row,), failed[row], SHARE * jitter, len(of), np.float64)
    error.args = (
        f"near rows {of[first]} and {of[second]} are {np.sqrt(apart[first, second]):.3g} apart,"
        " nearer than the noise tells apart; merge such rows, or give more noise or jitter",
    )
    raise error


def conditionals_vjp(found, a_bar, s_bar, phi_bar, need):
    """Pull the cotangents of a, s and phi back.

    Returns ``(Lam_bar (u, M), noise_bar (n, k), covariance_bar, points_bar (u, D) or None)``: the
    last two through the blocks of K, of the inner covariance.
    """
    s_bar = np.where(found.clipped, 0.0, s_bar)
    K_bar, Lam_bar, noise_bar = kernels.near_rows_vjp(
        found.Lam, found.places, found.a, found.factor, a_bar, s_bar, phi_bar
    )
    covariance_bar = points_bar = None
    need = tuple(name for name in need if name != "inducing")
    if need:
        inner_covariance, rows, _ = found.inner
        points_bar = np.zeros_like(rows) if "X" in need else None
        for block in found.blocks:
            u = len(block.points)
            where = block.places[:, :, None] * u + block.places[:, None, :]
            total = np.bincount(where.ravel(), K_bar[block.rows].ravel(), u * u).reshape(u, u)
            of_fields, of_points, _ = inner_covariance.Kff_vjp(
                total, block.K, rows[block.points], None, need
            )
            covariance_bar = plus(of_fields, covariance_bar)
            if points_bar is not None:
                points_bar[block.points] += of_points
    return Lam_bar, noise_bar, covariance_bar, points_bar
