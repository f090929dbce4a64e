"""Notes about columns that are used as they are, but are often a mistake: indexes, and codes."""

import logging
import re
import shlex

import numpy as np

log = logging.getLogger("fastsvgp")
# names of columns that identify the row, without signs
INDEXES = set(
    "id idx index key row rows rowid rowname rownames rownum rownumber rowno unnamed0 no nr num"
    " obs observation obsno sample sampleno record recordno case caseno seq sequence serial"
    " serialno sno fid gid uid objectid userid patientid subjectid customerid".split()
)
ENDING = re.compile(r".*([^a-zA-Z][iI][dD]|[a-z]I[dD])")  # sample_id, PassengerId
FAR = 10  # sds from the mean of the others that make a repeated value a code
MOST = 4  # codes of a column
APART = 0.5  # least distance of a known code from the other values, in sds
# codes of missing values with either sign, and with one
BOTH = 99, 99.9, 99.99, 777, 888, 999, 999.9, 999.99, 7777, 8888, 9999, 9999.9, 99999
KNOWN = {*BOTH, *(-code for code in BOTH), -9, -9.99, -200, -32768, 32767, -(2**31), 2**31 - 1}
LARGE = 1e15  # powers of ten from here, and what netCDF fills in, are codes
FILLED = 9.969209968386869e36


def note_codes(table, columns, forms):
    """Warn about codes of missing values in columns, some of which have ``forms``."""
    for column in columns:
        form = forms.get(column)
        cells = None if form is None or form.of_digits else table.present(column, form)
        values = table.numbers[:, column] if cells is None else form.numbers(cells)
        number = form is None or form.kind == "number"
        found = codes(values, number)
        if found:
            marks = [
                f"{code:.15g}" if number or cells is None else cells[np.argmax(values == code)]
                for code in found
            ]
            counts = [np.sum(values == code) for code in found]
            log.warning(
                "%s, column %r: %s, far from all other values; if they mark missing values, give"
                " --na %s",
                *(table.path, table.names[column]),
                ", ".join(f"{n} cells are {mark}" for n, mark in zip(counts, marks, strict=True)),
                shlex.quote(",".join(marks)),
            )


def note_indexes(table, columns):
    """Warn about inputs that only number the rows."""
    if len(columns) > 1:
        for column in columns:
            _note_index(table, column)


def _note_index(table, column):
    """Warn about an input that only numbers the rows.

    It remains an input, because it can be a time or a place.
    """
    values, name = table.numbers[:, column], table.names[column].strip()
    unnamed = not table.named or name == f"column {column}"
    first, steps = values[0], np.diff(values)
    whole = np.all(values == np.round(values))
    label = re.sub(r"[^a-z0-9]", "", name.lower()) in INDEXES or ENDING.fullmatch(name)
    place = "the first column" if unnamed and column == 0 else f"column {name!r}"
    if len(values) > 2 and first in (0, 1) and np.all(steps == 1):
        which = f"{place} numbers the rows from {first:g}, like an index"
    elif unnamed and table.named and column == 0 and whole and np.all(steps > 0):
        which = f"{place} has no name and numbers the rows, with gaps"
    elif label and whole and len(np.unique(values)) == len(values):
        which = f"{place} identifies the rows"
    else:
        return
    log.warning(
        "%s: %s; it is used as an input; --ignore %s leaves it out",
        table.path,
        which,
        column if unnamed and str(column) not in table.names else shlex.quote(name),
    )


def codes(values, number=True):
    """Return the values of a column that look like codes of missing values, at most ``MOST``.

    They are its extremes: repeated values more than ``FAR`` sds from the mean of the others, and
    values that are known as codes, at a distance from the others. At least three different values
    are no codes.

    number : whether the known codes count
    """
    rest = values[np.isfinite(values)]
    middle = np.median(rest) if len(rest) else 0.0
    outer, found = [], 0
    while len(outer) < MOST and len(rest):
        own = rest[np.argmax(np.abs(rest - middle))]
        count, rest = np.sum(rest == own), rest[rest != own]
        if not len(rest) or not np.any((rest > rest.min()) & (rest < rest.max())):
            break
        outer.append(float(own))
        known = number and _is_known(own) and np.min(np.abs(rest - own)) > APART * rest.std()
        if known or count > 1 and abs(own - rest.mean()) > FAR * rest.std():
            found = len(outer)
        elif count == 1:
            break
    return sorted(outer[:found])


def _is_known(value):
    size = abs(value)
    power = size >= LARGE and np.isclose(np.log10(size), np.round(np.log10(size)), atol=1e-6)
    return value in KNOWN or power or np.isclose(size, FILLED, rtol=1e-6)
