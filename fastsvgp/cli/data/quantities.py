"""Numbers with units, elapsed times and angles: how a cell is read as a number."""

import re
from collections import Counter

# how a number is written: what groups its digits, and the decimal mark
NUMBERS = {"1,234.5": (",", "."), "1.234,5": (".", ",")}
_SPACE = "[ \u00a0\u2009\u202f]"
_EXPONENT = r"(?:[eEdD][+-]?\d+)"
_DIGITS = {
    name: re.compile(
        rf"(?P<whole>[1-9]\d{{0,2}}(?:(?:\{group}|['’]|{_SPACE})\d{{3}})+"
        rf"|[1-9]\d?(?:\{group}\d\d)+\{group}\d{{3}}|\d*)"  # 1,234,567 or 12,34,567
        rf"(?:\{point}(?P<part>\d*))?(?P<exponent>{_EXPONENT}?)"
    )
    for name, (group, point) in NUMBERS.items()
}
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|KRW"
_SYMBOLS = "$€£¥₹₩₽₺"
_QUANTITY = re.compile(
    rf"(?P<sign>[+-]?){_SPACE}*(?P<before>(?:[A-Z]{{0,2}}[{_SYMBOLS}]|{_CODES}|Rs\.?|kr\.?)?){_SPACE}*"
    rf"(?P<second>[+-]?)(?P<number>[\d.,](?:[\d.,'’]|{_SPACE})*?{_EXPONENT}?){_SPACE}*"
    rf"(?P<after>(?:(?:[^\W\d_]|[%‰°º′″²³/{_SYMBOLS}])(?:[^\d,;]|(?<=[A-Za-z^-])\d)*|[+])?)"
)
_THOUSANDS = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9}  # 504K and 1.2M in one column
_DAYS = r"(?P<sign>[+-]?)(?:(?P<days>\d+) ?d(?:ays?)?,? *)?"
ELAPSED = {
    "h:mm:ss": (
        rf"{_DAYS}(?:(?:(?P<hours>\d+):(?=[0-5]\d:))?(?P<minutes>\d+):(?=\d\d))?"
        r"(?P<seconds>[0-5]?\d(?:[.,]\d+)?)"
    ),
    "1h 30m": (
        rf"{_DAYS}(?:(?P<hours>\d+) ?h(?:(?:ou)?rs?)?,? *)?"
        r"(?:(?P<minutes>\d+) ?m(?:in(?:ute)?s?)?,? *)?"
        r"(?:(?P<seconds>\d+(?:[.,]\d+)?) ?s(?:ec(?:ond)?s?)?)?"
    ),
}
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
ANGLES = {
    "47°30′N": (
        r"(?P<sign>[+-]?)(?P<first>[NSEW]?) ?"
        r"(?P<degrees>\d{1,3}(?:\.\d+)?)(?:(?P<mark> ?[°º]) ?| )?"
        r"(?:(?P<minutes>[0-5]?\d(?:\.\d+)?) ?['′’]? ?"
        r"(?:(?P<seconds>[0-5]?\d(?:\.\d+)?) ?(?:[\"″”]|'')? ?)?)?(?P<last>[NSEW]?)"
    )
}
_PATTERNS = {name: re.compile(form, re.I | re.ASCII) for name, form in (ELAPSED | ANGLES).items()}


def _split(cell):
    """Return the sign, the number and the unit (before, after) of a cell, or None."""
    found = _QUANTITY.fullmatch(cell.replace("\u2212", "-"))
    if found is None or found["sign"] and found["second"]:
        return None
    sign = -1 if "-" in (found["sign"], found["second"]) else 1
    return sign, found["number"], (found["before"], found["after"])


def unit_of(cells):
    """Return what stands before and behind most of the cells that are numbers, or None."""
    units = Counter(found[2] for cell in cells if (found := _split(cell)))
    return max(units, key=units.get, default=None)


def number(cell, style, unit):
    """Return the number of a cell with a unit, written in a style; None if it has another form.

    A plural is the same unit. Thousands, millions and billions are units of one another.
    """
    found = _split(cell)
    ratio = None if found is None or found[2][0] != unit[0] else _ratio(found[2][1], unit[1])
    if ratio is None:
        return None
    digits = _DIGITS[style].fullmatch(found[1])
    if digits is None or not (digits["whole"] or digits["part"]):
        return None
    whole = re.sub(r"\D", "", digits["whole"])
    exponent = re.sub("[dD]", "e", digits["exponent"])
    return ratio * found[0] * float(f"{whole}.{digits['part'] or ''}{exponent}")


def _ratio(unit, other):
    """Return a unit in terms of another one, or None."""
    if _singular(unit) == _singular(other):
        return 1
    both = unit in _THOUSANDS and other in _THOUSANDS
    return _THOUSANDS[unit] / _THOUSANDS[other] if both else None


def _singular(unit):
    return unit[:-1] if len(unit) > 2 and unit.isalpha() and unit.endswith("s") else unit


def parse_elapsed(cell, form):
    """Return an elapsed time in seconds; None if the cell has another form."""
    found = _PATTERNS[form].fullmatch(cell)
    if found is None or not any(found[name] for name in _SECONDS):
        return None
    parts = (
        scale * float((found[name] or "0").replace(",", ".")) for name, scale in _SECONDS.items()
    )
    return (-1 if found["sign"] == "-" else 1) * sum(parts)


def angle(cell, form):
    """Return an angle in degrees, negative in the south and west; None if it has another form."""
    found = _PATTERNS[form].fullmatch(cell.replace("\u2212", "-"))
    if found is None or found["first"] and found["last"]:
        return None
    side = (found["first"] or found["last"]).upper()
    if not side and not (found["mark"] and found["minutes"]):
        return None
    if found["first"] and found["degrees"].isdigit() and not (found["mark"] or found["minutes"]):
        return None  # S001 is a name
    degrees = sum(
        float(found[name] or 0) / parts
        for name, parts in (("degrees", 1), ("minutes", 60), ("seconds", 3600))
    )
    return (-1 if (side in ("S", "W")) != (found["sign"] == "-") else 1) * degrees
