"""report.html: all results of a fit in one file, without links or scripts."""

import base64
import os
from html import escape

import numpy as np

import fastsvgp as fs

from ...recipes.beyond_range import inside
from ..fitted import bottom, layers_of
from ..settings.periodic import first_part
from .metrics import LABELS, TRIVIAL, advice

ROWS = 10  # in the table of the bound
INPUTS = 40  # in the table of relevance
CAPTIONS = {
    "training.png": "The bound during training.",
    "fit.png": "The model as a function of its input, with the data.",
    "predictions.png": "The model on the held-out rows.",
    "patches.png": "Inducing patches, and the weights of the windows.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: #f4f4f4; padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; }
img { max-width: 100%; }
.bar { background: #2c6fbb; height: .8rem; } .scale { width: 14rem; } p.note { color: #8a4b00; }
"""
SAFE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(fitted, results, printed, values, pictures, why_no_pictures):
    """Return the page as text.

    Parameters
    ----------
    fitted : Fitted
    results : dict
        Content of metrics.json.
    printed : list of str
        Lines about data and choices.
    values : (steps,) array
        The bound at each step.
    pictures : list of paths
        PNG files to embed.
    why_no_pictures : str or None
        Reason to show if there are none.
    """
    title = escape(f"fastsvgp fit of {results['data']}")
    parts = [
        f"<h1>{title}</h1>",
        *_warnings(results),
        "<h2>Command</h2>",
        f"<pre>{escape(results['command'])}</pre>",
        "<h2>Data and choices</h2>",
        _table(
            [], [line.strip().split(maxsplit=1) for line in printed if line.startswith("  ")], "th"
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
            f"<p>Written by fastsvgp {escape(results['fastsvgp'])}. The model is in model.npz, all"
            " numbers are in metrics.json.</p>"
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
            f'<p class="note">Training was interrupted after {results["steps"]} steps; this is the'
            " model at that point.</p>"
        )
    if results["test"] and (
        text := advice(results["test"], results["test_rows"], results["outcome"])
    ):
        yield f'<p class="note">The model is {escape(text)}.</p>'


def _table(header, rows, first="td"):
    """Format a table of numbers and text, which is escaped; ``first``: tag of the first cells."""
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
    """A fraction to draw as a bar."""


class _Above(str):
    """The header of a column of numbers."""


def _scores(results):
    test = results["test"]
    if not test:
        yield "<p>Nothing was held out.</p>"
        return
    blocks = [(test["scale"], test)] + (
        [("original", test["original_scale"])] if "original_scale" in test else []
    )
    for target, values in test.get("targets", {}).items():
        own = values.get("original_scale", values)
        blocks.append((f"original, {target}", own))
    names = list(test["model"])
    trivial = f"trivial predictor ({TRIVIAL[test['scale']]})"
    rows = [
        [who, scale, *(float(values[key][name]) for name in names)]
        for scale, values in blocks
        for who, key in (("model", "model"), (trivial, "trivial"))
    ]
    yield _table(["", "scale", *(LABELS[name] for name in names)], rows)
    yield (
        f"<p>{results['test_rows']} rows. The trivial predictor uses the training targets only, no"
        " inputs. Lower is better for RMSE and NLPD (negative log predictive density, nats per"
        " row), higher for accuracy.</p>"
    )


def _looks(looks):
    """Format the evaluations of candidates in a search."""
    yield "<h2>Candidates</h2>"
    if not looks:
        yield "<p>There was only one candidate.</p>"
        return
    names = list(dict.fromkeys(look["candidate"] for look in looks))
    best = [
        max(
            (look for look in looks if look["candidate"] == name),
            key=lambda look: look["log_density"],
        )
        for name in names
    ]
    measure = "accuracy" if "accuracy" in looks[0] else "rmse"
    rows = [
        [look["candidate"], look["seconds"], look["steps"], look["log_density"], look[measure]]
        for look in sorted(best, key=lambda look: -look["log_density"])
    ]
    yield _table(["candidate", "after (s)", "steps", "log density", LABELS[measure]], rows)
    yield (
        "<p>The best evaluation of each candidate on rows of the training part that neither it nor"
        " its posterior had seen, in standardised units.</p>"
    )


def _bound(values, num_rows):
    yield "<h2>Bound during training</h2>"
    if not len(values):
        yield "<p>There was no training step.</p>"
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
    covariance = inside(covariance)
    functions = layers_of(model) if isinstance(model, fs.MultiGP) else ()
    if isinstance(covariance, fs.covariances.Convolutional):
        yield "<p>The inputs are pixels; the lengthscales are of patches.</p>"
        return
    if isinstance(covariance, fs.covariances.OnFeatures):
        yield "<p>The inputs pass through a network; the lengthscales are of its features.</p>"
        return
    if not hasattr(first_part(covariance), "lengthscales"):
        yield "<p>The covariance has no lengthscales.</p>"
        return
    if results.get("periodic"):
        yield "<p>The lengthscales are of the part of the function that does not repeat.</p>"
    each = [first_part(layer.covariance).lengthscales for layer in functions]
    each = each or [first_part(covariance).lengthscales]
    lengths = np.min(np.asarray(each, np.float64), axis=0)  # of the fastest function
    of_all = f" (the smallest of {len(functions)} latent functions)" if len(functions) > 1 else ""
    if lengths.ndim == 0:
        yield (
            f"<p>All inputs share one lengthscale{of_all}, {float(lengths):.4g} standard"
            " deviations (--ard uses one per input).</p>"
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
    if fitted.scale.x_map is not None:  # inputs are ranks, without a length in data units
        header, rows = header[:-1], [row[:-1] for row in rows]
    if rows:
        yield _table(header, rows)
    if len(order) > len(shown):
        yield f"<p>The other {len(order) - len(shown)} inputs have larger lengthscales.</p>"
    if constant:
        yield (
            "<p>Constant over the training rows, and so without information:"
            f" {escape(', '.join(sorted(constant)))}.</p>"
        )
    where = " of the first layer" if isinstance(model, fs.DeepGP) else of_all
    yield (
        f"<p>Relevance is one over the lengthscale{where} of the standardised input, relative to"
        " the largest. It shows how fast the function changes along the input. It does not measure"
        " cause, and redundant inputs share it.</p>"
    )


def caption_of(name):
    """Return the caption of a picture; those of several targets have numbers in their names."""
    stem, dash, number = name.removesuffix(".png").rpartition("-")
    return f"Target {number}. {CAPTIONS[stem + '.png']}" if dash else CAPTIONS[name]


def _picture(path):
    with open(path, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    caption = caption_of(os.path.basename(path))
    return (
        f'<figure><img alt="{caption}"'
        f' src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )
