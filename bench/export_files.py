"""Exported files: bytes, and the time of a row.

    python bench/export_files.py    # writes bench/results/export.md

Matern32 with 8 columns, Gaussian noise. C is compiled by ``gcc -O2`` and called by a loop in C;
fast C by ``gcc -O3 -march=native -fassociative-math -fno-signed-zeros -fno-trapping-math
-fno-math-errno``, which keep the checks for NaN. Times are CPU times of one thread, the median of
21 samples. Error: largest difference of mean and variance from ``predict_y`` of the predictor.
"""

import argparse
import ctypes
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT)]

import numpy as np  # noqa: E402
import report  # noqa: E402

import fastsvgp as fs  # noqa: E402

D, N, SAMPLES = 8, 1000, 21
LOOP = """#include "gp.c"
void rows(const double *X, size_t n, double *mean, double *var);
void rows(const double *X, size_t n, double *mean, double *var)
{
    for (size_t i = 0; i < n; i++)
        gp_predict_y(X + 8 * i, mean + i, var + i);
}
"""
COLUMNS = (
    "M, q", "C file", "compiled", ".npz", "C, a row", "fast C, a row", "Python, one row",
    "Python, a row of 1,000", "predictor, one row", "error",
)  # fmt: skip
SOME_MATH = "-fassociative-math -fno-signed-zeros -fno-trapping-math -fno-math-errno"
FAST = f"-O3 -march=native {SOME_MATH}".split()


def predictor(M, wide):
    """Return a predictor; a ``wide`` q is in some direction wider than the prior."""
    rng = np.random.default_rng(0)
    tril = np.tril(0.1 * rng.standard_normal((M, M))) / np.sqrt(M)
    tril[np.arange(M), np.arange(M)] = rng.uniform(0.3, 1.5 if wide else 0.9, M)
    q = fs.Whitened(rng.standard_normal(M), tril)
    covariance = fs.Matern32(1.3, rng.uniform(1.0, 2.0, D))
    return fs.predictor(fs.SVGP(covariance, rng.standard_normal((M, D)), q, fs.Gaussian(0.1)))


def seconds(call):
    """Return the median CPU time of a call."""
    call()
    times = []
    for _ in range(SAMPLES):
        start, count = time.process_time(), 0
        while time.process_time() - start < 0.01:
            call()
            count += 1
        times.append((time.process_time() - start) / count)
    return float(np.median(times))


def compiled(folder):
    """Return the bytes of code and constants, and the loops over rows, with either flags."""
    (folder / "loop.c").write_text(LOOP)
    gcc = ["gcc", "-std=c99", "-fPIC"]
    subprocess.run([*gcc, "-O2", "-c", "gp.c", "-o", "gp.o"], cwd=folder, check=True)
    told = subprocess.run(["size", folder / "gp.o"], capture_output=True, text=True, check=True)
    sizes = sum(map(int, told.stdout.splitlines()[1].split()[:3]))
    loops = []
    for name, flags in (("plain", ["-O2"]), ("fast", FAST)):
        command = [*gcc, *flags, "-shared", "loop.c", "-o", f"{name}.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        loops.append(ctypes.CDLL(str(folder / f"{name}.so")).rows)
    return sizes, loops


def measure(M, wide):
    made, X = predictor(M, wide), np.random.default_rng(1).standard_normal((N, D))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path in ("gp.c", "gp.py"):
            fs.export(made, folder / path)
        found = importlib.util.spec_from_file_location("gp", folder / "gp.py")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        sizes, loops = compiled(folder)
        want, times = np.stack(fs.predict_y(made, X)), []
        error = np.abs(np.stack(module.predict_y(X)) - want).max()
        for rows in loops:
            out = np.empty((2, N))
            x, mean, var = (ctypes.c_void_p(one.ctypes.data) for one in (X, *out))
            times.append(seconds(functools.partial(rows, x, ctypes.c_size_t(N), mean, var)) / N)
            error = max(error, np.abs(out - want).max())
        times.append(seconds(lambda: module.predict_y(X[:1])))
        times.append(seconds(lambda: module.predict_y(X)) / N)
        times.append(seconds(lambda: fs.predict_y(made, X[:1])))
        bytes_of = [(folder / one).stat().st_size for one in ("gp.c", "gp.npz")]
    return [
        f"{M}, {'wide' if wide else 'narrow'}",
        *map(report.size, (bytes_of[0], sizes, bytes_of[1])),
        *map(report.duration, times),
        f"{error:.1e}",
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[32, 100, 512, 1024])
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    words = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(words)
    table = [COLUMNS, ["---"] * len(COLUMNS)]
    with fs.set_num_threads(1):
        for M in args.sizes:
            for wide in (False, True):
                table.append(measure(M, wide))
                print(*table[-1], sep=", ", flush=True)
    about = __doc__.strip().split("\n\n")
    command = " ".join(["python bench/export_files.py", *words])
    head = report.header(command, blas=report.computing())
    lines = ["# export", "", head, "", about[2], ""]
    lines += [f"| {' | '.join(row)} |" for row in table]
    (args.results / "export.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
