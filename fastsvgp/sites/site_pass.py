"""q(u) of a ``SiteSVGP`` from its sites, and the backward pass: A and t, in chunks of rows.

Formulas and names as in ``site_svgp``.
"""

import copy

import numpy as np

from .. import check, kernels
from ..bounds.layer_pass import LayerParts, LayerPass
from ..bounds.shared_pass import FixedPriorPass
from ..errors import InvalidSites
from ..likelihoods.base import total
from ..posteriors.base import PriorFactor, covariance_factor
from ..posteriors.dual_sites import WhitenedState
from ..records import leaves, plus, replace
from ..records.inducing_sets import naming_repeated
from ..runtime import tuning
from .dual import Sites

INVALID = (
    "`sites.lambda2` holds no valid sites: with them q has no covariance. Zeros are the prior, and"
    " natural_step keeps valid sites valid; after a change of the covariance function, take smaller"
    " steps"
)


def layer_of_sites(model, X, jitter):
    """Compute the layer with the q(u) of the sites of a checked model: A and t, in whitened form.

    Rows are processed in chunks.
    """
    L, batch = factor(model, jitter), model.sites.lambda1.shape[:-1]
    first, second = (a.reshape(-1, len(X)) for a in (model.sites.lambda1, model.sites.lambda2))
    A, t = kernels.empty((len(first), *L.shape), L), np.zeros((len(first), len(L)), L.dtype, like=L)
    for i, at in enumerate(_runs(len(X), len(L))):
        Lam = kernels.solve_triangular(L, model.covariance.Kuf(model.inducing, X[at]))
        _add_sites(A, t, Lam, first[:, at], second[:, at], add=i > 0)
    state = WhitenedState(
        t.reshape(*batch, len(L)), kernels.symmetrise(A).reshape(*batch, *L.shape)
    )
    return LayerParts(model.covariance, state, model.inducing, model.mean)


def site_pass(layer, jitter, columns=0, need=()):
    """Create the ``LayerPass``; invalid sites raise an error with the field names of this model."""
    try:
        return LayerPass(layer, jitter, columns, need)
    except InvalidSites as error:
        raise InvalidSites(INVALID) from error


def _add_sites(A, t, Lam, first, second, add):
    """Add sites (P, B) with projections Lam to t and to the lower triangle of A.

    Without ``add`` A is overwritten.
    """
    t += kernels.matmul(first, Lam, transpose_b=True)
    for p, weights in enumerate(second):
        kernels.weighted_gram(Lam, np.ascontiguousarray(weights, like=Lam), out=A[p], add=add)


def factor(model, jitter):
    with naming_repeated(model.inducing):
        return covariance_factor(model.covariance.Kuu(model.inducing), jitter)


