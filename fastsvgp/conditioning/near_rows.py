"""New rows of a ``VIF``: they come last in the order, and q(u) takes what they add to its bound.

A row given its near rows, all earlier ones, has the density N(y_i - a_i'e_N - mean(x_i) | phi_i'v,
s_i + d_i) (``near.layer``). The bound sums these, so with old rows as they were, the new ones are
Gaussian sites of phi_i'v with precision 1 / (s_i + d_i): ``new_rows`` with phi in the place of Lam.
The result is that of all rows at once in this order.
"""

import numpy as np

from .. import check, models
from ..bounds.relay import Batch, sweep
from ..likelihoods import Gaussian
from ..near.layer import NearPass
from ..near.model import VIF
from ..near.record import add_rows
from ..records import replace
from ..runtime.devices import copy_to
from .new_rows import Entering, read_arguments, refuse_posterior


class EnteringNear(Entering):
    """``Entering`` of rows given their near rows: phi' (M, N) is their Lam."""

    def __init__(self, layer, prior, Lam):
        self._begin(layer.posterior, prior, Lam)


def condition_near(model, X, Y, *, weights=None, jitter=None):
    """Condition a ``VIF`` with Gaussian noise on new rows, which become near rows."""
    check.parts(model)
    if not isinstance(model.likelihood, Gaussian):
        raise TypeError(
            f"condition: rows of a VIF with a {type(model.likelihood).__name__} likelihood have"
            " sites, which depend on each other; fs.fit trains it on old and new rows together"
        )
    refuse_posterior("condition", model.posterior)
    if model.near is None:
        raise ValueError("condition: the VIF has no near rows: train it by fs.fit first")
    model, batch, jitter = read_arguments(model, X, Y, weights, jitter)
    batch = _that_count(batch)
    N, n = len(model.near.X), len(batch.X)
    model = replace(model, near=add_rows(model.near, model.covariance, batch.X, batch.Y.T))
    layer = NearPass(model, jitter, rows=np.arange(N, N + n))
    value, found = 0.0, []
    for chunk in sweep(model, layer, batch):
        value = value + chunk.ell
        found.append((chunk.residuals.found.phi.T, chunk.f_bar.mean, -2 * chunk.f_bar.var))
    check.result(value, model)
    Lam, r, lambda2 = (np.concatenate(parts, -1) for parts in zip(*found, strict=True))
    entering = EnteringNear(layer.layer, layer.prior, np.ascontiguousarray(Lam, like=Lam))
    sites = [np.atleast_2d(part) for part in (r, lambda2)]
    entering.give_sites(*sites)
    return replace(model, posterior=layer.in_dtype(entering.posterior(*sites)))


def _that_count(batch):
    """Return the rows of a ``Batch`` with a positive weight."""
    if batch.weights is None:
        return batch
    counts = check.on_host(batch.weights.reshape(-1, len(batch.X)) > 0).any(axis=0)
    rows = copy_to(np.flatnonzero(counts), batch.X)
    return Batch(batch.X[rows], batch.Y[..., rows], rng=batch.rng, weights=batch.weights[..., rows])


models.register(VIF, condition=condition_near)
