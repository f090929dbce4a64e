"""``fastsvgp fit``: from a table to a model, held-out metrics, plots and a report."""

import contextlib
import os
import sys
import time

from . import mpi, report
from .data import targets
from .data.held_out import split
from .data.source import STANDARD_INPUT
from .data.tables import FileFormat
from .data.task import load_task, scale_of
from .errors import INTERRUPTED, UsageError
from .fitted import Fitted
from .model_search import search_of, search_task
from .report import lines
from .report.outputs import (
    CHECKPOINT,
    check_owner,
    default_folder,
    output_folder,
    save_model,
    source,
)
from .report.results import results_of
from .settings.resolve import resolve
from .training import build, holds, outcome, train


def run(args):
    """Fit a model to a file. Return exit code 0, or 130 if Ctrl-C ended the training early."""
    if args.mpi:
        return mpi.run_on_ranks(_run, args)
    mpi.refuse_copies()
    return _run(args)


def _run(args, group=None):
    _refuse_to_read_twice(args)
    began = time.perf_counter()
    task = load_task(
        args.file,
        target=args.target,
        target_file=args.target_file,
        ignore=args.ignore,
        likelihood=args.likelihood,
        second=targets.second_requested(args),
        missing=args.missing,
        group=args.group,
        time=args.time,
        file_format=FileFormat.of(args, images=args.patch_shape is not None, na=tuple(args.na)),
    )
    split(task, fraction=args.test_fraction, mask=args.test_mask, seed=args.seed)
    name = (
        "stdin"
        if args.file == STANDARD_INPUT
        else args.file
        if os.path.isfile(args.file)
        else "pipe"
    )
    folder, origin = args.out or default_folder(name), source(args.file, task)
    if args.out is None:
        check_owner(folder, origin)
    title = os.path.basename(name)
    search = search_of(args, task)
    # the interrupted training of a method leaves a checkpoint; a search never does
    if search is not None and not (
        args.resume and os.path.exists(os.path.join(folder, CHECKPOINT))
    ):
        return search_task(task, search, folder, title, origin, began)
    return _fit_task(task, resolve(args, task, group), folder, title, origin)


def _refuse_to_read_twice(args):
    """Refuse standard input for two arguments, because it can be read only once."""
    mask = (args.test_mask or "").rpartition(":")
    paths = [args.file, args.target_file, mask[0] or mask[2]]
    if sum(path in (STANDARD_INPUT, "/dev/stdin") for path in paths) > 1:
        raise UsageError(
            "standard input can be read only once: of FILE, --target-file and --test-mask, give at"
            " most one as standard input"
        )


def _fit_task(task, settings, folder, title, origin):
    """Prepare, train, save, evaluate, report and print; return the exit code.

    Parameters
    ----------
    task : Task
        Already split.
    settings : FitSettings
    folder : path
        Output folder.
    title : str
        Name of the data in reports.
    origin : dict
        Result of ``source`` for the data.
    """
    if settings.resume and not os.path.isdir(folder):
        raise UsageError(
            f"--resume: there is no folder {folder} with a checkpoint to continue from; see --out"
        )
    say = lines.Lines(settings.quiet)
    with contextlib.ExitStack() as after, output_folder(folder):
        _refuse_unfinished(folder, settings)
        fitted = _prepare(task, settings, say, title)
        started = time.perf_counter()
        trained = train(fitted, task, settings, folder)
        seconds = time.perf_counter() - started
        after.enter_context(mpi.ranks_apart())
        code = INTERRUPTED if trained.interrupted else 0
        if not settings.leads:
            return code
        fitted.model, fitted.jitter = trained.model, trained.jitter
        path = save_model(fitted, folder, lambda: _describe_checkpoint(trained))
        ended = outcome(task, settings, trained)
        lines.training(say, trained, seconds, ended)
        _keep_or_drop_checkpoint(trained, path)
        results = results_of(task, settings, trained, seconds, fitted, title, ended)
        results |= {"source": origin, "test": report.evaluate(fitted, task)}
        model = f"{lines.describe_model(task, settings)} on {title}"
        written, why_not = report.write(say, folder, fitted, task, results, trained.values, model)
    lines.scores(say, results)
    lines.files(say, [path, *written], folder, why_not)
    return code


def _refuse_unfinished(folder, settings):
    """Refuse to overwrite the checkpoint of an unfinished run."""
    if not settings.resume and os.path.exists(os.path.join(folder, CHECKPOINT)):
        raise UsageError(
            f"{folder} holds {CHECKPOINT} of an unfinished run: continue it with --resume; to"
            " start again, delete the file or choose another --out"
        )


def _prepare(task, settings, say, title):
    """Build the untrained model with its scaling, and print the choices."""
    scale = scale_of(task, shared=bool(settings.patch_shape))
    lines.data(say, task, settings, title)
    lines.model(say, task, settings)
    model = build(task, scale, settings)
    return Fitted.from_task(task, model, scale)


def _describe_checkpoint(trained):
    """Say that a checkpoint holds a model that could not be written to its folder, or None."""
    if not holds(trained):
        return None
    then = "continues" if trained.interrupted else "writes the results without training again"
    return (
        f"the trained model is safe in {trained.checkpoint}: once the folder is writable, the same"
        f" command with --resume {then}"
    )


def _keep_or_drop_checkpoint(trained, path):
    """Delete the checkpoint unless the training was interrupted."""
    there = os.path.exists(trained.checkpoint)
    if trained.interrupted:
        more = "; the same command with --resume continues from here" if there else ""
        print(
            f"interrupted: the model after {lines.steps(trained)} is kept in {path}{more}",
            file=sys.stderr,
        )
    elif there:
        os.unlink(trained.checkpoint)
