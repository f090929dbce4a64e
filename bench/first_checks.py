"""Check what a first run on a GPU depends on, before anything is timed.

    python bench/first_checks.py facts       # GPU, driver, versions, commit, a first array
    python bench/first_checks.py cubins      # compile every kernel, by as many processes as cores
    python bench/first_checks.py captures    # library calls, sums and steps as CUDA graphs

``captures`` runs each call, captures it, and replays the graph twice, with other input each time.
The results must equal those of ordinary calls, bit for bit. If a check fails, the exit status is 1.
"""

import argparse
import concurrent.futures
import logging
import multiprocessing
import os
import pathlib
import sys
import time

import device
import first_families
import numpy as np
import report

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = (
    "numpy scipy numba cupy-cuda13x cupy-cuda12x nvidia-cuda-nvrtc torch gpytorch jax pytest"
    " pytest-xdist"
).split()


def outcome(name, good, said=""):
    """Print a line; return 1 if the check fails, else 0."""
    print(f"{'ok    ' if good else 'FAILED'} {name}{': ' if said else ''}{said}", flush=True)
    return int(not good)


def tried(name, check):
    """Run ``check()``, which returns (good, text); an error fails."""
    try:
        return outcome(name, *check())
    except Exception as error:
        return outcome(name, False, f"{type(error).__name__}: {str(error)[:300]}")


# --- facts ----------------------------------------------------------------------------------------


def first_array():
    import cupy

    x = cupy.arange(3.0)
    return bool((x + x).get()[2] == 4), "3 numbers there and back"


def moved_model():
    import fastsvgp as fs

    there = fs.to_device(fs.means.ConstantMean(0.0)).value
    return hasattr(there, "__cuda_array_interface__"), "a model's numbers are arrays of the device"


def host_compiler():
    """Whether Numba is of use here: the CPU's kernels, which many tests compare with, need it."""
    import numba

    return True, f"Numba {numba.__version__} with NumPy {np.__version__}"


def facts():
    print(f"{report.machine()}; {report.versions(PACKAGES)}; commit {report.commit()}")
    failed = tried("device", lambda: (True, device.facts()))
    failed += tried("array", first_array) + tried("model", moved_model)
    return failed + tried("CPU kernels", host_compiler)


# --- kernels --------------------------------------------------------------------------------------


def compiled(stem, dtype, architecture):
    """Compile a cubin, or read it from the cache; return its size and the seconds."""
    from fastsvgp.kernels.cuda.common import loader

    began = time.perf_counter()
    size = len(loader.load_cubin(stem, dtype, architecture))
    return f"{size} bytes in {time.perf_counter() - began:.1f} s"


def cubins():
    from fastsvgp.kernels.cuda.common import loader
    from fastsvgp.runtime import cuda_devices

    architecture = cuda_devices.device_facts(cuda_devices.current_device())[0]
    stems = sorted(f.name[:-3] for f in loader.source_folder().iterdir() if f.name.endswith(".cu"))
    jobs, failed, began = [], 0, time.perf_counter()
    # a process that holds a CUDA context must not be forked
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), context) as pool:
        for stem in stems:
            for dtype in ("float64", "float32"):
                jobs.append((f"{stem}, {dtype}", pool.submit(compiled, stem, dtype, architecture)))
        for name, answer in jobs:
            failed += tried(name, lambda a=answer: (True, a.result()))
    print(f"sm_{architecture}: {len(jobs)} cubins in {time.perf_counter() - began:.1f} s")
    return failed


# --- graphs ---------------------------------------------------------------------------------------


def calls(dtype, n):
    """Yield ``(name, function of a matrix with a large diagonal)``; no function waits."""
    import cupy

    from fastsvgp import kernels
    from fastsvgp.kernels.cuda.common import blas
    from fastsvgp.runtime import deferred_checks

    def potrf(A):
        return blas.potrf(A.copy(), cupy.empty(1, np.int32))

    def cholesky(A):
        with deferred_checks.deferred(A) as checks:
            L = kernels.cholesky(A)
            return cupy.concatenate([L.ravel(), checks.report(L[0, 0]).astype(L.dtype)])

    yield "potrf of cuSOLVER", potrf
    yield "cholesky", cholesky
    yield "trsm of cuBLAS", lambda A: blas.solve(cupy.tril(A), A.copy())
    yield "gemm of cuBLAS", lambda A: blas.gemm(A, A, cupy.empty(A.shape, A.dtype))
    for words, axis in (("", None), (" of columns", 0), (" of rows", 1)):
        yield f"sum{words} by CuPy", lambda A, axis=axis: A.sum(axis, dtype=np.float64)
        yield f"largest{words} by CuPy", lambda A, axis=axis: A.max(axis)
    yield "newton_schulz_step", lambda A: kernels.newton_schulz_step(A, cupy.tril(A) / n, 0.5)
    yield "inverse_triangular", lambda A: kernels.inverse_triangular(cupy.tril(A))


def replayed(call, dtype, n):
    """Capture a call, and compare two replays with ordinary calls."""
    import cupy

    from fastsvgp.kernels.cuda.common import graphs

    A = first_families.numbers(n, n, dtype=dtype)
    A = (A + A.T) / 2 + n * cupy.eye(n, dtype=dtype)
    recorded, differing = graphs.Recorded(lambda: call(A)), []
    recorded()
    for replay in range(2):
        A *= 1.5  # the graph reads the new numbers
        if not cupy.array_equal(recorded(), call(A)):
            differing.append(str(replay + 1))
    return not differing, f"replay {' and '.join(differing)} differs" if differing else "replayed"


def training(small):
    """Train with and without graphs; a step must be one graph, and the losses equal."""
    import fastsvgp as fs

    heard = logging.Handler()
    said, heard.emit = [], lambda record: said.append(record.getMessage())
    log = logging.getLogger("fastsvgp")
    log.addHandler(heard)
    try:
        M = 20 if small else 300
        p, losses = first_families.step_problem(M, 2 * M), []
        q = fs.Whitened(p["mean"], p["scale_tril"])
        covariance = fs.RBF(p["variance"], p["lengthscales"])
        model = fs.to_device(fs.SVGP(covariance, p["Z"], q, fs.Gaussian(p["noise"])))
        for graph in (True, False):
            given = {"steps": 6, "batch_size": M, "rng": 0, "jitter": 1e-6, "graph": graph}
            losses.append(fs.fit(model, p["X"], p["y"], **given)[1].values)
    finally:
        log.removeHandler(heard)
    captured = not any("cannot be captured" in text for text in said)
    equal = np.array_equal(*losses)
    return captured and equal, "; ".join(said or ["one graph"] if equal else ["losses differ"])


def captures(small):
    failed, n = 0, 40 if small else 1000
    for dtype in ("float64", "float32"):
        for name, call in calls(dtype, n):
            failed += tried(f"{name}, {dtype}", lambda c=call, d=dtype: replayed(c, d, n))
    return failed + tried("steps of fit", lambda: training(small))


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", choices=("facts", "cubins", "captures"))
    parser.add_argument("--small", action="store_true", help="tiny arrays: a test that it runs")
    args = parser.parse_args(arguments)
    if device.REASON:
        parser.error(device.REASON)
    checks = {"facts": facts, "cubins": cubins, "captures": lambda: captures(args.small)}
    return int(checks[args.check]() > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
