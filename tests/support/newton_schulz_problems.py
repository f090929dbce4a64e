"""Newton-Schulz problems of difficult sizes, and the assertions for every twin of the family."""

import numpy as np
from support.numerics import assert_as_accurate_as, generator

SHAPES = [(1, ()), (3, (2,)), (17, (2, 2)), (65, ()), (130, (2,))]  # M, batch


def transposed(X):
    return X.swapaxes(-1, -2)


def unread(X):
    """Put NaN above the diagonal, which must not be read."""
    return np.tril(X) + np.triu(np.full(X.shape[-2:], np.nan, X.dtype), 1)


def problem(rng, M, batch, dtype):
    """Return a positive definite matrix, a factor near its inverse's, two matrices, a vector."""
    A = rng.standard_normal((*batch, M, M + 2))
    A = A @ transposed(A) / M + 0.5 * np.eye(M)
    L = (
        np.linalg.cholesky(np.linalg.inv(A))
        + np.tril(rng.standard_normal((*batch, M, M))) * 0.3 / M
    )
    S, bar = rng.standard_normal((2, *batch, M, M))
    return tuple(
        X.astype(dtype)
        for X in (A, L, S + transposed(S), np.tril(bar), rng.standard_normal((*batch, M)))
    )


def phi(D):
    return np.tril(D) - D * np.eye(D.shape[-1], dtype=D.dtype) / 2


def definition(A, L, S, bar, v, g):
    """Return all results of the family, in the dtype of the arrays."""
    one = np.eye(A.shape[-1], dtype=A.dtype)
    D = transposed(L) @ A @ L - one
    P = L @ phi(D)
    C = np.tril(transposed(L) @ bar)
    full = C + transposed(np.tril(C, -1))
    A_bar = -g / 2 * (L @ full @ transposed(L))
    L_bar = np.tril(bar @ transposed(one - g * phi(D)) - g * (A @ L @ full))
    for _ in range(3):
        v = v / np.sqrt((v * v).sum(-1, keepdims=True))
        v = (A @ v[..., None])[..., 0] + 2 * v
    diagonal = np.diagonal(D, axis1=-2, axis2=-1)
    stats = np.stack(
        [
            np.sqrt((D * D).sum((-2, -1))),
            diagonal.min(-1) + 1,
            diagonal.max(-1) + 1,
            diagonal.sum(-1),
        ],
        -1,
    )
    return [
        np.tril(D),
        stats,
        L - g * P,
        np.tril(L @ S @ transposed(L)),
        P,
        (P * (A @ P)).sum((-2, -1)),
        A_bar,
        L_bar,
        v,
        np.sqrt((v * v).sum(-1)),
    ]


def results_of(twin, A, L, S, bar, v, g):
    """Return the same from a twin; unused triangles of arguments hold NaN."""
    A, L, S, bar = map(unread, (A, L, S, bar))
    D, stats = twin.newton_schulz_gram(A, L)
    stepped = twin.newton_schulz_step(A, L, g)
    assert not np.triu(D, 1).any() and not np.triu(stepped, 1).any()
    D = unread(D)
    P, curvature = twin.newton_schulz_curvature(A, L, D)
    A_bar, L_bar = twin.newton_schulz_step_vjp(bar, A, L, D, g)
    np.testing.assert_array_equal(A_bar, transposed(A_bar))
    size, v = twin.power_iteration(A, v, 2.0, 3)
    return [
        np.tril(D),
        stats,
        stepped,
        np.tril(twin.tril_congruence(L, S)),
        P,
        curvature,
        A_bar,
        L_bar,
        v,
        size,
    ]


def check_all(twin, rng, M, batch, dtype):
    arrays = problem(rng, M, batch, dtype)
    plain = definition(*arrays, dtype(0.7))
    truth = definition(*(X.astype(np.longdouble) for X in arrays), dtype(0.7).astype(np.longdouble))
    # entries of D are differences of numbers near 1, and P and its curvature are computed from D
    A, L, P = np.abs(arrays[0]).max(), np.abs(arrays[1]).max(), np.abs(truth[4]).max()
    bar = np.abs(arrays[3]).max()  # L_bar is a difference, too
    sizes = {0: 1.0, 4: L, 5: 2 * M * A * P * L, 7: bar * (1 + A * L * L)}
    for place, (result, in_dtype, exact) in enumerate(
        zip(results_of(twin, *arrays, 0.7), plain, truth, strict=True)
    ):
        assert (
            result.dtype == (np.float64 if place in (1, 5, 9) else dtype)
            and result.shape == exact.shape
        ), place
        # the trace is a sum of M numbers near 0, each with the rounding of numbers near 1
        if place == 1:
            np.testing.assert_allclose(
                result, exact.astype(float), rtol=0, atol=4 * M * np.finfo(dtype).eps
            )
        else:
            assert_as_accurate_as(result.astype(dtype), in_dtype, exact, size=sizes.get(place, 0.0))


def small_run(twin, dtype):
    """Run every kernel once, on more than one block and on slices of a sum, for slow runs."""
    A, L, S, _, v = problem(generator(1), 66, (), dtype)
    D, stats = twin.newton_schulz_gram(unread(A), unread(L))
    twin.newton_schulz_curvature(unread(A), unread(L), unread(D))
    twin.tril_congruence(unread(L), unread(S))
    twin.newton_schulz_walk(A, unread(L), v, 0.0, 1, (D, stats), (1, 1))
