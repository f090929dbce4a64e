"""Held-out metrics of numbers that are not standardised, and of targets with a second column."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...recipes import per_unit
from . import metrics


def evaluate(fitted, task, mean, log_density):
    """Return the metrics of held-out targets, as ``metrics.regression`` does.

    Counts with trials or exposures are compared per unit, weighted by these. Of a censored target
    only the rows where it was seen have an RMSE; the NLPD has the probabilities of the limits.

    mean, log_density : (N,) arrays of the held-out rows
    """
    y, second = _of(task, task.test)
    if fitted.likelihood == "censored":
        return _censored(fitted, (y, second), mean, log_density)
    units, share = _per_unit(fitted, y, second)
    train_units, train_share = _per_unit(fitted, *_of(task, ~task.test))
    rate = np.average(train_units, weights=train_share)
    sd = np.sqrt(np.average(np.square(train_units - rate), weights=train_share))
    if fitted.kind != "counts":
        return in_range(fitted.kind, y, mean, log_density, (rate, sd))
    trivial = counts_without_inputs(fitted.likelihood, y, second, rate)
    return {
        "scale": "counts per unit",
        "model": metrics.scores(units - mean, log_density, share),
        "trivial": metrics.scores(units - rate, trivial, share),
    }


def in_range(kind, y, mean, log_density, moments):
    """Return the metrics of positive numbers or proportions (N,).

    moments : mean and sd of the training rows, two numbers or one pair per target
    """
    m, sd = moments
    if kind == "positive":
        shape = (m / sd) ** 2
        rate = shape / m
        constant = shape * np.log(rate) - scipy.special.gammaln(shape)
        trivial = constant + (shape - 1) * np.log(y) - rate * y
    else:
        worth = np.maximum(m * (1 - m) / sd**2 - 1, 1e-3)
        a, b = m * worth, (1 - m) * worth
        trivial = (a - 1) * np.log(y) + (b - 1) * np.log1p(-y) - scipy.special.betaln(a, b)
    return {
        "scale": "positive numbers" if kind == "positive" else kind,
        "model": metrics.scores(y - mean, log_density),
        "trivial": metrics.scores(y - m, trivial),
    }


def _of(task, rows):
    return task.y[rows], task.second_of(rows)


def _per_unit(fitted, y, second):
    return per_unit(
        fitted.model.likelihood, y if second is None else np.stack([y, second], axis=-1)
    )


def seen(fitted, task):
    """Return targets to compare with predictions, (N,), and mask those that have a value."""
    y, share = _per_unit(fitted, task.y, task.second_of(slice(None)))
    return y, share > 0


def counts_without_inputs(likelihood, y, second, mean):
    """Return log densities (N,) of the predictor without inputs, with the mean rate."""
    if likelihood == "binomial":
        mean = np.clip(mean, 1e-6, 1 - 1e-6)
        n, others = second, second - y
        choices = -np.log1p(n) - scipy.special.betaln(y + 1.0, others + 1.0)
        return choices + y * np.log(mean) + others * np.log1p(-mean)
    rate = mean * second
    return scipy.special.xlogy(y, rate) - rate - scipy.special.gammaln(y + 1)


def _censored(fitted, held_out, mean, log_density):
    """Return metrics in both scales; the trivial predictor is N(mean, sd) of the training rows."""
    (y, side), scale = held_out, fitted.scale
    ys, means = scale.target(y), scale.target(mean)
    there = side == 0
    trivial = np.where(
        there, -0.5 * (metrics.LOG_2PI + np.square(ys)), scipy.special.log_ndtr(-side * ys)
    )
    # the probability of a limit has no units
    units = float(np.log(scale.y_scale) * np.mean(there))

    def scores(left, densities, factor, more):
        rmse = metrics.rms(left[there]) * factor if there.any() else float("nan")
        return {"rmse": rmse, "nlpd": more - float(np.mean(densities))}

    rows = {"model": (ys - means, log_density), "trivial": (ys, trivial)}
    found = {who: scores(*row, 1.0, 0.0) for who, row in rows.items()}
    original = {who: scores(*row, float(scale.y_scale), units) for who, row in rows.items()}
    return {"scale": "standardised", **found, "original_scale": original}


def score(fitted, y, second, mean, log_density):
    """Return RMSE and NLPD in the units of the data of targets in a file of predictions."""
    units, share = _per_unit(fitted, y, second)
    scale = np.log(fitted.scale.y_scale)
    if fitted.likelihood == "censored":
        scale = scale * np.mean(share)
    rmse = metrics.rms(units - mean, share) if share.any() else float("nan")
    return rmse, float(scale - np.mean(log_density))
