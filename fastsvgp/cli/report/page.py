"""report.html: all that is worth knowing of a fit in one file, without a link or a script, to keep or to send."""

import base64
import os
from html import escape

import numpy as np

import fastsvgp as fs

from ..fitted import bottom
from .metrics import LABELS, TRIVIAL, advice

ROWS = 10  # of the bound
INPUTS = 40  # whose relevance is listed
CAPTIONS = {
    "training.png": "The bound over the training.",
    "fit.png": "The model over its input, with the data.",
    "predictions.png": "The model on the held-out rows.",
    "patches.png": "Inducing patches, and the weights of the windows.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; } th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f4f4f4; padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; } img { max-width: 100%; }
.bar { background: #2c6fbb; height: .8rem; } .scale { width: 14rem; } p.note { color: #8a4b00; }
"""
SAFE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(fitted, results, said, values, pictures, why_no_pictures):
    """The page as text.

    Parameters
    ----------
    fitted : Fitted
    results : dict
        What metrics.json says.
    said : list of str
        The lines that the fit has printed of data and choices.
    values : (steps,) array
        The bound at each step.
    pictures : list of paths
        PNG files, which are taken in.
    why_no_pictures : str or None
    """
    title = escape(f"fastsvgp fit of {results['data']}")
    parts = [
        f"<h1>{title}</h1>",
        *_warnings(results),
        "<h2>Command</h2>",
        f"<pre>{escape(results['command'])}</pre>",
        "<h2>Data and choices</h2>",
        _table(
            [], [line.strip().split(maxsplit=1) for line in said if line.startswith("  ")], "th"
        ),
        "<h2>Scores on held-out rows</h2>",
        *_scores(results),
        *(
            _looks(results["looks"])
            if "looks" in results
            else _bound(values, results["train_rows"])
        ),
        "<h2>Relevance of the inputs</h2>",
        *_relevance(fitted, results),
        "<h2>Pictures</h2>",
        *([f"<p>{escape(why_no_pictures)}</p>"] if why_no_pictures else map(_picture, pictures)),
        (
            f"<p>Written by fastsvgp {escape(results['fastsvgp'])}; the model is in model.npz, all"
            " figures are in metrics.json.</p>"
        ),
    ]
    head = (
        '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy"'
        f' content="{SAFE}"><title>{title}</title>'
    )
    top = f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>'
    return "\n".join([top, *parts, "</body></html>\n"])


def _warnings(results):
    if results["interrupted"]:
        yield (
            f'<p class="note">The training was interrupted after {results["steps"]} steps; this is'
            " the model so far.</p>"
        )
    if results["test"] and (
        said := advice(results["test"], results["test_rows"], results["outcome"])
    ):
        yield f'<p class="note">The model is {escape(said)}.</p>'


def _table(header, rows, first="td"):
    """Cells are text, which is escaped, and numbers; ``first``: the tag of the first cell of each row."""
    lines = [_row(row, first, "td") for row in rows]
    if header:
        above = [
            _Above(name) if type(cell) in (int, float) else name
            for name, cell in zip(header, rows[0], strict=True)
        ]
        lines.insert(0, _row(above, "th", "th"))
    return "\n".join(["<table>", *lines, "</table>"])


def _row(cells, first, tag):
    tags = [first, *[tag] * (len(cells) - 1)]
    return (
        "<tr>" + "".join(_cell(cell, tag) for cell, tag in zip(cells, tags, strict=True)) + "</tr>"
    )


def _cell(cell, tag):
    if isinstance(cell, _Bar):
        return (
            f'<{tag} class="scale"><div class="bar" style="width: {100 * cell:.1f}%"></div></{tag}>'
        )
    if isinstance(cell, int | float):
        return f'<{tag} class="number">{cell:{".5g" if isinstance(cell, float) else "d"}}</{tag}>'
    if isinstance(cell, _Above):
        return f'<{tag} class="number">{escape(cell)}</{tag}>'
    return f"<{tag}>{escape(cell)}</{tag}>"


class _Bar(float):
    """A part of the whole, to be drawn."""


class _Above(str):
    """The name of a column of numbers."""


def _scores(results):
    test = results["test"]
    if not test:
        yield "<p>Nothing was held out.</p>"
        return
    blocks = [(test["scale"], test)] + (
        [("original", test["original_scale"])] if "original_scale" in test else []
    )
    names = list(test["model"])
    trivial = f"trivial predictor ({TRIVIAL[test['scale']]})"
    rows = [
        [who, scale, *(float(values[key][name]) for name in names)]
        for scale, values in blocks
        for who, key in (("model", "model"), (trivial, "trivial"))
    ]
    yield _table(["", "scale", *(LABELS[name] for name in names)], rows)
    yield (
        f"<p>{results['test_rows']} rows. The trivial predictor knows the training targets and no"
        " input. Of RMSE and NLPD (negative log predictive density, nats a row) less is better, of"
        " accuracy more.</p>"
    )


def _looks(looks):
    """What a search saw of its candidates."""
    yield "<h2>Candidates</h2>"
    if not looks:
        yield "<p>There was one candidate only.</p>"
        return
    names = list(dict.fromkeys(look["candidate"] for look in looks))
    best = [
        max(
            (look for look in looks if look["candidate"] == name),
            key=lambda look: look["log_density"],
        )
        for name in names
    ]
    rows = [
        [look["candidate"], look["seconds"], look["steps"], look["log_density"], look["rmse"]]
        for look in sorted(best, key=lambda look: -look["log_density"])
    ]
    yield _table(["candidate", "after (s)", "steps", "log density", "RMSE"], rows)
    yield (
        "<p>The best look at each candidate, by rows of the training part that neither it nor its"
        " posterior had seen, in standardised units.</p>"
    )


def _bound(values, num_rows):
    yield "<h2>Bound over the training</h2>"
    if not len(values):
        yield "<p>There was no step of training.</p>"
        return
    ends = np.unique(np.linspace(1, len(values), min(ROWS, len(values))).round().astype(int))
    window = max(1, len(values) // 50)
    means = [float(np.mean(values[max(0, end - window) : end])) for end in ends]
    smooth = f" (mean of {window} steps)" if window > 1 else ""
    rows = [[int(end), mean, mean / num_rows] for end, mean in zip(ends, means, strict=True)]
    yield _table(["step", f"ELBO{smooth}", "per training row (nats)"], rows)


def _relevance(fitted, results):
    model = fitted.model
    covariance = model.basis.covariance if isinstance(model, fs.QSGP) else bottom(model).covariance
    if isinstance(covariance, fs.Convolutional):
        yield "<p>The inputs are pixels; lengthscales are of the patches.</p>"
        return
    if isinstance(covariance, fs.OnFeatures):
        yield "<p>The inputs pass through a network; lengthscales are of its features.</p>"
        return
    lengths = np.asarray(covariance.lengthscales, np.float64)
    if lengths.ndim == 0:
        yield (
            f"<p>All inputs share one lengthscale, {float(lengths):.4g} standard deviations (--ard"
            " gives each its own).</p>"
        )
        return
    constant = set(results["constant_inputs"])
    order = [d for d in np.argsort(lengths) if fitted.input_names[d] not in constant]
    shown, scale = order[:INPUTS], fitted.scale.x_scale
    names = fitted.input_names
    rows = [
        [
            names[d],
            _Bar(lengths[shown[0]] / lengths[d]),
            float(lengths[d]),
            float(lengths[d] * scale[d]),
        ]
        for d in shown
    ]
    header = [
        "input",
        "relevance",
        "lengthscale (standard deviations)",
        "lengthscale (units of the data)",
    ]
    if fitted.scale.x_map is not None:  # of ranks there is no length in units of the data
        header, rows = header[:-1], [row[:-1] for row in rows]
    if rows:
        yield _table(header, rows)
    if len(order) > len(shown):
        yield f"<p>The other {len(order) - len(shown)} inputs have larger lengthscales.</p>"
    if constant:
        yield (
            "<p>Constant over the training rows, so without information:"
            f" {escape(', '.join(sorted(constant)))}.</p>"
        )
    where = " of the first layer" if isinstance(model, fs.DeepGP) else ""
    yield (
        f"<p>Relevance is one over the lengthscale{where} of the standardised input, in parts of"
        " the largest: how fast the function changes along it. It is no measure of cause, and"
        " inputs that say the same share it.</p>"
    )


def _picture(path):
    with open(path, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    caption = CAPTIONS[os.path.basename(path)]
    return (
        f'<figure><img alt="{caption}"'
        f' src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )
