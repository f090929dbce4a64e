"""Names of covariances and likelihoods in settings and on the command line, with their classes.

The classes are given by name, so that ``fastsvgp --help`` imports none of them.
"""

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
