"""Forms of dates and clocks, and the cycles of the calendar.

A layout is a line of letters, one for each field of a cell; small letters and marks stand for
themselves. A date is a number of days from 1970-01-01 with the time of day as a fraction, in UTC if
there is a zone; a clock without a date is a part of a day.
"""

import datetime
import functools
import re
from dataclasses import dataclass

import numpy as np

from .cells import number_of

YEARS = range(1500, 2501)  # 9999-12-31 often means "never", and 0001-01-01 "unknown"
CENTURY = 1930  # two-digit years are the hundred years from this one, as in spreadsheets
EPOCH = datetime.date(1970, 1, 1).toordinal()
FIRST, LAST = (
    datetime.date(year, 1, 1).toordinal() - EPOCH for year in (YEARS.start - 1, YEARS.stop + 1)
)
_NAMES = (
    "january february march april may june july august september october november december".split()
)
MONTHS = {name: k for k, month in enumerate(_NAMES, 1) for name in (month, month[:3])} | {"sept": 9}
# years in four digits and two; months, also in two digits, and by name; days, also in two digits,
# and 1st, 2nd; quarters; weeks, also in two digits, and their days; days of the year; the next
# year; clocks, also in digits, and zones; names of weekdays
FIELDS = {
    "Y": r"(?P<year>\d{4})",
    "S": r"'?(?P<short>\d\d)",
    "M": r"(?P<month>\d{1,2})",
    "N": r"(?P<month>\d\d)",
    "B": r"(?P<month>[a-z]{3,9})\.?",
    "D": r"(?P<day>\d{1,2})",
    "E": r"(?P<day>\d\d)",
    "O": r"(?P<day>\d{1,2})(?:st|nd|rd|th)?",
    "Q": r"(?P<quarter>[1-4])",
    "W": r"(?P<week>\d\d?)",
    "V": r"(?P<week>\d\d)",
    "G": r"(?P<weekday>[1-7])",
    "J": r"(?P<day_of_year>\d{3})",
    "P": r"(?P<next>(?:\d\d)?\d\d)",
    "C": (
        r"(?P<hour>\d{1,2})(?:(?P<mark>[:.h])(?P<minute>\d\d)"
        r"(?:(?:(?P=mark)|m)(?P<second>\d\d(?:[.,:]\d+)?)s?)?)?"
        r"(?: ?(?P<half>[ap])\.?m\.?| ?uhr| ?h)?"
    ),
    "H": r"(?P<hour>\d\d)(?:(?P<minute>\d\d)(?:(?P<second>\d\d(?:[.,]\d+)?))?)?",
    "Z": r" ?(?:z|(?:utc|gmt)?(?P<zone>[+-]\d\d(?::?\d\d)?)|utc|gmt)(?: ?\([a-z ]+\))?",
    "A": (r"(?:(?:mon|tue|tues|wed|wednes|thu|thur|thurs|fri|sat|satur|sun)(?:day)?\.?,?[ -]+)?"),
}
CLOCK = "(?:(?:,?[t_ ] *|:| at )C(?:Z)?)?"  # behind a date


@dataclass(frozen=True)
class DateLayout:
    """The layout of a form, and the cycles of the calendar that its dates can follow."""

    layout: str
    cycles: tuple = ()

    @functools.cached_property
    def pattern(self):
        fields = re.sub(r"(?<!\\)[A-Z]", lambda letter: FIELDS[letter[0]], self.layout)
        return re.compile(fields, re.ASCII | re.I)


def _days_in_digits():
    """Yield the orders of day, month and year, for each mark between them.

    If several orders fit, the first one counts: the month is first, but not between dots.
    """
    for mark in "-/. ":
        orders = ("MM DD YYYY", "DD MM YYYY") if mark != "." else ("DD MM YYYY", "MM DD YYYY")
        for name in ("YYYY MM DD", *orders, *(order[:-2] for order in orders), "YY MM DD"):
            letters = name.replace("YYYY", "Y").replace("YY", "S").replace("MM", "M")
            layout = letters.replace("DD", "D").replace(" ", f"[{mark}]")
            yield name.replace(" ", mark), f"A{layout}{CLOCK}"


