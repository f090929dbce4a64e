"""The layer of a ``BasisSVGP``: marginals and their cotangents through sums of rows.

With scales d_j = S(omega_j)^(1/2) and q(v) = N(m, S), the marginals of f = Phi d v are

    mean = Phi (d m),    var = phi' (d S d) phi,

a series of sines and one of cosines. Cotangents a of the means and b of the variances give

    g = d Phi' a,    G = 2 d (Phi' diag(b) Phi) d,

the sums of a natural step and of the gradient in q(v) in the form of the whitened pass, whose Lam
is d Phi'. In the logarithm of S(omega_j), at q(v) fixed, d_j = exp(log S_j / 2), so

    log_bar_j = (d_j / 2) (m_j (Phi' a)_j + 2 (Phi' diag(b) Phi d S)_jj) = (g_j m_j + (G S)_jj) / 2.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..bounds.layer_pass import MEANS, joint_samples
from ..bounds.protocol import ALL, LayerProtocol
from ..posteriors.base import Joint, PriorFactor, cached_attribute, raise_to_floor
from ..posteriors.whitening import GramWhitenedPass
from ..records import Marginals, plus, tree_map


class BasisBars(NamedTuple):
    """Cotangents of the fields of a ``BasisSVGP``."""

    covariance: Any
    posterior: Any
    mean: Any


class BasisPass(LayerProtocol):
    """A forward and backward pass, in float64.

    Parameters
    ----------
    model : BasisSVGP
        Checked.
    need : tuple of str
        As in ``LayerPass``.
    """

    def __init__(self, model, need=()):
        if "inputs" in need:
            raise TypeError("`inputs`: a BasisSVGP has no gradient in X; use an SVGP")
        self._dtype = model.posterior.mean.dtype
        self.layer = model = tree_map(lambda v: np.asarray(v, np.float64)[()], model)
        self.clamped, self.need, basis = 0, need, model.basis
        self.num_inducing = basis.size
        of_q = [name for name in need if name.partition(".")[0] in ("posterior", "natural_step")]
        self._of_covariance = tuple(n for n in need if n.partition(".")[0] == "covariance")
        self._of_mean = ("mean",) if model.mean is not None and "mean" in need else ()
        sums = of_q or (["posterior"] if self._of_covariance else [])
        prior = PriorFactor(np.eye(basis.size), 0.0)
        self.work = GramWhitenedPass(model.posterior, prior, 0, tuple(sums))
        self._axes, self._means = model.posterior.mean.shape[:-1], self.work.means
        log_density = model.covariance.log_spectral_density(basis.squared_frequencies())
        self._scales = np.exp(log_density / 2)
        # above the prior variance of the basis at any row; k(0) can be far above both
        self._floor = float((np.square(self._scales) * basis.largest_squares()).sum())
        self._sums, self._mean_bar = None, None

    @property
    def sizes(self):
        basis = self.layer.basis
        return [(1 if len(basis.groups) == 1 else basis.size, 1)]

    @cached_attribute
    def _rows(self):
        """The function of angles that has means and variances."""
        covariances = () if MEANS in self.need else self.work._covariances()
        scaled = [S * self._scales * self._scales[:, None] for S in covariances]
        none = np.empty((0, self.num_inducing, self.num_inducing))
        stacked = np.stack(scaled) if scaled else none
        return self.layer.basis.rows(self._means * self._scales, stacked)

    def _angles(self, X):
        return self.layer.basis.angles(X)

    def _shaped(self, values, X):
        return values.reshape(*self._axes, len(X)).astype(self._dtype, copy=False)

    def forward(self, X, rows=ALL):
        angles = self._angles(X)
        mean, var = self._rows(angles)
        self.clamped += int(raise_to_floor(var, np.full(len(X), self._floor)))
        mean = self._shaped(self._with_mean(mean, X), X)
        return Marginals(mean, self._shaped(var, X)), (X, angles)

    def _with_mean(self, mean, X):
        m = self.layer.mean
        return mean if m is None else mean + m(np.asarray(X, np.float64))

    def means(self, X, rows=ALL):
        return self._shaped(self._with_mean(self._rows(self._angles(X))[0], X), X)

    def pull(self, residuals, f_bar):
        X, angles = residuals
        P, n = len(self._means), len(X)
        if self._of_mean:
            bar, _ = self.layer.mean.vjp(f_bar.mean, np.asarray(X, np.float64), self._of_mean)
            self._mean_bar = plus(bar, self._mean_bar)
        if not (self._of_covariance or self.work.sum_trils or self.work.need):
            return
        a, b = (np.asarray(bar, np.float64).reshape(P, n) for bar in (f_bar.mean, f_bar.var))
        if self._sums is None:
            self._sums = self.layer.basis.sums(P, P)
        self._sums.add(angles, b, a)

    def _gather(self):
        """Give the sums of all pulled rows to the pass of q(v)."""
        d, work, basis = self._scales, self.work, self.layer.basis
        if self._sums is None:
            self._sums = basis.sums(len(self._means), len(self._means))
        work.Lam_a = self._sums.crossed() * d
        products = self._sums.products()
        work.G = np.stack([2 * basis.gram(one) * d * d[:, None] for one in products])
        self._sums = None

    def natural_sums(self):
        self._gather()
        return self.work.Lam_a, self.work.G

    def natural_step(self, step_size):
        if self.work.G is None:
            self._gather()
        return tree_map(
            lambda v: v.astype(self._dtype, copy=False), self.work.natural_step(step_size)
        )

    def kl(self):
        return self.work.kl()

    def finish(self, kl_bar):
        covariance_bar = posterior_bar = None
        if self.work.need:
            self._gather()
            if self._of_covariance:
                covariance_bar = self._covariance_bar()
            if "posterior" in {name.partition(".")[0] for name in self.need}:
                posterior_bar = self.work.finish(kl_bar).posterior
        bars = covariance_bar, posterior_bar, self._mean_bar
        return BasisBars(*(bar if bar is None else self._cast(bar) for bar in bars))

    def _cast(self, tree):
        return tree_map(lambda v: None if v is None else v.astype(self._dtype), tree)

    def _covariance_bar(self):
        log_bar = np.zeros(self.num_inducing)
        for m, S, g, G in zip(
            self._means, self.work._covariances(), self.work.Lam_a, self.work.G, strict=True
        ):
            log_bar += 0.5 * (g * m + (G * S).sum(axis=1))
        frequencies = self.layer.basis.squared_frequencies()
        return self.layer.covariance.log_spectral_density_vjp(
            log_bar, frequencies, self._of_covariance
        )

    def joint(self, X):
        """Return the ``Joint`` moments at all X: m n flops and memory."""
        Lam = self._scales[:, None] * self.layer.basis.features(self._angles(X))
        cov = np.stack(
            [
                kernels.matmul(Lam, kernels.matmul(S, Lam), transpose_a=True)
                for S in self.work._covariances()
            ]
        )
        mean = self._with_mean(kernels.matmul(self._means, Lam).reshape(*self._axes, len(X)), X)
        cov = cov.reshape(*self._axes, len(X), len(X))
        return Joint(*(one.astype(self._dtype, copy=False) for one in (mean, cov)))

    def sample(self, X, num_samples, jitter, rng, name=None):
        return joint_samples(*self.joint(X), jitter, num_samples, rng)
