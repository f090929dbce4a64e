"""The parts of a natural step of a ``MultiGP``: one joint step, or a step of each layer in turn."""

from functools import partial
from itertools import repeat

import numpy as np

from ..bounds.posterior_passes import layer_pass
from ..bounds.protocol import ALL, LayerProtocol, Turn
from ..bounds.relay import chunks
from ..posteriors.base import PriorFactor
from ..posteriors.dual_sites import DualTying
from ..posteriors.gaussian_factor import GaussianFactor
from ..records import Marginals, replace, tree_map
from ..records.inducing_sets import naming_repeated
from .joint_step import JointPass, moves_jointly
from .latent_pass import LatentPass
from .mixing import Mixing
from .model import counts_of, layers_of, naming_latent


def turns(call, shares=False):
    """Yield the ``Turn`` of each part of a step; is sent the model after it."""
    model, each = call.model, call.quantities.get("each")
    if moves_jointly(model):
        yield Turn(
            JointPass(model, call.jitter, len(call.batch.X), each=each), partial(_all_moved, model)
        )
        return
    if each is None or not any("prior" in one for one in each):  # a layer has several passes
        priors = priors_of(model, call.jitter)
        each = [one | _named(prior) for one, prior in zip(each or repeat({}), priors, strict=False)]
    state = Turns(call, each)
    for number, output in order_of(model):
        state.move(number, (yield state.turn(number, output)))


def natural_shapes(model):
    """Return the items of the sums of each part of a step, for packings."""
    own = [layer.posterior.natural_shapes() for layer in model.latents]
    if not moves_jointly(model):
        return [own[number] for number, _ in order_of(model)]
    sizes = [
        (number, sum(layer.covariance.num_inducing(layer.inducing)))
        for number, (layer, count) in enumerate(
            zip(layers_of(model), counts_of(model), strict=True)
        )
        for _ in range(count)
    ]
    cross = [
        ("tril" if sizes[k][0] == sizes[other][0] else "real", (sizes[k][1], sizes[other][1]))
        for k, other, *_ in Mixing(model.mixing).pairs()
    ]
    return [[*(item for one in own for item in one), *cross]]


def order_of(model):
    """Return the layer, and its output or None for all, of each part of a step.

    Outputs that the mixing joins move one by one: all at once their steps can diverge.
    """
    return [
        (number, output)
        for number, count in enumerate(counts_of(model))
        for output in (range(count) if count > 1 else (None,))
    ]


def priors_of(model, jitter):
    """Return a ``PriorFactor`` per layer; None for a posterior whose pass makes its own."""
    return [
        PriorFactor(layer.covariance.Kuu(layer.inducing), jitter)
        if isinstance(layer.posterior, (GaussianFactor, DualTying))
        else None
        for layer in layers_of(model)
    ]


def factored(model, jitter):
    """Return the quantities ``each`` of a checked model for several steps: factors of Kuu."""
    found = priors_of(model, jitter)
    for number, (layer, prior) in enumerate(zip(layers_of(model), found, strict=True)):
        with naming_latent(number), naming_repeated(layer.inducing):
            _ = prior and prior.L  # computed here, for all steps
    return [_named(prior) for prior in found]


def _named(prior):
    return {} if prior is None else {"prior": prior}


def _all_moved(model, posteriors):
    latents = zip(model.latents, posteriors, strict=True)
    return replace(model, latents=tuple(replace(layer, posterior=q) for layer, q in latents))


class Turns:
    """The marginals of all latent functions at the batch, and the KL terms, as layers move."""

    def __init__(self, call, each):
        self._model, self._call, self._each = call.model, call, each
        # random quantities are for the KL term of one pass
        self._priors = [{k: v for k, v in one.items() if k == "prior"} for one in each]
        self._whole = LatentPass(call.model, call.jitter, each=self._priors)
        self._kls = [work.kl() for work in self._whole.passes]
        self._g = _joined([self._whole.latents(X)[0] for X in self._pieces()])

    def _pieces(self):
        X = self._call.batch.X
        return (X[rows] for rows in chunks(self._whole, X))

    def kl(self):
        return sum(self._kls)

    def turn(self, number, output):
        """Return the ``Turn`` of a layer, or of one of its outputs."""
        model, more = self._model, self._each[number]
        layer = layers_of(model)[number]
        with naming_latent(number):
            own = layer_pass(
                layer, self._call.jitter, len(self._call.batch.X), ("natural_step",), **more
            )

        def placed(posterior):
            latents = list(model.latents)
            if output is not None:
                posterior = tree_map(
                    partial(_with_row, output), latents[number].posterior, posterior
                )
            latents[number] = replace(latents[number], posterior=posterior)
            return replace(model, latents=tuple(latents))

        return Turn(TurnPass(self, own, number), placed)

    def marginals(self, number, own, X, rows):
        """Return those of g, with its ``own`` of one layer, and of f, at some rows of the batch."""
        g = Marginals(*(part[:, rows].copy() for part in (self._g.mean, self._g.var)))
        span = self._whole.spans[number]
        g.mean[span], g.var[span] = own.mean, own.var
        return g, self._whole.mixed(g, X)

    def pull(self, number, g, f_bar):
        """Return the cotangents of the marginals of one layer."""
        N = g.mean.shape[-1]
        bar = Marginals(f_bar.mean.reshape(-1, N), f_bar.var.reshape(-1, N))
        _, bar = self._whole.mixing.pull(bar, g, need=False)
        span, axes = self._whole.spans[number], self._whole.axes[number]
        return Marginals(*(part[span].reshape(*axes, N) for part in (bar.mean, bar.var)))

    def move(self, number, model):
        """Replace the model after a layer has moved; recompute its marginals and KL term."""
        self._model = model
        work = layer_pass(layers_of(model)[number], self._call.jitter, **self._priors[number])
        self._kls[number] = work.kl()
        own = _joined([work.forward(X)[0] for X in self._pieces()])
        span = self._whole.spans[number]
        self._g.mean[span], self._g.var[span] = own.mean, own.var


class TurnPass(LayerProtocol):
    """The pass of one layer, at the marginals of the others."""

    def __init__(self, turns, layer, number):
        self._turns, self._layer, self._number = turns, layer, number
        self.num_inducing, self.kl = layer.num_inducing, turns.kl

    @property
    def clamped(self):
        return self._layer.clamped

    def forward(self, X, rows=ALL):
        own, residuals = self._layer.forward(X)
        g, f = self._turns.marginals(self._number, own, X, rows)
        return f, (residuals, g)

    def pull(self, residuals, f_bar):
        own, g = residuals
        self._layer.pull(own, self._turns.pull(self._number, g, f_bar))

    def natural_sums(self):
        return self._layer.natural_sums()

    def natural_step(self, step_size):
        return self._layer.natural_step(step_size)


def _joined(parts):
    return Marginals(
        *(np.concatenate([getattr(f, name) for f in parts], axis=-1) for name in ("mean", "var"))
    )


def _with_row(number, old, new):
    mixed = old.copy()
    mixed[number] = new[number]
    return mixed
