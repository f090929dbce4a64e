"""Checks of settings that are inconsistent, or do not fit the data."""

from ..data import targets
from ..errors import UsageError, option_of, refuse_beside, shown
from .names import METHODS, NATURAL, VARYING, WITH_LATENTS

MOVERS = {"sgpr": "L-BFGS trains everything", "qsgp": "AdaGrad trains the posterior"}


def validate(settings, task):
    """Refuse settings that the method does not use."""
    method, likelihood, step = settings.method, task.likelihood, settings.natural_step
    _refuse(
        (
            method == "sgpr" and likelihood != "gaussian",
            f"--method sgpr needs the gaussian likelihood, but here it is {likelihood}"
            f" ({task.reason}); use --method svgp",
        ),
        (
            settings.no_extra_noise and likelihood != "known-noise",
            f"--no-extra-noise is for --noise COLUMN, and here the likelihood is {likelihood};"
            " leave it out",
        ),
    )
    _check_functions(settings, task)
    mover = MOVERS.get(method, "Adam trains the posterior too")
    refuse_beside(method, NATURAL, e_steps=settings.e_steps, m_steps=settings.m_steps)
    unused = [name for name in ("batch_size", "learning_rate") if getattr(settings, name)]
    _refuse(
        (
            step and method not in NATURAL,
            f"--natural-step is for --method {', '.join(NATURAL)}; with {method} {mover}: leave"
            " --natural-step out",
        ),
        (
            method == "tsvgp" and step == 0,
            "--natural-step 0: only natural-gradient steps train the sites of --method tsvgp; give"
            " a step size above 0",
        ),
        (
            (settings.e_steps or 1) > 1 and step == 0,
            f"--e-steps {settings.e_steps} are natural-gradient steps, but --natural-step is 0;"
            " leave one of them out",
        ),
        (
            settings.group is not None and method == "qsgp",
            "--mpi: one process trains --method qsgp; leave --mpi out",
        ),
        (
            unused and method == "sgpr",
            "--method sgpr trains on all data by L-BFGS; leave out"
            f" {shown(map(option_of, unused))}, which would have no effect",
        ),
    )


def _refuse(*cases):
    """Raise the ``UsageError`` of the first case ``(applies, message)`` that applies."""
    for applies, message in cases:
        if applies:
            raise UsageError(message)


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
