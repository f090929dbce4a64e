"""Several sets of inducing inputs: records of arrays that covariances see as one stacked array."""

from itertools import accumulate

import numpy as np

from ..errors import NotPositiveDefinite
from .decorator import is_record, leaf, record
from .typed import Array


class InducingSets:
    """Base class of records whose fields are sets of inducing inputs, each (M_k, D).

    A posterior treats the sets differently. A covariance sees them stacked in field order, so each
    set has a slice of the blocks.
    """


@record
class InducingPair(InducingSets):
    """Two sets of inducing inputs: Z, and O for the residual of Z.

    Parameters
    ----------
    Z : (M, D) array
    O : (M2, D) array

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z=Z, O=np.linspace(-2, 2, 9)[:, None])
    >>> posterior = fs.posteriors.at_prior(fs.posteriors.WhitenedOrthogonal, covariance, pair)
    >>> posterior.mean_u.shape, posterior.mean_v.shape
    ((6,), (9,))
    >>> fs.SVGP(covariance, pair, posterior, gaussian).inducing
    InducingPair(Z=<float64 (6, 1)>, O=<float64 (9, 1)>)
    """

    Z: Array = leaf()
    O: Array = leaf()  # noqa: E741 (the name in the literature)


def sets_of(inducing):
    """Return the sets as a tuple of arrays; a plain array is one set."""
    if isinstance(inducing, InducingSets):
        return tuple(getattr(inducing, name) for name, _ in inducing._record_fields)
    return (inducing,)


def stack_sets(inducing):
    """Stack all sets to one array (M_1 + M_2 + ..., D); a plain array is returned unchanged."""
    if isinstance(inducing, InducingSets):
        return np.concatenate(sets_of(inducing))
    return inducing


def unstack_sets(Z_bar, inducing):
    """Split a cotangent of ``stack_sets(inducing)`` into one of ``inducing``; None stays None."""
    if Z_bar is None or not isinstance(inducing, InducingSets):
        return Z_bar
    sizes = [len(Z) for Z in sets_of(inducing)]
    return type(inducing)(
        *(Z_bar[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))
    )


class naming_repeated:
    """Context that adds to ``NotPositiveDefinite`` which two inducing inputs are equal, if any.

    ``inducing`` can be None; ``name`` is its name in the message.
    """

    def __init__(self, inducing, name="inducing"):
        self._inducing, self._name = inducing, name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        failed = isinstance(error, NotPositiveDefinite) and self._inducing is not None
        if failed and (twice := find_repeated(self._inducing, self._name)):
            same = (
                f"`{twice[0]}` and `{twice[1]}` are the same inputs: move or remove one of them, or"
                " raise `jitter`. "
            )
            why = error.args[0]
            error.args = (same + why[0].upper() + why[1:],)


def find_repeated(inducing, called="inducing"):
    """Return the names of two equal rows ("inducing.O[3]" and "inducing.Z[7]"), or None."""
    if is_record(inducing) and not isinstance(inducing, InducingSets):
        return None  # only its covariance knows the meaning of its rows
    sets = inducing._record_fields if is_record(inducing) else (("", None),)
    names = [f"{called}{'.' * bool(name)}{name}" for name, _ in sets]
    rows = [
        f"{name}[{i}]"
        for name, Z in zip(names, sets_of(inducing), strict=True)
        for i in range(len(Z))
    ]
    stack = stack_sets(inducing)
    seen: dict[tuple, str] = {}
    for row, x in zip(
        rows, (stack.get() if hasattr(stack, "get") else stack).tolist(), strict=True
    ):
        first = seen.setdefault(tuple(x), row)
        if first != row:
            return row, first
    return None
