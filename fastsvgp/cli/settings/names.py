"""The names on the command line, and their meaning in the library."""

from ...names import (
    BINARY,
    COUNTS,
    COVARIANCES as COVARIANCES,
    MULTICLASS as KINDS,
    ORDERED,
    POSITIVE,
    PROPORTIONS,
    REGRESSION,
)

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
WITH_NEAR_ROWS = "svgp", "tsvgp", "sgpr"
WITH_LATENTS = "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp"  # methods for several functions
LAYERED = "svgp", "lsvgp", "rsvgp", "solvegp"  # methods for deep GPs
WITH_PATCHES = "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp", "odvgp"
# likelihoods for which qsgp can estimate a bound from samples
LOG_CONCAVE = "gaussian", "laplace", "poisson", "bernoulli-probit", "bernoulli-logit"
VARYING = ("heteroskedastic",)  # likelihoods of several functions per target
LEVELS = 20  # levels of a text column with their own input
POLICIES = "error", "median"  # for missing values
LIKELIHOODS = REGRESSION | COUNTS | POSITIVE | PROPORTIONS | BINARY | MULTICLASS | ORDERED
# second columns of the target: their option without --, and the likelihoods that read them
COLUMNS = {
    "trials": ("binomial",),
    "exposure": ("poisson", "negative-binomial"),
    "noise": ("known-noise",),
    "side": ("censored",),
}
NEEDED = {"binomial": "trials", "known-noise": "noise", "censored": "side"}
# real-valued targets of one column, for messages
REAL = {name: kind for name, kind in REGRESSION.items() if name not in NEEDED}
KINDS_OF = {
    "regression": REGRESSION,
    "counts": COUNTS,
    "positive": POSITIVE,
    "proportions": PROPORTIONS,
    "binary": BINARY,
    "ordered": ORDERED,
}


def kind_of(likelihood):
    """Return the kind of targets: a name in ``KINDS_OF``, or "multiclass"."""
    for kind, names in KINDS_OF.items():
        if likelihood in names:
            return kind
    return "multiclass"
