"""Training of an SGPR on all data at once: L-BFGS-B on the collapsed bound."""

import logging
import math
import time

import numpy as np

from .. import devices
from ..bounds.collapsed import collapsed_bound_and_grad
from ..errors import Diverged, NotPositiveDefinite
from ..interrupts import obeyed
from ..kernels.governed import computing
from ..kernels.verdicts import on_device
from ..optim.flat import ravel
from ..records import replace
from .info import FitInfo, StepInfo
from .jitter import with_more_jitter

log = logging.getLogger("fastsvgp")


class _Enough(Exception):
    """The callback asked for the end."""


class CollapsedTrainer:
    """One call of ``fit`` on an SGPR. ``state`` is the last point that the line search accepted."""

    def __init__(self, state, X, Y, fixed, plan, jitter, dtype):
        self.state, self._X, self._Y, self._plan = state, X, Y, plan
        self._jitter, self._dtype = jitter, dtype
        vector, self._unravel = ravel(state.model, fixed=fixed)
        self._vector = self._host(vector)
        self._values = [] if state.values is None else list(state.values)
        self._started = time.perf_counter() - state.seconds
        self._retried, self._reference = False, None
        self._begun, self._asked = state.step, []

    def run(self):
        """Train until L-BFGS-B or the plan ends it: ``(model, FitInfo)``."""
        with obeyed(ending=self._plan.checkpoints.path is not None) as self._asked:
            reason = self._loop()
            if reason != "interrupted" or self.state.step > self._begun:  # nothing reached is nothing to write over an older one
                self._save()
            end = self.snapshot()
            info = FitInfo(end.values, end.trend.smoothed, np.empty((0, 2)), end.step, end.seconds, reason, end.retries)
            return end.model, info

    def _loop(self):
        """Iterate until L-BFGS-B, the plan or a signal ends it; returns the reason."""
        from scipy.optimize import minimize

        plan = self._plan
        try:
            if self.state.step >= plan.steps:
                return "steps"
            options = {"maxiter": plan.steps - self.state.step, "maxfun": 100 * plan.steps, "maxcor": 20}
            with computing((self.state.model, self._X)):  # SciPy's optimiser has products too
                found = minimize(self._loss, self._vector, jac=True, method="L-BFGS-B", callback=self._accepted, options=options)
            log.info("L-BFGS-B: %s", found.message)
        except _Enough:
            return "callback"
        except KeyboardInterrupt:
            return "interrupted"
        except BaseException as error:  # that of sys.exit() in a callback or in another's handler of a signal too
            if self.state.step > self._begun:
                self._save()
            error.add_note(plan.checkpoints.whereabouts("iteration", self.state.step, plan.steps))
            raise
        return "steps" if self.state.step >= plan.steps else "converged"

    def snapshot(self):
        state = self.state
        values = np.array(self._values[: state.step], np.float64)
        return replace(state, values=values, seconds=time.perf_counter() - self._started)

    def _save(self):
        self._plan.checkpoints.write(self.snapshot)

    @staticmethod
    def _host(vector):
        """SciPy's line search runs on the host."""
        return vector.get() if on_device(vector) else vector

    def _loss(self, vector):
        """Minus the bound, and its gradient.

        A trial point of the line search where the bound cannot be computed, even with more jitter, gets a value that is worse
        than the best so far by as much as that is worth: the line search then comes back.
        """
        model = self._unravel(devices.like(vector, self._unravel.home))

        def compute(jitter):
            return collapsed_bound_and_grad(model, self._X, self._Y, jitter=jitter, wrt=self._unravel.paths)

        try:
            (value, grad), used = with_more_jitter(compute, self._jitter, self._dtype, self.state.step + 1)
            self._retried |= used > self._jitter
            flat = -self._host(self._unravel.pullback(devices.like(vector, self._unravel.home), grad))
            if math.isfinite(value) and np.isfinite(flat).all():
                self._reference = -value if self._reference is None else self._reference
                return -value, flat
            problem = f"the bound is {value}, or its gradient is not finite"
        except (NotPositiveDefinite, Diverged) as error:
            if self._reference is None:
                raise
            problem = str(error).split(". Likely")[0]
        if self._reference is None:
            raise ValueError(f"fit: {problem} at the model to start from; standardise inputs and targets, or start elsewhere")
        log.warning("iteration %d: the line search went too far and comes back (%s)", self.state.step + 1, problem)
        return self._reference + max(1.0, abs(self._reference)), np.zeros_like(vector)

    def _accepted(self, intermediate_result):
        """After each iteration; SciPy passes an OptimizeResult to an argument of this name."""
        plan, state, value = self._plan, self.state, -float(intermediate_result.fun)
        self._reference = -value
        model = self._unravel(devices.like(intermediate_result.x, self._unravel.home))
        self._values.append(value)
        trend = state.trend.observe(value, 0.0, 0.0)
        self.state = replace(state, model=model, trend=trend, step=state.step + 1, retries=state.retries + self._retried)
        self._retried = False
        if plan.checkpoints.due(self.state.step):
            self._save()
        if plan.callback is not None:
            seconds = time.perf_counter() - self._started
            info = StepInfo(model, value, seconds, float(self.state.step), None, None, self._jitter)
            if plan.callback(self.state.step, value, info):
                raise _Enough
        if self._asked:
            raise KeyboardInterrupt
