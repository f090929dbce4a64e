"""Predictive quantiles: inverses of distribution functions for symmetric noise and for counts.

All searches start from a bracket that is guaranteed to hold the quantile, and stay inside it.
``levels`` are Python floats strictly between 0 and 1; arrays can be on any device.
"""

import functools
import itertools
import math

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .base import CHUNK, SMALLEST, apply_to_chunks

ITERATIONS = 80  # Newton takes four to eight; bisection would take about fifty
HUGE = 1e130  # larger quantiles are infinite: their squares must not overflow
DOUBLINGS = 500  # of a bracket that starts from the moments
ROUNDING = 1e-14  # error of a distribution function at which a search ends
SLACK = 1e-8  # widens the bracket by the error of the noise quantiles


def symmetric_quantiles(levels, f, halves, noise, size, *others):
    """Compute quantiles (K, ...) of y = f + noise, for symmetric and unimodal noise.

    ``halves(r, var, *others)``, all (n,), are the masses between the centre and ``r`` > 0 and
    beyond ``r``, and the density at ``r``. ``noise(tail, *others)`` is the distance from its centre
    beyond which the noise has this mass, or a lower and an upper bound of it. ``size`` data are a
    chunk, and ``others`` further moments of each datum.
    """
    out = np.empty((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
    distance = {}
    for k, level in enumerate(levels):
        tail = min(level, 1 - level)
        if tail == 0.5:
            out[k] = f.mean
            continue
        if tail not in distance:
            distance[tail] = apply_to_chunks(
                lambda *row, tail=tail: _distance(tail, halves, noise, *row),
                f.mean,
                size,
                f.var,
                *others,
            )
        out[k] = f.mean - distance[tail] if level < 0.5 else f.mean + distance[tail]
    return out


def _distance(tail, halves, noise, var, *others):
    # The bracket: a sum is more spread out than either part (both are symmetric and unimodal), and
    # it exceeds a + b only where one part exceeds its own a or b. Newton's iteration solves for
    # log(mass within / mass beyond) as a function of log r. That function is nearly linear near the
    # centre (where the mass within is r times the density) and in tails of any weight.
    sd = np.sqrt(var, dtype=np.float64)
    least, most = noise(tail, *others), noise(tail / 2, *others)
    if isinstance(least, tuple):
        least, most = least[0], most[1]
    low = np.maximum(sd * -float(scipy.special.ndtri(tail)), least)
    high = sd * -float(scipy.special.ndtri(tail / 2)) + most
    start = np.sqrt((sd * float(scipy.special.ndtri(tail))) ** 2 + np.minimum(least, HUGE) ** 2)
    low, high = np.log(np.minimum(low, HUGE)) - SLACK, np.log(np.minimum(high, HUGE)) + SLACK
    x, goal = np.clip(np.log(start), low, high), math.log((0.5 - tail) / tail)
    for _ in range(ITERATIONS):
        r = np.exp(x)
        within, beyond, density = halves(r, var, *others)
        within, beyond = np.maximum(within, 1e-300), np.maximum(beyond, 1e-300)
        excess = np.log(within) - np.log(beyond) - goal
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        newton = x - excess * 2 * within * (beyond / (r * np.maximum(density, 1e-300)))
        # a smaller mass is rounding error
        useful = (newton > low) & (newton < high) & (beyond > 1e-14)
        done = abs(excess) <= 1e-14 / tail
        x = np.where(done, x, np.where(useful, newton, 0.5 * (low + high)))
        if done.all():
            break
    return np.where(x < math.log(HUGE), np.exp(x), np.inf)


def count_quantiles(levels, like, cdf, size, mean, var):
    """Compute quantiles (K, ...) of counts y ~ Poisson(exp(f)), f ~ N(mean, var).

    A quantile is the smallest y whose distribution function reaches the level. Above 2^52 float64
    cannot represent every count, so the quantile of the rate is returned: the Poisson noise, about
    1e-8 of such a count, is neglected. ``cdf(y, mean, var)``, all (n,), is P(count <= y), and 0 for
    y < 0; ``size`` data are a chunk; the dtype is that of ``like``.
    """
    out = np.empty((len(levels), *like.shape), like.dtype, like=like)
    for k, level in enumerate(levels):
        search = functools.partial(_smallest_count, level, cdf)
        out[k] = apply_to_chunks(search, like, size, mean, var)
    return out


def _smallest_count(level, cdf, mean, var):
    # y <= k only if the rate is below a, or a Poisson count of rate a is at most k; likewise
    # above. Half the level for each, and Bernstein's bounds on Poisson tails, give the bracket
    # F(low) < level <= F(high).
    sd = np.sqrt(var, dtype=np.float64)
    below = max(level / 2, SMALLEST)
    least, most = -math.log(below), -math.log((1 - level) / 2)

    def rate(z):
        with np.errstate(over="ignore"):
            return np.exp(mean + sd * float(z))

    a, b = rate(scipy.special.ndtri(below)), rate(-scipy.special.ndtri((1 - level) / 2))
    fine = b < 2.0**51
    a, b = np.where(fine, a, 0), np.where(fine, b, 0)
    low = np.maximum(np.floor(a - np.sqrt(2 * least * a)) - 1, -1)
    high = np.floor(b + most / 3 + np.sqrt(most * most / 9 + 2 * most * b)) + 2
    # Guesses are Newton steps for a normal distribution of this spread. Every third step bisects
    # the bracket, so the search terminates.
    goal, centre = float(scipy.special.ndtri(level)), np.where(fine, rate(0), 0)
    guess = centre + goal * np.sqrt(centre + (sd * centre) ** 2)
    for turn in itertools.count():
        at = np.argwhere(high - low > 1)[:, 0]  # brackets that are still open
        if not at.size:
            break
        a, b = low[at], high[at]
        middle = np.clip(np.floor(0.5 * (a + b) if turn % 3 == 2 else guess[at]), a + 1, b - 1)
        p = cdf(middle, mean[at], var[at])
        low[at], high[at] = np.where(p < level, middle, a), np.where(p < level, b, middle)
        miss = goal - scipy.special.ndtri(np.clip(p, 1e-300, 1 - 1e-15))
        guess[at] = middle + miss * (np.sqrt(middle + (sd[at] * middle) ** 2) + 1)
    return np.where(fine, high, np.ceil(rate(goal)))


def search_quantiles(levels, mean, var, cdf, counts, *moments):
    """Compute quantiles (K, ...) from a distribution function ``cdf(y, *moments)`` alone.

    A bracket starts from ``mean`` and ``var`` and grows: they need not be exact, nor finite. With
    ``counts`` targets are whole numbers from 0 on, and a quantile is the smallest that reaches the
    level, up to 2^52.
    """
    out = np.empty((len(levels), *mean.shape), mean.dtype, like=mean)
    for k, level in enumerate(levels):
        out[k] = apply_to_chunks(
            lambda *row, level=level: _search(level, cdf, counts, *row),
            mean,
            CHUNK,
            mean,
            var,
            *moments,
        )
    return out


def _search(level, cdf, counts, mean, var, *moments):
    # A guess interpolates z = ndtri(P) between the ends of the bracket, and halves z - goal of an
    # end that stays twice (Illinois). Every third step bisects, so that the search terminates.
    goal, low, high, z_low, z_high = _bracket(level, cdf, counts, mean, var, moments)
    moved = np.zeros(low.shape, like=low)  # -1: the lower end moved last, 1: the upper one
    for turn in itertools.count():
        width = np.maximum(counts, 2.0**-51 * np.maximum(np.abs(low), np.abs(high)))
        at = np.argwhere((high - low > width) & np.isfinite(high))[:, 0]
        if not at.size:
            return high
        a, b, z_a, z_b = low[at], high[at], z_low[at], z_high[at]
        share = np.clip((goal - z_a) / np.maximum(z_b - z_a, SMALLEST), 0, 1)
        middle = a + (b - a) * (0.5 if turn % 3 == 2 else share)
        if counts:
            middle = np.clip(np.floor(middle), a + 1, b - 1)
        p = cdf(middle, *(moment[at] for moment in moments))
        z, below = _probit(p), p < level
        done = (np.abs(p - level) <= ROUNDING) & (not counts)
        low[at] = np.where(below | done, middle, a)
        high[at] = np.where(below & ~done, b, middle)
        again, moved[at] = moved[at], np.where(below, -1, 1)
        z_low[at] = np.where(below, z, np.where(again > 0, 0.5 * (z_a + goal), z_a))
        z_high[at] = np.where(below, np.where(again < 0, 0.5 * (z_b + goal), z_b), z)


def _bracket(level, cdf, counts, mean, var, moments):
    """Return the goal, and P(target <= low) < level <= P(target <= high) with both as probits."""
    low, spread = (np.where(np.isfinite(x), x, 1).astype(np.float64) for x in (mean, np.sqrt(var)))
    spread = np.maximum(spread, np.maximum(1e-8 * np.abs(low), SMALLEST))
    if counts:
        low, spread = np.maximum(np.floor(low), 0), np.ceil(np.maximum(spread, 1))
    high, p_low = low + spread, cdf(low, *moments)
    p_high = cdf(high, *moments)
    for _ in range(DOUBLINGS):
        up, down = (p_high < level) & (high < HUGE), (p_low >= level) & (low > -HUGE)
        if counts:
            down &= low >= 0
        if not (up | down).any():
            break
        low, high, p_low, p_high = (
            np.where(up, high, np.where(down, low - spread, low)),
            np.where(up, high + spread, np.where(down, low, high)),
            np.where(up, p_high, p_low),
            np.where(up, p_high, np.where(down, p_low, p_high)),
        )
        if counts:
            low = np.maximum(low, -1)
        p = cdf(np.where(up, high, low), *moments)
        p_low, p_high = np.where(down, p, p_low), np.where(up, p, p_high)
        spread = 2 * spread
    goal = float(scipy.special.ndtri(level))
    high = np.where(p_high < level, np.inf, high)
    return goal, low, high, _probit(p_low), _probit(p_high)


def _probit(p):
    return scipy.special.ndtri(np.clip(p, 1e-300, 1 - 1e-15))
