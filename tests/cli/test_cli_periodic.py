"""``--periodic COLUMN=PERIOD``: parts that repeat, from the arguments to predictions."""

import numpy as np
import pytest
from support.cli_runs import refused, results, run, stop_at, write_csv

import fastsvgp as fs
from fastsvgp.cli import main

FEW = ["--steps", "60", "--inducing", "25", "--batch-size", "64", "--learning-rate", "0.05"]


def season(day):
    return 3 * np.sin(2 * np.pi * day / 7) + 0.01 * day


@pytest.fixture
def days(here, rng):
    """A table of 15 weeks, with a trend and another input, in the file d.csv."""
    day, z = rng.uniform(0, 105, 150), rng.standard_normal(150)
    write_csv("d.csv", "day,z,y", day, z, season(day) + z + 0.1 * rng.standard_normal(150))
    return day


def test_a_season_goes_on_beyond_the_rows(days, unplotted, capsys):
    out, _ = run(
        capsys, "fit", "d.csv", "--periodic", "day=7", "--method", "sgpr", "--inducing", "60"
    )
    assert "SGPR, Matérn 3/2 + periodic in day (7) ARD, 60 inducing inputs" in out
    fitted, later = fs.load_fitted("d-fit"), np.linspace(110, 130, 60)
    parts = fitted.model.covariance.parts
    period = parts[1].parts[0].part.period * fitted.scale.x_scale[0]
    np.testing.assert_allclose(period, 7, rtol=1e-12)
    assert parts[1].parts[1].part.variance == 1 and parts[1].parts[1].columns == (1,)
    mean = fitted.predict(np.column_stack([later, 0 * later])).mean
    assert np.sqrt(np.mean((mean - season(later)) ** 2)) < 0.8
    assert results("d-fit")["periodic"] == [["day", 7.0]]
    assert results("d-fit")["shares"][0]["input"] == "day"


@pytest.mark.parametrize(
    "more",
    [
        ["--periodic", "0=7,day=3.5"],
        ["--ignore", "z", "--periodic", "day=7", "--dtype", "float32"],
        ["--periodic", "day=7", "--no-ard", "--method", "solvegp", "--covariance", "rbf"],
        ["--target", "y,z", "--periodic", "day=7", "--latents", "separate"],
    ],
)
def test_with_other_arguments(days, unplotted, capsys, more):
    run(capsys, "fit", "d.csv", *more, *FEW)
    names = fs.load_fitted("d-fit").input_names
    write_csv("new.csv", ",".join(names), *[[0.5, 1.5]] * len(names))
    assert run(capsys, "predict", "d-fit", "new.csv")[0].count("\n") == 3
    periods = [
        v
        for path, _, v in fs.records.leaves(fs.load_fitted("d-fit").model)
        if path.endswith("period")
    ]
    assert len(periods) == (2 if "0=7,day=3.5" in more or "y,z" in more else 1)


def test_the_units_of_a_date_are_days(days, unplotted, capsys):
    dates = np.datetime64("2024-01-01") + days.astype(int)
    write_csv("dated.csv", "when,y", dates, season(days.astype(int)))
    out, _ = run(capsys, "fit", "dated.csv", "--periodic", "when=7", *FEW)
    assert "periodic in when (7)" in out
    assert results("dated-fit")["inputs"][0] == "when"


def test_resume_knows_the_periods(days, unplotted, capsys, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    stop_at(monkeypatch, 20, interrupt)
    assert main(["fit", "d.csv", *FEW, "--periodic", "day=7"]) == 130
    capsys.readouterr()
    err = refused(capsys, "fit", "d.csv", *FEW, "--periodic", "day=8", "--resume")
    assert "belongs to another fit (periodic [" in err
    err = refused(capsys, "fit", "d.csv", *FEW, "--resume")
    assert " then, None now" in err
    assert main(["fit", "d.csv", *FEW, "--periodic", "day=7", "--resume"]) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--periodic", "day"], "expected COLUMN=PERIOD, as in hour=24, got 'day'"),
        (["--periodic", ","], "expected COLUMN=PERIOD, as in hour=24, got ','"),
        (["--periodic", "day=0"], "expected a number above 0, got '0'"),
        (["--periodic", "hour=24"], "--periodic: no input 'hour'; the inputs are day, z"),
        (["--periodic", "y=3"], "--periodic: no input 'y'"),
        (["--periodic", "2=3"], "--periodic: no input '2'"),
        (["--periodic", "day=7,0=7"], "--periodic: day=7 is given twice; give it once"),
        (["--periodic", "day=7", "--layers", "2"], "cannot be combined with --layers"),
        (["--periodic", "day=7", "--method", "qsgp"], "cannot be combined with --method qsgp"),
        (["--periodic", "day=7", "--seconds", "5"], "and --periodic does, too"),
    ],
)
def test_what_does_not_fit_is_refused(days, capsys, argv, message):
    assert message in refused(capsys, "fit", "d.csv", *argv)
