"""``SVGPClassifier``, the scikit-learn classifier."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from .. import check, recipes
from ..bounds.predict import predict_log_density, predict_y
from ..likelihoods import BernoulliLogit, BernoulliProbit, Ordinal
from ..runtime.thresholds import INDUCING
from .base import SVGPEstimator, names_settings
from .columns import refuse_other_labels
from .model_search import changed_settings, check_budget, merge_with_split, run_search, seed_of


class SVGPClassifier(ClassifierMixin, SVGPEstimator):
    """Sparse variational Gaussian process classification.

    If only ``time_budget``, ``extrapolate``, ``class_weight``, ``random_state`` and ``verbose`` are
    set, ``recipes.search`` chooses covariance, scaling and training by held-out rows. Any other
    setting turns the search off.

    Parameters
    ----------
    time_budget : float, optional
        As of ``SVGPRegressor``.
    extrapolate : bool
        As of ``SVGPRegressor``; by default no searched classifier extrapolates.
    likelihood : str or Likelihood
        "bernoulli-probit" or "bernoulli-logit" for two classes, "softmax" or "robustmax". "auto" is
        "bernoulli-probit" for two classes, and "softmax" for more. "ordinal": grades in the order
        of the sorted labels, by one function.
    class_weight : dict, "balanced" or None
        Weights of the rows of each class, by label; they multiply ``sample_weight``. "balanced"
        gives all classes the same total, as in scikit-learn. Probabilities are then those of data
        with such frequencies.
    covariance, n_inducing, inducing, posterior, mean, ard
        As in ``SVGPRegressor``.
    solver, max_iter, batch_size, learning_rate, natural_step_size
        As in ``SVGPRegressor``. The optimal posterior has no closed form.
    early_stopping, validation_fraction, n_iter_no_change, tol
        As in ``SVGPRegressor``; held-out rows are stratified by class.
    n_restarts_optimizer, normalize_X, jitter, warm_start, random_state, verbose
        As in ``SVGPRegressor``.

    Attributes
    ----------
    classes_ : (C,) array
        Labels of the classes, sorted.
    model_, jitter_, inducing_, lower_bound_, lower_bounds_, n_iter_, scale_
        As in ``SVGPRegressor``.
    n_features_in_, feature_names_in_
        As in other estimators.

    plan_ : dict or None
    story_ : tuple of str
        As of ``SVGPRegressor``.

    Notes
    -----
    At least two classes are needed. There is no ``partial_fit``: see ``SVGPRegressor``.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsvgp.sklearn import SVGPClassifier
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = SVGPClassifier(n_inducing=20, random_state=0).fit(X, np.sin(X[:, 0]) > 0)
    >>> model.predict([[1.5], [4.5]]).tolist()
    [True, False]
    """

    @names_settings
    def __init__(
        self,
        covariance="matern32",
        *,
        time_budget=None,
        extrapolate=False,
        likelihood="auto",
        class_weight=None,
        n_inducing=INDUCING,
        inducing="kmeans",
        posterior="whitened",
        mean=None,
        ard=True,
        solver="auto",
        max_iter=None,
        batch_size=512,
        learning_rate=0.01,
        natural_step_size="auto",
        n_restarts_optimizer=0,
        normalize_X=True,
        jitter=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        random_state=None,
        verbose=0,
    ): ...

    _recipe = staticmethod(recipes.classification)

    @property
    def classes_(self):
        return self.scale_.classes

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        binary = isinstance(self.likelihood, BernoulliProbit | BernoulliLogit)
        tags.classifier_tags.multi_class = not (
            binary or isinstance(self.likelihood, str) and self.likelihood in recipes.BINARY
        )
        return tags

    def fit(self, X, y, sample_weight=None, groups=None, time=None):
        """Fit to X (N, D) and labels y (N,), with non-negative weights (N,) of rows.

        ``groups`` and ``time`` as in ``SVGPRegressor.fit``.
        """
        refuse_other_labels(y)
        X, y = self._validate_rows(X, y, reset=not (self.warm_start and hasattr(self, "model_")))
        check_classification_targets(y)
        if (
            type_of_target(y) == "multiclass"
            and not self.__sklearn_tags__().classifier_tags.multi_class
        ):
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass."
                " Bernoulli likelihoods have two classes; give likelihood='auto', 'softmax' or"
                " 'robustmax' for more"
            )
        y = column_or_1d(y, warn=True)
        weights = self._weigh(y, sample_weight)
        rows, split = merge_with_split(self, X, y, weights, groups, time)
        X, y, weights = rows
        self._check_settings()
        check_budget(self)
        if not changed_settings(self):
            return run_search(self, *rows, seed_of(self.random_state), "classes", split)
        return self._fit(X, y, weights, labels=y)

    def _weigh(self, y, weights):
        """Return weights of rows with those of their classes, or None."""
        if self.class_weight is None:
            return weights
        of_classes = compute_sample_weight(self.class_weight, y)
        return of_classes if weights is None else of_classes * weights

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Take new rows into a fitted model, without the old ones; a first call is ``fit``.

        Rows enter by ``fastsvgp.condition``, so the result depends somewhat on their batches.
        Scaling, covariance and inducing inputs stay those of the first rows, which must hold all
        classes and be typical: rows far outside their range give a warning. ``classes`` is checked
        only. ``lower_bound_``, ``lower_bounds_``, ``n_iter_``, ``plan_`` and ``story_`` stay those
        of ``fit``.
        """
        fitted = hasattr(self, "model_")
        if classes is not None:
            there = self.classes_ if fitted else np.unique(y)
            lacking = np.setdiff1d(classes, there)
            if len(lacking):
                raise ValueError(
                    f"`classes` has {lacking[0]!s:.40}, which the first rows lack; begin with rows"
                    " of every class"
                )
        if not fitted:
            return self.fit(X, y, sample_weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"`class_weight` {self.class_weight!r:.30} is of all rows together, and partial_fit"
                " has some of them: give a dict of weights by label"
            )
        refuse_other_labels(y)
        X, y = self._validate_rows(X, y)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        return self._take_in(X, y, self._weigh(y, sample_weight))

    def predict_proba(self, X):
        """Return class probabilities (N, C), in the order of ``classes_``."""
        Xs = self._ready(X)
        if isinstance(self.model_.likelihood, Ordinal):
            return recipes.grade_probabilities(self._predictor, Xs, self.jitter_)
        mean, _ = predict_y(self._predictor, Xs, jitter=self.jitter_)
        return mean if mean.ndim == 2 else np.stack([1 - mean, mean], axis=1)

    def predict_log_proba(self, X):
        """Return log probabilities of the classes (N, C), also where ``predict_proba`` is 0."""
        Xs, C = self._ready(X), len(self.classes_)
        codes, jitter = np.arange(C).repeat(len(Xs)).reshape(C, -1), self.jitter_
        found = [predict_log_density(self.model_, Xs, own, jitter=jitter) for own in codes]
        return np.stack(found, axis=1)

    def predict(self, X):
        """Return the most probable class of each row, (N,)."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def score(self, X, y, sample_weight=None):
        """Return the accuracy of predictions at X (N, D), with weights (N,) of rows."""
        check.refuse_masked("y", y)
        check.refuse_masked("sample_weight", sample_weight)
        return super().score(X, y, sample_weight)

    def sample_y(self, X, n_samples=1, random_state=0):
        """Sample labels (N, n_samples) at X (N, D); each column is from one function."""
        return self.classes_[self._draw(X, n_samples, random_state).T]

    def log_predictive_density(self, X, y):
        """Return the log probability (N,) of labels y."""
        check_is_fitted(self)
        X, y = self._validate_rows(X, y)
        Xs, codes = self._units(self.scale_, X, column_or_1d(y))
        return predict_log_density(
            self._predictor, Xs.astype(self._dtype, copy=False), codes, jitter=self.jitter_
        )
