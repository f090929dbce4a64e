"""Measure and write a table.

    python bench/measure.py chevron             # the rows of bench/bench_chevron.py into bench/results/chevron.md
    python bench/measure.py chevron --device    # those that run on a GPU, into bench/results/chevron_cuda.md
    python bench/measure.py kernels -k "1000 and not 2000 and not stock"

A name is that of a benchmark file, or of a table with rows of several: see ``TABLES``. ``-k`` chooses rows as pytest does.
The tests of what is measured run first, and no table is written where one fails, or where the error of a row is above ``WORST``.
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
WORST = {"float64": 1e-6, "float32": 1e-2}  # of a row by the dtype in its name, float64 where there is none
TESTS = {  # of each benchmark file, below tests
    "chevron": ("kernels/test_chevron.py",), "cholesky": ("kernels/test_cholesky.py",),
    "dual": ("posteriors/test_dual_sites.py", "posteriors/test_dual_float32.py", "bounds/test_vgp.py",
             "train/test_natural_steps.py"),
    "deep": ("layers/test_deep_bound.py", "layers/test_deep_steps.py"),
    "fourier": ("kernels/test_fourier.py",), "inverse_free": ("posteriors/test_relaxed.py", "posteriors/test_likelihood_form.py"),
    "likelihoods": ("likelihoods/test_likelihood_values.py",), "newton_schulz": ("kernels/test_newton_schulz.py",),
    "orthogonal": ("posteriors/test_orthogonal.py", "bounds/test_collapsed_orthogonal.py", "bounds/test_tighter.py"),
    "pairwise": ("kernels/test_pairwise.py",), "patches": ("kernels/test_patches.py", "covariances/test_convolutional.py"),
    "products": ("kernels/test_products.py",),
    "qsgp": ("bounds/test_sampled.py", "optim/test_adagrad.py", "train/test_fit_sampled.py"),
    "quadrature": ("kernels/test_quadrature.py",), "triangular": ("kernels/test_triangular.py",),
    "step": ("posteriors/test_whitening.py", "bounds/test_elbo.py", "bounds/test_collapsed.py", "optim/test_natural.py"),
    "updates": ("kernels/test_updates.py",),
}  # fmt: skip
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
    test([HERE.parent / "tests" / name for file in files for name in TESTS.get(file.stem.removeprefix("bench_"), ())])
    command = shlex.join(["python", "bench/measure.py", *arguments])
    target = args.results / f"{args.name}_cuda.md" if args.device else args.results / f"{args.name}.md"
    data = measured(files, "on_device" if args.device else "not on_device", args.k)
    if wrong := errors_above(data):
        raise SystemExit(f"no table is written: errors above {WORST}: {'; '.join(wrong)}")
    facts = device.facts() if args.device else None
    target.parent.mkdir(exist_ok=True)
    target.write_text(report.document(data, target.stem, command, facts), encoding="utf-8")
    print(target)


def test(files):
    """Run tests, in a process of its own."""
    if files and (status := subprocess.run([sys.executable, "-m", "pytest", "-q", *files], cwd=HERE.parent).returncode):
        raise SystemExit(f"tests of what is measured ended with exit code {status}: no table is written")


def errors_above(data):
    """The rows whose error is too large to be talked about in milliseconds."""
    found = []
    for row in data["benchmarks"]:
        dtype, error = "float32" if "float32" in row["name"] else "float64", row["extra_info"].get("error", 0.0)
        if not error <= WORST[dtype]:
            found.append(f"{row['name']} {error:.1e}")
    return found


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
