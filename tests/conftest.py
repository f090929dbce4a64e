"""Fixtures and numerical helpers shared by all tests."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20240917)


@pytest.fixture(autouse=True)
def _fresh_memory_is_poison(monkeypatch):
    """What a kernel leaves uninitialised is a huge number: who reads it overflows, which is an error here, or is far off."""
    from fastsvgp.kernels.cpu import scratch

    plain = scratch.empty

    def poisoned(shape, dtype):
        array = plain(shape, dtype)
        array[...] = np.finfo(array.dtype).max
        return array

    monkeypatch.setattr(scratch, "empty", poisoned)
