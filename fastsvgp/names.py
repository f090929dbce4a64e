"""The words for covariances and likelihoods in settings and on the command line, and the class that each stands for.

The classes are spelt out, so that ``fastsvgp --help`` needs no import.
"""

COVARIANCES = {"rbf": "RBF", "matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52"}
REGRESSION = {"gaussian": "Gaussian", "student-t": "StudentT", "laplace": "Laplace"}
COUNTS = {"poisson": "Poisson"}
BINARY = {"bernoulli-probit": "BernoulliProbit", "bernoulli-logit": "BernoulliLogit"}
MULTICLASS = {"softmax": "Softmax", "robustmax": "RobustMax"}
