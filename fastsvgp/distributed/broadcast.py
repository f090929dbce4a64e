"""Broadcast of a result, or of a file, from rank 0 to all ranks."""

import numpy as np

from .. import check
from ..records import is_record, replace_leaves
from . import reduce
from .buffers import packing_of
from .protocol import Communicator


def broadcast_choice(group, choose, X, rng, rows, **same):
    """Return ``choose(X, rng)``, an array or a record, of rank 0 on all ranks.

    If each rank has its own rows, about ``rows`` of them are drawn from all ranks for X.

    same : arguments that must agree on all ranks
    """
    communicator = Communicator.of(group)

    def choose_together():
        facts = {"function": choose.__qualname__.split(".")[0], "rng": reduce.seed_of(rng)}
        facts |= {name: repr(value) for name, value in same.items()}
        given = X if hasattr(X, "shape") else check.as_array("X", X)
        if group.rows == "own" and np.ndim(given) != 2:
            raise ValueError(f"`X` must have shape (N, D), got {np.shape(given)}")
        communicator.agree(facts)
        seed = reduce.common_seed(communicator, rng)
        if group.rows == "own":
            given = _rows_of_all(communicator, group, given, rows, seed)
        found = choose(given, seed)
        communicator.agree()
        return broadcast_record(group, found)

    return communicator.run(choose_together)


def _rows_of_all(communicator, group, X, rows, seed):
    """Return about ``rows`` rows of X, drawn on each rank in proportion to its number of rows."""
    sizes, width = np.zeros(group.size), np.shape(X)[1]
    sizes[group.rank] = len(X)
    facts = {"columns of X": width, "dtype of X": str(getattr(X, "dtype", None))}
    communicator.exchange(group.sum, sizes, facts)
    share = np.minimum(sizes, np.ceil(rows * sizes / max(sizes.sum(), 1))).astype(int)
    ends, gathered = np.cumsum([0, *share]), np.zeros((share.sum(), width))
    rng = np.random.default_rng([seed, group.rank])
    picked = np.sort(rng.choice(len(X), share[group.rank], replace=False))
    gathered[ends[group.rank] : ends[group.rank + 1]] = X[picked]
    communicator.exchange(group.sum, gathered.reshape(-1))
    return gathered.astype(X.dtype if X.dtype.kind == "f" else float)


def broadcast_record(group, tree):
    """Return a record or an array with the numbers of rank 0; None stays None."""
    if tree is None:
        return None
    single = ("",), ("real",), (tree,)
    paths, kinds, values = reduce.present(tree) if is_record(tree) else single
    packing = packing_of(kinds, values)
    buffer = np.empty(packing.size)
    packing.pack(values, buffer)
    group.broadcast(buffer)
    received = packing.unpack(buffer, values)
    if not is_record(tree):
        return received[0]
    return replace_leaves(tree, dict(zip(paths, received, strict=True)))


def broadcast_file(communicator, path):
    """Return the content of a file of rank 0; other ranks need not see it."""
    group, content = communicator.group, b""
    if group.rank == 0:
        with open(path, "rb") as file:
            content = file.read()
    length = np.array([float(len(content))])
    communicator.exchange(group.broadcast, length)
    numbers = np.zeros(int(length[0]))
    if group.rank == 0:
        numbers[:] = np.frombuffer(content, np.uint8)
    communicator.exchange(group.broadcast, numbers)
    return numbers.astype(np.uint8).tobytes()
