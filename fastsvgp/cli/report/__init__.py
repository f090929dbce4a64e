"""The results of a fit beside the model: held-out metrics, metrics.json, plots, and the page."""

import json
import os
import re
from dataclasses import replace

import numpy as np

import fastsvgp as fs

from ...recipes.beyond_range import inside
from ...records import leaves
from ...records.inducing_sets import sets_of
from ...runtime.extras import install_hint
from ..data.targets import select_target
from ..fitted import Fitted
from ..kinds import bottom
from . import effects, linear, metrics, outputs, page, plots
from .outputs import METRICS, MODEL, REPORT
from .predictions import write_untargeted

GRID = 400
MOST_PLOTTED = 12  # targets


def evaluate(fitted, task):
    """Return held-out scores of a model, a linear one and the trivial predictor, or None."""
    found = metrics.evaluate(fitted, task)
    if found is not None:
        linear.add_linear(found, fitted, task)
    return found


def write(say, folder, fitted, task, results, values, title):
    """Write metrics.json, predictions of rows without a target, plots and the page.

    ``values`` of the bound at each step. Returns the paths, and why there are no plots.
    """
    inputs = effects.inputs_of(fitted, task)
    results["shares"] = _of_draws(say, "shares", effects.shares_of, fitted, task, inputs) or []
    strongest = effects.strongest(results["shares"], inputs)
    pair = effects.interaction(fitted, task, inputs)
    if pair is not None:
        names = [one.name for one in pair.inputs]
        results["interaction"] = {"inputs": names, "share": float(pair.share)}
    metrics = write_metrics(folder, results)
    predicted = write_untargeted(say, folder, fitted, task)
    shown = None
    if strongest and plots.available():
        shown = {
            "effects.png": _of_draws(say, "effects", effects.figure, fitted, task, strongest, title)
        }
        if pair is not None:
            what = effects.axis_of(fitted)
            shown["interaction.png"] = plots.interaction(pair, what, title)
    plotted, why_not = write_plots(folder, fitted, task, values, title, strongest, shown)
    page = write_page(folder, results, say.lines, plotted, why_not)
    return [metrics, *predicted, *plotted, page], why_not


def _of_draws(say, what, function, *args):
    """Return a result that needs joint draws, or None: without it the model is no worse."""
    try:
        return function(*args)
    except fs.NotPositiveDefinite:
        say(f"  note       no {what} of inputs: their joint draws fail; a larger --jitter may help")


def write_metrics(folder, results):
    """Write metrics.json."""
    path = os.path.join(folder, METRICS)
    content = (json.dumps(results, indent=2) + "\n").encode()
    outputs.write_file(path, content, lambda: _model_is_there(folder))
    return path


def _model_is_there(folder):
    return (
        f"the model is safe in {os.path.join(folder, MODEL)}; free some space before the next fit"
    )


def parameters(model):
    """Return variances, lengthscales and other hyperparameters by dotted path."""
    return {
        path: np.asarray(value, np.float64).tolist()
        for path, _, value in leaves(model)
        if value is not None
        and re.sub(r"^(basis|(layers|latents|models)\.\d+)\.", "", path).split(".")[0]
        in ("covariance", "likelihood", "mean", "mixing")
    }


def write_plots(folder, fitted, task, values, title, strongest, shown):
    """Write the plots for the task, and that of effects. Return their paths, and why none."""
    if not plots.available():
        return [], f"plots skipped: matplotlib is not installed; {install_hint('cli')}"
    figures = {name: figure for name, figure in (shown or {}).items() if figure is not None}
    if not fitted.several and fitted.classes is None and task.test.any():
        figures["residuals.png"] = _residuals(fitted, task, strongest, title)
    if len(values):
        figures["training.png"] = plots.training_curve(values, int(np.sum(~task.test)), title)
    if fitted.image_shape is not None:
        figures["patches.png"] = plots.inducing_patches(*_patches(fitted), title)
    if fitted.several:
        for number, (one, view) in enumerate(_views(fitted, task), 1):
            for name, figure in _fit_plots(view, one, title).items():
                figures[name.replace(".png", f"-{number}.png")] = figure
    else:
        figures |= _fit_plots(fitted, task, title)
    written = []
    for name, figure in figures.items():
        path = os.path.join(folder, name)
        outputs.write_file(path, plots.png(figure), lambda: _model_is_there(folder))
        written.append(path)
    return written, None


def write_page(folder, results, printed, plotted, why_not):
    """Write report.html; ``printed``: the lines about data and choices."""
    path, text = (
        os.path.join(folder, REPORT),
        page.page(results, printed, plotted, why_not),
    )
    content = text.encode(errors="backslashreplace")
    outputs.write_file(path, content, lambda: _model_is_there(folder))
    return path


