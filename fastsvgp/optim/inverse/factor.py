"""Factors of inverses by natural-gradient (Newton-Schulz) steps, from matrix products only."""

from typing import Any

import numpy as np

from ... import check, kernels
from ...records.typed import Array, ArrayLike
from ...runtime.edge import public_call
from ..schedules import Size, as_schedule
from .iteration import InverseFactorInfo, check_matrix_and_factor, newton_schulz_iterate
from .variance_gap import VarianceGap


@public_call(checks=False)
def newton_schulz_step(A: ArrayLike, L: ArrayLike, step_size: float) -> Array:
    """Take one natural-gradient step of the lower factor L towards chol(A^-1), by products only.

    ``L - g L [tril(E) - (I + diag(E)) / 2]`` with ``E = L' A L``: for N(0, L L') the natural
    gradient of its KL divergence from N(0, A^-1).

    Parameters
    ----------
    A : (..., M, M), symmetric
    L : (..., M, M), lower
        What is above its diagonal is not read. Leading axes broadcast against those of A.
    step_size : float
        The g above. Steps of 1 converge quadratically from ||E - I||_F < 0.46; they diverge once
        the largest eigenvalue of E exceeds about 3. ``inverse_factor`` chooses the size itself.

    Returns
    -------
    L : (..., M, M)
        Zeros above the diagonal. A diagonal entry of E above 1 + 2 / g flips the sign of its
        column, which leaves L L' unchanged.

    Raises
    ------
    ValueError, TypeError
        A is not symmetric; a diagonal entry of L is zero, NaN or infinity; shapes do not fit; the
        step size is not positive.

    Notes
    -----
    4/3 M^3 flops. Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes",
    eq. (6).

    Examples
    --------
    >>> A = np.diag([1.0, 2.0])
    >>> L = fs.optim.newton_schulz_step(A, 0.8 * np.eye(2), 1.0)
    >>> L.round(3)
    array([[0.944, 0.   ],
           [0.   , 0.688]])
    """
    A, L = check_matrix_and_factor(A, check.as_array("L", L))
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
    gap: VarianceGap | None = None,
) -> tuple[Array, InverseFactorInfo]:
    """Find a lower L with L L' = A^-1 by natural-gradient steps.

    It needs no factorisation and no solve, and cannot diverge.

    Parameters
    ----------
    A : (..., M, M), symmetric positive definite
        Only multiplied, never factorised.
    L : (..., M, M), optional
        Start: the factor of a nearby matrix, such as that of the last training step. If the
        diagonal of L' A L leaves [0.2, 5], the columns are first scaled to make it one. Default: a
        multiple of diag(A)^-1/2.
    step_size : None, number, schedule or function of the step count
        None follows the largest eigenvalue lam of L' A L (see Notes). A number and
        ``schedules.log_linear`` are the choices of the paper. With each of them, a step that does
        not reduce the objective is replaced by an exact line search.
    tolerance : float
        Limit of the normalised residual ||L' A L - I||_F / sqrt(M); default 1e-3. Rounding limits
        it to about 2e-8 cond(A) in float32 and 4e-17 cond(A) in float64; the loop detects this,
        stops and reports it.
    max_steps : int
    gap : VarianceGap, optional
        Stopping rule that replaces ``tolerance``, made by ``variance_gap``; for a single matrix A.

    Returns
    -------
    L : (..., M, M)
        Positive diagonal, zeros above it; the best found if it did not converge. Always finite.
    info : InverseFactorInfo

    Raises
    ------
    ValueError, TypeError
        As ``newton_schulz_step``; also for a tolerance below the eps of the dtype, a diagonal of A
        that is not positive, or both stopping rules at once.

    Notes
    -----
    4/3 M^3 flops per step and M^3 for the first residual (and for each scaling of the start, at
    most two); a line search costs another 8/3 M^3. A device takes up to four steps before the host
    checks them, with a factor in memory for each; steps after a failed one are discarded.

    The objective KL[N(0, L L') || N(0, A^-1)] = (tr L' A L - M) / 2 - sum log L_ii + const is
    strictly convex in L. Along a natural-gradient step L (I - g Phi), Phi the lower triangle of E -
    I with half its diagonal, it changes by

        -<E, Phi> g + <Phi, E Phi> g^2 / 2 - sum log(1 - g Phi_ii),

    convex in g with slope -||E - I||_F^2 / 2 at 0. Its exact minimiser always descends, so it is
    the fallback. The rule is faster: with lam from power iteration (20 at first, then three more
    each step; at least the largest diagonal entry), g = 1 while 0.45 < lam < 2 (1.5 while the
    residual exceeds 0.3), else 2 / (lam + sqrt(lam)), which takes lam to 1. Below ||E - I||_F =
    0.46 unit steps converge quadratically. The update is from Cortinovis et al., "Inverse-Free
    Sparse Variational Gaussian Processes", eq. (5), (6) and (8), which do not say when it diverges.

    Examples
    --------
    >>> A = covariance.matrix(Z) + 0.1 * np.eye(6)
    >>> L, info = fs.optim.inverse_factor(A)
    >>> np.allclose(L @ L.T @ A, np.eye(6), atol=1e-2)
    True
    """
    matrix, start = check_matrix_and_factor(A, None if L is None else check.as_array("L", L))
    dtype = matrix.dtype
    if gap is not None:
        if tolerance is not None:
            raise ValueError("give either `tolerance` or `gap`: each is a stopping rule")
        if not hasattr(gap, "fit_to"):
            raise TypeError(
                f"`gap` must be made by fastsvgp.optim.variance_gap(...), got {type(gap).__name__}"
            )
        gap = gap.fit_to(matrix)
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
