"""Standard normal numbers for the draws of hidden layers."""

from itertools import accumulate

import numpy as np

from .. import check, kernels
from ..runtime.dispatch import one_device
from .layer import widths

RUN = 4096  # rows that are drawn at a time if only some are kept


class HiddenDraws(tuple):
    """Arrays (S, B, P) of the hidden layers, checked, for the rows of this process."""


def hidden_draws(model, X, draws, num_samples, rng, partition=None):
    """Return one array (S, B, P) per hidden layer, on the device of X: given ones, checked, or new
    ones.

    New ones are independent per row and layer, and made on the host. For even S the second half is
    the negative of the first, which cancels the odd part of the noise: most of it if the factors
    are small.

    ``partition`` is the ``RowPartition`` of the rows X among those of all ranks. The draws equal
    those of one process: each rank makes the draws of all rows and keeps its own.
    """
    sizes = widths(model.layers)
    if isinstance(draws, HiddenDraws):
        return draws
    if draws is not None:
        if partition is None or partition.own:
            return HiddenDraws(_check(draws, sizes, X, len(X)))
        return HiddenDraws(
            one[:, partition.rows] for one in _check(draws, sizes, X, partition.count)
        )
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    return HiddenDraws(
        np.asarray(_normal(rng, num_samples, len(X), P, partition).astype(X.dtype), like=X)
        for P in sizes
    )


def hidden_points(model, X, num_samples, rng):
    """Return quasi-random points as arrays (S, B, P) per hidden layer, the same for all rows."""
    S = check.whole("num_samples", num_samples, 2)
    if S & (S - 1):
        raise ValueError(
            f"`num_samples` must be a power of two, for quasi-random points, got {num_samples}"
        )
    sizes = widths(model.layers)
    if not sizes:
        return HiddenDraws()
    points = kernels.normal_points(sum(sizes), S, rng, like=X).astype(X.dtype)
    spans = zip(accumulate(sizes, initial=0), accumulate(sizes), strict=False)
    return HiddenDraws(
        np.broadcast_to(points[:, None, start:stop], (S, len(X), stop - start))
        for start, stop in spans
    )


def _normal(rng, S, B, P, partition):
    drawn = S if S % 2 else S // 2
    if partition is None:
        half = rng.standard_normal((drawn, B, P))
    else:
        half = np.stack(
            [_draw_rows(rng, partition.count, P, np.r_[partition.rows]) for _ in range(drawn)]
        )
    return half if S % 2 else np.concatenate([half, -half])


def _draw_rows(rng, count, P, rows):
    """Return ``rng.standard_normal((count, P))[rows]`` for increasing ``rows``.

    The memory is that of ``rows`` and of one block.
    """
    kept = np.empty((len(rows), P))
    for start in range(0, count, RUN):
        block = rng.standard_normal((min(RUN, count - start), P))
        first, last = np.searchsorted(rows, (start, start + len(block)))
        kept[first:last] = block[rows[first:last] - start]
    return kept


def _check(draws, sizes, X, B):
    if not isinstance(draws, (tuple, list)) or len(draws) != len(sizes):
        came = f"{len(draws)} of them" if isinstance(draws, (tuple, list)) else type(draws).__name__
        raise TypeError(
            f"`draws` must be a tuple of one array (S, B, P) for each of the {len(sizes)} hidden"
            f" layers, got {came}"
        )
    found, S = [], None
    for number, (one, P) in enumerate(zip(draws, sizes, strict=True)):
        name = f"draws[{number}]"
        one = check.as_array(name, one)
        S = one.shape[0] if S is None and one.ndim == 3 else S
        if one.ndim != 3 or one.shape != (S, B, P) or S == 0:
            same = "S" if number == 0 or S is None else f"S = {S} as of draws[0]"
            raise ValueError(
                f"`{name}` must have shape (S, B, P), {same}, B = {B} rows of `X`, P = {P} outputs"
                f" of `layers[{number}]`; got {one.shape}"
            )
        one_device(("X", X), (name, one))
        check.finite(name, one)
        found.append(one.astype(X.dtype, copy=False))
    return tuple(found)


def num_draws(draws):
    """Return S."""
    return len(draws[0]) if draws else 1
