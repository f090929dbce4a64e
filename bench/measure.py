"""Measure and write a table.

    python bench/measure.py chevron             # bench_chevron.py into bench/results/chevron.md
    python bench/measure.py chevron --device    # its GPU rows into bench/results/chevron_cuda.md
    python bench/measure.py kernels -k "1000 and not 2000 and not stock"
    python bench/measure.py step --core Haswell  # by the BLAS kernels for AVX2: step_haswell.md

The name is that of a benchmark file, or of a table with rows of several files: see ``TABLES``.
``-k`` selects rows as in pytest. ``--runs 3`` measures three times, and takes each row from the run
in which the machine was quietest: its floor was lowest. Without ``--device`` the tests of the
measured code run first; if one fails, no table is written. (They test the CPU; ``pytest -m
on_device`` tests a GPU.) Rows that fail, or whose error is above ``WORST``, are left out and named
below the table, and the exit status is 1. Requirements: ``python -m pip install ".[bench]"``.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

if missing := [
    name for name in ("pytest", "pytest_benchmark") if importlib.util.find_spec(name) is None
]:
    raise SystemExit(
        f'bench/measure.py needs {" and ".join(missing)}: python -m pip install ".[bench]" in the'
        " checkout"
    )

import device
import report

HERE = pathlib.Path(__file__).resolve().parent
SOME_FAILED = 1  # exit code of pytest
# largest error of a row by the dtype in its name; float64 if the name has none
WORST = {"float64": 1e-6, "float32": 1e-2}
TESTS = {  # of each benchmark file, below tests
    "chevron": ("kernels/test_chevron.py",),
    "cholesky": ("kernels/test_cholesky.py",),
    "covariances": ("covariances/test_covariances.py",),
    "dual": (
        "posteriors/test_dual_sites.py",
        "posteriors/test_dual_float32.py",
        "bounds/test_vgp.py",
        "train/test_natural_steps.py",
    ),
    "deep": ("layers/test_deep_bound.py", "layers/test_deep_steps.py"),
    "fourier": ("kernels/test_fourier.py",),
    "inverse_free": ("posteriors/test_relaxed.py", "posteriors/test_likelihood_form.py"),
    "likelihoods": ("likelihoods/test_likelihood_values.py",),
    "near_index": ("near/test_index.py",),
    "newton_schulz": ("kernels/test_newton_schulz.py",),
    "orthogonal": (
        "posteriors/test_orthogonal.py",
        "posteriors/test_orthogonal_models.py",
        "bounds/test_collapsed_orthogonal.py",
        "bounds/test_tighter.py",
    ),
    "pairwise": ("kernels/test_pairwise.py", "kernels/test_inner_products.py"),
    "patches": (
        "kernels/test_patches.py",
        "covariances/test_convolutional.py",
        "covariances/test_convolutional_models.py",
    ),
    "paths": ("paths/test_moments.py", "paths/test_points.py", "kernels/test_fourier_functions.py"),
    "predictor": ("bounds/test_predictor.py",),
    "products": ("kernels/test_products.py",),
    "qsgp": (
        "bounds/test_sampled.py",
        "bounds/test_kriged_controls.py",
        "bounds/test_basis_samples.py",
        "bounds/test_sampled_errors.py",
        "optim/test_adagrad.py",
        "train/test_fit_sampled.py",
    ),
    "quadrature": ("kernels/test_quadrature.py",),
    "triangular": ("kernels/test_triangular.py",),
    "step": (
        "posteriors/test_whitening.py",
        "bounds/test_elbo.py",
        "bounds/test_collapsed.py",
        "optim/test_natural.py",
    ),
    "uncertain": ("uncertain/test_closed_form.py", "uncertain/test_mixed.py"),
    "updates": ("kernels/test_updates.py",),
}
TABLES = {
    "kernels": ("cholesky", "products", "triangular", "updates"),
    "likelihoods": ("likelihoods", "quadrature"),
}


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("--device", action="store_true", help="the rows that run on a GPU")
    parser.add_argument("-k", metavar="EXPRESSION", help="the rows whose names match")
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="measure N times (1), keep the quietest rows",
    )
    parser.add_argument(
        "--core", metavar="NAME", help="what OPENBLAS_CORETYPE is set to; part of the table's name"
    )
    parser.add_argument(
        "--results", type=pathlib.Path, default=HERE / "results", help="the folder of the table"
    )
    args = parser.parse_args(arguments)
    files = [HERE / f"bench_{part}.py" for part in TABLES.get(args.name, (args.name,))]
    if missing := [file.name for file in files if not file.exists()]:
        parser.error(f"there is no {', '.join(missing)} in {HERE}")
    if args.runs < 1:
        parser.error(f"--runs {args.runs}: must be at least 1")
    if args.device and device.REASON:
        parser.error(f"--device: {device.REASON}")
    if args.core:
        os.environ["OPENBLAS_CORETYPE"] = args.core  # read when the processes below load SciPy
    if not args.device:
        test(
            [
                HERE.parent / "tests" / name
                for file in files
                for name in TESTS.get(file.stem.removeprefix("bench_"), ())
            ]
        )
    command = shlex.join(["python", "bench/measure.py", *arguments])
    suffix = "_cuda" if args.device else f"_{args.core.lower()}" if args.core else ""
    target = args.results / f"{args.name}{suffix}.md"
    marker = "on_device" if args.device else "not on_device"
    runs = [measured(files, marker, args.k) for _ in range(args.runs)]
    data, failed = quietest([(data, failed + without_wrong(data)) for data, failed in runs])
    if not data["benchmarks"]:
        raise SystemExit(f"no row is correct, so no table is written: {'; '.join(failed)}")
    facts = device.facts() if args.device else None
    target.parent.mkdir(exist_ok=True)
    text = report.document(data, target.stem, command, facts, failed, runs=args.runs)
    target.write_text(text, encoding="utf-8")
    print(target)
    if failed:
        raise SystemExit(f"missing rows: {'; '.join(failed)}")


def test(files):
    """Run tests, in a process of its own."""
    if files and (
        status := subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *files], cwd=HERE.parent
        ).returncode
    ):
        raise SystemExit(
            f"tests of what is measured ended with exit code {status}: no table is written"
        )


def quietest(runs):
    """Return each row of its run with the lowest floor, and the rows that failed in any run.

    The time of the row itself decides nothing, unless it has no floor.
    """

    def disturbed(row):
        return row["extra_info"].get("floor", row["stats"]["median"])

    rows = {}
    for data, _ in runs:
        for row in data["benchmarks"]:
            rows[row["name"]] = min(rows.get(row["name"], row), row, key=disturbed)
    failed = {row.partition(": ")[0]: row for _, some in runs for row in some}
    kept = [row for name, row in rows.items() if name.removeprefix("bench_") not in failed]
    return {**runs[-1][0], "benchmarks": kept}, list(failed.values())


def without_wrong(data):
    """Remove the rows whose error is above the limit, and return their names."""
    wrong, right = [], []
    for row in data["benchmarks"]:
        dtype, error = (
            "float32" if "float32" in row["name"] else "float64",
            row["extra_info"].get("error", 0.0),
        )
        if error <= WORST[dtype]:
            right.append(row)
        else:
            wrong.append(
                f"{row['name'].removeprefix('bench_')}: error {error:.1e}, above {WORST[dtype]:.0e}"
            )
    data["benchmarks"] = right
    return wrong


def measured(files, marker, expression):
    """Run pytest-benchmark in its own process; return its data and the rows that failed."""
    with tempfile.TemporaryDirectory() as folder:
        run, report = pathlib.Path(folder, "run.json"), pathlib.Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            *files,
            "-m",
            marker,
            "--benchmark-only",
            f"--benchmark-json={run}",
        ]
        command += [f"--junitxml={report}", *(("-k", expression) if expression else ())]
        status = subprocess.run(command, cwd=HERE.parent).returncode
        if status not in (0, SOME_FAILED):
            raise SystemExit(f"pytest ended with exit code {status}: no table is written")
        reasons = {
            case.get("name"): reason(case) for case in ElementTree.parse(report).iter("testcase")
        }
        data = (
            json.loads(run.read_text(encoding="utf-8"))
            if run.exists() and run.stat().st_size
            else {"benchmarks": []}
        )
    data["benchmarks"] = [row for row in data["benchmarks"] if not reasons.get(row["name"])]
    return data, [f"{name.removeprefix('bench_')}: {why}" for name, why in reasons.items() if why]


def reason(case):
    """Why a test of a report failed, in a line; None where it did not."""
    for part in case:
        if part.tag in ("failure", "error"):
            return (part.get("message") or "failed").splitlines()[0][:200]


if __name__ == "__main__":
    main(sys.argv[1:])
