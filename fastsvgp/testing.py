"""Checks for tests of user-defined parts.

Come here once you have written a part of your own. Importing ``fastsvgp`` does not load this.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import check
from .errors import names_options
from .optim import flat
from .public_names import offer
from .records import is_record, leaves, matches
from .records.typed import Names
from .runtime.deferred_checks import on_device

ROUNDING = 1e3  # allowed rounding error of a value, in units in the last place


@names_options
def assert_gradient(
    function: Callable[[Any], Any],
    at: Any,
    gradient: Any,
    *,
    wrt: Names | None = None,
    rng: int | np.random.Generator = 0,
    rtol: float = 1e-8,
    step: float = 3e-4,
) -> None:
    r"""Compare a gradient with five-point central differences, field by field.

    In each field one random direction d is drawn. The slope of ``function`` along d must equal the
    inner product of the gradient and d, within ``rtol`` times the product of their norms plus the
    rounding error of the values. A wrong field is found even if it is small compared with others.
    Positive fields, triangular factors and symmetric matrices move as ``ravel`` moves them, and
    stay valid.

    A field on which the value does not depend at all is an error: any rule that multiplies the
    cotangents would pass there. With ``Whitened`` at the prior, for example, the bound does not
    depend on lengthscales and inducing inputs. Where 0 is right, as for codes, assert that the
    gradient is 0, and leave the field out by ``wrt``.

    Parameters
    ----------
    function : callable
        ``function(at)`` returns the value, a number.
    at : record, array or float
        The point of the gradient, in float64: a model, a covariance, the inputs X ...
    gradient : record, array or float
        The gradient to check, with the fields and shapes of ``at``.
    wrt : str or sequence of str, optional
        Dotted paths of the fields of a record to check; a path includes all fields below it.
        Default: all fields.
    rng : int or numpy.random.Generator
        For the directions.
    rtol : float
        Allowed difference, relative to \|gradient\| \|d\| in the field.
    step : float
        Step of the differences, whose error is of order ``step**4``. Use a larger step if values
        are large or rounded, a smaller one if the function is strongly curved within the step.

    Raises
    ------
    AssertionError
        The gradient of a field is missing, wrong, or of another shape, or a value is not finite,
        or gradient and slope are exactly 0. The message names the field, both slopes, and their
        ratio.
    TypeError
        ``at`` and ``gradient`` are of different kinds, or not in float64.

    Examples
    --------
    >>> model, _ = fs.natural_step(model, X, Y)  # away from the prior
    >>> value, grad = fs.elbo_and_grad(model, X, Y, jitter=1e-2)
    >>> fs.testing.assert_gradient(lambda moved: fs.elbo(moved, X, Y, jitter=1e-2), model, grad)

    The gradient in the inputs is that of an array:

    >>> X_bar = fs.elbo_and_grad(model, X, Y, wrt=(), inputs=True)[2]
    >>> fs.testing.assert_gradient(lambda moved: fs.elbo(model, moved, Y), X, X_bar)
    """
    rng = check.generator(rng)
    if is_record(at) != is_record(gradient) or (is_record(at) and type(at) is not type(gradient)):
        raise TypeError(
            f"`gradient` must have the type of `at`, {type(at).__name__}, got"
            f" {type(gradient).__name__}"
        )
    if is_record(at):
        _assert_record(function, at, gradient, wrt, rng, rtol, step)
    elif wrt is not None:
        raise TypeError("`wrt` names fields of a record; leave it out beside an array")
    else:
        at, bar = _doubles("at", at), np.asarray(gradient)
        _assert_shape("the array", bar, at)
        d = rng.standard_normal(at.shape)
        _assert_slope("the array", lambda s: function(at + s * d), bar, d, rtol, step)


def _assert_record(function, at, gradient, wrt, rng, rtol, step):
    names = check.names(wrt, at)
    bars = {path: bar for path, _, bar in leaves(gradient)}
    selected = [
        (path, leaf) for path, _, leaf in leaves(at) if leaf is not None and matches(path, names)
    ]
    for path, leaf in selected:
        _require(
            bars.get(path) is not None,
            f"{path}: the gradient is None; leave the field out by `wrt` if that is right",
        )
        _doubles(path, leaf)
        _assert_shape(path, bars[path], leaf)
    free = {path for path, _ in selected}
    others = [path for path in flat.free_paths(at) if path not in free]
    vector, unravel = flat.ravel(at, fixed=others)
    exact = unravel.pullback(vector, gradient)
    for path, part in unravel.slices.items():
        d = np.zeros_like(vector)
        d[part] = rng.standard_normal(part.stop - part.start)
        moved = lambda s, d=d: function(unravel(vector + s * d))  # noqa: E731
        _assert_slope(path, moved, exact[part], d[part], rtol, step)


def _require(condition, message):
    if not condition:
        raise AssertionError(message)


def _doubles(name, value):
    if on_device(value):
        raise TypeError(f"`{name}` must be on the host; move it by `fs.to_host`")
    dtype = np.asarray(value).dtype
    if dtype.kind == "f" and dtype != np.float64:
        raise TypeError(f"`{name}` must be float64 for differences, got {dtype}")
    return np.asarray(value, np.float64)


def _assert_shape(name, bar, leaf):
    _require(
        np.shape(bar) == np.shape(leaf),
        f"{name}: the gradient has shape {np.shape(bar)}, the value {np.shape(leaf)}",
    )


def _assert_slope(name, moved, bar, d, rtol, h):
    values = [float(moved(s * h)) for s in (1, -1, 2, -2)]
    _require(np.isfinite(values).all(), f"{name}: values within two steps are {values}")
    _require(
        np.any(bar) or len(set(values)) > 1 or not np.size(bar),
        f"{name}: gradient and differences are exactly 0, so nothing is tested; test at another"
        " point, such as a q(u) away from the prior",
    )
    slope = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
    claimed = float(np.vdot(bar, d))
    ratio = claimed / slope + 0.0 if slope else np.inf  # -0.0 is 0
    rounding = ROUNDING * np.finfo(np.float64).eps * np.abs(values).max() / h
    allowed = rtol * float(np.linalg.norm(bar) * np.linalg.norm(d)) + rounding
    _require(
        abs(slope - claimed) <= allowed,
        f"{name}: along a random direction the gradient says {claimed:.9g}, differences"
        f" {slope:.9g} (ratio {ratio:.6g}, allowed {allowed:.1g})",
    )


__getattr__, __dir__, __all__ = offer("testing")
