"""Names of covariances and likelihoods in settings, and the names nearest to a wrong one.

Classes are given by name, so that ``fastsvgp --help`` imports none of them.
"""

import difflib

COVARIANCES = {"rbf": "RBF", "matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52"}
REGRESSION = {
    "gaussian": "Gaussian",
    "student-t": "StudentT",
    "laplace": "Laplace",
    "heteroskedastic": "HeteroskedasticGaussian",
    "known-noise": "KnownNoise",
    "censored": "Censored",
}
COUNTS = {
    "poisson": "Poisson",
    "negative-binomial": "NegativeBinomial",
    "zero-inflated-poisson": "ZeroInflatedPoisson",
    "binomial": "Binomial",
}
POSITIVE = {"gamma": "Gamma", "exponential": "Exponential"}
PROPORTIONS = {"beta": "Beta"}
ORDERED = {"ordinal": "Ordinal"}
BINARY = {"bernoulli-probit": "BernoulliProbit", "bernoulli-logit": "BernoulliLogit"}
MULTICLASS = {"softmax": "Softmax", "robustmax": "RobustMax"}

CLOSE = 0.65  # least similarity of a suggested name; that of `rows` and `probes` is 0.6
FURTHER = 0.11  # how much less similar than the nearest name another suggested one may be
LETTERS = 80  # of all names that a message suggests
ELSEWHERE = {"normal": "gaussian"}  # what other packages call them


def nearest(name, known, most=3):
    """Return the known names nearest to a wrong one, best first; dotted ones also by their ends."""
    score = {one: _likeness(name, one) for one in known}
    best = sorted(score, key=lambda one: ([-each for each in score[one]], one))[:most]
    near = [one for one in best if score[one][0] >= max(CLOSE, score[best[0]][0] - FURTHER)]
    while len(near) > 1 and sum(map(len, near)) > LETTERS:
        near.pop()
    return near


def _likeness(name, other):
    """Return how alike two dotted names are: by the whole or the last part, then by the whole."""
    pairs = (name, other), (name.rpartition(".")[2], other.rpartition(".")[2])
    ratios = [difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs]
    return max(ratios), ratios[0]


def did_you_mean(name, known, quote="", elsewhere=(), most=3):
    """Return "; did you mean a or b?" with the names nearest to a wrong one, "" if none is near.

    ``elsewhere`` maps names in other packages to names here, which are suggested if known.
    """
    meant = dict(elsewhere).get(name)
    near = [meant] if meant in known else nearest(name, known, most)
    if not near:
        return ""
    *others, last = (f"{quote}{one}{quote}" for one in near)
    return f"; did you mean {', '.join(others)}{' or ' * bool(others)}{last}?"
