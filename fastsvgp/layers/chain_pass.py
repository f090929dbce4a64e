"""Pass of data through all layers of a deep GP at given draws, forward and backward.

For a hidden layer with eps (S, B, P), whose marginals at its inputs are N(mu, v), the inputs of the
next layer are its draws

    h = mu + sqrt(v) eps.

``ParallelLayers`` draw their latent functions g; h = W g + mean(x) is ``mix_draws`` of their pass.

The rows of a batch draw independently of each other, so marginals suffice: the bound has no
covariance between rows. The first layer sees B rows and has one mu and v for all S draws; the
layers above see S B rows. Backward, with h_bar from the pass above,

    mu_bar = h_bar,    v_bar = h_bar eps / (2 sqrt(v)),

in the first layer summed over the draws. A variance that was raised to its floor, eps kff, counts
as constant: its cotangent is 0. Chunks of rows pass one by one, as in a ``LayerPass``.

Source: Salimbeni and Deisenroth 2017, eq. (14) to (18), who leave the gradient to a library.
"""

from typing import Any, NamedTuple

import numpy as np

from ..bounds.layer_pass import KL, MEANS
from ..bounds.protocol import ALL, LayerProtocol
from ..records import Marginals, plus, replace
from .draws import num_draws
from .layer import naming_layer


class Hidden(NamedTuple):
    """Residuals of a chunk of rows at a hidden layer: those of its pass, and factors of v_bar."""

    residuals: Any
    eps: Any  # (S, B, P)
    half: Any  # 1 / (2 sqrt(v)), (1 or S, B, P); 0 where v was raised to its floor
    mixed: Any  # the draws g and the inputs of a layer that maps its draws; else None


