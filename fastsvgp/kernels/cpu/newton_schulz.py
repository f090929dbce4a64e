"""CPU twin of ``newton_schulz``: steps of a factor towards chol(A^-1), made of triangular products.

With operands treated as full matrices the update takes 6 M^3 flops. The lower triangle of E = L' A
L needs only that of A L: 2/3 M^3 for tril(A L), 1/3 M^3 for E from it, and L F with a lower F
another 1/3 M^3.
"""

import numpy as np

from .common import blas, blocked, scratch
from .common.batching import each, entry, matrix, summed_to
from .common.blas import N
from .common.compiled import FAST, kernel
from .common.thread_pool import over_rows
from .products import lower_copy, scaled_tril, tril_inner
from .triangular import lower_products

CERTIFICATE, SAFE, FAR = 0.46, (0.45, 2.0), 0.3  # of step sizes: see newton_schulz_walk


# --- one pass each --------------------------------------------------------------------------------


@kernel("i i R2", fastmath=FAST)
def _deviation(start, stop, E):
    """Subtract one from the diagonal and clear the upper triangle.

    Returns sums of squares (float64), extremes of the diagonal, and the trace.
    """
    squares, trace, smallest, largest = 0.0, 0.0, np.inf, -np.inf
    for i in range(start, stop):
        row = 0.0
        for j in range(i):
            row += np.float64(E[i, j]) * np.float64(E[i, j])
        smallest, largest = min(smallest, E[i, i]), max(largest, E[i, i])
        E[i, i] -= 1
        squares += 2 * row + np.float64(E[i, i]) * np.float64(E[i, i])
        trace += E[i, i]
        E[i, i + 1 :] = 0
    return squares, trace, smallest, largest


@kernel("i i R2 R1", fastmath=FAST)
def _symmetric_times(start, stop, S, v):
    """Compute the part of S v from rows ``start`` to ``stop`` of the lower triangle of S.

    Each entry that is read stands for two of S.
    """
    out = np.zeros(v.size, v.dtype)
    for i in range(start, stop):
        vi, dot = v[i], v.dtype.type(0)
        for j in range(i):
            dot += S[i, j] * v[j]
            out[j] += S[i, j] * vi
        out[i] += dot + S[i, i] * vi
    return out


# --- operations -----------------------------------------------------------------------------------


def _deviation_of(A, L, E):
    L = lower_copy(L)
    lower_products.symmetric_times_lower(A, L, E)
    lower_products.transposed_times(L, E)
    squares, trace, smallest, largest = zip(*over_rows(_deviation, len(E), E.size, E), strict=True)
    return np.sqrt(sum(squares)), min(smallest), max(largest), sum(trace)


def newton_schulz_gram(A, L):
    batch = np.broadcast_shapes(A.shape[:-2], L.shape[:-2])
    D = scratch.empty((*batch, *L.shape[-2:]), L.dtype)
    stats = np.empty((*batch, 4))
    for i in np.ndindex(batch):
        stats[i] = _deviation_of(matrix(entry(A, i)), matrix(entry(L, i)), D[i])
    return D, stats


def newton_schulz_update(L, D, step_size, overwrite_d=False):
    batch = np.broadcast_shapes(L.shape[:-2], D.shape[:-2], np.shape(step_size))
    own = overwrite_d and D.flags.c_contiguous and D.flags.writeable and D.shape[:-2] == batch
    L_new = D if own else scratch.empty((*batch, *D.shape[-2:]), D.dtype)
    sizes = np.broadcast_to(step_size, batch)
    for i in np.ndindex(batch):
        g = float(sizes[i])
        F = scaled_tril(entry(D, i), -g, -g / 2, 1, L_new[i])
        lower_products.lower_times_lower(matrix(entry(L, i)), F)
    return L_new


def newton_schulz_step(A, L, step_size):
    D, _ = newton_schulz_gram(A, L)
    return newton_schulz_update(L, D, step_size, overwrite_d=True)


