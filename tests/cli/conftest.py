"""Where tests of the command line run."""

import pytest

from fastsvgp.cli.report import plots


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unplotted(monkeypatch):
    """Plots take most of the time of a small fit: what is not about them does without."""
    monkeypatch.setattr(plots, "available", lambda: False)
