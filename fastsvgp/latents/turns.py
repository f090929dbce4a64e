"""The parts of a natural step of a ``MultiGP``: one joint step, or a step of each layer in turn."""

from functools import partial
from itertools import repeat

import numpy as np

from ..bounds.posterior_passes import layer_pass
from ..bounds.protocol import ALL, Turn
from ..bounds.relay import chunks
from ..posteriors.base import PriorFactor
from ..posteriors.dual_sites import DualTying
from ..posteriors.gaussian_factor import GaussianFactor
from ..records import Marginals, replace, tree_map
from ..records.inducing_sets import naming_repeated
from .joint_step import JointPass, moves_jointly
from .latent_pass import LatentPass
from .model import counts_of, layers_of, naming_latent


def turns(call, shares=False):
    """Yield the ``Turn`` of each part of a step; is sent the model after it."""
    model, each = call.model, call.quantities.get("each")
    if moves_jointly(model):
        yield Turn(
            JointPass(model, call.jitter, len(call.batch.X), each=each),
            partial(_replace_posteriors, model),
        )
        return
    if each is None or not any("prior" in one for one in each):  # a layer has several passes
        priors = priors_of(model, call.jitter)
        each = [one | _given(prior) for one, prior in zip(each or repeat({}), priors, strict=False)]
    layer = TurnPass(call, each)
    for number, output in order_of(model):
        layer.move((yield layer.turn(number, output)))


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


def factor_priors(model, jitter):
    """Return the quantities ``each`` of a checked model for several steps: factors of Kuu."""
    found = priors_of(model, jitter)
    for number, (layer, prior) in enumerate(zip(layers_of(model), found, strict=True)):
        with naming_latent(number), naming_repeated(layer.inducing):
            _ = prior and prior.L  # computed here, for all steps
    return [_given(prior) for prior in found]


def _given(prior):
    return {} if prior is None else {"prior": prior}


def _replace_posteriors(model, posteriors):
    latents = zip(model.latents, posteriors, strict=True)
    return replace(model, latents=tuple(replace(layer, posterior=q) for layer, q in latents))


class TurnPass(LatentPass):
    """A ``LatentPass`` of one batch in which layers move in turn, at the marginals of the others.

    ``passes`` : that of the layer whose turn it is sums for its step; the others are not called
    """

    def __init__(self, call, each):
        # random quantities are for the KL term of one pass
        self._priors = [{k: v for k, v in one.items() if k == "prior"} for one in each]
        super().__init__(call.model, call.jitter, each=self._priors)
        self._call, self._each, self._number = call, each, None
        X = call.batch.X
        self._pieces = [X[rows] for rows in chunks(self, X)]
        self._kls = [work.kl() for work in self.passes]
        self._g = _concatenate([self.latents(one)[0] for one in self._pieces])

    def turn(self, number, output):
        """Return the ``Turn`` of a layer, or of one of its outputs."""
        call, model = self._call, self.model
        with naming_latent(number):
            self.passes[number] = own = layer_pass(
                layers_of(model)[number],
                call.jitter,
                len(call.batch.X),
                ("natural_step",),
                **self._each[number],
            )
        self._number, self.num_inducing = number, own.num_inducing
        self._pulled = [one is own for one in self.passes]

        def place(posterior):
            latents = list(model.latents)
            if output is not None:
                posterior = tree_map(
                    partial(_replace_row, output), latents[number].posterior, posterior
                )
            latents[number] = replace(latents[number], posterior=posterior)
            return replace(model, latents=tuple(latents))

        return Turn(self, place)

    def move(self, model):
        """Replace the model after a layer has moved; recompute its marginals and KL term."""
        number, self.model = self._number, model
        work = layer_pass(layers_of(model)[number], self._call.jitter, **self._priors[number])
        self.passes[number], self._kls[number] = work, work.kl()
        self._put(self._g, _concatenate([work.forward(X)[0] for X in self._pieces]))

    def _put(self, g, own):
        """Replace the marginals of the layer whose turn it is."""
        span = self.spans[self._number]
        g.mean[span], g.var[span] = own.mean, own.var

    @property
    def clamped(self):
        return self.passes[self._number].clamped

    def latents(self, X, rows=ALL):
        if self._number is None:
            return super().latents(X)
        own, residuals = self.passes[self._number].forward(X)
        g = Marginals(self._g.mean[:, rows].copy(), self._g.var[:, rows].copy())
        self._put(g, own)
        return g, [residuals if pulled else None for pulled in self._pulled]

    def kl(self):
        return sum(self._kls)

    def natural_sums(self):
        return self.passes[self._number].natural_sums()

    def natural_step(self, step_size):
        return self.passes[self._number].natural_step(step_size)


def _concatenate(parts):
    return Marginals(
        *(np.concatenate([getattr(f, name) for f in parts], axis=-1) for name in ("mean", "var"))
    )


def _replace_row(number, old, new):
    mixed = old.copy()
    mixed[number] = new[number]
    return mixed
