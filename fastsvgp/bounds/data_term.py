"""The data term of a bound, part by part: the batch through a layer and the likelihood.

A batch that is long against M goes through in parts that stay in cache.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..check import weights as weighing
from ..distributed.data_scale import ALL_ROWS
from .gradient_sums import scaled
from .posterior_passes import layer_pass

PART_NUMBERS = 2**19  # of one (M, part) array: three of them stay in a 16 MiB cache
PART_COLUMNS = 1024  # below, products lose speed
DEVICE_PART_NUMBERS = 2**28  # on a device, where long products are the fast ones: 2 GiB in float64


def bound_of(model, X, Y, scale, *, weights, jitter, rng, **random):
    """``elbo`` with a ``DataScale``."""
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights)
    layer = layer_pass(
        model, check.jitter_amount(jitter, dtype), **check.drawn(random, model, dtype, rng)
    )
    parts = sweep(model, layer, X, Y, scale, rng, need=False, weights=weights)
    data = sum(part.ell for part in parts)
    return scale.all_reduce(check.result(less_kl(data, layer, scale), model))[0]


def less_kl(data, layer, scale=ALL_ROWS):
    """A data term without the KL term; of several ranks each takes its part."""
    return data - (layer.kl() if scale.kl == 1.0 else scale.kl * layer.kl())


class Part(NamedTuple):
    """One part of a batch on its way, its marginals ``f``; ``ell`` and the cotangents carry the factor num_data / batch."""

    f: Any
    rows: Any
    ell: float
    f_bar: Any
    likelihood_bar: Any


def sweep(model, layer, X, Y, scale, rng, need=True, weights=None):
    """Take a batch through a layer and the likelihood, part by part; without ``need`` there are no cotangents."""
    factor = scale.factor(len(X))
    numbers = PART_NUMBERS if type(X) is np.ndarray else DEVICE_PART_NUMBERS
    count = max(1, round(len(X) / max(PART_COLUMNS, numbers // layer.num_inducing)))
    size = -(-len(X) // count)  # all but the last of one size: they hand on their memory
    for start in range(0, len(X), size):
        f, rows = layer.forward(X[start : start + size])
        y = np.ascontiguousarray(Y[..., start : start + size], like=Y)
        w = (
            {}
            if weights is None
            else {"weights": np.ascontiguousarray(weights[..., start : start + size], like=Y)}
        )
        terms = scaled(factor, *model.likelihood.expected_log_prob(y, f, rng, need=need, **w))
        yield Part(f, rows, *terms)
        del f, rows, terms
    check.report_clamped(layer.clamped)
