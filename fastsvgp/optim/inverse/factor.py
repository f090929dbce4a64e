"""Factors of inverses from matrix products alone: natural-gradient (Newton-Schulz) steps towards chol(A^-1)."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ... import check, kernels
from ...records.typed import Array, ArrayLike
from ...runtime.blas_scope import governed
from ...runtime.memory import explaining
from ..schedules import Size, as_schedule

if TYPE_CHECKING:
    from .variance_gap import VarianceGap

# ||L' A L - I||_F below this: unit steps converge quadratically (spec: d <= d^2 (1.92 + d / 2))
CERTIFICATE = 0.46
# the columns of a start are scaled where the diagonal of L' A L leaves this range
SCALED = 0.2, 5.0
SUFFICIENT = 1e-4  # a step counts when the objective falls by this part of what its slope promises
# steps that a device takes before the host looks: three waits of four are saved, and at the end two
# steps may be idle
AHEAD = 4
# the residual stalls at about this times eps times the condition number: 2e-8 cond(A) in float32
ROUNDING = 0.17


class InverseFactorInfo(NamedTuple):
    """How ``inverse_factor`` ended; arrays over the batch where A has leading axes.

    converged : the normalised residual ||L' A L - I||_F / sqrt(M) is at most the tolerance
    steps : updates of L
    residual : the normalised residual of the returned factor
    certified : ||L' A L - I||_F < 0.46, so that unit steps from here converge quadratically
    reason : "converged"; "steps": `max_steps` were not enough; "rounding": no step reduces the residual any further in this
        dtype; "indefinite": some x' A x <= 0 was met, so A is not positive definite in this dtype
    reachable : for the last two reasons, about the smallest residual that rounding allows, 0.17 eps cond(A), with an estimate of
        the condition number; else 0
    searches : how many of the steps were taken by the exact line search
    log_det : log|L L'| of the returned factor, which tends to -log|A|
    gap : what ``variance_gap`` measured of the returned factor; infinity where it was not asked for
    """

    converged: bool
    steps: int
    residual: float
    certified: bool
    reason: str
    reachable: float
    searches: int
    log_det: float
    gap: float


@explaining
@governed
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


@explaining
@governed
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
    minimiser always descends, so it is the fallback. The rule is faster: with lam from power iteration (ten at first, then three
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
    A, L = checked(A, None if L is None else check.as_array("L", L))
    dtype = A.dtype
    if gap is not None:
        if tolerance is not None:
            raise ValueError("give either `tolerance` or `gap`: each is a rule for when to stop")
        if not hasattr(gap, "fitted"):
            raise TypeError(
                f"`gap` must be made by fastsvgp.variance_gap(...), got {type(gap).__name__}"
            )
        gap = gap.fitted(A)
    tolerance = check.scalar("tolerance", 1e-3 if tolerance is None else tolerance)
    if tolerance < np.finfo(dtype).eps:
        raise ValueError(
            f"`tolerance` is {tolerance:g}, less than {dtype} can reach for any matrix"
            f" ({np.finfo(dtype).eps:.1e})"
        )
    limit = check.whole("max_steps", max_steps, 0)
    schedule = None if step_size is None else as_schedule(step_size)
    diagonal = np.diagonal(A, axis1=-2, axis2=-1)
    check.positive("diagonal of A", diagonal)
    batch = A.shape[:-2] if L is None else np.broadcast_shapes(A.shape[:-2], L.shape[:-2])
    if not batch:
        return descend(A, L, schedule, tolerance, limit, gap)
    many = np.broadcast_to(A, batch + A.shape[-2:])
    starts = None if L is None else np.broadcast_to(L, batch + L.shape[-2:])
    found = [
        descend(many[i], None if starts is None else starts[i], schedule, tolerance, limit, gap)
        for i in np.ndindex(batch)
    ]
    factors, infos = zip(*found, strict=True)
    fields: Any = (np.array(values).reshape(batch) for values in zip(*infos, strict=True))
    return np.stack(factors).reshape(many.shape), InverseFactorInfo(*fields)


class _Point(NamedTuple):
    """A factor, D = L' A L - I with its statistics where a walk may start, the norm of D, the extremes of the diagonal of L' A L,
    the objective, and log|L L'|."""

    L: np.ndarray
    D: np.ndarray
    stats: np.ndarray
    norm: float
    smallest: float
    largest: float
    objective: float
    log_det: float


