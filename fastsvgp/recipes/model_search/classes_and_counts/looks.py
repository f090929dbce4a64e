"""A look at a candidate for classes or counts, at the temperature that held-out rows choose."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..looks import Look
from ..mapped_inputs import in_units
from .temperature import at_temperature, constant_of, latent, temperature_of

EVALUATIONS = 4000  # operations per marginal, of some 20 predictive densities


@dataclass(frozen=True)
class TargetLook(Look):
    """A ``Look`` at classes or counts: ``rmse`` holds the RMSE of counts, or the error rate."""

    model: Any = None
    counts: bool = False

    def measured(self):
        if self.counts:
            return super().measured()
        return f"accuracy {1 - self.rmse:.4g}"

    def to_json(self):
        values = super().to_json() | {"factors": list(self.factors)}
        if not self.counts:
            values |= {"accuracy": 1 - values.pop("rmse")}
        return values


def densities(model, scale, rows, T=1.0):
    """Return the log density (N,) of the targets of rows under the model at temperature T."""
    f = latent(model, in_units(rows.X, scale))
    return model.likelihood.predict_log_density(rows.y, at_temperature(f, constant_of(model), T))


def look_at(candidate, held, plan):
    """Make a ``TargetLook``; raise ``ArithmeticError`` if the score is not finite."""
    model, y, weights = candidate.model, held.y, held.weights
    f = latent(model, candidate.scale.X(held.X))
    T = temperature_of(model, f, y, weights)
    tempered = at_temperature(f, constant_of(model), T)
    score = float(np.average(model.likelihood.predict_log_density(y, tempered), weights=weights))
    plan.did(f.mean.size * (4 * len(model.inducing) ** 2 + EVALUATIONS), 10)
    if not np.isfinite(score):
        raise ArithmeticError("the density of held-out rows is not finite")
    return look_of(candidate, plan.spent, score, _error(model, tempered, y, weights), (T,))


def look_of(candidate, seconds, score, rmse, factors):
    """Return the ``TargetLook`` at a candidate with these measurements."""
    return TargetLook(
        candidate.name, seconds, candidate.steps, score, rmse, tuple(factors), None,
        candidate.scale, candidate.state, candidate.model, candidate.model.likelihood.counts,
    )  # fmt: skip


def _error(model, f, y, weights):
    """Return the error rate of classes, or the RMSE of counts."""
    mean, _ = model.likelihood.predict_mean_and_var(f)
    if model.likelihood.counts:
        return float(np.sqrt(np.average(np.square(mean - y), weights=weights)))
    guessed = mean.argmax(axis=0) if mean.ndim == 2 else mean > 0.5
    return float(np.average(guessed != y, weights=weights))
