"""Fixtures of the tests of records."""

import pytest

from fastsvgp.records import decorator


@pytest.fixture
def registry(monkeypatch):
    """The registered records, for one test to change."""
    monkeypatch.setattr(decorator, "REGISTRY", dict(decorator.REGISTRY))
    return decorator.REGISTRY
