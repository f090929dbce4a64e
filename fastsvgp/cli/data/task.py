"""From tables to a task: the target column, its likelihood, the held-out rows and the scaling."""

import logging
import shlex
from dataclasses import dataclass, field

import numpy as np

from ... import DataFileError
from ...recipes import Split
from ...recipes.scaling import LARGEST, Scale, refuse_tiny
from ..errors import UsageError, join
from ..settings.likelihood import choose_likelihood
from ..settings.names import BINARY, LEVELS, MULTICLASS, REAL, kind_of
from . import columns as encodings, forms, held_out, reading, targets
from .notes import note_codes, note_indexes
from .table import Table
from .tables import FileFormat

log = logging.getLogger("fastsvgp")
PLAIN = FileFormat()


@dataclass
class Task:
    """A learning task: inputs, targets, likelihood and split.

    ``X`` is (N, D) float64. ``y`` (N,) holds float64 values, or integer codes into ``classes``. Of
    several targets ``y`` is (N, P), NaN where one is missing, and ``target_name`` a list.
    ``test`` (N,) bool marks held-out rows. ``reason`` is the reason for the likelihood.
    ``image_shape`` is (H, W, C) if the file specifies it.

    Inputs with text, dates or missing values are ``raw`` until ``split`` has chosen the training
    rows; ``split`` then sets ``X``, ``input_names`` and ``encoding``. ``second`` is the second
    column of the target, such as trials.

    Rows of the file without a target are no rows of the task, but the table ``untargeted``;
    ``targeted`` marks the others among all of the file.

    ``new`` is what will be new in use, with labels of all rows, and ``holds`` says it in words;
    ``signs`` are notes on columns that may be.
    """

    X: np.ndarray | None
    y: np.ndarray
    likelihood: str
    reason: str
    classes: list | None
    input_names: list
    target_name: str | list
    columns: dict
    image_shape: tuple | None = None
    test: np.ndarray | None = None
    split: str = ""
    raw: reading.Raw | None = None
    missing: str = "error"
    encoding: encodings.Encoding | None = None
    second: targets.Second | None = None
    untargeted: Table | None = None
    targeted: np.ndarray | None = None
    new: Split = Split()
    holds: str = ""
    signs: list = field(default_factory=list)

    @property
    def kind(self):
        return kind_of(self.likelihood)

    def second_of(self, rows):
        """Return the second column of the target in these rows, or None."""
        return None if self.second is None else self.second.values[rows]


def load_task(
    path,
    *,
    target=None,
    target_file=None,
    ignore=(),
    likelihood=None,
    second=None,
    missing="error",
    file_format=PLAIN,
    group=None,
    time=None,
):
    """Read the data and interpret the target.

    Parameters
    ----------
    path, target_file : path-like
        ``target_file`` holds the target in the same row order. Without it the target is a column of
        ``path`` (or ``y`` of an npz).
    target : str, optional
        Name or index of the target column, or several with commas between; default the last.
    ignore : sequence of str
        Columns to leave out, by name or index.
    likelihood : str, optional
        One of ``names.LIKELIHOODS``; by default inferred from the target.
    second : (str, str), optional
        A name in ``names.COLUMNS``, and the name or index of that second column of the target.
    missing : str
        "error", or "median" to allow missing inputs.
    file_format : FileFormat
    group, time : str, optional
        Name or index of the column whose values, or whose future, will be new in use. That of the
        groups is no input.
    """
    images = file_format.images
    if images and missing != "error":
        raise UsageError(
            f"--missing {missing}: with --patch-shape inputs are pixels, which must all be present;"
            " leave --missing out"
        )
    table = file_format.read(path, images, whole=target_file is not None)
    ignored = {table.index_of(column, "--ignore") for column in ignore}
    columns = [i for i in range(table.num_columns) if i not in ignored]
    likelihood = targets.likelihood_for(second, likelihood)
    values, name, position = targets.find(table, target, target_file, columns, file_format)
    used = targets.as_list(position)
    targets.refuse_ignored(name, used, ignored)
    other = targets.position_of_second(table, second, used, ignored)
    new = held_out.NewColumns.find(table, group, time, used)
    columns = _input_columns(table, columns, {*used, other, new.group}, name)
    _refuse_twins(table, [*columns, *used])
    if not images:
        note_indexes(table, columns)
    targeted = targets.present(values)
    if not targeted.any():
        raise DataFileError(f"{table.path}: the target {name!r} is missing in every row")
    untargeted = None if targeted.all() else table.part(~targeted)
    if untargeted is not None:
        table, values = table.part(targeted), values[targeted]
    y, chosen, reason, classes = (
        interpret_target(values, name, likelihood)
        if values.ndim == 1
        else targets.interpret_targets(values, name, likelihood, interpret_target)
    )
    kinds, every = reading.Kinds(), columns
    if not images:
        columns, kinds = reading.choose(table, columns)
        note_codes(table, [*columns, *used], kinds.forms)
    layout = _layout(table, columns, position, file_format)
    if other is not None:
        other = targets.read_second(table, second[0], other, y)
        layout["second"] = other.layout
    facts = {"missing": missing, "second": other, "untargeted": untargeted, "targeted": targeted}
    names = [table.names[i] for i in columns]
    facts["new"] = new.split(table, columns, kinds)
    if new == held_out.NewColumns(None, None) and not images:
        facts["signs"] = held_out.find_signs(table, every, y, kinds)
    if kinds or missing != "error":
        raw = reading.read_raw(table, columns, kinds, missing)
        return Task(None, y, chosen, reason, classes, names, name, layout, raw=raw, **facts)
    X = table.inputs(columns, missing=None if images else missing)
    facts["image_shape"] = table.image_shape
    return Task(X, y, chosen, reason, classes, names, name, layout, **facts)


