"""The finished stages of an interrupted search, as a record that a file can hold.

A stage is the training of one candidate and the look at it. A resumed search runs through the same
decisions, but takes the state of each candidate from here instead of training it.
"""

from typing import Any

from ...errors import DataFileError
from ...records import leaf, record, static
from ...records.persistence import as_json, load
from ...records.typed import Array, Record
from ...train import data_digests
from ..routine import seed_of
from .plan import PlanMismatch


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
        As ``Found.plan``.
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
        data=as_json("digests", data_digests.of(X=rows.X, y=rows.y)),
        likelihood=_name(likelihood),
    )


def to_resume(given, rows, likelihood, rng):
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
    found = data_digests.differences(saved.data, data_digests.of(X=rows.X, y=rows.y))
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
    model, optimiser, order, numbers = candidate.saved()
    return SavedStage(
        model=model,
        optimiser=optimiser,
        order=order,
        candidate=candidate.name,
        numbers=as_json("state", numbers),
        look=None if look is None else as_json("look", measured(look)),
        failure=failure,
        count=len(plan.counts),
        spent=plan.spent,
        look_seconds=look_seconds,
    )


def measured(look):
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
