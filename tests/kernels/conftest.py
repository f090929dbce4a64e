"""The twin of bodies that the tests of CUDA import: here the front door with arrays of NumPy."""

import importlib

import pytest


@pytest.fixture
def twin_of():
    """Return a function from the stem of a family to its front door."""
    return lambda stem: importlib.import_module(f"fastsvgp.kernels.{stem}")
