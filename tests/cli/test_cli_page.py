"""report.html is one file without links, is complete, and escapes text of the data."""

import base64
import html.parser
import io
import pathlib
import re
import sys

import numpy as np
import pytest
from support.cli_runs import results, run, write_csv
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.report.metrics import answer as answer_of

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
        pathlib.Path("out", f"{name}.png").read_bytes()
        for name in ("predictions", "effects", "residuals", "training")
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


def test_the_page_opens_with_the_answer(awkward, unplotted, capsys):
    out, _ = run(capsys, "fit", awkward, *FEW[:-1], "--out", "out", "--steps", "200")
    page, test = page_of("out"), results("out")["test"]
    share = 1 - (test["model"]["rmse"] / test["trivial"]["rmse"]) ** 2
    percent = "more than 99.5" if share > 0.995 else f"{100 * share:.0f}"
    answer = (
        f"Explains {percent} % of the variance of 9 held-out rows; its 95 % intervals hold"
        f" {100 * test['coverage']:.0f} %."
    )
    assert share > 0.3 and answer in page.texts and f"\n  {answer}\n" in out
    assert page.texts.index(answer) < page.texts.index("Scores on held-out rows")


@pytest.mark.parametrize(
    "model, trivial, said",
    [
        ({"rmse": 0.5}, {"rmse": 1.0}, "Explains 75 % of the variance of 40 held-out rows; its"),
        ({"rmse": 0.01}, {"rmse": 1.0}, "Explains more than 99.5 % of the variance"),
        ({"rmse": 1.2}, {"rmse": 1.0}, "Explains nothing of the variance of 40 held-out rows"),
        ({"rmse": 0.0}, {"rmse": 0.0}, "Explains nothing of the variance"),
        ({"accuracy": 0.9}, {"accuracy": 0.6}, "Names the class of 90 % of 40 held-out rows; the"),
    ],
)
def test_the_answer_in_one_sentence(model, trivial, said):
    test = {"model": model, "trivial": trivial, "coverage": 0.93}
    assert answer_of({"test": test, "test_rows": 40}).startswith(said)
    assert answer_of({"test": None, "test_rows": 0}).startswith("Nothing was held out, so")


def test_shares_are_of_the_variance_and_leave_constant_inputs_out(awkward, unplotted, capsys):
    run(capsys, "fit", awkward, *FEW, "--out", "out", "--steps", "200")
    page, fitted, found = page_of("out"), fs.load_fitted("out"), results("out")["shares"]
    assert [row["input"] for row in found] == AWKWARD[:2]
    assert found[0]["share"] > 0.9 > 0.1 > found[1]["share"]
    listed = [row for row in page.rows if row[0] in AWKWARD]
    assert [row[0] for row in listed] == AWKWARD[:2]
    assert [row[2] for row in listed] == [f"{100 * row['share']:.1f} %" for row in found]
    assert listed[0][3] == f"{100 * found[0]['low']:.1f} to {100 * found[0]['high']:.1f} %"
    widths = [
        float(value.removeprefix("width: ").removesuffix("%"))
        for name, value in page.attributes
        if name == "style"
    ]
    assert widths == pytest.approx([100 * row["share"] for row in found], abs=0.06)
    assert "without information: x & y." in page.text
    X = np.loadtxt(awkward, delimiter=",", skiprows=1)[:, :3]
    exact = fs.sobol(fitted.model, fitted.standardise_inputs(X), [0, 1], num_draws=2).first
    assert [row["share"] for row in found] == pytest.approx(exact, abs=0.03)


def test_levels_of_text_are_one_input(here, capsys, rng):
    pytest.importorskip("matplotlib")
    x, colour = rng.uniform(0, 1, 90), rng.choice(["red", "green", "blue"], 90)
    y = x + 4 * (colour == "red") + 0.1 * rng.standard_normal(90)
    rows = [f"{a:.4f},{c},{t:.4f}" for a, c, t in zip(x, colour, y, strict=True)]
    pathlib.Path("d.csv").write_text("\n".join(["x,colour,y", *rows]) + "\n")
    run(capsys, "fit", "d.csv", *FEW, "--steps", "200", "--out", "out")
    assert [row["input"] for row in results("out")["shares"]] == ["colour", "x"]
    assert results("out")["shares"][0]["share"] > 0.8


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
    "no-ard": (["--no-ard"], "what the input explains by itself"),
    "deep": (["--layers", "2", "--method", "svgp"], "what the input explains by itself"),
    "qsgp": (["--method", "qsgp", "--features", "40"], "what the input explains by itself"),
    "sgpr": (["--method", "sgpr"], "what the input explains by itself"),
    "nothing held out": (["--test-fraction", "0"], "Nothing was held out."),
    "patches": (["--patch-shape", "1x2", "--image-shape", "1x3"], "No shares: the inputs are pi"),
    "classes": (["--target", "2"], "of 6 held-out rows; the most frequent class is right in"),
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
    assert "The other 9 inputs have smaller shares." in page.text


def test_draws_that_fail_are_noted(here, rng, capsys, monkeypatch):
    def fail(*_):
        raise fs.NotPositiveDefinite((), 3, 1e-6, 9, np.float64)

    x = rng.standard_normal((40, 2))
    write_csv("d.csv", "a,b,y", x[:, 0], x[:, 1], np.sin(x[:, 0]) + x[:, 1])
    monkeypatch.setattr("fastsvgp.cli.report.effects.shares_of", fail)
    out, _ = run(capsys, "fit", "d.csv", "--method", "sgpr", "--steps", "5", "--out", "out")
    assert "no shares of inputs: their joint draws fail" in out and results("out")["shares"] == []
