"""The names on the command line, and their meaning in the library."""

from ...names import BINARY, COUNTS, COVARIANCES as COVARIANCES, MULTICLASS as KINDS, REGRESSION

MULTICLASS = dict(sorted(KINDS.items()))
METHODS = {
    "svgp": "SVGP",
    "tsvgp": "t-SVGP",
    "lsvgp": "L-SVGP",
    "rsvgp": "R-SVGP",
    "solvegp": "SOLVE-GP",
    "odvgp": "ODVGP",
    "sgpr": "SGPR",
    "qsgp": "QSGP",
}
PAIRED = "solvegp", "odvgp"  # methods with two sets of inducing inputs
NATURAL = "svgp", "tsvgp", *PAIRED  # methods with natural-gradient steps
WITH_LATENTS = "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp"  # methods for several functions
LAYERED = "svgp", "lsvgp", "rsvgp", "solvegp"  # methods for deep GPs
WITH_PATCHES = "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp", "odvgp"
# likelihoods for which qsgp can estimate a bound from samples
LOG_CONCAVE = "gaussian", "laplace", "poisson", "bernoulli-probit", "bernoulli-logit"
VARYING = ("heteroskedastic",)  # likelihoods of several functions per target
LEVELS = 20  # levels of a text column with their own input
POLICIES = "error", "median"  # for missing values
LIKELIHOODS = REGRESSION | COUNTS | BINARY | MULTICLASS


def kind_of(likelihood):
    """ "regression", "counts", "binary" or "multiclass"."""
    for kind, names in (("regression", REGRESSION), ("counts", COUNTS), ("binary", BINARY)):
        if likelihood in names:
            return kind
    return "multiclass"
