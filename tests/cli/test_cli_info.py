"""``fastsvgp info``, ``--version`` and ``--help``, and the progress bar."""

import io
import pathlib
import re
import sys

import pytest
from support.cli_runs import run

from fastsvgp.cli import main
from fastsvgp.cli.progress import Progress
from fastsvgp.kernels.cpu.common import blas_threads


def test_a_terminal_gets_a_bar_that_shows_the_bound(monkeypatch):
    pytest.importorskip("tqdm")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = Progress(4, quiet=False)
    for step in range(1, 5):
        progress(step, -12.5, None)
    progress.close()
    assert (
        "100 %" in terminal.getvalue()
        and "4/4" in terminal.getvalue()
        and "ELBO -12.5" in terminal.getvalue()
    )


def test_info(capsys):
    out, _ = run(capsys, "info")
    for name in ("fastsvgp", "Python", "numpy", "scipy", "numba", "BLAS", "threads", "CUDA"):
        assert re.search(rf"^{name} +\S", out, re.M)
    if (facts := blas_threads.facts()) is not None:
        assert re.search(rf"^BLAS +SciPy's: {re.escape(facts)}$", out, re.M)
    said = re.search(r"^CUDA +(.*)$", out, re.M)[1]
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    assert said.startswith("no proof on a GPU yet") and "No proof on a GPU yet:" in readme
    families = re.search("families: (.*?);", said)[1].split(", ")
    assert "chevron" in families and "common" not in families


def test_info_of_another_blas(capsys, monkeypatch):
    monkeypatch.setattr(blas_threads, "scipys", lambda: None)
    assert re.search(r"^BLAS +SciPy's: \S+", run(capsys, "info")[0], re.M)


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith("fastsvgp ")


def test_help_of_every_command(capsys):
    for argv in (
        ["--help"],
        ["fit", "--help"],
        ["predict", "--help"],
        ["demo", "--help"],
        ["info", "--help"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 0 and "usage: fastsvgp" in capsys.readouterr().out


def test_short_help_of_fit(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["fit", "-h"])
    out = capsys.readouterr().out
    assert ended.value.code == 0 and out.count("\n") < 45 and out.count("  fastsvgp ") == 3
    assert "--target" in out and "--help" in out and "--natural-step" not in out
