"""Natural steps of models with one site per datum: the sites of some rows move, and q with them."""

import numpy as np

from ... import check, models
from ...bounds.relay import Batch, sweep
from ...errors import InvalidSites
from ...sites.dual import Sites
from ...sites.models import SITES_OF
from ...sites.site_svgp import check_site_model
from .backtracking import (
    MAX_HALVINGS,
    NaturalStepInfo,
    backtrack,
    check_size,
    check_value,
    non_decreasing,
)


def natural_step(model, X, Y, *, rows=None, step_size=0.3, jitter=None, rng=None, monotone=False):
    """Take a step of a ``SiteSVGP`` or a ``VGP``: X and Y are all data.

    ``rows`` (B,) are the rows whose sites move; default all. ``monotone``: on all rows, halve the
    step until the bound does not fall. Flops: ``SiteSVGP`` 2 M^2 (N + 2 B), ``VGP`` 4/3 N^3; less
    for each further size tried.
    """
    requested, monotone = check_size(step_size), check.flag("monotone", monotone)
    kept = SiteSteps("natural_step", model, X, Y, jitter, rng)
    info = kept.step(rows, requested, monotone)
    return kept.model, info


class SiteSteps:
    """Successive steps that share everything the sites do not change."""

    def __init__(self, name, model, X, Y, jitter, rng):
        self.model, self._X, self._Y, jitter = check_site_model(model, X, Y, jitter)
        self._name = name
        self._rng = rng
        self._q = SITES_OF[type(model)](self.model, self._X, jitter)

    def step(self, rows, requested, monotone):
        """Move the sites of these rows, or of all rows for None; return a ``NaturalStepInfo``."""
        if monotone and rows is not None:
            raise ValueError(
                f"{self._name}: `monotone` compares bounds on all data; leave `rows` out"
            )
        N = len(self._X)
        rows = (
            slice(None)
            if rows is None
            else np.asarray(check.row_numbers("rows", rows, N), like=self._X)
        )
        X = self._X[rows]
        Y = np.ascontiguousarray(self._Y[..., rows], like=self._Y)
        layer = self._q.layer(rows)
        parts = [
            (p.ell, p.f, p.f_bar) for p in sweep(self.model, layer, Batch(X, Y, rng=self._rng))
        ]
        value = check.result(N / len(X) * sum(ell for ell, _, _ in parts) - layer.kl(), self.model)
        check_value(self._name, value, "at these sites")
        kinds = (1, "mean"), (2, "mean"), (2, "var")
        mean, a, b = (np.concatenate([getattr(p[i], name) for p in parts], -1) for i, name in kinds)
        latent = mean if self.model.mean is None else mean - self.model.mean(X)
        targets = a - 2 * b * latent, -2 * b

        def move(size):
            pairs = zip((self.model.sites.lambda1, self.model.sites.lambda2), targets, strict=True)
            q = self._q.update(rows, Sites(*(_towards(old, new, rows, size) for old, new in pairs)))
            return q, q.layer(slice(None) if monotone else rows)

        def rises(stepped):
            q, there = stepped
            batch = Batch(self._X, self._Y, rng=self._rng)
            data = sum(chunk.ell for chunk in sweep(q.model, there, batch, need=False))
            return non_decreasing(check.result(data - there.kl(), q.model), value, X.dtype)

        try:
            (self._q, _), size, negative = backtrack(
                move, requested, np.count_nonzero(b > 0), self.model, X,
                rises if monotone else None, InvalidSites,
            )  # fmt: skip
        except InvalidSites as error:
            raise InvalidSites(
                f"{self._name}: no step from `step_size` {requested:g} down to"
                f" {requested / 2**MAX_HALVINGS:g} leaves valid sites; give a smaller one"
            ) from error
        self.model = self._q.model
        return NaturalStepInfo(value, size, size < requested, negative)


def _towards(old, new, rows, size):
    moved = old.copy()
    moved[..., rows] = (1 - size) * old[..., rows] + size * new
    return moved


for kind in SITES_OF:
    models.register(kind, natural_step=natural_step)
