"""Pass of data through several layers side by side, and their mixing: forward and backward.

A ``LayerPass`` per layer computes the marginals of its outputs; stacked they are those of g, which
``mixing`` maps to f. Backward, the cotangents of f go through the mixing, and each layer pulls the
rows of its own outputs. The KL terms add, because the latent functions are independent under q and
under the prior. With ``hidden`` the pass ends at g: a deep GP draws g, and ``mix_draws`` maps the
draws to the inputs of the layer above. Marginals of f would not do there, because mixed functions
depend on each other.
"""

from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..bounds.layer_pass import KL, MEANS, LayerBars, joint_samples
from ..bounds.posterior_passes import layer_pass
from ..bounds.protocol import ALL, LayerProtocol
from ..errors import NotPositiveDefinite
from ..posteriors.base import Joint
from ..records import Marginals, plus, replace, tree_map
from ..records.inducing_sets import naming_repeated
from .mixing import Mixing, no_gradient
from .model import axes_of, layers_of, naming_latent, number_of, sharing

FIELDS = "covariance", "inducing", "posterior", "mean"
NOTHING = LayerBars(None, None, None, None)


class LatentResiduals(NamedTuple):
    """Residuals of a chunk of rows: X, the marginals of g, and those of each layer's pass.

    The last are None for a layer that needs no cotangents.
    """

    X: Any
    g: Any
    layers: list


class LatentBars(NamedTuple):
    """Cotangents of the fields of a ``MultiGP`` besides the likelihood; None if not needed."""

    latents: Any
    mixing: Any
    mean: Any
    inducing: Any


