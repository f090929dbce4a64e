"""Measure and write a table.

    python bench/measure.py chevron             # the rows of bench/bench_chevron.py into bench/results/chevron.md
    python bench/measure.py chevron --device    # those that run on a GPU, into bench/results/chevron_cuda.md
    python bench/measure.py kernels -k "1000 and not 2000 and not stock"

A name is that of a benchmark file, or of a table with rows of several: see ``TABLES``. ``-k`` chooses rows as pytest does.
What it needs: ``python -m pip install ".[bench]"``.
"""

import argparse
import importlib.util
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

if missing := [name for name in ("pytest", "pytest_benchmark") if importlib.util.find_spec(name) is None]:
    raise SystemExit(f'bench/measure.py needs {" and ".join(missing)}: python -m pip install ".[bench]" in the checkout')

import device  # noqa: E402
import report  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TABLES = {"kernels": ("cholesky", "products", "triangular", "updates"), "likelihoods": ("likelihoods", "quadrature")}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--device", action="store_true", help="the rows that run on a GPU")
    parser.add_argument("-k", metavar="EXPRESSION", help="the rows whose names match")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="the folder of the table")
    args = parser.parse_args(arguments)
    files = [HERE / f"bench_{part}.py" for part in TABLES.get(args.name, (args.name,))]
    if missing := [file.name for file in files if not file.exists()]:
        parser.error(f"there is no {', '.join(missing)} in {HERE}")
    if args.device and device.REASON:
        parser.error(f"--device: {device.REASON}")
    command = shlex.join(["python", "bench/measure.py", *arguments])
    target = args.results / f"{args.name}_cuda.md" if args.device else args.results / f"{args.name}.md"
    data = measured(files, "on_device" if args.device else "not on_device", args.k)
    facts = device.facts() if args.device else None
    target.parent.mkdir(exist_ok=True)
    target.write_text(report.document(data, target.stem, command, facts), encoding="utf-8")
    print(target)


def measured(files, marker, expression):
    """What pytest-benchmark finds, in a process of its own; where a row fails there is no table."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder, "run.json")
        command = [sys.executable, "-m", "pytest", *files, "-m", marker, "--benchmark-only", f"--benchmark-json={run}"]
        if expression:
            command += ["-k", expression]
        if status := subprocess.run(command, cwd=HERE.parent).returncode:
            raise SystemExit(f"pytest ended with exit code {status}: no table is written")
        return json.loads(run.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
