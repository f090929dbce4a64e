"""Awkward files, as people have them: their bytes, and what a reader makes of them.

Each table is that of ``N`` rows of a date, a number, a colour and a target, or a part of it, so
that one expectation serves all. A file that is no such table names what its refusal says.
"""

import gzip
import io
import json
import zipfile
from dataclasses import dataclass, field

import numpy as np

N = 24
HEIGHT = [round(1.5 + 0.25 * i - 0.01 * i * i, 2) for i in range(N)]
WEIGHT = [float((7 * i) % 24 + 1000 * (i % 3)) for i in range(N)]
COLOUR = [("red", "green", "blue")[i % 3] for i in range(N)]
DAYS = [f"2024-02-{i + 1:02}" for i in range(N)]
FIRST_DAY = 19754.0  # of 2024-02-01 from 1970-01-01
DEFAULT = ("height", "colour", "weight")


@dataclass(frozen=True)
class File:
    """A file: its bytes, the columns that it has, and how it is read.

    ``names``: those of the inputs, and of the target. ``refused``: what the message has, if it is
    refused. ``how``: fields of a ``FileFormat``. ``given``: arguments of ``load_task``.
    """

    content: bytes
    names: tuple = DEFAULT
    refused: str | None = None
    how: dict = field(default_factory=dict)
    given: dict = field(default_factory=dict)
    suffix: str = "csv"


def text(rows, sep=",", ends="\n", header=DEFAULT):
    lines = [sep.join(header)] * (header is not None) + [sep.join(map(str, row)) for row in rows]
    return ends.join([*lines, ""])


def comma(value, group=""):
    """Write a number with a decimal comma."""
    whole, part = f"{value:,.2f}".split(".")
    return f"{whole.replace(',', group)},{part}"


PLAIN = list(zip(HEIGHT, COLOUR, WEIGHT, strict=True))
TEXT = text(PLAIN)
UMLAUTS = text(PLAIN, header=("höhe", "colour", "weight"))
GERMAN = text([(comma(h), c, comma(w)) for h, c, w in PLAIN], ";")
WITH_UMLAUTS = ("höhe", "colour", "weight")
NUMBERS = list(zip(HEIGHT, WEIGHT, strict=True))
TWO = ("height", "weight")
THREE = [(f"{h:.3f}".replace(".", ","), int(w)) for h, w in NUMBERS]


