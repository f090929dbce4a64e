"""Averages over q(f) in predictions, by trapezoidal rules that converge geometrically.

``log_average`` computes log E p(y | f) for a density that is log-concave in f. With l = log p the
integrand exp(l(f) - (f - mean)^2 / (2 var)) has one mode. At its width w, and with no feature of l
narrower than an ``edge`` elsewhere, steps of the smaller of ``STEP`` edges and ``STEP_OF_WIDTH`` w
give errors of about 1e-10.

``chance_below`` computes P(f < T), which is the distribution function of a count or of a positive
number: given f, the target is at most y if a variable T with a smooth density exceeds f. If q(f) is
narrower than T, the rule runs over f, else over T: the other factor is then smooth at its steps.

``average_of_edge`` is for a function of f that falls from 1 to 0 near a centre c. If q(f) is much
wider than that edge, its nodes are c + w sinh(u) at equal distances of u.

``log_average_of`` is for any function of one mode or edge; it finds the width itself.
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .. import kernels
from ..runtime.deferred_checks import on_device
from .base import SMALLEST, log_sum_exp
from .stirling import FAR, exp_remainder, gamma_chance, log_binomial, log_logistic, normal_shares

LOST = 34.0  # a rule ends where its integrand has fallen by exp(-LOST)
STEP = 0.3  # largest distance of nodes, in units of the narrowest edge of the density
STEP_OF_WIDTH = 0.55
CLOSE = 0.9  # ratio of the ends of a bracket at which its search stops
MOST_NODES = 2**16
NODES_AT_ONCE = 256
ITERATIONS = 200  # of the search of a mode: Newton takes about five, bisection at most this many
HALVINGS = 100  # at most, of the interval of the nodes: a sharp law takes one for each bit
ENDS = 8.4  # nodes over f end this many standard deviations from the mean
NODES_OF_T = 160
SHARP = 1e8  # of the information of log odds: three terms of their expansion are exact to 1e-13
# a q(f) of more sds than this per width of an edge takes the nodes c + w sinh(u)
WIDE = 12.0
STEP_OF_SINH = 0.07
BISECTIONS = 60
# of a function whose width is not known: nodes c + w sinh(u) with this w (in standard deviations)
# and step at first, and the difference of two rules that each try accepts
FIRST_WIDTH, STEP_OF_AVERAGE, CLOSE_ENOUGH = 0.25, 0.15, (*(1e-9,) * 8, 1e-6)


def log_average(log_p, slopes, peak, mean, var, edge=1.0):
    """Compute log E exp(log_p(f)), (n,), under N(mean, var), for log-concave densities.

    ``slopes(f)`` are the first derivative of ``log_p``, and its second one, negated; ``peak`` is
    where it is largest, or infinite; ``edge`` is the least distance over which it changes.
    """
    m, v = mean.astype(np.float64, copy=False), np.maximum(var, SMALLEST, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        d = _mode(slopes, peak - m, m, v)
        width = 1 / np.sqrt(slopes(m + d)[1] + 1 / v)

        def logs(x):
            return log_p(m + x) - 0.5 * x * (x / v)

        top, far = logs(d), np.sqrt(2 * LOST * v)
        left, right = (d + sign * _reach(logs, d, sign, top, far) for sign in (-1, 1))
        step = np.maximum(
            np.minimum(STEP * edge, STEP_OF_WIDTH * width), (right - left) / MOST_NODES
        )
        # on a device this copies to the host
        count, mass = 2 + int(((right - left) / step).max()), 0.0
        for first in range(0, count, NODES_AT_ONCE):
            k = np.arange(first, min(count, first + NODES_AT_ONCE), like=m)[:, None]
            mass = mass + np.exp(logs(left + step * k) - top).sum(axis=0)
        # far out in a tail neighbouring nodes differ by more than any number: the value at the mode
        countable = (mass > 0) & (mass < np.inf)
        log_mass = np.log(np.where(countable, mass * step, np.sqrt(2 * np.pi * v)))
        return top + log_mass - 0.5 * np.log(2 * np.pi * v)


def _mode(slopes, peak, m, v):
    """Solve l'(m + d) = d / v for d, which lies between 0 and ``peak``."""
    start = slopes(m)[0]
    low, high = np.maximum(np.minimum(v * start, 0), np.minimum(peak, 0)), np.maximum(v * start, 0)
    high = np.minimum(high, np.maximum(peak, 0))
    d = np.where(start > 0, low, high)
    for turn in range(ITERATIONS):
        slope, bend = slopes(m + d)
        excess, bend = slope - d / v, bend + 1 / v
        low, high = np.where(excess > 0, d, low), np.where(excess > 0, high, d)
        newton = d + excess / bend
        inside = (newton > low) & (newton < high) & (turn % 3 < 2)
        new = np.where(inside, newton, 0.5 * (low + high))
        done, d = np.abs(new - d) * np.sqrt(bend) <= 1e-3, new
        if done.all():
            break
    return d


