"""The arguments of one call of ``fit``, as the functions for each kind of model take them."""

import numbers
from dataclasses import dataclass, field, fields
from typing import Any

from ... import check


@dataclass(frozen=True)
class Request:
    """One training of a kind of model: the arguments of ``minibatch_training``.

    options : record of the options of the kind
    others : options that are not of the kind, by name
    """

    model: Any
    X: Any
    Y: Any
    plan: Any
    about: dict[str, Any]
    resume: Any
    fixed: Any
    jitter: float | None
    rng: Any
    epochs: float | None = None
    batch_size: int | None = None
    optimiser: Any = None
    weights: Any = None
    options: Any = None
    others: dict[str, Any] = field(default_factory=dict)


SHARED = "epochs", "batch_size", "optimiser"


def request_of(record, arguments, options, weights=None):
    """Make a request from the ``arguments`` up to ``rng``, and options by name."""
    shared = {name: options[name] for name in SHARED if name in options}
    rest = {name: value for name, value in options.items() if name not in SHARED}
    own, others = own_options(record, rest)
    return Request(*arguments, **shared, weights=weights, options=own, others=others)


def own_options(record, options):
    """Split options into ``(record, others)``: fields of a record, and all others."""
    names = {field.name for field in fields(record)}
    own = {name: value for name, value in options.items() if name in names}
    return record(**own), {name: value for name, value in options.items() if name not in names}


def seed_of(rng):
    """Return an integer seed; shuffling and sampling are functions of it and of the step."""
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        if rng < 0:
            raise ValueError(f"fit: the seed `rng` must be zero or more, got {rng}")
        return int(rng)
    return int(check.generator(rng).integers(2**63))
