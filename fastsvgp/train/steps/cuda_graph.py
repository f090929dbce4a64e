"""Steps on a device of which each is one launch of a graph, and one copy of three numbers to the host.

A graph reads and writes the same addresses each time. So there are two places for the model and the
moments of the optimiser, and two graphs, from the one to the other and back: while a step runs,
what it began with stays as it was. Where a check of the step has failed, ``MinibatchSteps`` takes
the same step again from there, and finds out why.
"""

import logging
import math
from typing import Any, NamedTuple

import numpy as np

from ... import check
from ...bounds.elbo import SVGP, elbo_and_grad
from ...kernels.cuda.common import graphs
from ...optim.base import Optimiser
from ...records import is_record, leaves, replace, tree_map
from ...runtime import deferred_checks, devices
from .base import Snapshot
from .minibatch import MinibatchSteps

log = logging.getLogger("fastsvgp")


def reason_against(model, movers, random, m_steps, ours=True):
    """Why steps cannot be captured, in words; None where they can.

    ``ours``: only of code of this package.
    """
    optimiser, natural, inverse = movers
    if devices.home_of(model) is None:
        return "the model is on the host"
    if type(model) is not SVGP:
        return f"they are not for a {type(model).__name__}"
    if natural is not None or inverse is not None:
        return "natural steps, and updates of an inverse, decide on the host how to go on"
    if random or model.likelihood.samples:
        return "each step draws its own random numbers"
    if m_steps > 1:
        return "a round has several steps of the optimiser"
    if not isinstance(optimiser, Optimiser) or optimiser.needs_value:
        return "the optimiser is neither adam nor sgd with step sizes that depend on the step alone"
    moved = optimiser.paths(model)
    for path, _, value in leaves(model):
        if path in moved and not deferred_checks.on_device(value):
            return f"`{path}` is a number of the host; fs.to_device(model) makes an array of it"
    foreign = [
        part
        for part in _records(model, optimiser)
        if not type(part).__module__.startswith("fastsvgp.")
    ]
    if ours and foreign:
        return (
            f"{type(foreign[0]).__name__} is not of this package, and may wait for the device, or"
            " copy to it, unseen"
        )
    return None


def _records(model, optimiser):
    """The optimiser, and every record of the model."""
    found, todo = [optimiser], [model]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            todo += part
        elif is_record(part):
            found.append(part)
            todo += [getattr(part, name) for name, _ in part._record_fields]
    return found


class Place(NamedTuple):
    """Where a model and the moments of its optimiser stand on the device, always."""

    model: Any
    moments: tuple


class CapturedSteps(MinibatchSteps):
    """As ``MinibatchSteps``, for models without a ``reason_against``.

    The graphs work in place, in two places by turns.
    """

    _places = _graphs = _inputs = None
    _here = 0

    def _move_to(self, model, optimised, scheduled):
        if self._places is None:
            self._places = tuple(
                Place(_copied(model), tuple(m.copy() for m in _moments(optimised)))
                for _ in range(2)
            )
        else:
            self._write(self._places[1 - self._here], model, *_moments(optimised))
        self._stand_at(1 - self._here, optimised)

    def _stand_at(self, here, optimised):
        """A step is done that led to this place; of the optimiser's state what is no array counts."""
        place = self._places[here]
        optimised = _with_moments(optimised, place.moments)
        self._here, self._model, self._optimised, self._scheduled = (
            here,
            place.model,
            optimised,
            None,
        )
        fields = {"optimiser": optimised, "natural": None}
        self.snapshot = Snapshot(lambda: _copied(place.model), lambda: fields, lambda: place.model)

    def _write(self, place, model, *moments):
        """Put what moves of a model, and moments, into a place."""
        moved = self._optimiser.paths(model)
        for (path, _, to), (_, _, new) in zip(leaves(place.model), leaves(model), strict=True):
            if path in moved:
                to[...] = new
        for to, new in zip(place.moments, moments, strict=True):
            to[...] = new

    def _take(self):
        if self._graphs == ():  # tried, in vain
            return super()._take()
        state = self._optimised
        try:
            self._fill(
                self._batches.at(self._step), [*self._optimiser.sizes(state), state.count + 1]
            )
            value, clamped = deferred_checks.outcome(self._graphs[self._here]().get())
        except graphs.NotCaptured as error:
            log.warning("fit: steps cannot be captured into a graph (%s); going on without", error)
            self._graphs = ()
            return self._again()
        except MemoryError:
            raise
        except Exception:
            return self._again()
        if not math.isfinite(value):
            return self._again()
        check.report_clamped(clamped)
        step_size = self._optimiser.step_size_at(state)
        self._stand_at(1 - self._here, self._optimiser.observed(state, value))
        return value, {
            "step_size": step_size,
            "natural_step_size": None,
            "jitter": self._jitter,
            "inverse": None,
        }

    def _fill(self, batch, numbers):
        """Put a batch and the numbers of a step where the graphs read them."""
        if self._graphs is None:
            whole = self._batches.size == self._batches.num_data
            self._inputs = batch if whole else tuple(a.copy() for a in batch)
            self._numbers = np.empty(len(numbers), like=devices.home_of(self._model))
            self._graphs = tuple(
                graphs.Recorded(self._body(*self._places[:: 1 - 2 * here])) for here in range(2)
            )
        for there, here in zip(self._inputs, batch, strict=True):
            if there is not here:
                there[...] = here
        self._numbers[...] = devices.like(np.array(numbers, np.float64), self._numbers)

    def _body(self, source, target):
        """A step from one place to the other, as a function without arguments that waits for nothing."""
        state, (X, Y, *weights) = _with_moments(self._optimised, source.moments), self._inputs
        weights = {"weights": weights[0]} if weights else {}

        def step():
            *sizes, count = (self._numbers[i] for i in range(len(self._numbers)))
            with deferred_checks.until_end() as checks:
                _, grad = elbo_and_grad(
                    source.model, X, Y, num_data=self._batches.num_data, jitter=self._jitter,
                    wrt=self._moving(source.model, state), **weights,
                )  # fmt: skip
                model, *moments = self._optimiser.ascent(source.model, grad, state, sizes, count)
                found = checks.report_all()
            self._write(target, model, *moments)
            return found

        return step


def _moments(optimised):
    return tuple(m for m in (optimised.first, optimised.second) if m is not None)


def _with_moments(optimised, moments):
    return replace(optimised, **dict(zip(("first", "second"), moments, strict=False)))


def _copied(model):
    return tree_map(
        lambda value: value.copy() if deferred_checks.on_device(value) else value, model
    )
