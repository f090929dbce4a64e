"""Natural steps of a ``SiteSVGP``: the sites of some rows move, and q(u) with them."""

import numpy as np

from .. import check, models
from ..bounds.elbo import sweep
from ..bounds.site_svgp import SiteSVGP, checked, held_layer, site_pass
from ..bounds.sites import Sites
from ..errors import Diverged, InvalidSites
from ..kernels import verdicts
from ..records import replace
from .backing_off import MAX_HALVINGS, NaturalStepInfo, no_lower
from .row_numbers import row_numbers


@verdicts.retried
def natural_step(model, X, Y, *, rows=None, step_size=0.3, jitter=None, rng=None, monotone=False):
    """Of a ``SiteSVGP``: X and Y are all data, ``rows`` (B,) those whose sites move; all of them by default.

    ``monotone``: on all rows, halve the step until the bound does not fall. 4 M^2 N flops, 2 M^2 N more for each size tried.
    """
    asked, monotone = check.scalar("step_size", step_size), check.flag("monotone", monotone)
    if asked <= 0:
        raise ValueError(f"`step_size` must be positive, got {asked:g}")
    if monotone and rows is not None:
        raise ValueError("natural_step: `monotone` compares bounds on all data; leave `rows` out")
    model, X, Y, jitter = checked(model, X, Y, jitter)
    rows = slice(None) if rows is None else row_numbers("rows", rows, len(X))
    held = held_layer(model, X, jitter)
    layer = site_pass(held, jitter)
    X_rows, Y_rows = X[rows], np.ascontiguousarray(Y[..., rows], like=Y)
    parts = [(p.ell, p.f, p.f_bar) for p in sweep(model, layer, X_rows, Y_rows, None, rng)]
    value = check.result(len(X) / len(X_rows) * sum(ell for ell, _, _ in parts) - layer.kl(), model)
    if not np.isfinite(value):
        raise Diverged(f"natural_step: the bound is {value} at these sites; start closer to the prior")
    mean, a, b = (np.concatenate([getattr(p[i], name) for p in parts], -1) for i, name in ((1, "mean"), (2, "mean"), (2, "var")))
    latent = mean if model.mean is None else mean - model.mean(X_rows)
    targets, size = (a - 2 * b * latent, -2 * b), asked
    for halvings in range(MAX_HALVINGS + 1):
        pairs = zip((model.sites.lambda1, model.sites.lambda2), targets, strict=True)
        moved = replace(model, sites=Sites(*(_towards(old, new, rows, size) for old, new in pairs)))
        try:
            there = site_pass(held_layer(moved, X, jitter), jitter)
            if not monotone or halvings == MAX_HALVINGS:
                break
            data = sum(part.ell for part in sweep(moved, there, X, Y, None, rng, need=False))
            if no_lower(check.result(data - there.kl(), moved), value, X.dtype):
                break
        except InvalidSites as error:
            if halvings == MAX_HALVINGS:
                raise InvalidSites(
                    f"natural_step: no step from `step_size` {asked:g} down to {size:g} leaves valid sites; give a smaller one"
                ) from error
        size /= 2
    return moved, NaturalStepInfo(value, size, size < asked, int(np.count_nonzero(b > 0)))


def _towards(old, new, rows, size):
    moved = old.copy()
    moved[..., rows] = (1 - size) * old[..., rows] + size * new
    return moved


models.register(SiteSVGP, natural_step=natural_step)
