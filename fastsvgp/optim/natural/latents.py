"""Natural-gradient step of a ``MultiGP``: of all latent functions at once, or layer after layer."""

from functools import partial

import numpy as np

from ... import check, kernels, models
from ...bounds.data_term import less_kl, sweep
from ...bounds.elbo import bound_of, value_and_grad
from ...bounds.posterior_passes import layer_pass
from ...check import weights as weighing
from ...distributed import reduce
from ...distributed.packing import Packing
from ...latents.bound import drawn
from ...latents.joint_step import JointPass, TurnPass, moves_jointly
from ...latents.latent_pass import LatentPass
from ...latents.mixing import Mixing
from ...latents.model import MultiGP, checked, counts_of, layers_of, naming_latent
from ...posteriors.base import PriorFactor
from ...posteriors.dual_sites import DualTying
from ...posteriors.gaussian_factor import GaussianFactor
from ...records import Marginals, replace, tree_map
from ...records.inducing_sets import naming_repeated
from ...runtime.edge import run
from .backtracking import (
    NaturalStepInfo,
    backtrack,
    check_natural,
    check_size,
    check_value,
    non_decreasing,
)


def natural_step(
    model, X, Y, *, step_size=0.3, num_data=None, jitter=None, rng=None, weights=None,
    monotone=False, group=None, **random,
):  # fmt: skip
    """Take the step of an SVGP in all latent functions; ``info.in_turn`` tells how.

    The means of functions that a mixing joins move jointly, so a step of 1 on all data with
    Gaussian noise reaches the optimum. Two cases move function after function, each at the
    marginals that the others left: posteriors other than ``Whitened`` and ``Marginal`` under a
    mixing, and more than 4,000 inducing variables in total. Beyond the flops of the layers' steps,
    2 M^2 B for each pair of functions and (L M)^3 / 3.
    """
    moved, info, *_ = reduce.evaluate(
        "natural_step", stepped, model, X, Y, lambda: _packings(model), group=group,
        num_data=num_data, weights=weights, jitter=jitter, rng=rng, step_size=step_size,
        monotone=check.flag("monotone", monotone), **random,
    )  # fmt: skip
    return moved, info


def natural_step_and_grad(
    model, X, Y, *, step_size=0.3, wrt=None, num_data=None, jitter=None, rng=None, weights=None,
    monotone=False, group=None, **random,
):  # fmt: skip
    """Take a ``natural_step``, then evaluate ``elbo_and_grad`` at the new posteriors.

    ``wrt`` defaults to all fields but the posteriors.
    """
    wrt = _all_but_posteriors(model) if wrt is None else wrt
    return reduce.evaluate(
        "natural_step_and_grad", stepped, model, X, Y,
        lambda: [*_packings(model), reduce.of_gradient(model, wrt)], group=group, wrt=wrt,
        num_data=num_data, weights=weights, jitter=jitter, rng=rng, step_size=step_size,
        monotone=check.flag("monotone", monotone), **random,
    )  # fmt: skip


def _all_but_posteriors(model):
    model.check_parts()
    found = [name for name in ("likelihood", "mixing", "mean", "inducing") if has(model, name)]
    for number, layer in enumerate(model.latents):
        found += [
            f"latents.{number}.{name}"
            for name in ("covariance", "inducing", "mean")
            if has(layer, name)
        ]
    return tuple(found)


def has(record, name):
    return getattr(record, name) is not None


def _packings(model):
    """Return the packing of each all-reduce of a step."""
    of_layers = [reduce.natural_sums_of(layer.posterior) for layer in model.latents]
    head = [reduce.REAL, reduce.REAL]  # the bound and a count
    if not moves_jointly(model):
        return [Packing([*head, *of_layers[number]]) for number, _ in turns_of(model)]
    own, sizes = [item for one in of_layers for item in one], _sizes(model)
    cross = [
        ("tril" if sizes[k][0] == sizes[other][0] else "real", (sizes[k][1], sizes[other][1]))
        for k, other, *_ in Mixing(model.mixing).pairs()
    ]
    return [Packing([*head, *own, *cross])]


