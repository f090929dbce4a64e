"""Newton-Schulz iteration for one matrix: step-size rule, fallback and stopping."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ... import check, kernels

# ||L' A L - I||_F below this: unit steps converge quadratically (spec: d <= d^2 (1.92 + d / 2))
CERTIFICATE = 0.46
# the columns of a start are scaled if the diagonal of L' A L leaves this range
SCALED = 0.2, 5.0
SUFFICIENT = 1e-4  # a step counts if the objective falls by this part of its linear prediction
# steps that a device takes before the host looks: saves three synchronisations of four, and wastes
# at most two steps at the end
LOOKAHEAD = 4
# power iterations before the first step, and before each later one: with ten, one cold start in
# about a hundred took a first step that was too long, and six more steps in all
POWER = 20, 3
# the residual stalls at about this times eps times the condition number: 2e-8 cond(A) in float32
ROUNDING = 0.17


class InverseFactorInfo(NamedTuple):
    """Report of ``inverse_factor``; fields are arrays over the batch if A has leading axes.

    converged : the normalised residual ||L' A L - I||_F / sqrt(M) is at most the tolerance
    steps : number of updates of L
    residual : normalised residual of the returned factor
    certified : ||L' A L - I||_F < 0.46, so that unit steps from here converge quadratically
    reason : "converged"; "steps": `max_steps` were not enough; "rounding": no step reduces the
        residual any further in this dtype; "indefinite": some x' A x <= 0 was found, so A is not
        positive definite in this dtype
    reachable : for the last two reasons, approximately the smallest residual that rounding allows,
        0.17 eps cond(A), with an estimate of the condition number; else 0
    searches : how many of the steps were taken by the exact line search
    log_det : log|L L'| of the returned factor, which tends to -log|A|
    gap : ``variance_gap`` of the returned factor; infinity if it was not requested
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


class _Iterate(NamedTuple):
    """A factor L, D = L' A L - I with its statistics if a lookahead can start here, and numbers.

    norm : of D
    smallest, largest : entries of the diagonal of L' A L
    log_det : log|L L'|
    """

    L: np.ndarray
    D: np.ndarray
    stats: np.ndarray
    norm: float
    smallest: float
    largest: float
    objective: float
    log_det: float


def _iterates(factors, D, rows):
    """Yield the iterates of ``newton_schulz_walk`` with the step size from each.

    Only the last iterate has D. Synchronises with a device once.
    """
    numbers = rows.tolist()
    last = next(i for i, row in enumerate(numbers) if row[5] == 0)
    for i, (L, (norm, smallest, largest, trace, log_det, size)) in enumerate(
        zip(factors, numbers[: last + 1], strict=False)
    ):
        start = (D, rows[i, :4]) if i == last else (None, None)
        yield _Iterate(L, *start, norm, smallest, largest, (trace - log_det) / 2, log_det), size


def _iterate(A, L):
    _, D, rows, _ = kernels.newton_schulz_walk(A, L, None, 0.0, 0)
    return next(_iterates([L], D, rows))[0]


class _Iterates:
    """Steps by the rule, requested one by one; a device computes several ahead of the host."""

    def __init__(self, A, power, tolerance, lookahead):
        self.A, self.tolerance, self.lookahead, self.iterations = A, tolerance, lookahead, POWER
        self.power = power  # where the next power iteration starts
        self.taken = []  # in reverse order

    def step(self, now, most):
        """Return ``(size, iterate)`` from the last step's iterate, or from any other that has D."""
        if now.D is not None:
            iterations = (0, 0) if now.norm < CERTIFICATE else self.iterations
            steps, start = self._how_many(now.norm, most), (now.D, now.stats)
            walked = kernels.newton_schulz_walk(
                self.A, now.L, self.power, self.tolerance, steps, start, iterations
            )
            factors, D, rows, self.power = walked
            found, sizes = zip(*_iterates([now.L, *factors], D, rows), strict=True)
            self.taken = [*zip(sizes, found[1:] or [now], strict=False)][::-1]
            self.iterations = 3, 3
        return self.taken.pop()

    def _how_many(self, norm, most):
        """Return the number of steps to take at once, fewer if these reach the tolerance."""
        most = min(most, self.lookahead)
        if norm >= CERTIFICATE:
            return most
        steps, norm = 1, _bound(norm, 1)
        while steps < most and norm > self.tolerance * math.sqrt(len(self.A)):
            steps, norm = steps + 1, _bound(norm, 1)
        return steps


