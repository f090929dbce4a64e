"""``search``: a model for a table and an amount of time, without settings."""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ... import check
from ...likelihoods import Poisson
from ...records.typed import ArrayLike, Seed
from ...runtime import tuning
from ...runtime.signals import collect_signals
from ..beyond_range import unsure_outside
from ..names import MULTICLASS
from ..scaling import UNUSED, Scale
from ..searching import Start
from ..splits import Split
from .classes_and_counts import ClassesAndCounts
from .left_out import few_labels
from .plan import SearchPlan, counts_of, load_to_resume, saved_search
from .regression import Regression
from .rows import SearchRows, distinct_count, hold_out, number_held, sample_for_ranks, task_of

FEW = 200  # distinct rows below which nothing is held out
STEERING = 0.1, 50, 3000  # rows that score looks: part of the others, at least, at most
LAST_WORD = 0.1, 40, 2000  # rows used once: part of all, at least, at most
# the same where groups or the future are new
OF_LABELS = 0.15, 40, np.inf
INTERRUPTED = "interrupted: the best look so far is the result"


@dataclass(frozen=True)
class SearchResult(Start):
    """Result of a search: a trained model and how it was found.

    Attributes
    ----------
    model : SVGP, VIF, Mixture or MultiGP
        Trained, in float64 and standardised units: ``fs.predict_y(found.model, found.scale.X(X))``.
    fit : dict
        Empty, because the model is trained.
    scale : Scale
    plan : dict
        The decisions that depended on time. ``search(..., plan=plan)`` repeats the search to the
        bit.
    story : tuple of str
        One line per look and per decision.
    looks : tuple of dict
        One per look: ``candidate``, ``seconds``, ``steps``; ``log_density`` and ``rmse`` of
        held-out rows in standardised units; ``factors`` of variance and noise. Classes have
        ``accuracy`` instead of ``rmse``.
    chosen : str
        Name of the candidate that became ``model``.
    compiling : float
        Seconds in which kernels were compiled or loaded, before the clock started.
    holds : str
        For what the scores hold, such as new groups, and which they are, with a ``split``.
    answering : float
        Seconds of the last posterior, after the candidates.
    interrupted : bool
        Whether Ctrl-C ended the search: ``model`` is then the best look so far.
    saved : SavedSearch or None
        What ``search(..., resume=found.saved)`` needs to go on with an interrupted search.
    """

    plan: dict = field(default_factory=dict)
    story: tuple = ()
    looks: tuple = ()
    chosen: str = ""
    compiling: float = 0.0
    interrupted: bool = False
    saved: Any = None
    holds: str = ""
    answering: float = 0.0


