"""Minibatch steps of a first-order optimiser, optionally with natural-gradient steps of q(u)."""

import functools
import logging
import math

import numpy as np

from ... import check, models
from ...bounds.inverse_free_direction import lsvgp_direction
from ...bounds.objectives import elbo_and_grad
from ...errors import BadEntry
from ...optim.natural.step import natural_step, natural_step_and_grad
from ...posteriors.locate import posteriors_of, replace_posteriors
from ...priors.on_models import plus_log_prior
from ...runtime import cuda_reductions, deferred_checks, devices
from ..natural_steps import SHARE_FACTOR, steps_on
from .base import MoreJitter, Snapshot, Steps

log = logging.getLogger("fastsvgp")


class MinibatchSteps(Steps):
    """Steps from ``state``, a ``TrainingState``, by ``optimisers``, without updates in place.

    A step is a round of ``e_steps`` natural steps, each on its own batch, and
    ``m_steps`` steps of the optimiser: the first on the last of these batches, others on new
    ones.
    """

    def __init__(self, state, batches, optimisers, random, jitter, dtype, priors=None):
        self._optimiser, self._natural, self._inverse, self._e_steps, self._m_steps = optimisers
        self._batches, self._priors = batches, priors
        self._random, self._jitter, self._warned = random, jitter, False
        self._with_more_jitter = MoreJitter(jitter, dtype)
        self._seed, self._step = state.seed, state.step
        self._drawn = None, None  # epoch and seed that ``_draws`` returned last
        self._group = batches.group
        self._on_device = devices.device_array(state.model) is not None
        alone_on_device = self._group is None and self._on_device and not priors
        self._defers_checks = alone_on_device and not getattr(self._optimiser, "needs_value", True)
        self._move_to(state.model, state.optimiser, state.natural)

    def _move_to(self, model, optimised, scheduled):
        self._model, self._optimised, self._scheduled = model, optimised, scheduled
        self.snapshot = Snapshot(
            lambda: model, lambda: {"optimiser": optimised, "natural": scheduled}
        )

    @property
    def _per_round(self):
        return self._e_steps + self._m_steps - 1

    def run(self, count, record):
        for _ in range(count):
            value, step_info = self._take()
            self._step += 1
            epoch = self._step * self._per_round * self._batches.size / self._batches.num_data
            record(value, step_info["jitter"] > self._jitter, epoch=epoch, **step_info)

    def rehearse(self):
        """Compute the bound of a single row and discard it, to compile what a step needs."""
        X, Y, *_ = self._batches.at(self._step * self._per_round)
        wrt = self._moving(self._model, self._optimised)
        if self._natural is not None and models.offers("natural_step_and_grad", self._model):
            natural_step_and_grad(
                self._model, X[:1], Y[:1], wrt=wrt, jitter=self._jitter, **self._random
            )
        else:
            elbo_and_grad(self._model, X[:1], Y[:1], wrt=wrt, jitter=self._jitter, **self._random)

    def _take(self):
        """Take one step; return its objective, and its fields of ``StepInfo``."""
        if self._group is not None:
            self._move_to(*self._group.begin_step(self._model, self._optimised, self._scheduled))
        if not self._defers_checks:
            return self._attempt()
        try:
            with deferred_checks.until_end() as checks:
                return self._attempt(checks)
        except MemoryError:
            raise
        except Exception:  # can hide the error of a check that has not been read yet
            return self._repeat_synchronously()

    def _repeat_synchronously(self):
        """Repeat the step with synchronous checks, so that the first failed check raises."""
        with deferred_checks.synchronous():
            return self._attempt()

    def _attempt(self, checks=None):
        """Do the work of ``_take``.

        With ``checks`` the objective and the checks of the gradient are read in one copy at the
        end. On a device it has the same sums as a captured step.
        """
        if not self._on_device:
            return self._compute_step(checks)
        with cuda_reductions.plain_reductions():
            return self._compute_step(checks)

    def _compute_step(self, checks):
        model = self._model
        optimised = self._optimised
        scheduled = self._scheduled
        step = self._step
        at = step * self._per_round
        batch = self._batches.at(at)
        value = requested = natural_size = step_size = inverse = objective = None
        if step == 0:
            model, _ = self._update_inverse(model, batch[0])
        used, grad = self._jitter, None
        if self._natural is not None:
            requested = self._natural.size(step, scheduled)
            batches = [batch, *(self._batches.at(at + i) for i in range(1, self._e_steps))]
            natural = functools.partial(
                self._natural_steps, model, batches, at, requested, self._moving(model, optimised)
            )
            (model, taken, value, grad), used = self._safely(natural)
            natural_size = taken[-1].step_size
            batch, at = batches[-1], at + self._e_steps - 1
            self._log_backtracking(taken, requested)
        for i in range(self._m_steps):
            batch = self._batches.at(at + i) if i else batch
            paths = self._moving(model, optimised)
            if (i or grad is None) and (paths or value is None):
                (value, grad), also_used = self._gradient(at + i, model, batch, paths)
                used = max(used, also_used)
            objective, slope = plus_log_prior(self._priors, model, value, grad)
            self._refuse_infinite(objective, model)
            if self._optimiser.paths(model):
                step_size = self._optimiser.step_size_at(optimised)
                model, optimised = self._optimiser.step(model, slope, optimised, objective)
            if checks is not None and checks.holds_value:
                value, clamped = deferred_checks.outcome(checks.report_all().get())
                check.report_clamped(clamped)
                self._refuse_infinite(value, model)
                objective = value  # steps with priors defer nothing
            model = self._move_posteriors(model, grad, requested)
            model, inverse = self._update_inverse(model, batch[0])
        if self._natural is not None:
            scheduled = self._natural.observe(scheduled, objective)
        self._move_to(model, optimised, scheduled)
        return objective, {
            "step_size": step_size,
            "natural_step_size": natural_size,
            "jitter": used,
            "inverse": inverse,
        }

    def _gradient(self, at, model, batch, paths):
        """Return ``((value, grad), jitter)`` of a batch, with respect to these paths."""
        exact = self._inverse is None or self._inverse.direction == "exact"
        bound_and_grad = (
            functools.partial(elbo_and_grad, **self._random) if exact else lsvgp_direction
        )
        return self._safely(
            functools.partial(
                self._call_bound, bound_and_grad, at, model, batch, wrt=paths, **self._options(at)
            )
        )

    def _log_backtracking(self, taken, requested):
        for one in taken:
            if one.backed_off:
                log.info(
                    "step %d: the natural step of %g would leave the cone; took %g",
                    self._step + 1,
                    requested,
                    one.step_size,
                )

    def _refuse_infinite(self, value, model):
        if not math.isfinite(value):
            at = self._step + 1
            what = f"fit: the bound is {value} at step {at}, though all parameters are finite"
            raise check.diverged_error(what, model, at)

    def _moving(self, model, optimised):
        """Return the leaves that the next gradient step updates."""
        return self._optimiser.moving(model, optimised)

    def _move_posteriors(self, model, grad, natural_size):
        """Return the model after gradient steps other than the optimiser's: here unchanged."""
        return model

    def _natural_steps(self, model, batches, at, size, paths, *, jitter):
        """Take a natural step on each batch; return ``(model, infos, value, gradient)``.

        ``at`` is the number of the first batch. The value is the last one computed. The gradient,
        in ``paths`` and on the last batch, is None if it needs a separate pass.
        """
        exact = self._inverse is None or self._inverse.direction == "exact"
        if len(batches) == 1 and paths and exact and models.offers("natural_step_and_grad", model):
            options = (
                {"step_size": size, "wrt": paths, "jitter": jitter}
                | self._options(at)
                | self._random
            )
            stepped, info, value, grad = self._call_bound(
                natural_step_and_grad, at, model, batches[0], **options
            )
            return replace_posteriors(model, posteriors_of(stepped)), [info], value, grad
        shares = isinstance(getattr(model, "posterior", None), SHARE_FACTOR)
        if len(batches) == 1 or self._group is not None or not shares:
            infos = []
            for i, batch in enumerate(batches):
                # as in ``steps_on``
                more = self._options(at if shares else at + i) | self._random
                stepped, info = self._call_bound(
                    natural_step, at + i, model, batch, step_size=size, jitter=jitter, **more
                )
                model = replace_posteriors(model, posteriors_of(stepped))
                infos.append(info)
            return model, infos, infos[-1].value, None

        def call(function, i, *args):
            return self._call_located(function, at + i, *args)

        options = self._options(at) | {"step_size": size, "jitter": jitter, "call": call}
        stepped, infos = steps_on(model, batches, **options)
        return replace_posteriors(model, posteriors_of(stepped)), infos, infos[-1].value, None

    def _options(self, at):
        """Return the common options of all bounds of the batch with this number."""
        group = {} if self._group is None else {"group": self._group}
        return {"num_data": self._batches.num_data, "rng": self._draws(at)} | group

    def _draws(self, step):
        """Return the seed of the random draws of the bound at a step."""
        # likelihoods that sample get new points every 16 steps, because making them costs more
        # than a small step; other draws are cheap
        epoch_of_draws = step // (1 if self._random else 16)
        epoch, seed = self._drawn
        if epoch != epoch_of_draws:
            sequence = np.random.SeedSequence([self._seed, 1, epoch_of_draws])
            self._drawn = _, seed = epoch_of_draws, int(sequence.generate_state(1)[0])
        return seed

    def _update_inverse(self, model, X):
        """Update the factor of an inverse, if any; return the model and the outcome or None."""
        if self._inverse is None:
            return model, None
        model, outcome = self._inverse.update_factor(
            model, self._jitter, X, self._batches.num_data, self._group
        )
        for one in outcome if type(outcome) is tuple else (outcome,):
            if one is not None:
                self._log_update(one)
        return model, outcome

    def _log_update(self, outcome):
        """Log an update of an inverse that has not reached its tolerance."""
        if not outcome.converged:
            log.log(
                logging.DEBUG if self._warned else logging.WARNING,
                "step %d: the factor of the inverse has not reached its tolerance: %s after %d"
                " updates, normalised residual %.2g%s",
                self._step + 1,
                outcome.reason,
                outcome.steps,
                outcome.residual,
                "" if self._warned else " (further such steps are logged at level DEBUG)",
            )
            self._warned = True

    def _safely(self, function):
        return self._with_more_jitter(lambda jitter: function(jitter=jitter), self._step + 1)

    def _call_bound(self, function, at, model, batch, **kwargs):
        """Call a bound, or a step, on the batch with this number."""
        X, Y, *weights = batch
        return self._call_located(
            function, at, model, X, Y, **kwargs, **({"weights": weights[0]} if weights else {})
        )

    def _call_located(self, function, at, *args, **kwargs):
        """Call a function of a batch, and have a ``BadEntry`` name the row of the data."""
        if self._group is not None:
            # called before the error is sent to the other ranks
            self._group.locate = lambda error: self._batches.locate(error, at)
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except BadEntry as error:
            self._batches.locate(error, at)
            raise