def _on_host(vector):
    """Copy a vector to NumPy as float64, in one transfer."""
    return np.array(vector.tolist())


@dataclass(slots=True)
class _Iteration:
    """Iterate and counts of one run, with the rules for its steps and its end.

    limit : on the norm of an iterate
    state : of the schedule
    slack : last measurement of ``gap``
    """

    A: Any
    power: Any
    limit: float
    max_steps: int
    gap: Any
    schedule: Any
    state: Any
    ahead: _Iterates
    now: _Iterate
    steps: int = 0
    searches: int = 0
    stalled: bool = False  # by rounding, the last step ended above its bound
    slack: float = math.inf

    def stop_reason(self):
        """Return why the run ends at this iterate; None if it continues."""
        now = self.now
        if self.gap is not None:
            self.slack = self.gap.measure(self.A, now.L)
        if now.norm <= self.limit or (self.gap is not None and self.slack <= self.gap.limit):
            return "converged"
        if self.stalled:
            return "rounding"
        if now.smallest <= 0:
            return "indefinite"
        return "steps" if self.steps == self.max_steps else None

    def advance(self):
        """Move to the next iterate; return why the run ends if no step improves it, else None."""
        size, new = self._propose()
        if not _progress(self.now, new, size):
            if size == 1 and self.now.norm < CERTIFICATE:
                return "rounding"
            size, stepped = _line_search(self.A, self.now.L)
            if size is None:
                return "indefinite"
            new = _iterate(self.A, stepped)
            self.searches += 1
            if not _progress(self.now, new, size):
                return "rounding"
        bound = _bound(self.now.norm, size)
        self.now, self.steps = new, self.steps + 1
        if self.schedule is not None:
            self.state = self.schedule.observe(self.state, -new.objective)
        # any excess over the bound is rounding, which later steps do not remove
        self.stalled = bound < CERTIFICATE and new.norm > 2 * bound
        return None

    def _propose(self):
        """Return ``(size, iterate)`` of the next step, by the schedule or by the rule."""
        if self.schedule is None:
            return self.ahead.step(self.now, self.max_steps - self.steps)
        now, size = self.now, self.schedule.size(self.steps, self.state)
        L = kernels.newton_schulz_update(now.L, now.D, size, overwrite_d=True)
        return size, _iterate(self.A, L)

    def info(self, reason):
        now, A, reachable = self.now, self.A, 0.0
        if reason in ("rounding", "indefinite"):
            eps = float(np.finfo(A.dtype).eps)
            reachable = ROUNDING * eps * _condition(A, now.L, self.power)
        return InverseFactorInfo(
            converged=reason == "converged",
            steps=self.steps,
            residual=now.norm / math.sqrt(len(A)),
            certified=now.norm < CERTIFICATE,
            reason=reason,
            reachable=reachable,
            searches=self.searches,
            log_det=now.log_det,
            gap=self.slack,
        )


