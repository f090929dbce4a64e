"""One pass of data through all layers of a deep GP, at given draws, forward and back.

With eps (S, B, P) for a hidden layer, whose marginals at its inputs are N(mu, v), the inputs of the
next are its draws

    h = mu + sqrt(v) eps.

The rows of one batch draw independently of each other, so marginals suffice: no covariance between
rows exists. The first layer sees B rows and has one mu and v for all S draws; those above see S B.
Reverse: with h_bar from the pass above,

    mu_bar = h_bar,    v_bar = h_bar eps / (2 sqrt(v)),

in the first layer summed over the draws. A variance that was raised to its floor, eps kff, is no
function of the parameters that one would follow: its cotangent is 0. Runs of rows go through one by
one, as in a ``LayerPass``.

Source: Salimbeni and Deisenroth 2017, eq. (14) to (18), with the gradient that they leave to a
library.
"""

from typing import Any, NamedTuple

import numpy as np

from ..bounds.layer_pass import LayerBars
from ..records import Marginals, replace
from .layer import naming_layer

FIELDS = "covariance", "inducing", "posterior", "mean"


class Hidden(NamedTuple):
    """What a run of rows leaves for the way back at a hidden layer: that of its pass, and the factors of v_bar beside h_bar."""

    rows: Any
    eps: Any  # (S, B, P)
    half: Any  # 1 / (2 sqrt(v)), (1 or S, B, P); 0 where v was raised to its floor


class Chain:
    """One way through all layers.

    Parameters
    ----------
    model : DeepGP
        Checked, all in one dtype.
    jitter : float
    columns : int
        How many rows will be pulled.
    samples : int
        Draws of each.
    need : tuple of str
        Dotted names of the model's fields to differentiate; "inputs" for the cotangents of X.
    top : tuple of str
        What the last layer's pass is asked for beside.
    """

    def __init__(self, model, jitter, columns=0, samples=1, need=(), top=()):
        self.model, own = model, [_own(need, number) for number in range(len(model.layers))]
        own[-1] += top
        wanted = [0] if "inputs" in need else [number for number, names in enumerate(own) if names]
        self._lowest = wanted[0] if wanted else len(own)  # the lowest layer that is pulled
        self.passes = []
        for number, layer in enumerate(model.layers):
            inputs = ("inputs",) if number > self._lowest or "inputs" in need else ()
            with naming_layer(number):
                self.passes.append(
                    layer.start(jitter, columns * (samples if number else 1), own[number] + inputs)
                )

    @property
    def clamped(self):
        return sum(work.clamped for work in self.passes)

    @property
    def sizes(self):
        """Rows and columns of Kuf for one row of X, of each layer."""
        return [
            (work.num_inducing, layer.rows_each)
            for work, layer in zip(self.passes, self.model.layers, strict=True)
        ]

    def forward(self, X, draws):
        """``(Marginals, way)`` of the last layer's function at a run of rows X (B, D), at their draws (S, B, P): (..., S B)."""
        way = []
        for number, eps in enumerate(draws):
            work = self.passes[number]
            before = work.clamped
            f, rows = work.forward(X)
            mean, root = (
                moment.T.reshape(-1, *eps.shape[1:]) for moment in (f.mean, np.sqrt(f.var))
            )
            h = np.multiply(root, eps, out=np.empty(eps.shape, X.dtype, like=X))
            h += mean
            pulled = number >= self._lowest
            way.append(
                Hidden(rows, eps, self._half(work, before, X, f.var, root)) if pulled else None
            )
            X = h.reshape(-1, h.shape[-1])
        f, rows = self.passes[-1].forward(X)
        return f, [*way, rows if self._lowest < len(self.passes) else None]

    @staticmethod
    def _half(work, before, X, var, root):
        """1 / (2 sqrt(v)), and 0 where v was raised to its floor; the ``work`` had raised as many ``before``."""
        count = work.clamped
        if type(count) is int and count == before and root.all():
            return 0.5 / root
        raised = (var <= work.floor(X)).T.reshape(root.shape)
        return np.where(raised, 0, 0.5 / np.where(raised, 1, root)).astype(root.dtype, copy=False)

    def pull(self, way, f_bar):
        """Take in the cotangents of these marginals; those of X (B, D) if "inputs" are needed.

        Consumes ``way``.
        """
        bar, lowest = None, self._lowest
        for number in reversed(range(lowest, len(self.passes))):
            work, saved = self.passes[number], way.pop()
            if bar is None:
                bar = work.pull(saved, f_bar)
                continue
            bar = bar.reshape(saved.eps.shape)
            root_bar = bar * saved.eps
            if len(saved.half) < len(bar):
                bar, root_bar = bar.sum(axis=0, keepdims=True), root_bar.sum(axis=0, keepdims=True)
            root_bar *= saved.half
            bar = work.pull(saved.rows, Marginals(_outputs_first(bar), _outputs_first(root_bar)))
        return bar

    def kl(self):
        """The sum of the layers' KL[q(u) || p(u)]."""
        return sum(work.kl() for work in self.passes)

    def finish(self, kl_bar):
        """The gradients of the layers, of all rows and of the KL terms with their own cotangent.

        Ends the pass.
        """
        nothing = LayerBars(None, None, None, None)
        bars = [
            work.finish(kl_bar) if number >= self._lowest else nothing
            for number, work in enumerate(self.passes)
        ]
        return tuple(
            replace(layer, **one._asdict())
            for layer, one in zip(self.model.layers, bars, strict=True)
        )


def _own(need, number):
    """The fields of one layer among dotted names of the model's."""
    root = f"layers.{number}"
    if "layers" in need or root in need:
        return FIELDS
    return tuple(name.removeprefix(root + ".") for name in need if name.startswith(root + "."))


def _outputs_first(bar):
    """(P, S B) of (S, B, P)."""
    return np.ascontiguousarray(bar.reshape(-1, bar.shape[-1]).T, like=bar)
