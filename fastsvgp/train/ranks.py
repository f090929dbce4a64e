"""``fit`` on several ranks: each takes its part of every step, and all end together.

Model and optimiser are bitwise the same on every rank, because they are updated by all-reduced
numbers. Only rank 0 calls back, validates, logs and writes checkpoints. A decision of a single rank
(an interrupt, an error in a callback, patience with a score) is reported when the ranks meet next,
in place of a computation; all ranks then end with the step before. After the last step they meet
once more, which confirms that every rank has finished.
"""

import contextlib
import logging
import os
import re
import tempfile
import threading

import numpy as np

from .. import files, models
from ..distributed import broadcast, reduce, same_data
from ..distributed.protocol import (
    NUMBERS,
    Communicator,
    Disagreement,
    Stopped,
    TrainingGroup,
    disagreement,
    is_reported,
    mark_reported,
    mark_unreported,
)
from ..errors import Diverged, warn
from ..records import replace
from ..runtime.signals import stop_after_step
from .arguments import rows as data_rows
from .loop import Recorder, StopTraining, info_of

log = logging.getLogger("fastsvgp")
# reasons to stop, as numbers: their sum counts the ranks for each
REASONS = {"interrupted": 1, "callback": 2**16, "patience": 2**32}
KINDS = "SVGP, DeepGP, SGPR and OrthogonalSGPR"
ALONE = {
    "QSGP": (
        "a step takes some hundred rows and a sample of the basis, for any size of data, so that"
        " there is little to share"
    )
}
ON_RANK_0 = "callback", "validate", "checkpoint", "resume", "note"


class Session(TrainingGroup):
    """A group during one call of ``fit``.

    num_rows : number of rows of all ranks; counts : rows of positive weight per rank;
    validates, ending : whether rank 0 validates, and writes checkpoints;
    over : whether no rank waits for a report any more, because all know how the training ends
    """

    def __init__(self, group, facts, validates, ending):
        super().__init__(group)
        self.rank, self.size, self.own = group.rank, group.size, group.rows == "own"
        self.counts = [one["_rows"][1] for one in facts]
        self.num_rows = sum(one["_rows"][0] for one in facts) if self.own else facts[0]["_rows"][0]
        self.validates, self.ending, self.replicating = validates, ending, False
        self.over = False

    def begin_step(self, *state):
        """Return the state at the start of a step: that of rank 0, if the ranks have drifted."""
        if self.replicating:
            self.report()
            state = [broadcast.broadcast_record(self.group, part) for part in state]
        self.fingerprint = reduce.fingerprint(state[0])
        return state

    def rows_of(self, X, Y, weights):
        """Return ``(X, Y, weights)`` of this rank."""
        _, self.locate, *own = reduce.rows_of(self.group, X, Y, weights)
        return own


def run(fit, group, model, X, Y, given):
    """Run ``fit(model, X, Y, given, session)`` on all ranks of a group, each with a ``Session``."""
    communicator = Communicator.of(group)
    everyone = communicator.run(lambda: communicator.gather(_facts(group, model, X, Y, given)))
    data = [one["_data"] for one in everyone if "_data" in one]
    if data and (other := same_data.differing(data)):
        raise disagreement(NUMBERS + other[0], other[1])
    if not isinstance(everyone[0]["seed"], int):
        # no seed was given: rank 0 draws one
        seed = reduce.common_seed(communicator, given["rng"])
        given = given | {"rng": np.random.default_rng(seed)}
    validates, ending = given["validate"] is not None, given["checkpoint"] is not None
    session = Session(group, everyone, validates, ending)
    with contextlib.ExitStack() as stack:
        if group.rank:
            given = given | {"callback": None, "validate": None, "checkpoint": None}
            stack.enter_context(_quiet())
        communicator.training = True
        try:
            if given["resume"] is not None:
                copy = _copy_checkpoint(communicator, given["resume"])
                given = given | {"resume": stack.enter_context(copy)}
            return fit(model, X, Y, given, session)
        except Exception as failure:
            if not session.over and not is_reported(failure):
                session.report(failure)
            raise
        finally:
            communicator.training = False