def _sizes(model):
    """Return the layer and the number of inducing variables of each latent function."""
    return [
        (number, sum(layer.covariance.num_inducing(layer.inducing)))
        for number, (layer, count) in enumerate(
            zip(layers_of(model), counts_of(model), strict=True)
        )
        for _ in range(count)
    ]


class Call:
    """Checked arguments of one step, and its evaluation on the same batch."""

    def __init__(self, model, X, Y, scale, step_size, options):
        check.parts(model, ("likelihood",))
        self.given, self.scale = (X, Y, scale), scale
        plain = ("weights", "jitter", "rng")
        random = {name: value for name, value in options.items() if name not in plain}
        self.model, self.X, self.Y, self.weights, self.dtype = weighing.svgp(
            model, X, Y, options["weights"], checked
        )
        self.requested = check_size(step_size)
        for number, layer in enumerate(self.model.latents):
            with naming_latent(number):
                check_natural("natural_step", layer.posterior, self.requested)
        self.each = drawn(self.model, self.dtype, options["rng"], random)
        self.jitter = check.jitter_amount(options["jitter"], self.dtype)
        self.options, self.rng = options, options["rng"]

    def take(self, priors):
        """Use these factors of Kuu: one per layer, None where its pass makes its own."""
        for of_layer, prior in zip(self.each, priors, strict=True):
            if prior is not None:
                of_layer["prior"] = prior

    def parts(self, layer):
        """Sweep the batch through a pass and pull all rows; return the data term and a count."""
        data, negative = 0.0, 0
        for part in sweep(
            self.model, layer, self.X, self.Y, self.scale, self.rng, weights=self.weights
        ):
            data += part.ell
            negative += np.count_nonzero(part.f_bar.var > 0)
            layer.pull(part.rows, part.f_bar)
            del part  # the next part reuses its memory
        return data, negative

    def rises(self, latents, before):
        """Whether the bound with these layers is not below ``before``."""
        self.scale.expect(reduce.NUMBER)
        model = replace(self.model, latents=latents)
        bound = run(bound_of, model, *self.given, **self.options)
        return non_decreasing(bound, before, self.dtype)


def stepped(model, X, Y, scale, *, step_size, monotone, wrt=None, priors=None, **options):
    """Return ``(model, NaturalStepInfo, value, gradient)``; the last two are None if ``wrt`` is."""
    call = Call(model, X, Y, scale, step_size, options)
    jointly = moves_jointly(call.model)
    if priors is None and not jointly:  # a layer has several passes
        priors = _priors(call.model, call.jitter)
    if priors is not None:
        call.take(priors)
    latents, info = (_jointly if jointly else _in_turn)(call, monotone)
    model = replace(call.model, latents=latents)
    if wrt is None:
        return model, info, None, None
    return model, info, *run(value_and_grad, model, *call.given, wrt=wrt, **options)


def priors_of(model, X, Y, jitter):
    """Return a ``PriorFactor`` per layer for several steps, in the dtype of the model and data."""
    model, *_, dtype = checked(model, X, Y)
    found = _priors(model, check.jitter_amount(jitter, dtype))
    for number, (layer, prior) in enumerate(zip(layers_of(model), found, strict=True)):
        with naming_latent(number), naming_repeated(layer.inducing):
            _ = prior and prior.L  # computed here, for all steps
    return found


def _priors(model, jitter):
    """Return a ``PriorFactor`` per layer; None for a posterior whose pass makes its own."""
    return [
        PriorFactor(layer.covariance.Kuu(layer.inducing), jitter)
        if isinstance(layer.posterior, (GaussianFactor, DualTying))
        else None
        for layer in layers_of(model)
    ]


