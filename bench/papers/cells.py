"""What a table is made of: its cells, their data, and what the paper has for them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

QUICK = 10  # with fewer steps the sizes of a problem shrink too: a quick check
TRAIN, TEST = 300, 100  # its rows


class Data(NamedTuple):
    """Rows for training, and rows for scores.

    ``share`` is the part of the training rows that a quick check keeps; it keeps the same part of
    inducing inputs, features and batches.
    """

    X: object
    y: object
    test_X: object
    test_y: object
    share: float = 1.0

    def scaled(self, count, least=4):
        """Return a number of inducing inputs, features or rows of a batch for these data."""
        return count if self.share == 1 else max(least, 2 * round(count * self.share / 2))


def few(data):
    """Return the first rows of the data, for a quick check."""
    X, y, test_X, test_y, _ = data
    kept = min(TRAIN, len(X))
    share = kept / max(1, len(X))
    return Data(X[:kept], y[:kept], test_X[:TEST], test_y[:TEST], share)


def held_back(data):
    """Return the data with the last fifth of the training rows in place of the test rows."""
    end = len(data.X) * 4 // 5
    return Data(data.X[:end], data.y[:end], data.X[end:], data.y[end:])


@dataclass(frozen=True)
class Cell:
    """A row of a table, which is run for some splits.

    Parameters
    ----------
    row : str
    program : partial of a function ``(data, split, steps, checkpoint, **keywords) -> dict``
        The keywords name the setting. See ``running.outcome`` for the result. None if there are no
        data, or if the row is read from another one.
    data : function ``(split, part) -> Data``
        ``part`` is "test", or "validation" to choose a setting.
    steps : int
        Length of the training.
    minutes : float
        CPU minutes of a split on one thread, estimated from a few steps.
    splits : int
        Number of splits that ``all`` runs; 0 for a cell that only its own command runs.
    paper : dict
        The paper's mean and its error (or None) by metric.
    paper_steps : int, optional
        The paper's steps, if these are more.
    groups : tuple of str
        Rows of a group are compared with each other.
    differs : str
        What differs from the paper, besides the steps.
    missing : str
        Data that the cell needs and that are not at hand; with a ``program``, what it needs and
        the package no longer has. Files of results of such a cell are still shown.
    read_from : (row, step), optional
        The row whose scores at this step are those of this row.
    """

    row: str
    program: partial | None = None
    data: Callable | None = None
    steps: int = 0
    minutes: float = 0.0
    splits: int = 5
    paper: dict = field(default_factory=dict)
    paper_steps: int | None = None
    groups: tuple[str, ...] = ()
    differs: str = ""
    missing: str = ""
    read_from: tuple[str, int] | None = None

    @property
    def runs(self):
        """Whether the cell can be run."""
        return self.program is not None and not self.missing

    def setting(self, steps, quick=False, part="test"):
        """Return what identifies the setting of a result, as it is read from JSON."""
        said = {"program": self.program.func.__name__, **self.program.keywords, "steps": steps}
        if quick:
            said["rows"] = TRAIN
        if part != "test":
            said["scores on"] = part
        return json.loads(json.dumps(said))


class Metric(NamedTuple):
    """A number of a table; ``sign`` is 1 if larger is better, and 0 if there is no order."""

    name: str
    sign: int = -1
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Parameters
    ----------
    name : str
        The argument of ``reproduce.py``.
    paper, title : str
    metrics : tuple of Metric
        The names of the scores of its cells.
    setting : str
        Sentences on the setting that all rows share.
    cells : tuple of Cell
    spread : {"error", "deviation"}
        Whether the paper's errors are standard errors of its means, or standard deviations.
    repeats : int
        Number of the paper's splits or seeds.
    orders : tuple of (metric, better row, worse row)
        What the paper says of rows in words.
    """

    name: str
    paper: str
    title: str
    metrics: tuple[Metric, ...]
    setting: str
    cells: tuple[Cell, ...]
    spread: str = "error"
    repeats: int = 5
    orders: tuple[tuple[str, str, str], ...] = ()

    def error(self, value):
        """Return the standard error of one of the paper's means, from ``(mean, error)``."""
        _, error = value
        if error is None or self.spread == "error":
            return error
        return error / self.repeats**0.5
