"""The program that reproduces the papers' tables, at tiny sizes, and its page."""

import dataclasses
import importlib
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "bench" / "reproduce.py"


@pytest.fixture(scope="module")
def reproduce():
    """Import the program; the folders of its modules are on the path meanwhile."""
    before = list(sys.path)
    sys.path[:0] = [str(PROGRAM.parent), str(ROOT / "examples")]
    yield importlib.import_module("reproduce")
    sys.path[:] = before


@pytest.fixture
def page(reproduce):
    return reproduce.page


def skip_without_data(reproduce, *names):
    folder = reproduce.solve_gp.example.DATA
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {folder}; set FASTSVGP_DATA")


def result_of(out, table, cell, reproduce, split=0):
    return reproduce.results.read(reproduce.results.path(out, table, cell, split))


def cell_of(reproduce, table, row):
    table = reproduce.TABLES[table]
    (cell,) = [cell for cell in table.cells if cell.row == row]
    return table, cell


# --- the cells ------------------------------------------------------------------------------------


def test_the_cells_of_a_table_are_consistent(reproduce):
    for table in reproduce.TABLES.values():
        names, rows = [m.name for m in table.metrics], [cell.row for cell in table.cells]
        slugs = [reproduce.results.slug(row) for row in rows]
        assert len(set(slugs)) == len(slugs)
        assert all({better, worse} <= set(rows) for _, better, worse in table.orders)
        for cell in table.cells:
            assert set(cell.paper) <= set(names) and not set("|;") & set(cell.row)
            assert cell.runs or cell.missing or cell.read_from[0] in rows
            if cell.runs:
                assert cell.minutes > 0 and cell.setting(cell.steps)["steps"] == cell.steps


def test_all_is_every_split_once_and_those_that_decide_first(reproduce):
    found = [(table.name, cell.row, split) for table, cell, split in reproduce.in_order()]
    planned = {
        (table.name, cell.row, split)
        for table in reproduce.TABLES.values()
        for cell in table.cells
        if cell.runs
        for split in range(cell.splits)
    }
    assert len(found) == len(planned) and set(found) == planned
    first, rows = reproduce.FIRST[0]
    assert {name for name, *_ in found[: len(rows)]} == {first}


