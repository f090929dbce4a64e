"""The command line in tests: tables, runs that succeed, runs that are refused, and metrics."""

import csv
import json
import os
import pathlib

import numpy as np

from fastsvgp.cli import main
from fastsvgp.cli.progress import Progress

FEW_STEPS = ["--steps", "6", "--inducing", "4", "--batch-size", "16", "--quiet"]
FEW_SGPR = ["--steps", "60", "--inducing", "12"]
FEW = [*FEW_SGPR, "--batch-size", "32", "--learning-rate", "0.05"]


def write_csv(path, header, *columns):
    """Write columns of numbers or text."""
    rows = (",".join(map(str, row)) for row in zip(*columns, strict=True))
    pathlib.Path(path).write_text("\n".join([header, *rows]) + "\n")


def write_rows(path, header, rows):
    """Write rows of any cells, quoted where they need it; return the path as text."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def write_table(path, rows, header="a,b,y"):
    """Write a matrix with all digits; make its folder."""
    pathlib.Path(path).parent.mkdir(exist_ok=True)
    np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.17g")


def fit(capsys, *argv, code=0):
    """Run a quiet fit of six steps with an expected exit code; return its stderr."""
    got = main(["fit", *argv, *FEW_STEPS])
    out, err = capsys.readouterr()
    assert got == code, (got, err)
    assert out == "" and "Traceback" not in err
    return err


def stop_at(monkeypatch, step, how):
    """Call ``how()`` once, in the callback of a step."""
    plain, done = Progress.__call__, []

    def call(self, now, value, info):
        plain(self, now, value, info)
        if now == step and not done:
            done.append(now)
            how()

    monkeypatch.setattr(Progress, "__call__", call)


def run(capsys, *argv):
    """Run a command that must succeed; return ``(out, err)``."""
    code = main(list(argv))
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def refused(capsys, *argv, notes=True):
    """Run a command that must be refused without leaving a new file; return the message."""

    def files():
        return sorted((folder, sorted(names)) for folder, _, names in os.walk("."))

    before, code = files(), main(list(argv))
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    beside = ("  training", "  note") if notes else ()
    lines = [line for line in err.splitlines() if not line.startswith(beside)]
    assert len(lines) == 1 and "Traceback" not in err, err
    prefixes = tuple(" ".join(["fastsvgp", *words]) + ": error: " for words in ((), argv[:1]))
    assert lines[0].startswith(prefixes), err
    assert files() == before
    return lines[0]


def results(folder):
    """Read the metrics written by a fit."""
    return json.loads(pathlib.Path(folder, "metrics.json").read_text())


def png(path):
    """Whether a file is a PNG."""
    return pathlib.Path(path).read_bytes().startswith(b"\x89PNG")
