"""The printed lines of a fit: data and choices, training, scores, files."""

import os

import numpy as np

from ...recipes.remedies import describe_end
from ..data import images, targets
from ..errors import join
from ..settings import defaults, periodic
from ..settings.names import LIKELIHOODS, METHODS
from ..settings.qsgp import EXACT
from . import metrics
from .outputs import UNTARGETED
from .results import constant_inputs

COVARIANCES = {
    "rbf": "RBF",
    "matern12": "Matérn 1/2",
    "matern32": "Matérn 3/2",
    "matern52": "Matérn 5/2",
}
WIDE = 0.05  # nats a row of a certificate, from which more inducing inputs are advised


class Lines:
    """Print lines unless ``quiet``, and collect them in ``lines`` for the page."""

    def __init__(self, quiet):
        self.quiet, self.lines = quiet, []

    def __call__(self, line):
        self.lines.append(line)
        self.show(line)

    def show(self, line):
        """Print a line whose content is elsewhere on the page."""
        if not self.quiet:
            print(line)


def data(say, task, settings, title):
    """Print rows, inputs, target and split."""
    num_train, num_inputs = int((~task.test).sum()), task.X.shape[1]
    say(f"{title}")
    say(
        f"  data       {len(task.y)} rows, {num_inputs} input{'s'[: num_inputs != 1]}, "
        f"{_name_targets(task.target_name)}"
    )
    for line in task.encoding.describe() if task.encoding else ():
        say(f"  inputs     {line}")
    say(f"  target     {_describe_target(task)}")
    if task.second is not None:
        say(f"  {task.second.option:<11}column {task.second.name!r}")
    say(
        f"  split      {num_train} rows for training, {int(task.test.sum())} for testing"
        f" ({task.split})"
    )
    if task.holds:
        say(f"  scores     {task.holds}")
    for note in task.signs if not task.split.startswith("test mask") else ():
        say(f"  note       {note}")
    if (rest := task.untargeted) is not None:
        say(
            f"  note       {rest.num_rows} row{'s'[: rest.num_rows != 1]} without a target (the"
            f" first in {rest.place(0)}): left out of training, predicted in {UNTARGETED}"
        )
    if (weights := targets.weights_of(task.y)) is not None:
        missing = int(np.sum(weights == 0))
        say(f"  note       {missing} of {weights.size} targets are missing, and not used")
    of_no_text = task.encoding.other if task.encoding else ()  # usual: all text is among the levels
    constant = [name for name in constant_inputs(task) if name not in of_no_text]
    if constant and not settings.patch_shape:
        say(
            "  note       constant over the training rows, and so without information:"
            f" {join(constant)}"
        )


def model(say, task, settings):
    """Print the method and the model."""
    num_train = int((~task.test).sum())
    if settings.surplus:
        say(
            f"  note       {settings.surplus} inducing inputs were requested; {num_train} are used,"
            " one per training row"
        )
    say(f"  method     {defaults.describe(settings.choice)}")
    sizes = _describe_sizes(settings)
    say(f"  model      {describe_model(task, settings)}, {sizes}, {settings.dtype}")
    if settings.method == "qsgp" and not settings.resume:
        say(
            f"  start      hyperparameters of an exact Gaussian process on {min(EXACT, num_train)}"
            " rows"
        )


def training(say, trained, seconds, outcome):
    """Print the duration of training, the bound at the end, and whether it ended short."""
    say(
        f"  trained    {steps(trained)} in {duration(seconds, trained.first_step)}, ELBO"
        f" {trained.elbo:.5g}"
    )
    if (found := trained.certificate) is not None:
        wide = found.per_row > (WIDE if found.within is None else found.within)
        say(
            f"  exact      the evidence is within {found.per_row:.2g} nats a row of the exact"
            f" process, with {len(trained.model.inducing)} inducing inputs"
            f"{', which are not enough (see --within)' if wide else ''}"
        )
    if outcome.ended == "short" and not trained.interrupted:
        say(f"  note       {describe_end(len(trained.values), outcome, metrics.WORDS)}")


def scores(say, results):
    """Print the metrics of held-out rows, and advice."""
    test = results["test"]
    say.show("")
    say.show(f"  {metrics.answer(results)}")
    if test:
        say.show(metrics.table(test, "held-out rows"))
    if test and (advice := metrics.advice(test, results["test_rows"], results["outcome"])):
        say.show(f"  note       {advice}")


def files(say, paths, folder, why_no_plots):
    """Print the written files and their folder."""
    say.show("")
    names = ", ".join(os.path.basename(path) for path in paths)
    say.show(f"  wrote      {names} in {folder}{os.sep}")
    if why_no_plots:
        say.show(f"  {why_no_plots}")


def spent(say, seconds):
    """Print for what the seconds of a search were spent."""
    parts = ", ".join(f"{what} {one:.1f}" for what, one in seconds.items())
    say.show(f"  seconds    {parts}; together {sum(seconds.values()):.1f}")


def describe_model(task, settings):
    """Describe method, covariance and lengthscales."""
    lengthscales = (
        "" if task.X.shape[1] == 1 else " ARD" if settings.ard else " with one lengthscale"
    )
    deep = f" of {settings.layers} layers" if settings.layers else ""
    shape = settings.patch_shape
    patches = f" of {images.describe(shape)} patches" if shape else ""
    covariance = COVARIANCES[settings.covariance] + periodic.describe(settings, task.input_names)
    latents = settings.latents
    functions = (
        ""
        if latents is None
        else " with separate covariances"
        if latents == "separate"
        else f" of {latents} latent function{'s'[: latents != 1]}"
    )
    near = f", {settings.neighbours} near rows" if settings.neighbours else ""
    return f"{METHODS[settings.method]}{deep}{functions}, {covariance}{patches}{lengthscales}{near}"


def _name_targets(name):
    return f"targets {join(map(repr, name))}" if isinstance(name, list) else f"target {name!r}"


def _describe_sizes(settings):
    if settings.method == "qsgp":
        return (
            f"{settings.features} random Fourier features, {settings.dense_columns} dense columns"
        )
    second = f" + {settings.orthogonal}" if settings.orthogonal else ""
    per_layer = (
        f" for each of {settings.layers} layers, {settings.width} wide" if settings.layers else ""
    )
    fixed = " (the distinct training inputs, held fixed; --inducing changes it)"
    return (
        f"{settings.inducing}{second} inducing"
        f" {'patches' if settings.patch_shape else 'inputs'}{per_layer}"
        f"{fixed if settings.choice.at_data else ''}"
    )


def _describe_target(task):
    choice = f"{task.reason} -> {LIKELIHOODS[task.likelihood]} likelihood"
    if task.reason != "as asked":
        choice += " (--likelihood changes it)"
    return choice + (f"; classes {join(map(repr, task.classes), 12)}" if task.classes else "")


def steps(trained):
    """Format the number of steps of a training."""
    count = len(trained.values)
    return f"{count} step{'s'[: count != 1]}"


def duration(seconds, first_step):
    """Format the time of a training, with that of its first step if it is a large part."""
    if first_step < max(1, 0.1 * seconds):
        return f"{seconds:.1f} s"
    return (
        f"{seconds:.1f} s, of which {first_step:.1f} s until the end of the first step, which"
        " compiles kernels"
    )
