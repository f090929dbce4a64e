"""Forms of dates and clocks: how cells are read, and which form a column has."""

import datetime

import numpy as np
import pytest

from fastsvgp.cli.data import dates
from fastsvgp.cli.data.dates import CLOCKS, CODES, DATES, FIRST, LAST, days_of, find_cycles, phase
from fastsvgp.cli.data.forms import Form, find, find_code

EPOCH = datetime.datetime(1970, 1, 1)
DAYS = {
    name.replace(" ", mark): text.replace(" ", mark)
    for mark in "-/. "
    for name, text in {
        "YYYY MM DD": "%Y %m %d",
        "DD MM YYYY": "%d %m %Y",
        "MM DD YYYY": "%m %d %Y",
        "YY MM DD": "%y %m %d",
        "DD MM YY": "%d %m %y",
        "MM DD YY": "%m %d %y",
    }.items()
} | {
    "DD Mon YYYY": "%d %b %Y",
    "Mon DD, YYYY": "%b %d, %Y",
    "YYYY Mon DD": "%Y-%b-%d",
    "Mon DD hh:mm YYYY": "%a %b %d %H:%M:%S %Y",
    "DD Mon YY": "%d-%b-%y",
    "Mon DD, YY": "%b %d, %y",
    "YY Mon DD": "%y %b %d",
    "YYYY-DDD": "%Y-%j",
    "YYYYMMDDThhmmss": "%Y%m%dT%H%M%S",
    "YYYY-Www-d": "%G-W%V-%u",
    "YYYYMMDD": "%Y%m%d",
    "YYYYDDD": "%Y%j",
    "YYYYMMDDhhmm": "%Y%m%d%H%M",
}


def month(day):
    return day.replace(day=1)


def quarter(day):
    return day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)


def monday(day):
    return day - datetime.timedelta(day.weekday())


