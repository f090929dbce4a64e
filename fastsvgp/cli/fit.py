"""``fastsvgp fit``: a table in; a model, its held-out metrics, its plots and a page of all that out."""

import os
import shlex
import sys
import time
from dataclasses import asdict

import numpy as np

from . import mpi, report
from .data import images
from .data.source import STANDARD_INPUT
from .data.task import Standardisation, load_task, split
from .errors import UsageError, shown
from .fitted import Fitted
from .info import version
from .report import metrics
from .report.outputs import (
    CHECKPOINT,
    MODEL,
    check_owner,
    default_folder,
    output_folder,
    rescued,
    source,
    writing,
)
from .settings import defaults
from .settings.names import LIKELIHOODS, METHODS, NATURAL
from .settings.qsgp import EXACT
from .training import build, holds, outcome, train

INTERRUPTED = 130


def run(args):
    """Fit a model to a file; exit code 0, or 130 when Ctrl-C ended the training early."""
    if args.mpi:
        return mpi.on_ranks(_run, args)
    mpi.refuse_copies()
    return _run(args)


def _run(args):
    _refuse_to_read_twice(args)
    task = load_task(
        args.file,
        target=args.target,
        target_file=args.target_file,
        ignore=args.ignore,
        likelihood=args.likelihood,
        delimiter=args.delimiter,
        header=args.header,
        images=args.patch_shape is not None,
        missing=args.missing,
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
    code, _ = fit_task(task, args, folder, os.path.basename(name), origin)
    return code


def _refuse_to_read_twice(args):
    """Standard input gives its data once."""
    mask = (args.test_mask or "").rpartition(":")
    paths = [args.file, args.target_file, mask[0] or mask[2]]
    if sum(path in (STANDARD_INPUT, "/dev/stdin") for path in paths) > 1:
        raise UsageError(
            "standard input can be read once: give files for the others of FILE, --target-file and"
            " --test-mask"
        )


def fit_task(task, args, folder, title, origin=None):
    """Standardise, initialise, train, evaluate, write.

    Parameters
    ----------
    task : Task
        Split already.
    args : namespace
        The arguments of ``fastsvgp fit``; those about reading are not used.
    folder : path
        For the results.
    title : str
        What to call the data.
    origin : dict, optional
        What ``source`` says about them.

    Returns
    -------
    code, results
        Exit code, and what metrics.json says.
    """
    defaults.settle(args, task)
    if args.method == "sgpr" and task.likelihood != "gaussian":
        raise UsageError(
            f"--method sgpr needs the gaussian likelihood, but here it is {task.likelihood}"
            f" ({task.reason}); use --method svgp"
        )
    if args.natural_step and args.method not in NATURAL:
        mover = {"sgpr": "L-BFGS moves all there is", "qsgp": "AdaGrad moves the posterior"}
        mover = mover.get(args.method, "Adam moves the posterior too")
        raise UsageError(
            f"--natural-step is for --method {', '.join(NATURAL)}; with {args.method} {mover}:"
            " leave it out"
        )
    _check_rounds(args)
    if args.mpi and args.method == "qsgp":
        raise UsageError("--mpi is not for --method qsgp, which one process trains; leave it out")
    given = [
        o
        for o, value in (("--batch-size", args.batch_size), ("--learning-rate", args.learning_rate))
        if value is not None
    ]
    if given and args.method == "sgpr":
        raise UsageError(
            f"--method sgpr trains on all data by L-BFGS; leave out {shown(given)}, which would"
            " have no effect"
        )
    say, said = _silent if args.quiet else print, []
    if args.resume and not os.path.isdir(folder):
        raise UsageError(
            f"--resume: there is no folder {folder} with a checkpoint to go on from; see --out"
        )
    with output_folder(folder):
        if not args.resume and os.path.exists(os.path.join(folder, CHECKPOINT)):
            raise UsageError(
                f"{folder} holds {CHECKPOINT} of a run that did not end: --resume goes on from it;"
                " to start anew delete it, or choose another --out"
            )
        fitted = _prepare(task, args, lambda line: said.append(line) or say(line), title)
        started = time.perf_counter()
        trained = train(fitted, task, args, folder)
        seconds = time.perf_counter() - started
        fitted.model, fitted.jitter = trained.model, trained.jitter
        if args.group is not None and args.group.rank:
            return (INTERRUPTED if trained.interrupted else 0), {}
        path = os.path.join(folder, MODEL)
        with writing(path, lambda: _not_lost(fitted, trained)):
            fitted.save(path)
        said.append(
            f"  trained    {_steps(trained)} in {_time_words(seconds, trained.first_step)}, ELBO"
            f" {trained.elbo:.5g}"
        )
        say(said[-1])
        if trained.interrupted:
            there = (
                "; the same command with --resume goes on from here"
                if os.path.exists(trained.checkpoint)
                else ""
            )
            print(
                f"interrupted: the model after {_steps(trained)} is kept in {path}{there}",
                file=sys.stderr,
            )
        elif os.path.exists(trained.checkpoint):
            os.unlink(trained.checkpoint)
        results = _describe(task, args, trained, seconds, fitted, title) | {"source": origin}
        results["test"] = report.evaluate(fitted, task)
        written = [path, report.write_metrics(folder, results)]
        plotted, why_not = report.write_plots(
            folder, fitted, task, trained.values, f"{_model_words(task, args)} on {title}"
        )
        plotted.append(
            report.write_page(folder, fitted, results, said, trained.values, plotted, why_not)
        )
    say("")
    say(
        metrics.table(results["test"], "held-out rows")
        if results["test"]
        else "  nothing was held out"
    )
    if results["test"] and (
        advice := metrics.advice(results["test"], results["test_rows"], results["outcome"])
    ):
        say(f"  note       {advice}")
    say("")
    say(
        f"  wrote      {', '.join(os.path.basename(p) for p in written + plotted)} in"
        f" {folder}{os.sep}"
    )
    if why_not:
        say(f"  {why_not}")
    return (INTERRUPTED if trained.interrupted else 0), results


def _check_rounds(args):
    """What the arguments about rounds of steps need of the others."""
    if args.method == "tsvgp" and args.natural_step == 0:
        raise UsageError(
            "--natural-step 0: nothing else moves the sites of --method tsvgp; give a step size"
            " above 0"
        )
    for option, value in (("--e-steps", args.e_steps), ("--m-steps", args.m_steps)):
        if value is not None and args.method not in NATURAL:
            raise UsageError(
                f"{option} is for --method {', '.join(NATURAL)}; with {args.method} leave it out"
            )
    if (args.e_steps or 1) > 1 and args.natural_step == 0:
        raise UsageError(
            f"--e-steps {args.e_steps} are natural-gradient steps, and --natural-step is 0; drop"
            " one of them"
        )


def _not_lost(fitted, trained):
    """Where the model of a training is that could not be written to its folder, in words; None where it is nowhere."""
    if holds(trained):
        return (
            f"the trained model is safe in {trained.checkpoint}: that put right, the same command"
            " with --resume "
            f"{'goes on from there' if trained.interrupted else 'writes the results without training again'}"
        )
    path = rescued(fitted.save)
    return (
        path
        and f"the trained model is kept in {path}, which `fastsvgp predict` can use; move it to where there is space"
    )


def _silent(*_):
    pass


def _steps(trained):
    count = len(trained.values)
    return f"{count} step{'s'[: count != 1]}"


def _time_words(seconds, first_step):
    if first_step < max(1, 0.1 * seconds):
        return f"{seconds:.1f} s"
    return (
        f"{seconds:.1f} s ({first_step:.1f} s up to the end of the first step, with all that had to"
        " be compiled for it)"
    )


def _prepare(task, args, say, title):
    """The untrained model with its scaling; says what was decided."""
    train_rows = ~task.test
    num_train, num_inputs = int(train_rows.sum()), task.X.shape[1]
    say(f"{title}")
    say(
        f"  data       {len(task.y)} rows, {num_inputs} input{'s'[: num_inputs != 1]}, target"
        f" {task.target_name!r}"
    )
    for line in task.encoding.words() if task.encoding else ():
        say(f"  inputs     {line}")
    say(f"  target     {_target_words(task)}")
    say(
        f"  split      {num_train} rows for training, {int(task.test.sum())} for testing"
        f" ({task.split})"
    )
    scale = Standardisation.of(
        task.X[train_rows],
        task.y[train_rows],
        task.kind == "regression",
        shared=bool(args.patch_shape),
    )
    of_no_text = task.encoding.other if task.encoding else ()  # nothing to note: all text is levels
    constant = [name for name in _constant(task) if name not in of_no_text]
    if constant and not args.patch_shape:
        say(
            "  note       constant over the training rows, so without information:"
            f" {shown(constant)}"
        )
    if args.method != "qsgp" and not args.patch_shape and args.inducing > num_train:
        say(
            f"  note       {args.inducing} inducing inputs were asked for; {num_train}, one per"
            " training row, are used"
        )
        args.inducing = num_train
    say(f"  method     {defaults.words(args.choice)}")
    at_data = ""
    if args.choice.at_data:
        args.inducing, at_data = (
            args.choice.inducing,
            " (the distinct training inputs, held fixed; --inducing changes it)",
        )
    second = f" + {args.orthogonal}" if args.orthogonal else ""
    each = f" for each of {args.layers} layers, {args.width} wide" if args.layers else ""
    sizes = (
        f"{args.inducing}{second} inducing"
        f" {'patches' if args.patch_shape else 'inputs'}{each}{at_data}"
    )
    if args.method == "qsgp":
        sizes = f"{args.features} random Fourier features, {args.dense_columns} dense columns"
    say(f"  model      {_model_words(task, args)}, {sizes}, {args.dtype}")
    if args.method == "qsgp" and not args.resume:
        say(
            f"  start      hyperparameters of an exact Gaussian process on {min(EXACT, num_train)}"
            " of the rows"
        )
    model = build(task, scale, args)
    names = task.input_names, task.target_name
    return Fitted(
        model,
        task.likelihood,
        task.classes,
        *names,
        task.columns,
        scale,
        jitter=0.0,
        encoding=task.encoding,
    )


def _constant(task):
    """Inputs that do not vary over the training rows."""
    return [
        name
        for name, span in zip(task.input_names, np.ptp(task.X[~task.test], axis=0), strict=True)
        if span == 0
    ]


def _target_words(task):
    choice = f"{task.reason} -> {LIKELIHOODS[task.likelihood]} likelihood"
    if task.reason != "as asked":
        choice += " (--likelihood changes it)"
    return choice + (f"; classes {shown(task.classes, 12)}" if task.classes else "")


def _model_words(task, args):
    covariance = {
        "rbf": "RBF",
        "matern12": "Matérn 1/2",
        "matern32": "Matérn 3/2",
        "matern52": "Matérn 5/2",
    }[args.covariance]
    lengthscales = "" if task.X.shape[1] == 1 else " ARD" if args.ard else " with one lengthscale"
    deep = f" of {args.layers} layers" if args.layers else ""
    patches = f" of {images.words(args.patch_shape)} patches" if args.patch_shape else ""
    return f"{METHODS[args.method]}{deep}, {covariance}{patches}{lengthscales}"


def _describe(task, args, trained, seconds, fitted, title):
    return {
        "fastsvgp": version("fastsvgp"),
        "command": shlex.join(["fastsvgp", *args.words]),
        "data": title,
        "rows": len(task.y),
        "train_rows": int((~task.test).sum()),
        "test_rows": int(task.test.sum()),
        "split": task.split,
        "inputs": task.input_names,
        "missing": args.missing,
        "constant_inputs": _constant(task),
        "encoding": task.encoding and task.encoding.to_json(),
        "target": task.target_name,
        "likelihood": task.likelihood,
        "likelihood_reason": task.reason,
        "classes": task.classes,
        "method": args.method,
        "method_reason": args.choice.reason,
        "covariance": args.covariance,
        "ard": args.ard,
        "inducing": args.inducing or None,
        "orthogonal": args.orthogonal,
        "sampled": args.sampled,
        "layers": args.layers,
        "width": args.width,
        "patch_shape": args.patch_shape,
        "image_shape": args.image_shape,
        "stride": args.stride,
        "features": args.features,
        "dense_columns": args.dense_columns,
        "basis_batch": args.basis_batch,
        "control_points": args.control_points,
        "learn_hyperparameters": args.learn_hyperparameters,
        "e_steps": args.e_steps,
        "m_steps": args.m_steps,
        "dtype": args.dtype,
        "seed": args.seed,
        "steps": len(trained.values),
        "seconds": round(seconds, 3),
        "first_step_seconds": round(trained.first_step, 3),
        "interrupted": trained.interrupted,
        "outcome": asdict(outcome(task, args, trained)),
        "elbo": trained.elbo,
        "parameters": report.parameters(fitted.model),
    }
