"""The names that the command line knows, and what each stands for in the library."""

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
PAIRED = "solvegp", "odvgp"  # with two sets of inducing inputs
NATURAL = "svgp", "tsvgp", *PAIRED  # with natural-gradient steps
LAYERED = "svgp", "lsvgp", "rsvgp", "solvegp"  # of deep GPs
WITH_PATCHES = "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp", "odvgp"
# with bounds from samples
LOG_CONCAVE = "gaussian", "laplace", "poisson", "bernoulli-probit", "bernoulli-logit"
LEVELS = 20  # of a text column that have an input of their own
POLICIES = "error", "median"  # of missing values
LIKELIHOODS = REGRESSION | COUNTS | BINARY | MULTICLASS


def kind_of(likelihood):
    """ "regression", "counts", "binary" or "multiclass"."""
    for kind, names in (("regression", REGRESSION), ("counts", COUNTS), ("binary", BINARY)):
        if likelihood in names:
            return kind
    return "multiclass"
