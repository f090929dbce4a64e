"""Held-out metrics of a model and of the trivial predictor, which ignores the inputs."""

from math import lgamma

import numpy as np

from ...recipes.remedies import Outcome, remedies

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
LOG_2PI = float(np.log(2 * np.pi))


def regression(y, mean, log_density, scale):
    """Return RMSE and NLPD in the standardised and in the original scale.

    Parameters
    ----------
    y, mean, log_density : (N,)
        Standardised test targets, predictive means of y, and log predictive densities.
    scale : Standardisation
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


def counts(y, mean, log_density, train_mean):
    """Return RMSE and NLPD of counts; the trivial predictor is Poisson with the training mean.

    ``train_mean``: one number, or one per count.
    """
    log_factorial = np.array([lgamma(v + 1.0) for v in y])
    trivial = y * np.log(train_mean) - train_mean - log_factorial
    return {
        "scale": "counts",
        "model": scores(y - mean, log_density),
        "trivial": scores(y - train_mean, trivial),
    }


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
    trivial = TRIVIAL[result["scale"]]
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
        for who, row in (
            ("model", values["model"]),
            (f"trivial predictor ({trivial})", values["trivial"]),
        ):
            lines.append(f"    {who:<38}" + "".join(f"{row[n]:>12.4g}" for n in names))
    return "\n".join(lines)
