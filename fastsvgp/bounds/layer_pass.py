"""One pass of data through a layer: covariance, posterior and mean function, forward and backward.

The forward pass computes covariance blocks and marginals; cotangents return in reverse order. Every
M x M quantity is a sum over chunks of rows, so any chunk size gives the same result. Layers chain:
the cotangents that ``pull`` returns for the inputs of a layer are those of the outputs of the layer
below.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..posteriors.base import (
    SUMS,
    Posterior,
    PriorFactor,
    cached_attribute,
    covariance_factor,
    sum_over_outputs,
)
from ..records import Marginals, is_record, leaves, plus
from ..records.inducing_sets import naming_repeated
from .gradient_sums import add_gradients
from .protocol import ALL, LayerProtocol

# inducing variables; for more, recomputing Kuu in its reverse rule costs 1 % of the time and saves
# an (M, M) array
KEEP_KUU_UP_TO = 256
# names in ``need``: only ``means``, or only ``kl`` and its gradient, of the pass will be called
MEANS, KL = "means", "kl"


class LayerParts(NamedTuple):
    """The fields of a layer that a ``LayerPass`` reads, if no record holds them."""

    covariance: Any
    posterior: Any
    inducing: Any = None
    mean: Any = None


class LayerResiduals(NamedTuple):
    """Residuals of a chunk of rows for the backward pass."""

    X: Any
    inner: Any
    Kuf: Any
    residuals: Any


class LayerBars(NamedTuple):
    """Cotangents of a layer's fields; None for fields that are not needed."""

    covariance: Any
    inducing: Any
    posterior: Any
    mean: Any


