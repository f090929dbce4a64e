"""One Markdown table from the JSON of pytest-benchmark.

    python -m pytest bench --benchmark-only --benchmark-json=run.json
    python bench/report.py run.json NAME          # writes bench/results/NAME.md
"""

import argparse
import json
import pathlib
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version


def commit(folder):
    """The commit of the checkout, with a mark where it was changed since; "unknown" outside of one."""
    try:
        ask = dict(cwd=folder, capture_output=True, text=True, check=True)
        name = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **ask).stdout.strip()
        changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], **ask).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + (" (changed since)" if changed else "")


def versions(packages=("numpy", "scipy", "numba", "fastsvgp")):
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            pass
    return ", ".join(found)


def duration(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def size(count):
    for unit, amount in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= amount:
            return f"{count / amount:.3g} {unit}"
    return f"{count:.0f} B"


COLUMNS = (
    ("median", lambda s, e: duration(s["median"])),
    ("quartiles", lambda s, e: f"{duration(s['q1'])} – {duration(s['q3'])}"),
    ("best", lambda s, e: duration(s["min"])),
    ("floor", lambda s, e: duration(e["floor"])),
    ("median / floor", lambda s, e: f"{e['ratio']:.2f}"),
    ("best / floor", lambda s, e: f"{e['ratio_best']:.2f}"),
    ("gemm", lambda s, e: f"{e['gemm_rate'] / 1e9:.0f} GFLOP/s"),
    ("peak extra", lambda s, e: size(e["peak_extra"])),
    ("/ unit", lambda s, e: f"{e['peak_units']:.2f}"),
    ("error", lambda s, e: f"{e['error']:.1e}"),
)


def rows(data):
    """The table as lists of strings, header first; a column that no row fills is left out."""
    table = [["benchmark", *(name for name, _ in COLUMNS)]]
    for b in data["benchmarks"]:
        row = [b["name"].removeprefix("bench_")]
        for _, show in COLUMNS:
            try:
                row.append(show(b["stats"], b["extra_info"]))
            except KeyError:
                row.append("")
        table.append(row)
    keep = [i for i in range(len(table[0])) if any(row[i] for row in table[1:])]
    return [[row[i] for i in keep] for row in table]


def markdown(table):
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + " --- |" * len(table[0]), *lines[1:]])


def document(data, name, folder):
    machine = data["machine_info"]
    cpu = machine.get("cpu", {})
    files = " ".join(sorted({row["fullname"].partition("::")[0] for row in data["benchmarks"]}))
    return f"""# {name}

{cpu.get("brand_raw", machine["machine"])}, {cpu.get("count", "?")} cores visible, {platform.system()}; {versions()};
commit {commit(folder)}; {data["datetime"][:16]} UTC.
`python -m pytest {files} --benchmark-only --benchmark-json=run.json`, `python bench/report.py run.json {name}`

Floor: the flops of the best known algorithm at the rate of `scipy.linalg.blas` gemm on (M, M) times (M, B), or the bytes that
must move at the rate of a plain copy, measured between the timed calls: median over median, and best over the lowest floor. Peak
extra: what one call holds beyond its inputs, its results included; for a training step the unit is M² + M B numbers. Error: of
value and gradients, the largest, scaled by the largest entry of each (or 1), against a better answer.

{markdown(rows(data))}
"""


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("name")
    args = parser.parse_args(arguments)
    here = pathlib.Path(__file__).resolve().parent
    target = here / "results" / f"{args.name}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(document(json.loads(args.json.read_text()), args.name, here), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