def _reach(logs, d, sign, top, far):
    """Return a distance from the mode at which the integrand has fallen by at least ``LOST``."""
    low, high = 0 * far, far
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        inside = logs(d + sign * middle) > top - LOST
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        if (low >= CLOSE * high).all():
            break
    return high


def chance_below(law, mean, var):
    """Compute P(f < T), (n,), for f ~ N(mean, var) and an independent T, such as of a ``*_law``."""
    survival, log_density, width, ends, heavy, *parameters = law
    m, sd = mean.astype(np.float64, copy=False), np.sqrt(var, dtype=np.float64)
    over_f, p = heavy | (sd <= width), np.empty(m.shape, like=m)
    for where, rule, function, more in (
        (over_f, average, survival, (width,)),
        (~over_f, _average_over_T, log_density, ends),
    ):
        at = np.argwhere(where)[:, 0]
        if at.size:
            rows = [np.broadcast_to(array, m.shape)[at] for array in (m, sd, *more, *parameters)]
            p[at] = rule(function, *rows)
    return p


def average(function, mean, sd, width, *parameters):
    """Compute E function(f, *parameters), (n,), under N(mean, sd^2), for smooth bounded functions.

    f is (nodes, n), all else (n,); ``width`` is the least distance over which the function changes.
    """
    mass, value = 0.0, 0.0
    for z in _nodes(mean, sd, width):
        weight = np.exp(-0.5 * z * z)
        mass = mass + weight.sum(axis=0)
        value = value + (weight * function(mean + sd * z, *parameters)).sum(axis=0)
    return value / mass


def _nodes(mean, sd, width):
    """Yield runs (k, n) of the nodes of trapezoidal rules for N(0, 1)."""
    step = np.minimum(0.35, 0.35 * np.minimum(width, 1.2) / np.maximum(sd, SMALLEST))
    step = np.maximum(step, 2 * ENDS / MOST_NODES)
    half = 1 + int(ENDS / float(step.min()))  # on a device this copies to the host
    for first in range(-half, half + 1, NODES_AT_ONCE):
        yield step * np.arange(first, min(half + 1, first + NODES_AT_ONCE), like=mean)[:, None]


def log_average_of(log_p, centre, mean, sd, *columns, edge=False):
    """Compute log E exp(log_p(*columns, f)) under N(mean, sd^2), to a precision that is checked.

    The nodes are c + w sinh(u). A rule of every other node must give the same; otherwise w and the
    steps shrink. As c is a node of both, a peak there that is narrower than the steps is noticed.
    At an edge it is not a node: errors of the two rules would be alike.

    ``log_p(*columns, f)`` is largest, or changes most, at ``centre``. With ``edge`` it is that of a
    distribution function, and errors are not relative. Returned are the values (n,) and the numbers
    of the data of which the two rules still differ.
    """
    value, width, fineness = kernels.full(mean.shape, np.nan, mean), FIRST_WIDTH, 1.0
    rough = np.argwhere(mean == mean)[:, 0]
    for most in CLOSE_ENOUGH:
        if not rough.size:
            break
        c, m, s, *row = (x[rough] for x in (centre, mean, sd, *columns))
        off, w = (c - m) / s, width
        step = fineness * STEP_OF_AVERAGE * np.minimum(1, 4 / (1 + np.abs(off)))
        low, high = ((np.arcsinh((end - off) / w) / step) for end in (-ENDS, ENDS))
        # on a device this copies to the host
        first, last = int(np.floor(low.min())), int(np.ceil(high.max()))
        u = step * (np.arange(first, last + 1, like=m)[:, None] + (0.3 if edge else 0))
        z = off + w * np.sinh(u)
        logs = np.log(w * step * np.cosh(u)) - 0.5 * z * z - 0.5 * float(np.log(2 * np.pi))
        logs = logs + log_p(*row, m + s * np.clip(z, -ENDS - 1, ENDS + 1))
        with np.errstate(divide="ignore", invalid="ignore"):  # densities can be 0
            fine, coarse = log_sum_exp(logs), log_sum_exp(logs[first % 2 :: 2]) + float(np.log(2))
            error = np.abs(fine - coarse) * (np.exp(fine) if edge else 1)
        value[rough] = fine
        same = (error <= most) | (fine == coarse) | (fine != fine)
        rough, width, fineness = rough[~same], width / 16, 0.7 * fineness
    return value, rough


