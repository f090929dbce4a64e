"""Pass of data through all layers of a deep GP at given draws, forward and backward.

For a hidden layer with eps (S, B, P), whose marginals at its inputs are N(mu, v), the inputs of the
next layer are its draws

    h = mu + sqrt(v) eps.

``ParallelLayers`` draw their latent functions g, and h = W g + mean(x): ``of_draws`` of their pass.

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

from ..records import Marginals, plus, replace
from .layer import naming_layer


class Hidden(NamedTuple):
    """Residuals of a chunk of rows at a hidden layer: those of its pass, and factors of v_bar."""

    rows: Any
    eps: Any  # (S, B, P)
    half: Any  # 1 / (2 sqrt(v)), (1 or S, B, P); 0 where v was raised to its floor
    mixed: Any  # the draws g and the inputs of a layer that maps its draws; else None


class Chain:
    """Pass through all layers.

    Parameters
    ----------
    model : DeepGP
        Checked, all in one dtype.
    jitter : float
    columns : int
        Number of rows that will be pulled back.
    samples : int
        Draws per row.
    need : tuple of str
        Dotted names of the model's fields to differentiate; "inputs" for the cotangents of X.
    top : tuple of str
        Further requests to the pass of the last layer.
    """

    def __init__(self, model, jitter, columns=0, samples=1, need=(), top=()):
        self.model = model
        own = [_own(need, number, layer) for number, layer in enumerate(model.layers)]
        own[-1] += top
        wanted = [0] if "inputs" in need else [number for number, names in enumerate(own) if names]
        self._lowest = wanted[0] if wanted else len(own)  # the lowest layer that is differentiated
        self.passes = []
        for number, layer in enumerate(model.layers):
            inputs = ("inputs",) if number > self._lowest or "inputs" in need else ()
            below = number < len(model.layers) - 1 and hasattr(layer, "draws_each")
            more = {"hidden": True} if below else {}
            rows = columns * (samples if number else 1)
            with naming_layer(number):
                self.passes.append(layer.start(jitter, rows, own[number] + inputs, **more))

    @property
    def clamped(self):
        return sum(work.clamped for work in self.passes)

    @property
    def sizes(self):
        """Rows and columns of Kuf per row of X, for each layer."""
        return [
            (work.num_inducing, layer.rows_each)
            for work, layer in zip(self.passes, self.model.layers, strict=True)
        ]

    def forward(self, X, draws):
        """Return the last layer's ``Marginals`` (..., S B) and the residuals.

        ``X`` (B, D) is a chunk of rows, ``draws`` hold (S, B, P) per hidden layer.
        """
        X, residuals = self._hidden(X, draws)
        f, rows = self.passes[-1].forward(X)
        return f, [*residuals, rows if self._lowest < len(self.passes) else None]

    def means(self, X, draws):
        """Return the means of ``forward`` alone, for ``top=(MEANS,)``."""
        return self.passes[-1].means(self._hidden(X, draws)[0])

    def _hidden(self, X, draws):
        """Return the inputs (S B, D) of the last layer, and the residuals of the others."""
        residuals = []
        for number, eps in enumerate(draws):
            work = self.passes[number]
            before = work.clamped
            f, rows = work.forward(X)
            mean, root = (
                moment.T.reshape(-1, *eps.shape[1:]) for moment in (f.mean, np.sqrt(f.var))
            )
            h = np.multiply(root, eps, out=np.empty(eps.shape, X.dtype, like=X))
            h += mean
            mixed = None
            if hasattr(work, "of_draws"):
                mixed, h = (h, X), work.of_draws(h, X)
            if number >= self._lowest:
                half = self._half(work, before, X, f.var, root)
                residuals.append(Hidden(rows, eps, half, mixed))
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
            bar = plus(work.pull(saved.rows, own), X_bar)
        return bar

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