def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    # L_new = L F, F = I - g Phi(D), D = L' A L - I. With G = tril(L_new_bar):
    #   <G, dL F>            gives tril(G F') to L_bar;
    #   <G, -g L Phi(dD)>    = -g <Phi(L' G), dD> = -(g/2) <S, dD>, S = Phi(C) + Phi(C)',
    #                          C = L' G (only its lower triangle is used);
    #   dD = L' dA L + dL' A L + L' A dL    gives -(g/2) L S L' to A_bar, -g tril(A L S) to L_bar.
    def one(L_new_bar, A, L, D, g):
        L, g = matrix(L), float(g)
        C = lower_copy(L_new_bar)
        lower_products.transposed_times(L, C)
        if "L" not in need:
            A_bar = tril_congruence(L, C)
            blocked.mirror(A_bar)
            A_bar *= -g / 2
            return A_bar, None
        blocked.mirror(C)
        blas.trmm(L, C, True, N, 1.0)  # now L S
        full = scratch.copy(A)
        blocked.mirror(full)
        L_bar = lower_copy(L_new_bar)
        F = scaled_tril(D, -g, -g / 2, 1, scratch.empty(L.shape, L.dtype))
        lower_products.times_transposed(L_bar, F)
        lower_products.add_product(full, C, L_bar, -g)
        blocked.clear_upper(L_bar)
        A_bar = None
        if "A" in need:
            A_bar = C
            lower_products.times_transposed(A_bar, L)
            blocked.mirror(A_bar)
            A_bar *= -g / 2
        return A_bar, L_bar

    batch = np.broadcast_shapes(L_new_bar.shape[:-2], np.shape(step_size))
    sizes = np.broadcast_to(np.asarray(step_size, L.dtype), batch)[..., None, None]
    bars = [
        one(*(entry(X, i) for X in (L_new_bar, A, L, D)), entry(sizes, i)[0, 0])
        for i in np.ndindex(batch)
    ]

    def gathered(parts, X):
        return (
            None
            if parts[0] is None
            else summed_to(np.stack(parts).reshape((*batch, *X.shape[-2:])), X)
        )

    A_bars, L_bars = zip(*bars, strict=True)
    return gathered(A_bars, A), gathered(L_bars, L)


def tril_congruence(L, S):
    # the lower triangle of L S L' needs only that of L S
    def one(L, S):
        L, E = matrix(L), scratch.copy(S)
        blocked.mirror(E)
        lower_products.lower_times(L, E)
        lower_products.times_transposed(E, L)
        return E

    return each(one, L, S)


def newton_schulz_curvature(A, L, D):
    def one(A, L, D):
        P = scaled_tril(D, 1, 0.5, 0, scratch.empty(D.shape, D.dtype))
        lower_products.lower_times_lower(matrix(L), P)
        AP = scratch.empty(P.shape, P.dtype)
        lower_products.symmetric_times_lower(matrix(A), P, AP)
        return P, np.asarray(tril_inner(P, AP))

    return each(one, A, L, D)


def power_iteration(S, v, shift=0.0, iterations=3):
    def one(S, v):
        v, size = v[:, 0], 0.0
        for _ in range(iterations):
            v = v / v.dtype.type(np.sqrt(np.sum(np.square(v, dtype=np.float64))) or 1.0)
            v = sum(over_rows(_symmetric_times, len(S), S.size, S, v)) + S.dtype.type(shift) * v
            size = np.sqrt(np.sum(np.square(v, dtype=np.float64)))
        return np.asarray(size), v[:, None]

    batch = np.broadcast_shapes(S.shape[:-2], v.shape[:-1])
    if 0 in batch:
        return np.zeros(batch), np.zeros((*batch, v.shape[-1]), v.dtype)
    size, v = each(one, S, v[..., None])
    return size, v[..., 0]


def newton_schulz_walk(A, L, v, tolerance, steps, start=None, iterations=(3, 3)):
    D, stats = newton_schulz_gram(A, L) if start is None else start
    factors, rows = [], np.empty((steps + 1, *D.shape[:-2], 6))
    for step in range(steps + 1):
        diagonal = np.diagonal(L, axis1=-2, axis2=-1).astype(np.float64)
        with np.errstate(all="ignore"):
            logs = np.log(np.where(diagonal > 0, diagonal, 0)).sum(-1)
        rows[step, ..., :4], rows[step, ..., 4], rows[step, ..., 5] = stats, 2 * logs, 0
        if step < steps:
            sizes, v = _next_sizes(stats, D, v, tolerance, iterations[step > 0])
            rows[step, ..., 5] = sizes
            L = newton_schulz_update(L, D, sizes, overwrite_d=True)
            factors.append(L)
            D, stats = newton_schulz_gram(A, L)
    return (
        L[None] if steps == 1 else np.array(factors, D.dtype).reshape(steps, *D.shape),
        D,
        rows,
        v,
    )


def _next_sizes(stats, D, v, tolerance, iterations):
    root, (norm, smallest, largest, _) = np.sqrt(D.shape[-1]), np.moveaxis(stats, -1, 0)
    with np.errstate(all="ignore"):  # D can be non-finite: there the size is 0
        top, v = power_iteration(D, v, 1.0, iterations)
        top = np.maximum(top, largest)
        near = np.where(norm > FAR * root, 1.5, 1.0)
        size = np.where((SAFE[0] < top) & (top < SAFE[1]), near, 2 / (top + np.sqrt(top)))
    going = np.isfinite(norm) & (norm > tolerance * root) & (smallest > 0)
    return np.where(going, np.where(norm < CERTIFICATE, 1.0, size), 0.0), v
