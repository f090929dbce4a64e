"""The decisions that depend on time, as a list that repeats a search.

Time affects a search only through counts: of steps, of iterations, of inducing inputs. A plan is
the list of these counts in the order of the decisions. A search with a plan takes its counts from
there, so it repeats the earlier search to the bit on the same number of threads.

A stage is the training of one candidate and the look at it. An interrupted search is a record of
its finished stages, which a file can hold. A resumed search runs through the same decisions, but
takes the state of each candidate from there instead of training it.
"""

import json
import time
from typing import Any

from ...errors import DataFileError
from ...records import leaf, record, static
from ...records.persistence import as_json, load
from ...records.typed import Array, Record
from ...train import data_digests
from ..routine import seed_of

RATE = 4e10  # floating-point operations per second if the clock counts work
CALL = 1e-3  # seconds per step, in addition to its operations


class PlanMismatch(ValueError):
    """A plan of another search."""


class SearchPlan:
    """The clock of a search, and the counts decided by it.

    Parameters
    ----------
    seconds : float
        The budget.
    by_work : bool
        Count operations instead of wall time, so that plans are the same on every machine.
    given : sequence of (what, count), optional
        Counts of an earlier search to repeat. The clock decides all later counts.
    """

    def __init__(self, seconds, by_work=False, given=()):
        self.seconds, self._worked = seconds, 0.0 if by_work else None
        self._began, self._given, self.counts = time.perf_counter(), list(given), []
        self.signals = ()  # Ctrl-C as ``collect_signals`` has it: its exception can get lost

    @property
    def spent(self):
        """Seconds since the start, or counted work in seconds."""
        return time.perf_counter() - self._began if self._worked is None else self._worked

    def did(self, flops, calls=1):
        """Add work to the clock; end the search if Ctrl-C was pressed since the last call."""
        if self.signals:
            raise KeyboardInterrupt
        if self._worked is not None:
            self._worked += flops / RATE + CALL * calls

    @property
    def left(self):
        return self.seconds - self.spent

    def count(self, what, decided):
        """Return the next count: from the plan, else ``decided``, a number or a function."""
        at = len(self.counts)
        if at < len(self._given):
            there, count = self._given[at]
            if there != what:
                raise PlanMismatch(
                    f"`plan` is not one of this search: count {at} is of {there!r}, and here"
                    f" {what!r} is needed; use the data and arguments of the search that made it"
                )
        else:
            count = int(decided() if callable(decided) else decided)
        self.counts.append((what, count))
        return count

    def jump(self, count, spent):
        """Go to the moment of the given plan after ``count`` counts and ``spent`` seconds."""
        if count > len(self._given):
            raise PlanMismatch("`plan` is shorter than that of the search in `resume`")
        self.counts = self._given[:count]
        if self._worked is None:
            self._began = time.perf_counter() - spent
        else:
            self._worked = spent

    def to_json(self):
        return {"seconds": self.seconds, "counts": [list(pair) for pair in self.counts]}


def counts_of(plan):
    """Check a plan from ``search``, a dict or its JSON text; return its counts."""
    if plan is None:
        return []
    try:
        plan = json.loads(plan) if isinstance(plan, str) else plan
        counts = [(str(what), int(count)) for what, count in plan["counts"]]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"`plan` must be the `plan` of an earlier search, got {plan!r:.80}"
        ) from error
    if any(count < 0 for _, count in counts):
        raise ValueError("`plan` holds a negative count")
    return counts


# --- interrupted searches ---


@record
class SavedStage:
    """A candidate at the end of a stage.

    Parameters
    ----------
    model, optimiser : record, optional
        Of the candidate.
    order : (n,) array of int, optional
        Rows that the current epoch has not used yet.
    candidate : str
    numbers : dict
        Further state of the candidate.
    look : dict, optional
        Measurements of the look; None if the candidate failed.
    failure : str
        The reason for a failure.
    count : int
        Counts of the plan up to here.
    spent, look_seconds : float
        The clock of the plan, and the time of the last look.
    """

    model: Record | None = None
    optimiser: Record | None = None
    order: Array | None = leaf(default=None)
    candidate: str = static(default="")
    numbers: dict[str, Any] | None = static(default=None)
    look: dict[str, Any] | None = static(default=None)
    failure: str = static(default="")
    count: int = static(default=0)
    spent: float = static(default=0.0)
    look_seconds: float = static(default=0.0)


@record
class SavedSearch:
    """An interrupted search: ``fs.search(..., resume=...)`` goes on with it.

    Parameters
    ----------
    stages : tuple of SavedStage
    plan : dict
        As ``SearchResult.plan``.
    seed : int
    data : dict
        Digests of the rows.
    likelihood : str
        Name of its class; "" for real-valued targets.
    """

    stages: tuple[Record, ...] = ()
    plan: dict[str, Any] | None = static(default=None)
    seed: int = static(default=0)
    data: dict[str, Any] | None = static(default=None)
    likelihood: str = static(default="")


def saved_search(stages, plan, seed, rows, likelihood):
    """Return the ``SavedSearch`` of these stages; None if there are none."""
    if not stages:
        return None
    return SavedSearch(
        stages=tuple(stages),
        plan=plan.to_json(),
        seed=seed,
        data=as_json("digests", data_digests.compute(X=rows.X, y=rows.y)),
        likelihood=_name(likelihood),
    )


def load_to_resume(given, rows, likelihood, rng):
    """Return a ``SavedSearch`` or the one in a file; ``ValueError`` if it is of another search.

    Without ``given`` it has no stages, and the seed of ``rng``.
    """
    seed = seed_of(rng)
    if given is None:
        return SavedSearch(seed=seed)
    saved = given if isinstance(given, SavedSearch) else load(given)
    if not isinstance(saved, SavedSearch):
        raise DataFileError(
            f"`resume`: {given} holds a {type(saved).__name__}, not an interrupted search"
        )
    found = data_digests.differences(saved.data, data_digests.compute(X=rows.X, y=rows.y))
    if saved.likelihood != _name(likelihood):
        found.append("the likelihood is another one")
    if rng is not None and saved.seed != seed:
        found.append(f"the seed was {saved.seed}, here it is {seed}")
    if found:
        raise ValueError(
            f"`resume` is of another search: {'; '.join(found)}. Use the data and arguments of the"
            " search that made it"
        )
    return saved


def stage_of(candidate, look, failure, plan, look_seconds):
    """Return the ``SavedStage`` of a candidate that was just trained."""
    model, optimiser, order, numbers = candidate.get_state()
    return SavedStage(
        model=model,
        optimiser=optimiser,
        order=order,
        candidate=candidate.name,
        numbers=as_json("state", numbers),
        look=None if look is None else as_json("look", measurements_of(look)),
        failure=failure,
        count=len(plan.counts),
        spent=plan.spent,
        look_seconds=look_seconds,
    )


def measurements_of(look):
    """Return the numbers of a look that its candidate does not have."""
    return {
        "seconds": look.seconds,
        "score": look.score,
        "rmse": look.rmse,
        "factors": look.factors,
    }


def restore(stage, candidate, plan):
    """Put a candidate and the plan into the state at the end of a stage."""
    if stage.candidate != candidate.name:
        raise PlanMismatch(
            f"`resume` is of another search: there {stage.candidate!r} came next, and here"
            f" {candidate.name!r}; use the data and arguments of the search that made it"
        )
    candidate.restore(stage.model, stage.optimiser, stage.order, stage.numbers)
    plan.jump(stage.count, stage.spent)


def _name(likelihood):
    return "" if likelihood is None else type(likelihood).__name__
