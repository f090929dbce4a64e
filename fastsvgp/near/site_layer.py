"""The layer of a ``VIF`` whose near rows have sites: for likelihoods other than Gaussian.

Each row has a site t_i(f) = N(y_i | f, d_i), y = lambda_1 / lambda_2, d = 1 / lambda_2, of f
without its mean function. With q the posterior of these Gaussian data, and q(f_i) its marginals,
given the nearest of all rows, the bound of t-VGP (``sites``) is

    sum_i [the term of ``layer`` at y_i with noise d_i] - KL
        + sum_i [E_q(f_i) log p(y_i | f_i) - E_q(f_i) log t_i(f_i)].

A row with lambda_2 <= 0 has no site and is no neighbour; only its expected log density counts. So
without sites the bound is that of the SVGP. Sites are held fixed in gradients. An E-step of size r
takes a, b, the derivatives of E log p in mean and variance, and mu, the mean without mean function:

    lambda_2 <- (1 - r) lambda_2 - 2 r b,    lambda_1 <- (1 - r) lambda_1 + r (a - 2 b mu).

It takes the derivatives of the second sum to zero, which makes q stationary; q(v) then takes a
natural step of the first.
"""

from typing import Any

import numpy as np

from ..bounds.protocol import ALL, LayerProtocol
from ..records import Marginals, leaf, plus, private_record, replace
from .layer import GivenNear, NearPass, in_double


@private_record
class SiteMarginals:
    """Marginals of rows given earlier rows and at all near rows, and their sites; or cotangents.

    mean, var, s: as in ``GivenNear``; at_mean, at_var: given the nearest of all; prior_mean: the
    mean function; y, d: the site, d = 0 for none
    """

    mean: Any = leaf()
    var: Any = leaf()
    s: Any = leaf()
    at_mean: Any = leaf()
    at_var: Any = leaf()
    prior_mean: Any = leaf()
    y: Any = leaf(default=None)
    d: Any = leaf(default=None)


class SitePass(LayerProtocol):
    """A forward and backward pass through rows with sites; arguments as of ``NearPass``."""

    def __init__(self, model, jitter, columns=0, need=(), rows=None):
        latent = replace(model, mean=None)
        of_latent = tuple(name for name in need if name.partition(".")[0] != "mean")
        self.given = NearPass(latent, jitter, columns, of_latent, rows)
        self.at = NearPass(latent, jitter, columns, of_latent, prior=self.given.prior)
        self.num_inducing, self.near, self._rows = self.given.num_inducing, model.near, rows
        self._mean = None if model.mean is None else in_double(model.mean)
        self._of_mean = ("mean",) if any(name.partition(".")[0] == "mean" for name in need) else ()
        self._mean_bar, self._natural = None, "natural_step" in need

    @property
    def clamped(self):
        return self.given.clamped + self.at.clamped

    @property
    def sizes(self):
        return self.given.sizes

    def forward(self, X, rows=ALL):
        f, given = self.given.forward(X, rows)
        at_f, at = self.at.forward(X, rows)
        own = self._rows[rows]
        prior_mean = np.zeros(len(X)) if self._mean is None else self._mean(X.astype(np.float64))
        marginals = SiteMarginals(
            f.mean, f.var, f.s, at_f.mean.astype(np.float64), at_f.var.astype(np.float64),
            prior_mean, *self.near.sites(own),
        )  # fmt: skip
        return marginals, (X, given, at)

    def data_term(self, likelihood, Y, f, rng=None, need=True, weights=None):
        g = f.at_mean
        expected, f_bar, likelihood_bar = likelihood.expected_log_prob(
            Y, Marginals(g + f.prior_mean, f.at_var), rng, need=need, weights=weights
        )
        there = f.d > 0
        d = np.where(there, f.d, 1.0)
        n, r, off = d + f.s, f.y - f.mean, f.y - g
        q, of_site = (r * r + f.var) / n, (off * off + f.at_var) / d
        logs = np.log(n) - np.log(d)
        ell = expected - 0.5 * float(np.sum(np.where(there, logs + q - of_site, 0.0)))
        if not need:
            return ell, None, None

        def sited(value):
            return np.where(there, value, 0.0)

        bars = SiteMarginals(
            sited(r / n), sited(-0.5 / n), sited(0.5 * (q - 1) / n),
            f_bar.mean - sited(off / d), f_bar.var + sited(0.5 / d), f_bar.mean,
        )  # fmt: skip
        return ell, bars, likelihood_bar

    def pull(self, residuals, f_bar):
        X, given, at = residuals
        self.given.pull(given, GivenNear(f_bar.mean, f_bar.var, f_bar.s))
        if not self._natural:
            self.at.pull(at, Marginals(f_bar.at_mean, f_bar.at_var))
        if self._of_mean:
            bar, _ = self._mean.vjp(f_bar.prior_mean, X.astype(np.float64), self._of_mean)
            self._mean_bar = plus(bar, self._mean_bar)

    def kl(self):
        return self.given.kl()

    def natural_sums(self):
        return self.given.natural_sums()

    def natural_step(self, step_size):
        return self.given.natural_step(step_size)

    def finish(self, kl_bar):
        first, second = self.given.finish(kl_bar), self.at.finish(0.0)
        parts = (plus(a, b) for a, b in zip(first[:3], second[:3], strict=True))
        return first._replace(
            **dict(zip(first._fields, parts, strict=False)),
            mean=self.given.in_dtype(self._mean_bar),
            noise=0.0,
        )


class SiteSteps(SitePass):
    """The pass of an E-step: ``natural_step`` returns the near rows with their new sites."""

    def __init__(self, model, jitter, columns=0, rows=None):
        super().__init__(model, jitter, columns, (), rows)
        self._at_row, self._sums = 0, np.zeros((3, len(model.near.X)))

    def data_term(self, likelihood, Y, f, rng=None, need=True, weights=None):
        ell, bars, likelihood_bar = super().data_term(likelihood, Y, f, rng, True, weights)
        a, b = bars.prior_mean, bars.at_var - np.where(f.d > 0, 0.5 / np.where(f.d > 0, f.d, 1), 0)
        rows = self._rows[self._at_row : self._at_row + len(a)]
        self._at_row += len(a)
        for total, value in zip(self._sums, (a - 2 * b * f.at_mean, -2 * b, 1.0), strict=True):
            np.add.at(total, rows, value)
        # only counted: slopes above 0 are sites of negative precision
        return ell, replace(bars, var=b), likelihood_bar

    def pull(self, residuals, f_bar):
        """Nothing is left to add: ``data_term`` has seen all."""

    def natural_sums(self):
        return list(self._sums)

    def natural_step(self, step_size):
        first, second, count = self._sums
        seen, near = count > 0, self.near

        def moved(old, new):
            each = new / np.where(seen, count, 1.0)
            return np.where(seen, (1 - step_size) * old + step_size * each, old)

        return replace(
            near, lambda1=moved(near.lambda1, first), lambda2=moved(near.lambda2, second)
        )


def start_sites(near):
    """Return near rows with sites: none yet, unless they have some."""
    if near.lambda2 is not None:
        return near
    return replace(near, lambda1=np.zeros(len(near.X)), lambda2=np.zeros(len(near.X)))
