"""Choice of solver: L-BFGS on a collapsed bound, Adam, or Adam with natural-gradient steps."""

import numpy as np

from .. import check
from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR
from ..initialise import unique_rows
from ..likelihoods import Gaussian
from ..posteriors import AbsorbedDualSites, Marginal, Whitened, WhitenedOrthogonal
from ..records.inducing_sets import InducingPair, sets_of
from ..runtime.thresholds import FEW_ROWS, MANY, MOST_ROWS, collapses_well
from .names import POSTERIORS, named

SOLVERS = ("auto", "lbfgs", "adam", "natural")
# collapsed bound of each posterior that can be optimised in closed form
COLLAPSED = {
    Whitened: SGPR,
    Marginal: SGPR,
    AbsorbedDualSites: SGPR,
    WhitenedOrthogonal: OrthogonalSGPR,
}


def solver_for(solver, likelihood, kind, rows, inducing=0, latents=None):
    """Return "lbfgs", "adam" or "natural"; ``ValueError`` if the solver does not support the model.

    likelihood : Likelihood; kind : class of the posterior
    rows, inducing : int
        "auto" depends on them: see ``fastsvgp.runtime.thresholds``.
    latents : of ``Parts``
    """
    named("solver", solver, SOLVERS)
    collapses = isinstance(likelihood, Gaussian) and kind in COLLAPSED and latents is None
    if solver == "auto":
        return (
            "lbfgs"
            if collapses and collapses_well(rows, inducing)
            else "natural"
            if kind.natural_fields
            else "adam"
        )
    if solver == "lbfgs" and latents is not None:
        raise ValueError(
            "solver 'lbfgs' is for the collapsed bound, of outputs that share a covariance; with"
            f" several latent functions, here {latents!r}, use solver 'natural', 'adam' or 'auto'"
        )
    if solver == "lbfgs" and not collapses:
        posteriors = ", ".join(name for name, other in POSTERIORS.items() if other in COLLAPSED)
        raise ValueError(
            "solver 'lbfgs' is for the collapsed bound, of likelihood 'gaussian' and posteriors"
            f" {posteriors}; here they are {type(likelihood).__name__} and {kind.__name__}: use"
            " solver 'natural', 'adam' or 'auto'"
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