def _jointly(call, monotone):
    layer = JointPass(call.model, call.jitter, len(call.X), each=call.each)
    data, negative = call.parts(layer)
    value = check.result(less_kl(data, layer, call.scale), call.model)
    value, negative = call.scale.all_reduce_natural(layer, value, negative)
    check_value("natural_step", value)

    def moved(size):
        return _with(call.model.latents, layer.natural_step(size))

    accepted = partial(call.rises, before=value) if monotone else None
    latents, size, negative = backtrack(
        moved, call.requested, negative, call.model, call.X, accepted
    )
    return latents, NaturalStepInfo(value, size, size < call.requested, negative)


def _in_turn(call, monotone):
    """Move one latent function after the other; the info has the first value and smallest size."""
    walk, infos = Turns(call), []
    for number, output in turns_of(call.model):
        turn = walk.turn(number)
        data, negative = call.parts(turn)
        value = check.result(data - call.scale.kl * walk.kl(), call.model)
        value, negative = call.scale.all_reduce_natural(turn, value, negative)
        check_value("natural_step", value)
        moved = partial(walk.stepped, number, output, turn)
        accepted = partial(call.rises, before=value) if monotone else None
        latents, size, negative = backtrack(
            moved, call.requested, negative, call.model, call.X, accepted
        )
        infos.append(NaturalStepInfo(value, size, size < call.requested, negative))
        walk.move(number, latents)
    size = min(info.step_size for info in infos)
    last = infos[0]._replace(step_size=size, backed_off=size < call.requested, in_turn=True)
    return call.model.latents, last


class Turns:
    """The marginals of all latent functions at the batch, and the KL terms, as layers move."""

    def __init__(self, call):
        self._call = call
        # without random quantities, which are for the KL term of one pass
        self._priors = [{k: v for k, v in one.items() if k == "prior"} for one in call.each]
        self._whole = LatentPass(call.model, call.jitter, each=self._priors)
        self._kls = [work.kl() for work in self._whole.passes]
        parts = [self._whole.latents(X)[0] for X in self._chunks()]
        self._g = Marginals(
            *(np.concatenate([getattr(f, name) for f in parts], axis=1) for name in ("mean", "var"))
        )

    def _chunks(self):
        X = self._call.X
        size = max(1, kernels.chunk_numbers(X) // self._whole.num_inducing)
        return (X[start : start + size] for start in range(0, len(X), size))

    def kl(self):
        return sum(self._kls)

    def turn(self, number):
        """Return the ``TurnPass`` of a layer."""
        call = self._call
        more = call.each[number]
        return TurnPass(self._whole, number, self._g, call.jitter, len(call.X), more)

    def stepped(self, number, output, turn, size):
        """Return the layers after a step of one of them, or of one of its outputs."""
        latents, moved = list(self._call.model.latents), turn.natural_step(size)
        if output is not None:
            moved = tree_map(partial(_with_row, output), latents[number].posterior, moved)
        latents[number] = replace(latents[number], posterior=moved)
        return tuple(latents)

    def move(self, number, latents):
        """Take these layers, of which one has moved, and renew its marginals."""
        call = self._call
        call.model = replace(call.model, latents=latents)
        work = layer_pass(layers_of(call.model)[number], call.jitter, **self._priors[number])
        self._kls[number] = work.kl()
        parts = [work.forward(X)[0] for X in self._chunks()]
        span = self._whole.spans[number]
        for name, total in (("mean", self._g.mean), ("var", self._g.var)):
            moments = np.concatenate([getattr(f, name) for f in parts], axis=-1)
            total[span] = moments


def turns_of(model):
    """Return the layer, and its output or None for all, of each turn.

    Outputs that the mixing joins move one by one: all at once their steps can diverge.
    """
    counts = counts_of(model)
    return [
        (number, output)
        for number, count in enumerate(counts)
        for output in (range(count) if count > 1 else (None,))
    ]


def _with_row(number, old, new):
    mixed = old.copy()
    mixed[number] = new[number]
    return mixed


def _with(latents, posteriors):
    return tuple(replace(layer, posterior=q) for layer, q in zip(latents, posteriors, strict=True))


models.register(MultiGP, natural_step=natural_step, natural_step_and_grad=natural_step_and_grad)
