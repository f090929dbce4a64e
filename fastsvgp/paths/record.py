"""The record of functions that ``sample_paths`` returns."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import check
from ..bounds.at_inputs import total
from ..records import record, replace
from ..records.typed import Array, ArrayLike, Record
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call


@record
class Paths:
    """S functions drawn from a posterior, to evaluate and differentiate anywhere.

    ``paths[2:5]`` are some of the functions, ``paths[3]`` is one of them, ``len(paths)`` is S. A
    record: ``save``, ``load``, ``to_device`` and ``to_host`` take it.

    Parameters
    ----------
    functions : record
        The weights of the functions, as ``sample_paths`` makes them.

    Notes
    -----
    A call costs the features, and 2 M flops, per function and output at a point, and the
    covariances of the points with the M inducing variables: once at shared points, and for each
    function at own ones. Linear in the points, with a few times 2^21 numbers of memory beside the
    results (on a device 2^18 per multiprocessor).

    Examples
    --------
    >>> paths = fs.sample_paths(model, 3, num_features=100, rng=0)
    >>> paths(X).shape, len(paths[:2])
    ((3, 40), 2)
    """

    functions: Record

    def __len__(self) -> int:
        return self.functions.num_functions  # type: ignore[attr-defined]

    def __iter__(self) -> "Iterator[Paths]":
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: Any) -> "Paths":
        taken = self.functions.take(_index(index, len(self)))  # type: ignore[attr-defined]
        return replace(self, functions=taken)

    def __call__(self, X: ArrayLike) -> Array:
        """Evaluate the functions.

        Parameters
        ----------
        X : (N, D) or (S, n, D) array
            Points of all functions, or of each.

        Returns
        -------
        (S, N) or (S, n) array
            With a last axis of P outputs if the model has one.
        """
        return _evaluate(self.functions, X)[0]

    def and_vjp(self, X: ArrayLike) -> tuple[Array, Callable[[ArrayLike], Array]]:
        """Evaluate the functions, and return the pullback to the points.

        Parameters
        ----------
        X : (N, D) or (S, n, D) array

        Returns
        -------
        values : array
            As of a call.
        vjp : callable
            ``X_bar = vjp(values_bar)`` takes the derivatives of a number with respect to the
            values, in their shape, and returns those with respect to ``X``. Can be called any
            number of times.
        """
        values, back = _evaluate(self.functions, X, True)

        def vjp(values_bar):
            """Pull the cotangent of the values back to the points."""
            return _pull(self.functions, back, values, values_bar)

        return values, vjp

    def and_grad(self, X: ArrayLike) -> tuple[Array, Array]:
        """Evaluate functions of one output at own points, with their gradients.

        Parameters
        ----------
        X : (S, n, D) array

        Returns
        -------
        values : (S, n)
        gradients : (S, n, D)
        """
        return _evaluate_with_gradients(self.functions, X)


def _index(index, S):
    """Return a slice, or whole numbers (K,), K > 0, for an index of S functions."""
    if isinstance(index, slice):
        if not range(S)[index]:
            raise IndexError(f"{index} holds none of {S} paths")
        return index
    try:
        numbers = np.atleast_1d(np.arange(S)[index])
    except IndexError:
        raise IndexError(
            f"there are {S} paths, 0 to {S - 1}, got the index {index!r:.100}"
        ) from None
    if numbers.ndim > 1 or not numbers.size:
        raise IndexError(f"an index of paths must name some along one axis, got {index!r:.100}")
    return numbers


@public_call()
def _evaluate(functions, X, keeps=False):
    """Return the values, in the layout of users, and their pullback if it is kept."""
    X = cast_points(functions, X)
    values, back = functions.forward(X.copy() if keeps else X)
    check.result(total(values), functions)
    return _trailing(values, functions.outputs), back if keeps else None


@public_call()
def _pull(functions, back, values, values_bar):
    """Return the cotangent of the points."""
    bar = check.as_array("values_bar", values_bar)
    if bar.shape != values.shape:
        raise ValueError(
            f"`values_bar` must have the shape {values.shape} of the values, got {bar.shape}"
        )
    one_device(("values_bar", bar), ("values", values))
    deferred_checks.defer(bar)
    check.common_dtype(bar, names=("values_bar",))
    check.finite("values_bar", bar)
    bar = bar.reshape(*bar.shape[:2], -1).swapaxes(1, 2).astype(values.dtype, copy=False)
    X_bar = back(np.ascontiguousarray(bar, like=values))
    check.result(total(X_bar), functions)
    return X_bar


@public_call()
def _evaluate_with_gradients(functions, X):
    """Return values and gradients at own points."""
    if functions.outputs:
        raise ValueError(
            f"and_grad is for one output, and these paths have {functions.outputs[0]}: use and_vjp,"
            " with the cotangents of all outputs"
        )
    X = cast_points(functions, X)
    if X.ndim != 3:
        raise ValueError(
            f"and_grad: `X` must have shape (S, n, D), points of each function, got {X.shape}; for"
            " shared points use numpy.broadcast_to(X, (S, *X.shape))"
        )
    values, back = functions.forward(X)
    gradients = back(np.ones_like(values))
    check.result(total(gradients) + total(values), functions)
    return _trailing(values, ()), gradients


def cast_points(functions, X):
    """Return points (N, D) or (S, n, D) in the dtype of the functions, contiguous."""
    like = functions.weight_arrays()[0]
    given, X = X, check.as_array("X", X)
    S = functions.num_functions
    if X.ndim not in (2, 3):
        hint = f"; for {len(X)} points with one input use X[:, None]" if X.ndim == 1 else ""
        raise ValueError(
            f"`X` must have shape (N, D), points of all paths, or ({S}, n, D), points of each, got"
            f" {X.shape}{hint}"
        )
    if X.ndim == 3 and len(X) != S:
        raise ValueError(
            f"`X` has shape {X.shape}, points of {len(X)} paths, but there are {S}: give"
            f" ({S}, n, D), or (N, D) for all"
        )
    if 0 in X.shape:
        raise ValueError(f"`X` holds no points, shape {X.shape}; give at least one")
    one_device(("X", X), ("functions", like))
    if X.dtype.kind == "f" and hasattr(given, "dtype") and X.dtype != like.dtype:
        raise TypeError(
            f"`X` is {X.dtype} and the paths are {like.dtype}: give points in {like.dtype}, or"
            " sample the paths of a model in another dtype"
        )
    deferred_checks.defer(X)
    X = np.ascontiguousarray(X.astype(like.dtype, copy=False), like=like)
    check.finite("X", X)
    functions.check_points(X.reshape(-1, X.shape[-1]), "X")
    return X


def _trailing(values, outputs):
    """Return (S, P, n) as (S, n), or (S, n, P) if the outputs have an axis."""
    if not outputs:
        return values[:, 0]
    return np.ascontiguousarray(values.swapaxes(1, 2), like=values)
