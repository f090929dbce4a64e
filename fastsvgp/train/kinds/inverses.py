"""Updates of factors of inverses in ``fit``: of which posteriors, and whether they are possible."""

from ...optim.inverse.updates import (
    InverseUpdates,
    PlacedUpdates,
    inverse_updates as default_updates,
)
from ...posteriors.placed import placed


def placed_updates(model, optimiser, requested):
    """Return the updates of the factors of several posteriors or None, and the optimiser without.

    ``requested`` is None, False, or what ``fs.optim.inverse_updates`` makes.
    """
    check_requested(requested)
    if requested is False:
        return None, optimiser
    moved = optimiser.paths(model)
    factors = {
        path: f"{path}.{q.inverse_field}"
        for path, q in placed(model).items()
        if q.inverse_field is not None
    }
    moving = tuple(path for path, factor in factors.items() if factor in moved)
    if requested is None and not moving:
        return None, optimiser
    updates = default_updates() if requested is None else requested
    if updates.nats is not None or updates.direction != "exact":
        what = "`nats`" if updates.nats is not None else f"direction {updates.direction!r}"
        raise ValueError(
            f"fit: `inverse_updates` with {what} is for an SVGP; give `tolerance` alone for the"
            f" layers of a {type(model).__name__}"
        )
    if not moving:
        why = (
            "every layer's factor of an inverse is fixed"
            if factors
            else "no layer has a factor of an inverse"
        )
        raise ValueError(f"fit: `inverse_updates` asks for updates, but {why}; leave it out")
    return PlacedUpdates(updates, moving), optimiser.fixing([factors[path] for path in moving])


def own_updates(model, q, optimiser, requested):
    """Return the updates of the factor of the one posterior of a model or None, as above."""
    check_requested(requested)
    factor = f"posterior.{q.inverse_field}"
    if requested is False or (
        requested is None and (q.inverse_field is None or factor not in optimiser.paths(model))
    ):
        return None, optimiser
    updates = default_updates() if requested is None else requested
    updates.check_model(model)
    if factor not in optimiser.paths(model):
        raise ValueError(
            f"fit: {factor!r} is fixed, but `inverse_updates` asks for updates of it; drop one"
        )
    return updates, optimiser.fixing(factor)


def check_requested(requested):
    """Refuse anything but None, False, and updates that ``fs.optim.inverse_updates`` made."""
    if requested not in (None, False) and not isinstance(requested, InverseUpdates):
        raise TypeError(
            "fit: `inverse_updates` must be made by fs.optim.inverse_updates(...), or be False, got"
            f" {requested!r}"
        )
