"""Fixtures of the tests of the command line."""

import numpy as np
import pytest
from support.cli_runs import write_csv, write_table

from fastsvgp.cli.report import plots


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unplotted(monkeypatch):
    """Skip plots, which take most of the time of a small fit."""
    monkeypatch.setattr(plots, "available", lambda: False)


@pytest.fixture
def wave(here, rng):
    """A table of one input, as a file."""
    x = rng.uniform(10, 20, 120)
    write_csv("wave.csv", "time,height", x, 300 + 50 * np.sin(x) + rng.normal(0, 5, 120))
    return "wave.csv"


@pytest.fixture
def table(here, rng):
    """The rows of a table of two inputs, in the file d.csv."""
    X = rng.standard_normal((40, 2))
    rows = np.column_stack([X, X.sum(axis=1) + 0.1 * rng.standard_normal(40)])
    write_table("d.csv", rows)
    return rows
