"""``fastsvgp fit`` without a method: the search of ``recipes`` chooses the model.

It holds out rows of the training part.
"""

import contextlib
import json
import os
import sys
import time
from argparse import Namespace
from dataclasses import replace

import numpy as np

import fastsvgp as fs

from ..check import DEFAULT_JITTER
from ..recipes.model_search.rows import LIKELIHOODS
from ..recipes.remedies import Outcome
from . import report
from .errors import INTERRUPTED, UsageError, option_of
from .fitted import Fitted
from .report import lines
from .report.outputs import PLAN, SEARCH, output_folder, save_model, writing
from .report.results import facts_of
from .settings.defaults import SECONDS

SPENT = 0.8  # part of the time from which a search has used all of it
# options of a method, which turn the search off
METHOD_OPTIONS = (
    "method", "covariance", "periodic", "ard", "inducing", "orthogonal", "sampled", "latents",
    "neighbours", "layers", "width",
    "patch_shape", "image_shape", "stride", "features", "dense_columns", "basis_batch",
    "control_points", "learn_hyperparameters", "steps", "epochs", "batch_size", "learning_rate",
    "natural_step", "e_steps", "m_steps", "jitter", "within",
)  # fmt: skip


def search_of(args, task):
    """Return the settings of a search; None if arguments choose a method or no search exists."""
    given = {name: getattr(args, name, None) for name in METHOD_OPTIONS}
    given |= {"mpi": args.mpi, "dtype": args.dtype if args.dtype != "float64" else None}
    # an absent flag is False, but False for ard means --no-ard
    chosen = [
        option_of(name)
        for name, value in given.items()
        if value is not None and (value is not False or name == "ard")
    ]
    refusals = (
        chosen
        and f"the search decides model and training, and {chosen[0]} does, too; leave out one of"
        " the two",
        task.y.ndim > 1 and "the search is for one target, and here are several; leave it out",
        task.second and f"there is no search with --{task.second.option}; leave it out",
        (task.likelihood not in LIKELIHOODS or not _has_all_classes(task))
        and f"there is no search for the {task.likelihood} likelihood with these rows"
        f" ({task.reason}); leave it out",
    )
    refusal = next(filter(None, refusals), None)
    if refusal is not None:
        of_search = (
            ("--seconds", args.seconds is not None),
            ("--extrapolate", args.extrapolate),
            ("--no-average", not args.average),
        )
        asked = next((option for option, given in of_search if given), None)
        if asked is not None:
            raise UsageError(f"{asked}: {refusal}")
        return None
    seconds = SECONDS if args.seconds is None else args.seconds
    return Namespace(**{**vars(args), "seconds": seconds})


def _has_all_classes(task):
    """Whether every class occurs in the training rows."""
    return task.classes is None or len(np.unique(task.y[~task.test])) == len(task.classes)


def search_task(task, search, folder, title, origin, began):
    """Search, save, evaluate and report; return the exit code.

    ``began``: ``time.perf_counter()`` before the data were read.
    """
    say = lines.Lines(search.quiet)
    plan = _plan(folder) if search.resume else None
    with output_folder(folder):
        lines.data(say, task, search, title)
        say(f"  method     the best model that {search.seconds:g} s find (--method chooses one)")
        rows, started = ~task.test, time.perf_counter()
        found = fs.search(
            task.X[rows],
            task.y[rows],
            search.seconds,
            likelihood=task.likelihood,
            rng=search.seed,
            plan=plan,
            resume=_saved_stages(folder) if search.resume else None,
            extrapolate=search.extrapolate,
            average=search.average,
            split=_split_of(task),
            tell=lambda line: say(f"  search     {line}"),
        )
        seconds = time.perf_counter() - started
        jitter = DEFAULT_JITTER[found.model.inducing.dtype]
        fitted = Fitted.from_task(task, found.model, found.scale, jitter)
        path = save_model(fitted, folder)
        _keep_or_drop_plan(folder, found)
        compiled = (
            f", and {found.compiling:.1f} s to load and compile" if found.compiling > 1 else ""
        )
        say(f"  trained    {found.chosen} in {seconds - found.compiling:.1f} s{compiled}")
        results = _results(task, search, found, seconds, fitted, title)
        results |= {"source": origin, "test": report.evaluate(fitted, task)}
        model = f"{found.chosen} on {title}"
        written, why_not = report.write(say, folder, fitted, task, results, (), model)
    lines.scores(say, results)
    lines.files(say, [path, *written], folder, why_not)
    spent = {
        "reading": started - began,
        "compiling": found.compiling,
        "search": seconds - found.compiling - found.answering,
        "last posterior": found.answering,
        "scores and pictures": time.perf_counter() - started - seconds,
    }
    lines.spent(say, spent)
    return INTERRUPTED if found.interrupted else 0


def _split_of(task):
    """Return the split of the training rows; a time is one of the inputs."""
    new = task.new
    if new.time is not None:
        return replace(new, time=task.input_names.index(new.name))
    return new if new.groups is None else replace(new, groups=new.groups[~task.test])


def _plan(folder):
    path = os.path.join(folder, PLAN)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise UsageError(
            f"--resume: {folder} holds no checkpoint and no {PLAN} to continue from; see --out"
        ) from None
    except ValueError as error:
        raise UsageError(f"--resume: {path} is damaged ({error}); search again") from None


def _saved_stages(folder):
    """Return the file of finished stages; None if the search was interrupted before any."""
    path = os.path.join(folder, SEARCH)
    return path if os.path.exists(path) else None


def _keep_or_drop_plan(folder, found):
    """Write plan and stages of an interrupted search, for --resume; else delete these files."""
    plan, stages = os.path.join(folder, PLAN), os.path.join(folder, SEARCH)
    if found.interrupted:
        with open(plan, "w", encoding="utf-8") as file:
            json.dump(found.plan, file)
        if found.saved is not None:
            with writing(stages):
                fs.save(stages, found.saved)
        print(
            "interrupted: the best model so far is kept; the same command with --resume goes on"
            " after the last candidate of the story",
            file=sys.stderr,
        )
        return
    for path in (plan, stages):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _results(task, search, found, seconds, fitted, title):
    inducing = len(found.model.inducing)
    spent = found.interrupted or seconds - found.compiling > SPENT * search.seconds
    ended, sizes = "short" if spent else "level", (int((~task.test).sum()), task.X.shape[1])
    outcome = Outcome("search", ended, task.likelihood == "gaussian", *sizes, inducing)
    return facts_of(task, search, fitted, title, seconds, found.interrupted, outcome) | {
        "method": "search",
        "budget": search.seconds,
        "chosen": found.chosen,
        "inducing": inducing,
        "steps": sum(look["steps"] for look in found.looks[-1:]),
        "looks": list(found.looks),
        "story": list(found.story),
        "holds_by_search": found.holds,
        "plan": found.plan,
        "compiling_seconds": round(found.compiling, 3),
    }
