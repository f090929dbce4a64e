"""Random rows of the data on the host, from which initial values are computed.

Only these rows are read, so X can be larger than memory (``numpy.memmap``). ``rng`` is None, an
integer seed, or a ``numpy.random.Generator``. Rows on a device are copied to the host, so the same
seed gives the same choice; results are copied back to the device.
"""

import numpy as np

from .. import check
from ..errors import BadEntry
from ..records.inducing_sets import InducingPair
from ..runtime import devices
from ..runtime.deferred_checks import on_device


def sizes_of_sets(M):
    """Total number of inputs, and a function that returns them as an array or ``InducingPair``."""
    if not isinstance(M, (tuple, list)):
        return check.whole("M", M), lambda Z: Z
    if len(M) != 2:
        raise ValueError(f"`M` must be a number, or two of them for an InducingPair, got {len(M)}")
    first, second = (check.whole("M", m) for m in M)
    return first + second, lambda Z: InducingPair(Z[:first], Z[first:])


def as_data(X):
    """Convert lists and tables to arrays; leave arrays of any library as they are, unread."""
    return X if hasattr(X, "dtype") else check.as_array("X", X)


def random_rows(function, X, M, rng, subset):
    """Random rows of X in random order, as float64, checked for finite values.

    Also returns the dtype of results, and the argument for ``devices.copy_to`` of results.
    """
    X = as_data(X)
    if np.ndim(X) != 2 or 0 in np.shape(X):
        raise ValueError(
            f"{function}: `X` must have shape (N, D) with at least one row and column, got"
            f" {np.shape(X)}"
        )
    N, D = np.shape(X)
    if M > N:
        raise ValueError(
            f"{function}: {M} inducing inputs were requested, but `X` has only {N} rows; choose M"
            f" <= {N}"
        )
    if subset is None:
        subset = max(1, min(20_000, 4_000_000 // D))
    subset = check.whole("subset", subset)
    rows = rng.choice(N, size=min(N, max(subset, 10 * M)), replace=False)
    order = np.argsort(rows)  # read in the order of the file, then shuffle
    part = check.as_array("X", X[devices.copy_to(rows[order], X)])
    part, device_like = (part.get(), X) if on_device(part) else (part, None)
    shuffled = np.empty(part.shape)
    shuffled[order] = part
    try:
        check.finite("X", shuffled)
    except BadEntry as error:
        error.index = (int(rows[error.index[0]]), error.index[1])
        raise
    return shuffled, check.common_dtype(part, names=("X",)), device_like
