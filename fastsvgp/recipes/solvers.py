"""Which solver trains a start: L-BFGS on a collapsed bound, Adam, or Adam beside natural-gradient steps."""

from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR
from ..likelihoods import Gaussian
from ..posteriors import AbsorbedDualSites, Marginal, Whitened, WhitenedOrthogonal
from .names import POSTERIORS, named

SOLVERS = ("auto", "lbfgs", "adam", "natural")
# the bound of each posterior that an optimal one replaces
COLLAPSED = {
    Whitened: SGPR,
    Marginal: SGPR,
    AbsorbedDualSites: SGPR,
    WhitenedOrthogonal: OrthogonalSGPR,
}
# rows up to which "auto" is the collapsed bound: see bench/results/estimators.md
COLLAPSED_ROWS = 1000


def solver_for(solver, likelihood, kind, rows):
    """ "lbfgs", "adam" or "natural"; what "auto" stands for, and a ``ValueError`` where a solver cannot be.

    likelihood : Likelihood; kind : class of the posterior; rows : int
    """
    named("solver", solver, SOLVERS)
    collapses = isinstance(likelihood, Gaussian) and kind in COLLAPSED
    if solver == "auto":
        return (
            "lbfgs"
            if collapses and rows <= COLLAPSED_ROWS
            else "natural"
            if kind.natural_fields
            else "adam"
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
            f"solver 'adam': a {kind.__name__} posterior is moved by natural-gradient steps alone;"
            " use 'natural'"
        )
    return solver