_DAY, _MONTH = ("year", "week", "day"), ("year",)
DATES = {name: DateLayout(layout, _DAY) for name, layout in _days_in_digits()} | {
    name: DateLayout(layout, cycles)
    for name, layout, cycles in (
        ("DD Mon YYYY", f"AO[-/. ]*B[-/., ]*Y{CLOCK}", _DAY),
        ("Mon DD, YYYY", f"AB[-/. ]*O[-/,. ]+Y{CLOCK}", _DAY),
        ("YYYY Mon DD", f"AY[-/., ]*B[-/. ]*O{CLOCK}", _DAY),
        ("Mon DD hh:mm YYYY", "AB +D +C(?:Z)? +Y", _DAY),
        ("DD Mon YY", f"AO[-/. ]*B[-/., ]*S{CLOCK}", _DAY),
        ("Mon DD, YY", f"AB[-/. ]*O[-/,. ]+S{CLOCK}", _DAY),
        ("YY Mon DD", f"AS[-/. ]*B[-/. ]*E{CLOCK}", _DAY),
        ("YYYY-DDD", f"Y[-/. ]J{CLOCK}", _DAY),
        ("YYYYMMDDThhmmss", "YNE[t _-]H(?:Z)?", _DAY),
        ("YYYY-YY", "(?:fy ?)?Y ?[-/–] ?P", ()),
        ("FY YYYY", "fy ?Y", ()),
        ("YYYY-MM", "Y(?:[-/._ ]|[-/ ]?m)M", _MONTH),
        ("MM/YYYY", "M[-/._ ]Y", _MONTH),
        ("Mon YYYY", "B[-/., ]*Y", _MONTH),
        ("YYYY Mon", "Y[-/., ]*B", _MONTH),
        ("Mon YY", "B[-/. ]*S", _MONTH),
        ("YYYY-Qn", "Y[-/.: ]*q(?:uarter|tr)? ?Q", _MONTH),
        ("Qn YYYY", "q(?:uarter|tr)? ?Q[-/.:, ]*Y", _MONTH),
        ("nQ YYYY", "Qq[-/., ]*Y", _MONTH),
        ("Qn YY", "qQ[-/. ]*S", _MONTH),
        ("nQ YY", "Qq[-/. ]*S", _MONTH),
        ("YY Qn", "S[-/. ]*qQ", _MONTH),
        ("Www YYYY", "w(?:eek|k)? ?W[-/., ]*Y", _MONTH),
        ("YYYY-Www", "Y[-/ ]*w(?:eek|k)? ?W", _MONTH),
        ("YYYY-Www-d", "Y-?wV-?G", _DAY),
    )
}
CLOCKS = {"hh:mm": DateLayout("C", ("day",))}
# numbers whose digits are a date: how they are written, and their share of all such numbers
CODES = {
    "YYYYMM": (DateLayout("YN", _MONTH), ".0f", 0.12),
    "YYYYMMDD": (DateLayout("YNE", _DAY), ".0f", 0.037),
    "YYYYDDD": (DateLayout("YJ", _DAY), ".0f", 0.37),
    "YYYYMMDDhhmm": (DateLayout("YNEH", _DAY), ".0f", 0.01),
    "YYYY.MM": (DateLayout("Y[.]N", _MONTH), ".2f", 0.12),
}
_ALL = DATES | CLOCKS | {name: code[0] for name, code in CODES.items()}
CYCLES = {name: layout.cycles for name, layout in _ALL.items()}


def days_of(cell, form):
    """Return the number of a cell in one of the forms; None if it has another form."""
    if form in CODES:
        cell = _digits(cell, CODES[form][1])
    found = _ALL[form].pattern.fullmatch(cell)
    if found is None:
        return None
    fields = {name: text for name, text in found.groupdict().items() if text is not None}
    try:
        alone = form in CLOCKS
        day = 0.0 if alone else float(_date(fields).toordinal() - EPOCH)
        return day + _part_of_day(fields, alone) if "hour" in fields else day
    except ValueError:
        return None


