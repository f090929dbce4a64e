"""The layer of a ``VIF``: an SVGP's layer on what near rows leave of each row.

With a_i, phi_i, s_i of ``conditionals`` and q(v) = N(m, S), a row's function given its near rows is

    f_i ~ N(phi_i' m + mean(x_i) + a_i' e_N, phi_i' S phi_i + s_i),   e = y - mean(x).

The posterior's pass gets Kuf* = L phi_i and kff* = |phi_i|^2, the covariances with u and the prior
variance of phi_i' v, so its variance is phi_i' S phi_i, for every posterior. In a bound with
Gaussian noise d_i the s_i count as noise, because f_i is integrated out (Gyger, Furrer and Sigrist
2025, arXiv 2507.05064, with q(v) free):

    log p(y) >= sum_i [log N(y_i | mean_i, s_i + d_i) - phi_i' S phi_i / (2 (s_i + d_i))] - KL,

which is exact in q, and there is no trace term. Cotangents: those of the posterior's pass are
Kuf*_bar and kff*_bar, so

    phi_bar = Kuf*_bar' L + 2 kff*_bar phi,   L_bar = tril(Kuf*_bar phi),
    a_bar = e_N' mean_bar,   and a_i mean_bar, negative, for the mean function at the near rows.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..bounds.layer_pass import LayerPass
from ..bounds.protocol import ALL
from ..likelihoods.gaussian import LOG_2PI, Gaussian
from ..posteriors.base import SUMS, Joint, PriorFactor, sum_over_outputs
from ..records import Marginals, is_record, leaf, leaves, plus, private_record, tree_map
from .conditionals import SHARE, conditionals, conditionals_vjp


class NearResiduals(NamedTuple):
    """Residuals of a chunk: inputs, ``Conditionals``, e_N (..., n, k), those of q's pass."""

    X: Any
    found: Any
    e: Any
    residuals: Any


@private_record
class GivenNear:
    """Marginals of phi' v + a' e_N, and s, the variance that is left: (..., n) and (n,)."""

    mean: Any = leaf()
    var: Any = leaf()
    s: Any = leaf()


class NearBars(NamedTuple):
    """Cotangents of the fields of a ``VIF``, and of the noise of near rows."""

    covariance: Any
    inducing: Any
    posterior: Any
    mean: Any
    noise: Any


