"""Estimators for scikit-learn: sparse Gaussian processes that standardise, start, train and predict in the units of the data.

``SVGPRegressor().fit(X, y).predict(X)`` and ``SVGPClassifier().fit(X, y).predict_proba(X)``. This
package is alone in importing scikit-learn: ``python -m pip install "fastsvgp[sklearn]"`` (in a
checkout: ``".[sklearn]"``).
"""

from .classifier import SVGPClassifier
from .files import load, save
from .kernels import fixed_fields, from_kernel
from .regressor import SVGPRegressor

__all__ = ["SVGPClassifier", "SVGPRegressor", "fixed_fields", "from_kernel", "load", "save"]
