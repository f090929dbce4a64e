"""Files of results: one JSON for each finished split of a cell."""

import json
import math
import re
from typing import NamedTuple

import numpy as np


def slug(row):
    """Return a row as part of the name of a file."""
    return re.sub(r"[^A-Za-z0-9+.=]+", "-", row).strip("-")


def path(folder, table, cell, split):
    """Return the file of a result."""
    return folder / table.name / f"{slug(cell.row)}-{split}.json"


def write(file, result):
    """Write a result; a file is there only if it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(file)


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def splits_there(folder, table, cell):
    """Return the results of a cell by split, of any setting."""
    found = {}
    for file in sorted((folder / table.name).glob(f"{slug(cell.row)}-*.json")):
        split = file.stem.removeprefix(slug(cell.row) + "-")
        if split.isdigit():
            found[int(split)] = read(file)
    return found


def of_cell(folder, table, cell):
    """Return the results of a cell in its own setting by split; those of other rows if it says so.

    Results of another setting are left out.
    """
    if cell.read_from is None:
        if cell.program is None:
            return {}
        there = splits_there(folder, table, cell)
        return {k: r for k, r in there.items() if r["setting"] == cell.setting(cell.steps)}
    row, step = cell.read_from
    (source,) = [other for other in table.cells if other.row == row]
    found = {}
    for split, result in of_cell(folder, table, source).items():
        for scores in result.get("trace", ()):
            if scores["step"] == step:
                own = {"scores": scores, "steps": step, "CPU seconds": scores["seconds"]}
                found[split] = result | own
    return found


class Mean(NamedTuple):
    """Mean over splits, its standard error (NaN for one split), and the number of splits."""

    value: float
    error: float
    count: int


def mean(values):
    """Return the mean of some splits."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    return Mean(float(np.mean(values)), error, count)


def means(folder, table):
    """Return ``{row: {metric: Mean}}`` of the cells that have results."""
    found = {}
    for cell in table.cells:
        results = of_cell(folder, table, cell).values()
        for metric in table.metrics:
            values = [r["scores"][metric.name] for r in results if metric.name in r["scores"]]
            if values:
                found.setdefault(cell.row, {})[metric.name] = mean(values)
    return found
