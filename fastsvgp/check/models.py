"""Checks of models: parts, leaves, inducing inputs, names of fields, and the value of a bound."""

import functools
import math
from itertools import accumulate
from typing import Any

import numpy as np

from ..errors import VarianceClampWarning, suggest_fields, warn
from ..records import flat, is_record, leaves, missing, tree_map
from ..records.dtypes import common_dtype
from ..records.inducing_sets import InducingSets, sets_of
from ..records.tree import KNOWN
from ..records.typed import AnyRecord
from ..runtime import deferred_checks
from ..runtime.dispatch import backend_of, one_device
from .arrays import as_array, codes, columns, finite, inputs, on_host, positive, square, targets
from .components import PARTIAL, parts
from .divergence import diverged_error

ABSENT = object()  # an argument that a function does not take; ``None`` would be a given value


def parameters(tree, *arrays, prefix="", names=("X", "Y"), absent=()):
    """Check the leaves of a model and cast them to the dtype shared with ``arrays``.

    ``names`` are the names of ``arrays`` in messages; leaves at the paths ``absent`` can be None.
    Returns ``(model, dtype)``. Entries below the
    diagonal of triangular factors are not searched for NaN here, which would take a pass over
    (M, M) numbers. A NaN there reaches the value, and ``result`` then looks for the cause.
    """
    paths, kinds, values = flat(tree)
    parts = [v.dtype if type(v) is np.ndarray and v.ndim else type(v) for v in (*values, *arrays)]
    key = (len(values), *parts)
    known = _dtypes.get(key)
    if known is None:
        values, known = _agreed(tree, arrays, key, (prefix, names, absent))
    dtype, same = known
    for path, kind, array in zip(paths, kinds, values, strict=True):
        if array is not None and not _sound(kind, array):
            _check_leaf(prefix + path, kind, array)
    # a model of training is in this dtype: creating a new record would take longer than all checks
    return tree if same else tree_map(lambda v: _cast(v, dtype), tree), dtype


# by the number of leaves of a model and the dtypes, or the classes, of these and of the arrays
# beside it, all on the host: the dtype that they share, and whether the leaves have it
_dtypes: dict[tuple, tuple[np.dtype, bool]] = {}
_SCALARS = frozenset((float, np.float64, np.float32))
_LEAST = {"positive": 0.0, "real": -math.inf}  # of a leaf, by its kind
FEW = 32  # numbers that Python tests faster than NumPy


def _agreed(tree, arrays, key, labels):
    """Check devices and dtypes; return the leaves as arrays, and what ``_dtypes`` holds."""
    prefix, names, absent = labels
    below, _, values = flat(tree)
    paths = [prefix + path for path in below]
    if any(v is None for v in values):
        for path in missing(tree):
            if path in absent:
                continue
            raise TypeError(f"`{prefix}{path}` is None where a number or an array must be{PARTIAL}")
    values = [
        v if v is None or isinstance(v, (int, float)) else as_array(path, v)
        for path, v in zip(paths, values, strict=True)
    ]
    try:
        backend_of(*values, *arrays)
    except TypeError:
        one_device(*zip(names, arrays, strict=False), *zip(paths, values, strict=True))
        raise
    dtype = common_dtype(*values, *arrays, names=(*paths, *names))
    # by identity where it is a class: a dtype equals the class ``float``
    same = all(
        one == dtype if isinstance(one, np.dtype) else one is dtype.type or one is type(None)
        for one in key[1 : 1 + len(values)]
    )
    if all(isinstance(one, np.dtype) or one in _SCALARS for one in key[1:]):
        if len(_dtypes) >= KNOWN:
            _dtypes.clear()
        _dtypes[key] = dtype, same
    return values, (dtype, same)


def _sound(kind, array):
    """Test a number or an array of NumPy by its kind; if False, ``_check_leaf`` looks closer."""
    if kind == "matrix":
        return True
    if type(array) is np.ndarray:
        if kind == "tril":
            shape = array.shape
            if len(shape) < 2 or shape[-1] != shape[-2]:
                return False
            array = array.diagonal(0, -2, -1)
        elif kind not in _LEAST:
            return False
        if array.ndim == 1 and 0 < array.size <= FEW:
            numbers = array.tolist()  # a sum that overflows is left to the closer look
            return math.isfinite(sum(numbers)) and (kind == "real" or min(numbers) > 0)
        count = np.count_nonzero
        in_range = kind == "real" or count(array > 0) == array.size
        return in_range and count(np.isfinite(array)) == array.size
    return type(array) in _SCALARS and _LEAST.get(kind, math.inf) < array < math.inf


def _check_leaf(name, kind, array):
    """Check a leaf by its kind, on any device; the message names it."""
    if kind in ("tril", "columns"):
        _factor(name, array, kind)
    elif kind == "symmetric":
        square(name, array)
    else:
        finite(name, array)
        if kind in ("positive", "unit"):
            positive(name, array)
        if kind == "unit":
            positive(f"1 - {name}", 1 - array, "; give a number between 0 and 1")