class LayerPass(LayerProtocol):
    """A forward and backward pass through a layer.

    A layer is any record with a covariance, inducing inputs, a posterior, and a mean or None.

    Parameters
    ----------
    layer : record
        Checked, all in one dtype.
    jitter : float
    columns : int
        Number of inputs that will be pulled: columns of Kuf.
    need : tuple of str
        Dotted names of the layer's fields to differentiate; "inputs" for the cotangents of X;
        "natural_step"; ``MEANS``; ``KL``.
    prior : PriorFactor, optional
        Prior of another pass with the same covariance, inducing inputs and jitter.
    **more
        Random quantities, or a direction, for ``start_from`` of the posterior.

    Attributes
    ----------
    work : Pass
        The pass of the posterior.
    num_inducing : int
        Rows of Kuu.
    clamped : int
        As of ``work``.

    Examples
    --------
    >>> layer = LayerPass(model, jitter=1e-6, columns=len(X), need=("posterior",))
    >>> f, rows = layer.forward(X)
    >>> ell, f_bar, _ = gaussian.expected_log_prob(Y, f)
    >>> _ = layer.pull(rows, f_bar)
    >>> grad = layer.finish(-1.0).posterior
    >>> np.allclose(grad.mean, fs.elbo_and_grad(model, X, Y)[1].posterior.mean)
    True
    """

    def __init__(self, layer, jitter, columns=0, need=(), prior=None, **more):
        self.layer = layer
        if KL in need and not getattr(layer.posterior, "kl_depends_on_Kuu", True):
            need = [
                name for name in need if name.partition(".")[0] not in ("covariance", "inducing")
            ]
        self._of_Kuu, self._of_Kuf, self._of_kff, self._of_mean, of_posterior = _needs(
            tuple(need), layer.mean is not None
        )
        self._inner_Kuf = layer.covariance.inner_need(self._of_Kuf)
        self._inner_kff = layer.covariance.inner_need(self._of_kff)
        prior = (
            PriorFactor(layer.covariance.Kuu(layer.inducing), jitter) if prior is None else prior
        )
        Kuu = prior.Kuu
        with naming_repeated(layer.inducing):
            self.work = layer.posterior.start_from(prior, columns, of_posterior, **more)
        self.num_inducing = len(Kuu)
        self._prior = prior if MEANS in need else None
        self._Kuu = Kuu if len(Kuu) <= KEEP_KUU_UP_TO else None
        self._dtype, self._pulled, self._mean_bar = Kuu.dtype, False, None
        self._covariance_bars, self._inducing_bars, self._below_bars = [], [], []

    @property
    def clamped(self):
        return self.work.clamped

    def omitted_variances(self):
        return self.work.omitted_variances() if self.work.omits else 0.0

    def forward(self, X, rows=ALL):
        """Return ``(Marginals, LayerResiduals)`` at a chunk of rows X (N, D)."""
        covariance, inner_rows, _ = inner = self.layer.covariance.inner(X)
        Kuf = covariance.Kuf(self.layer.inducing, inner_rows)
        return self._complete(X, inner, Kuf, *self.work.project(Kuf, covariance.kff(inner_rows)))

    def _complete(self, X, inner, Kuf, f, residuals):
        """Complete ``forward`` from the marginals and residuals of the posterior's pass."""
        mean = self.layer.mean
        f = f if mean is None else Marginals(f.mean + mean(X), f.var)
        return f, LayerResiduals(X, inner, Kuf, residuals)

    def means(self, X, rows=ALL):
        """Return the means (..., N) of ``forward``, k(X, Z) v and the mean function, alone."""
        v = self._mean_weights
        if v is None:
            return self.forward(X)[0].mean
        covariance, inner_rows, _ = self.layer.covariance.inner(X)
        products = kernels.matmul(
            v.reshape(-1, v.shape[-1]), covariance.Kuf(self.layer.inducing, inner_rows)
        )
        f = products.reshape(*v.shape[:-1], len(X))
        return f if self.layer.mean is None else f + self.layer.mean(X)

    @cached_attribute
    def _mean_weights(self):
        """v (..., M), or None if the posterior has no rule of its own for weights of paths.

        These are Gaussian, so affine in u0 and in the normal numbers: at zeros they are E v.
        """
        q, M = self.layer.posterior, len(self._prior.Kuu)
        if getattr(type(q), "path_weights", None) is Posterior.path_weights:
            return None
        axes = q.check_size(*q.set_sizes(M))

        def zeros(*shape):
            return np.zeros(shape, self._dtype, like=self._prior.Kuu)

        with naming_repeated(self.layer.inducing):
            v = q.path_weights(self._prior, zeros(*(axes or (1,)), M, 1), zeros)
        return v.reshape(*axes, M)

    def floor(self, X):
        """Return the lower bounds (N,) to which variances at X are clipped."""
        kff = self.layer.covariance.kff(X)
        return np.finfo(kff.dtype).eps * kff

    def joint(self, X):
        """Return the ``Joint`` moments of the latent function at X."""
        covariance, rows, _ = self.layer.covariance.inner(X)
        f = self.work.joint(covariance.Kuf(self.layer.inducing, rows), covariance.Kff(rows))
        return f if self.layer.mean is None else f._replace(mean=f.mean + self.layer.mean(X))

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Draw functions (num_samples, N) or (num_samples, N, P); errors say ``name`` for X."""
        mean, cov = self.joint(X)
        with naming_repeated(X if name else None, name):
            return joint_samples(mean, cov, jitter, num_samples, rng)

    def pull(self, rows, f_bar):
        """Pull back the cotangents of the marginals at these rows. Consumes ``rows``.

        Returns the cotangents of X (N, D) if "inputs" are needed, else None.
        """
        X, (covariance, inner_rows, below), Kuf, residuals = rows
        self._pulled, self._inner = True, covariance
        Kuf_bar, X_bar = self.work.pull(residuals, f_bar), None
        if self._of_mean:
            mean_bar, X_bar = self.layer.mean.vjp(f_bar.mean, X, self._of_mean)
            self._mean_bar = plus(mean_bar, self._mean_bar)
        if self._of_Kuf:
            if Kuf_bar is None:
                raise TypeError(
                    f"{type(self.work).__name__}.pull returned None, but its `need` named"
                    ' "blocks" or "blocks.Kuf": then it returns the cotangent of Kuf, (M, N)'
                )
            covariance_bar, inducing_bar, of_Kuf = covariance.Kuf_vjp(
                Kuf_bar, Kuf, self.layer.inducing, inner_rows, self._inner_Kuf
            )
            of_kff = (
                covariance.kff_vjp(sum_over_outputs(f_bar.var), inner_rows, self._inner_kff)
                if self._inner_kff
                else (None, None)
            )
            self._covariance_bars += covariance_bar, of_kff[0]
            self._inducing_bars.append(inducing_bar)
            below_bar, of_X = self.layer.covariance.inner_vjp(
                plus(of_kff[1], of_Kuf), below, self._of_Kuf
            )
            self._below_bars.append(below_bar)
            X_bar = plus(of_X, X_bar)
        return X_bar

    def kl(self):
        """Return KL[q(u) || p(u)]."""
        return self.work.kl()

    def natural_sums(self):
        """Return the natural sums, as ``Pass`` does."""
        return self.work.natural_sums()

    def natural_step(self, step_size):
        """Return the posterior after a natural step, as ``Pass`` does."""
        return self.work.natural_step(step_size)

    def finish(self, kl_bar):
        """Return the ``LayerBars`` of all pulled rows and of the KL term with cotangent ``kl_bar``.

        Ends the pass and frees its memory.
        """
        if not self._pulled:
            self._pull_nothing()
        posterior_bar, Kuu_bar = self._finish_posterior(kl_bar)
        del self.work
        need = tuple(name for name in self._inner_Kuf if name != "X")
        if need:
            covariance_bar, inducing_bar, _ = self._inner.Kuu_vjp(
                Kuu_bar, self._Kuu, self.layer.inducing, None, need
            )
            self._covariance_bars.append(covariance_bar)
            self._inducing_bars.append(inducing_bar)
        covariance_bar, inducing_bar, below_bar = add_gradients(
            self._covariance_bars, self._inducing_bars, self._below_bars
        )
        covariance_bar = self.layer.covariance.outer_bar(
            covariance_bar, below_bar, self._of_Kuu, Kuu_bar
        )
        return LayerBars(covariance_bar, inducing_bar, posterior_bar, self._mean_bar)

    def _pull_nothing(self):
        """Pull no rows: of a pass without any, ``finish`` has the KL term alone."""
        f, rows = self.forward(self._no_inputs())
        self.pull(rows, f)  # no rows, so the empty marginals serve as cotangents

    def _finish_posterior(self, kl_bar):
        """Return the cotangents of the posterior and of Kuu, as ``Pass.finish`` does."""
        return self.work.finish(kl_bar)

    def _no_inputs(self):
        """Return X without rows, of which only the KL term remains."""
        inducing = self.layer.inducing
        device_like = (
            next(value for _, _, value in leaves(inducing)) if is_record(inducing) else inducing
        )
        return np.empty(
            (0, self.layer.covariance.num_columns(inducing)), self._dtype, like=device_like
        )


def joint_samples(mean, cov, jitter, num_samples, rng):
    """Draw samples (num_samples, N) or (num_samples, N, P) of Gaussians.

    mean (..., N); cov (..., N, N)
    """
    factor = covariance_factor(cov, jitter)
    noise = np.asarray(
        rng.standard_normal((*mean.shape, num_samples)).astype(mean.dtype), like=mean
    )
    samples = mean[..., None] + kernels.multiply_triangular(factor, noise)  # (..., N, S)
    samples = np.moveaxis(samples, -1, 0).swapaxes(1, -1) if mean.ndim == 2 else samples.T
    return np.ascontiguousarray(samples, like=mean)


@cache
def _needs(need, has_mean):
    """Return the names needed from Kuu, Kuf, kff, the mean function, and the posterior's pass."""
    below = {
        root: tuple(name for name in need if name.partition(".")[0] == root)
        for root in ("covariance", "inducing", "mean")
    }
    inputs, fields = (("X",) if "inputs" in need else ()), below["covariance"]
    of_Kuu = fields + (("inducing",) if below["inducing"] else ())
    of_mean = (("mean",) if below["mean"] else ()) + inputs if has_mean else ()
    of_posterior = tuple(
        name for name in need if name.partition(".")[0] in ("posterior", "natural_step", SUMS)
    )
    blocks = ("blocks",) if of_Kuu else ("blocks.Kuf",) if inputs else ()
    return of_Kuu, of_Kuu + inputs, fields + inputs, of_mean, of_posterior + blocks
