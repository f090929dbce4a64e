"""Checks of settings that are inconsistent, or do not fit the data."""

from ..data import targets
from ..errors import UsageError, shown
from .names import METHODS, NATURAL, VARYING, WITH_LATENTS


def validate(settings, task):
    """Refuse settings that the method does not use."""
    _check_likelihood(settings, task)
    _check_noise(settings, task)
    _check_functions(settings, task)
    _check_natural_step(settings)
    _check_rounds(settings)
    if settings.group is not None and settings.method == "qsgp":
        raise UsageError("--mpi: one process trains --method qsgp; leave --mpi out")
    _check_no_batches(settings)


def _check_likelihood(settings, task):
    if settings.method == "sgpr" and task.likelihood != "gaussian":
        raise UsageError(
            f"--method sgpr needs the gaussian likelihood, but here it is {task.likelihood}"
            f" ({task.reason}); use --method svgp"
        )


def _check_noise(settings, task):
    if settings.no_extra_noise and task.likelihood != "known-noise":
        raise UsageError(
            f"--no-extra-noise is for --noise COLUMN, and here the likelihood is {task.likelihood};"
            " leave it out"
        )


def _check_functions(settings, task):
    """Check the arguments against several latent functions, and several targets."""
    several = task.y.ndim == 2
    what = (
        f"--latents {settings.latents}"
        if settings.latents is not None
        else f"--likelihood {task.likelihood}"
        if task.likelihood in VARYING
        else "several targets"
        if several
        else None
    )
    if what is None:
        return
    for option, given in (("--layers", settings.layers), ("--patch-shape", settings.patch_shape)):
        if given is not None:
            raise UsageError(f"{option}: {what} cannot be combined with it; leave {option} out")
    methods = (
        tuple(name for name in METHODS if name != "qsgp")
        if what == "several targets"
        else WITH_LATENTS
    )
    if settings.method not in methods:
        raise UsageError(
            f"--method {settings.method}: {what} need{'s'[: what[0] == '-']} --method"
            f" {', '.join(methods)}"
        )
    if settings.method == "sgpr" and targets.weights_of(task.y[~task.test]) is not None:
        raise UsageError(
            "--method sgpr needs every target of every row, and some are missing; use --method svgp"
        )


def _check_natural_step(settings):
    method = settings.method
    if settings.natural_step and method not in NATURAL:
        mover = {"sgpr": "L-BFGS trains everything", "qsgp": "AdaGrad trains the posterior"}
        mover = mover.get(method, "Adam trains the posterior too")
        raise UsageError(
            f"--natural-step is for --method {', '.join(NATURAL)}; with {method} {mover}: leave"
            " --natural-step out"
        )
    if method == "tsvgp" and settings.natural_step == 0:
        raise UsageError(
            "--natural-step 0: only natural-gradient steps train the sites of --method tsvgp; give"
            " a step size above 0"
        )


def _check_rounds(settings):
    """Check the arguments about rounds of steps against the others."""
    for option, value in (("--e-steps", settings.e_steps), ("--m-steps", settings.m_steps)):
        if value is not None and settings.method not in NATURAL:
            raise UsageError(
                f"{option} is for --method {', '.join(NATURAL)}; with {settings.method} leave it"
                " out"
            )
    if (settings.e_steps or 1) > 1 and settings.natural_step == 0:
        raise UsageError(
            f"--e-steps {settings.e_steps} are natural-gradient steps, but --natural-step is 0;"
            " leave one of them out"
        )


def _check_no_batches(settings):
    sizes = {"--batch-size": settings.batch_size, "--learning-rate": settings.learning_rate}
    options = [option for option, value in sizes.items() if value is not None]
    if options and settings.method == "sgpr":
        raise UsageError(
            f"--method sgpr trains on all data by L-BFGS; leave out {shown(options)}, which would"
            " have no effect"
        )
