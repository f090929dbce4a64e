"""Updates of the factors of inverses of several posteriors of one model."""

from typing import Any, NamedTuple

from ...posteriors.placed import layer_at, placed, with_placed
from .updates import InverseUpdates


class PlacedUpdates(NamedTuple):
    """Updates of the factors of some posteriors; the outcomes are in the order of all posteriors.

    moving : paths of the posteriors that take them
    """

    updates: InverseUpdates
    moving: tuple[str, ...]
    direction: Any = "exact"

    def refreshed(self, model, jitter, X=None, num_data=None, group=None):
        """Return ``(model, outcomes)``: a tuple, None for posteriors that take no updates."""
        outcomes, found = [], {}
        for path in placed(model):
            if path not in self.moving:
                outcomes.append(None)
                continue
            layer, outcome = self.updates.refreshed(layer_at(model, path), jitter)
            found[path] = layer.posterior
            outcomes.append(outcome)
        return with_placed(model, found), tuple(outcomes)
