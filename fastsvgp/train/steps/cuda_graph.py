"""Steps on a device by CUDA graphs: one launch and one copy of three numbers to the host per step.

A graph reads and writes the same addresses each time. There are therefore two copies of the model
and of the moments of the optimiser, and two graphs, from each copy to the other, so that a step
leaves its starting point unchanged. The graphs run in turn and share their intermediate memory. If
a check of the step fails, ``MinibatchSteps`` repeats the step from there, and raises the error.
"""

import logging
import math
from typing import Any, NamedTuple

import numpy as np

from ... import check
from ...bounds.objectives import elbo_and_grad
from ...bounds.svgp import SVGP
from ...kernels.cuda.common import graphs
from ...optim.base import Optimiser
from ...records import is_record, leaves, replace, tree_map
from ...runtime import deferred_checks, devices
from .base import Snapshot
from .minibatch import MinibatchSteps

log = logging.getLogger("fastsvgp")


def reason_against(model, optimisers, random, ours=True):
    """Return the reason why steps cannot be captured; None if they can.

    ``ours`` : refuse classes from outside this package
    """
    optimiser, natural, inverse, _, m_steps = optimisers
    if devices.device_array(model) is None:
        return "the model is on the host"
    if type(model) is not SVGP:
        return f"they are not for a {type(model).__name__}"
    if natural is not None or inverse is not None:
        return "natural steps, and updates of an inverse, branch on the host"
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
    """Return the optimiser, and every record of the model."""
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
    """Fixed device memory of a model and of the moments of its optimiser."""

    model: Any
    moments: tuple


class CapturedSteps(MinibatchSteps):
    """``MinibatchSteps`` by CUDA graphs, for models without a ``reason_against``.

    The graphs write to two places in turn.
    """

    _places = _graphs = _inputs = None
    _here = 0

    def _move_to(self, model, optimised, scheduled):
        if self._places is None:
            self._places = tuple(
                Place(_copy(model), tuple(m.copy() for m in _moments(optimised))) for _ in range(2)
            )
        else:
            self._write(self._places[1 - self._here], model, *_moments(optimised))
        self._finish_at(1 - self._here, optimised)

    def _finish_at(self, here, optimised):
        """Finish a step to this place; of ``optimised`` only what is not an array is used."""
        place = self._places[here]
        optimised = _replace_moments(optimised, place.moments)
        self._here = here
        self._model = place.model
        self._optimised = optimised
        self._scheduled = None
        fields = {"optimiser": optimised, "natural": None}
        self.snapshot = Snapshot(lambda: _copy(place.model), lambda: fields, lambda: place.model)

    def _write(self, place, model, *moments):
        """Copy the trained fields of a model, and moments, into a place."""
        moved = self._optimiser.paths(model)
        for (path, _, to), (_, _, new) in zip(leaves(place.model), leaves(model), strict=True):
            if path in moved:
                to[...] = new
        for to, new in zip(place.moments, moments, strict=True):
            to[...] = new

    def _take(self):
        if self._graphs == ():  # capture has failed
            return super()._take()
        state = self._optimised
        try:
            self._fill(
                self._batches.at(self._step), [*self._optimiser.sizes(state), state.count + 1]
            )
            value, clamped = deferred_checks.outcome(self._graphs[self._here]().get())
        except graphs.NotCaptured as error:
            log.warning(
                "fit: steps cannot be captured into a graph (%s); continuing without", error
            )
            self._graphs = ()
            return self._repeat_synchronously()
        except MemoryError:
            raise
        except Exception:
            return self._repeat_synchronously()
        if not math.isfinite(value):
            return self._repeat_synchronously()
        check.report_clamped(clamped)
        step_size = self._optimiser.step_size_at(state)
        self._finish_at(1 - self._here, self._optimiser.observe(state, value))
        return value, {
            "step_size": step_size,
            "natural_step_size": None,
            "jitter": self._jitter,
            "inverse": None,
        }

    def _fill(self, batch, numbers):
        """Copy a batch and the numbers of a step to the inputs of the graphs."""
        if self._graphs is None:
            whole = self._batches.size == self._batches.num_data
            self._inputs = batch if whole else tuple(a.copy() for a in batch)
            self._numbers = np.empty(len(numbers), like=devices.device_array(self._model))
            there, back = (self._body(*self._places[::turn]) for turn in (1, -1))
            first = graphs.Recorded(there)
            self._graphs = first, graphs.Recorded(back, beside=first)
        for there, here in zip(self._inputs, batch, strict=True):
            if there is not here:
                there[...] = here
        self._numbers[...] = devices.copy_to(np.array(numbers, np.float64), self._numbers)

    def _body(self, source, target):
        """Return a function that takes a step from one place to the other without synchronising."""
        state, (X, Y, *weights) = _replace_moments(self._optimised, source.moments), self._inputs
        weights = {"weights": weights[0]} if weights else {}

        def step():
            *sizes, count = (self._numbers[i] for i in range(len(self._numbers)))
            with deferred_checks.until_end() as checks:
                _, grad = elbo_and_grad(
                    source.model, X, Y, num_data=self._batches.num_data, jitter=self._jitter,
                    wrt=self._moving(source.model, state), **weights,
                )  # fmt: skip
                self._optimiser.ascent(
                    source.model, grad, state, sizes, count, out=(target.model, *target.moments)
                )
                return checks.report_all()

        return step


def _moments(optimised):
    return tuple(m for m in (optimised.first, optimised.second) if m is not None)


def _replace_moments(optimised, moments):
    return replace(optimised, **dict(zip(("first", "second"), moments, strict=False)))


def _copy(model):
    return tree_map(
        lambda value: value.copy() if deferred_checks.on_device(value) else value, model
    )
