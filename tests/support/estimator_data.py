"""Small data sets for estimators, and settings with which they train quickly."""

import numpy as np

QUICK = {"n_inducing": 12, "max_iter": 10, "random_state": 0}


def real(rng, N=60, D=2):
    """A sine of the first column, with noise."""
    X = rng.uniform(-2, 2, (N, D))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)


def classes(rng, labels=("no", "yes"), N=60):
    """Equally frequent classes: quantiles of ``real``."""
    X, y = real(rng, N)
    limits = np.quantile(y, np.arange(1, len(labels)) / len(labels))
    return X, np.array(labels)[np.digitize(y, limits)]
