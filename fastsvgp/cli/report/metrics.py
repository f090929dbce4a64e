"""Held-out metrics of a model and of the trivial predictor, which ignores the inputs."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...recipes import comparable_targets
from ...recipes.remedies import Outcome, remedies
from ..data.targets import select_target
from ..settings.names import kind_of

LABELS = {"rmse": "RMSE", "nlpd": "NLPD", "accuracy": "accuracy"}
# contents of the trivial predictor, by scale
TRIVIAL = {
    "standardised": "mean and sd",
    "counts": "mean rate",
    "counts per unit": "mean rate",
    "positive numbers": "gamma, mean and sd",
    "proportions": "beta, mean and sd",
    "classes": "class frequencies",
}
# of scikit-learn, by scale; other targets have none
LINEAR = {"standardised": "ridge", "counts": "Poisson", "classes": "logistic"}
SCALES = {"positive": "positive numbers"}
LOG_2PI = float(np.log(2 * np.pi))


def evaluate(fitted, task):
    """Return held-out metrics of a model and of the trivial predictor; None without such rows.

    Of numbers also ``coverage``, the share of targets inside their 95 % interval.
    """
    found = _evaluate(fitted, task) if task.test.any() else None
    if found is None or fitted.classes is not None or fitted.likelihood == "censored":
        return found
    return found | {"coverage": float(coverage(*pit(fitted, task, task.test), [0.95])[0])}


def pit(fitted, task, rows):
    """Return the predictive distribution function just below each target there is and at it."""
    X, y, second = task.X[rows], task.y[rows], task.second_of(rows)
    there, known = y == y, {} if second is None else {"second": second}  # a missing target is NaN
    y = np.where(there, y, 1)
    at = fitted.cdf(X, y, **known)
    below = at
    if fitted.kind == "counts":
        below = np.where(y > 0, fitted.cdf(X, np.maximum(y - 1, 0), **known), 0)
    return below[there], at[there]


def answer(results):
    """Return how good a model is, in one sentence."""
    test, rows = results["test"], f"{results['test_rows']} held-out rows"
    if results.get("holds"):
        rows += f" ({results['holds']})"
    if not test:
        return "Nothing was held out, so nothing says how good the model is."
    model, trivial = test["model"], test["trivial"]
    if "accuracy" in model:
        own, other = (f"{100 * one['accuracy']:.0f} %" for one in (model, trivial))
        return f"Names the class of {own} of {rows}; the most frequent class is right in {other}."
    share = 1 - (model["rmse"] / trivial["rmse"]) ** 2 if trivial["rmse"] else 0.0
    percent = "more than 99.5" if share > 0.995 else f"{100 * share:.0f}"
    explained = f"Explains {percent} % of the variance of {rows}"
    if not share >= 0.005:
        explained = f"Explains nothing of the variance of {rows}"
    inside = test.get("coverage")
    return explained + (
        "." if inside is None else f"; its 95 % intervals hold {100 * inside:.0f} %."
    )


def _evaluate(fitted, task):
    if fitted.several:
        return _evaluate_several(fitted, task)
    X, y, second = task.X[task.test], task.y[task.test], task.second_of(task.test)
    log_density, prediction = fitted.log_density(X, y, second), fitted.predict(X)
    if fitted.classes is not None:
        p, names = prediction.probabilities, fitted.classes
        scores = classification(y, p, log_density, task.y[~task.test])
        return scores | {"by_class": by_class(y, p, log_density, names)}
    if fitted.likelihood == "censored":
        return _score_censored(fitted, (y, second), prediction.mean, log_density)
    if fitted.kind == "regression":
        scale = fitted.scale
        return regression(scale.y(y), scale.y(prediction.mean), log_density, scale)
    train, share = _comparable(fitted, task.y[~task.test], task.second_of(~task.test))
    mean = np.average(train, weights=share)
    sd = np.sqrt(np.average(np.square(train - mean), weights=share))
    return _numbers(fitted, y, second, prediction.mean, log_density, (mean, sd))


def _evaluate_several(fitted, task):
    """Return metrics of all targets together, and in ``targets`` those of each by its name.

    Missing targets do not count.
    """
    X, y, y_train = task.X[task.test], task.y[task.test], task.y[~task.test]
    log_density, mean = fitted.log_densities(X, y), fitted.predict(X).mean
    moments = [np.broadcast_to(one(y_train, axis=0), y.shape) for one in (np.nanmean, np.nanstd)]
    ys, means = fitted.scale.y(y), fitted.scale.y(mean)

    def scores(cells, number):
        if fitted.kind == "regression":
            scale = None if number is None else select_target(fitted.scale, number)
            return regression(ys[cells], means[cells], log_density[cells], scale)
        own = [values[cells] for values in moments]
        return _numbers(fitted, y[cells], None, mean[cells], log_density[cells], own)

    there, each = ~np.isnan(y), {}
    for number, name in enumerate(fitted.target_name):
        cells = there & (np.arange(y.shape[1]) == number)
        if cells.any():
            each[name] = scores(cells, number)
    return (scores(there, None) | {"targets": each}) if each else None


def regression(y, mean, log_density, scale):
    """Return RMSE and NLPD in the standardised and in the original scale.

    Parameters
    ----------
    y, mean, log_density : (N,)
        Standardised test targets, predictive means of y, and log predictive densities.
    scale : Scale
        Scaling of the training part; None for targets of several scales. The trivial predictor is
        N(0, 1) in the standardised scale.
    """
    model = scores(y - mean, log_density)
    trivial = {"rmse": rms(y), "nlpd": 0.5 * (LOG_2PI + float(np.mean(y**2)))}
    found = {"scale": "standardised", "model": model, "trivial": trivial}
    if scale is None:
        return found
    return found | {
        "original_scale": {
            who: {
                "rmse": values["rmse"] * scale.y_scale,
                "nlpd": values["nlpd"] + float(np.log(scale.y_scale)),
            }
            for who, values in (("model", model), ("trivial", trivial))
        },
    }


def _numbers(fitted, y, second, mean, log_density, moments):
    """Return the metrics of counts, positive numbers or proportions (N,).

    Counts with trials or exposures are compared per unit, weighted by these.
    """
    units, share = _comparable(fitted, y, second)
    scale = "counts per unit" if second is not None else SCALES.get(fitted.kind, fitted.kind)
    trivial = trivial_densities(fitted.likelihood, y, second, moments)
    return {
        "scale": scale,
        "model": scores(units - mean, log_density, share),
        "trivial": scores(units - moments[0], trivial, share),
    }


def trivial_densities(likelihood, y, second, moments):
    """Return log densities (N,) of the predictor without inputs.

    second : (N,) trials or exposures, or None
    moments : mean and sd of the training rows, per unit: two numbers, or a pair per target
    """
    kind, (m, sd) = kind_of(likelihood), moments
    if likelihood == "binomial":
        mean, n, others = np.clip(m, 1e-6, 1 - 1e-6), second, second - y
        choices = -np.log1p(n) - scipy.special.betaln(y + 1.0, others + 1.0)
        return choices + y * np.log(mean) + others * np.log1p(-mean)
    if kind == "counts":
        rate = m if second is None else m * second
        return scipy.special.xlogy(y, rate) - rate - scipy.special.gammaln(y + 1)
    if kind == "positive":
        shape = (m / sd) ** 2
        rate = shape / m
        constant = shape * np.log(rate) - scipy.special.gammaln(shape)
        return constant + (shape - 1) * np.log(y) - rate * y
    worth = np.maximum(m * (1 - m) / sd**2 - 1, 1e-3)
    a, b = m * worth, (1 - m) * worth
    return (a - 1) * np.log(y) + (b - 1) * np.log1p(-y) - scipy.special.betaln(a, b)


def _score_censored(fitted, held_out, mean, log_density):
    """Return metrics of a censored target in both scales.

    Only the rows where it was seen have an RMSE; the NLPD has the probabilities of the limits. The
    trivial predictor is N(mean, sd) of the training rows.
    """
    (y, side), scale = held_out, fitted.scale
    ys, means = scale.y(y), scale.y(mean)
    there = side == 0
    trivial = np.where(there, -0.5 * (LOG_2PI + np.square(ys)), scipy.special.log_ndtr(-side * ys))
    # the probability of a limit has no units
    units = float(np.log(scale.y_scale) * np.mean(there))

    def compute(left, densities, factor, more):
        rmse = rms(left[there]) * factor if there.any() else float("nan")
        return {"rmse": rmse, "nlpd": more - float(np.mean(densities))}

    rows = {"model": (ys - means, log_density), "trivial": (ys, trivial)}
    found = {who: compute(*row, 1.0, 0.0) for who, row in rows.items()}
    original = {who: compute(*row, float(scale.y_scale), units) for who, row in rows.items()}
    return {"scale": "standardised", **found, "original_scale": original}


def _comparable(fitted, y, second):
    return comparable_targets(
        fitted.model.likelihood, y if second is None else np.stack([y, second], axis=-1)
    )


def seen(fitted, task):
    """Return targets to compare with predictions, (N,), and mask those that have a value."""
    y, share = _comparable(fitted, task.y, task.second_of(slice(None)))
    return y, share > 0


def score(fitted, y, second, mean, log_density):
    """Return RMSE and NLPD in the units of the data of targets in a file of predictions."""
    units, share = _comparable(fitted, y, second)
    scale = np.log(fitted.scale.y_scale)
    if fitted.likelihood == "censored":
        scale = scale * np.mean(share)
    rmse = rms(units - mean, share) if share.any() else float("nan")
    return rmse, float(scale - np.mean(log_density))


def classification(y, probabilities, log_density, train_codes):
    """Return accuracy and NLPD.

    The trivial predictor has the class frequencies of the training part, with one added per count.

    Parameters
    ----------
    y : (N,) integer codes
    probabilities : (N, C)
    log_density : (N,)
        Log probability of the true class.
    train_codes : (N_train,) integer codes
    """
    frequency = np.bincount(train_codes, minlength=probabilities.shape[1]) + 1.0
    frequency /= frequency.sum()
    return {
        "scale": "classes",
        "model": {
            "accuracy": float(np.mean(probabilities.argmax(axis=1) == y)),
            "nlpd": -float(np.mean(log_density)),
        },
        "trivial": {
            "accuracy": float(np.mean(frequency.argmax() == y)),
            "nlpd": -float(np.mean(np.log(frequency[y]))),
        },
    }


def by_class(y, probabilities, log_density, names):
    """Return for each class its name, its rows and those named so, how many are both, its NLPD."""
    chosen, found = probabilities.argmax(axis=1), []
    for code, name in enumerate(names):
        own = y == code
        right = int(np.sum(own & (chosen == code)))
        nlpd = -float(np.mean(log_density[own])) if own.any() else None
        counts = {"rows": int(own.sum()), "named": int(np.sum(chosen == code)), "right": right}
        found.append({"class": name, **counts, "nlpd": nlpd})
    return found


def coverage(below, at, levels):
    """Return the share of targets inside the central predictive interval of each level.

    Parameters
    ----------
    below, at : (N,)
        The predictive distribution function just below each target and at it. If these differ, a
        target counts by the part of its probability that is inside the interval (Czado, Gneiting
        and Held 2009). The expected share of a calibrated model is the level.
    levels : (K,)
    """
    shares = []
    for level in levels:
        low, high = 0.5 - 0.5 * level, 0.5 + 0.5 * level
        inside = (at >= low) & (at <= high)
        part = np.minimum(at, high) - np.maximum(below, low)
        width = np.where(at > below, at - below, 1)
        shares.append(np.mean(np.where(at > below, np.clip(part / width, 0, 1), inside)))
    return np.array(shares)


FEW = 30  # held-out rows, below which scores can be chance
WORDS = {
    "longer": "more --steps",
    "minibatches": "--method svgp",
    "all": "--inducing {rows} (all rows)",
    "exact": "--method sgpr --inducing {rows} (all rows)",
    "more": "--inducing {more}",
    "fewer": "--ignore for columns that cannot matter",
    "covariance": "another --covariance",
    "seconds": "more --seconds",
}
BLIND = "{}; or these inputs carry little information about the target"
SPREAD = {  # for a model that is right on average but over- or underconfident
    "standardised": (
        "its intervals are off: try another --likelihood (student-t and laplace tolerate"
        " outliers); {}"
    ),
    "counts": (
        "its intervals are off: {}; or give --likelihood negative-binomial, for counts that vary"
        " more than Poisson variables"
    ),
    **dict.fromkeys(
        ("counts per unit", "positive numbers", "proportions"),
        "its intervals are off: {}, or another --likelihood",
    ),
    "classes": "its probabilities are off: {}, or another --likelihood",
}


def advice(result, num_rows, outcome):
    """Advice about a model no better than the trivial predictor on ``num_rows`` rows, else None.

    ``outcome`` is the ``remedies.Outcome`` of its training, as a dict. An accuracy equal to that of
    the largest class causes no advice, because it is common if the other class is rare.
    """
    model, trivial = result["model"], result["trivial"]
    lost = [
        name
        for name in model
        if (model[name] < trivial[name] if name == "accuracy" else model[name] >= trivial[name])
    ]
    if not lost:
        return None
    names = " and ".join(LABELS[name] for name in lost)
    todo = (SPREAD[result["scale"]] if lost == ["nlpd"] else BLIND).format(
        remedies(Outcome(**outcome), WORDS)
    )
    chance = f" (with {num_rows} held-out rows this can be chance)" if num_rows < FEW else ""
    return f"no better than the trivial predictor in {names}{chance}: {todo}"


def rms(values, weights=None):
    """Root mean square."""
    return float(np.sqrt(np.average(np.square(values), weights=weights)))


def scores(residual, log_density, weights=None):
    """Return the RMSE of weighted residuals (N,), and the NLPD."""
    return {"rmse": rms(residual, weights), "nlpd": -float(np.mean(log_density))}


def table(result, title="held-out data"):
    """Format metrics as text: one row for the model, one for the trivial predictor."""
    names = list(result["model"])
    blocks = [(title, result)]
    if "original_scale" in result:
        blocks = [
            (f"{title}, standardised", result),
            (f"{title}, original scale", result["original_scale"]),
        ]
    for name, values in result.get("targets", {}).items():
        blocks.append((f"{title}, {name!r}, original scale", values.get("original_scale", values)))
    lines = []
    for heading, values in blocks:
        lines.append(f"  {heading:<40}" + "".join(f"{LABELS[n]:>12}" for n in names))
        for who, row in rivals(result["scale"], values):
            lines.append(f"    {who:<38}" + "".join(f"{row[n]:>12.4g}" for n in names))
    return "\n".join(lines)


def rivals(scale, values):
    """Return names and scores of the model, of a linear one if there is, and of the trivial one."""
    named = {
        "model": "model",
        "linear": f"linear model ({LINEAR.get(scale)})",
        "trivial": f"trivial predictor ({TRIVIAL[scale]})",
    }
    return [(named[key], values[key]) for key in named if key in values]
