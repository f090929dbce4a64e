"""A transformer: latent inputs of the rows of a table, and its gaps."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..bounds.predict import predict_f, predict_y
from ..bounds.predictor import predictor
from ..train import fit
from ..uncertain.gplvm import start_gplvm
from ..uncertain.infer import infer_inputs


class GPLVM(TransformerMixin, BaseEstimator):
    """A Bayesian GPLVM: nonlinear components of a table, which can have gaps.

    NaN marks a missing number. Columns are standardised.

    Parameters
    ----------
    n_components : int
        Latent columns, at most those of the table: long lengthscales switch off what is not needed.
    n_inducing : int
        Inducing inputs; at most one a row.
    max_iter : int
        Iterations of L-BFGS-B.
    random_state : None, int or RandomState
        For the rows at which inducing inputs start.

    Attributes
    ----------
    model_ : GPLVM
        In standardised units.
    inputs_ : GaussianInputs
        Means and variances of the latent inputs of the rows of ``fit``.
    relevance_ : (n_components,)
        Variances of the means over squared lengthscales, the largest 1: near 0 for columns that are
        off.
    bound_ : float
        In nats.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from fastsvgp.sklearn import GPLVM
    >>> angles = np.linspace(0, 3, 40)
    >>> X = np.column_stack([np.sin(angles), np.cos(angles), angles**2])
    >>> model = GPLVM(1, n_inducing=10, random_state=0).fit(X)
    >>> model.transform(X[:2]).shape, model.inverse_transform([[0.0]]).shape
    ((2, 1), (1, 3))
    """

    def __init__(self, n_components=2, *, n_inducing=50, max_iter=300, random_state=None):
        self.n_components, self.n_inducing = n_components, n_inducing
        self.max_iter, self.random_state = max_iter, random_state

    def fit(self, X, y=None):
        """Train on a table (n, p); ``y`` is not read."""
        X = self._table(X, reset=True)
        N, P = X.shape
        if not 1 <= self.n_components <= min(P, N - 1):
            raise ValueError(
                f"n_components={self.n_components} must be at least 1, at most n_features={P}, and"
                f" below n_samples={N}"
            )
        seen = np.isfinite(X)
        if not seen.any(axis=0).all():
            column = int(np.argmin(seen.any(axis=0)))
            raise ValueError(f"column {column} of X has no number: leave it out")
        self._centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        self._scale = np.where(scale > 0, scale, 1.0)
        weights = None if seen.all() else seen.astype(float)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        M = min(self.n_inducing, N)
        Y = self._standard(X)
        start = start_gplvm(Y, self.n_components, M, weights=weights, rng=rng)
        self.model_, info = fit(start, None, Y, weights=weights, steps=self.max_iter)
        self._predictor = predictor(info.svgp)
        self.inputs_, self.bound_, self.n_iter_ = self.model_.inputs, info.values[-1], info.steps
        relevance = self.inputs_.mean.var(axis=0) / self.model_.covariance.lengthscales**2
        self.relevance_ = relevance / max(relevance.max(), np.finfo(float).tiny)
        return self

    def transform(self, X):
        """Return the means (n, n_components) of the latent inputs of rows."""
        check_is_fitted(self)
        return self._inputs(self._table(X)).mean

    def inverse_transform(self, X):
        """Return the rows (n, p) of a table that latent inputs (n, n_components) predict."""
        check_is_fitted(self)
        mean = predict_f(self._predictor, np.asarray(X, np.float64), var=False)
        return mean * self._scale + self._centre

    def impute(self, X, return_std=False):
        """Fill the gaps of rows (n, p) by predictions at their uncertain latent inputs.

        With ``return_std`` also their predictive standard deviations, 0 where a number is given.
        """
        check_is_fitted(self)
        X = self._table(X)
        mean, var = predict_y(self._predictor, self._inputs(X))
        seen = np.isfinite(X)
        filled = np.where(seen, X, mean * self._scale + self._centre)
        return (filled, np.where(seen, 0.0, np.sqrt(var) * self._scale)) if return_std else filled

    def _table(self, X, reset=False):
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")

    def _standard(self, X):
        return (X - self._centre) / self._scale

    def _inputs(self, X):
        seen = np.isfinite(X)
        if not seen.any(axis=1).all():
            row = int(np.argmin(seen.any(axis=1)))
            raise ValueError(f"row {row} of X has no number: its latent input is unknown")
        weights = None if seen.all() else seen.astype(float)
        return infer_inputs(self._predictor, self._standard(X), weights=weights)

    @property
    def _n_features_out(self):
        return self.n_components

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
