"""Inverting predictive distribution functions: of symmetric noise added to f, and of counts.

Both begin from a bracket that holds for certain, so the search cannot leave it and needs no luck.
``levels`` are Python floats, strictly between 0 and 1; everything else may live on any device.
"""

import itertools
import math

import numpy as np
import scipy  # its submodules load with their first use, and scipy.special takes longer than NumPy

from .base import in_chunks

ITERATIONS = 80  # Newton takes four to eight; halving the bracket alone would take some fifty
HUGE = 1e130  # a quantile beyond that is infinite: its square has to be a number
SLACK = 1e-8  # of the bracket: what the quantiles of the noise may be off by


def symmetric_quantiles(levels, f, halves, noise, size):
    """Quantiles (K, ...) of y = f + noise that is symmetric and unimodal.

    Parameters
    ----------
    levels : K floats
    f : Marginals (...)
    halves : function
        ``(r, var)``, both (n,) -> mass between the centre and ``r`` > 0, mass beyond it, and the
        density there.
    noise : function
        ``tail`` -> the distance from its centre beyond which the noise alone has this mass: a
        float.
    size : int
        Data at a time.
    """
    out = np.empty((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
    distance = {}
    for k, level in enumerate(levels):
        tail = min(level, 1 - level)
        if tail == 0.5:
            out[k] = f.mean
            continue
        if tail not in distance:
            distance[tail] = in_chunks(
                lambda _, mean, var, tail=tail: _distance(tail, var, halves, noise), f.var, f, size
            )
        out[k] = f.mean - distance[tail] if level < 0.5 else f.mean + distance[tail]
    return out


def _distance(tail, var, halves, noise):
    # A sum is more spread out than either part (both are symmetric and unimodal), and beyond a + b
    # only where one part is beyond its own a or b: the bracket. Newton's iteration is for log(mass
    # within / mass beyond) as a function of log r, which is nearly straight about the centre (where
    # the mass within is r times the density) and in tails of any weight.
    sd = np.sqrt(var, dtype=np.float64)
    low = np.maximum(sd * -float(scipy.special.ndtri(tail)), noise(tail))
    high = sd * -float(scipy.special.ndtri(tail / 2)) + noise(tail / 2)
    start = np.sqrt((sd * float(scipy.special.ndtri(tail))) ** 2 + min(noise(tail), HUGE) ** 2)
    low, high = np.log(np.minimum(low, HUGE)) - SLACK, np.log(np.minimum(high, HUGE)) + SLACK
    x, goal = np.clip(np.log(start), low, high), math.log((0.5 - tail) / tail)
    for _ in range(ITERATIONS):
        r = np.exp(x)
        within, beyond, density = halves(r, var)
        within, beyond = np.maximum(within, 1e-300), np.maximum(beyond, 1e-300)
        excess = np.log(within) - np.log(beyond) - goal
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        newton = x - excess * 2 * within * (beyond / (r * np.maximum(density, 1e-300)))
        # beyond that the mass is rounding
        useful = (newton > low) & (newton < high) & (beyond > 1e-14)
        done = abs(excess) <= 1e-14 / tail
        x = np.where(done, x, np.where(useful, newton, 0.5 * (low + high)))
        if done.all():
            break
    return np.where(x < math.log(HUGE), np.exp(x), np.inf)


def count_quantiles(levels, f, log_exposure, cdf, size):
    """Quantiles (K, ...) of counts y ~ Poisson(exp(log_exposure + f)): the smallest y whose distribution function is a level.

    Counts above 2^52, which float64 does not tell apart, are those of the rate: the noise of a
    Poisson law, some 1e-8 of such a count, is left out.

    Parameters
    ----------
    levels : K floats
    f : Marginals (...)
    log_exposure : float
    cdf : function
        ``(y, mean, var)``, all (n,) -> P(count <= y), 0 for y < 0.
    size : int
        Data at a time.
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
    # y <= k only where the rate is below a, or a Poisson count of rate a is at most k; likewise
    # above. With half the level for each, and Bernstein's bounds on the tails of a Poisson law,
    # that makes the bracket: F(low) < level <= F(high).
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
    # The guesses are Newton's for a normal law of this spread; each third one halves the bracket,
    # so that the search ends.
    goal, centre = float(scipy.special.ndtri(level)), np.where(fine, rate(0), 0)
    guess = centre + goal * np.sqrt(centre + (sd * centre) ** 2)
    for turn in itertools.count():
        at = np.argwhere(high - low > 1)[:, 0]  # the others are neighbours
        if not at.size:
            break
        a, b = low[at], high[at]
        middle = np.clip(np.floor(0.5 * (a + b) if turn % 3 == 2 else guess[at]), a + 1, b - 1)
        p = cdf(middle, mean[at], var[at])
        low[at], high[at] = np.where(p < level, middle, a), np.where(p < level, b, middle)
        miss = goal - scipy.special.ndtri(np.clip(p, 1e-300, 1 - 1e-15))
        guess[at] = middle + miss * (np.sqrt(middle + (sd[at] * middle) ** 2) + 1)
    return np.where(fine, high, np.ceil(rate(goal)))
