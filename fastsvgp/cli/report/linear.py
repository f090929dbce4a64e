"""Scores of a linear model by scikit-learn, beside those of a model and the trivial predictor."""

import warnings

import numpy as np

from . import metrics

ROWS, WORK = 20_000, 2e9  # training rows at most, and rows times squared columns
PENALTIES = np.logspace(-3, 5, 17)  # of which leaving one row out chooses


def add_linear(found, fitted, task):
    """Add the scores of a linear model to those of held-out rows, in each scale.

    Without scikit-learn, and for targets that no linear model of it fits, nothing is added.
    """
    if found["scale"] not in metrics.LINEAR or task.second is not None:
        return
    try:
        from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
    except ImportError:
        return
    train, test = np.flatnonzero(~task.test), task.test
    most = int(max(500, min(ROWS, WORK / task.X.shape[1] ** 2)))
    if len(train) > most:
        train = train[np.linspace(0, len(train) - 1, most).astype(int)]
    X, mean, spread = task.X, task.X[train].mean(axis=0), task.X[train].std(axis=0)
    X = (X - mean) / np.where(spread > 0, spread, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that few iterations are enough
        if found["scale"] == "classes":
            model = LogisticRegression(max_iter=200).fit(X[train], task.y[train])
            found["linear"] = _classes(model, X[test], task.y[test], len(fitted.classes), train)
        elif fitted.several and fitted.kind != "regression":
            return
        elif found["scale"] == "counts":
            model = PoissonRegressor(alpha=1 / len(train), max_iter=200)
            rate, y = model.fit(X[train], task.y[train]).predict(X[test]), task.y[test]
            density = metrics.trivial_densities("poisson", y, None, (rate, None))
            found["linear"] = metrics.scores(y - rate, density)
        else:
            _add_regressions(found, fitted, task, X, train, lambda: RidgeCV(PENALTIES))


def _classes(model, X, y, count, train):
    """Return accuracy and NLPD; a class without a training row is as rare as it can be."""
    found = np.full((len(X), count), 1 / (len(train) + count))
    found[:, model.classes_] = np.maximum(model.predict_proba(X), found[:, model.classes_])
    return {
        "accuracy": float(np.mean(found.argmax(axis=1) == y)),
        "nlpd": -float(np.mean(np.log(found[np.arange(len(y)), y]))),
    }


def _add_regressions(found, fitted, task, X, train, new):
    """Add scores of Gaussian noise, whose variance is that of the errors of rows left out."""
    shape = len(task.y), -1
    ys, names = fitted.scale.y(task.y).reshape(shape), task.target_name
    units = np.broadcast_to(np.ravel(fitted.scale.y_scale), ys.shape[1:])
    left = np.full((int(task.test.sum()), ys.shape[1]), np.nan)
    density = np.full(left.shape, np.nan)
    for p, y in enumerate(ys.T):
        rows = train[~np.isnan(y[train])]
        model = new().fit(X[rows], y[rows])
        left[:, p], var = y[task.test] - model.predict(X[task.test]), -model.best_score_
        density[:, p] = -0.5 * (metrics.LOG_2PI + np.log(var) + left[:, p] ** 2 / var)
    there = ~np.isnan(left)
    found["linear"] = metrics.scores(left[there], density[there])
    blocks = found.get("targets") or {names: found}
    for p, name in enumerate(task.target_name if fitted.several else [names]):
        if name in blocks:
            own = there[:, p]
            scores = metrics.scores(left[own, p], density[own, p])
            blocks[name]["linear"] = scores
            blocks[name]["original_scale"]["linear"] = {
                "rmse": scores["rmse"] * float(units[p]),
                "nlpd": scores["nlpd"] + float(np.log(units[p])),
            }
