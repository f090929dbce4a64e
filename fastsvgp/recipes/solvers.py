"""Choice of solver: L-BFGS on a collapsed bound, Adam, or Adam with natural-gradient steps."""

from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR
from ..likelihoods import Gaussian
from ..posteriors import AbsorbedDualSites, Marginal, Whitened, WhitenedOrthogonal
from .names import POSTERIORS, named

SOLVERS = ("auto", "lbfgs", "adam", "natural")
# collapsed bound of each posterior that can be optimised in closed form
COLLAPSED = {
    Whitened: SGPR,
    Marginal: SGPR,
    AbsorbedDualSites: SGPR,
    WhitenedOrthogonal: OrthogonalSGPR,
}
# rows up to which "auto" uses the collapsed bound: see bench/results/estimators.md
COLLAPSED_ROWS = 1000


def solver_for(solver, likelihood, kind, rows, latents=None):
    """Return "lbfgs", "adam" or "natural"; ``ValueError`` if the solver does not support the model.

    likelihood : Likelihood; kind : class of the posterior; rows : int; latents : of ``Parts``
    """
    named("solver", solver, SOLVERS)
    collapses = isinstance(likelihood, Gaussian) and kind in COLLAPSED and latents is None
    if solver == "auto":
        return (
            "lbfgs"
            if collapses and rows <= COLLAPSED_ROWS
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
