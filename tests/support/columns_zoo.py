"""Columns in the forms of other people's files: cells, the numbers that they are, their form."""

import datetime

import numpy as np

N = 60
EPOCH = datetime.datetime(1970, 1, 1)
MOMENTS = [
    datetime.datetime(2023, 1, 5, 3) + datetime.timedelta(13 * i, 3600 * (i % 7))
    for i in range(N + 1)
]
MONTHS = [datetime.datetime(1949 + i // 12, i % 12 + 1, 1) for i in range(N + 1)]
NUMBERS = [round(50 + 30 * np.sin(i), 2) for i in range(N + 1)]
CLOCKS = [f"{i % 24:02}:{15 * (i % 4):02}" for i in range(N + 1)]
HOURS = [i % 24 + 0.25 * (i % 4) for i in range(N + 1)]


def days(moments):
    return [(moment - EPOCH).total_seconds() / 86400 for moment in moments]


def months(form, said):
    return [month.strftime(form) for month in MONTHS], days(MONTHS), said


def quarters(form, said):
    first = [month.replace(month=(month.month - 1) // 3 * 3 + 1) for month in MONTHS]
    return [form.format(month.year, (month.month + 2) // 3) for month in MONTHS], days(first), said


def moments(form, said):
    """Moments with the hour if the form has one."""
    numbers = days(MOMENTS) if "%H" in form or "%I" in form else np.floor(days(MOMENTS))
    return [moment.strftime(form) for moment in MOMENTS], numbers, said


def numbers(form, said, scale=1.0, marks=",."):
    """Numbers with a unit, and other marks than a comma and a point."""
    texts = [f"{scale * value:,.2f}" for value in NUMBERS]
    texts = [text.translate(str.maketrans(",.", marks)) for text in texts]
    return [form.format(text) for text in texts], [scale * value for value in NUMBERS], said


SHORT = ", two-digit years are 1930 to 2029"
ZOO = {
    "months": months("%Y-%m", "YYYY-MM"),
    "months with slashes": months("%Y/%m", "YYYY-MM"),
    "months first": months("%m/%Y", "MM/YYYY"),
    "Eurostat's months": months("%YM%m", "YYYY-MM"),
    "months in digits": months("%Y%m", "YYYYMM"),
    "months as decimals": months("%Y.%m", "YYYY.MM"),
    "names of months": months("%b %Y", "Mon YYYY"),
    "whole names of months": months("%B, %Y", "Mon YYYY"),
    "names of months behind years": months("%Y %b", "YYYY Mon"),
    "a spreadsheet's months": months("%b-%y", f"Mon YY{SHORT}"),
    "the first of months": months("%b-1-%Y", "Mon DD, YYYY"),
    "quarters": quarters("{}-Q{}", "YYYY-Qn"),
    "quarters without a mark": quarters("{}Q{}", "YYYY-Qn"),
    "quarters first": quarters("Q{1} {0}", "Qn YYYY"),
    "days in digits": moments("%Y%m%d", "YYYYMMDD"),
    "minutes in digits": moments("%Y%m%d%H%M", "YYYYMMDDhhmm"),
    "basic ISO": moments("%Y%m%dT%H%M%SZ", "YYYYMMDDThhmmss"),
    "ISO with milliseconds": moments("%Y-%m-%dT%H:%M:%S.000Z", "YYYY-MM-DD"),
    "ISO with an offset": moments("%Y-%m-%d %H:%M:%S+00:00", "YYYY-MM-DD"),
    "days of the year": moments("%Y-%j", "YYYY-DDD"),
    "days of weeks": moments("%G-W%V-%u", "YYYY-Www-d"),
    "a spreadsheet's days": moments("%d-%b-%y", f"DD Mon YY{SHORT}"),
    "days with two digits of the year": moments("%d.%m.%y", f"DD.MM.YY{SHORT}"),
    "American days with two digits": moments("%m/%d/%y", f"MM/DD/YY{SHORT}"),
    "weekdays first": moments("%a %b %d %Y", "Mon DD, YYYY"),
    "weekdays and commas": moments("%A, %d %B %Y", "DD Mon YYYY"),
    "a log of a server": moments("%d/%b/%Y:%H:%M:%S +0000", "DD Mon YYYY"),
    "ctime": moments("%a %b %d %H:%M:%S %Y", "Mon DD hh:mm YYYY"),
    "hours with an h": moments("%Y-%m-%d %Hh%M", "YYYY-MM-DD"),
    "clocks with dots": moments("%d/%m/%Y %H.%M.%S", "DD/MM/YYYY"),
    "halves of the day": moments("%m/%d/%Y %I:%M %p", "MM/DD/YYYY"),
    "clocks": (CLOCKS, HOURS, "hh:mm"),
    "clocks with seconds": ([f"{clock}:00" for clock in CLOCKS], HOURS, "hh:mm"),
    "minutes and seconds": (
        [f"{i // 6:02}:{10.1 * (i % 6):04.1f}" for i in range(N + 1)],
        [60 * (i // 6) + 10.1 * (i % 6) for i in range(N + 1)],
        "h:mm:ss",
    ),
    "days and hours": (
        [f"{i % 5} days {clock}:00" for i, clock in enumerate(CLOCKS)],
        [86400 * (i % 5) + 3600 * hours for i, hours in enumerate(HOURS)],
        "h:mm:ss",
    ),
    "hours and minutes": (
        [f"{i % 7}h {i}m" for i in range(N + 1)],
        [3600 * (i % 7) + 60 * i for i in range(N + 1)],
        "1h 30m",
    ),
    "a unit": numbers("{} mm", "1,234.5 mm"),
    "a unit with powers": numbers("{}W m-2", "1,234.5 W m-2"),
    "percent": numbers("{}%", "1,234.5 %"),
    "dollars": numbers("${}", "$1,234.5", 1000),
    "euros": numbers("{} €", "1.234,5 €", 1000, ".,"),
    "a currency's code": numbers("CHF {}", "CHF 1,234.5", 1000, "’."),
    "decimal commas": numbers("{}", "1.234,5", 1, ".,"),
    "spaces between digits": numbers("{} kg", "1.234,5 kg", 1000, "\u202f,"),
    "angles": (
        [f"{int(value)}°{i:02}'{'NS'[i % 2]}" for i, value in enumerate(NUMBERS[:-1])] + ["9°N"],
        [(1 - 2 * (i % 2)) * (int(value) + i / 60) for i, value in enumerate(NUMBERS[:-1])] + [9],
        "47°30′N",
    ),
}
