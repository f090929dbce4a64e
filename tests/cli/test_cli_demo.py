"""``fastsvgp demo``."""

import json
import os
import pathlib
import re
import sys

from support.cli_runs import run

from fastsvgp.cli import main
from tests.cli.test_cli_page import page_of


def test_demo(here, unplotted, capsys):
    os.makedirs("fastsvgp-demo/diabetes")
    pathlib.Path("fastsvgp-demo/diabetes/checkpoint.npz").write_text(
        "of a demo that was interrupted"
    )
    out, _ = run(capsys, "demo", "--steps", "3", "--quiet")
    assert (
        re.search(r"accuracy +\d", out)
        and re.search(r"RMSE \(standardised\) +\d", out)
        and "fastsvgp fit YOUR_DATA.csv" in out
    )
    found = {
        name: json.loads(pathlib.Path("fastsvgp-demo", name, "metrics.json").read_text())
        for name in ("diabetes", "digits")
    }
    assert {n: (r["likelihood"], r["method"]) for n, r in found.items()} == {
        "diabetes": ("gaussian", "sgpr"),
        "digits": ("softmax", "svgp"),
    }
    for name in found:
        assert sorted(os.listdir(f"fastsvgp-demo/{name}")) == [
            "metrics.json",
            "model.npz",
            "report.html",
        ]
    for name, title in (("diabetes", "diabetes.csv"), ("digits", "digits.csv")):
        page = page_of(f"fastsvgp-demo/{name}")
        assert f"fastsvgp fit of {title}" in page.texts
        assert "fastsvgp demo --steps 3 --quiet" in page.texts


def test_demo_without_scikit_learn(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo"]) == 2
    err = capsys.readouterr().err
    assert (
        "scikit-learn, which is not installed" in err
        and "pip install" in err
        and os.listdir() == []
    )
