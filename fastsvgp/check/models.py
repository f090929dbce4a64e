"""Every check that a user meets: types, shapes, dtypes, values.

Rooms below the public edge trust their arguments.

A message names the argument, what came, and what to do.
"""

import math
import numbers

import numpy as np

from ..errors import BadEntry, Diverged, VarianceClampWarning, not_a_generator, warn
from ..records import is_record, leaves, matches, missing, tree_map, treedef_of
from ..records.dtypes import DEFAULT_JITTER, common_dtype
from ..records.inducing_sets import InducingSets, sets_of
from ..runtime import deferred_checks
from ..runtime.dispatch import backend_of, one_device
from .components import (
    PARTIAL,
    in_place_of_class,
    parts,
)

ABSENT = object()  # an argument that a function does not have; ``None`` is something that came
LARGEST_SIZE = 2**62  # of an array: a number of bytes fits into 63 bits


def as_array(name, value):
    """An array of numbers as it came, lists too; text, objects, complex and masked values are refused."""
    if type(value) is np.ndarray:
        array = value
    elif hasattr(value, "__cuda_array_interface__"):
        array = value
    else:
        unmasked(name, value)
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(
                f"`{name}` makes no array ({error}); give rows of equal length"
            ) from None
    if array.dtype.kind not in "fiub":
        if isinstance(value, type):
            raise TypeError(
                f"`{name}` must hold real numbers, got {value.__name__}, a"
                f" class{in_place_of_class(value)}"
            )
        where = (
            f" ({_first_text(value, array)})" if array.dtype == object and array.ndim == 2 else ""
        )
        raise TypeError(
            f"`{name}` must hold real numbers, got dtype {array.dtype}{where}; convert it to"
            " float64 or float32"
        )
    return array


def unmasked(name, value):
    """Refuse a masked array, or a list of them: ``asarray`` drops the mask, and what it hides comes back."""
    if any(
        isinstance(part, np.ma.MaskedArray)
        for part in (value if isinstance(value, (list, tuple)) else (value,))
    ):
        raise TypeError(f"`{name}` is a masked array; fill or drop the masked entries first")


def _first_text(value, array):
    """The first column, of a data frame by its name, that holds something other than real numbers, and what."""
    for j, name in enumerate(getattr(value, "columns", range(array.shape[1]))):
        other = [cell for cell in array[:, j] if not isinstance(cell, numbers.Real)]
        if other:
            return f"column {name!r} holds {other[0]!r}"
    return "of Python numbers"


def finite(name, array):
    """Refuse NaN and infinity."""
    if isinstance(array, int):
        array = _as_float(array)
    if not (math.isfinite(array) if isinstance(array, float) else all_finite(array)):
        array = _host(array)
        bad = tuple(np.argwhere(~np.isfinite(array))[0])
        raise BadEntry(
            name, f"contains {np.asarray(array)[bad]}", bad, "; remove or impute such entries first"
        )


def all_finite(array):
    return (
        _all(np.isfinite(array))
        if isinstance(array, (np.ndarray, np.generic))
        else deferred_checks.within(array)
    )


def _host(array):
    """A copy on the host of what may live on a device: for messages."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else array


def _all(conditions):
    # for small arrays half the time of the method ``all``
    return np.count_nonzero(conditions) == conditions.size


def positive(name, array, advice="; give variances and lengthscales in natural space"):
    if not (array > 0 if isinstance(array, (float, int)) else _all_positive(array)):
        least = np.min(_host(array))
        raise ValueError(f"`{name}` must be positive, got {least:g}{advice}")


def _all_positive(array):
    if isinstance(array, (np.ndarray, np.generic)):
        return _all(array > 0)
    return deferred_checks.within(
        array, np.finfo(array.dtype).smallest_subnormal if array.dtype.kind == "f" else 1
    )


def inputs(name, X, values=True):
    """Inputs (N, D), N > 0, finite where anybody is to look at their ``values``."""
    if (X := as_array(name, X)).ndim != 2:
        hint = (
            f"; for {X.shape[0]} points with one input use {name}[:, None]" if X.ndim == 1 else ""
        )
        raise ValueError(f"`{name}` must have shape (N, D), got {X.shape}{hint}")
    if X.shape[0] == 0:
        hint = " (the KL term alone is kl_term_and_grad)" if name == "X" else ""
        raise ValueError(
            f"`{name}` is an empty batch, shape {X.shape}; give at least one row{hint}"
        )
    if values:
        finite(name, X)
    return X


def columns(X, D, name="X", owner="`inducing`"):
    """Refuse inputs whose columns are not those of the inducing inputs, or of what ``columns_of`` a covariance says."""
    if X.shape[1] != D:
        raise ValueError(
            f"`{name}` has {X.shape[1]} columns where {owner} has {D}; both need the same inputs"
        )


def jitter_amount(jitter, dtype):
    """The jitter to use: the default of the dtype for ``None``."""
    if jitter is None:
        return DEFAULT_JITTER[dtype]
    jitter = scalar("jitter", jitter)
    if jitter < 0:
        raise ValueError(f"`jitter` must be zero or positive, got {jitter:g}")
    return jitter


def _is_number(value):
    """Whether this is one real number: of Python's, of NumPy's, or an array of no dimensions.

    Text and truth values are none.
    """
    if getattr(value, "shape", None) == ():
        return value.dtype.kind in "fiu"
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _as_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _shown(value):
    """What came, in a few words."""
    return (
        f"an array of shape {value.shape}"
        if getattr(value, "shape", ()) != ()
        else f"{value!r:.200}"
    )


def scalar(name, value):
    """A finite real number as a Python float."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a number, got {_shown(value)}")
    number = _as_float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite, got {number}")
    return number