class NearPass(LayerPass):
    """A forward and backward pass through the layer of a ``VIF``, in float64.

    Parameters
    ----------
    model : VIF
        Checked, with near rows.
    jitter, columns, need
        As in ``LayerPass``.
    rows : (B,) integers
        The rows of the call among those of the data. None: predictions, given the nearest of all.
    after : NearPass
        A pass with the same parameters but q(u), whose conditionals this one takes.
    prior : PriorFactor, optional
        As in ``LayerPass``.
    """

    shares_rows = True

    def __init__(self, model, jitter, columns=0, need=(), rows=None, after=None, prior=None):
        layer, roots = in_double(model), {name.partition(".")[0] for name in need}
        # each row has noise of its own, so sums of variances do not suffice
        need = tuple(name for name in need if name != SUMS)
        if "likelihood" in roots and roots.isdisjoint(("covariance", "inducing")):
            need = (*need, "inputs")  # through the noise of near rows
        prior = after.prior if after else prior
        if prior is None:
            prior = PriorFactor(layer.covariance.Kuu(layer.inducing), jitter)
        super().__init__(layer, jitter, columns, need, prior)
        self.prior, self.near = prior, model.near
        self._rows, self._jitter = rows, jitter
        self._dtype_out = next(leaves(model.posterior))[2].dtype
        self._earlier, self.kept = list(after.kept) if after else [], []
        self._L_bar, self._noise_bar = None, 0.0

    @property
    def sizes(self):
        return [(self.num_inducing, 1 + self.near.earlier.shape[1])]

    def means(self, X, rows=ALL):
        return self.forward(X, rows)[0].mean

    def forward(self, X, rows=ALL):
        """Return the marginals and residuals: ``GivenNear`` of rows of the data."""
        X = X.astype(np.float64, copy=False)
        found, e = self._earlier.pop(0) if self._earlier else self._conditionals(X, rows)
        Kuf = kernels.multiply_triangular(self.prior.L, np.ascontiguousarray(found.phi.T))
        f, residuals = self.work.project(Kuf, np.square(found.phi).sum(axis=1))
        mean = f.mean + (found.a * e).sum(axis=-1)
        mean = mean if self.layer.mean is None else mean + self.layer.mean(X)
        residuals = NearResiduals(X, found, e, residuals)
        if self._rows is None:
            f = Marginals(mean, f.var + found.s)
            return tree_map(lambda value: value.astype(self._dtype_out, copy=False), f), residuals
        self.kept.append((found, e))
        return GivenNear(mean, f.var, found.s), residuals

    def _conditionals(self, X, rows):
        """Return the ``Conditionals`` of some rows, and e (..., n, k) of their near rows."""
        near = self.near
        if self._rows is None:
            own = None
            lists = near.nearest(self.layer.covariance, X)
        else:
            own = self._rows[rows]
            lists = near.earlier[own]
        y, noise = self._of_near(np.maximum(lists, 0))
        lists = np.where(noise > 0, lists, -1)
        found = conditionals(self.layer, self.prior.L, X, near, lists, noise, own, self._jitter)
        return found, np.where(lists < 0, 0.0, y)

    def _of_near(self, rows):
        """Return e (..., n, k) of near rows (n, k), and their noise."""
        if self.near.lambda2 is not None:
            return self.near.sites(rows)
        y = self.near.targets(rows)
        y = y if self.layer.mean is None else y - self._mean_at(rows)
        return y, np.full(rows.shape, float(self.layer.likelihood.variance))

    def _mean_at(self, rows):
        """Return the mean function (..., n, k) at rows (n, k) of the data."""
        values = self.layer.mean(self.near.inputs(rows.ravel()))
        return values.reshape(*values.shape[:-1], *rows.shape)

    def data_term(self, likelihood, Y, f, rng=None, need=True, weights=None):
        """Return the term of rows with Gaussian noise, whose variance is d + s."""
        if self._rows is None:
            return super().data_term(likelihood, Y, f, rng, need, weights=weights)
        if np.ndim(weights) > 1 and (weights != weights[0]).any():
            raise ValueError(
                "`weights` of a VIF must be (N,), one for each row: near rows have all targets"
            )
        n, r = float(likelihood.variance) + f.s, Y - f.mean
        q = (r * r + f.var) / n
        w = 1.0 if weights is None else weights
        ell = -0.5 * float(np.sum(w * (LOG_2PI + np.log(n) + q)))
        if not need:
            return ell, None, None
        n_bar = sum_over_outputs(0.5 * w * (q - 1) / n)
        noise_bar = self._dtype_out.type(n_bar.sum())
        return ell, GivenNear(w * r / n, -0.5 * w / n + 0 * q, n_bar), Gaussian(noise_bar)

    def pull(self, residuals, f_bar):
        X, found, e, inner = residuals
        self._inner, rows, below = found.inner
        self._pulled = True
        mean_bar, var_bar = f_bar.mean.astype(np.float64), f_bar.var.astype(np.float64)
        Kuf_bar, X_bar = self.work.pull(inner, Marginals(mean_bar, var_bar)), None
        if self._of_mean:
            X_bar = self._pull_mean(X, found, mean_bar)
        if not self._of_Kuf:
            return X_bar
        L, layer, kff_bar = self.prior.L, self.layer, sum_over_outputs(var_bar)
        phi_bar = kernels.multiply_triangular(L, Kuf_bar, transpose=True).T
        phi_bar = np.ascontiguousarray(phi_bar + 2 * kff_bar[:, None] * found.phi)
        L_bar = kernels.matmul(Kuf_bar, found.phi)
        a_bar = mean_bar[..., None] * e
        a_bar = a_bar if a_bar.ndim == 2 else a_bar.sum(0)
        s_bar = kff_bar if self._rows is None else f_bar.s
        Lam_bar, noise_bar, covariance_bar, points_bar = conditionals_vjp(
            found, a_bar, s_bar, phi_bar, self._inner_Kuf
        )
        self._noise_bar += float(noise_bar.sum())
        Kuf_bar = kernels.solve_triangular(L, np.ascontiguousarray(Lam_bar.T), transpose=True)
        L_bar -= kernels.matmul(Kuf_bar, found.Lam)
        self._L_bar = plus(L_bar, self._L_bar)
        of_Kuf = self._inner.Kuf_vjp(Kuf_bar, found.Kuf, layer.inducing, rows, self._inner_Kuf)
        self._covariance_bars += covariance_bar, of_Kuf[0]
        self._inducing_bars.append(of_Kuf[1])
        below_bar, of_X = layer.covariance.inner_vjp(
            plus(points_bar, of_Kuf[2]), below, self._of_Kuf
        )
        self._below_bars.append(below_bar)
        return X_bar if of_X is None else plus(of_X[: len(X)], X_bar).astype(self._dtype_out)

    def _pull_mean(self, X, found, mean_bar):
        """Add the cotangents of the mean function, and return those of X through it."""
        bar, X_bar = self.layer.mean.vjp(mean_bar, X, self._of_mean)
        self._mean_bar = plus(bar, self._mean_bar)
        of_near = self.near.lambda2 is None  # sites are of f without its mean function
        if of_near and found.a.size and "mean" in self._of_mean:
            there = found.lists >= 0
            at = -(mean_bar[..., None] * found.a)[..., there]
            rows = self.near.inputs(found.lists[there])
            bar, _ = self.layer.mean.vjp(at, rows, ("mean",))
            self._mean_bar = plus(bar, self._mean_bar)
        return X_bar

    def natural_step(self, step_size):
        return self.in_dtype(self.work.natural_step(step_size))

    def in_dtype(self, tree):
        def cast(value):
            return value.astype(self._dtype_out, copy=False)

        if tree is None:
            return None
        return tree_map(cast, tree) if is_record(tree) else cast(tree)

    def finish(self, kl_bar):
        return NearBars(*map(self.in_dtype, super().finish(kl_bar)), self._noise_bar)

    def _pull_nothing(self):
        self._inner = self.layer.covariance.inner(self._no_inputs())[0]
        f, residuals = self.work.project(np.empty((self.num_inducing, 0)), np.empty(0))
        self.work.pull(residuals, f)

    def _finish_posterior(self, kl_bar):
        posterior_bar, Kuu_bar = self.work.finish(kl_bar)
        if self._L_bar is not None:
            Kuu_bar = plus(kernels.cholesky_vjp(self._L_bar, self.prior.L), Kuu_bar)
        return posterior_bar, Kuu_bar

    def joint(self, X):
        """Return the ``Joint`` moments at all X, given the near rows of any of them."""
        X = X.astype(np.float64, copy=False)
        near = self.near
        rows = np.unique(near.nearest(self.layer.covariance, X))
        rows = rows[rows >= 0]
        rows = rows if near.lambda2 is None else rows[near.lambda2[rows] > 0]
        N = len(X)
        points = np.concatenate([X, near.inputs(rows)])
        covariance, inner, _ = self.layer.covariance.inner(points)
        Kuf = covariance.Kuf(self.layer.inducing, inner)
        Lam = kernels.solve_triangular(self.prior.L, Kuf)
        R = covariance.Kff(inner) - kernels.matmul(Lam, Lam, transpose_a=True)
        y, noise = self._of_near(rows)
        root = kernels.cholesky(np.ascontiguousarray(R[N:, N:]), SHARE * self._jitter, noise=noise)
        half = kernels.solve_triangular(root, np.ascontiguousarray(R[N:, :N]))
        a = kernels.solve_triangular(root, half, transpose=True)
        phi = Lam[:, :N] - kernels.matmul(Lam[:, N:], a)
        f = self.work.joint(
            kernels.multiply_triangular(self.prior.L, phi),
            kernels.matmul(phi, phi, transpose_a=True),
        )
        mean = f.mean + kernels.matmul(np.atleast_2d(y), a).reshape(f.mean.shape)
        mean = mean if self.layer.mean is None else mean + self.layer.mean(X)
        rest = R[:N, :N] - kernels.matmul(half, half, transpose_a=True)
        return Joint(mean.astype(self._dtype_out), (f.cov + rest).astype(self._dtype_out))

    def follow(self, model, jitter, columns, need, **quantities):
        return NearPass(model, jitter, columns, need, after=self, **quantities)


def in_double(model):
    """Return a model in float64."""
    return tree_map(lambda value: np.asarray(value).astype(np.float64, copy=False)[()], model)