def newton_schulz_iterate(A, L, schedule, tolerance, max_steps, gap=None):
    """Run ``inverse_factor`` for one matrix and checked arguments; training loops call this.

    ``schedule`` is a schedule or None. ``gap`` is a ``VarianceGap``, which replaces the tolerance,
    or None.
    """
    # any start that favours no direction will do
    power = np.random.default_rng(0).standard_normal(len(A))
    power = np.asarray(power, A.dtype, like=A)
    if gap is not None:
        tolerance = 0.0
    lookahead = LOOKAHEAD if gap is None and check.backend_of(A) == "cuda" else 1
    run = _Iteration(
        A,
        power,
        limit=tolerance * math.sqrt(len(A)),
        max_steps=max_steps,
        gap=gap,
        schedule=schedule,
        state=None if schedule is None else schedule.init(),
        ahead=_Iterates(A, power, tolerance, lookahead),
        now=_start(A, L, power),
    )
    reason = run.stop_reason()
    while reason is None:
        reason = run.advance() or run.stop_reason()
    return run.now.L, run.info(reason)


def _start(A, L, power):
    """Return the scaled iterate at L, or a cold start if L is None or unusable."""
    if L is not None:
        signs = np.where(L.diagonal() < 0, -1, 1).astype(L.dtype)
        start = _scaled_start(A, np.tril(L) * signs)
        # otherwise L' A L overflows or vanishes
        if math.isfinite(start.norm) and start.smallest > 0:
            return start
    return _iterate(A, _cold_start(A, power))


def _progress(now, new, size):
    """Return whether a step of ``size`` from ``now`` to ``new`` is an improvement."""
    if not math.isfinite(new.norm) or not math.isfinite(new.objective):
        return False
    if now.norm < CERTIFICATE:  # differences of the objective would drown in rounding
        return new.norm < now.norm
    # long steps need less descent
    return new.objective < now.objective - SUFFICIENT * min(size, 1) * now.norm**2 / 2


def _bound(d, g):
    """Return an upper bound of ||E' - I||_F after a step g from ||E - I||_F = d.

    D' = D - g (Phi + Phi') - g (D Phi + Phi' D) + g^2 (Phi' Phi + Phi' D Phi), Phi + Phi' = D and
    ||Phi||_F <= d / sqrt(2).
    """
    return abs(1 - g) * d + math.sqrt(2) * g * d**2 + g**2 * d**2 * (1 + d) / 2


def _line_search(A, L):
    """Return the exact minimiser along the natural gradient: (step size, new factor).

    (None, None) if A turns out not to be positive definite.
    """
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
    """Return the iterate at L, its columns scaled if the diagonal of E = L' A L is far from one.

    Scaling to a unit diagonal has the least objective of all. D = E - I loses the digits of small
    entries of E: columns whose E_ii is lost are scaled by the smallest at first, and by their own
    E_ii in a second round.
    """
    now = _iterate(A, L)
    for _ in range(2):
        if not (
            now.smallest > 0
            and math.isfinite(now.norm)
            and (now.smallest < SCALED[0] or now.largest > SCALED[1])
        ):
            break
        scale = np.maximum(_on_host(now.D.diagonal()) + 1, now.smallest) ** -0.5
        now = _iterate(A, now.L * np.asarray(scale.astype(A.dtype), like=A))
    return now


def _cold_start(A, power):
    """Return a diag(A)^-1/2, with a such that the largest eigenvalue of L' A L is about one."""
    scale = 1 / np.sqrt(A.diagonal())
    top, _ = kernels.power_iteration(scale[:, None] * A * scale, power, iterations=5)
    L = np.zeros(A.shape, A.dtype, like=A)
    L.reshape(-1)[:: len(A) + 1] = scale / A.dtype.type(math.sqrt(float(top)))
    return L


def _condition(A, L, power):
    """Estimate the condition number of A by power iterations with A and with L L'."""
    top, _ = kernels.power_iteration(A, power, iterations=5)
    for _ in range(5):
        power = power / np.sqrt(np.square(power).sum())
        power = (L * (power[:, None] * L).sum(0)).sum(1)
    size = float(np.sqrt(np.square(power).sum()))
    return float(top) * size


def check_matrix_and_factor(A, L):
    """Return ``(A, L)`` as arrays of one dtype; reject a matrix or a factor that is not valid."""
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
            f"`A` must be symmetric, but A and A' differ by up to {difference:g}; pass"
            " (A + A') / 2 to ignore this"
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