def _cast(value, dtype):
    if type(value) is np.ndarray and value.dtype is dtype and value.ndim:
        return value
    if isinstance(value, (float, int)):
        return dtype.type(value)
    if type(value) is not np.ndarray and hasattr(value, "__cuda_array_interface__"):
        return value.astype(dtype, copy=False)
    return np.asarray(value, dtype)[()]


def _factor(name, array, kind):
    if kind == "tril":
        square(name, array)
    elif np.ndim(array) != 2:
        raise ValueError(f"`{name}` must have shape (m, k), got {np.shape(array)}")
    diagonal = array.diagonal(axis1=-2, axis2=-1)
    finite(f"diagonal of {name}", diagonal)
    positive(f"diagonal of {name}", diagonal)


def arguments(model, X, Y, names, absent=()):
    """Return ``(model, X, Y, dtype)``: arrays in one dtype, of which X and Y are not cast yet.

    ``absent``: as in ``parameters``.
    """
    if type(X) is not np.ndarray:
        defer(model, X)
    arrays = []
    if X is not ABSENT:
        X = inputs(names[0], X)
        arrays.append(X)
    if Y is not ABSENT:
        Y = as_array(names[1], Y)
        if not type(Y) is type(X) is np.ndarray:
            one_device((names[0], X), (names[1], Y))
        if Y.dtype.kind == "f":
            arrays.append(Y)
    model, dtype = parameters(model, *arrays, names=names, absent=absent)
    return model, X, Y, dtype


def svgp(
    model: Any, X: Any = ABSENT, Y: Any = ABSENT, names: tuple[str, str] = ("X", "Y")
) -> tuple[AnyRecord, np.ndarray, np.ndarray, np.dtype]:
    """Check and cast the arguments of a bound; return ``(model, X, Y, dtype)``.

    ``Y`` is returned as (N,), or (P, N) for P outputs. ``names`` are the names of X and Y in
    messages.
    """
    parts(model)
    model, X, Y, dtype = arguments(model, X, Y, names)
    if X is not ABSENT:
        inducing_for(X, model, (names[0], "inducing"))
    sizes, D = inducing(
        model, model.posterior.num_sets, f"a {type(model.posterior).__name__} posterior"
    )
    outputs = model.posterior.check_size(*sizes)
    model.likelihood.check_settings()
    if model.mean is not None:
        model.mean.check_shapes(D, outputs)
    if X is not ABSENT:
        columns(X, D, names[0], model.covariance.columns_of)
        codes(model.covariance, X, names[0])
        X = X.astype(dtype, copy=False)
    if Y is not ABSENT:
        Y = targets(Y, X.shape[0], outputs, model.likelihood, dtype, names)
    return model, X, Y, dtype


def defer(model, X=ABSENT):
    """Defer the checks that follow if inducing inputs or X are on a device."""
    deferred_checks.defer(*_where(model, X))


def deferral(model, X=ABSENT):
    """Return a ``with`` block that defers checks as ``defer`` does: see ``deferred_checks``."""
    return deferred_checks.deferred(*_where(model, X))


def _where(model, X):
    return X, *(value for path, _, value in leaves(model) if "inducing" in path)


def inducing(model, num_sets=1, user="SGPR"):
    """Check the inducing inputs; return ``(sizes, D)``, the size of each set and the columns of X.

    ``num_sets`` is the number of sets that ``user``, a name for messages, takes.
    """
    covariance, Z = model.covariance, model.inducing
    if Z is None:
        raise TypeError(f"`inducing` is None where a number or an array must be{PARTIAL}")
    _check_inducing_type(covariance, Z)
    sets = _named_sets(Z) if covariance.inducing_type is None else []
    _check_set_shapes(sets)
    D, sizes = covariance.num_columns(Z), covariance.num_inducing(Z)
    if len(sizes) != num_sets:
        _refuse_number_of_sets(Z, len(sizes), num_sets, user)
    covariance.check_dim(D)
    for name, one in sets:
        codes(covariance, one, name)
    return sizes, D


def _check_inducing_type(covariance, Z):
    """Refuse inducing inputs of another type than the covariance takes: a record, or arrays."""
    expected, kind = covariance.inducing_type, type(covariance).__name__
    if expected is not None and type(Z) is not expected:
        came = f"a {type(Z).__name__}" if is_record(Z) else "an array"
        raise TypeError(
            f"`inducing` must be a {expected.__name__}, which a {kind} covariance takes, got {came}"
        )
    if expected is None and is_record(Z) and not isinstance(Z, InducingSets):
        raise TypeError(
            f"`inducing` must be an array (M, D), which a {kind} covariance takes, got a"
            f" {type(Z).__name__}"
        )


def _named_sets(Z):
    """Return each set of arrays with its name in messages."""
    if not is_record(Z):
        return [("inducing", Z)]
    fields = (f"inducing.{name}" for name, _ in Z._record_fields)
    return list(zip(fields, sets_of(Z), strict=True))


def _check_set_shapes(sets):
    """Refuse sets that are no matrices (M, D) with the same columns."""
    for i, (name, one) in enumerate(sets):
        D = sets[0][1].shape[1] if i else None
        if np.ndim(one) != 2 or 0 in one.shape or (i and one.shape[1] != D):
            other = f", D the {D} columns of the first set" if i else ""
            raise ValueError(
                f"`{name}` must have shape (M, D) with M and D > 0{other}, got {np.shape(one)}"
            )


