"""``fit`` for a deep GP."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from ... import models
from ...layers.layer import DeepGP, checked, naming_layer
from ...optim.flat import free_paths
from ...optim.inverse.updates import InverseUpdates, inverse_updates as default_updates
from ...optim.natural.backtracking import check_natural
from ...optim.schedules import Size
from ...records import matches
from ..arguments import count
from ..steps.deep import LayeredSteps, updated_paths
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


class LayerUpdates(NamedTuple):
    """Updates of factors of inverses, and the layers that take them."""

    updates: InverseUpdates
    layers: tuple[int, ...]
    direction: Any = "exact"


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
        choice; for a likelihood that is not Gaussian try ``schedules.log_linear(1e-4, 0.1, 100)``.
    inverse_updates : InverseUpdates or False, optional
        Updates of factors of inverses after each step, for layers with ``Relaxed`` or
        ``InverseFreeWhitened`` posteriors, as for an SVGP. Made by ``fs.inverse_updates(...)`` with
        no other argument than ``tolerance``. With False ``optimiser`` updates the factors.
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
    """Make the ``Recorder`` of a training of a DeepGP; arguments as of ``minibatch_training``."""
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


def hidden_means(model):
    """Return the paths of parametric mean functions of hidden layers: the default of ``fixed``."""
    means, found = (
        (f"layers.{number}.mean" for number in range(len(model.layers) - 1)),
        free_paths(model),
    )
    return tuple(mean for mean in means if any(matches(path, (mean,)) for path in found))


def _assign_leaves(model, optimiser, natural_step_size, inverse_updates):
    """Return the ``Optimisers``, and the hidden layers whose posteriors take natural updates."""
    *below, last = model.layers
    top = f"layers.{len(below)}.posterior"
    if natural_step_size is not None:
        with naming_layer(len(below)):
            check_natural("fit", last.posterior, 1.0)
    natural, optimiser = natural_schedule(model, last.posterior, top, natural_step_size, optimiser)
    hidden = []
    for number, layer in enumerate(below):
        q, path = layer.posterior, f"layers.{number}.posterior"
        sites = paths(path, q.held_fields)
        if sites and not fixed_among(optimiser, sites):
            kind = type(q).__name__
            raise TypeError(
                f"fit: `layers[{number}]`: natural steps move the sites of a {kind} posterior, and"
                " only the last layer takes these; use Whitened in hidden layers, or name this"
                " posterior in `fixed`"
            )
        if (
            natural_step_size is None
            or sites
            or not any(matches(moving, (path,)) for moving in optimiser.paths(model))
        ):
            continue
        try:
            moved = updated_paths(model, number)
        except TypeError as error:
            why = str(error).removeprefix("natural_update: ").partition(";")[0]
            raise TypeError(
                f"fit: `natural_step_size` asks for steps of all layers, and of `layers[{number}]`"
                f" {why}; leave `natural_step_size` out, or name {path!r} in `fixed`"
            ) from error
        if not fixed_among(optimiser, moved):
            hidden.append(number)
            optimiser = optimiser.fixing(moved)
    inverse = _updates(model, optimiser, inverse_updates)
    if inverse is not None:
        optimiser = optimiser.fixing(_factors(model, inverse.layers))
    check_moving(model, optimiser, natural)
    return Optimisers(optimiser, natural, inverse), tuple(hidden)


def _updates(model, optimiser, requested):
    """Return the updates of factors of inverses; None if no layer has one that takes updates."""
    if requested not in (None, False) and not isinstance(requested, InverseUpdates):
        raise TypeError(
            "fit: `inverse_updates` must be made by fs.inverse_updates(...), or be False, got"
            f" {requested!r}"
        )
    if requested is False:
        return None
    moved = optimiser.paths(model)
    with_factor = [
        number for number, layer in enumerate(model.layers) if layer.posterior.inverse_field
    ]
    layers = tuple(number for number in with_factor if _factors(model, (number,))[0] in moved)
    if requested is None and not layers:
        return None
    updates = default_updates() if requested is None else requested
    if updates.nats is not None or updates.direction != "exact":
        what = "`nats`" if updates.nats is not None else f"direction {updates.direction!r}"
        raise ValueError(
            f"fit: `inverse_updates` with {what} is for an SVGP; give `tolerance` alone for the"
            " layers of a DeepGP"
        )
    if not layers:
        why = (
            "every layer's factor of an inverse is fixed"
            if with_factor
            else "no layer has a factor of an inverse"
        )
        raise ValueError(f"fit: `inverse_updates` asks for updates, but {why}; leave it out")
    return LayerUpdates(updates, layers)


def _factors(model, layers):
    return [
        f"layers.{number}.posterior.{model.layers[number].posterior.inverse_field}"
        for number in layers
    ]
