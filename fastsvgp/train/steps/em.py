"""Rounds of EM: natural steps of q(u) to convergence, then steps of everything else."""

import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...bounds.elbo import elbo_and_grad
from ...errors import BadEntry, Diverged, InvalidSites, NotPositiveDefinite
from ...optim.flat import ravel
from ...optim.natural.backtracking import non_decreasing
from ...posteriors.placed import paths_of_q
from ...records import leaf, record
from ...runtime import devices
from ...runtime.blas_scope import blas_threads_for
from ...runtime.deferred_checks import on_device
from ...sites.models import SITES_OF
from ...sites.site_svgp import site_bound_and_grad
from ..natural_steps import natural_steps
from .base import Snapshot, Steps

log = logging.getLogger("fastsvgp")


@record
class Rounds:
    """Per round: the bound after the E-step, its natural steps, evaluations of the M-step."""

    e_values: Any = leaf()
    e_steps: Any = leaf()
    m_evaluations: Any = leaf()


@dataclass(frozen=True)
class EMSettings:
    """Arguments of one call of ``em``, beside model, data and files; ``em`` documents them."""

    rounds: int
    e_limit: int
    e_tolerance: float
    m_iterations: int
    step_size: float
    optimiser: Any
    fixed: tuple
    tolerance: float
    jitter: float | None
    rng: Any  # a seed
    batch_size: int | None


class EMSteps(Steps):
    """Rounds from ``state``, a ``TrainingState``, without updates in place."""

    unit = "round"

    def __init__(self, state, X, Y, options, jitter):
        self._X, self._Y, self._options = X, Y, options
        self._jitter, self._seed = jitter, state.seed
        self._last = (
            None if state.values is None or not len(state.values) else float(state.values[-1])
        )
        self._of_sites = type(state.model) in SITES_OF
        self._held = (*options.fixed, *paths_of_q(state.model))
        self._move_to(state.model, state.natural)

    def _move_to(self, model, rounds):
        self._model, self.rounds = model, rounds
        self.snapshot = Snapshot(lambda: model, lambda: {"natural": rounds})

    def run(self, count, record):
        for _ in range(count):
            value, size = self._round()
            rise, self._last = math.inf if self._last is None else value - self._last, value
            done = float(len(self.rounds.e_values))
            step_info = {"step_size": None, "natural_step_size": size, "jitter": self._jitter}
            record(value, False, epoch=done, **step_info)
            if rise < self._options.tolerance:
                return

    def _round(self):
        o = self._options
        model, infos = (self._e_step if o.batch_size is None else self._e_step_by_batches)()
        after_e, _ = self._bound(model, ())
        model, value, evaluations = (
            self._m_step_by_lbfgs if o.optimiser is None else self._m_step_by_optimiser
        )(model, after_e)
        entries = zip(
            ("e_values", "e_steps", "m_evaluations"),
            (after_e, len(infos), evaluations),
            strict=True,
        )
        self._move_to(
            model,
            Rounds(
                **{name: np.append(getattr(self.rounds, name), float(x)) for name, x in entries}
            ),
        )
        return value, infos[-1].step_size if infos else 0.0

    def _e_step(self):
        o = self._options
        return natural_steps(
            self._model,
            self._X,
            self._Y,
            steps=o.e_limit,
            step_size=o.step_size,
            jitter=self._jitter,
            rng=o.rng,
            monotone=True,
            tolerance=o.e_tolerance,
        )

    def _e_step_by_batches(self):
        o, model, size, infos = self._options, self._model, self._options.step_size, []
        value, N = self._bound(model, ())[0], len(self._X)
        for epoch in range(o.e_limit):
            order = np.random.default_rng(
                (self._seed, len(self.rounds.e_values), epoch)
            ).permutation(N)
            batches = (order[start : start + o.batch_size] for start in range(0, N, o.batch_size))
            try:
                moved, of_epoch = natural_steps(
                    model,
                    self._X,
                    self._Y,
                    rows=batches,
                    step_size=size,
                    jitter=self._jitter,
                    rng=o.rng,
                )
                after = self._bound(moved, ())[0]
            except (Diverged, InvalidSites) as error:
                log.debug(
                    "em: an epoch of steps of %g went too far and is taken back (%s)",
                    size,
                    str(error).split(". ")[0],
                )
                size /= 2
                continue
            if not non_decreasing(after, value, self._X.dtype):
                size /= 2
                continue
            infos += of_epoch
            rise, value, model = after - value, after, moved
            if rise < o.e_tolerance:
                break
        return model, infos

    def _bound(self, model, wrt):
        bound = site_bound_and_grad if self._of_sites else elbo_and_grad
        return bound(model, self._X, self._Y, jitter=self._jitter, rng=self._options.rng, wrt=wrt)

    def _m_step_by_lbfgs(self, model, value):
        from scipy.optimize import minimize

        vector, unravel = ravel(model, fixed=self._held)
        best = {"value": value, "model": model}
        if not unravel.paths or not self._options.m_iterations:
            return model, value, 0

        def loss(vector):
            """Return minus the bound, or, if it cannot be computed, a value worse than the best.

            The line search then backtracks.
            """
            there = unravel(devices.like(vector, unravel.home))
            try:
                value, grad = self._bound(there, unravel.paths)
                flat = unravel.pullback(devices.like(vector, unravel.home), grad)
                flat = -(flat.get() if on_device(flat) else flat)
                # the line search would interpolate 1e200 to no step at all
                worst = best["value"] - 10 * max(1.0, abs(best["value"]))
                if math.isfinite(value) and value > worst and np.isfinite(flat).all():
                    if value > best["value"]:
                        best.update(value=value, model=there)
                    return -value, flat
            except (NotPositiveDefinite, InvalidSites, Diverged, BadEntry) as error:
                log.debug(
                    "em: the line search went too far and comes back (%s)",
                    str(error).split(". ")[0],
                )
            return -best["value"] + max(1.0, abs(best["value"])), np.zeros_like(vector)

        with blas_threads_for((model, self._X)):
            start = vector.get() if on_device(vector) else vector
            options = {"maxiter": self._options.m_iterations, "maxcor": 20}
            found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return best["model"], best["value"], found.nfev

    def _m_step_by_optimiser(self, model, value):
        optimiser = self._options.optimiser.fixing(self._held)
        state, paths = optimiser.init(model), optimiser.paths(model)
        for _ in range(self._options.m_iterations if paths else 0):
            value, grad = self._bound(model, paths)
            model, state = optimiser.step(model, grad, state, value)
        return model, self._bound(model, ())[0], self._options.m_iterations
