"""Factors of inverses from matrix products alone: natural-gradient (Newton-Schulz) steps towards chol(A^-1)."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import check, kernels
from ...records.typed import Array, ArrayLike
from ...runtime.edge import public_call
from ..schedules import Size, as_schedule
from .iteration import InverseFactorInfo, newton_schulz_iterate

if TYPE_CHECKING:
    from .variance_gap import VarianceGap


@public_call(checks=False)
def newton_schulz_step(A: ArrayLike, L: ArrayLike, step_size: float) -> Array:
    """One natural-gradient step of the lower factor L towards chol(A^-1): matrix products only.

    ``L - g L [tril(E) - (I + diag(E)) / 2]`` with ``E = L' A L``: for N(0, L L') the natural
    gradient of its KL divergence from N(0, A^-1).

    Parameters
    ----------
    A : (..., M, M), symmetric
    L : (..., M, M), lower
        What is above its diagonal is not read. Leading axes broadcast against those of A.
    step_size : float
        The g above. Steps of 1 converge quadratically from ||E - I||_F < 0.46; they diverge once
        the largest eigenvalue of E exceeds about 3. ``inverse_factor`` chooses.

    Returns
    -------
    L : (..., M, M)
        Zeros above the diagonal. A diagonal entry of E above 1 + 2 / g turns the sign of its
        column, which L L' does not see.

    Raises
    ------
    ValueError, TypeError
        A is not symmetric, a diagonal entry of L is zero, NaN or infinity, shapes that do not fit,
        a step size that is not positive.

    Notes
    -----
    4/3 M^3 flops. Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes",
    eq. (6).

    Examples
    --------
    >>> A = np.diag([1.0, 2.0])
    >>> L = fs.newton_schulz_step(A, 0.8 * np.eye(2), 1.0)
    >>> L.round(3)
    array([[0.944, 0.   ],
           [0.   , 0.688]])
    """
    A, L = checked(A, check.as_array("L", L))
    size = check.scalar("step_size", step_size)
    if size <= 0:
        raise ValueError(f"`step_size` must be positive, got {size:g}")
    return kernels.newton_schulz_step(A, L, size)


@public_call(checks=False)
def inverse_factor(
    A: ArrayLike,
    L: ArrayLike | None = None,
    *,
    step_size: Size | None = None,
    tolerance: float | None = None,
    max_steps: int = 100,
    gap: "VarianceGap | None" = None,
) -> tuple[Array, InverseFactorInfo]:
    """Lower L with L L' = A^-1 by natural-gradient steps: no factorisation, no solve, and no divergence.

    Parameters
    ----------
    A : (..., M, M), symmetric positive definite
        Not factorised, only multiplied.
    L : (..., M, M), optional
        Where to start: the factor of a nearby matrix, such as that of the last training step. Its
        columns are scaled to a unit diagonal of L' A L first where that diagonal leaves [0.2, 5].
        By default a multiple of diag(A)^-1/2.
    step_size : None, number, schedule or function of the step count
        None follows the largest eigenvalue lam of L' A L (see Notes). ``schedules.constant`` and
        ``schedules.log_linear`` are the choices of the paper. Whatever is asked for, a step that
        does not reduce the objective is replaced by an exact line search.
    tolerance : float
        On the normalised residual ||L' A L - I||_F / sqrt(M); default 1e-3. In float32 about 2e-8
        cond(A) can be reached, in float64 about 4e-17 cond(A); the loop notices and says so in
        place of going on.
    max_steps : int
    gap : VarianceGap, optional
        Made by ``variance_gap``: the other stopping rule, in place of ``tolerance``, for a single
        matrix A.

    Returns
    -------
    L : (..., M, M)
        Positive diagonal, zeros above it; the best found where it did not converge. Always finite.
    info : InverseFactorInfo

    Raises
    ------
    ValueError, TypeError
        As ``newton_schulz_step``; also for a tolerance below the eps of the dtype, a diagonal of A
        that is not positive, or both stopping rules at once.

    Notes
    -----
    4/3 M^3 flops a step and M^3 for the first residual (and for each scaling of the start, at most
    two); a line search costs another 8/3 M^3. A device takes up to four steps before the host looks
    at them, with a factor in memory for each: those after one that led nowhere are left out.

    The objective KL[N(0, L L') || N(0, A^-1)] = (tr L' A L - M) / 2 - sum log L_ii + const is
    strictly convex in L. Along a natural-gradient step L (I - g Phi), Phi the lower triangle of E -
    I with half its diagonal, it changes by
    -<E, Phi> g + <Phi, E Phi> g^2 / 2 - sum log(1 - g Phi_ii), convex in g with slope -||E - I||_F^2 / 2 at 0. Its exact
    minimiser always descends, so it is the fallback. The rule is faster: with lam from power iteration (20 at first, then three
    more each step; at least the largest diagonal entry), g = 1 while 0.45 < lam < 2 (1.5 while the residual exceeds 0.3), else
    2 / (lam + sqrt(lam)), which takes lam to 1. Below ||E - I||_F = 0.46 unit steps converge quadratically. The update:
    Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", eq. (5), (6) and (8), which do not say when it
    diverges.

    Examples
    --------
    >>> A = covariance.matrix(Z) + 0.1 * np.eye(6)
    >>> L, info = fs.inverse_factor(A)
    >>> np.allclose(L @ L.T @ A, np.eye(6), atol=1e-2)
    True
    """
    matrix, start = checked(A, None if L is None else check.as_array("L", L))
    dtype = matrix.dtype
    if gap is not None:
        if tolerance is not None:
            raise ValueError("give either `tolerance` or `gap`: each is a rule for when to stop")
        if not hasattr(gap, "fitted"):
            raise TypeError(
                f"`gap` must be made by fastsvgp.variance_gap(...), got {type(gap).__name__}"
            )
        gap = gap.fitted(matrix)
    tolerance = check.scalar("tolerance", 1e-3 if tolerance is None else tolerance)
    if tolerance < np.finfo(dtype).eps:
        raise ValueError(
            f"`tolerance` is {tolerance:g}, less than {dtype} can reach for any matrix"
            f" ({np.finfo(dtype).eps:.1e})"
        )
    limit = check.whole("max_steps", max_steps, 0)
    schedule = None if step_size is None else as_schedule(step_size)
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    check.positive("diagonal of A", diagonal)
    batch = (
        matrix.shape[:-2]
        if start is None
        else np.broadcast_shapes(matrix.shape[:-2], start.shape[:-2])
    )
    if not batch:
        return newton_schulz_iterate(matrix, start, schedule, tolerance, limit, gap)
    many = np.broadcast_to(matrix, batch + matrix.shape[-2:])
    starts = None if start is None else np.broadcast_to(start, batch + start.shape[-2:])
    found = [
        newton_schulz_iterate(
            many[i], None if starts is None else starts[i], schedule, tolerance, limit, gap
        )
        for i in np.ndindex(batch)
    ]
    factors, infos = zip(*found, strict=True)
    fields: Any = (np.array(values).reshape(batch) for values in zip(*infos, strict=True))
    return np.stack(factors).reshape(many.shape), InverseFactorInfo(*fields)


def checked(A, L):
    """``(A, L)`` as arrays of one dtype; errors where they are no symmetric matrices, or no factors to start from."""
    A = check.as_array("A", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.size == 0:
        raise ValueError(f"`A` must have shape (..., M, M) and not be empty, got {A.shape}")
    arrays = [A]
    if L is not None:
        L = check.as_array("L", L)
        if L.shape[-2:] != A.shape[-2:] or L.size == 0:
            raise ValueError(
                f"`L` must have shape (..., M, M) with the M of `A`, got {L.shape} for {A.shape}"
            )
        try:
            np.broadcast_shapes(A.shape[:-2], L.shape[:-2])
        except ValueError:
            raise ValueError(
                f"leading axes of `A` {A.shape} and `L` {L.shape} do not broadcast"
            ) from None
        arrays.append(L)
    check.backend_of(*arrays)  # raises where they are mixed
    dtype = check.common_dtype(*arrays, names=("A", "L"))
    A = A.astype(dtype, copy=False)
    check.finite("A", A)
    largest = float(np.abs(A).max())
    difference = float(np.abs(A - A.swapaxes(-1, -2)).max())
    if difference > math.sqrt(np.finfo(dtype).eps) * largest:
        raise ValueError(
            f"`A` must be symmetric, but A and A' differ by up to {difference:g}; use (A + A') / 2"
            " if that is meant"
        )
    if L is None:
        return A, None
    L = L.astype(dtype, copy=False)
    diagonal = np.diagonal(L, axis1=-2, axis2=-1)
    check.finite("diagonal of L", diagonal)
    if not diagonal.all():
        raise ValueError(
            "`L` has a zero on its diagonal, so L L' is singular; start from a factor with a"
            " non-zero diagonal"
        )
    check.finite("L", np.tril(L))
    return A, L