def spreadsheet():
    """Return the beginning of an xlsx file: a zip archive of xml."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        file.writestr("xl/workbook.xml", "<workbook/>")
    return buffer.getvalue()


def quoted():
    rows = [(h, f'"{c}, or ""{c}""\nin two lines"', w) for h, c, w in PLAIN]
    return text(rows)


FILES = {
    "comma": File(TEXT.encode()),
    "tab": File(text(PLAIN, "\t").encode()),
    "pipes": File(text(PLAIN, " | ").encode()),
    "spaces of any width": File(text(PLAIN, "    ").encode()),
    "old line ends": File(text(PLAIN, ends="\r").encode()),
    "a mark of utf-8": File(TEXT.replace("\n", "\r\n").encode("utf-8-sig")),
    "Excel's unicode text": File(text(PLAIN, "\t", "\r\n").encode("utf-16")),
    "utf-16 without a mark": File(TEXT.encode("utf-16-le"), how={"encoding": "utf-16-le"}),
    "utf-16 without a mark, not said": File(TEXT.encode("utf-16-le"), refused="--encoding utf-16"),
    "Windows-1252": File(UMLAUTS.encode("cp1252"), WITH_UMLAUTS),
    "latin 1": File(UMLAUTS.encode("latin-1"), WITH_UMLAUTS, how={"encoding": "iso-8859-1"}),
    "a Mac": File(UMLAUTS.encode("mac-roman"), WITH_UMLAUTS, how={"encoding": "mac-roman"}),
    "another encoding than said": File(
        UMLAUTS.encode("latin-1"), refused="byte 1 is not UTF-8", how={"encoding": "utf-8"}
    ),
    "a German spreadsheet": File(GERMAN.encode("cp1252")),
    "decimal commas, as said": File(GERMAN.encode(), how={"decimal": ","}),
    "three decimals behind commas": File(
        text(THREE, ";", header=TWO).encode(), TWO
    ),
    "three decimals and tabs": File(
        text(THREE, "\t", header=TWO).encode(), TWO, how={"decimal": ","},
    ),
    "decimal commas and spaces": File(
        text([(comma(h), comma(w)) for h, w in NUMBERS], " ", header=TWO).encode(), TWO,
        how={"decimal": ","},
    ),
    "points that group": File(
        text([(comma(h), comma(w, ".")) for h, w in NUMBERS], ";", header=TWO).encode(), TWO,
        how={"decimal": ","},
    ),
    "a point, and commas said": File(
        text(PLAIN, "\t").encode(), refused="'1.5' has a decimal point", how={"decimal": ","}
    ),
    "a comma, and points said": File(
        GERMAN.encode(), refused=r"--decimal \.: .* has '1,50'", how={"decimal": "."}
    ),
    "thousands in quotes": File(
        text([(h, c, f'"{w:,.1f}"') for h, c, w in PLAIN]).encode()
    ),
    "units": File(text([(f"{h} m", c, f"{w} kg") for h, c, w in PLAIN]).encode()),
    "quotes, commas and line ends in cells": File(
        quoted().replace('red, or ""red""\nin two lines', "red").encode()
    ),
    "codes of missing values": File(
        text([(h, c, -999 if i % 6 == 5 else w) for i, (h, c, w) in enumerate(PLAIN)]).encode(),
        how={"na": ("-999",)},
    ),
    "an index without a name": File(
        text([(i, *row) for i, row in enumerate(PLAIN)], header=("", *DEFAULT)).encode(),
        given={"ignore": ["0"]},
    ),
    "names of rows, as R writes them": File(
        text([(f'"{i + 1}"', h, f'"{c}"', w) for i, (h, c, w) in enumerate(PLAIN)], " ").encode()
    ),
    "numpy.savetxt": File(
        ("# height weight\n" + "".join(f"{h:.18e} {w:.18e}\n" for h, w in NUMBERS)).encode(), TWO
    ),
    "a title and units": File(
        ("Garden, 2024\n\n" + TEXT.replace("weight\n", "weight\n[m],,[kg]\n", 1)).encode()
    ),
    "sep=; and a total": File(("sep=;\r\n" + text(PLAIN, ";") + "Total;;9\n").encode()),
    "delimiters at the ends": File(text([(*row, "") for row in PLAIN], ";").encode()),
    "gzip": File(gzip.compress(TEXT.encode()), suffix="csv.gz"),
    "a cut gzip": File(gzip.compress(TEXT.encode())[:-12], refused="cannot read", suffix="csv.gz"),
    "two columns of one name": File(
        text([(*row, i) for i, row in enumerate(PLAIN)], header=(*DEFAULT, "height")).encode(),
        refused="columns 0 and 3, from 0, have the name 'height'",
    ),
    "two columns of one name, one ignored": File(
        text([(*row, i) for i, row in enumerate(PLAIN)], header=(*DEFAULT, "height")).encode(),
        given={"ignore": ["3"]},
    ),
    "a row without a cell": File(TEXT.replace("green,", "", 1).encode(), refused="line 3: 2 cells"),
    "an infinite input": File(TEXT.replace("1.74", "inf").encode(), refused="'height'.*infinite"),
    "a header alone": File(b"height,colour,weight\n", refused="no rows of data"),
    "nothing": File(b"", refused="no rows of data"),
    "a spreadsheet": File(spreadsheet(), refused="spreadsheet", suffix="xlsx"),
    "parquet": File(b"PAR1\x15\x04\x15\xff\x00\x00PAR1", refused="not a text table"),
    "a picture": File(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff", refused="not a text table"),
    "json": File(
        json.dumps([dict(zip(DEFAULT, row, strict=True)) for row in PLAIN], indent=1).encode(),
        refused="is JSON, not a table",
    ),
    "a page": File(
        b"<!DOCTYPE html>\n<table><tr><td>1,2</td></tr></table>\n", refused="is HTML or XML"
    ),
}  # fmt: skip


def expected(names):
    """Return the columns of these names: numbers (N,) or lists of text."""
    known = {"height": HEIGHT, "höhe": HEIGHT, "weight": WEIGHT}
    return [np.array(known[name]) if name in known else COLOUR for name in names]