def _facts(group, model, X, Y, given):
    """Return the arguments on which ranks must agree; names that begin with "_" can differ."""
    X, Y, weights = data_rows("X", X), data_rows("Y", Y), given["weights"]
    _refuse_kind(model)
    counted = _count_rows(group, X, Y, weights)
    found = reduce.facts_of(group, model, X, Y) | {"_rows": [len(X), counted]}
    if group.rows == "all" and group.size > 1:
        found["_data"] = same_data.digest_all(X, Y, weights)
    found["numbers of the model"] = reduce.fingerprint(model)
    if given["resume"] is not None:
        files.as_path("fit: `resume`", given["resume"])
    return found | _facts_of_options(given)


def _refuse_kind(model):
    """Raise ``TypeError`` for a kind of model that a group cannot train."""
    models.serving("fit", model)
    if not any(
        models.takes(name, model, "group") for name in ("elbo_and_grad", "collapsed_bound_and_grad")
    ):
        kind = type(model).__name__
        why = f": {ALONE[kind]}" if kind in ALONE else ", for its bound takes no `group`"
        raise TypeError(
            f"fit: a {kind} is trained by one process{why}. Leave `group` out, or train one of"
            f" {KINDS}"
        )


def _count_rows(group, X, Y, weights):
    """Count the rows of positive weight; ``ValueError`` for data that a rank cannot have."""
    if len(X) != len(Y):
        raise ValueError(
            f"fit: `X` and `Y` must have the same number of rows, got {len(X)} and {len(Y)}"
        )
    if group.rows == "own" and len(X) == 0:
        raise ValueError(
            f'fit: rank {group.rank} has no rows: with rows="own" each rank needs some; use fewer'
            " ranks"
        )
    counted = len(X)
    if weights is not None:
        counted = int((reduce.on_host(weights).reshape(len(X), -1) > 0).any(axis=1).sum())
    if group.rows == "own" and counted == 0:
        raise ValueError(
            f"fit: no row of rank {group.rank} has a weight above 0; each rank needs one that"
            " counts"
        )
    return counted


def _facts_of_options(given):
    found = {"seed": reduce.seed_of(given["rng"])}
    for name, value in given.items():
        if name in ON_RANK_0 or name == "weights":
            found[name] = value is not None
        elif name != "rng":
            found[name] = (
                "function" if callable(value) else re.sub(" at 0x[0-9a-f]+", "", repr(value))
            )
    return found


@contextlib.contextmanager
def _copy_checkpoint(communicator, path):
    """Copy the checkpoint of rank 0 to a file that this rank can read."""
    content = broadcast.broadcast_file(communicator, path)
    if communicator.rank == 0:
        yield path
        return
    handle, copy = tempfile.mkstemp(suffix=".npz")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        yield copy
    finally:
        os.unlink(copy)


@contextlib.contextmanager
def _quiet():
    """Suppress the log of this thread; rank 0 logs."""
    here = threading.get_ident()

    def others(record):
        return record.thread != here

    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)


def recording(state, steps, plan):
    """Make the ``Recorder`` of a training, on one rank or several."""
    return (Recorder if plan.group is None else RankRecorder)(state, steps, plan)