class Chain(LayerProtocol):
    """Pass through all layers.

    Parameters
    ----------
    model : DeepGP
        Checked, all in one dtype.
    jitter : float
    columns : int
        Number of rows that will be pulled back.
    need : tuple of str
        Dotted names of the model's fields to differentiate; "inputs" for the cotangents of X;
        "natural_step" and ``MEANS``, of the last layer; ``KL``, of all.
    draws : tuple of arrays
        (S, B, P) for each hidden layer, for the B rows of the call.
    """

    def __init__(self, model, jitter, columns=0, need=(), draws=()):
        self.model, self._draws, self.samples = model, draws, num_draws(draws)
        own = [_own(need, number, layer) for number, layer in enumerate(model.layers)]
        own[-1] += tuple(name for name in need if name in ("natural_step", MEANS))
        wanted = [0] if "inputs" in need else [number for number, names in enumerate(own) if names]
        self._lowest = wanted[0] if wanted else len(own)  # the lowest layer that is differentiated
        self.passes = []
        for number, layer in enumerate(model.layers):
            more_need = ("inputs",) if number > self._lowest or "inputs" in need else ()
            more_need += (KL,) if KL in need else ()
            below = number < len(model.layers) - 1 and hasattr(layer, "draws_each")
            more = {"hidden": True} if below else {}
            rows = columns * (self.samples if number else 1)
            with naming_layer(number):
                self.passes.append(layer.start(jitter, rows, own[number] + more_need, **more))

    @property
    def clamped(self):
        return sum(work.clamped for work in self.passes)

    @property
    def sizes(self):
        return [size for work in self.passes for size in work.sizes]

    def forward(self, X, rows=ALL):
        """Return the last layer's ``Marginals`` (..., S N) at some rows, and the residuals."""
        X, residuals = self._hidden(X, rows)
        f, last = self.passes[-1].forward(X)
        return f, [*residuals, last if self._lowest < len(self.passes) else None]

    def means(self, X, rows=ALL):
        """Return the means of ``forward`` alone: hidden layers need variances for their draws."""
        return self.passes[-1].means(self._hidden(X, rows)[0])

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Draw whole functions, layer by layer: outputs at all X jointly, given those below."""
        with naming_layer(0):
            samples = self.passes[0].sample(X, num_samples, jitter, rng, name)
        for number, work in enumerate(self.passes[1:], start=1):
            with naming_layer(number):
                each = [work.sample(one, 1, jitter, rng) for one in samples]
            samples = np.concatenate(each)
        return samples

    def _hidden(self, X, rows):
        """Return the inputs (S N, D) of the last layer, and the residuals of the others."""
        residuals = []
        for number, draws in enumerate(self._draws):
            work, eps = self.passes[number], draws[:, rows]
            before = work.clamped
            f, saved = work.forward(X)
            mean, root = (
                moment.T.reshape(-1, *eps.shape[1:]) for moment in (f.mean, np.sqrt(f.var))
            )
            h = np.multiply(root, eps, out=np.empty(eps.shape, X.dtype, like=X))
            h += mean
            mixed = None
            if hasattr(work, "mix_draws"):
                mixed, h = (h, X), work.mix_draws(h, X)
            if number >= self._lowest:
                half = self._half(work, before, X, f.var, root)
                residuals.append(Hidden(saved, eps, half, mixed))
            else:
                residuals.append(None)
            X = h.reshape(-1, h.shape[-1])
        return X, residuals

    @staticmethod
    def _half(work, before, X, var, root):
        """Return 1 / (2 sqrt(v)), and 0 for a v that was raised to its floor.

        ``before``: how many variances the pass ``work`` had raised before this chunk.
        """
        count = work.clamped
        if type(count) is int and count == before and root.all():
            return 0.5 / root
        raised = (var <= work.floor(X)).T.reshape(root.shape)
        return np.where(raised, 0, 0.5 / np.where(raised, 1, root)).astype(root.dtype, copy=False)

    def pull(self, residuals, f_bar):
        """Accumulate the cotangents of these marginals; return those of X (B, D) if "inputs" are
        needed.

        Consumes ``residuals``.
        """
        bar, lowest = None, self._lowest
        for number in reversed(range(lowest, len(self.passes))):
            work, saved = self.passes[number], residuals.pop()
            if bar is None:
                bar = work.pull(saved, f_bar)
                continue
            X_bar = None
            if saved.mixed is not None:
                bar, X_bar = work.draws_vjp(bar.reshape(*saved.eps.shape[:2], -1), *saved.mixed)
            bar = bar.reshape(saved.eps.shape)
            root_bar = bar * saved.eps
            if len(saved.half) < len(bar):
                bar, root_bar = bar.sum(axis=0, keepdims=True), root_bar.sum(axis=0, keepdims=True)
            root_bar *= saved.half
            own = Marginals(_outputs_first(bar), _outputs_first(root_bar))
            bar = plus(work.pull(saved.residuals, own), X_bar)
        return bar

    def natural_sums(self):
        """Return the natural sums of the last layer."""
        return self.passes[-1].natural_sums()

    def natural_step(self, step_size):
        """Return the posterior of the last layer after a natural step."""
        return self.passes[-1].natural_step(step_size)

    def kl(self):
        """Return the sum of the layers' KL[q(u) || p(u)]."""
        return sum(work.kl() for work in self.passes)

    def finish(self, kl_bar):
        """Return the gradients of the layers: of all rows, and of the KL terms with cotangent
        ``kl_bar``.

        Ends the pass.
        """
        found = []
        for number, (layer, work) in enumerate(zip(self.model.layers, self.passes, strict=True)):
            if number >= self._lowest:
                bars = work.finish(kl_bar)._asdict()
            else:
                bars = dict.fromkeys(_fields(layer))
            found.append(replace(layer, **bars))
        return tuple(found)


def _own(need, number, layer):
    """Select the fields of one layer from dotted names of the model's fields."""
    root = f"layers.{number}"
    if "layers" in need or root in need:
        return _fields(layer)
    return tuple(name.removeprefix(root + ".") for name in need if name.startswith(root + "."))


def _fields(layer):
    return tuple(name for name, kind in layer._record_fields if kind != "static")


def _outputs_first(bar):
    """Transpose (S, B, P) to (P, S B)."""
    return np.ascontiguousarray(bar.reshape(-1, bar.shape[-1]).T, like=bar)