def _input_columns(table, columns, taken, target_name):
    """Return the columns that are inputs: those that no target takes."""
    columns = [i for i in columns if i not in taken]
    if not columns:
        raise UsageError(
            f"{table.path} has no column left for the inputs: it has {table.num_columns}, including"
            f" the target {target_name!r}; give the target with --target or --target-file"
        )
    return columns


def _refuse_twins(table, columns):
    """Refuse columns of one name."""
    first = {}
    for i in columns if table.named else ():
        j = first.setdefault(table.names[i], i)
        if j != i:
            raise UsageError(
                f"{table.path}: columns {j} and {i}, from 0, have the name {table.names[i]!r};"
                f" rename one, or leave it out with --ignore {i}"
            )


def _layout(table, columns, position, file_format):
    """Describe the columns of a file, as it is kept with the model."""
    layout = {
        "named": table.named and len(set(table.names)) == len(table.names),
        "width": table.num_columns,
        "inputs": columns,
        "target": position,
    }
    if file_format.na:
        layout["na"] = list(file_format.na)
    if table.asked:
        layout["decimal"] = file_format.decimal
    written = [table.forms.get(i) for i in targets.as_list(position)]
    if any(written):
        layout["target_forms"] = [form and form.to_json() for form in written]
    return layout


def interpret_target(values, name, likelihood=None):
    """Choose or check the likelihood, and convert the target.

    Parameters
    ----------
    values : (N,) array of numbers, booleans or text
    name : str
        Name of the target in messages.
    likelihood : str, optional
        Likelihood given by the user.

    Returns
    -------
    y, likelihood, reason, classes
        Values or class codes, the likelihood, the reason for it, and the class names or None.
    """
    usable = np.abs(values) < LARGEST if values.dtype.kind == "f" else np.True_
    if not usable.all():
        row = int(np.argmin(usable))
        what = f"{values[row]:g}" + (
            ", too large to be squared," if np.isfinite(values[row]) else ""
        )
        raise DataFileError(
            f"the target {name!r} is {what} in row {row}; fill it in or remove the row"
        )
    distinct = np.unique(values)
    if len(values) < 2:
        raise UsageError(
            f"there is only {len(values)} row of data; at least three are needed to train and test"
        )
    if len(distinct) < 2:
        raise UsageError(
            f"the target {name!r} is constant: all {len(values)} values are {distinct[0]}, so there"
            " is nothing to learn; choose another column with --target"
        )
    if likelihood is None:
        if _are_numbers(values):
            raise UsageError(
                f"the target {name!r} has {len(distinct)} different values in {len(values)} rows,"
                f" and most are numbers; {_instead_of_classes(values)}"
            )
        likelihood, reason = choose_likelihood(values)
    else:
        reason = "as asked"
    kind = kind_of(likelihood)
    if kind not in ("binary", "multiclass"):
        if values.dtype.kind in "US":
            numbers = "; number the grades in their order, or" if kind == "ordered" else ";"
            raise UsageError(
                f"--likelihood {likelihood} needs numbers, but the target {name!r} is text such as"
                f" {str(values[0])!r}{numbers} choose a classification likelihood"
                f" ({join(BINARY | MULTICLASS)}) or another --target"
            )
        if kind != "ordered":
            y = values.astype(np.float64)
            _refuse_other_numbers(y, name, likelihood, kind)
            return y, likelihood, reason, None
    if kind == "binary" and len(distinct) != 2:
        raise UsageError(
            f"--likelihood {likelihood} needs two classes, but the target {name!r} has"
            f" {len(distinct)} values: {join(map(class_name, distinct), 5)}; choose"
            f" {join(MULTICLASS)} or {join(REAL)}"
        )
    if 2 * len(distinct) > len(values) or len(distinct) > 1000:
        raise UsageError(
            f"the target {name!r} has {len(distinct)} different values in {len(values)} rows, which"
            " is too many for classes; " + _instead_of_classes(values)
        )
    y = np.searchsorted(distinct, values)
    return y, likelihood, reason, [class_name(value) for value in distinct]


