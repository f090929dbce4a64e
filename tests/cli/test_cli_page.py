"""report.html is one file without links, is complete, and escapes text of the data."""

import base64
import html.parser
import io
import pathlib
import re
import sys

import numpy as np
import pytest
from support.cli_runs import results, run
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main

FEW = [
    "--steps",
    "30",
    "--inducing",
    "12",
    "--batch-size",
    "32",
    "--learning-rate",
    "0.05",
    "--quiet",
]
AWKWARD = ["<script>alert(1)</script>", 'a"b', "x & y"]


class Page(html.parser.HTMLParser):
    """The text, tags and attributes of a page; all tags must be closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.open, self.rows, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(self.texts)


def page_of(folder):
    return Page(pathlib.Path(folder, "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def awkward(here, rng):
    """Two inputs of unequal relevance, a constant one, and names that look like markup."""
    X = rng.standard_normal((90, 2))
    y = np.sin(3 * X[:, 0]) + 0.05 * X[:, 1] + 0.05 * rng.standard_normal(90)
    header = ",".join('"' + name.replace('"', '""') + '"' for name in [*AWKWARD, "<b>y</b>"])
    rows = [f"{a:.5f},{b:.5f},7,{t:.5f}" for (a, b), t in zip(X, y, strict=True)]
    pathlib.Path("a & <b>.csv").write_text("\n".join([header, *rows]) + "\n")
    return "a & <b>.csv"


def test_the_page_stands_alone_and_holds_what_the_fit_said(awkward, capsys):
    pytest.importorskip("matplotlib")
    out, _ = run(capsys, "fit", awkward, *FEW[:-1], "--out", "out")
    assert "report.html" in out
    page, found = page_of("out"), results("out")
    assert set(page.tags).isdisjoint({"script", "link", "a", "iframe", "b"})
    addresses = [value for name, value in page.attributes if name in ("src", "href")]
    prefix = "data:image/png;base64,"
    pictures = [
        base64.b64decode(address.removeprefix(prefix))
        for address in addresses
        if address.startswith(prefix)
    ]
    assert pictures == [
        pathlib.Path("out", name).read_bytes() for name in ("training.png", "predictions.png")
    ]
    assert len(pictures) == len(addresses) and not any(
        name.startswith("on") for name, _ in page.attributes
    )
    assert "url(" not in pathlib.Path("out/report.html").read_text() and "http" not in page.text
    assert (
        found["command"] == "fastsvgp fit 'a & <b>.csv' " + " ".join(FEW[:-1]) + " --out out"
        and found["command"] in page.texts
    )
    rows = {row[0]: row[1:] for row in page.rows if len(row) == 2}
    for label, (text,) in rows.items():  # choices with their reasons, as on the terminal
        assert f"  {label:<10} {text}\n" in out
    assert {"data", "target", "split", "method", "model", "trained", "note"} <= rows.keys()
    scores = [row for row in page.rows if row[0] == "model" and row[1] == "standardised"]
    assert scores == [
        [
            "model",
            "standardised",
            *(f"{found['test']['model'][name]:.5g}" for name in ("rmse", "nlpd")),
        ]
    ]
    assert "trivial predictor (mean and sd)" in page.text


def test_relevance_follows_lengthscales_except_constant_inputs(awkward, unplotted, capsys):
    run(capsys, "fit", awkward, *FEW, "--out", "out", "--steps", "200")
    page, fitted = page_of("out"), fs.load_fitted("out")
    lengths = fitted.model.covariance.lengthscales
    listed = [row for row in page.rows if row[0] in AWKWARD]
    assert [row[0] for row in listed] == AWKWARD[:2] and lengths[0] < lengths[1]
    assert [float(row[2]) for row in listed] == pytest.approx(lengths[:2], rel=1e-4)
    assert [float(row[3]) for row in listed] == pytest.approx(
        (lengths * fitted.scale.x_scale)[:2], rel=1e-4
    )
    widths = [
        float(value.removeprefix("width: ").removesuffix("%"))
        for name, value in page.attributes
        if name == "style"
    ]
    assert widths == pytest.approx([100, 100 * lengths[0] / lengths[1]], abs=0.06)
    assert "without information: x & y." in page.text


def test_the_bound_is_listed_from_the_first_step_to_the_last(awkward, unplotted, capsys):
    run(capsys, "fit", awkward, *FEW, "--out", "out")
    page, found = page_of("out"), results("out")
    header = next(i for i, row in enumerate(page.rows) if row[0] == "step")
    rows = page.rows[header + 1 : header + 11]
    assert [rows[0][0], rows[-1][0]] == ["1", "30"] and float(rows[-1][1]) > float(rows[0][1])
    assert float(rows[-1][2]) == pytest.approx(float(rows[-1][1]) / found["train_rows"], rel=1e-3)


def test_without_matplotlib_the_page_has_no_pictures_and_says_so(awkward, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run(capsys, "fit", awkward, *FEW, "--out", "out")
    page = page_of("out")
    assert (
        "img" not in page.tags
        and "plots skipped: matplotlib is not installed" in page.text
        and "scores" not in page.texts
    )


CASES = {
    "no-ard": (["--no-ard"], "All inputs share one lengthscale"),
    "deep": (["--layers", "2", "--method", "svgp"], "one over the lengthscale of the first layer"),
    "qsgp": (["--method", "qsgp", "--features", "40"], "Relevance is one over the lengthscale"),
    "sgpr": (["--method", "sgpr"], "Relevance is one over the lengthscale"),
    "nothing held out": (["--test-fraction", "0"], "Nothing was held out."),
    "patches": (["--patch-shape", "1x2", "--image-shape", "1x3"], "The inputs are pixels"),
    "classes": (["--target", "2"], "class frequencies"),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_model_has_a_page(here, unplotted, capsys, rng, name):
    options, said = CASES[name]
    X = rng.standard_normal((60, 3))
    table = np.column_stack([X, X[:, 0] - X[:, 1]])
    if name == "classes":
        table[:, 2] = X[:, 0] > 0
    np.savetxt("d.csv", table, delimiter=",", header="a,b,c,y", comments="")
    few = {"qsgp": ["--steps", "3", "--quiet"], "sgpr": ["--steps", "3", "--quiet"]}.get(
        name, [*FEW, "--steps", "3"]
    )
    run(capsys, "fit", "d.csv", *few, *options, "--out", "out")
    assert said in page_of("out").text


def test_the_page_of_an_interrupted_fit_says_so(awkward, unplotted, capsys):
    with after_step(20):
        assert main(["fit", awkward, *FEW, "--out", "out"]) == 130
    assert "Training was interrupted after 20 steps" in page_of("out").text
    run(capsys, "fit", awkward, *FEW, "--out", "out", "--resume")
    assert "interrupted" not in page_of("out").text


def test_many_inputs_are_cut_to_a_readable_length(here, unplotted, capsys, rng, monkeypatch):
    X = rng.standard_normal((60, 50))
    monkeypatch.setattr(
        "sys.stdin",
        io.TextIOWrapper(io.BytesIO(b"\n".join(b",".join(b"%.4f" % v for v in row) for row in X))),
    )
    run(capsys, "fit", "-", *FEW, "--steps", "3", "--out", "out")
    page = page_of("out")
    assert sum(re.fullmatch(r"x\d+", row[0]) is not None for row in page.rows) == 40
    assert "The other 9 inputs have larger lengthscales." in page.text
