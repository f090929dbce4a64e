"""Pictures of mean effects of an estimator, in the units of its data."""

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .. import check
from ..likelihoods import (
    Censored,
    Gaussian,
    HeteroskedasticGaussian,
    KnownNoise,
    Laplace,
    Ordinal,
    StudentT,
)
from ..runtime.extras import install_package
from ..sensitivity.drawing import draw_effect
from ..sensitivity.mean_effects import effects
from ..sensitivity.sobol_indices import sobol

# likelihoods with additive noise
ADDED = Censored, Gaussian, HeteroskedasticGaussian, KnownNoise, Laplace, StudentT
MOST = 6  # inputs that are drawn by default
WIDE, SIZE = 3, (4.2, 3.4)  # axes in a row, inches of each


def plot_effects(estimator, X, columns, axes):
    """Draw the effects: see ``SVGPEstimator.plot_effects``."""
    check_is_fitted(estimator)
    X = estimator._validate_rows(X)
    model, jitter = estimator.model_, estimator.jitter_
    Xs, likelihood = estimator._standardise(X), model.likelihood
    # a function of noise beside that of y is no effect: their targets have the mean of y
    targets = not isinstance(likelihood, ADDED) or likelihood.latents_per_output > 1
    if columns is None:
        columns = list(range(X.shape[1]))
        if len(columns) > MOST:
            shares = sobol(model, Xs, num_draws=2, targets=targets, jitter=jitter).first
            strength = shares.reshape(len(columns), -1).max(axis=1)
            columns = np.argsort(-strength, kind="stable")[:MOST].tolist()
    else:
        columns = [_position(estimator, column, X.shape[1]) for column in columns]
    found = effects(model, Xs, columns, targets=targets, jitter=jitter)
    axes = _axes(len(found)) if axes is None else np.ravel(axes)
    if len(axes) != len(found):
        raise ValueError(f"`axes` has {len(axes)} axes for {len(found)} columns; give one for each")
    names = getattr(estimator, "feature_names_in_", [f"column {d}" for d in range(X.shape[1])])
    labels = _labels(estimator, found[0].mean) if found else [None]
    for ax, effect in zip(axes, found, strict=True):
        (column,) = effect.columns
        at = np.repeat(Xs[:1], len(effect.grid), axis=0)
        at[:, column] = effect.grid
        back = np.asarray if is_classifier(estimator) else estimator.scale_.back
        parts = [back(part) for part in effect[2:]]
        grid = estimator.scale_.X_back(at)[:, column]
        shown = type(effect)(effect.columns, grid, *parts)
        draw_effect(ax, shown, X[:, column], labels)
        ax.set_xlabel(names[column])
    if len(labels) > 1:
        axes[0].legend(frameon=False, fontsize="small")
    axes[0].set_ylabel(_what(estimator))
    return axes


def _position(estimator, column, D):
    names = list(getattr(estimator, "feature_names_in_", ()))
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"`columns` has {column!r:.60}, which is no column of X: {names}")
        return names.index(column)
    column = check.whole("columns", column, 0)
    if column >= D:
        raise ValueError(f"`columns` has {column}, but X has columns 0 to {D - 1}")
    return column


def _labels(estimator, mean):
    count = 1 if mean.ndim == 1 else mean.shape[1]
    if count == 1:
        return [None]
    of_classes = is_classifier(estimator)
    return [f"{c}" for c in estimator.classes_] if of_classes else [f"y{p}" for p in range(count)]


def _what(estimator):
    if not is_classifier(estimator):
        return "y, mean effect (95 % band)"
    if isinstance(estimator.model_.likelihood, Ordinal):
        return "number of the grade (95 % band)"
    what = "each class" if len(estimator.classes_) > 2 else f"{estimator.classes_[1]}"
    return f"probability of {what} (95 % band)"


def _axes(count):
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            f"plot_effects: matplotlib is not installed; {install_package('matplotlib')}"
        ) from None
    columns = min(WIDE, count)
    rows = -(-count // columns)
    size = SIZE[0] * columns, SIZE[1] * rows
    options = {"layout": "constrained", "squeeze": False, "sharey": True}  # of one scale
    axes = pyplot.subplots(rows, columns, figsize=size, **options)[1]
    axes = axes.ravel()
    for ax in axes[count:]:
        ax.set_axis_off()
    return axes[:count]
