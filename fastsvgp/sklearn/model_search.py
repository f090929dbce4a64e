"""Estimators without settings: the search of ``recipes`` chooses the model."""

import inspect
import numbers
import sys

import numpy as np
from sklearn.utils import check_random_state

from .. import check, recipes
from ..bounds.mixture import Mixture
from ..bounds.objectives import elbo
from ..check import DEFAULT_JITTER
from ..errors import warn
from ..recipes.beyond_range import inside, mean_function, rows_outside
from ..recipes.splits import signs
from ..records.inducing_sets import stack_sets
from ..runtime import tuning
from .training import says_nothing

# settings that a search accepts
ALWAYS = "time_budget", "extrapolate", "average", "class_weight", "random_state", "verbose"
TRIED = 4  # candidates that a warning names
EACH, MOST = 500, 60.0  # rows that add a second of work; the most seconds


def seed_of(random_state):
    """Return the seed of a search: an integer as it is, else drawn."""
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def changed_settings(estimator):
    """Return the settings that are not at their defaults, except ``ALWAYS``."""
    parameters = inspect.signature(type(estimator).__init__).parameters
    given = estimator.get_params(deep=False)
    return [
        name
        for name, value in given.items()
        if name not in ALWAYS and not _is_default(value, parameters[name].default)
    ]


def _is_default(value, default):
    return type(value) is type(default) and bool(value == default)


def check_budget(estimator):
    """Check and return the budget, None or positive; ``ValueError`` if other settings are set."""
    budget = estimator.time_budget
    if budget is None:
        return None
    budget = check.scalar("time_budget", budget)
    check.positive("time_budget", budget, "; 60 is usual")
    if names := changed_settings(estimator):
        listed = ", ".join(f"`{name}`" for name in names)
        raise ValueError(
            f"`time_budget` lets the time choose model and training, and {listed} does, too; drop"
            f" `time_budget`, or {listed}"
        )
    return budget


def merge_with_split(estimator, X, y, weights, groups, time):
    """Return the merged rows, and the ``recipes.Split`` of these rows by ``groups`` or ``time``.

    Both are None, the name or number of a column of X, or (N,) values.
    """
    given = {name: one for name, one in (("groups", groups), ("time", time)) if one is not None}
    if not given:
        if not changed_settings(estimator):
            _warn_of_signs(estimator, X, y)
        return estimator._merge_rows(X, y, weights), None
    if names := changed_settings(estimator):
        raise ValueError(
            f"`{next(iter(given))}` is for the search, which `{names[0]}` turns off; drop one"
        )
    columns, label = list(getattr(estimator, "feature_names_in_", ())), ""
    for name, one in given.items():
        if isinstance(one, str):
            if one not in columns:
                raise ValueError(f"`{name}` is {one!r}, and `X` has no column of this name")
            given[name], label = columns.index(one), one
    split = recipes.Split(**given, name=label)
    labels = split.labels(X)
    if labels.column is not None:
        return estimator._merge_rows(X, y, weights), split
    rows = estimator._merge_rows(np.column_stack([X, labels.labels]), y, weights)
    own = {name: rows[0][:, -1].astype(np.intp) for name in given}
    return (np.ascontiguousarray(rows[0][:, :-1]), *rows[1:]), recipes.Split(**own)


def _warn_of_signs(estimator, X, y):
    """Warn if columns look like groups, or like a time, that may be new in use."""
    codes = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1].reshape(y.shape)
    for one in signs(X, codes):
        name = names_of(estimator, X)[one.column]
        what = "groups" if one.option == "groups" else "times"
        warn(
            f"{name} {one.why}: if new {what} will come, give fit(..., {one.option}="
            f"{one.column}), or scores and variances are those of known ones"
        )


def run_search(estimator, X, y, weights, seed, likelihood="gaussian", split=None):
    """Search, and set the fitted attributes of the estimator."""
    budget = estimator.time_budget
    work = min(tuning.current.estimator_seconds + len(X) / EACH, MOST)
    found = recipes.search(
        X,
        y,
        work if budget is None else float(budget),
        likelihood=likelihood,
        weights=weights,
        rng=seed,
        by_work=budget is None,
        extrapolate=estimator.extrapolate,
        average=getattr(estimator, "average", False),  # of a regressor
        split=split,
        tell=_tell if estimator.verbose else None,
    )
    model = estimator.model_ = found.model
    estimator.scale_, estimator.jitter_ = found.scale, DEFAULT_JITTER[model.inducing.dtype]
    estimator.plan_, estimator.story_ = found.plan, found.story
    estimator.inducing_ = inducing_of(model, found.scale)
    Xs, ys = found.scale.X(X.astype(np.float64)), found.scale.y(y)
    ys = ys.astype(np.float64) if ys.dtype.kind == "f" else ys
    parts, shares = (model,), (1.0,)
    if isinstance(model, Mixture):  # its log evidence is above the mean of those of its models
        parts, shares = model.models, model.shares
    bounds = [elbo(one, Xs, ys, weights=weights) for one in parts]
    estimator.lower_bound_ = float(np.dot(shares, bounds))
    estimator.lower_bounds_ = np.array([estimator.lower_bound_])
    estimator.n_iter_ = max([1, *(look["steps"] for look in found.looks)])
    if found.interrupted:
        raise KeyboardInterrupt
    if says_nothing(model, estimator.jitter_, Xs, ys, weights):
        warn(
            "the model is no better than the trivial predictor: a larger time_budget can find more;"
            " or X carries little information about y"
            f" (tried: {_tried(found)}, with short lengthscales where nothing else explained more)"
        )
    return estimator


def _tried(found):
    """Return the candidates of a search, in words."""
    names = list(dict.fromkeys(look["candidate"] for look in found.looks)) or [found.chosen]
    more = f" and {len(names) - TRIED} more" if len(names) > TRIED else ""
    return ", ".join(names[:TRIED]) + more


def names_of(estimator, Xs):
    """Return the names of the columns, or their numbers."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"column {d}" for d in range(Xs.shape[1])] if names is None else names


def warn_outside(estimator, Xs):
    """Warn of standardised rows Xs that are far outside the training range of a search."""
    found = rows_outside(estimator.model_, Xs, names_of(estimator, Xs))
    if found is not None:
        warn(f"{found}: the model is unsure there (see `extrapolate`)")


def _tell(line):
    print(line, file=sys.stderr)


def inducing_of(model, scale):
    """Return inducing inputs (M, D) in the units of X; for a network the features (M, F)."""
    Z = stack_sets(model.inducing)
    covariance = inside(getattr(mean_function(model), "covariance", None))
    return Z if hasattr(covariance, "network") else scale.X_back(Z)
