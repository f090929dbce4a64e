"""Advice after a training that found nothing or ended short, by the model and the data."""

from dataclasses import dataclass

import numpy as np

from ..runtime import tuning

MANY = 10  # inputs from which fewer are advised
LEAST = 1e-3  # nats per row: gain over a tenth of the training that justifies more steps


@dataclass(frozen=True)
class Outcome:
    """How a training ended, its model and its data.

    Attributes
    ----------
    solver : str
        "lbfgs", "adam" or "natural"; "search" if candidates competed.
    ended : str
        Result of ``how_it_ended``. A search is "short" if it used all of its time, else "level".
    collapses : bool
        Whether a collapsed bound exists: Gaussian noise, one layer.
    rows, inputs : int
    inducing : int or None
        Of all sets; None if inducing inputs are not rows.
    """

    solver: str
    ended: str
    collapses: bool
    rows: int
    inputs: int
    inducing: int | None


def how_it_ended(solver, reason, values, rows):
    """Return "converged", "level" (minibatch bound or score no longer rises) or "short".

    reason : of ``FitInfo``; "patience" if held-out rows ended the training
    values : (steps,) array, the bound at each step
    """
    if reason == "interrupted" or (solver == "lbfgs" and reason == "steps"):
        return "short"
    if reason == "patience":
        return "level"
    if solver == "lbfgs":
        return "converged"
    tenth = len(values) // 10
    if tenth < 2:
        return "short"
    before, last = values[-2 * tenth : -tenth], values[-tenth:]
    noise = np.sqrt((np.var(before) + np.var(last)) / tenth)
    return "short" if np.mean(last) - np.mean(before) > max(LEAST * rows, 2 * noise) else "level"


def remedies(outcome, words):
    """Return one line: why the training found nothing, and what to try.

    words : dict
        The interface's phrases for "longer", "minibatches", "all", "exact", "more", "fewer" and
        "covariance", and for a search "seconds"; ``{rows}`` and ``{more}`` in a phrase are numbers
        of inducing inputs.
    """
    fewer = ["fewer"] * (outcome.inputs >= MANY)
    if outcome.solver == "search":  # it chose training, inducing inputs and covariance
        short = outcome.ended == "short"
        why = "the search used all of its time" if short else "the search ended before its time"
        return _advice(why, ["seconds"] * short + fewer, words)
    why = {
        "short": "the training was short",
        "level": "more steps gain nothing",
        "converged": "L-BFGS has converged",
    }[outcome.ended]
    ways = (
        ["longer"]
        if outcome.ended == "short"
        else ["minibatches"]
        if outcome.solver == "lbfgs"
        else []
    )
    if outcome.inducing is not None and outcome.inducing < outcome.rows:
        exact = outcome.collapses and outcome.solver != "lbfgs"
        ways.append(
            "more" if outcome.rows > tuning.current.retry_rows else "exact" if exact else "all"
        )
    more = min(outcome.rows, 2 * (outcome.inducing or 0))
    return _advice(why, [*ways, *fewer, "covariance"], words, rows=outcome.rows, more=more)


def _advice(why, ways, words, **numbers):
    if not ways:
        return why
    *first, last = (words[way].format(**numbers) for way in ways)
    return f"{why}; try {', '.join(first)}{' or ' if first else ''}{last}"


def describe_end(steps, outcome, words):
    """Return one line: the training ended short after so many steps, and what to try."""
    unit = "iterations" if outcome.solver == "lbfgs" else "steps"
    return f"the training ended short of convergence, after {steps} {unit}; try {words['longer']}"
