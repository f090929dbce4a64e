"""A tuned kernel and its plain twin."""

from collections.abc import Callable
from typing import NamedTuple


class Case(NamedTuple):
    name: str
    tuned: Callable[[], object]
    plain: Callable[[], object]
    tolerance: float