def quarters(text):
    return lambda day: day.strftime(text.replace("Q", str((day.month + 2) // 3)))


# forms of more than a day: how they are written, and their first day
PERIODS = {
    "YYYY-YY": (lambda day: f"{day.year}-{(day.year + 1) % 100:02}", lambda day: day.replace(1, 1)),
    "FY YYYY": ("FY%Y", lambda day: day.replace(day=1, month=1)),
    "YYYY-MM": ("%Y-%m", month),
    "MM/YYYY": ("%m/%Y", month),
    "Mon YYYY": ("%b %Y", month),
    "YYYY Mon": ("%Y %B", month),
    "Mon YY": ("%b-%y", month),
    "YYYY-Qn": (quarters("%Y-qQ"), quarter),
    "Qn YYYY": (quarters("qQ %Y"), quarter),
    "nQ YYYY": (quarters("Qq%Y"), quarter),
    "Qn YY": (quarters("qQ-%y"), quarter),
    "nQ YY": (quarters("Qq%y"), quarter),
    "YY Qn": (quarters("%yqQ"), quarter),
    "YYYY-Www": ("%G-W%V", monday),
    "Www YYYY": ("week %V, %G", monday),
    "YYYYMM": ("%Y%m", month),
    "YYYY.MM": ("%Y.%m", month),
}
PERIODS["YYYY-YY"] = (PERIODS["YYYY-YY"][0], lambda day: day.replace(day=1, month=1))


def short(form):
    return "YYYY" not in form


def some_days(rng, count, form="YYYY"):
    """Days of dates with the year in four digits, or in two of them."""
    first, last = ("1930-01-01", "2029-12-31") if short(form) else ("1901-01-01", "2199-12-31")
    bounds = [datetime.date.fromisoformat(day).toordinal() for day in (first, last)]
    return [datetime.date.fromordinal(int(day)) for day in rng.integers(*bounds, count)]


def number(day):
    return day.toordinal() - EPOCH.toordinal()


def test_all_forms_are_tested():
    assert DAYS.keys() | PERIODS.keys() == DATES.keys() | CODES.keys()
    assert not DAYS.keys() & PERIODS.keys()


@pytest.mark.parametrize("form", DAYS)
def test_a_form_is_read_as_the_standard_library_writes_it(rng, form):
    written = DAYS[form]
    for day in some_days(rng, 40, form):
        midnight = datetime.datetime(day.year, day.month, day.day)
        assert days_of(midnight.strftime(written), form) == number(day)
        moment = midnight + datetime.timedelta(hours=int(rng.integers(24)))
        if "H" in written:
            assert days_of(moment.strftime(written), form) == number(day) + moment.hour / 24
        if form in CODES or "H" in written or "%u" in written:
            continue
        moment += datetime.timedelta(microseconds=int(rng.integers(3600 * 10**6)))
        zone = datetime.timezone(datetime.timedelta(minutes=int(rng.integers(-14 * 60, 14 * 60))))
        aware = moment.replace(tzinfo=zone)
        for text, seconds in (
            (moment.strftime(f"{written} %H:%M:%S.%f"), (moment - EPOCH).total_seconds()),
            (aware.strftime(f"{written} %H:%M:%S.%f%z"), aware.timestamp()),
        ):
            np.testing.assert_allclose(days_of(text, form) * 86400, seconds, rtol=0, atol=1e-4)


@pytest.mark.parametrize("form", PERIODS)
def test_a_period_is_its_first_day(rng, form):
    write, first = PERIODS[form]
    for day in some_days(rng, 40, form):
        text = day.strftime(write) if isinstance(write, str) else write(day)
        assert days_of(text, form) == number(first(day)), text


@pytest.mark.parametrize(
    "cell, form, moment",
    [
        ("2024-1-2", "YYYY-MM-DD", "2024-01-02"),
        ("2024-01-02T03:04Z", "YYYY-MM-DD", "2024-01-02T03:04"),
        ("2024-01-02 03:04:05,5 UTC", "YYYY-MM-DD", "2024-01-02T03:04:05.5"),
        ("2024-01-02T00:30+02", "YYYY-MM-DD", "2024-01-01T22:30"),
        ("2024-01-02T24:00", "YYYY-MM-DD", "2024-01-03"),
        ("2024-01-02 06", "YYYY-MM-DD", "2024-01-02T06:00"),
        ("2024-01-02, 6:30 Uhr", "YYYY-MM-DD", "2024-01-02T06:30"),
        ("Jan 2 2024 at 06:30", "Mon DD, YYYY", "2024-01-02T06:30"),
        ("2024-01-02 6h30", "YYYY-MM-DD", "2024-01-02T06:30"),
        ("2/1/2024 18.30.15", "DD/MM/YYYY", "2024-01-02T18:30:15"),
        ("1/2/2024 12:30 AM", "MM/DD/YYYY", "2024-01-02T00:30"),
        ("1/2/2024 6 pm", "MM/DD/YYYY", "2024-01-02T18:00"),
        ("1/2/2024 1:30 p.m.", "DD/MM/YYYY", "2024-02-01T13:30"),
        ("12-JAN-2024", "DD Mon YYYY", "2024-01-12"),
        ("01JAN2024:10:05:03", "DD Mon YYYY", "2024-01-01T10:05:03"),
        ("13/Apr/2024:10:05:03 +0200", "DD Mon YYYY", "2024-04-13T08:05:03"),
        ("2 September 2024", "DD Mon YYYY", "2024-09-02"),
        ("Thu, 2nd sept. 2024", "DD Mon YYYY", "2024-09-02"),
        ("Jan-1-1995", "Mon DD, YYYY", "1995-01-01"),
        ("Sept. 2, 2024", "Mon DD, YYYY", "2024-09-02"),
        ("may 12 2024, 08:00", "Mon DD, YYYY", "2024-05-12T08:00"),
        ("Thursday, April 13, 2023", "Mon DD, YYYY", "2023-04-13"),
        ("Thu Apr 13 2023 10:00:00 GMT+0200 (CEST)", "Mon DD, YYYY", "2023-04-13T08:00"),
        ("Thu Apr 13 10:05:03 UTC 2023", "Mon DD hh:mm YYYY", "2023-04-13T10:05:03"),
        ("2024-02-29", "YYYY-MM-DD", "2024-02-29"),
        ("20240229T0630Z", "YYYYMMDDThhmmss", "2024-02-29T06:30"),
        ("2024 123 12:00", "YYYY-DDD", "2024-05-02T12:00"),
        ("1949M3", "YYYY-MM", "1949-03-01"),
        ("1949/3", "YYYY-MM", "1949-03-01"),
        ("January 1949", "Mon YYYY", "1949-01-01"),
        ("jan. '49", "Mon YY", "1949-01-01"),
        ("2023 Quarter 2", "YYYY-Qn", "2023-04-01"),
        ("2023W05", "YYYY-Www", "2023-01-30"),
        ("2020-W53-7", "YYYY-Www-d", "2021-01-03"),
        ("2009/10", "YYYY-YY", "2009-01-01"),
        ("1999-2000", "YYYY-YY", "1999-01-01"),
        ("FY 1999–00", "YYYY-YY", "1999-01-01"),
        ("FY2009", "FY YYYY", "2009-01-01"),
        ("20240102.0", "YYYYMMDD", "2024-01-02"),
        ("2024010218", "YYYYMMDDhhmm", "2024-01-02T18:00"),
        ("20240102183015", "YYYYMMDDhhmm", "2024-01-02T18:30:15"),
        ("1949.1", "YYYY.MM", "1949-10-01"),
    ],
)
def test_cells_by_hand(cell, form, moment):
    assert (
        days_of(cell, form)
        == (datetime.datetime.fromisoformat(moment) - EPOCH).total_seconds() / 86400
    )


@pytest.mark.parametrize(
    "cell, hours",
    [
        ("00:00", 0),
        ("7:30", 7.5),
        ("07:30:36", 7.51),
        ("18.00.00", 18),
        ("18h15", 18.25),
        ("3:30 PM", 15.5),
        ("12 am", 0),
        ("24:00", 24),
        *((cell, None) for cell in ("24:01", "10:60", "13:00 pm", "10", "1.5", "10:5", "noon")),
    ],
)
def test_clocks_alone(cell, hours):
    assert CLOCKS.keys() == {"hh:mm"}
    number = days_of(cell, "hh:mm")
    assert number is hours is None or abs(24 * number - hours) < 1e-12


@pytest.mark.parametrize(
    "cell",
    [
        *("2023-02-29", "2024-13-01", "2024-00-10", "9999-12-31", "0001-01-01", "2024-01/02"),
        *("2024-01-02T24:01", "2024-01-02 10:60", "2024-01-02 13:00 PM", "2024-01-02 7"),
        *("2024-01-02 10:00 nowhere", "2024-01-02 x", "1.2.3", "12 Jam 2024", "2024-01-02-"),
        *("٢٠٢٤-٠١-٠٢", "192.168.1.1", "red", "10:30", "1/2", "2024-01-02\n", "", "2024"),
        *("2023-Q5", "2023-W54", "2023-366", "2023-000", "202413", "20240230", "1949.13", "5-Jan"),
        *("1999-2001", "1999-1900", "FY09"),
        *("2009-11x", "Jan 5", "10-12", "20240102.5"),
    ],
)
def test_cells_that_are_no_dates(cell):
    assert all(days_of(cell, form) is None for form in DATES | CODES)


def test_no_cell_ends_in_an_error(rng):
    pieces = [
        *"0123456789-/. :,TZ+QWM'",
        "12",
        "2024",
        "Jan",
        "march",
        "pm",
        "Thu",
        "é",
        "٣",
        "1e9",
    ]
    for _ in range(2000):
        cell = "".join(rng.choice(pieces, rng.integers(1, 12)))
        for form in DATES | CODES | CLOCKS:
            day = days_of(cell, form)
            assert day is None or FIRST <= day <= LAST
    for cell in ("1500-01-01T00:00+23:59", "2500-12-31T23:59:59-23:59"):
        assert FIRST <= days_of(cell, "YYYY-MM-DD") <= LAST


# --- the calendar ---------------------------------------------------------------------------------


def test_cycles_by_the_calendar(rng):
    days = np.concatenate([rng.integers(FIRST, LAST, 200), [-1, 0, FIRST, LAST]]) + rng.choice(
        [0.0, 0.25, 0.999], 204
    )
    calendar = [datetime.date.fromordinal(EPOCH.toordinal() + int(np.floor(day))) for day in days]
    assert [dates.format_date(day) for day in days] == [str(day) for day in calendar]
    np.testing.assert_allclose(phase(days, "week"), [day.weekday() / 7 for day in calendar])
    np.testing.assert_array_equal(phase(days, "day"), days % 1)
    months = 12 * phase(days, "year")
    np.testing.assert_array_equal(np.floor(months + 1e-9), [day.month - 1 for day in calendar])
    np.testing.assert_allclose(phase(np.array([0.0, 31, 59, 366.25, 365]), "year") * 12,
                               [0, 1, 2, 1.25 / 31, 0], atol=1e-12)  # fmt: skip
    for cycle in ("year", "week", "day"):
        turn = 2 * np.pi * phase(days, cycle)
        np.testing.assert_array_equal(dates.parts(days, cycle), [np.sin(turn), np.cos(turn)])


@pytest.mark.parametrize(
    "form, days, cycles",
    [
        ("YYYY-MM-DD", np.arange(0, 366.0), ["week"]),
        ("YYYY-MM-DD", np.arange(0, 367.0), ["year", "week"]),
        ("YYYY-MM-DD", np.arange(0, 8.0), []),
        ("YYYY-MM-DD", np.arange(0, 9.0), ["week"]),
        ("YYYY-MM-DD", np.arange(0, 700.0, 7), ["year"]),
        ("YYYY-MM-DD", np.arange(0, 700, 0.25), ["year", "week", "day"]),
        ("YYYY-MM-DD", np.arange(0, 1.0, 0.25), []),
        ("YYYY-MM-DD", np.arange(0, 1.3, 0.25), ["day"]),
        ("YYYY-MM", np.arange(0, 700.0, 30), ["year"]),
        ("YYYY-YY", np.arange(0, 7000.0, 365), []),
        ("hh:mm", np.arange(0, 0.5, 0.01), []),
        ("hh:mm", np.arange(0, 0.53, 0.01), ["day"]),
        ("1,234.5", np.arange(0, 700.0), []),
    ],
)
def test_cycles_that_dates_can_follow(form, days, cycles):
    """They span more than one, and differ in phase."""
    assert find_cycles(days, form) == cycles


def test_years_that_begin_on_the_same_day_follow_no_year():
    starts = [number(datetime.date(year, 1, 1)) for year in range(1950, 2020)]
    assert find_cycles(np.array(starts, np.float64), "YYYY-MM-DD") == ["week"]


# --- the form of a column -------------------------------------------------------------------------


@pytest.mark.parametrize("form", [form for form in DAYS | PERIODS if form not in CODES])
def test_the_form_of_a_column_is_found(rng, form):
    days = [*some_days(rng, 150, form), datetime.date(2004, 5, 13), datetime.date(1999, 12, 31)]
    write = PERIODS[form][0] if form in PERIODS else DAYS[form]
    cells = [day.strftime(write) if isinstance(write, str) else write(day) for day in days]
    found, odd = find([*cells, "", "NA"])
    assert found.name == form and odd is None
    assert found.other == ("YYYY-MM" if form == "YYYY-YY" and found.other else "")
    assert ("two-digit years are 1930 to 2029" in str(found)) == (short(form) and "YY" in form)


@pytest.mark.parametrize("form", CODES)
def test_the_form_of_numbers_is_found(rng, form):
    write = DAYS[form] if form in DAYS else PERIODS[form][0]
    values = [float(day.strftime(write)) for day in some_days(rng, 60, form)]
    assert find_code(np.array([*values, np.nan])) == (Form(form), None)
    odd = 195813.0 if form == "YYYYMM" else 1949.13 if form == "YYYY.MM" else values[0] + 0.5
    assert find_code(np.array([*values, odd])) == (Form(form), repr(odd).removesuffix(".0"))
    few = {"YYYYMM": 6, "YYYY.MM": 6, "YYYYMMDD": 4, "YYYYDDD": 13}.get(form, 2)
    several = np.unique(values)
    assert find_code(several[:few]) == (None, None)  # they could be numbers
    assert find_code(several[: few + 2]) == (Form(form), None)


def test_numbers_that_are_no_dates(rng):
    for values in (
        np.arange(1900, 2024.0),  # years
        1958 + np.arange(600) / 12,
        np.round(1958 + np.arange(600) / 12, 4),
        rng.integers(180_000, 210_000, 60).astype(np.float64),
        rng.integers(19_000_000, 21_000_000, 60).astype(np.float64),
        rng.standard_normal(60),
        1e5 + np.arange(60.0),
        np.full(60, 195801.0),
        np.full(60, np.nan),
        np.array([0.0, *[float(f"1958{month:02}") for month in range(1, 13)]]),
    ):
        assert find_code(values) == (None, None)


@pytest.mark.parametrize(
    "first, second",
    [
        ("MM/DD/YYYY", "DD/MM/YYYY"),
        ("MM-DD-YYYY", "DD-MM-YYYY"),
        ("MM DD YYYY", "DD MM YYYY"),
        ("DD.MM.YYYY", "MM.DD.YYYY"),
    ],
)
def test_all_cells_decide_what_is_the_month(rng, first, second):
    mark = first[2]
    if mark == " ":
        assert first.split() == ["MM", "DD", "YYYY"]
    cells = [f"{month}{mark}{day}{mark}2024" for month, day in rng.integers(1, 13, (300, 2))]
    assert find(cells) == (Form(first, second), None)  # no day is above 12
    assert f"{first}, assumed, because {second} fits too" == str(find(cells)[0])
    firsts, seconds = f"1{mark}13{mark}2024", f"13{mark}1{mark}2024"
    if mark == ".":
        firsts, seconds = seconds, firsts
    assert find([*cells, firsts]) == (Form(first), None)
    assert find([*cells, seconds]) == (Form(second), None)
    assert find([*cells, firsts, firsts, seconds]) == (Form(first), seconds)
    same = [f"{month}{mark}{month}{mark}2024" for month in range(1, 13)]
    assert find(same) == (Form(first), None)  # no matter which one


@pytest.mark.parametrize(
    "cells, form",
    [
        (["23-01-05", "23-02-17", "23-12-31"], Form("YY-MM-DD", "DD-MM-YY")),
        (["05-01-23", "17-02-23", "31-12-23"], Form("DD-MM-YY", "YY-MM-DD")),
        (["01-05-23", "02-17-23", "12-31-23"], Form("MM-DD-YY")),
        (["05-Jan-23", "17-Feb-23", "31-Dec-23"], Form("DD Mon YY", "YY Mon DD")),
        (["23-Jan-05", "23-Feb-17", "23-Dec-31"], Form("YY Mon DD", "DD Mon YY")),
        (["05-Jan-49", "17-Feb-50"], Form("DD Mon YY")),
    ],
)
def test_of_several_orders_the_one_with_the_fewest_years_counts(cells, form):
    assert find(cells) == (form, None)


def test_two_digit_years_are_those_of_a_hundred_years():
    for text, year in (("29", 2029), ("30", 1930), ("49", 1949), ("99", 1999), ("00", 2000)):
        assert days_of(f"Jan-{text}", "Mon YY") == number(datetime.date(year, 1, 1))


def test_most_cells_must_have_the_form(rng):
    cells = [str(day) for day in some_days(rng, 50)]
    form = Form("YYYY-MM-DD")
    assert find([*cells, "soon", *[""] * 500]) == (form, "soon")
    assert find([*cells, *["soon"] * 49]) == (form, "soon")
    assert find([*cells, *["soon"] * 50]) == (None, None)
    assert find(["red", "green", "2024-01-01"]) == (None, None)
    assert find([]) == find(["", "NA"]) == (None, None)
    assert find(["2023", *cells]) == (form, "2023")
