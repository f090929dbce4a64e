"""Inputs and targets that are no numbers, with the column and the remedy in the message."""

import datetime
import numbers

import numpy as np
from scipy import sparse

from ..recipes import columns_of

IMPUTE = "; to fill in missing values, put sklearn.impute.SimpleImputer before it in a Pipeline"
ENCODE = "; encode it, for example by OneHotEncoder(sparse_output=False) of scikit-learn"
SINCE = "; give numbers, such as days: (t - t.min()) / np.timedelta64(1, 'D')"
DENSE = (
    "Sparse data was passed for `X`, which must be dense: give OneHotEncoder(sparse_output=False),"
    " ColumnTransformer(sparse_threshold=0), or X.toarray()"
)
TIMES = datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64


def refuse_dates(X):
    """Refuse columns of dates or durations, which NumPy converts to counts of their unit."""
    types = getattr(X, "dtypes", None)  # of a data frame
    types = [getattr(X, "dtype", None)] if types is None else np.ravel(np.asarray(types, object))
    dated = any(str(one).lower().startswith(("date", "time", "duration")) for one in types)
    if dated and (found := _first_other(X, ("dates or times",))):
        name, cell, _ = found
        raise TypeError(_message(name, "dates or times", cell, SINCE))


def explain_error(error, X):
    """Return an error that names the column of X that scikit-learn's validation refused.

    The error itself, if it is about something else.
    """
    text, kind = str(error), type(error)
    if text.startswith("Sparse data was passed for X"):
        return TypeError(DENSE)
    for what, test in (("NaN", np.isnan), ("infinity", np.isinf)):
        if text.startswith(f"Input X contains {what}"):
            line, where = text.splitlines()[0].rstrip("."), _first_cell(X, test)
            return ValueError(f"{line}{where}{IMPUTE * (what == 'NaN')}")
    found = _first_other(X)
    if found is None:
        return error
    name, cell, what = found
    if what == "text":
        return ValueError(_message(name, what, cell, ENCODE))
    if what == "dates or times":
        return TypeError(_message(name, what, cell, SINCE))
    return (TypeError if issubclass(kind, TypeError) else kind)(f"{text}, in column {name!r} of X")


def refuse_other_shapes(y, shapes):
    """Refuse sparse targets and targets of more than two axes; ``shapes`` says which to give."""
    if sparse.issparse(y):
        raise TypeError("Sparse data was passed for `y`, which must be dense: give y.toarray()")
    try:
        shape = np.asarray(y).shape
    except ValueError:  # rows of several lengths, which scikit-learn refuses
        return
    if len(shape) > 2:
        raise ValueError(f"`y` has shape {shape}; give {shapes}")


def refuse_other_labels(y):
    """Refuse labels of classes that are missing, or text beside other types."""
    labels = np.asarray(y, object if isinstance(y, list | tuple) else None)
    cells = labels.ravel().tolist() if labels.ndim and labels.dtype == object else []
    for row, cell in enumerate(cells):
        if cell is None or type(cell).__name__ == "NAType" or cell != cell:
            raise ValueError(
                f"`y` holds {cell}, which is no label, in row {row}; leave such rows out, or name"
                " the class"
            )
    other = next(
        (cell for cell in cells if isinstance(cell, str) != isinstance(cells[0], str)), None
    )
    if other is not None:
        raise ValueError(
            f"`y` holds labels of several types, {cells[0]!r:.30} and {other!r:.30}; give one type"
        )


def split_missing(y):
    """Return several targets (N, P) with means for NaN, and which are there; else y and None."""
    values = y if isinstance(y, np.ndarray) else np.asarray(y) if hasattr(y, "columns") else None
    if values is None or values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind != "f":
        return y, None
    there = ~np.isnan(values)
    if there.all() or not there.any(axis=0).all():
        return y, None
    return np.where(there, values, np.nanmean(values, axis=0)).astype(values.dtype), there


def refuse_other_columns(y, columns):
    """Refuse targets without the columns that the likelihood reads."""
    if y.ndim != 2 or y.shape[1] != len(columns):
        raise ValueError(
            f"`y` has shape {y.shape}, and the likelihood reads the columns {', '.join(columns)},"
            f" in this order: give y ({len(y)}, {len(columns)})"
        )


def describe_shape(axes):
    """Return the shape of targets with these axes () or (P,), for messages."""
    return f"(N, {axes[0]})" if axes else "(N,)"


def like_those_fitted(y, likelihood, axes):
    """Convert targets to floats; refuse others than a model with these ``axes`` was fitted to."""
    y, columns = check_numbers(y), columns_of(likelihood)
    if len(columns) > 1:
        refuse_other_columns(y, columns)
    elif y.shape[1:] != axes:
        raise ValueError(
            f"`y` has shape {y.shape}; the model was fitted to targets of shape"
            f" {describe_shape(axes)}"
        )
    return y


def check_numbers(y):
    """Convert targets to floats; refuse anything but numbers."""
    if y.dtype.kind == "f":
        return y
    try:
        if y.dtype.kind not in "mM":  # dates, which would become counts of their unit
            return y.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"`y` of a regressor must be numbers, got {y.dtype}, for example {str(y.flat[0])!r}"
    )


def _message(name, what, cell, advice):
    return f"`X` holds {what} in column {name!r}, for example {cell!s:.19}{advice}"


def _columns(X):
    """Return the names, or numbers, of the columns and their cells; none if X is no table."""
    if hasattr(X, "columns"):
        return [(name, np.asarray(X[name])) for name in X.columns]
    try:
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
    except ValueError:  # rows of several lengths
        return []
    return list(enumerate(array.T)) if array.ndim == 2 else []


def _first_other(X, kinds=("text", "dates or times", "something else")):
    """Return ``(name, cell, kind)`` of the first column that holds something else than numbers."""
    for name, cells in _columns(X):
        if cells.dtype.kind in "fiub":
            continue
        for cell in cells.ravel():
            if (kind := _kind_of(cell)) in kinds:
                return name, cell, kind
    return None


def _kind_of(cell):
    """Return the kind of a cell, None for numbers, text of a number, and missing values."""
    if isinstance(cell, TIMES):
        return "dates or times"
    if cell is None or isinstance(cell, numbers.Real):
        return None
    if isinstance(cell, numbers.Complex):  # NumPy would drop the imaginary part, with a warning
        return "something else"
    try:
        float(cell)
    except ValueError:
        return "text"
    except TypeError:
        return None if type(cell).__name__ == "NAType" else "something else"
    return None


def _first_cell(X, test):
    """Return the place of the first cell that fails a test, for a message."""
    for name, cells in _columns(X):
        try:
            bad = test(np.array([_number(cell) for cell in cells.ravel()]))
        except (TypeError, ValueError):
            continue
        if bad.any():
            return f" in column {name!r}, row {int(bad.argmax())}"
    return ""


def _number(cell):
    return np.nan if cell is None or type(cell).__name__ == "NAType" else float(cell)
