"""How the functions of this room treat each kind of model: its checks, its pass, its gradient.

``elbo``, ``predict_f`` and the functions beside them are the same steps for every kind of model
that has one likelihood above one pass. A kind enters its own three functions here, and registers
the public functions that then serve it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class ModelKind(NamedTuple):
    """What a kind of model supplies.

    checked : ``checked(model, X, Y, names)`` as ``check.svgp``: ``(model, X, Y, dtype)``
    begin : ``begin(model, dtype, columns, need, *, jitter, rng, **more)`` makes the pass of a
        checked model, with the methods of a ``LayerPass``. ``more`` are random quantities, drawn
        here, and options of the pass.
    gradient : ``gradient(model, bars, likelihood_bar)`` makes the record of a gradient; ``bars`` is
        what ``finish`` of the pass returns, or None if no field is needed
    """

    checked: Callable[..., Any]
    begin: Callable[..., Any]
    gradient: Callable[..., Any]


KINDS: dict[type, ModelKind] = {}


def kind_of(model) -> ModelKind:
    """Return the ``ModelKind`` of a model; a class derived from a kind is another kind."""
    return KINDS[type(model)]
