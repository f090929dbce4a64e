"""pytest collects the functions ``bench_*`` of the files ``bench_*.py`` here; ``python bench/measure.py NAME`` makes tables."""

import pathlib
import sys

import numpy as np
import pytest
import report

import fastsvgp.kernels.cpu  # noqa: F401  loads SciPy's BLAS, with the settings of fastsvgp, before a benchmark does

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))  # the oracles


def pytest_configure(config):
    config.addinivalue_line("python_files", "bench_*.py")
    config.addinivalue_line("python_functions", "bench_*")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info):
    """For the head of the table: what this process computes with, which that of ``measure.py`` need not have."""
    machine_info["computing"] = report.computing()
