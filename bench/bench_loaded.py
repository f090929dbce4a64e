"""Time a training step alone, beside busy processes, and in turns with another thread pool.

    python bench/bench_loaded.py                  # one Markdown table: about five minutes
    python bench/bench_loaded.py --sizes 512,1024 --seconds 5

Value and all gradients of a whitened SVGP, D = 8, ARD RBF, float64. Busy: processes that only
count. In turns: a product of two 400 x 400 matrices between two steps, by NumPy, whose OpenBLAS is
not SciPy's, and by JAX and PyTorch if they are installed.
"""

import argparse
import contextlib
import multiprocessing
import shlex
import sys
import time

import numpy as np
import report
from problems import step_problem

import fastsvgp as fs
from fastsvgp.kernels.cpu.common.contention import crowd

SIZES = "100,256", "200,500", "512,1024", "512,4096", "1000,1000"
OTHERS = 400


def count():
    """Keep a process busy."""
    number = 0
    while True:
        number += 1


@contextlib.contextmanager
def busy(number):
    """Run a ``with`` block beside ``number`` busy processes."""
    processes = [
        multiprocessing.get_context("spawn").Process(target=count, daemon=True)
        for _ in range(number)
    ]
    for process in processes:
        process.start()
    time.sleep(1.0 if number else 0.0)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def step_of(M, B):
    """Return the step as a function without arguments."""
    p = step_problem(M, B)
    q = fs.Whitened(p["mean"], p["scale_tril"])
    model = fs.SVGP(
        fs.RBF(p["variance"], p["lengthscales"]), p["Z"], q, fs.Gaussian(variance=p["noise"])
    )
    return lambda: fs.elbo_and_grad(model, p["X"], p["y"], num_data=10.0 * B, jitter=1e-6)


def products():
    """Return ``{program: its matrix product}``."""
    A = np.random.default_rng(0).standard_normal((OTHERS, OTHERS))
    found = {"NumPy": lambda: A @ A}
    with contextlib.suppress(ImportError):
        import torch

        there = torch.as_tensor(A)
        found["PyTorch"] = lambda: there @ there
    with contextlib.suppress(ImportError):
        import jax

        jax.config.update("jax_enable_x64", True)
        here = jax.numpy.asarray(A)
        found["JAX"] = lambda: jax.block_until_ready(here @ here)
    return found


def times_of(step, seconds, between=lambda: None):
    """Return the seconds of each of at least 20 steps, taken as in a training loop."""
    crowd.__init__()  # forget the contention detected in the last row
    step()
    found, end = [], time.perf_counter() + seconds
    while len(found) < 20 or time.perf_counter() < end:
        between()
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return found


def measure(M, B, seconds):
    """Return ``[(row, times)]``, the rows without load first."""
    step, found = step_of(M, B), []
    for number in (0, 1, 2):
        with busy(number):
            found.append(
                ((f"{number} busy processes" if number else "alone"), times_of(step, seconds))
            )
    found += [
        (f"in turns with {program}", times_of(step, seconds, product))
        for program, product in products().items()
    ]
    return found


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="M,B")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each row")
    args = parser.parse_args(arguments)
    command = shlex.join(["python", "bench/bench_loaded.py", *arguments])
    print(report.header(command, report.PACKAGES, None, report.computing()), end="\n\n")
    print(
        "| M, B | beside | steps | median ms | p99 ms | median / alone | p99 / alone |\n|"
        + " --- |" * 7
    )
    for size in args.sizes:
        M, B = map(int, size.split(","))
        alone = None
        for what, times in measure(M, B, args.seconds):
            middle, worst = 1e3 * np.median(times), 1e3 * np.quantile(times, 0.99)
            alone = alone or (middle, worst)
            ratios = f"{middle / alone[0]:.2f} | {worst / alone[1]:.2f}"
            print(
                f"| {M}, {B} | {what} | {len(times)} | {middle:.3g} | {worst:.3g} | {ratios} |",
                flush=True,
            )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