def _points(factors, D, rows):
    """Those of ``newton_schulz_walk``, and the size of the step from each; only the last one has D.

    One wait for a device.
    """
    numbers = rows.tolist()
    last = next(i for i, row in enumerate(numbers) if row[5] == 0)
    for i, (L, (norm, smallest, largest, trace, log_det, size)) in enumerate(
        zip(factors, numbers[: last + 1], strict=False)
    ):
        start = (D, rows[i, :4]) if i == last else (None, None)
        yield _Point(L, *start, norm, smallest, largest, (trace - log_det) / 2, log_det), size


def _point(A, L):
    _, D, rows, _ = kernels.newton_schulz_walk(A, L, None, 0.0, 0)
    return next(_points([L], D, rows))[0]


class _Walk:
    """Steps by the rule, asked for one after the other; a device has taken several when the host looks at the first one."""

    def __init__(self, A, power, tolerance, ahead):
        self.A, self.tolerance, self.ahead, self.iterations = A, tolerance, ahead, (10, 3)
        self.power = power  # where the next power iteration starts
        self.taken = []  # the last one first

    def step(self, now, most):
        """``(size, point)``, for the point that the last step led to, or for any other one that has D."""
        if now.D is not None:
            iterations = (0, 0) if now.norm < CERTIFICATE else self.iterations
            steps, start = self._how_many(now.norm, most), (now.D, now.stats)
            walked = kernels.newton_schulz_walk(
                self.A, now.L, self.power, self.tolerance, steps, start, iterations
            )
            factors, D, rows, self.power = walked
            points, sizes = zip(*_points([now.L, *factors], D, rows), strict=True)
            self.taken = [*zip(sizes, points[1:] or [now], strict=False)][::-1]
            self.iterations = 3, 3
        return self.taken.pop()

    def _how_many(self, norm, most):
        """As many as may be taken at once, or fewer where these lead to the tolerance for certain."""
        most = min(most, self.ahead)
        if norm >= CERTIFICATE:
            return most
        steps, norm = 1, _bound(norm, 1)
        while steps < most and norm > self.tolerance * math.sqrt(len(self.A)):
            steps, norm = steps + 1, _bound(norm, 1)
        return steps


def _on_host(vector):
    """A vector as float64 of NumPy, in one copy from wherever it is."""
    return np.array(vector.tolist())


def descend(A, L, schedule, tolerance, max_steps, gap=None):
    """``inverse_factor`` for one matrix and arguments that were checked: what a training loop calls.

    ``schedule`` is a schedule or None, ``gap`` a ``VarianceGap`` in place of the tolerance or None.
    """
    M = len(A)
    root = math.sqrt(M)
    # any start will do that favours no direction
    power = np.random.default_rng(0).standard_normal(M)
    power = np.asarray(power, A.dtype, like=A)
    now = (
        None
        if L is None
        else _scaled_start(A, np.tril(L) * np.where(L.diagonal() < 0, -1, 1).astype(L.dtype))
    )
    # L' A L overflows, or vanishes
    if now is None or not math.isfinite(now.norm) or now.smallest <= 0:
        now = _point(A, _cold_start(A, power))
    state = None if schedule is None else schedule.init()
    steps = searches = 0
    stalled = False
    if gap is not None:
        tolerance = 0.0
    ahead = AHEAD if gap is None and check.backend_of(A) == "cuda" else 1
    walk = _Walk(A, power, tolerance, ahead)

    def ended(reason):
        limited = reason in ("rounding", "indefinite")
        reachable = (
            ROUNDING * float(np.finfo(A.dtype).eps) * _condition(A, now.L, power)
            if limited
            else 0.0
        )
        certified = now.norm < CERTIFICATE
        return now.L, InverseFactorInfo(
            reason == "converged",
            steps,
            now.norm / root,
            certified,
            reason,
            reachable,
            searches,
            now.log_det,
            slack,
        )

    while True:
        slack = math.inf if gap is None else gap.measure(A, now.L)
        if now.norm <= tolerance * root or (gap is not None and slack <= gap.limit):
            return ended("converged")
        if stalled:
            return ended("rounding")
        if now.smallest <= 0:
            return ended("indefinite")
        if steps == max_steps:
            return ended("steps")
        if schedule is None:
            size, new = walk.step(now, max_steps - steps)
        else:
            size = schedule.size(steps, state)
            new = _point(A, kernels.newton_schulz_update(now.L, now.D, size, overwrite_d=True))
        if not _progress(now, new, size):
            if size == 1 and now.norm < CERTIFICATE:
                return ended("rounding")
            size, stepped = _line_search(A, now.L)
            if size is None:
                return ended("indefinite")
            new = _point(A, stepped)
            searches += 1
            if not _progress(now, new, size):
                return ended("rounding")
        bound = _bound(now.norm, size)
        now, steps = new, steps + 1
        if schedule is not None:
            state = schedule.observe(state, -now.objective)
        # what exceeds the bound is rounding, and it stays
        stalled = bound < CERTIFICATE and now.norm > 2 * bound