QUICK = {
    "solve_gp_2_6": ("ODVGP 1024+8096", "kin40k.data.csv.gz"),
    "solve_gp_7": ("bike SOLVE 1024+1024 whitened", "bike.data.csv.gz"),
    "solve_gp_fig_2": ("SVGP 5", "snelson.csv.gz"),
    "inverse_free_1": ("L = 2, R-SVGP", "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz"),
    "inverse_free_fig_s1": ("K = 16", "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz"),
    "inverse_free_2": ("Conv L-SVGP", "mnist_t10k.images-idx3-ubyte.gz"),
    "dual_1": (
        "5: LR 0.05 and 0.03, steps 4 and 2: t-SVGP",
        "mnist_t10k.images-idx3-ubyte.gz",
    ),
    "dual_fig_2": ("absorbed sites",),
    "dual_fig_3": ("airfoil q-SVGP", "airfoil.data.csv.gz"),
    "qsgp_2": ("QSGP-100", "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz"),
    "qsgp_3": ("QSGP-0, blocks", "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz"),
    "qsgp_digits": ("m = 1,000,000", "mnist_t10k.images-idx3-ubyte.gz"),
    "real_data": ("banana, SVGP, probit, M = 64", "banana.X.csv", "banana.y.csv"),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_cell_of_each_table(reproduce, name, tmp_path, capsys):
    """It writes one file, with the setting, and is not run again."""
    row, *files = QUICK[name]
    skip_without_data(reproduce, *files)
    command = [name, "--rows", row, "--splits", "0", "--steps", "3", "--out", str(tmp_path)]
    assert reproduce.main(command) == 0
    (file,) = (tmp_path / name).iterdir()
    table, cell = cell_of(reproduce, name, row)
    found = result_of(tmp_path, table, cell, reproduce)
    assert found["setting"] == cell.setting(3, quick=True) and found["setting"]["rows"]
    assert set(found["scores"]) <= {metric.name for metric in table.metrics}
    assert {"CPU seconds", "commit", "versions", "machine", "steps"} <= set(found)
    assert found["command"].startswith("python bench/reproduce.py ") and not list(
        (tmp_path / ".unfinished").iterdir()
    )
    before = file.stat().st_mtime_ns
    capsys.readouterr()
    assert reproduce.main(command) == 0
    assert file.stat().st_mtime_ns == before and not capsys.readouterr().out


def test_starts_and_steps_of_the_tables_of_digits_differ(reproduce, tmp_path):
    skip_without_data(reproduce, "mnist_t10k.images-idx3-ubyte.gz")
    row, scores, lengthscale = "1: LR 0.04 and 0.05, steps 1 and 1: t-SVGP", set(), {}
    for name in ("dual_1", "dual_1_falling", "dual_1_start"):
        command = [name, "--rows", row, "--splits", "0", "--steps", "3", "--out", str(tmp_path)]
        assert reproduce.main(command) == 0
        found = result_of(tmp_path, *cell_of(reproduce, name, row), reproduce)
        scores.add(found["scores"]["NLPD"])
        lengthscale[name] = found["hyperparameters"].get("covariance.lengthscales")
    assert len(scores) == 3 and lengthscale["dual_1"] != lengthscale["dual_1_falling"] > 5
    assert lengthscale["dual_1_start"] is None  # one for each of 784 inputs: not written


def test_a_training_goes_on_from_its_checkpoint(reproduce, tmp_path, capsys):
    """Its result is that of a training without a break, and another process leaves it alone."""
    skip_without_data(reproduce, "elevators.data.csv.gz")
    row, command = "elevators SVGP 1024", ["solve_gp_7", "--splits", "0", "--steps", "5"]
    command += ["--rows", row, "--out"]
    assert reproduce.main([*command, str(tmp_path / "broken"), "--hours", "0"]) == 0
    state = tmp_path / "broken" / ".unfinished" / "solve_gp_7-elevators-SVGP-1024-0.npz"
    assert f"unfinished, goes on from {state}" in capsys.readouterr().out and state.is_file()
    with reproduce.running.claimed(state) as ours:
        assert ours and reproduce.main([*command, str(tmp_path / "broken")]) == 0
    assert state.is_file() and not list(tmp_path.glob("broken/solve_gp_7/*"))
    ends = []
    for folder in ("broken", "whole"):
        assert reproduce.main([*command, str(tmp_path / folder)]) == 0
        (file,) = (tmp_path / folder / "solve_gp_7").iterdir()
        ends.append(reproduce.results.read(file))
    assert ends[0]["scores"] == ends[1]["scores"] and ends[0]["steps"] == ends[1]["steps"] == 5
    assert not state.exists()


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["solve_gp_99"], "no table 'solve_gp_99'; `python bench/reproduce.py list` names all"),
        (["list", "moon"], "no table 'moon'"),
        (["solve_gp_7", "--rows", "SVGP 7"], "no row 'SVGP 7' in solve_gp_7; `list solve_gp_7`"),
        (["solve_gp_7", "--splits", "0-x"], "'0-x' is no split; give 0-4, or 0,2"),
        (["solve_gp_7", "--splits", "12"], "'12' are no splits; there are 0 to 9"),
        (["solve_gp_7", "--steps", "0"], "--steps must be at least 1, got 0"),
    ],
)
def test_unknown_names_and_numbers(reproduce, words, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main([*words, "--out", str(tmp_path)])
    message = capsys.readouterr().err.splitlines()[-1]
    assert stopped.value.code == 2 and said in message and len(message) <= 200


def test_results_of_another_setting_are_kept(reproduce, tmp_path, capsys):
    command = ["dual_fig_2", "--rows", "q", "--out", str(tmp_path), "--steps"]
    assert reproduce.main([*command, "2"]) == 0
    (file,) = (tmp_path / "dual_fig_2").iterdir()
    before = file.read_text(encoding="utf-8")
    capsys.readouterr()
    assert reproduce.main([*command, "3"]) == 1
    assert f"{file} has another setting and is kept" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == before


def test_missing_data_are_named_and_other_cells_go_on(reproduce, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce.solve_gp.example, "DATA", tmp_path)
    names = ["solve_gp_7", "dual_fig_2", "--rows", "bike SVGP 1024", "q", "--splits", "9"]
    assert reproduce.main([*names, "--steps", "2", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"no such data: {tmp_path / 'bike.data.csv.gz'}; FASTSVGP_DATA names" in printed
    assert "dual_fig_2, q, split 9: rounds" in printed


def test_an_error_is_printed_and_other_cells_go_on(reproduce, tmp_path, monkeypatch, capsys):
    def fails(*args):
        raise ValueError("no such luck")

    monkeypatch.setattr(reproduce.dual.dual_curves, "map_of_em", fails)
    command = ["dual_fig_2", "--rows", "q", "whitened q", "--steps", "2", "--out", str(tmp_path)]
    assert reproduce.main(command) == 1
    assert capsys.readouterr().out.count("ValueError: no such luck") == 2


def test_rows_without_data_are_listed(reproduce, capsys):
    assert reproduce.main(["solve_gp_images", "--rows", "scores during the training"]) == 0
    assert "no data: HouseElectric" in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, PROGRAM, "list"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(reproduce.TABLES)
    assert all(" CPU hours left" in line for line in lines)
    reproduce.main(["list", "dual_fig_4"])
    assert "  t-SVGP: " in capsys.readouterr().out


# --- the page -------------------------------------------------------------------------------------


def test_the_page_is_rendered_from_the_results(reproduce):
    for path, text in reproduce.render().items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path} is not rendered: run `python bench/reproduce.py render`"
        )


@pytest.fixture
def made(reproduce, tmp_path):
    """Return a table of the paper and results for it: two rows, in the other order."""
    from papers import cells

    def program(data, split, steps, checkpoint):
        raise AssertionError

    def cell(row, published):
        run = cells.partial(program)
        paper = {"RMSE": published}
        return cells.Cell(row, run, None, 10, 2.0, paper=paper, groups=("all",), paper_steps=50)

    table = cells.Table(
        "made",
        "A paper",
        "table 0",
        (cells.Metric("RMSE"),),
        "Nothing.",
        (
            cell("good", (0.5, 0.01)),
            cell("bad", (0.7, 0.01)),
            cell("later", (0.9, 0.01)),
            cells.Cell("none", missing="Moon"),
            cells.Cell("good at 5", steps=5, read_from=("good", 5)),
        ),
    )
    origin = {"commit": "abc", "versions": "Python", "machine": "a CPU", "CPU seconds": 90.0}
    for row, values in (("good", (0.7, 0.8, 0.9)), ("bad", (0.5, 0.5, 0.53))):
        for split, value in enumerate(values):
            (one,) = [c for c in table.cells if c.row == row]
            trace = [{"step": 5, "seconds": 30.0, "RMSE": value + 1}]
            found = {"setting": one.setting(10), "scores": {"RMSE": value}, "trace": trace}
            file = reproduce.results.path(tmp_path, table, one, split)
            reproduce.results.write(file, found | origin)
    return tmp_path, table


def test_orders_that_are_not_found_come_first(page, made):
    folder, table = made
    text = page.page(folder, [table])
    (said,) = [line for line in text.splitlines() if line.startswith("- ")]
    assert text.index(said) < text.index("## A paper")
    assert said == (
        "- made, RMSE: good before bad, 0.500 (0.010) and 0.700 (0.010) in the paper,"
        " 0.800 (0.058) and 0.510 (0.010) here."
    )
    assert "Of 3 orders of two rows that the papers state, 1 have results here" in text
    unnumbered = dataclasses.replace(table, orders=(("RMSE", "good at 5", "bad"),))
    assert "- made, RMSE: good at 5 before bad, without numbers in the paper, 1.800" in page.page(
        folder, [unnumbered]
    )


def test_rows_show_means_errors_and_what_is_missing(page, made):
    folder, table = made
    rows = {
        line.split(" | ")[0][2:]: line.strip("| ").split(" | ")
        for line in page.section(folder, table).splitlines()
        if line.startswith("| ")
    }
    good = rows["good"]
    joint = (0.01**2 + 0.01 / 3) ** 0.5  # 0.1 is the deviation of three splits
    assert good[1:6] == ["3", "10 (50)", "0.800 (0.058)", "0.500 (0.010)", f"{0.3 / joint:+.1f}"]
    assert good[6] == "1.5" and good[-1].endswith('`made --rows "good"` |'[:-2])
    assert rows["later"][1] == "not run" and "about 2" in rows["later"]
    assert rows["none"][1] == "no data: Moon"
    assert rows["good at 5"][1:4] == ["3", "5", "1.800 (0.058)"]
    assert "Commit abc; Python; a CPU." in page.section(folder, table)


def test_results_of_another_setting_are_not_shown(reproduce, page, made):
    folder, table = made
    longer = dataclasses.replace(table.cells[0], steps=11)
    table = dataclasses.replace(table, cells=(longer, *table.cells[1:4]))
    assert "good" not in reproduce.results.means(folder, table)
    assert "0 have results here" in page.page(folder, [table])


def test_standard_deviations_become_standard_errors(made):
    _, table = made
    assert table.error((0.5, 0.01)) == 0.01
    table = dataclasses.replace(table, spread="deviation", repeats=4)
    assert table.error((0.5, 0.01)) == 0.005 and table.error((0.5, None)) is None


def test_tables_in_other_pages(page, made):
    folder, table = made
    text = "a\n<!-- begin: rows of made; bad -->\nold\n<!-- end: rows -->\nb\n"
    found = page.filled(text, folder, [table])
    assert found.splitlines()[2:5] == [
        "| row | splits | RMSE |",
        "| --- | --- | --- |",
        "| bad | 3 | 0.510 (0.010) [0.700] |",
    ]
    assert page.filled(found, folder, [table]) == found and found.endswith("\nb\n")
    whole = page.filled(text.replace("; bad", ""), folder, [table])
    assert "| good | 3 |" in whole and "| bad | 3 |" in whole
    with pytest.raises(ValueError, match="no row 'moon' in made"):
        page.filled(text.replace("bad", "moon"), folder, [table])


def test_pictures_of_curves(reproduce, tmp_path):
    pytest.importorskip("matplotlib")
    curves = {
        "inverse_free_fig_1": {"curve": [[1, 10], [-2.0, -1.0]]},
        "dual_fig_2": {"before": [0.5, 1.0], "after": [0.7, 0.8]},
        "dual_fig_3": {"trace": [{"step": 1, "NLPD": 2.0}, {"step": 2, "NLPD": 1.0}]},
    }
    for name, curve in curves.items():
        table = reproduce.TABLES[name]
        assert reproduce.pictures.draw(tmp_path, table, tmp_path) is None
        cell = table.cells[0]
        file = reproduce.results.path(tmp_path, table, cell, 0)
        reproduce.results.write(file, {"setting": cell.setting(cell.steps)} | curve)
        picture = reproduce.pictures.draw(tmp_path, table, tmp_path)
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(file.read_text(encoding="utf-8"))["trace"] == curves["dual_fig_3"]["trace"]
