"""Inducing inputs in several sets: records of arrays that covariances see as one stack."""

from itertools import accumulate

import numpy as np

from ..errors import NotPositiveDefinite
from .decorator import is_record, leaf, record
from .typed import Array


class InducingSets:
    """Base of records whose fields are sets of inducing inputs, each (M_k, D), for posteriors that treat them differently.

    A covariance sees the sets stacked, in the order of the fields: its blocks hold theirs as
    slices.
    """


@record
class InducingPair(InducingSets):
    """Two sets of inducing inputs: Z, and O for what Z leaves over.

    Parameters
    ----------
    Z : (M, D) array
    O : (M2, D) array

    Examples
    --------
    >>> pair = fs.InducingPair(Z=Z, O=np.linspace(-2, 2, 9)[:, None])
    >>> fs.SVGP(covariance, pair, fs.at_prior(fs.WhitenedOrthogonal, covariance, pair), gaussian).posterior
    WhitenedOrthogonal(mean_u=<float64 (6,)>, scale_tril_u=<float64 (6, 6)>, mean_v=<float64 (9,)>, scale_tril_v=<float64 (9, 9)>)
    """

    Z: Array = leaf()
    O: Array = leaf()  # noqa: E741 (the name in the literature)


def sets_of(inducing):
    """The arrays in a tuple; an array is one set."""
    if isinstance(inducing, InducingSets):
        return tuple(getattr(inducing, name) for name, _ in inducing._record_fields)
    return (inducing,)


def stacked(inducing):
    """One array (M_1 + M_2 + ..., D) of all sets; an array as it is."""
    if isinstance(inducing, InducingSets):
        return np.concatenate(sets_of(inducing))
    return inducing


def unstacked(Z_bar, inducing):
    """A cotangent of ``stacked(inducing)`` as one of ``inducing``; None stays None."""
    if Z_bar is None or not isinstance(inducing, InducingSets):
        return Z_bar
    sizes = [len(Z) for Z in sets_of(inducing)]
    return type(inducing)(
        *(Z_bar[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))
    )


class naming_repeated:
    """A context in which ``NotPositiveDefinite`` says so where two inducing inputs are the same.

    ``inducing`` may be None.

    ``name`` is what the message calls them.
    """

    def __init__(self, inducing, name="inducing"):
        self._inducing, self._name = inducing, name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        failed = isinstance(error, NotPositiveDefinite) and self._inducing is not None
        if failed and (twice := repeated(self._inducing, self._name)):
            same = (
                f"`{twice[0]}` and `{twice[1]}` are the same inputs: move or leave out one of them,"
                " or raise `jitter`. "
            )
            error.args = (same + error.args[0],)


def repeated(inducing, called="inducing"):
    """The names of two rows that are equal, such as "inducing.O[3]" and "inducing.Z[7]"; None where there are none."""
    if is_record(inducing) and not isinstance(inducing, InducingSets):
        return None  # what its rows are is known to its covariance alone
    sets = inducing._record_fields if is_record(inducing) else (("", None),)
    names = [f"{called}{'.' * bool(name)}{name}" for name, _ in sets]
    rows = [
        f"{name}[{i}]"
        for name, Z in zip(names, sets_of(inducing), strict=True)
        for i in range(len(Z))
    ]
    stack = stacked(inducing)
    seen: dict[tuple, str] = {}
    for row, x in zip(
        rows, (stack.get() if hasattr(stack, "get") else stack).tolist(), strict=True
    ):
        first = seen.setdefault(tuple(x), row)
        if first != row:
            return row, first
    return None