def search(
    X: ArrayLike,
    y: ArrayLike,
    seconds: float = 60.0,
    *,
    likelihood: str = "gaussian",
    weights: ArrayLike | None = None,
    rng: Seed = None,
    plan: Any = None,
    by_work: bool = False,
    tell: Callable[[str], object] | None = None,
    resume: Any = None,
    extrapolate: bool = False,
    average: bool = True,
    split: Split | None = None,
) -> SearchResult:
    """Find the best model in an amount of time.

    Train candidates for a short time each: processes on inputs, on their ranks, and on the features
    of networks; for real-valued targets other structures of the covariance and near rows, for
    classes and counts a linear model. The best one on held-out rows gets the
    rest of the time. Other held-out rows, used once, decide whether it replaces the first
    candidate. For real-valued targets this is an exact process (up to 1,500 rows) or a process from
    relevant lengthscales; for classes and counts it is the linear model or the process on inputs.
    The final posterior uses all rows. Several candidates become a ``Mixture`` where that predicts
    better, and noise that varies with the inputs makes a ``MultiGP``.

    Parameters
    ----------
    X : (N, D) array
    y : (N,) array
        Numbers, counts, or labels of classes.
    seconds : float
        Wall time, counted from the end of compilation. The last posterior can take a few seconds
        more.
    likelihood : str
        "gaussian" (real-valued targets; Student-t noise is tried), "poisson" (counts), "classes"
        ("bernoulli-probit" for two classes, "softmax" for more), "bernoulli-probit",
        "bernoulli-logit", "softmax" or "robustmax".
    weights : (N,) array, optional
        Non-negative weight of each row.
    rng : None, int or Generator
    plan : dict or str, optional
        ``SearchResult.plan`` of an earlier search, or its JSON. With the same data, ``seconds``,
        seed and number of threads the model is the same to the bit.
    by_work : bool
        Count operations, 4e10 per second, instead of time. The plan is then the same on every
        machine.
    tell : function ``(line)``, optional
        Called with each line of the story during the search.
    resume : SavedSearch or path, optional
        ``SearchResult.saved`` of an interrupted search of the same data, or a file that
        ``fs.save`` wrote of it. Finished stages are not trained again, and the clock goes on where
        it stopped.
    extrapolate : bool
        Leave ranks and networks out, so that a process on the inputs themselves extrapolates. By
        default the variance of a raced model grows outside the training range, and all but such a
        process of real-valued targets keep their value at its border.
    average : bool
        With at most 300 rows of real-valued targets, average a process over 16 draws of its
        parameters (``fs.priors.laplace`` with priors of lengthscales): a ``Mixture``. False keeps
        the point estimate.
    split : Split, optional
        What will be new where the model is used: rows, whole groups, or the future. Rows that are
        held out are of that kind, and so are the candidates: with groups, random effects of groups
        and processes without the columns that only name the group; with a column of time, a level
        and cycles in time, and ``extrapolate``.

    Returns
    -------
    SearchResult
        A trained ``Start``.

    Raises
    ------
    ValueError, TypeError
        As ``regression`` and ``classification``; ``seconds`` is not a positive number; the plan
        belongs to another search.
    KeyboardInterrupt
        Ctrl-C before the first look. Later Ctrl-C ends the search with the best look so far.

    Notes
    -----
    Memory: more than five times that of X in float64, and the features of 4096 rows at a time. A
    ``numpy.memmap`` X of more than 20,000 rows is not copied: rows are read and scaled when they
    are used, and memory holds samples of at most 20,000 of them. ``found.scale.back``
    converts the mean and variance of numbers. For classes it converts codes to labels:
    ``found.scale.back(p > 0.5)`` for two, ``found.scale.back(p.argmax(axis=1))`` for more.

    Examples
    --------
    >>> found = fs.search(X, Y, seconds=1.0, rng=0)
    >>> mean, var = found.scale.back(*fs.predict_y(found.model, found.scale.X(X)))
    >>> found.chosen, mean.shape == Y.shape
    ('exact', True)
    >>> found.story[0]
    'exact, without a race: few distinct rows'
    """
    seconds = check.scalar("seconds", seconds)
    if not 0 < seconds < math.inf:
        raise ValueError(f"`seconds` must be positive and finite, got {seconds:g}")
    given = counts_of(plan)
    check.flag("extrapolate", extrapolate)
    check.flag("average", average)
    split = Split() if split is None else split
    if not isinstance(split, Split):
        raise TypeError(f"`split` must be a fs.recipes.Split, got {type(split).__name__}")
    labels = split.labels(X)
    likelihood, raw, rows = task_of(likelihood, X, y, weights)
    if labels is not None:
        there = slice(None) if weights is None else np.asarray(weights) > 0
        rows = replace(rows, labels=labels.labels[there], later=labels.later)
        raw = without_column(raw, labels)
        extrapolate = extrapolate or (labels.later and labels.column is not None)
    earlier = load_to_resume(resume, rows, likelihood, rng)
    seed, given = earlier.seed, given or counts_of(earlier.plan)
    began = time.perf_counter()
    _rehearse(likelihood)
    compiling = time.perf_counter() - began
    plan = SearchPlan(seconds, by_work, given)
    with collect_signals() as signals:
        tell = tell or (lambda line: None)
        wanted = earlier.stages, not extrapolate, average
        race = _race_of(likelihood, rows, raw, plan, seed, tell, *wanted)
        race.new, race.column = split.what, labels and labels.column
        if extrapolate:
            race.say("neither ranks nor networks take part, because the model has to extrapolate")
        interrupted = _run(race, plan, signals)
        answering = time.perf_counter()
        try:
            model, chosen = race.answer(interrupted)
        except KeyboardInterrupt:
            interrupted = True
            race.say(INTERRUPTED)
            model, chosen = race.answer(interrupted)
    # without a race the answer is a process on inputs, which goes back to its prior by itself
    if not extrapolate and (likelihood is not None or race.looks):
        # linear parts of classes and counts would grow
        held = likelihood is not None or chosen.scale is not raw
        model = unsure_outside(model, chosen.scale, rows, held)
    looks = tuple(one.to_json() for one in race.looks)
    return SearchResult(
        model,
        {},
        chosen.scale,
        plan.to_json(),
        tuple(race.story),
        looks,
        chosen.candidate,
        compiling,
        interrupted,
        saved_search(race.done, plan, seed, rows, likelihood) if interrupted else None,
        race.holds,
        time.perf_counter() - answering,
    )


