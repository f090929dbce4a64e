"""Fixtures of the tests of the command line."""

import pytest

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
