"""Progress of compilation: counted by Numba's events, shown only if something is compiled."""

import sys

import numba
import pytest

from fastsvgp.cli import progress as module
from fastsvgp.cli.progress import FEW, Compiling, compiling
from fastsvgp.kernels.cpu.common import compiled


class Terminal:
    """A stream that claims to be a terminal and records its output."""

    def __init__(self):
        self.written = ""

    def write(self, text):
        self.written += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_what_numba_compiles_is_counted():
    with compiling(20, quiet=False) as shown:
        compiled.ready()  # Numba is watched once the package needs it
        assert numba.njit(lambda x: x + 1)(1) == 2
        assert shown.done >= 1
        before = shown.done
    numba.njit(lambda x: x + 2)(1)
    assert shown.done == before


def test_nothing_is_shown_where_all_is_compiled(capsys):
    with compiling(20, quiet=False) as shown:
        for _ in range(FEW - 1):
            shown.count()
    assert capsys.readouterr().err == ""


def test_quiet_counts_nothing(monkeypatch):
    monkeypatch.setattr(module, "Compiling", None)
    with compiling(20, quiet=True) as shown:
        assert shown is None


def test_a_file_gets_some_lines(capsys):
    shown = Compiling(40)
    for _ in range(40):
        shown.count()
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert "40 kernels, once" in lines[0] and lines[1:] == [
        f"  compiling  {done} of 40 kernels" for done in (10, 20, 30, 40)
    ]


def test_more_kernels_than_known_raise_the_total(capsys):
    shown = Compiling(8)
    for _ in range(12):
        shown.count()
    assert capsys.readouterr().err.splitlines()[-1] == "  compiling  12 of 12 kernels"


def test_a_terminal_gets_a_bar(monkeypatch):
    pytest.importorskip("tqdm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = Compiling(8)
    for _ in range(12):
        shown.count()
    assert (shown._bar.n, shown._bar.total) == (12, 12)
    shown.close()
    assert "kernels, once" in terminal.written