def _progress(now, new, size):
    """Has a step of ``size`` led from ``now`` to something better?"""
    if not math.isfinite(new.norm) or not math.isfinite(new.objective):
        return False
    if now.norm < CERTIFICATE:  # differences of the objective would drown in rounding
        return new.norm < now.norm
    # long steps need not go down so steeply
    return new.objective < now.objective - SUFFICIENT * min(size, 1) * now.norm**2 / 2


def _bound(d, g):
    """An upper bound of ||E' - I||_F after a step g from ||E - I||_F = d.

    D' = D - g (Phi + Phi') - g (D Phi + Phi' D) + g^2 (Phi' Phi + Phi' D Phi), Phi + Phi' = D and
    ||Phi||_F <= d / sqrt(2).
    """
    return abs(1 - g) * d + math.sqrt(2) * g * d**2 + g**2 * d**2 * (1 + d) / 2


def _line_search(A, L):
    """The exact minimiser along the natural gradient: (step size, new factor); (None, None) where A proves not to be definite."""
    D, stats = kernels.newton_schulz_gram(A, L)
    norm, _, _, trace = stats.tolist()
    P, curvature = kernels.newton_schulz_curvature(A, L, D)
    curvature = float(curvature)
    if not curvature > 0:
        return None, None
    phi = _on_host(D.diagonal()) / 2
    linear = norm**2 / 2 + trace / 2  # <E, Phi>
    top = max(float(phi.max()), 0.0)

    def slope(g):
        return curvature * g - linear + float((phi / (1 - g * phi)).sum())

    # convex, with a pole at 1 / top: the root of the slope by bisection
    low, high = 0.0, 1 / top if top > 0 else 1.0
    while top == 0 and slope(high) < 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low, L - L.dtype.type(low) * P


def _scaled_start(A, L):
    """The point of L, its columns scaled to a unit diagonal of E = L' A L where that is far from one.

    Over all scalings of the columns these are the ones of least objective. D = E - I has no digits
    left of what is small in E: so columns whose E_ii is lost are scaled by the smallest at first,
    and by their own in a second round.
    """
    now = _point(A, L)
    for _ in range(2):
        if not (
            now.smallest > 0
            and math.isfinite(now.norm)
            and (now.smallest < SCALED[0] or now.largest > SCALED[1])
        ):
            break
        scale = np.maximum(_on_host(now.D.diagonal()) + 1, now.smallest) ** -0.5
        now = _point(A, now.L * np.asarray(scale.astype(A.dtype), like=A))
    return now


def _cold_start(A, power):
    """a diag(A)^-1/2, with a such that the largest eigenvalue of L' A L is about one."""
    scale = 1 / np.sqrt(A.diagonal())
    top, _ = kernels.power_iteration(scale[:, None] * A * scale, power, iterations=5)
    L = np.zeros(A.shape, A.dtype, like=A)
    L.reshape(-1)[:: len(A) + 1] = scale / A.dtype.type(math.sqrt(float(top)))
    return L


def _condition(A, L, power):
    """About the condition number of A, from power iterations with A and with L L' in place of its inverse."""
    top, _ = kernels.power_iteration(A, power, iterations=5)
    for _ in range(5):
        power = power / np.sqrt(np.square(power).sum())
        power = (L * (power[:, None] * L).sum(0)).sum(1)
    size = float(np.sqrt(np.square(power).sum()))
    return float(top) * size


@overload
def checked(A, L: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
@overload
def checked(A, L: None) -> tuple[np.ndarray, None]: ...
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
