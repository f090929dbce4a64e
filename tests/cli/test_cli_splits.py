"""``fastsvgp fit --group`` and ``--time``: held-out rows are of the kind that will be new."""

import numpy as np
import pytest
from support.cli_runs import results, run

from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.task import load_task
from fastsvgp.cli.errors import UsageError


@pytest.fixture
def visits(tmp_path, rng):
    """A table of 12 patients with 5 visits each, at days in their order."""
    path = tmp_path / "visits.csv"
    days = np.datetime64("2024-01-01") + np.arange(60)
    effect, x = rng.standard_normal(12), rng.standard_normal(60)
    lines = [
        f"P{i % 12:02d},{days[i]},{x[i]:.4f},{x[i] + effect[i % 12] + 0.1 * rng.standard_normal()}"
        for i in range(60)
    ]
    path.write_text("\n".join(["patient,date,x,y", *lines]) + "\n", encoding="utf-8")
    return path


def test_whole_groups_are_held_out(visits):
    task = split(load_task(visits, group="patient"))
    patients = task.new.groups
    assert task.test.sum() >= 12 and not set(patients[task.test]) & set(patients[~task.test])
    assert not any("patient" in name for name in task.input_names)
    assert task.holds == "for new values of 'patient'"
    assert "of 12 values of 'patient' held out" in task.split


def test_the_latest_rows_are_held_out(visits):
    task = split(load_task(visits, time="date"))
    assert np.flatnonzero(task.test).tolist() == list(range(54, 60))
    assert task.holds == "for the 6 days after 2024-02-23"
    assert "date" in task.input_names


def test_the_report_says_for_whom_the_scores_hold(visits, here, unplotted, capsys):
    options = "--group", "patient", "--ignore", "date", "--seconds", "1", "--out", "out"
    said, _ = run(capsys, "fit", str(visits), *options)
    last = said.strip().splitlines()[-1]
    for part in ("reading", "compiling", "search", "last posterior", "scores and pictures"):
        assert f"{part} " in last
    assert last.startswith("  seconds")
    assert "held-out rows (for new values of 'patient')" in said
    found = results("out")
    assert found["holds"] == "for new values of 'patient'"
    assert "random effects" in found["chosen"]
    page = (here / "out" / "report.html").read_text(encoding="utf-8")
    assert "for new values of &#x27;patient&#x27;" in page
    run(capsys, "predict", "out", str(visits), "--out", "p.csv")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"group": "y"}, "--group y: this column is the target"),
        ({"time": "patient"}, "--time patient: this column must be an input of numbers or dates"),
        ({"time": "when"}, "--time: no column 'when'"),
    ],
)
def test_columns_that_cannot_be_new_are_refused(visits, given, message):
    with pytest.raises(UsageError, match=message):
        load_task(visits, **given)


def test_notes_name_the_options(visits):
    said = " ".join(load_task(visits).signs)
    assert "column 'date' holds dates: if the model is for later ones, give --time" in said
    assert load_task(visits, time="date").signs == []


def test_a_column_of_patients_is_noted(here, rng):
    who, x = np.repeat(np.arange(20), 6), rng.standard_normal(120)
    y = 3 * rng.standard_normal(20)[who] + x
    rows = [f"P{a:02d},{b:.4f},{c:.4f}" for a, b, c in zip(who, x, y, strict=True)]
    (here / "d.csv").write_text("\n".join(["who,x,y", *rows]) + "\n", encoding="utf-8")
    (note,) = load_task("d.csv").signs
    assert "column 'who' has 20 values" in note and note.endswith("give --group who")
