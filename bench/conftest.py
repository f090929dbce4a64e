"""Settings of pytest, which collects the functions ``bench_*`` of the files ``bench_*.py`` here.

``python bench/measure.py NAME`` writes tables.
"""

import pathlib
import sys

import numpy as np
import pytest
import report

# load SciPy's BLAS with the settings of fastsvgp before a benchmark does
import fastsvgp.kernels.cpu  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))  # the oracles


def pytest_configure(config):
    config.addinivalue_line("python_files", "bench_*.py")
    config.addinivalue_line("python_functions", "bench_*")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info):
    """Add BLAS and threads of this process, which can differ from those of ``measure.py``."""
    machine_info["computing"] = report.computing()
