"""Broadcast of a result from rank 0 to all ranks."""

import numpy as np

from .. import check
from ..records import is_record, leaves, replaced
from . import reduce
from .packing import Packing
from .protocol import Communicator


def from_root(group, choose, X, rng, rows, **same):
    """Return ``choose(X, rng)``, an array or a record, of rank 0 on all ranks.

    If each rank has its own rows, about ``rows`` of them are drawn from all ranks for X.

    same : arguments that must agree on all ranks
    """
    communicator, facts, found, error = Communicator.of(group), {}, None, None
    try:
        facts = {"function": choose.__qualname__.split(".")[0], "rng": reduce.seed_of(rng)}
        facts |= {name: repr(value) for name, value in same.items()}
        X = X if hasattr(X, "shape") else check.as_array("X", X)
        if group.rows == "own" and np.ndim(X) != 2:
            raise ValueError(f"`X` must have shape (N, D), got {np.shape(X)}")
    except Exception as failure:
        error = failure
    communicator.agree(facts, error)
    seed = reduce.common_seed(communicator, rng)
    if group.rows == "own":
        X = _rows_of_all(communicator, group, X, rows, seed)
    try:
        found = choose(X, seed)
    except Exception as failure:
        error = failure
    communicator.agree({}, error)
    return broadcast_record(group, found)


def _rows_of_all(communicator, group, X, rows, seed):
    """Return about ``rows`` rows of X, drawn on each rank in proportion to its number of rows."""
    sizes, width, error = np.zeros(group.size), 0, None
    try:
        sizes[group.rank], width = len(X), np.shape(X)[1]
    except Exception as failure:
        error = failure
    facts = {"columns of X": width, "dtype of X": str(getattr(X, "dtype", None))}
    communicator.agree(facts, error)
    group.sum(sizes)
    share = np.minimum(sizes, np.ceil(rows * sizes / max(sizes.sum(), 1))).astype(int)
    ends, gathered = np.cumsum([0, *share]), np.zeros((share.sum(), width))
    try:
        rng = np.random.default_rng([seed, group.rank])
        picked = np.sort(rng.choice(len(X), share[group.rank], replace=False))
        gathered[ends[group.rank] : ends[group.rank + 1]] = X[picked]
    except Exception as failure:
        error = failure
    communicator.agree({}, error)
    group.sum(gathered.reshape(-1))
    return gathered.astype(X.dtype if X.dtype.kind == "f" else float)


def broadcast_record(group, tree):
    """Return a record or an array with the numbers of rank 0; None stays None."""
    if not is_record(tree):
        if tree is None:
            return None
        packing, values = Packing([("real", np.shape(tree))]), [tree]
    else:
        found = [(path, kind, value) for path, kind, value in leaves(tree) if value is not None]
        packing, values = (
            Packing([(kind, np.shape(value)) for _, kind, value in found]),
            [value for *_, value in found],
        )
    buffer = np.empty(packing.size)
    packing.pack(values, buffer)
    group.broadcast(buffer)
    received = packing.unpack(buffer, values)
    if not is_record(tree):
        return received[0]
    return replaced(
        tree, {path: number for (path, *_), number in zip(found, received, strict=True)}
    )
