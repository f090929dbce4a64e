"""report.html: all results of a fit in one file, without links or scripts."""

import base64
import os
from html import escape

from .metrics import LABELS, TRIVIAL, advice, answer

INPUTS = 40  # in the table of shares
CAPTIONS = {
    "training.png": "The bound during training.",
    "fit.png": "The model as a function of its input, with the data.",
    "predictions.png": "The model on the held-out rows.",
    "patches.png": "Inducing patches, and the weights of the windows.",
    "effects.png": "The mean effect of each input: the average over the rows of all others.",
    "residuals.png": "Residuals of held-out rows. A pattern is something that the model misses.",
}
# where pictures are on the page
PLACES = {
    "fit": ("fit", "predictions"),
    "effects": ("effects",),
    "residuals": ("residuals",),
    "training": ("training", "patches"),
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
img { max-width: 100%; } figure { margin: 1rem 0; } .answer { font-size: 1.2rem; }
.bar { background: #2c6fbb; height: .8rem; } .scale { width: 9rem; } p.note { color: #8a4b00; }
"""
SAFE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(results, printed, pictures, why_no_pictures):
    """Return the page as text.

    Parameters
    ----------
    results : dict
        Content of metrics.json.
    printed : list of str
        Lines about data and choices.
    pictures : list of paths
        PNG files to embed.
    why_no_pictures : str or None
        Reason to show if there are none.
    """
    title = escape(f"fastsvgp fit of {results['data']}")
    own = {where: [path for path in pictures if _place(path) == where] for where in PLACES}
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="answer">{escape(answer(results))}</p>',
        *_warnings(results),
        *([f"<p>{escape(why_no_pictures)}</p>"] if why_no_pictures else []),
        *map(_picture, own["fit"]),
        "<h2>Scores on held-out rows</h2>",
        *_scores(results),
        "<h2>What the inputs do</h2>",
        *map(_picture, own["effects"]),
        *_shares(results),
        *(["<h2>Residuals</h2>", *map(_picture, own["residuals"])] if own["residuals"] else []),
        "<h2>Data and choices</h2>",
        _table(
            [], [line.strip().split(maxsplit=1) for line in printed if line.startswith("  ")], "th"
        ),
        f"<pre>{escape(results['command'])}</pre>",
        *(_looks(results["looks"]) if "looks" in results else ()),
        *map(_picture, own["training"]),
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


def _shares(results):
    shares = results["shares"]
    if not shares:
        yield "<p>No shares: the inputs are pixels, too many, constant, or nearly so.</p>"
        return
    rows = [
        [row["input"], _Bar(row["share"]), _percent(row["share"]), _band(row)]
        for row in shares[:INPUTS]
    ]
    yield _table(["input", "share of the variance", "", "95 % band"], rows)
    if len(shares) > INPUTS:
        yield f"<p>The other {len(shares) - INPUTS} inputs have smaller shares.</p>"
    if left := results["constant_inputs"]:
        yield (
            "<p>Constant over the training rows, and so without information:"
            f" {escape(', '.join(sorted(left)))}.</p>"
        )
    rest = max(0.0, 1 - sum(row["share"] for row in shares))
    yield (
        "<p>Of the variance of the model's predictions, each share is what the input explains by"
        f" itself (first-order Sobol' indices); {_percent(rest)} are due to inputs acting together."
        " Shares do not measure cause, and inputs that depend on one another share their"
        " effect.</p>"
    )


def _percent(share):
    return f"{100 * share:.1f} %"


def _band(row):
    return f"{100 * row['low']:.1f} to {100 * row['high']:.1f} %"


def _place(path):
    stem = os.path.basename(path).partition(".")[0].partition("-")[0]
    return next(where for where, stems in PLACES.items() if stem in stems)


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
