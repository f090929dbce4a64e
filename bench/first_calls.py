"""Measure first calls: seconds, modules and memory of new processes, and what Numba compiles there.

    python bench/first_calls.py                    # writes bench/results/first_calls.md
    python bench/first_calls.py --only step help   # some of the calls
    python bench/first_calls.py --demo             # the demo too: minutes

Each call runs in new processes, in up to three states: without compiled code (an empty cache of
Numba, and ``FASTSVGP_KERNELS=none``), with the cache of that process, and with the module of
kernels compiled ahead of time, if ``fastsvgp info`` says that there is one.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import report
from one_first_call import CALLS, SIZES, data

HERE = pathlib.Path(__file__).resolve().parent
CHILD = HERE / "one_first_call.py"
WORDS = {
    "import": "`import fastsvgp`, and the names of a model",
    **{name: f"{name}, M = {M}, {{}} = {B}" for name, (M, B) in SIZES.items()},
    "regressor": "`SVGPRegressor().fit`",
    "classifier": "`SVGPClassifier().fit`",
    "predict": "`fastsvgp predict` of one row",
    "help": "`fastsvgp --help`",
    "demo": "`fastsvgp demo`",
}
STATES = "no cache", "cache", "module"
COUNTS = "functions", "lowered", "optimised", "generated"
HEADER = (
    "call",
    "compiled code",
    "first call, CPU s",
    "wall s",
    "above the second, CPU s",
    "process, CPU s",
    "modules",
    "peak memory",
    "functions compiled",
    "LLVM instructions lowered",
    "optimised",
    "generated",
)
LEGEND = """
Least of {repeats} processes; without a cache of one. Process: from its start to the end of the
first call, with all imports. The first call of an estimator imports it, but not scikit-learn; that
of a command is the whole command. Modules: those in `sys.modules` after the call. What is compiled
is counted in a process of its own, because counting takes long. Its counts are equal for equal
sources and versions: functions that Numba compiles, and instructions of LLVM that are lowered from
Python, given to the optimiser, and given to the generator of machine code.
"""


def child(call, folder, cache, *options):
    """Return what one process says of a call, in a folder, with a folder for Numba's cache."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # so that our own sources are compiled once
    done = subprocess.run(
        [sys.executable, CHILD, call, *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{call}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def module_there():
    """Whether ``fastsvgp info`` says that the kernels are in a module."""
    env = {name: value for name, value in os.environ.items() if name != "FASTSVGP_KERNELS"}
    command = [sys.executable, "-m", "fastsvgp", "info"]
    said = subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True)
    return re.search(r"^kernels +module", said.stdout, re.M) is not None


def least(results):
    """Return the least seconds of several processes, and the modules and memory of the first."""
    names = "cpu", "wall", "again", "process"
    return results[0] | {
        name: min(result[name] for result in results)
        for name in names
        if results[0][name] is not None
    }


def states(call, folder, there, repeats):
    """Yield ``(state, what it took, counts or None)`` of a call."""
    os.environ["FASTSVGP_KERNELS"] = "none"  # for the children
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
        counts = child(call, folder, other, "--count")
        yield STATES[0], child(call, folder, cache), counts
        yield STATES[1], least([child(call, folder, cache) for _ in range(repeats)]), None
    del os.environ["FASTSVGP_KERNELS"]
    if there:
        with tempfile.TemporaryDirectory() as cache:  # for what the module lacks
            yield STATES[2], least([child(call, folder, cache) for _ in range(repeats)]), None


def row(call, state, took, counts):
    """Return the cells of a row."""
    above = "" if took["again"] is None else f"{max(0.0, took['cpu'] - took['again']):.2f}"
    return [
        WORDS[call].format("N" if call == "bound" else "B"),
        state,
        f"{took['cpu']:.2f}",
        f"{took['wall']:.2f}",
        above,
        f"{took['process']:.2f}",
        f"{took['modules']}",
        report.size(took["peak"]),
        *("" if counts is None else f"{counts[name]:,}" for name in COUNTS),
    ]


def prepare(folder):
    """Write a model, and a table of one row, for ``predict``."""
    import numpy as np

    X, y = data(500)
    header = ",".join([*(f"x{i}" for i in range(X.shape[1])), "y"])
    for name, count in ("data", None), ("row", 1):
        table = np.column_stack([X, y])[:count]
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=header, comments="")
    from fastsvgp.cli import main

    arguments = ["--method", "svgp", "--steps", "30", "--quiet", "--out", str(folder / "fit")]
    if main(["fit", str(folder / "data.csv"), *arguments]):
        raise SystemExit("the model of `predict` could not be trained")
    (folder / "fit" / "model.npz").rename(folder / "model.npz")


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=sorted(CALLS), help="default: all but demo")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    argv = sys.argv[1:] if argv is None else argv
    given = parser.parse_args(argv)
    calls = given.only or [name for name in CALLS if name != "demo" or given.demo]
    table, there = [list(HEADER)], module_there()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "predict" in calls:
            prepare(folder)
        for call in calls:
            repeats = 1 if call == "demo" else given.repeats
            for state in states(call, folder, there, repeats):
                table.append(row(call, *state))
                print(" | ".join(table[-1]), flush=True)
    head = report.header(
        shlex.join(["python", "bench/first_calls.py", *argv]), blas=report.computing()
    )
    legend = " ".join(LEGEND.format(repeats=given.repeats).split())
    path = given.results / "first_calls.md"
    path.write_text(
        f"# first_calls\n\n{head}\n\n{legend}\n\n{report.markdown(table)}\n", encoding="utf-8"
    )
    print(path)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait take CPU seconds
    main()