class LatentPass(LayerProtocol):
    """A forward and backward pass with the methods of a ``LayerPass``.

    Parameters
    ----------
    model : MultiGP or ParallelLayers
        Checked, all in one dtype.
    jitter : float
    columns : int
        Number of inputs that will be pulled.
    need : tuple of str
        Dotted names of the model's fields to differentiate; "inputs"; "natural_step",
        ``MEANS`` and ``KL``, for all layers.
    hidden : bool
        End at g: the marginals are those of g, and ``pull`` takes their cotangents.
    each : sequence of dict, optional
        Further arguments for the pass of each layer, such as random quantities or ``prior``.

    Attributes
    ----------
    passes : list
        The pass of each layer.
    num_inducing : int
        Largest number of rows of a Kuu.
    clamped : int
        As of a ``LayerPass``, of all layers.
    """

    def __init__(self, model, jitter, columns=0, need=(), hidden=False, each=None):
        self.model, self.mixing, self.hidden = model, Mixing(model.mixing), hidden
        self._sharing, self.passes, sizes = sharing(model), [], []
        layers, self._pulled = layers_of(model), []
        for number, layer in enumerate(layers):
            own = _own(need, number, number in self._sharing)
            self._pulled.append(bool(own))
            more = {} if each is None else each[number]
            with naming_latent(number):
                self.passes.append(layer_pass(layer, jitter, columns, own, **more))
                sizes.append(layer.check_shapes()[1])
        self.num_inducing = max(work.num_inducing for work in self.passes)
        self.axes = sizes  # leading axes of each layer's outputs
        ends = np.cumsum([0, *map(number_of, sizes)]).tolist()
        self.spans = [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]
        self._needs_X = "inputs" in need
        self._needs_mixing = model.mixing is not None and _asks(need, "mixing")
        self._of_mean = ()
        if model.mean is not None:
            self._of_mean = (("mean",) if _asks(need, "mean") else ()) + ("X",) * self._needs_X
        self._mixing_bar = self._mean_bar = None

    @property
    def clamped(self):
        return sum(work.clamped for work in self.passes)

    def forward(self, X, rows=ALL):
        """Return f (J, N), (N,) if J is 1, and ``LatentResiduals`` at a chunk of rows X (N, D)."""
        g, parts = self.latents(X, rows)
        return self.mix(g, X), LatentResiduals(X, g, parts)

    def latents(self, X, rows=ALL):
        """Return the marginals of g (L, N), and the residuals of each layer."""
        mean, var, parts = [], [], []
        for work, pulled in zip(self.passes, self._pulled, strict=True):
            one, residuals = work.forward(X)
            mean.append(one.mean.reshape(-1, len(X)))
            var.append(one.var.reshape(-1, len(X)))
            parts.append(residuals if pulled else None)
            del residuals  # the next layer can reuse its memory
        return Marginals(_concatenate(mean), _concatenate(var)), parts

    def mix(self, g, X):
        """Return the marginals that the likelihood reads, from those of g."""
        if self.hidden:
            return g
        f, mean = self.mixing.forward(g), self.model.mean
        if mean is not None:
            f = Marginals(f.mean + mean(X), f.var)
        shape = *axes_of(self.model, len(f.mean)), len(X)
        return Marginals(f.mean.reshape(shape), f.var.reshape(shape))

    def means(self, X, rows=ALL):
        """Return the means of ``forward`` alone."""
        g = _concatenate([work.means(X).reshape(-1, len(X)) for work in self.passes])
        if self.hidden:
            return g
        f = self.mix_values(g, X)
        return f.reshape(*axes_of(self.model, len(f)), len(X))

    def floor(self, X):
        """Return the lower bounds (L, N) to which variances of g at X are clipped."""
        floors = [
            np.broadcast_to(work.floor(X), (span.stop - span.start, len(X)))
            for work, span in zip(self.passes, self.spans, strict=True)
        ]
        return np.concatenate(floors)

    def joint_latents(self, X):
        """Return the ``Joint`` moments of g at X: (L, N) and (L, N, N)."""
        N, found = len(X), [work.joint(X) for work in self.passes]
        return Joint(
            _concatenate([one.mean.reshape(-1, N) for one in found]),
            _concatenate([one.cov.reshape(-1, N, N) for one in found]),
        )

    @contextmanager
    def naming_function(self):
        """Put the number of the layer in front of the error of one of the matrices (L, N, N)."""
        try:
            yield
        except NotPositiveDefinite as error:
            at = error.batch[0] if error.batch else 0
            number = next(n for n, span in enumerate(self.spans) if at < span.stop)
            with naming_latent(number):
                raise

    def joint(self, X):
        """Return the ``Joint`` moments of each function at X; of g if ``hidden``."""
        g = self.joint_latents(X)
        if self.hidden:
            return g
        mean, cov = self.mix_values(g.mean, X), self.mixing.mix_covariances(g.cov)
        axes = axes_of(self.model, len(mean))
        return Joint(mean.reshape(*axes, len(X)), cov.reshape(*axes, len(X), len(X)))

    def joint_outputs(self, X):
        """Return W diag(var g) W' at each row: the latent functions are independent under q."""
        g, _ = self.latents(X)
        return self.mix(g, X).mean, self.mixing.covariances_of_rows(g.var)

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Draw the latent functions and mix them, so that they depend on each other as under q."""
        mean, cov = self.joint_latents(X)
        with naming_repeated(X if name else None, name), self.naming_function():
            draws = joint_samples(mean, cov, jitter, num_samples, rng)  # (S, N, L)
        samples = self.mix_draws(draws, X)
        return samples if axes_of(self.model, samples.shape[-1]) else samples[..., 0]

    def mix_values(self, g, X):
        """Return mixing g + mean(X), for values g (L, N)."""
        values, mean = self.mixing.mix_values(g), self.model.mean
        return values if mean is None else values + mean(X)

    def mix_draws(self, draws, X):
        """Return mixing g + mean(X) (S, B, J), for draws g (S, B, L) at X, of B or S B rows."""
        S, B, L = draws.shape
        h = self.mixing.mix_values(np.ascontiguousarray(draws.reshape(-1, L).T, like=draws))
        h = np.ascontiguousarray(h.T, like=h).reshape(S, B, -1)
        if self.model.mean is not None:
            mean = self.model.mean(X).reshape(-1, len(X)).T  # (N, J), or (N, 1) for all functions
            h += mean.reshape(-1, B, mean.shape[-1])
        return h

    def draws_vjp(self, h_bar, draws, X):
        """Return ``(g_bar, X_bar)`` of ``mix_draws``, for h_bar (S, B, J); X_bar can be None."""
        (S, B, L), J = draws.shape, h_bar.shape[-1]
        X_bar = None
        if self._of_mean:
            of_rows = h_bar.sum(axis=0) if len(X) == B else h_bar.reshape(-1, J)
            X_bar = self._pull_mean(np.ascontiguousarray(of_rows.T, like=h_bar), X)
        flat, g = (
            np.ascontiguousarray(values.reshape(S * B, -1).T, like=values)
            for values in (h_bar, draws)
        )
        mixing_bar, g_bar = self.mixing.values_vjp(flat, g, self._needs_mixing)
        self._mixing_bar = plus(mixing_bar, self._mixing_bar)
        return np.ascontiguousarray(g_bar.T, like=g_bar).reshape(S, B, L), X_bar

    def _pull_mean(self, mean_bar, X):
        """Sum the cotangent of the mean's parameters; return that of X or None."""
        bar, X_bar = self.model.mean.vjp(
            mean_bar.reshape(*axes_of(self.model, len(mean_bar)), len(X)), X, self._of_mean
        )
        self._mean_bar = plus(bar, self._mean_bar)
        return X_bar

    def pull(self, rows, f_bar):
        """Pull back the cotangents of the marginals at these rows. Consumes ``rows``.

        Returns the cotangents of X (N, D) if "inputs" are needed, else None.
        """
        X, N = rows.X, len(rows.X)
        bar, X_bar = Marginals(f_bar.mean.reshape(-1, N), f_bar.var.reshape(-1, N)), None
        if not self.hidden:
            if self._of_mean:
                X_bar = self._pull_mean(bar.mean, X)
            mixing_bar, bar = self.mixing.vjp(bar, rows.g, self._needs_mixing)
            self._mixing_bar = plus(mixing_bar, self._mixing_bar)
        for number, (work, span, axes) in enumerate(
            zip(self.passes, self.spans, self.axes, strict=True)
        ):
            if not self._pulled[number]:
                continue
            own = Marginals(*(part[span].reshape(*axes, N) for part in (bar.mean, bar.var)))
            X_bar = plus(work.pull(rows.layers[number], own), X_bar)
            rows.layers[number] = None
        return X_bar

    def kl(self):
        """Return the sum of the layers' KL[q(u) || p(u)]."""
        return sum(work.kl() for work in self.passes)

    def finish(self, kl_bar):
        """Return the ``LatentBars`` of all pulled rows and of the KL with cotangent ``kl_bar``.

        Ends the pass.
        """
        latents, shared = [], None
        for number, (layer, work) in enumerate(zip(self.model.latents, self.passes, strict=True)):
            bars = work.finish(kl_bar) if self._pulled[number] else NOTHING
            if number in self._sharing:
                shared = plus(bars.inducing, shared)
                bars = bars._replace(inducing=None)
            latents.append(replace(layer, **bars._asdict()))
        mixing, mean = self._mixing_bar, self._mean_bar
        if mixing is None and self._needs_mixing:  # no rows were pulled
            mixing = no_gradient(self.model.mixing)
        if mean is None and "mean" in self._of_mean:
            mean = tree_map(_zero, self.model.mean)
        return LatentBars(tuple(latents), mixing, mean, shared)


def _own(need, number, shares):
    """Return the fields of one layer to differentiate, from dotted names of the model's fields."""
    root = f"latents.{number}"
    if "latents" in need or root in need:
        own = FIELDS[:1] + FIELDS[2:] if shares else FIELDS
    else:
        own = tuple(name.removeprefix(root + ".") for name in need if name.startswith(root + "."))
    if shares:
        own += tuple(name for name in need if name.partition(".")[0] == "inducing")
    return own + tuple(name for name in need if name in ("inputs", "natural_step", MEANS, KL))


def _asks(need, field):
    return any(name.partition(".")[0] == field for name in need)


def _concatenate(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _zero(value):
    return np.zeros_like(value)[()]