def _patches(fitted):
    """Return inducing patches (M, h, w, C) in data units, and the weights (rows, columns)."""
    covariance, scale = fitted.model.covariance, fitted.scale
    H, W, C, h, w, stride = covariance.geometry
    Z = sets_of(fitted.model.inducing)[0]
    windows = (H - h) // stride + 1, (W - w) // stride + 1
    return (scale.x_mean[0] + scale.x_scale[0] * Z).reshape(-1, h, w, C), np.reshape(
        covariance.weights, windows
    )


def _fit_plots(fitted: Fitted, task, title):
    values, there = task.y, task.y == task.y  # a missing target is NaN
    if task.second is not None:
        values, there = metrics.seen(fitted, task)
    train, test = ~task.test & there, task.test & there
    names = (*task.input_names, task.target_name)
    one_input, levels = task.X.shape[1] == 1, plots.INTERVAL if fitted.classes is None else ()
    if one_input:
        seen, unseen = ((task.X[rows, 0], values[rows]) for rows in (train, test))
        grid = _grid(task.X[:, 0])
        prediction = fitted.predict(grid[:, None], levels)
        if fitted.classes is not None:
            return {
                "fit.png": plots.classes_1d(
                    seen, unseen, grid, prediction.probabilities, fitted.classes, names, title
                )
            }
        inducing = [fitted.scale.X_back(Z)[:, 0] for Z in _inducing_inputs(fitted.model)]
        return {
            "fit.png": plots.fit_1d(
                seen, unseen, grid, prediction.mean, prediction.quantiles, inducing, names, title
            )
        }
    if not test.any():
        return {}
    X, y = task.X[test], task.y[test]
    prediction = fitted.predict(X, levels)
    if fitted.classes is None:
        figure = plots.predicted_against_true(
            values[test],
            prediction.mean,
            prediction.quantiles,
            metrics.pit(fitted, task, test),
            task.target_name,
            title,
        )
    else:
        surface = _surface(fitted, task, names) if task.X.shape[1] == 2 else None
        figure = plots.classification(y, prediction.probabilities, fitted.classes, title, surface)
    return {"predictions.png": figure}


def _residuals(fitted, task, strongest, title):
    values, there = metrics.seen(fitted, task)
    rows = task.test & there
    mean = fitted.predict(task.X[rows]).mean
    against = {f"predicted {task.target_name}": mean, "row": np.flatnonzero(rows)}
    against |= {one.name: task.X[rows, one.columns[0]] for one in strongest if one.levels is None}
    return plots.residuals(values[rows] - mean, against, title)


def _inducing_inputs(model):
    """Return the sets of inducing inputs; empty unless they are points in input space."""
    if isinstance(model, fs.QSGP) or isinstance(
        inside(bottom(model).covariance), fs.covariances.OnFeatures
    ):
        return ()
    return sets_of(bottom(model).inducing)


def _grid(x, points=GRID):
    margin = 0.08 * (x.max() - x.min() or 1.0)
    return np.linspace(x.min() - margin, x.max() + margin, points)


def _surface(fitted, task, names):
    gx, gy = _grid(task.X[:, 0], 120), _grid(task.X[:, 1], 120)
    corners = np.stack(np.meshgrid(gx, gy), axis=-1)
    probabilities = fitted.predict(corners.reshape(-1, 2)).probabilities.reshape(
        len(gy), len(gx), -1
    )
    return gx, gy, probabilities, task.X, task.y, names


def _views(fitted, task):
    """Yield ``(task, fitted)`` of each target by itself, for the first ``MOST_PLOTTED`` targets."""
    for number, name in enumerate(task.target_name[:MOST_PLOTTED]):
        one = replace(task, y=task.y[:, number], target_name=name, X=task.X, test=task.test)
        yield one, _OneTarget(fitted, number)


class _OneTarget:
    """One target of a ``Fitted`` model of several, for plots."""

    def __init__(self, fitted, number):
        self._whole, self._number = fitted, number
        self.model, self.scale = fitted.model, select_target(fitted.scale, number)
        self.kind, self.classes = fitted.kind, None

    def predict(self, X, quantiles=()):
        found = self._whole.predict(X, quantiles)
        parts = (
            part if part is None else part[..., self._number]
            for part in (found.mean, found.sd, found.quantiles)
        )
        return type(found)(*parts)

    def cdf(self, X, y):
        whole = np.zeros((len(y), len(self._whole.target_name)))
        whole[:, self._number] = y
        return self._whole.cdf(X, whole)[:, self._number]
