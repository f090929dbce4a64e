"""Compare pandas' reader with that of ``fastsvgp fit`` on the awkward tables of the tests.

    python bench/table_readers.py     # needs pandas, which the package does not

A table counts as right if its last three columns have the names and the numbers that it was written
with, and a column of cells with a form, such as dates, if it has the numbers that they mean.
"""

import pathlib
import sys
import tempfile
import warnings
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from support.columns_zoo import ZOO  # noqa: E402

from tests.cli.test_cli_foreign_files import FORMS, NUMBERS  # noqa: E402

READERS = {
    "read_csv(path)": {},
    "read_csv(path, sep=None)": {"sep": None, "engine": "python"},
    'read_csv(path, sep=None, comment="#")': {"sep": None, "engine": "python", "comment": "#"},
}
EPOCH, DAY = pd.Timestamp(0), pd.Timedelta(days=1)


def read(path, form, options):
    """Return what pandas makes of a table: right, wrong or refused."""
    try:
        table = pd.read_csv(path, **options)
    except (ValueError, UnicodeError):
        return "refused"
    try:
        found = table.iloc[:, -3:].to_numpy(float)
    except (ValueError, TypeError):
        return "wrong"
    names = tuple(table.columns[-3:]) == form.names
    return "right" if names and np.array_equal(found, NUMBERS) else "wrong"


def convert(cells, numbers):
    """Return what pandas makes of cells: right, wrong or text."""
    found = pd.to_numeric(pd.Series(cells), errors="coerce")
    if found.isna().any():
        try:
            found = (pd.to_datetime(pd.Series(cells), utc=True).dt.tz_localize(None) - EPOCH) / DAY
        except (ValueError, TypeError):
            return "text"
    return "right" if np.allclose(found, numbers, rtol=1e-9, atol=1e-6) else "wrong"


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "table.csv")
        for name, options in READERS.items():
            counts = Counter()
            for form in FORMS.values():
                path.write_bytes(form.text.encode(form.encoding))
                counts[read(path, form, options)] += 1
            print(f"{name}: {dict(counts)} of {len(FORMS)} tables")
    counts = Counter(convert(cells, numbers) for cells, numbers, _ in ZOO.values())
    print(f"to_numeric, to_datetime: {dict(counts)} of {len(ZOO)} forms of columns")


if __name__ == "__main__":
    main()
