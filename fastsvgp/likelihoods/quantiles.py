"""Predictive quantiles: inverses of distribution functions for symmetric noise and for counts.

Both searches start from a bracket that is guaranteed to hold the quantile, and stay inside it.
``levels`` are Python floats strictly between 0 and 1; arrays can be on any device.
"""

import itertools
import math

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .base import by_chunks, in_chunks

ITERATIONS = 80  # Newton takes four to eight; bisection would take about fifty
HUGE = 1e130  # larger quantiles are infinite: their squares must not overflow
SLACK = 1e-8  # widens the bracket by the error of the noise quantiles


def symmetric_quantiles(levels, f, halves, noise, size, *others):
    """Compute quantiles (K, ...) of y = f + noise, for symmetric and unimodal noise.

    Parameters
    ----------
    levels : K floats
    f : Marginals (...)
    halves : function
        ``(r, var, *others)``, all (n,) -> mass between the centre and ``r`` > 0, mass beyond ``r``,
        and density at ``r``.
    noise : function
        ``(tail, *others)`` -> the distance from its centre beyond which the noise has this mass, or
        a lower and an upper bound of it.
    size : int
        Number of data per chunk.
    *others : arrays (...)
        Further moments of each datum.
    """
    out = np.empty((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
    distance = {}
    for k, level in enumerate(levels):
        tail = min(level, 1 - level)
        if tail == 0.5:
            out[k] = f.mean
            continue
        if tail not in distance:
            distance[tail] = by_chunks(
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


def count_quantiles(levels, f, log_exposure, cdf, size):
    """Compute quantiles (K, ...) of counts y ~ Poisson(exp(log_exposure + f)).

    A quantile is the smallest y whose distribution function reaches the level. Above 2^52 float64
    cannot represent every count, so the quantile of the rate is returned: the Poisson noise, about
    1e-8 of such a count, is neglected.

    Parameters
    ----------
    levels : K floats
    f : Marginals (...)
    log_exposure : float
    cdf : function
        ``(y, mean, var)``, all (n,) -> P(count <= y), 0 for y < 0.
    size : int
        Number of data per chunk.
    """
    rows = [
        in_chunks(
            lambda _, mean, var, level=level: _smallest_count(level, mean, var, log_exposure, cdf),
            f.var,
            f,
            size,
        )
        for level in levels
    ]
    return np.stack(rows) if rows else np.empty((0, *f.mean.shape), f.mean.dtype, like=f.mean)


def _smallest_count(level, mean, var, log_exposure, cdf):
    # y <= k only if the rate is below a, or a Poisson count of rate a is at most k; likewise
    # above. Half the level for each, and Bernstein's bounds on Poisson tails, give the bracket
    # F(low) < level <= F(high).
    sd = np.sqrt(var, dtype=np.float64)
    least, most = -math.log(level / 2), -math.log((1 - level) / 2)

    def rate(z):
        with np.errstate(over="ignore"):
            return np.exp(log_exposure + mean + sd * float(z))

    a, b = rate(scipy.special.ndtri(level / 2)), rate(-scipy.special.ndtri((1 - level) / 2))
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
