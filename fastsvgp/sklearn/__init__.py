"""Sparse Gaussian processes as scikit-learn estimators, in the units of the data.

``SVGPRegressor().fit(X, y).predict(X)`` and ``SVGPClassifier().fit(X, y).predict_proba(X)``. They
standardise the data, choose a start, and train; ``GPLVM`` is a transformer. Only this package
imports scikit-learn: ``python -m pip install "fastsvgp[sklearn]"`` (in a checkout:
``".[sklearn]"``).
"""

from .classifier import SVGPClassifier
from .files import load, save
from .gplvm import GPLVM
from .kernels import fixed_fields, from_kernel
from .regressor import SVGPRegressor

__all__ = [
    "GPLVM",
    "SVGPClassifier",
    "SVGPRegressor",
    "fixed_fields",
    "from_kernel",
    "load",
    "save",
]
