"""Inducing inputs in several sets: records of arrays that covariances see as one stack."""

from typing import Any

import numpy as np

from .records import leaf, record


class InducingSets:
    """Base of records whose fields are sets of inducing inputs, each (M_k, D), for posteriors that treat them differently.

    A covariance sees the sets stacked, in the order of the fields: its blocks hold theirs as slices.
    """


@record
class InducingPair(InducingSets):
    """Two sets of inducing inputs: Z (M, D), and O (M2, D) for what Z leaves over."""

    Z: Any = leaf()
    O: Any = leaf()  # noqa: E741 (the name in the literature)


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
    edges = np.cumsum([len(Z) for Z in sets_of(inducing)])[:-1]
    return type(inducing)(*np.split(Z_bar, edges))
