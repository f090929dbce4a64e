"""Unconstrained coordinates of positive numbers, and of shares, for optimisers only.

Each transform is three functions. ``forward(u)`` is positive and finite for every finite u: it
saturates at the smallest normal and the largest number of the dtype, instead of rounding to zero or
infinity. ``inverse(x)`` is its inverse for x > 0. ``derivative(u)`` is d forward / d u. All three
are elementwise, keep the dtype (float32 or float64), accept scalars, and raise no floating-point
warning at either end.

``softplus``: x = log(1 + e^u), the default. It is like e^u for small x and like u for large x, so a
large step upwards cannot multiply a variance by thousands.

``log``: x = e^u. It is scale-free: a step of 0.01 is one per cent of any x. For data that cannot be
standardised.

``logit``: x = 1 / (1 + e^-u), between 0 and 1, for shares whatever transform is requested.
"""

from typing import Any, NamedTuple

import numpy as np


class Transform(NamedTuple):
    """The three functions of a transform, and its name: kernels have these functions by name."""

    name: str
    forward: object
    inverse: object
    derivative: object


class _Limits(NamedTuple):
    """The smallest normal number and the largest of a dtype, and their logarithms."""

    tiny: Any
    max: Any
    log_tiny: Any
    log_max: Any


_LIMITS = {
    info.dtype: _Limits(info.tiny, info.max, np.log(info.tiny), np.log(info.max))
    for info in (np.finfo(np.float32), np.finfo(np.float64))
}


def _floating(values):
    values = values if hasattr(values, "dtype") else np.asarray(values)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _softplus(u):
    # log(1 + e^u) = max(u, 0) + log1p(e^-|u|): neither term overflows, and for u << 0 the sum is
    # e^u to full precision
    u = _floating(u)
    limits = _LIMITS[u.dtype]
    small = np.exp(-np.minimum(np.abs(u), -limits.log_tiny))
    return np.maximum(np.maximum(u, 0) + np.log1p(small), limits.tiny)


def _softplus_inverse(x):
    # u = log(e^x - 1) = x + log(1 - e^-x): neither overflows for large x nor cancels for small x
    x = _floating(x)
    return x + np.log(-np.expm1(-x))


def _softplus_derivative(u):
    # the logistic function; e^-|u| <= 1 on either side of zero
    u = _floating(u)
    small = np.exp(-np.minimum(np.abs(u), -_LIMITS[u.dtype].log_tiny))
    return np.where(u >= 0, 1, small) / (1 + small)


def _exp(u):
    u = _floating(u)
    limits = _LIMITS[u.dtype]
    return np.clip(
        np.exp(np.clip(u, limits.log_tiny, limits.log_max - 1e-3)), limits.tiny, limits.max
    )


def _log(x):
    return np.log(_floating(x))


def _logit(x):
    x = _floating(x)
    return np.log(x) - np.log1p(-x)


def _logistic_derivative(u):
    return _softplus_derivative(u) * _softplus_derivative(-u)


logit = Transform("logit", _softplus_derivative, _logit, _logistic_derivative)
softplus = Transform("softplus", _softplus, _softplus_inverse, _softplus_derivative)
log = Transform("log", _exp, _log, _exp)

TRANSFORMS = {one.name: one for one in (softplus, log)}


def look_up(name):
    """Return the transform "softplus" or "log"; raise ``ValueError`` for any other name."""
    if not isinstance(name, str) or name not in TRANSFORMS:
        raise ValueError(f'`transform` must be "softplus" or "log", got {name!r}')
    return TRANSFORMS[name]
