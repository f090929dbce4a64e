"""The stages of a search for classes or counts."""

from dataclasses import replace as changed

import numpy as np

from ....bounds.objectives import elbo
from ....runtime import tuning
from ..networks import DEEP, RELU, WIDE
from ..plan import PlanMismatch
from ..race import FAILURES, Race, reason
from ..rows import groups_of
from .candidates import Deep, LinearModel, Plain
from .looks import TargetLook, look_at, look_of
from .temperature import cross_validated_temperature

PART = 0.4  # of the time, for each of two candidates compared by their bounds
BOUND_ROWS = 10_000  # on which bounds are compared
MOST_AT_ONCE = 200  # steps of such a candidate


class TargetStages(Race):
    """A search for counts, or classes with codes 0 ... C - 1."""

    def __init__(self, likelihood, *others):
        super().__init__(*others)
        self._likelihood = likelihood

    def _look_at(self, candidate):
        return look_at(candidate, self.held, self._plan)

    _look_of = staticmethod(look_of)

    def run(self):
        """Run all stages; set ``best``, and ``first``, the look that ``best`` has to beat."""
        if self.held is None or self._plan.seconds < tuning.current.race_seconds:
            return self._at_once()
        plain, inputs = self._better_inputs(self._make(Plain))
        name = f"linear, {inputs} inputs"
        linear = self._make(LinearModel)(name, inputs)
        candidates = [plain, linear]
        for architecture in (WIDE, RELU, DEEP) if self._takes_networks else ():
            name = f"network {architecture.name}, {inputs} inputs"
            candidates.append(self._make(Deep)(name, inputs, architecture))
        self._finish(self._race(candidates))
        if self.best is None:
            raise self.error
        self._settle({one.name: one for one in candidates})
        bounds = {one: self._bound(look) for one in (plain, linear) if (look := self._last(one))}
        self.first = self._last(max(bounds, key=bounds.get)) if bounds else None

    def _make(self, kind):
        def make(name, inputs, *more):
            return kind(name, *self._data(inputs), self._rng(), self._likelihood, *more)

        return make

    def _at_once(self):
        """Train a linear model and a process on raw inputs; the larger bound is the answer.

        For few rows or little time.
        """
        brief = self._plan.seconds < tuning.current.race_seconds
        why = f"less than {tuning.current.race_seconds:g} s" if brief else "few distinct rows"
        self.say(f"linear and plain, compared by their bounds: {why}")
        found = {}
        for kind, name in ((LinearModel, "linear"), (Plain, "plain")):
            candidate = self._make(kind)(f"{name}, raw inputs", "raw")
            try:
                candidate.take_at_once(self._plan, PART * self._plan.seconds, MOST_AT_ONCE)
                found[candidate] = self._bound(candidate)
            except PlanMismatch:
                raise
            except FAILURES as error:
                self.error = error
                self.say(f"{candidate.name}: failed ({reason(error)})")
                continue
            self.say(f"{candidate.name}, {candidate.steps} steps: bound {found[candidate]:.4g}")
        if not found:
            raise self.error
        candidate = max(found, key=found.get)
        # set before the cross-validation, which can be interrupted
        self.best = TargetLook(
            candidate.name, self._plan.spent, candidate.steps, np.nan, np.nan, (1.0,), None,
            candidate.scale, None, candidate.model, self._likelihood.counts,
        )  # fmt: skip
        self.best = changed(self.best, factors=(self._cross_validated(candidate),))

    def _cross_validated(self, candidate):
        try:
            groups = groups_of(self.rows.X, np.random.default_rng(0))  # of unscaled inputs
            return cross_validated_temperature(
                candidate.model, candidate.rows, groups, self._plan, candidate.step_seconds
            )
        except PlanMismatch:
            raise
        except FAILURES as error:
            self.say(f"cross-validation: failed ({reason(error)})")
            return 1.0

    def _bound(self, one):
        """Return the bound of the model of a candidate or look on at most ``BOUND_ROWS`` rows."""
        inputs = next(name for name, scale in self._scales.items() if scale is one.scale)
        rows = self._data(inputs)[1].drawn(BOUND_ROWS, np.random.default_rng(2))
        self._plan.did(8 * one.model.posterior.mean.size * len(one.model.inducing) * len(rows))
        return elbo(one.model, rows.X, rows.y, weights=rows.weights, num_data=len(self.rows))