def _refuse_number_of_sets(Z, num, num_sets, user):
    came = f"a record {type(Z).__name__} of {num} sets" if is_record(Z) else "an array, one set"
    takes = (
        "one: an array (M, D)"
        if num_sets == 1
        else f"{num_sets}: a record such as fastsvgp.posteriors.InducingPair(Z, O)"
    )
    raise TypeError(f"`inducing` is {came} of inducing inputs, and {user} takes {takes}")


def inducing_for(X, layer, names=("X", "inducing")):
    """Reject inducing inputs of other columns than X where the covariance fits X alone.

    ``inducing`` knows no X, and so it blames the covariance: its lengthscales, for example.
    """
    covariance, first = layer.covariance, sets_of(layer.inducing)[0]
    if np.ndim(first) != 2 or first.shape[1] == X.shape[1] or 0 in first.shape:
        return
    if type(covariance).columns_of != "`inducing`":
        return  # it takes images, or features of X
    D, columns = X.shape[1], first.shape[1]
    if _fits(covariance, D) and not _fits(covariance, columns):
        raise ValueError(
            f"`{names[1]}` has {columns} columns where `{names[0]}` has {D}, as many as the"
            " covariance takes; both need the same inputs"
        )


def _fits(covariance, D):
    try:
        covariance.check_dim(D)
    except (TypeError, ValueError):
        return False
    return True


def draw(requested, model, dtype, rng, M=None):
    """Draw the random quantities requested by name; those that are None are left out."""
    requested = {name: value for name, value in requested.items() if value is not None}
    if not requested:
        return {}
    random_names(requested, model.posterior)
    M = sum(model.covariance.num_inducing(model.inducing)) if M is None else M
    return {
        name: model.posterior.draw(name, value, M, dtype, rng) for name, value in requested.items()
    }


def random_names(requested, posterior):
    """Reject names that are no random quantities of this posterior."""
    for name in requested:
        if name not in posterior.random_quantities:
            kind = (posterior if isinstance(posterior, type) else type(posterior)).__name__
            has = ", ".join(f"`{quantity}`" for quantity in posterior.random_quantities) or "none"
            raise TypeError(
                f"`{name}` is no random quantity of a {kind} posterior, which has {has}: leave"
                " it out"
            )


def natural(function, posterior):
    """Raise ``TypeError`` if the posterior has no natural steps."""
    if not posterior.natural_fields:
        kind, why = type(posterior).__name__, posterior.no_natural_step
        raise TypeError(
            f"{function}: a {kind} posterior cannot take natural-gradient steps, because {why};"
            " train it with a first-order optimiser (fastsvgp.adam), or use a Whitened posterior"
        )


def names(wrt: Any, model: Any) -> tuple[str, ...]:
    """Check ``wrt`` and return it as a tuple of dotted paths; ``None`` gives all fields."""
    kind: Any = type(model)
    fields = _fields(kind)
    if wrt is None:
        return fields
    wrt = (wrt,) if isinstance(wrt, str) or not np.iterable(wrt) else tuple(wrt)
    if not all(isinstance(name, str) for name in wrt):
        raise TypeError(f"`wrt` must hold names of fields, such as {fields[0]!r}, got {wrt!r:.80}")
    paths = flat(model)[0]
    known = _names(paths)
    for name in wrt:
        if name not in known and name not in fields:
            raise ValueError(
                f"`wrt` names {name!r:.80}, which is not a field of this model;"
                f" {suggest_fields(name, paths)}"
            )
    return wrt


@functools.lru_cache(KNOWN)
def _names(paths):
    """Return the paths of leaves, and all that lie above them."""
    above = (accumulate(path.split("."), "{}.{}".format) for path in paths)
    return frozenset(name for names in above for name in names)


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(name for name, _ in kind._record_fields)


def result(value: Any, model: Any, leave: bool = False) -> float:
    """Return a value; if it is not finite because a field is not, raise an error naming the field.

    ``leave`` is passed to ``deferred_checks.read``. Raises ``Diverged`` if the value of a finite
    model is NaN.
    """
    if not isinstance(value, float):
        value, clamped = deferred_checks.read(value, leave)
        report_clamped(clamped)
    value = float(value)
    if not math.isfinite(value):
        finite_fields(model)
    if math.isnan(value):
        raise diverged_error(
            "the value is nan, though model and data are finite: a number overflowed", model
        )
    return value


def finite_fields(model):
    """Raise an error that names the first field of a model with NaN or infinity."""
    for path, kind, array in leaves(model):
        if array is not None:
            array = on_host(array)
            finite(path, np.tril(array) if kind in ("tril", "columns", "symmetric") else array)


def report_clamped(count):
    if deferred_checks.on_device(count):
        if checks := deferred_checks.pending():
            return checks.add_clamped(count)
        count = int(count)
    if count:
        warn(
            f"{count} marginal variance(s) fell below eps * kff by rounding and were set to that"
            " floor",
            VarianceClampWarning,
        )