def whole(name, value, least=1):
    """A whole number of at least ``least``, and one that can be a size, as an int."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a whole number of at least {least}, got {_shown(value)}")
    if not least <= value <= LARGEST_SIZE or not float(value).is_integer():
        limit = f", at most {LARGEST_SIZE}" if LARGEST_SIZE < value < math.inf else ""
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}{limit}, got {_shown(value)}"
        )
    return int(value)


def flag(name, value):
    """A truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"`{name}` must be True or False, got {_shown(value)}")
    return bool(value)


def mapping(name, value, example):
    """A dict whose keys are names of fields; empty for None."""
    if not isinstance(value, dict | None) or not all(isinstance(key, str) for key in value or ()):
        raise TypeError(
            f"`{name}` must be a dict from names of fields, such as {example}, got {_shown(value)}"
        )
    return value or {}


def generator(rng):
    """The random generator that an argument ``rng`` stands for."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise not_a_generator(rng) from None


def data_scale(num_data, batch):
    """num_data / batch, the factor of the data term (which is 0 for an empty batch, whatever the factor)."""
    if num_data is None:
        return 1.0
    num_data = scalar("num_data", num_data)
    if num_data < batch:
        raise ValueError(
            f"`num_data` is {num_data:g}, smaller than the batch of {batch}; give the size of the"
            " whole data set"
        )
    return num_data / max(batch, 1)


def _cast(value, dtype):
    if isinstance(value, (float, int)):
        return dtype.type(value)
    if type(value) is not np.ndarray and hasattr(value, "__cuda_array_interface__"):
        return value.astype(dtype, copy=False)
    return np.asarray(value, dtype)[()]


def parameters(tree, *arrays, prefix="", names=("X", "Y")):
    """Cast the leaves of a model to the dtype that it and ``arrays``, called ``names``, share, and check them by their kind.

    Returns ``(model, dtype)``. The inside of triangular factors is not searched for NaN here (that
    would be a pass over (M, M) numbers): it reaches the value, and ``result`` looks for the cause
    then.
    """
    found = list(leaves(tree))
    if any(v is None for _, _, v in found):
        for path in missing(tree):
            raise TypeError(f"`{prefix}{path}` is None where a number or an array must be{PARTIAL}")
        found = [leaf for leaf in found if leaf[2] is not None]
    values = [
        v if isinstance(v, (int, float)) else as_array(prefix + path, v) for path, _, v in found
    ]
    try:
        backend_of(*values, *arrays)
    except TypeError:
        paths = (prefix + path for path, _, _ in found)
        one_device(*zip(names, arrays, strict=False), *zip(paths, values, strict=True))
        raise
    try:
        dtype = common_dtype(*values, *arrays)
    except TypeError:
        common_dtype(*values, *arrays, names=(*(prefix + path for path, _, _ in found), *names))
        raise
    for (path, kind, _), array in zip(found, values, strict=True):
        if kind in ("tril", "columns"):
            _factor(prefix + path, array, kind)
        elif kind == "symmetric":
            square(prefix + path, array)
        else:
            finite(prefix + path, array)
            if kind == "positive":
                positive(prefix + path, array)
    for _, _, v in found:
        kind = type(v)
        if kind is np.ndarray and v.dtype == dtype and v.ndim or kind is dtype.type:
            continue
        return tree_map(lambda v: _cast(v, dtype), tree), dtype
    # as in training, where a new record takes longer than all that was checked
    return tree, dtype


def square(name, array):
    """Refuse what is no square matrix, or a batch of them."""
    shape = np.shape(array)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"`{name}` must have shape (..., M, M), got {shape}")


def _factor(name, array, kind):
    if kind == "tril":
        square(name, array)
    elif np.ndim(array) != 2:
        raise ValueError(f"`{name}` must have shape (m, k), got {np.shape(array)}")
    diagonal = array.diagonal(axis1=-2, axis2=-1)
    finite(f"diagonal of {name}", diagonal)
    positive(f"diagonal of {name}", diagonal)


def svgp(model, X=ABSENT, Y=ABSENT, names=("X", "Y")):
    """Check and cast the arguments of a bound: ``(model, X, Y, dtype)``, with Y in the layout of likelihoods.

    ``Y`` comes out as (N,), or (P, N) for P outputs. ``names`` are what messages call X and Y.
    """
    parts(model)
    if type(X) is not np.ndarray:
        begin(model, X)
    arrays = []
    if X is not ABSENT:
        X = inputs(names[0], X)
        arrays.append(X)
    if Y is not ABSENT:
        Y = as_array(names[1], Y)
        if type(Y) is not type(X):
            one_device((names[0], X), (names[1], Y))
        if Y.dtype.kind == "f":
            arrays.append(Y)
    model, dtype = parameters(model, *arrays, names=names)
    sizes, D = inducing(
        model, model.posterior.num_sets, f"a {type(model.posterior).__name__} posterior"
    )
    outputs = model.posterior.check_size(*sizes)
    model.likelihood.check_settings()
    if model.mean is not None:
        model.mean.check_shapes(D, outputs)
    if X is not ABSENT:
        columns(X, D, names[0], model.covariance.columns_of)
        X = X.astype(dtype, copy=False)
    if Y is not ABSENT:
        Y = targets(Y, X.shape[0], outputs, model.likelihood, dtype, names)
    return model, X, Y, dtype


def begin(model, X=ABSENT):
    """Postpone the verdicts on what follows where the inducing inputs, or X, live on a device."""
    deferred_checks.begin(
        X, *(value for path, _, value in leaves(model) if matches(path, ("inducing",)))
    )


def inducing(model, num_sets=1, user="SGPR"):
    """``(sizes, D)``: how many inducing inputs there are, a number for each set, and how many columns X has.

    ``num_sets`` is how many sets the ``user``, as a message calls it, takes.
    """
    covariance, Z = model.covariance, model.inducing
    if Z is None:
        raise TypeError(f"`inducing` is None where a number or an array must be{PARTIAL}")
    own, kind = covariance.inducing_type, type(covariance).__name__
    if own is not None and type(Z) is not own:
        came = f"a {type(Z).__name__}" if is_record(Z) else "an array"
        raise TypeError(
            f"`inducing` must be a {own.__name__}, which a {kind} covariance takes, got {came}"
        )
    if own is None:
        if is_record(Z) and not isinstance(Z, InducingSets):
            raise TypeError(
                f"`inducing` must be an array (M, D), which a {kind} covariance takes, got a"
                f" {type(Z).__name__}"
            )
        first, *_ = sets = sets_of(Z)
        for i, one in enumerate(sets):
            if np.ndim(one) != 2 or 0 in one.shape or one.shape[1] != first.shape[1]:
                name = f"inducing.{Z._record_fields[i][0]}" if is_record(Z) else "inducing"
                other = f", D the {first.shape[1]} columns of the first set" if i else ""
                raise ValueError(
                    f"`{name}` must have shape (M, D) with M and D > 0{other}, got {np.shape(one)}"
                )
    D, sizes = covariance.num_columns(Z), covariance.num_inducing(Z)
    if len(sizes) != num_sets:
        came = (
            f"a record {type(Z).__name__} of {len(sizes)} sets"
            if is_record(Z)
            else "an array, one set"
        )
        takes = (
            "one: an array (M, D)"
            if num_sets == 1
            else f"{num_sets}: a record such as fastsvgp.InducingPair(Z, O)"
        )
        raise TypeError(f"`inducing` is {came} of inducing inputs, and {user} takes {takes}")
    covariance.check_dim(D)
    return sizes, D


def one_column(Y, outputs, likelihood):
    """Targets (N, 1) as (N,) where that is what they mean: for one output that has no axis, and for labels of classes."""
    return (
        Y[:, 0]
        if Y.shape[1:] == (1,) and (outputs == () or likelihood.num_latent is not None)
        else Y
    )


def targets(Y, N, outputs, likelihood, dtype, names=("X", "Y")):
    """Targets in the layout of likelihoods, checked against the batch, the outputs of the posterior and the likelihood."""
    inputs_name, name = names
    Y = one_column(Y, outputs, likelihood)
    if Y.shape[:1] != (N,):
        raise ValueError(
            f"`{name}` must have one row for each of the {N} rows of `{inputs_name}`, got shape"
            f" {Y.shape}"
        )
    latent = likelihood.num_latent
    if latent is not None:
        if outputs != (latent,):
            raise ValueError(
                f"the fields of `posterior` have leading axes {outputs}, "
                f"but {type(likelihood).__name__} with {latent} classes needs ({latent},)"
            )
        if Y.ndim != 1:
            raise ValueError(
                f"`{name}` must hold one integer label a row, shape ({N},), got {Y.shape}"
            )
    elif Y.shape[1:] != outputs:
        raise ValueError(
            f"`{name}` has shape {Y.shape} and the fields of `posterior` have leading axes"
            f" {outputs}: use {name} (N,) with mean (M,), or {name} (N, P) with mean (P, M)"
        )
    finite(name, Y)
    if Y.ndim == 2:
        Y = np.ascontiguousarray(Y.T, like=Y)
    try:
        likelihood.check_targets(Y, name)
    except BadEntry as error:  # of the layout of likelihoods
        error.index = error.index[::-1]
        raise
    return Y if latent is not None else Y.astype(dtype, copy=False)


def drawn(asked, model, dtype, rng, M=None):
    """The random quantities that a bound was ``asked`` for by name, as the posterior draws them; those that are None are none."""
    asked = {name: value for name, value in asked.items() if value is not None}
    if not asked:
        return {}
    random_names(asked, model.posterior)
    M = sum(model.covariance.num_inducing(model.inducing)) if M is None else M
    return {name: model.posterior.draw(name, value, M, dtype, rng) for name, value in asked.items()}


def random_names(asked, posterior):
    """Refuse what is no random quantity of this posterior."""
    for name in asked:
        if name not in posterior.random_quantities:
            kind = (posterior if isinstance(posterior, type) else type(posterior)).__name__
            has = ", ".join(f"`{own}`" for own in posterior.random_quantities) or "none"
            raise TypeError(
                f"`{name}` is no random quantity of a {kind} posterior, which has {has}: leave"
                " it out"
            )


def names(wrt, model):
    """The fields to differentiate: ``wrt`` as a tuple of dotted paths, all fields for ``None``."""
    fields = tuple(name for name, _ in model._record_fields)
    if wrt is None:
        return fields
    wrt = (wrt,) if isinstance(wrt, str) or not np.iterable(wrt) else tuple(wrt)
    if not all(isinstance(name, str) for name in wrt):
        raise TypeError(f"`wrt` must hold names of fields, such as {fields[0]!r}, got {wrt!r}")
    treedef = treedef_of(model)
    for name in wrt:
        if name not in treedef.names and name not in fields:
            raise ValueError(
                f"`wrt` names {name!r}, which is not a field of this model; it has"
                f" {', '.join(treedef.paths)}"
            )
    return wrt


def result(value, model, leave=False):
    """Pass a value on; where it is not finite because the model is not, say which field is to blame. ``leave``: of ``settle``.

    Raises ``Diverged`` for a NaN that comes of a finite model and finite data.
    """
    if not isinstance(value, float):
        value, clamped = deferred_checks.settle(value, leave)
        report_clamped(clamped)
    value = float(value)
    if not math.isfinite(value):
        for path, kind, array in leaves(model):
            if array is not None:
                array = _host(array)
                finite(path, np.tril(array) if kind in ("tril", "columns", "symmetric") else array)
    if math.isnan(value):
        raise Diverged(
            "the value is nan, though model and data are finite: numbers on the way to it overflow."
            " Likely causes, in order: targets or inputs on a wild scale (standardise them);"
            " parameters far from 1, as after steps that are too large (start again with smaller"
            " ones); float32 where float64 is needed"
        )
    return value


def report_clamped(count):
    if deferred_checks.on_device(count):
        if deferred_checks.postponed():
            return deferred_checks.add_clamped(count)
        count = int(count)
    if count:
        warn(
            f"{count} marginal variance(s) fell below eps * kff by rounding and were set to that"
            " floor",
            VarianceClampWarning,
        )