def _runs(N, M):
    size = max(1, tuning.current.site_run_numbers // M)
    return [slice(start, min(start + size, N)) for start in range(0, N, size)] or [slice(0, 0)]


def sites_vjp(model, X, jitter, bars, wrt, need):
    """Compute the cotangents of covariance, inducing inputs and sites, through A and t.

    bars : LayerBars with the cotangents through the marginals, which are added
    """
    roots = {name.partition(".")[0] for name in wrt}
    of_Kuf = tuple(name for name in need if name.startswith("covariance")) + (
        ("inducing",) if "inducing" in roots else ()
    )
    covariance_bar, inducing_bar, first_bar, second_bar = bars.covariance, bars.inducing, [], []
    if not of_Kuf and "sites" not in roots:
        return covariance_bar, inducing_bar, None
    L, sites = factor(model, jitter), model.sites
    first, second = (a.reshape(-1, len(X)) for a in (sites.lambda1, sites.lambda2))
    g, A_bar = (
        bars.posterior.lambda1.reshape(-1, len(L)),
        bars.posterior.lambda2.reshape(-1, *L.shape),
    )
    F, alpha = (
        2 * kernels.solve_triangular(L, A_bar, transpose=True),
        kernels.solve_triangular(L, g[..., None], transpose=True),
    )
    for at in _runs(len(X), len(L)):
        Kuf = model.covariance.Kuf(model.inducing, X[at])
        Lam = kernels.solve_triangular(L, Kuf)
        first_bar.append(kernels.matmul(g, Lam))
        second_bar.append(
            np.stack([np.sum(Lam * kernels.matmul(one, Lam), axis=0) for one in A_bar])
        )
        if of_Kuf:
            Kuf_bar = np.zeros_like(Lam)
            for p in range(len(g)):
                T = kernels.matmul(F[p], Lam)
                weights, targets = (np.ascontiguousarray(a[p, at], like=L) for a in (second, first))
                Kuf_bar += kernels.add_outer(T, alpha[p, :, 0], targets, weights)
            of_covariance, of_inducing, _ = model.covariance.Kuf_vjp(
                Kuf_bar, Kuf, model.inducing, X[at], of_Kuf
            )
            covariance_bar, inducing_bar = (
                plus(of_covariance, covariance_bar),
                plus(of_inducing, inducing_bar),
            )
    sites_bar = Sites(
        *(
            np.concatenate(parts, -1).reshape(sites.lambda1.shape)
            for parts in (first_bar, second_bar)
        )
    )
    return covariance_bar, inducing_bar, sites_bar


class InducingSites:
    """q(u) of a checked ``SiteSVGP`` under updates of its sites.

    L is fixed; A and t change by the rows whose sites change.
    """

    def __init__(self, model, X, jitter):
        self.model, self.X, self._prior = (
            model,
            X,
            PriorFactor(model.covariance.Kuu(model.inducing), jitter),
        )
        self._state, self._of_all = layer_of_sites(model, X, jitter).posterior, []
        self._of_rows, self._num_updates = [], 0

    def layer(self, rows):
        """Return a pass for ``sweep`` at some rows or ``slice(None)``."""
        whole = isinstance(rows, slice)
        numbers = self.X.shape[0] * len(self._prior.Kuu)
        if whole and numbers > tuning.current.cached_projection_numbers:
            self._of_rows = None
        else:
            self._of_rows = self._of_all if whole else []
        try:
            return FixedPriorPass(self.model, self._prior, self._state, self._of_rows)
        except InvalidSites as error:
            raise InvalidSites(INVALID) from error

    def update(self, rows, sites):
        """Return a copy with new sites at the ``rows`` of the last ``layer``. 2 M^2 B flops."""
        changed, model = copy.copy(self), replace(self.model, sites=sites)
        changed.model, jitter, N = model, self._prior.jitter, len(self.X)
        whole, old, state, start = isinstance(rows, slice), self.model.sites, self._state, 0
        changed._num_updates = 0 if whole else self._num_updates + len(rows)
        # differences accumulate rounding errors, so A and t are recomputed once per epoch
        if self._of_rows is None or changed._num_updates > N:
            changed._state, changed._num_updates = (
                layer_of_sites(model, self.X, jitter).posterior,
                0,
            )
            return changed
        M = len(self._prior.L)
        A, t = state.lambda2.reshape(-1, M, M), state.lambda1.reshape(-1, M)
        if whole:  # from the beginning
            A, t, old = kernels.empty(A.shape, A), np.zeros_like(t), Sites(0, 0)
        else:
            A, t = A.copy(), t.copy()
        first, second = (
            (new - before).reshape(-1, N)[:, rows]
            for new, before in ((sites.lambda1, old.lambda1), (sites.lambda2, old.lambda2))
        )
        for cached in self._of_rows:
            at = slice(start, start + cached.Lam.shape[1])
            _add_sites(A, t, cached.Lam, first[:, at], second[:, at], add=not whole or start > 0)
            start = at.stop
        changed._state = WhitenedState(
            t.reshape(state.lambda1.shape), kernels.symmetrise(A).reshape(state.lambda2.shape)
        )
        return changed


def finite_sums(posterior):
    """Reject a posterior that is not finite; on a device this reads the deferred checks."""
    first = next(value for _, _, value in leaves(posterior))
    check.result(total(first), posterior)