def crossing(before, low, high, turns=BISECTIONS):
    """Bisect [low, high] for the point where ``before``, a function of points, becomes false."""
    for _ in range(turns):
        centre = 0.5 * (low + high)
        less = before(centre)
        low, high = np.where(less, centre, low), np.where(less, high, centre)
    return centre


def average_of_edge(function, edge, narrowest, mean, sd, *parameters):
    """Return ``average`` of functions that fall from 1 to 0.

    ``edge(f)`` is the distance over which the function falls if it is 1/2 at f (n,), and
    ``narrowest`` the least such distance.
    """
    wide, value = sd > WIDE * narrowest, np.empty(mean.shape, like=mean)
    for where, rule, how in ((~wide, average, narrowest + 0 * sd), (wide, _average_by_sinh, edge)):
        at = np.argwhere(where)[:, 0]
        if at.size:
            how = how if how is edge else how[at]
            value[at] = rule(function, mean[at], sd[at], how, *(row[at] for row in parameters))
    return value


def _average_by_sinh(function, mean, sd, edge, *parameters):
    ends = mean - ENDS * sd, mean + ENDS * sd
    centre = crossing(lambda f: function(f, *parameters) > 0.5, *ends)
    width = np.minimum(edge(centre), 0.25 * sd)
    low, high = (np.arcsinh((end - centre) / width) for end in ends)
    # on a device this copies to the host
    count, mass, value = 2 + int(float((high - low).max()) / STEP_OF_SINH), 0.0, 0.0
    step = (high - low) / (count - 1)
    for first in range(0, count, NODES_AT_ONCE):
        u = low + step * np.arange(first, min(count, first + NODES_AT_ONCE), like=mean)[:, None]
        f = centre + width * np.sinh(u)
        weight = np.cosh(u) * np.exp(-0.5 * np.square((f - mean) / sd))
        mass = mass + weight.sum(axis=0)
        value = value + (weight * function(f, *parameters)).sum(axis=0)
    return value / mass


def beta_survival(t, p, q):
    """Compute P(logit B > t) of B ~ Beta(p, q), from whichever of B and 1 - B is small.

    Each tail has relative accuracy on the host; on a device a small one left of 0 has not.
    """
    near, centre = np.clip(t, -FAR, FAR), np.log(p / q)
    info, share = 1 / (1 / p + 1 / q), p / (p + q)
    loss, below = np.maximum(-log_logistic(p, q)(near), 0), near < centre
    plain = (info < SHARP) & (loss < FAR)
    # Beyond SHARP SciPy takes long. The log odds are normal to two terms in 1 / sqrt(info) there
    z, skew = np.where(below, -1, 1) * np.sqrt(2 * loss), 1 - 2 * share
    bend = (5 / 24) * skew * skew - (1 - 6 * share * (1 - share)) / 8
    term = (z * bend / np.sqrt(info) - skew / 3) / np.sqrt(2 * np.pi * info)
    beyond = scipy.special.ndtr(-z) + term * np.exp(-loss)
    # P(B < x) or P(1 - B < x), whichever x is below the mean: beyond it SciPy's betainc has errors
    # of 1e-8 for parameters of 1e9. If x is near 1, the complement of 1 - x, which keeps its digits
    one, other = np.where(below, p, q), np.where(below, q, p)
    u = np.where(below, near, -near)
    x, rest, near_one = scipy.special.expit(u), scipy.special.expit(-u), u > 2
    if on_device(u):  # CuPy has no betaincc
        inside = scipy.special.betainc(one, other, x)
        inside = np.where(near_one, 1 - scipy.special.betainc(other, one, rest), inside)
    else:
        inside = np.zeros(u.shape)
        scipy.special.betainc(one, other, x, out=inside, where=plain & ~near_one)
        scipy.special.betaincc(other, one, rest, out=inside, where=plain & near_one)
    beyond = np.where(plain, np.where(below, 1 - inside, inside), beyond)
    # further out a tail is a power of the odds, whose base would underflow
    right = beyond * np.exp(-q * np.maximum(t - FAR, 0))
    left = 1 - (1 - beyond) * np.exp(p * np.minimum(t + FAR, 0))
    return np.where(t < -FAR, left, right)


