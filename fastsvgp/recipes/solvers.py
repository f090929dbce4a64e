"""Choice of solver: L-BFGS on all rows, Adam, or Adam with natural-gradient steps.

L-BFGS maximises the bound at the optimal q(u): a collapsed bound in closed form, or a posterior
that natural steps take to its optimum.
"""

import numbers
from dataclasses import fields

import numpy as np

from .. import check
from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR
from ..errors import warn
from ..inducing import unique_rows
from ..likelihoods import Gaussian
from ..posteriors import AbsorbedDualSites, Marginal, Whitened, WhitenedOrthogonal
from ..posteriors.locate import moves_naturally
from ..records.inducing_sets import InducingPair, sets_of
from ..runtime.thresholds import FEW_ROWS, MANY, MOST_ROWS, collapses_well
from .names import look_up
from .settings import Settings

SOLVERS = ("auto", "lbfgs", "adam", "natural")
# settings of each solver
USED = {
    "lbfgs": (),
    "adam": ("batch_size", "learning_rate"),
    "natural": ("batch_size", "learning_rate", "natural_step_size"),
}
# collapsed bound of each posterior that can be optimised in closed form
COLLAPSED = {
    Whitened: SGPR,
    Marginal: SGPR,
    AbsorbedDualSites: SGPR,
    WhitenedOrthogonal: OrthogonalSGPR,
}


def collapses(likelihood, kind, latents=None):
    """Whether the optimal q(u) has a closed form, so that the model is one of ``COLLAPSED``."""
    return isinstance(likelihood, Gaussian) and kind in COLLAPSED and latents is None


def solver_of(settings, likelihood, kind, rows, inducing, latents=None):
    """Return ``solver_for`` of settings; warn of those of minibatches that it does not use.

    settings : Settings, or an estimator; the others as in ``solver_for``
    """
    check.whole("batch_size", settings.batch_size)
    given, size = _minibatch_settings(settings, rows), settings.batch_size
    solver = solver_for(
        settings.solver, likelihood, kind, rows, inducing, latents, size, bool(given)
    )
    if unused := ", ".join(f"`{name}`" for name in given if name not in USED[solver]):
        warn(f"solver {solver!r} does not use {unused}; give another solver, or leave it out")
    return solver


def solver_for(
    solver, likelihood, kind, rows, inducing=0, latents=None, batch_size=0, minibatches=False
):
    """Return "lbfgs", "adam" or "natural"; ``ValueError`` if the solver does not support the model.

    likelihood : Likelihood; kind : class of the posterior
    rows, inducing : int
        "auto" depends on them: see ``fastsvgp.runtime.thresholds``.
    latents : of ``Settings``
    batch_size : int
        Without a closed form, "auto" is "lbfgs" only if a batch has all rows.
    minibatches : bool
        Whether settings ask for them; "auto" is then not "lbfgs".
    """
    look_up("solver", solver, SOLVERS)
    closed = collapses(likelihood, kind, latents)
    if solver == "auto":
        few = collapses_well(rows, inducing) and not minibatches
        at_once = few and (closed or moves_naturally(kind) and rows <= batch_size)
        return "lbfgs" if at_once else "natural" if kind.natural_fields else "adam"
    if solver == "lbfgs" and not (closed or moves_naturally(kind)):
        raise ValueError(
            f"solver 'lbfgs': natural steps do not move all of a {kind.__name__} posterior; use"
            " solver 'adam' or 'auto', or posterior 'whitened'"
        )
    if solver == "natural" and not kind.natural_fields:
        raise ValueError(
            f"solver 'natural': a {kind.__name__} posterior has no natural-gradient steps; use"
            " solver 'adam'"
        )
    if solver == "adam" and kind.natural_by_default:
        raise ValueError(
            f"solver 'adam': a {kind.__name__} posterior takes natural-gradient steps only;"
            " use 'natural'"
        )
    return solver


def _minibatch_settings(settings, rows):
    """Return the names of settings of minibatches that are not at their defaults.

    A batch of all rows is none: L-BFGS takes all rows, too.
    """
    defaults = {field.name: field.default for field in fields(Settings)}
    given = {name: getattr(settings, name) for name in USED["natural"]}
    return [
        name
        for name, value in given.items()
        # a schedule is no default
        if not (isinstance(value, str | numbers.Real) and value == defaults[name])
        and not (name == "batch_size" and value >= rows)
    ]


def number_of(inducing, kind, X):
    """Return the number of inducing inputs in all sets, or that of the rows X if it is all of them.

    ``inducing`` as in ``regression``.
    """
    if isinstance(inducing, InducingPair) or np.ndim(inducing) == 2:
        return sum(map(len, sets_of(inducing)))
    number = sum(sizes_for("inducing", inducing, kind))
    # up to FEW_ROWS and above MOST_ROWS the number does not matter
    if FEW_ROWS < len(X) <= MOST_ROWS and number < MANY:
        return len(X) if number >= len(unique_rows.distinct(X)[0]) else number
    return number


def sizes_for(name, requested, kind):
    """Return the number of inducing inputs of each set: one number for all sets, or one per set."""
    each = isinstance(requested, tuple | list)
    sizes = requested if each else (requested,) * kind.num_sets
    sizes = [check.whole(name, size) for size in sizes]
    if len(sizes) != kind.num_sets:
        takes = "one set of inducing inputs; give one number"
        if kind.num_sets > 1:
            takes = (
                f"{kind.num_sets} sets of inducing inputs; give one number per set, or one for all"
            )
        raise ValueError(
            f"`{name}` is {tuple(sizes)}, and the posterior, {kind.__name__}, has {takes}"
        )
    return sizes
