"""Measure the work of the host in a training step on a GPU, without a GPU.

    tests/cuda/on_standin.sh WORKDIR -k nothing      # builds the stand-in driver; see there
    FAKE_NOOP=1 python bench/host_time.py            # with WORKDIR/settings; writes host_time.md

The work is launches, library calls, copies, and host time. The nodes are what a graph of the step
consists of, with a library call as one node. The real CuPy runs over a stand-in for
CUDA's driver that does nothing, so only Python, CuPy and fastsvgp take time. Time is CPU time of
this thread: median and best of 300 steps.
"""

import pathlib
import sys
import time

import numpy as np
import report
from problems import step_problem

NODES = "launches", "blas", "solver", "d2d", "memset"
HERE = pathlib.Path(__file__).resolve().parent
STEPS, SIZES = 300, [(1000, 1000)]
COUNTED = {
    "launches": "kernels",
    "blas": "cuBLAS",
    "solver": "cuSOLVER",
    "d2d": "copies",
    "memset": "fills",
    "d2h": "to the host",
    "h2d": "to the device",
}


def measured(counts, step):
    """Return the counts of one step, and seconds of the host: median and best."""
    for _ in range(3):
        step()
    before = counts()
    step()
    after, times = counts(), []
    for _ in range(STEPS):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return [after[name] - before[name] for name in COUNTED], np.median(times), min(times)


def training(fs, counts, model, X, y, B, graph):
    """Return the same for a step of ``fit``, from one callback to the next."""
    seen = []
    fs.fit(model, X, y, steps=STEPS + 10, batch_size=B, rng=0, jitter=1e-6, graph=graph,
           callback=lambda *_: seen.append((time.thread_time(), counts())))  # fmt: skip
    (_, before), (_, after) = seen[-2:]
    times = np.diff([moment for moment, _ in seen])[9:]
    return [after[name] - before[name] for name in COUNTED], np.median(times), min(times)


def main():
    try:
        import cuda_host.standin  # noqa: F401, which completes the stand-in
        import fakegpu
    except ImportError as error:
        raise SystemExit(
            f"host_time.py needs the stand-in driver ({error}); its first lines say how it is built"
        ) from error
    import cupy

    import fastsvgp as fs
    from fastsvgp.runtime import deferred_checks

    fakegpu.compute(False)
    # nothing has been computed
    deferred_checks.outcome = lambda found: (0.0 * len(found.tolist()), 0)
    table = [["step", *COUNTED.values(), "nodes", "host, median", "best"]]
    for M, B in SIZES:
        p = step_problem(M, B)
        X, y = cupy.asarray(p["X"]), cupy.asarray(p["y"])
        covariance, posterior = (
            fs.RBF(p["variance"], p["lengthscales"]),
            fs.Whitened(p["mean"], p["scale_tril"]),
        )
        model = fs.to_device(fs.SVGP(covariance, p["Z"], posterior, fs.Gaussian(p["noise"])))
        step = lambda m=model, X=X, y=y, B=B: fs.elbo_and_grad(  # noqa: E731
            m, X, y, num_data=10.0 * B, jitter=1e-6
        )
        rows = {"elbo_and_grad": measured(fakegpu.counts, step)}
        N = 10 * B
        data = cupy.asarray(np.resize(p["X"], (N, X.shape[1]))), cupy.asarray(np.resize(p["y"], N))
        for words, graph in (
            ("a step of fit, not captured", False),
            ("a step of fit, one graph", True),
        ):
            rows[words] = training(fs, fakegpu.counts, model, *data, B, graph)
        for words, (numbers, median, best) in rows.items():
            row = [
                f"{words}, M = {M}, B = {B}",
                *map(str, numbers),
                str(sum(n for name, n in zip(COUNTED, numbers, strict=True) if name in NODES)),
                report.duration(median),
                report.duration(best),
            ]
            table.append(row)
            print(" | ".join(row), flush=True)
    head = report.header(
        "FAKE_NOOP=1 python bench/host_time.py", packages=("numpy", "cupy-cuda13x", "cupy")
    )
    legend = (
        "A whitened SVGP: value and all gradients, and steps of `fs.fit` by Adam on rows of data"
        " that are on the device. The real\nCuPy runs over a driver that does nothing: these times"
        " include no GPU, and the launch of a graph costs nothing. Nodes: kernels, library calls,\n"
        "copies and fills on the device, of which a graph of the step consists; cuSOLVER's"
        " Cholesky factor counts as one."
    )
    path = HERE / "results" / "host_time.md"
    path.write_text(
        f"# host_time\n\n{head}\n\n{legend}\n\n{report.markdown(table)}\n", encoding="utf-8"
    )
    print(path)


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]
    main()
