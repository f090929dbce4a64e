"""Steps of any model with natural steps: L-BFGS-B on its bound at the optimal q(u)."""

import numpy as np

from ...bounds.objectives import elbo_and_grad
from ...errors import Diverged
from ...posteriors.placed import paths_of_q
from ...runtime import devices
from ..natural_steps import to_optimum
from .lbfgs import CollapsedSteps

NATS = 1e-6  # smallest rise of the bound by a natural step that continues an E-step
MOST = 20  # natural steps of an E-step
FAILED = 2  # status of SciPy's L-BFGS-B if its line search finds no better point
FAR = 1e3  # a trial point is refused below the reference by this times its magnitude


class ProfiledSteps(CollapsedSteps):
    """Iterations of L-BFGS-B on the bound as a function of everything but q(u).

    At each point natural steps of at most 1, which do not lower the bound, take q(u) to its
    optimum, from the q(u) of the last accepted point. There the bound is stationary in q(u), so its
    gradient in the other fields is that of the profiled bound. With Gaussian noise, also of known
    variances, one step reaches the optimum, and the bound is the collapsed one.

    Positive parameters move by their logarithms. By softplus, whose slope falls towards zero as the
    parameter does, more trainings end where lengthscales near zero explain nothing, after twice the
    iterations.
    """

    transform = "log"

    def __init__(self, state, data, fixed, jitter, dtype):
        self._reached = self._trial = state.model
        super().__init__(state, data, (*fixed, *paths_of_q(state.model)), jitter, dtype)
        self._options = {"weights": self._weights, "rng": state.seed}

    def at_end(self, model):
        return {}

    def run(self, count, record):
        if not self._unravel.size:  # q(u) alone is free
            start = self._host(self._vector)
            return self._accept(-self._loss(start)[0], start, record)
        status, end, began = FAILED, self._step + count, None
        # an E-step that did not end can fail a line search: it goes on from where it is
        while status == FAILED and began != self._step:
            began = self._step
            status = self._minimise(end - began, record)
            self._vector = self._unravel.pack(self._reached)

    def _at(self, vector):
        return self._unravel(devices.like(vector, self._unravel.home), like=self._reached)

    def _accepted(self, vector):
        self._reached = self._trial  # a line search takes the last point that it has tried
        return self._reached

    def _bound_and_grad(self, model, jitter):
        X, Y, options = self._X, self._Y, self._options | {"jitter": jitter}
        model = to_optimum(model, X, Y, steps=MOST, tolerance=NATS, **options)
        value, grad = elbo_and_grad(model, X, Y, wrt=self._unravel.paths, **options)
        least = -np.inf if self._reference is None else -self._reference
        if value < least - FAR * max(1.0, abs(least)):
            # a line search that saw such a value would go back too far
            raise Diverged(f"the bound is {value:g} there")
        self._trial = model
        return value, grad
