"""Time tuned kernels against their plain twins, in pairs.

    python bench/plain_twins.py                     # all families
    python bench/plain_twins.py blocked products    # renews their tables, and keeps the others

A tuned kernel stays in the package only if it is 1.2 times as fast as its plain twin at some size
that matters. Both run in turn in one process, in both dtypes, on one thread, in CPU time: a busy
machine changes little. ``--threads 2`` takes wall time, and needs cores that are idle.
"""

import argparse
import importlib
import pathlib
import re
import shlex
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT)]

import numpy as np  # noqa: E402
import report  # noqa: E402
from plain.common import difference  # noqa: E402

import fastsvgp as fs  # noqa: E402

FAMILIES = sorted(
    path.stem
    for path in (ROOT / "bench/plain").glob("*.py")
    if path.stem not in ("__init__", "common")
)
WORTH = 1.2
REPEATS, SAMPLE, LONGEST = 21, 1e-3, 0.5  # pairs; seconds of a sample, and of a call repeated less
DTYPES = "float64", "float32"
ABOUT = """
Median time of the tuned kernel, and the ratio of the plain twin's time to it: the median of
neighbouring calls. A case is named by its kernel and sizes.
"""


def cases(family, dtype):
    """Yield the cases of a family; each is used before the next one is made."""
    return importlib.import_module(f"plain.{family}").cases(np.dtype(dtype))


def seconds(call, count, clock):
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def pair(case, clock):
    """Return the median time of the tuned kernel, and the median ratio."""
    both = case.tuned, case.plain
    slower = max(min(seconds(call, 1, clock) for _ in range(3)) for call in both)  # after compiling
    count, repeats = max(1, int(SAMPLE / slower)), REPEATS if slower < LONGEST else 3
    times = [[seconds(call, count, clock) for call in both] for _ in range(repeats)]
    tuned, plain = np.transpose(times)
    return np.median(tuned), np.median(plain / tuned)


def rows(family, threads):
    """Return the rows of the table of a family."""
    table = [["case", *(text for dtype in DTYPES for text in (dtype, "ratio"))]]
    clock = time.process_time if threads == 1 else time.perf_counter
    for both in zip(*(cases(family, dtype) for dtype in DTYPES), strict=True):
        row = [both[0].name]
        for case in both:
            if not difference(case) <= case.tolerance:
                raise SystemExit(f"{family}, {case.name}: results differ by {difference(case):.1e}")
            tuned, ratio = pair(case, clock)
            row += [report.duration(tuned), f"{ratio:.2f}"]
        print(family, *row, sep=", ", flush=True)
        table.append(row)
    return table


def sections(path):
    """Return the sections of an earlier document by family."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {part.splitlines()[0]: part.strip() for part in re.split(r"^## ", text, flags=re.M)[1:]}


def best_ratios(text):
    """Return {(family, kernel): largest ratio} of a document."""
    best = {}
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        family, (_, _, *table) = part.split("\n", 1)[0], re.findall(r"^\| (.*) \|$", part, re.M)
        for row in table:
            name, *fields = row.split(" | ")
            ratios = [float(field) for field in fields if field[-1].isdigit()]
            kernel = family, name.split(",")[0]
            best[kernel] = max([best.get(kernel, 0.0), *ratios])
    return best


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/plain_twins.md")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"no plain twins of {', '.join(sorted(unknown))} in bench/plain")
    kept = sections(args.out)
    command = shlex.join(
        ["python", "bench/plain_twins.py", *(sys.argv[1:] if argv is None else argv)]
    )
    for family in args.families or FAMILIES:
        with fs.set_num_threads(args.threads):
            table = report.markdown(rows(family, args.threads))
            head = report.header(command, blas=report.computing())
        kept[family] = f"{family}\n\n{head}\n\n{table}"
        parts = ["# plain_twins", ABOUT.strip(), *(f"## {kept[name]}" for name in sorted(kept))]
        args.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    for (family, kernel), ratio in best_ratios(args.out.read_text(encoding="utf-8")).items():
        if ratio < WORTH:
            print(f"{family}, {kernel}: the plain twin is as fast ({ratio:.2f})")


if __name__ == "__main__":
    main()
