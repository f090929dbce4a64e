"""Make one call of a kernel between the start and the stop of CUDA's profiler.

    ncu --profile-from-start off python bench/one_call.py products "float64, tril_product, 1000"
    python bench/one_call.py --worst 2 FOLDER   # the second worst row of first_times.py's numbers

A row has the family and the name that it has in ``first_times.py``. Its call is made once before,
so that its kernels are loaded. ``--worst`` reads ``first_times*.json`` of a folder. The worst rows
have the largest ratios to their floors, among our own kernels and floors of at least ``FLOOR``; of
each kernel one row counts. Without such rows the order is that of ``EXPECTED``.
"""

import argparse
import json
import pathlib
import sys

import device
import first_families
from first_times import Card

FLOOR = 1e-5  # seconds: shorter calls are mostly latency
LIBRARIES = "copy and potrf", "copy and trsm", "gemm"
# by counting instructions and bytes, before any measurement
EXPECTED = [
    ("triangular", "float64, solve_triangular, 528 x 128 x 256"),
    ("pairwise", "float64, stationary rbf, 8192, D = 100"),
    ("products", "float64, newton_schulz_step, 1000"),
    ("fourier", "float32, fourier_multiply, 500 x 20000, D = 784"),
]
SMALL = "pairwise", "float64, stationary rbf, 70, D = 8"


def worst(folder):
    """Return ``(family, name)`` of the rows of a folder, the one farthest from its floor first."""
    rows, kernels = [], {}
    for path in sorted(folder.glob("first_times*.json")):
        rows += json.loads(path.read_text(encoding="utf-8"))
    for row in sorted((row for row in rows if "ratio" in row), key=lambda row: -row["ratio"]):
        kernel = row["call"].split(", ")[1]
        if row["family"] != "step" and kernel not in LIBRARIES and row["floor"] >= FLOOR:
            kernels.setdefault(kernel.split()[0], (row["family"], row["call"]))
    return list(kernels.values()) or EXPECTED


def found(family, name, small):
    """Return the row of this name; the rows before it are made on the way."""
    dtype, _, rest = name.partition(", ")
    # no floor is needed, so the device's rates are measured with tiny arrays
    for row in first_families.FAMILIES[family](Card(small=True), dtype, small):
        if row.name == rest:
            return row
    raise SystemExit(f"one_call.py: {family} has no row {name!r}")


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", nargs="?", choices=sorted(first_families.FAMILIES))
    parser.add_argument("name", nargs="?", help="a row, as in the table")
    parser.add_argument("--worst", nargs=2, metavar=("N", "FOLDER"), help="the N-th worst, from 1")
    parser.add_argument("--small", action="store_true", help="tiny arrays: a test that it runs")
    args = parser.parse_args(arguments)
    if args.name is None and args.worst is None:
        parser.error("give a family and a row, or --worst N FOLDER")
    if device.REASON:
        parser.error(device.REASON)
    import cupy

    family, name = args.family, args.name
    if args.worst:
        rows = worst(pathlib.Path(args.worst[1]))
        family, name = rows[min(int(args.worst[0]), len(rows)) - 1]
    row = found(*(SMALL if args.small else (family, name)), args.small)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        row.call()
        stream.synchronize()
        print(f"one call of {name}", flush=True)
        cupy.cuda.profiler.start()
        row.call()
        stream.synchronize()
        cupy.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
