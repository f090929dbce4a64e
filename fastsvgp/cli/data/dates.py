"""Text columns of dates: find their format, and convert cells to days."""

import datetime
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from .cells import is_missing

SHARE = 0.9  # least share of dates among the cells that are not missing; else it is text
YEARS = range(1500, 2501)  # 9999-12-31 often means "never", and 0001-01-01 "unknown"
EPOCH = datetime.date(1970, 1, 1).toordinal()
FIRST, LAST = (
    datetime.date(year, 1, 1).toordinal() - EPOCH for year in (YEARS.start - 1, YEARS.stop + 1)
)
_NAMES = (
    "january february march april may june july august september october november december".split()
)
MONTHS = {name: k for k, month in enumerate(_NAMES, 1) for name in (month, month[:3])} | {"sept": 9}

CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:[.,]\d+)?))?(?:"
    r" ?(?P<half>[ap])\.?m\.?)?"
)
ZONE = r" ?(?:z|utc|gmt|(?P<zone>[+-]\d\d(?::?\d\d)?))"
NAMED = {
    "Y": r"(?P<year>\d{4})",
    "M": r"(?P<month>\d{1,2})",
    "D": r"(?P<day>\d{1,2})",
    "B": r"(?P<month>[a-z]{3,9})\.?",
}
PARTS = "year", "month", "day", "hour", "minute", "second", "half", "zone"
LAYOUTS = {
    "YYYY-MM-DD": "Y-M-D",
    "YYYY/MM/DD": "Y/M/D",
    "YYYY.MM.DD": "Y[.]M[.]D",
    "DD.MM.YYYY": "D[.]M[.]Y",
    "MM/DD/YYYY": "M/D/Y",
    "DD/MM/YYYY": "D/M/Y",
    "MM-DD-YYYY": "M-D-Y",
    "DD-MM-YYYY": "D-M-Y",
    "DD Mon YYYY": "D[ -]B,?[ -]Y",
    "Mon DD, YYYY": "B D,? Y",
}
FORMS = {
    form: re.compile(
        re.sub("[YMDB]", lambda part: NAMED[part[0]], layout) + f"(?:,?[t ] *{CLOCK}(?:{ZONE})?)?",
        re.ASCII | re.I,
    )
    for form, layout in LAYOUTS.items()
}
TWINS = {"MM/DD/YYYY": "DD/MM/YYYY", "MM-DD-YYYY": "DD-MM-YYYY"}  # distinguished by days above 12
FAMILIES = [
    (form, TWINS[form]) if form in TWINS else (form,)
    for form in FORMS
    if form not in TWINS.values()
]


@dataclass(frozen=True)
class Dates:
    """Format of the dates of a column, one of ``FORMS``.

    ``assumed``: days and months could also be exchanged.
    """

    form: str
    assumed: bool

    def __str__(self):
        return f"{self.form}, assumed because no day was above 12" if self.assumed else self.form


def find(cells):
    """Return ``(dates, odd)`` of a column of text.

    ``dates``: the ``Dates`` of the column, or None. ``odd``: two dates without a common format, or
    None.
    """
    counts = Counter(cell for cell in cells if not is_missing(cell))
    for family in FAMILIES:
        read = _read(family, counts)
        if read:
            able = [
                form
                for k, form in enumerate(family)
                if all(days[k] is not None for days in read.values())
            ]
            if able:
                return Dates(able[0], len(able) > 1), None
            return None, [
                next(cell for cell, days in read.items() if days[k] is None) for k in (1, 0)
            ]
    return None, None


def _read(family, counts):
    """Return ``{cell: days by each format}`` for a family of formats.

    Cells that no format reads are left out; None if they are too many.
    """
    allowed, read = (1 - SHARE) * counts.total(), {}
    for cell, count in counts.items():
        days = [days_of(cell, form) for form in family]
        if any(number is not None for number in days):
            read[cell] = days
        else:
            allowed -= count
            if allowed < -1e-9:
                return None
    return read


def days_of(cell, form):
    """Return days from 1970-01-01, with the time of day as a fraction; in UTC if there is a zone.

    None if the cell is not a date of this format.
    """
    found = FORMS[form].fullmatch(cell)
    if found is None:
        return None
    year, month, day, hour, minute, second, half, zone = found.group(*PARTS)
    month = int(month) if month.isdigit() else MONTHS.get(month.lower(), 0)
    if int(year) not in YEARS:
        return None
    try:
        days = datetime.date(int(year), month, int(day)).toordinal() - EPOCH
    except ValueError:
        return None
    if hour is None:
        return float(days)
    hour, minute, second = int(hour), int(minute), float((second or "0").replace(",", "."))
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half in "pP")
    if hour > 23 or minute > 59 or second >= 60:
        return None
    return days + (60 * (60 * hour + minute - _ahead(zone)) + second) / 86400


def _ahead(zone):
    """Return the minutes by which a zone, for example +02:00, is ahead of UTC."""
    if zone is None:
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
    return -minutes if zone[0] == "-" else minutes


def numbers(cells, dates):
    """Return days (N,) of cells; NaN where one is missing (None) or not a date of this format."""
    days = {cell: days_of(cell, dates.form) for cell in set(cells) if cell is not None}
    return np.array([days.get(cell) for cell in cells], np.float64)


def months(days):
    """Return months, 1 to 12."""
    return np.floor(days).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12 + 1


def weekdays(days):
    """Return weekdays, 1 (Monday) to 7."""
    return (np.floor(days) + 3) % 7 + 1  # 1970-01-01 is a Thursday


def shown(days):
    """Format days as a date, for messages."""
    return str(datetime.date.fromordinal(EPOCH + int(days // 1)))