def _refuse_other_numbers(y, name, likelihood, kind):
    """Refuse targets (N,) outside the range of the likelihood."""
    what, bad = {
        "counts": ("counts 0, 1, 2...", (y.min() < 0) | np.any(y != np.round(y))),
        "positive": ("positive numbers", y.min() <= 0),
        "proportions": (
            "numbers between 0 and 1, without 0 and 1",
            (y.min() <= 0) | (y.max() >= 1),
        ),
    }.get(kind, ("", False))
    if bad:
        fractions = kind == "counts" and not np.any(y < 0)
        raise UsageError(
            f"--likelihood {likelihood} needs {what}, but the target {name!r} runs from"
            f" {y.min():g} to {y.max():g}{' with fractions' if fractions else ''}; choose"
            f" {join(REAL)}"
        )


def _are_numbers(values):
    """Whether text is numbers for the most part, other than the codes of a few classes."""
    form, _ = _form_of(values)
    if form is None:
        return False
    numbers = {value for value in form.numbers(values.tolist()) if value == value}
    return len(numbers) > LEVELS or any(value != np.round(value) for value in numbers)


def _instead_of_classes(values):
    """Advice about a target with too many classes: often numbers with a few cells of text."""
    if values.dtype.kind not in "US":
        return "choose another --target, or --likelihood gaussian"
    form, odd = _form_of(values)
    if form is None:
        form, _ = forms.find(values.tolist())
        kind = "" if form is None else f"its cells are {forms.NOUNS[form.kind]} ({form}); "
        return f"{kind}choose another --target"
    if odd is None:
        return "its text cells are numbers: store it as numbers"
    mark = f"give --na {shlex.quote(odd)} if it marks missing values"
    return (
        f"{np.isfinite(form.numbers(values.tolist())).sum()} cells are numbers, but {odd!r} is not:"
        f" correct cells like this one, {mark if reading.can_be_code(odd) else 'empty them'}, or"
        " choose another --target"
    )


def _form_of(values):
    """Return the form of text most of which is numbers, and a cell that has it not; else None."""
    form, odd = forms.find(values.tolist()) if values.dtype.kind in "US" else (None, None)
    return (form, odd) if form is not None and form.kind == "number" else (None, None)


def class_name(value):
    if isinstance(value, (float, np.floating)) and value == round(value):
        return str(int(value))
    return str(value)


# --- scaling --------------------------------------------------------------------------------------


def scale_of(task, shared):
    """Fit a ``Scale`` to the training rows of a split task; ``shared`` as in ``Scale.fit``."""
    rows, real = ~task.test, task.kind == "regression"
    refuse_tiny("X", task.X[rows])
    refuse_tiny("y", task.y[rows])
    scale = Scale.fit(task.X[rows], targets.fill_missing(task.y[rows]), real, shared=shared)
    if real and targets.weights_of(task.y[rows]) is not None:
        scale.y_scale = np.nanstd(task.y[rows], axis=0)
    return scale
