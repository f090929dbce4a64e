"""Nodes and points of averages, as NumPy arrays: shared by both twins of ``quadrature``."""

import functools
import operator

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from ...errors import not_a_generator

FLOOR = np.finfo(np.float64).eps ** (2 / 3)
NO_SCALE = 1e-200
ENDS = 8.4  # averages of tabulated functions end this many standard deviations from the mean


@functools.lru_cache
def rule(num):
    """Return nodes z and weights w with sum_k w_k g(z_k) ~ E g(z), z ~ N(0, 1).

    Both are symmetric to the last bit.
    """
    z, w = hermegauss(num)
    z, w = (z - z[::-1]) / 2, w + w[::-1]
    w /= w.sum()
    z.flags.writeable = w.flags.writeable = False
    return z, w


def raised(mean, var, least=1.0):
    """Return the variance at which a rule is evaluated, in float64: see ``gauss_hermite_nodes``.

    ``least`` is the squared distance from 0 over which the integrand changes: ``NO_SCALE`` for a
    power near 0.
    """
    return np.maximum(var, FLOOR * np.maximum(least, np.square(mean, dtype=np.float64)))


def seed_of(rng):
    """Return the seed of the points that ``rng`` asks for: see ``normal_points``."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    try:
        seed = 0 if rng is None else operator.index(rng)
    except TypeError:
        raise not_a_generator(rng) from None
    if seed < 0:
        raise not_a_generator(rng)
    return seed


@functools.lru_cache(maxsize=8)
def points(dim, num, seed):
    """Compute the points of ``normal_points``."""
    from scipy.linalg import cholesky, solve_triangular
    from scipy.special import ndtri
    from scipy.stats import qmc  # imported here: takes half a second

    rng = np.random.default_rng(seed)
    u = (
        qmc.Sobol(dim, seed=rng).random(num // 2)
        if dim <= qmc.Sobol.MAXDIM
        else rng.random((num // 2, dim))
    )
    half = ndtri(np.clip(u, 2.0**-40, 1 - 2.0**-40))
    if num >= 4 * dim:
        factor = cholesky(half.T @ half / len(half), lower=True)
        half = np.ascontiguousarray(solve_triangular(factor, half.T, lower=True).T)
    else:
        half /= np.sqrt((half * half).mean(axis=0))
    points = np.concatenate([half, -half])
    points.flags.writeable = False
    return points
