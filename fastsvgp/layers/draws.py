"""The standard normal numbers behind the draws of hidden layers."""

import numpy as np

from .. import check
from ..kernels.dispatch import one_device
from .layer import widths


def hidden_draws(model, X, draws, num_samples, rng):
    """One array (S, B, P) for each hidden layer, where X is: those that are given, checked, or new ones.

    New ones are independent for each row and layer, and made on the host. For even S the second half is the negative of the
    first: what is odd in them then cancels, which is most of the noise where factors are small.
    """
    sizes = widths(model.layers)
    if draws is not None:
        return _given(draws, sizes, X)
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    return tuple(np.asarray(_normal(rng, (num_samples, len(X), P)).astype(X.dtype), like=X) for P in sizes)


def _normal(rng, shape):
    S, *rest = shape
    if S % 2:
        return rng.standard_normal(shape)
    half = rng.standard_normal((S // 2, *rest))
    return np.concatenate([half, -half])


def _given(draws, sizes, X):
    if not isinstance(draws, (tuple, list)) or len(draws) != len(sizes):
        came = f"{len(draws)} of them" if isinstance(draws, (tuple, list)) else type(draws).__name__
        raise TypeError(f"`draws` must be a tuple of one array (S, B, P) for each of the {len(sizes)} hidden layers, got {came}")
    found, S = [], None
    for number, (one, P) in enumerate(zip(draws, sizes, strict=True)):
        name = f"draws[{number}]"
        one = check.as_array(name, one)
        S = one.shape[0] if S is None and one.ndim == 3 else S
        if one.ndim != 3 or one.shape != (S, len(X), P) or S == 0:
            same = "S" if number == 0 or S is None else f"S = {S} as of draws[0]"
            raise ValueError(
                f"`{name}` must have shape (S, B, P), {same}, B = {len(X)} rows of `X`, P = {P} outputs of `layers[{number}]`; "
                f"got {one.shape}"
            )
        one_device(("X", X), (name, one))
        check.finite(name, one)
        found.append(one.astype(X.dtype, copy=False))
    return tuple(found)


def num_draws(draws):
    """S."""
    return len(draws[0]) if draws else 1
