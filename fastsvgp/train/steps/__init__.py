"""The steps of each way of training; what a loop asks of them."""

from .base import (
    Snapshot as Snapshot,
    Steps as Steps,
)