def without_column(scale, labels):
    """Return a scale in whose units a column of groups has no effect."""
    if labels.later or labels.column is None:
        return scale
    x_scale = scale.x_scale.copy()
    x_scale[labels.column] = UNUSED
    return replace(scale, x_scale=x_scale)


def _race_of(likelihood, rows, raw, plan, seed, tell, earlier, networks, average):
    """Make the race of these rows, with held-out rows if there are enough."""
    ranks = raw if not networks else raw.add_column_maps(*sample_for_ranks(rows))
    ranks = raw if ranks is raw or all(column is None for column in ranks.x_map) else ranks
    split = rows, None, None
    # without a race nothing is held out
    brief = likelihood is not None and plan.seconds < tuning.current.race_seconds
    if _holds_out(rows, likelihood) and not brief:
        rng = np.random.default_rng([seed, 0])
        sizes = (LAST_WORD, STEERING) if rows.labels is None else (OF_LABELS, OF_LABELS)
        rest, last = hold_out(rows, number_held(rows, *sizes[0]), rng)
        split = *hold_out(rest, number_held(rest, *sizes[1]), rng), last
    given = likelihood, rows, *split, raw, ranks, plan, seed, tell, earlier, networks, average
    return (Regression if likelihood is None else ClassesAndCounts)(*given)


def _holds_out(rows, likelihood):
    """Whether rows are held out: not if they are few, or exact processes can leave them out."""
    if rows.labels is None or likelihood is not None:
        return distinct_count(rows) >= FEW
    if len(rows) <= tuning.current.exact_rows:
        return False
    return not few_labels(rows)


def _run(race, plan, signals):
    """Run the race; return whether Ctrl-C ended it. Before the first look it is raised."""
    interrupted, plan.signals = False, signals
    try:
        race.run()
    except KeyboardInterrupt:
        if race.best is None:
            raise
        interrupted = True
    finally:
        plan.signals = ()
    if interrupted or signals:
        race.say(INTERRUPTED)
    return interrupted or bool(signals)


def _rehearse(likelihood):
    """Run every kind of step once to compile or load the kernels."""
    _rehearse_kind(None if likelihood is None else type(likelihood))


@functools.cache
def _rehearse_kind(kind):
    X = np.random.default_rng(0).standard_normal((60, 2))
    y = np.sin(X[:, 0])
    if kind is not None:
        y = (y > 0).astype(np.int64 if kind is not Poisson else np.float64)
    likelihood = kind and (kind(num_classes=3) if kind in MULTICLASS.values() else kind())
    rows, raw = SearchRows(X, y), Scale.fit(X, y, kind is None)
    plan = SearchPlan(0.0)
    race = (Regression if kind is None else ClassesAndCounts)(
        likelihood, *[rows] * 4, raw, raw, plan, 0, print
    )
    for candidate in race.rehearsal_candidates():
        candidate.take(plan, 0.0)
        race._look_at(candidate)