def _digits(cell, written):
    """Return the digits of a number; no text for numbers with more of them."""
    value = number_of(cell)
    text = "" if value is None else format(value, written)
    return text if text and abs(float(text) - value) < 1e-6 else ""


def _date(fields):
    """Return the date of fields; a field outside its range is a ValueError."""
    year = int(fields.get("year", 0))
    if "short" in fields:
        year = CENTURY + (int(fields["short"]) - CENTURY) % 100
    if year not in YEARS:
        raise ValueError(year)
    if "next" in fields and int(fields["next"]) not in (year + 1, (year + 1) % 100):
        raise ValueError(fields)
    if "week" in fields:
        return datetime.date.fromisocalendar(
            year, int(fields["week"]), int(fields.get("weekday", 1))
        )
    if "day_of_year" in fields:
        date = datetime.date(year, 1, 1) + datetime.timedelta(int(fields["day_of_year"]) - 1)
        if date.year != year:
            raise ValueError(fields)
        return date
    month = fields.get("month", "1")
    month = int(month) if month.isdigit() else MONTHS.get(month.lower(), 0)
    if "quarter" in fields:
        month = 3 * int(fields["quarter"]) - 2
    return datetime.date(year, month, int(fields.get("day", 1)))


def _part_of_day(fields, alone):
    """Return the time of day as a fraction; 24:00 is the next midnight.

    alone : bool
        Whether there is no date: a number of two digits is then no hour.
    """
    hour, minute = int(fields["hour"]), int(fields.get("minute", 0))
    second = float(re.sub("[,:]", ".", fields.get("second", "0")))
    half = fields.get("half")
    if "mark" not in fields and half is None and (alone or len(fields["hour"]) < 2):
        raise ValueError(fields)
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError(hour)
        hour = hour % 12 + 12 * (half in "pP")
    minutes = 60 * hour + minute
    if minute > 59 or second >= 60 or minutes + second / 60 > 1440:
        raise ValueError(fields)
    return (60 * (minutes - _ahead(fields.get("zone"))) + second) / 86400


def _ahead(zone):
    """Return the minutes by which a zone, for example +02:00, is ahead of UTC."""
    if zone is None:
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
    return -minutes if zone[0] == "-" else minutes


# --- the calendar ---------------------------------------------------------------------------------

DAYS = {"year": 365.2425, "week": 7, "day": 1}


def phase(days, cycle):
    """Return where days are in a cycle, from 0 to 1.

    All months are a twelfth of the year, so the same day of the month has the same phase each year.
    """
    day = np.floor(days)
    if cycle == "day":
        return days - day
    if cycle == "week":
        return (day + 3) % 7 / 7  # 1970-01-01 is a Thursday
    months = day.astype("datetime64[D]").astype("datetime64[M]")
    first, following = (
        (months + more).astype("datetime64[D]").astype(np.float64) for more in (0, 1)
    )
    return (months.astype(np.int64) % 12 + (days - first) / (following - first)) / 12


def parts(days, cycle):
    """Return the two inputs of a cycle: a point on a circle."""
    turn = 2 * np.pi * phase(days, cycle)
    return [np.sin(turn), np.cos(turn)]


def find_cycles(days, form):
    """Return the cycles that dates can follow: they span more than one, and differ in phase.

    Clocks have one if they span half a day.
    """
    span = 2 * np.ptp(days) if form in CLOCKS else np.ptp(days)
    return [
        cycle
        for cycle in CYCLES.get(form, ())
        if span > DAYS[cycle] and np.ptp(phase(days, cycle)) > 1e-9
    ]


def years(days):
    """Return the number of different years."""
    return len(np.unique(np.floor(days).astype("datetime64[D]").astype("datetime64[Y]")))


def format_date(days):
    """Format days as a date, for messages."""
    return str(datetime.date.fromordinal(EPOCH + int(days // 1)))
