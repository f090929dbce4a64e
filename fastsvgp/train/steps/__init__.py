"""Step objects of each kind of training, and their interface."""

from .base import (
    MoreJitter as MoreJitter,
    Snapshot as Snapshot,
    Steps as Steps,
)
