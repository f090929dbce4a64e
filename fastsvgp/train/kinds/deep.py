"""``fit`` for a deep GP: a natural step of the last layer, then one gradient for the others."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ... import check, models
from ...errors import BadEntry
from ...layers.bound import NOT_OF_LAST
from ...layers.layer import DeepGP, check_deep, naming_layer
from ...optim.flat import free_paths
from ...optim.inverse.updates import InverseUpdates
from ...optim.natural.from_gradient import factor_pairs, natural_update
from ...optim.schedules import Size
from ...posteriors.locate import part_at, posteriors_of, replace_posteriors
from ...records import matches
from ..arguments import count
from ..steps.minibatch import MinibatchSteps
from .svgp import (
    Optimisers,
    choose_optimiser,
    find_fixed,
    natural_schedule,
    paths,
    recorder,
    updates_of_inverses,
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
def deep_training(request):
    """Make the ``Recorder`` of a training of a DeepGP."""
    model, own = request.model, request.options
    check_deep(model)
    request.refuse("a DeepGP has no random quantities but its draws")
    fixed = hidden_means(model) if request.fixed is None else request.fixed
    optimiser, natural, hidden = _assign_leaves(
        model, choose_optimiser(request.optimiser, fixed), own.natural_step_size
    )
    inverse, optimiser = updates_of_inverses(model, optimiser, own.inverse_updates)
    optimisers = Optimisers.of(model, optimiser, natural, inverse, own)
    random = {"num_samples": count("num_samples", own.num_samples) or SAMPLES}
    return recorder(request, partial(LayeredSteps, hidden=hidden), optimisers, random, check_deep)


models.register(DeepGP, fit=deep_training)


def _name_layer(path):
    """Return the layer of a posterior as messages show it: `layers[0]`, `layers[0].latents[1]`."""
    return "`" + re.sub(r"\.(\d+)", r"[\1]", path.removesuffix(".posterior")) + "`"


def hidden_means(model):
    """Return the paths of parametric mean functions of hidden layers: the default of ``fixed``."""
    means = (f"layers.{number}.mean" for number in range(len(model.layers) - 1))
    found = free_paths(model)
    return tuple(mean for mean in means if any(matches(path, (mean,)) for path in found))


def _assign_leaves(model, optimiser, natural_step_size):
    """Return the optimiser, natural steps of the last layer, and paths of natural updates."""
    last, found = model.layers[-1], posteriors_of(model)
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
        if sites and not find_fixed(optimiser, sites):
            raise TypeError(
                f"fit: {_name_layer(path)}: natural steps move the sites of a {type(q).__name__}"
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
                f"fit: `natural_step_size` asks for steps of all layers, and of {_name_layer(path)}"
                f" {why}; leave `natural_step_size` out, or name {path!r} in `fixed`"
            ) from error
        if not find_fixed(optimiser, moved):
            hidden.append(path)
            optimiser = optimiser.fixing(moved)
    return optimiser, natural, tuple(hidden)


class LayeredSteps(MinibatchSteps):
    """``MinibatchSteps`` for layers.

    The draws of hidden layers depend only on the seed and the batch.

    ``hidden`` : the paths of the posteriors that take natural updates, along the same gradient as
    the optimiser
    """

    def __init__(self, *args, hidden):
        self._hidden = hidden
        super().__init__(*args)

    def _moving(self, model, optimised):
        updated = (name for path in self._hidden for name in updated_paths(model, path))
        return *super()._moving(model, optimised), *updated

    def _move_posteriors(self, model, grad, natural_size):
        moved = {}
        for path in self._hidden:
            try:
                moved[path] = natural_update(
                    part_at(model, path), part_at(grad, path), natural_size
                )
            except BadEntry as error:
                what = f"the gradient has NaN or infinity in {path!r} at step {self._step + 1}"
                raise check.diverged_error(what, model, self._step + 1) from error
        return replace_posteriors(model, moved)


def updated_paths(model, path):
    """Return the paths that a natural update changes in the posterior at ``path``.

    Raises ``TypeError`` if it takes no natural updates.
    """
    return [f"{path}.{name}" for pair in factor_pairs(part_at(model, path)) for name in pair]
