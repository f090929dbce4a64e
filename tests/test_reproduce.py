"""The program that reproduces tables of papers, at tiny sizes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("FASTSVGP_DATA", ROOT.parent / "shared" / "data"))


def reproduce(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "bench" / "reproduce.py", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "FASTSVGP_DATA": str(DATA)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_list_names_every_table():
    done = reproduce("list")
    assert done.returncode == 0, done.stderr
    for table in ("solve_gp_7", "inverse_free_1", "dual_1", "qsgp_2"):
        assert any(line.startswith(f"{table}:") for line in done.stdout.splitlines()), table


def test_an_unknown_table_is_named():
    done = reproduce("solve_gp_99")
    assert done.returncode != 0 and "solve_gp_99" in done.stderr + done.stdout


def test_cells_are_finished_once(tmp_path):
    if not DATA.is_dir():
        pytest.skip(f"no data at {DATA}")
    done = reproduce("solve_gp_fig_2", "--steps", 3, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert files and all("bound" in path.read_text() for path in files)
    assert all(json.loads(path.read_text()) for path in files)
    again = reproduce("solve_gp_fig_2", "--steps", 3, "--out", tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == files
