"""``fit`` for a deep GP."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ... import check, models
from ...layers.bound import NOT_OF_LAST
from ...layers.layer import DeepGP, checked, naming_layer
from ...optim.flat import free_paths
from ...optim.inverse.updates import InverseUpdates
from ...optim.schedules import Size
from ...posteriors.placed import placed
from ...records import matches
from ..arguments import count
from ..steps.deep import LayeredSteps, updated_paths
from .inverses import placed_updates
from .request import request_of
from .svgp import (
    Optimisers,
    check_moving,
    fixed_among,
    natural_schedule,
    paths,
    recorder,
    with_default,
)

SAMPLES = 2  # draws per row: one and its negative


@dataclass(frozen=True)
class DeepGPOptions:
    """Options of ``fit`` for a ``DeepGP``.

    Parameters
    ----------
    natural_step_size : float, schedule, or function ``step -> size``, optional
        Size of the natural-gradient steps of the posteriors of all layers. The last layer takes its
        step first, in closed form. Then one gradient serves both ``natural_update`` of the
        posteriors of the hidden layers, with the same size, and ``optimiser``, which updates
        everything else. All layers need posteriors with a mean and a factor. 0.1 is a reasonable
        choice; for a likelihood that is not Gaussian try ``schedules.log_linear(1e-4, 0.1, 100)``,
        and for a long training with batches of few rows per inducing input
        ``schedules.cosine(0.1, 0.01, "all")``.
    inverse_updates : InverseUpdates or False, optional
        Updates of factors of inverses after each step, for layers with ``Relaxed`` or
        ``InverseFreeWhitened`` posteriors, as for an SVGP. Made by
        ``fs.optim.inverse_updates(...)`` with no other argument than ``tolerance``. With False
        ``optimiser`` updates the factors.
    e_steps, m_steps : int, optional
        Natural steps, and steps of ``optimiser``, per step of the training, as for an SVGP. Default
        1 and 1.
    num_samples : int, optional
        Draws of the hidden layers per row, new at each step. An even number makes pairs of a draw
        and its negative. Default 2.
    """

    natural_step_size: Size | None = None
    inverse_updates: InverseUpdates | Literal[False] | None = None
    e_steps: int | None = None
    m_steps: int | None = None
    num_samples: int | None = None


@models.with_options(DeepGPOptions)
def deep_training(*arguments, weights=None, **options):
    """Make the ``Recorder`` of a training of a DeepGP.

    Takes the arguments of ``minibatch_training``.
    """
    request = request_of(DeepGPOptions, arguments, options, weights)
    model, own = request.model, request.options
    checked(model)
    if request.others:
        raise ValueError(
            "fit: a DeepGP has no random quantities beside its draws;"
            f" `{next(iter(request.others))}` would have no effect"
        )
    fixed = hidden_means(model) if request.fixed is None else request.fixed
    optimisers, hidden = _assign_leaves(
        model, with_default(request.optimiser, fixed), own.natural_step_size, own.inverse_updates
    )
    random = {"num_samples": count("num_samples", own.num_samples) or SAMPLES}
    return recorder(request, partial(LayeredSteps, hidden=hidden), optimisers, random, checked)


models.register(DeepGP, fit=deep_training)


def _named(path):
    """Return the layer of a posterior as messages show it: `layers[0]`, `layers[0].latents[1]`."""
    return "`" + re.sub(r"\.(\d+)", r"[\1]", path.removesuffix(".posterior")) + "`"


def hidden_means(model):
    """Return the paths of parametric mean functions of hidden layers: the default of ``fixed``."""
    means, found = (
        (f"layers.{number}.mean" for number in range(len(model.layers) - 1)),
        free_paths(model),
    )
    return tuple(mean for mean in means if any(matches(path, (mean,)) for path in found))


def _assign_leaves(model, optimiser, natural_step_size, inverse_updates):
    """Return the ``Optimisers``, and the paths of the posteriors that take natural updates."""
    last, found = model.layers[-1], placed(model)
    top, natural, hidden = f"layers.{len(model.layers) - 1}.posterior", None, []
    if top in found:
        if natural_step_size is not None:
            with naming_layer(len(model.layers) - 1):
                check.natural("fit", last.posterior)
        natural, optimiser = natural_schedule(
            model, found.pop(top), top, natural_step_size, optimiser
        )
    elif natural_step_size is not None:
        raise TypeError(f"fit: {NOT_OF_LAST}")
    for path, q in found.items():
        sites = paths(path, q.held_fields)
        if sites and not fixed_among(optimiser, sites):
            raise TypeError(
                f"fit: {_named(path)}: natural steps move the sites of a {type(q).__name__}"
                " posterior, and only a last Layer takes these; use Whitened elsewhere, or name"
                " this posterior in `fixed`"
            )
        if (
            natural_step_size is None
            or sites
            or not any(matches(moving, (path,)) for moving in optimiser.paths(model))
        ):
            continue
        try:
            moved = updated_paths(model, path)
        except TypeError as error:
            why = str(error).removeprefix("natural_update: ").partition(";")[0]
            raise TypeError(
                f"fit: `natural_step_size` asks for steps of all layers, and of {_named(path)}"
                f" {why}; leave `natural_step_size` out, or name {path!r} in `fixed`"
            ) from error
        if not fixed_among(optimiser, moved):
            hidden.append(path)
            optimiser = optimiser.fixing(moved)
    inverse, optimiser = placed_updates(model, optimiser, inverse_updates)
    check_moving(model, optimiser, natural)
    return Optimisers(optimiser, natural, inverse), tuple(hidden)
