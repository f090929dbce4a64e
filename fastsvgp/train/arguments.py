"""Arguments that every way of training takes."""

import numbers

from .. import check
from ..records.typed import Rows

# of steps, and of whatever else is counted: at a microsecond each these take thirty years
MOST = 10**15


def count(name, value, least=1):
    """A whole number, as ``check.whole``, or None; one that has no end in practice is refused, for it is no int of C."""
    if isinstance(value, numbers.Real) and value > MOST:
        raise ValueError(f"fit: `{name}` must be at most 10**15")
    return None if value is None else check.whole(name, value, least)


def given_seed(rng):
    """The seed that came as ``rng``; None where nothing came, or a generator to draw one from."""
    return int(rng) if isinstance(rng, numbers.Integral) else None


def rows(name, data) -> Rows:
    """Data with rows: as they are where they can be read by row number; lists, and pandas (which reads by label), as arrays."""
    readable = hasattr(data, "shape") and hasattr(data, "dtype") and not hasattr(data, "iloc")
    data = data if readable else check.as_array(name, data)
    if not data.shape:
        raise ValueError(f"`{name}` must have rows, got a single value")
    return data
