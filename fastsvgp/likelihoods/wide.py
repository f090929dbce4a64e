"""Expected log densities where q(f) is wider than the features of log p(y | f).

Gauss-Hermite nodes spread with sd(f): 20 of them lie 0.7 sd apart, and miss what log p does between
them. Where q(f) is wide the nodes must not depend on it. If log p is analytic within ``width`` of
the real line near its features, which lie within ``half`` of ``centre``, the nodes

    f_k = centre + w sinh(k h),    w = (2 width^2 + half^2)^(1/2),    h = STEP width / w 2^(1/2)

resolve the features, and grow apart beyond them. So few are needed, 60 for sd(f) = width and 120
for ten times that, at any sd(f) up to 1e7 widths. The trapezoidal rule in k, normalised to average
1 to 1, has errors of 1e-10 times log p.

As nodes are the same for all data, log p is tabulated once. Each datum only weighs the table:
``kernels.tabulated_average``, whose derivatives are exact.

If q(f) is narrow, with an sd of at most ``LIMIT`` widths, the error of 20 Gauss-Hermite nodes is
below 1e-9, and so it is if all features lie beyond ``FAR`` sd of the mean. Both rules agree to that
where one takes over from the other, datum by datum: a result does not depend on the rest of the
batch.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .. import kernels
from ..kernels.common.quadrature_rules import ENDS
from ..runtime.deferred_checks import on_device
from ..runtime.devices import constant_like

NODES = 20  # of the Gauss-Hermite rule where q(f) is narrow
LIMIT = 0.37
FAR = 6.5
STEP = 0.08
HALF_NODES = 256  # on either side of the centre


class Feature(NamedTuple):
    """Where log p(y | f) is not close to a polynomial; ``centre`` and ``half`` may be (C,).

    Parameters with a gradient must not move nodes: round them, as the derivative of the rule would
    have further terms.
    """

    centre: float
    width: float  # distance of the nearest singularity from the real line
    half: float = 0.0


ROOT_OF_NDTR = 1.92, 2.82  # Phi(f) = 0, and log Phi has branch points, at 1.92 +- 2.82 i
LINKS = {
    "log_ndtr": Feature(*ROOT_OF_NDTR),
    "log_sigmoid": Feature(0.0, float(np.pi)),
    "log1p_square": Feature(0.0, 1.0),
}


def none_wide(var, width):
    """Whether it is known that no variance is wide: on a device, that would wait for it."""
    return not on_device(var) and not _wide(var, width).any()


def _wide(var, width):
    return var > (LIMIT * width) ** 2


def expectation(link, mean, var, num_nodes, need=True):
    """Return ``kernels.expectation`` of a link, by its table where q(f) is wide.

    With a given number of nodes it is that Gauss-Hermite rule for all data.
    """
    if num_nodes is not None or none_wide(var, LINKS[link].width):
        return kernels.expectation(link, mean, var, num_nodes or NODES, need)
    table = _tables(LINKS[link], mean, var)
    nodes, weights, G = constant_like(mean, _tabulate, link)[:, None]
    found = kernels.tabulated_average(G[None], nodes, weights, table, mean, var, need)

    def narrow(mean, var):
        return kernels.expectation(link, mean, var, NODES, need)[: 3 if need else 1]

    new = [x[0].astype(mean.dtype, copy=False) for x in found if x is not None]
    return (*merge(table >= 0, new, narrow, mean, var), *([] if need else (None, None)))


def merge(wide, new, rule, *rows):
    """Return arrays that are ``new`` where q(f) is wide, and ``rule(*rows)`` elsewhere.

    The rule is evaluated only where it is used; on a device everywhere, to wait for nothing.
    """
    if on_device(wide):
        return [np.where(wide, *pair) for pair in zip(new, rule(*rows), strict=True)]
    if not wide.all():
        rest = ~wide
        for array, values in zip(new, rule(*(row[rest] for row in rows)), strict=True):
            array[rest] = values
    return new


@functools.lru_cache
def _tabulate(link):
    nodes, weights = _grid(LINKS[link])
    if link == "log1p_square":
        values = np.log1p(nodes * nodes)
    else:
        values = (scipy.special.log_ndtr if link == "log_ndtr" else scipy.special.log_expit)(nodes)
    return np.stack([nodes, weights, values])


def averages(functions, feature, f, which=0, need=True):
    """Average functions of f where q(f) is wide beside their features.

    ``functions(nodes)`` tabulates T functions (C, T, K) at nodes (C, K), and ``which`` is the table
    of each datum, -1 for none. Return where q(f) is wide, and values and derivatives in its moments
    (T, ..., N), 0 elsewhere.
    """
    mean, var = f.mean, f.var
    own = Feature(*(part[which] if np.ndim(part) else part for part in feature))
    table = _tables(own, mean, var, which)
    nodes, weights = (np.atleast_2d(part) for part in _grid(feature, mean))
    G = functions(nodes)
    return table >= 0, *kernels.tabulated_average(G, nodes, weights, table, mean, var, need)


def _tables(feature, mean, var, which=0):
    """Return the table of each datum, -1 where q(f) is narrow."""
    centre, width, half = feature
    sd = np.sqrt(var, dtype=np.float64)
    off = np.absolute(np.subtract(mean, centre, dtype=np.float64))
    scale, step = _scales(feature)
    end = 0.5 * scale * np.exp(HALF_NODES * step)
    wide = _wide(var, width) & (off - half <= FAR * sd) & (off + ENDS * sd <= end)
    return np.where(wide, which, -1)


def _scales(feature):
    """Return w and h of the text above."""
    least = 2**0.5 * feature.width
    scale = np.sqrt(least * least + feature.half * feature.half)
    return scale, STEP * least / scale


def _grid(feature, like=None):
    """Return nodes and weights, (K,) or (C, K) for features of C tables."""
    centre, scale, step = (
        part[:, None] if np.ndim(part) else part for part in (feature.centre, *_scales(feature))
    )
    half = 0.5 * np.exp(step * np.arange(-float(HALF_NODES), HALF_NODES + 1, like=like))
    return centre + scale * (half - 0.25 / half), half + 0.25 / half