class RankRecorder(Recorder):
    """The ``Recorder`` on one rank of a group; ``plan.group`` is a ``Session``."""

    def __init__(self, state, steps, plan):
        super().__init__(state, steps, plan)
        self._session = plan.group

    def run(self):
        session = self._session
        session.report()  # all ranks are ready
        self._compile()
        with stop_after_step(ending=session.ending) as self._signals:
            reason, error = self._train(), None
            try:
                if reason != "interrupted" or self._state.step > self._start_step:
                    self._save()
                if reason != "interrupted" and not self._signals and session.pending is None:
                    self._validate(at_end=True)
            except BaseException as failure:
                error = _mark_own(failure)
            reason = self._close(reason, error)
        end = self._whole_state()
        if session.validates:
            end = self._best_of_rank_0(end)
        model = end.model if end.best is None else end.best
        more = self._steps.at_end(model)
        self._say_retries(end)
        return model, info_of(end, reason, more)

    def _compile(self):
        """Compile what a step needs on the first rank of each host; others then use the cache."""
        group = self._session.group
        if not hasattr(group, "wait_on_host") or group.local_size == 1:
            return
        try:
            if group.local_rank == 0:
                # the first step reports an error, on all ranks
                with contextlib.suppress(Exception):
                    self._steps.rehearse()
        finally:  # also after Ctrl-C and SystemExit, because the other ranks wait here
            group.wait_on_host()

    def _train(self):
        session, total = self._session, self._plan.steps
        try:
            self._validate()
        except BaseException as error:
            session.pending = _mark_own(error)
        while self._state.step < total:
            try:
                self._steps.run(total - self._state.step, self._record)
                break
            except StopTraining as end:
                return str(end)
            except Stopped as stop:
                session.pending = None
                return _reason(stop.reasons)
            except Disagreement as error:
                if not is_reported(error):
                    raise
                warn(
                    f"step {self._state.step + 1}: the ranks hold different parameters, as rounding"
                    " on different processors makes them; from here on those of rank 0 are sent to"
                    " all before each step"
                )
                session.replicating = True
            except BaseException as error:
                raise self._save_last_step(self._report(error)) from None
        return "steps" if self._state.step >= total else "converged"

    def _report(self, error):
        """Report the error of this rank in place of the next step; return the error to raise."""
        session = self._session
        if is_reported(error):
            # mark the error itself, because ``from None`` drops its cause
            return mark_reported(error)
        session.over = True
        try:
            session.report(error)
        except BaseException as shared:
            return shared
        return error

    def _save_last_step(self, error):
        """Save the last complete step, if training can resume from it; return the error."""
        if not isinstance(error, Diverged) and self._state.step > self._start_step:
            self._save_after(error)
        error.add_note(
            self._plan.checkpoints.whereabouts(self._steps.unit, self._state.step, self._plan.steps)
        )
        return error

    def _record(self, value, retried, **step_info):
        session = self._session
        try:
            super()._record(value, retried, **step_info)
        except StopTraining as end:
            session.pending = Stopped(REASONS[str(end)])
        except BaseException as error:
            session.pending = _mark_own(error)
        state, plan = self._state, self._plan
        more = plan.patience is not None and state.step < plan.steps
        if more and not session.validates and state.trend.waited >= plan.patience:
            raise StopTraining("patience")  # a function of all-reduced numbers, so all ranks stop

    def _check_stop(self):
        """Stop for reasons that only this rank knows."""
        state, plan = self._state, self._plan
        if self._signals:
            raise StopTraining("interrupted")
        if (
            plan.validate is not None
            and plan.patience is not None
            and state.validation.waited >= plan.patience
        ):
            raise StopTraining("patience")

    def _close(self, reason, error):
        """Agree on the reason why all ranks end; raise if one failed after the last step."""
        session = self._session
        pending = error or session.pending
        if pending is None and self._signals:
            pending = Stopped(REASONS["interrupted"])
        session.pending, session.over = None, True
        try:
            session.report(pending)
        except Stopped as stop:
            return _reason(stop.reasons)
        except BaseException as failure:
            raise self._save_last_step(failure) from None
        return reason

    def _best_of_rank_0(self, end):
        """Return the final state with the scores and the best model of rank 0."""
        session, scores = self._session, np.array(end.scores, float).reshape(-1, 2)
        first, *_ = session.communicator.gather({"_scores": scores.tolist()})
        best = end.model if end.best is None else end.best
        best = broadcast.broadcast_record(session.group, best)
        return replace(end, scores=np.array(first["_scores"], float).reshape(-1, 2), best=best)


def _mark_own(error):
    """Return an error raised between steps as one to report; Ctrl-C becomes a request to stop."""
    if isinstance(error, KeyboardInterrupt):
        return Stopped(REASONS["interrupted"])
    return mark_unreported(error)


def _reason(reasons):
    """Return the first reason that some rank has."""
    return next(name for name, unit in REASONS.items() if reasons // unit % 2**16)
