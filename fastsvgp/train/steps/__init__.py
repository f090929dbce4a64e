"""Step objects of each kind of training, and their interface."""

from .base import (
    Snapshot as Snapshot,
    Steps as Steps,
)
