"""``python -m pytest bench --benchmark-only`` collects the functions ``bench_*`` of the files ``bench_*.py`` here."""

import numpy as np
import pytest


def pytest_configure(config):
    config.addinivalue_line("python_files", "bench_*.py")
    config.addinivalue_line("python_functions", "bench_*")


@pytest.fixture
def rng():
    return np.random.default_rng(7)
