"""The twin of bodies that the tests of CUDA import: here the front door with arrays of NumPy."""

import importlib

import pytest


@pytest.fixture
def twin_of():
    """Return a function from the stem of a family to its front door."""
    return lambda stem: importlib.import_module(f"fastsvgp.kernels.{stem}")


@pytest.fixture
def door_of(twin_of):
    """Return the same, for bodies that call compositions of the front door."""
    return twin_of


@pytest.fixture(params=["small", "direct", "product"])
def form(request, monkeypatch):
    """Each form of the distances in pairwise, whatever D and the size.

    The product form takes many row tiles.
    """
    pairwise = importlib.import_module("fastsvgp.kernels.cpu.pairwise")
    monkeypatch.setattr(pairwise, "DIRECT_BELOW", 0 if request.param == "product" else 10_000)
    monkeypatch.setattr(pairwise, "SMALL_BELOW", 1e12 if request.param == "small" else 0)
    monkeypatch.setattr(pairwise, "TILE", 40 * 65)
    return request.param
