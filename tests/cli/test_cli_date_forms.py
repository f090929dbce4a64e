"""Forms of dates: how cells are read, and which form a column has."""

import datetime

import numpy as np
import pytest

from fastsvgp.cli.data import dates
from fastsvgp.cli.data.dates import FAMILIES, FIRST, FORMS, LAST, TWINS, Dates, days_of, find

EPOCH = datetime.datetime(1970, 1, 1)
STRFTIME = {
    "YYYY-MM-DD": "%Y-%m-%d",
    "YYYY/MM/DD": "%Y/%m/%d",
    "YYYY.MM.DD": "%Y.%m.%d",
    "DD.MM.YYYY": "%d.%m.%Y",
    "MM/DD/YYYY": "%m/%d/%Y",
    "DD/MM/YYYY": "%d/%m/%Y",
    "MM-DD-YYYY": "%m-%d-%Y",
    "DD-MM-YYYY": "%d-%m-%Y",
    "DD Mon YYYY": "%d %b %Y",
    "Mon DD, YYYY": "%b %d, %Y",
}


def some_days(rng, count, first="1901-01-01", last="2199-12-31"):
    bounds = [datetime.date.fromisoformat(day).toordinal() for day in (first, last)]
    return [datetime.date.fromordinal(int(day)) for day in rng.integers(*bounds, count)]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read_as_the_standard_library_writes_it(rng, form):
    assert STRFTIME.keys() == FORMS.keys()
    for day in some_days(rng, 60):
        number = day.toordinal() - EPOCH.toordinal()
        assert days_of(day.strftime(STRFTIME[form]), form) == number
        moment = datetime.datetime.combine(
            day, datetime.time(*(int(rng.integers(n)) for n in (24, 60, 60, 10**6)))
        )
        seconds = (moment - EPOCH).total_seconds()
        written = f"{STRFTIME[form]} %H:%M:%S.%f"
        np.testing.assert_allclose(
            days_of(moment.strftime(written), form) * 86400, seconds, rtol=0, atol=1e-4
        )
        zone = datetime.timezone(datetime.timedelta(minutes=int(rng.integers(-14 * 60, 14 * 60))))
        aware = moment.replace(tzinfo=zone)
        seconds = aware.timestamp()
        np.testing.assert_allclose(
            days_of(aware.strftime(written + "%z"), form) * 86400, seconds, rtol=0, atol=1e-4
        )
    if form == "YYYY-MM-DD":
        np.testing.assert_allclose(
            days_of(aware.isoformat(), form) * 86400, seconds, rtol=0, atol=1e-4
        )


@pytest.mark.parametrize(
    "cell, form, moment",
    [
        ("2024-1-2", "YYYY-MM-DD", "2024-01-02"),
        ("2024-01-02T03:04Z", "YYYY-MM-DD", "2024-01-02T03:04"),
        ("2024-01-02 03:04:05,5 UTC", "YYYY-MM-DD", "2024-01-02T03:04:05.5"),
        ("2024-01-02T00:30+02", "YYYY-MM-DD", "2024-01-01T22:30"),
        ("1/2/2024 12:30 AM", "MM/DD/YYYY", "2024-01-02T00:30"),
        ("1/2/2024 1:30 p.m.", "DD/MM/YYYY", "2024-02-01T13:30"),
        ("12-JAN-2024", "DD Mon YYYY", "2024-01-12"),
        ("2 September 2024", "DD Mon YYYY", "2024-09-02"),
        ("Sept. 2, 2024", "Mon DD, YYYY", "2024-09-02"),
        ("may 12 2024, 08:00", "Mon DD, YYYY", "2024-05-12T08:00"),
        ("2024-02-29", "YYYY-MM-DD", "2024-02-29"),
    ],
)
def test_cells_by_hand(cell, form, moment):
    assert (
        days_of(cell, form)
        == (datetime.datetime.fromisoformat(moment) - EPOCH).total_seconds() / 86400
    )


@pytest.mark.parametrize(
    "cell",
    [
        *(
            "2023-02-29",
            "2024-13-01",
            "2024-00-10",
            "9999-12-31",
            "0001-01-01",
            "24-01-02",
            "2024-01",
            "20240102",
            "2024-01/02",
        ),
        *(
            "2024-01-02T24:00",
            "2024-01-02 10:60",
            "2024-01-02 13:00 PM",
            "2024-01-02 10:00 nowhere",
            "2024-01-02 x",
            "1.2.3",
        ),
        *(
            "12 Jam 2024",
            "Jan 2024",
            "٢٠٢٤-٠١-٠٢",
            "192.168.1.1",
            "red",
            "10:30",
            "1/2",
            "2024-01-02-",
            "2024-01-02\n",
        ),
    ],
)
def test_cells_that_are_no_dates(cell):
    assert all(days_of(cell, form) is None for form in FORMS)


def test_months_and_weekdays(rng):
    days = np.concatenate([rng.integers(FIRST, LAST, 200), [-1, 0, FIRST, LAST]]) + rng.choice(
        [0.0, 0.25, 0.999], 204
    )
    calendar = [datetime.date.fromordinal(EPOCH.toordinal() + int(np.floor(day))) for day in days]
    np.testing.assert_array_equal(dates.months(days), [day.month for day in calendar])
    np.testing.assert_array_equal(dates.weekdays(days), [day.isoweekday() for day in calendar])
    assert [dates.shown(day) for day in days] == [str(day) for day in calendar]


def test_no_cell_ends_in_an_error(rng):
    pieces = [*"0123456789-/. :,TZ+", "12", "2024", "Jan", "march", "pm", "é", "٣"]
    for _ in range(3000):
        cell = "".join(rng.choice(pieces, rng.integers(1, 12)))
        for form in FORMS:
            day = days_of(cell, form)
            assert day is None or FIRST <= day <= LAST
    for cell in ("1500-01-01T00:00+23:59", "2500-12-31T23:59:59-23:59"):
        assert FIRST <= days_of(cell, "YYYY-MM-DD") <= LAST


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_column_is_found(rng, form):
    cells = [
        day.strftime(STRFTIME[form]) for day in [*some_days(rng, 100), datetime.date(2024, 5, 13)]
    ]
    assert find([*cells, "", "NA"]) == (Dates(form, False), None)


@pytest.mark.parametrize("family", [family for family in FAMILIES if len(family) == 2])
def test_all_cells_decide_what_is_the_month(rng, family):
    first, second = family
    mark = "/" if "/" in first else "-"
    cells = [f"{month}{mark}{day}{mark}2024" for month, day in rng.integers(1, 13, (300, 2))]
    assert find(cells) == (Dates(first, True), None)  # no day is above 12
    assert "assumed because no day was above 12" in str(find(cells)[0])
    assert find([*cells, f"1{mark}13{mark}2024"]) == (Dates(first, False), None)
    assert find([*cells, f"13{mark}1{mark}2024"]) == (Dates(second, False), None)
    both = [f"1{mark}13{mark}2024", f"13{mark}1{mark}2024"]
    assert find([*cells, *both]) == (None, both)
    assert TWINS[first] == second


def test_most_cells_must_be_dates(rng):
    cells = [str(day) for day in some_days(rng, 90)]
    assert find([*cells, *["soon"] * 10, *[""] * 500])[0] == Dates("YYYY-MM-DD", False)
    assert find([*cells, *["soon"] * 11]) == (None, None)
    assert find(["red", "green", "2024-01-01"]) == (None, None)
    assert find(["1.2.3", "10.20.30"]) == (None, None)