def _average_over_T(log_density, m, sd, bottom, top, *parameters):
    t = bottom + (top - bottom) * (np.arange(NODES_OF_T, like=m) / (NODES_OF_T - 1))[:, None]
    logs = log_density(t, *parameters)
    weight = np.exp(logs - logs.max(axis=0))
    return (weight * scipy.special.ndtr((t - m) / sd)).sum(axis=0) / weight.sum(axis=0)


def log_gamma_law(a, centre, sign=1):
    """Law of T = centre + sign log(G / a), with G ~ Gamma(a); sign 1 is for a >= 1."""

    def survival(t, a, centre):
        return gamma_chance(a, sign * (t - centre), above=sign > 0)

    def log_density(t, a, centre):
        return -a * exp_remainder(sign * (t - centre))

    width = 1 / np.sqrt(a)
    far = 8 * width + LOST / a
    near = np.log1p(far)
    ends = (centre - far, centre + near) if sign > 0 else (centre - near, centre + far)
    return survival, log_density, width, ends, a < 1, a, centre


def log_odds_law(p, q):
    """Law of T = logit B, with B ~ Beta(p, q)."""

    def log_density(t, p, q):
        return log_logistic(p, q)(t)

    width, ends = _odds(p, q)
    return beta_survival, log_density, width, ends, (p < 1) | (q < 1), p, q


def probit_law(p, q):
    """Law of T = ndtri(B), with B ~ Beta(p, q)."""

    def survival(t, p, q):
        log_ndtr = scipy.special.log_ndtr
        return beta_survival(log_ndtr(t) - log_ndtr(-t), p, q)

    def log_density(t, p, q):
        return log_binomial(p - 1, q - 1, normal_shares)(t) - 0.5 * t * t

    width, (bottom, top) = _odds(p, q)
    share = p / (p + q)
    t = scipy.special.ndtri(share)
    width = width * share * (1 - share) * np.sqrt(2 * np.pi) * np.exp(0.5 * t * t)
    expit, ndtri = scipy.special.expit, scipy.special.ndtri
    ends = ndtri(expit(np.maximum(bottom, -700))), -ndtri(expit(np.maximum(-top, -700)))
    return survival, log_density, width, ends, (p < 1) | (q < 1), p, q


def _odds(p, q):
    """Return the width of the log odds of a Beta(p, q) variable, and an interval of them."""
    width, centre = np.sqrt(1 / p + 1 / q), np.log(p / q)
    return width, (centre - 8 * width - LOST / p, centre + 8 * width + LOST / q)


def log_normal_moments(mean, var):
    """Return E mu, var mu and E mu^2 of mu = exp(f), in float64; they can overflow to infinity."""
    m, v = (x.astype(np.float64, copy=False) for x in (mean, var))
    with np.errstate(over="ignore"):
        # logarithms avoid inf * 0
        spread = np.exp(2 * m + 2 * v + np.log(np.maximum(-np.expm1(-v), SMALLEST)))
        return np.exp(m + 0.5 * v), spread, np.exp(2 * (m + v))
