"""Time special-case code paths against the general ones, in pairs.

    python bench/pairs.py               # writes bench/results/pairs.md
    python bench/pairs.py --repeats 5 --out FILE

Both run in turn in one process, on one thread and on two.
"""

import argparse
import pathlib
import shlex
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests"), str(ROOT)]

import numpy as np  # noqa: E402
import report  # noqa: E402
from problems import step_problem  # noqa: E402

import fastsvgp as fs  # noqa: E402
from fastsvgp.bounds import small_step  # noqa: E402
from fastsvgp.posteriors.whitening import common_cotangents, summed_variances  # noqa: E402

ABOUT = "Medians; float64, D = 8, Gaussian noise. Ratio: the median of those of neighbouring calls."
TITLES = {
    "compiled": "A step of a small whitened model in three compiled calls, against the passes",
    "natural": "A natural step of a small whitened model in compiled calls, against the passes",
    "common": "A step of P whitened outputs: sums for all, against products of each",
    "summed": "A natural step: the sum of the variances, against each of them",
}
# what switches the way off, and its sizes M, B, P
SWITCHES = {
    "compiled": (small_step, "MOST", 0),
    "natural": (small_step, "MOST", 0),
    "common": (common_cotangents, "LEAST", np.inf),
    "summed": (summed_variances, "SUMMED_FROM", np.inf),
}
SIZES = {
    "compiled": ((4, 8, 1), (20, 100, 1), (100, 256, 1), (200, 1000, 1), (256, 1024, 1)),
    "natural": ((4, 8, 1), (20, 100, 1), (100, 256, 1), (150, 600, 1)),
    "common": ((100, 500, 3), (512, 1024, 10), (256, 8192, 10)),
    "summed": ((256, 400, 1), (512, 1024, 1), (1000, 2000, 1), (256, 8192, 1), (256, 8192, 10)),
}


def call_of(way, M, B, P):
    """Return the function to time."""
    p, rng = step_problem(M, B), np.random.default_rng(1)
    X, Y, q = p["X"], p["y"], fs.Whitened(p["mean"], p["scale_tril"])
    if P > 1:
        trils = p["scale_tril"] * rng.uniform(0.5, 1.5, (P, 1, 1))
        Y, q = rng.standard_normal((B, P)), fs.Whitened(rng.standard_normal((P, M)), trils)
    covariance = fs.RBF(p["variance"], p["lengthscales"])
    model = fs.SVGP(covariance, p["Z"], q, fs.Gaussian(p["noise"]))
    if way in ("summed", "natural"):
        return lambda: fs.natural_step(model, X, Y, step_size=0.5)
    return lambda: fs.elbo_and_grad(model, X, Y)


def pair(way, size, repeats):
    """Return the median times of both ways, and the median of their ratios."""
    module, name, off = SWITCHES[way]
    on, call, times = getattr(module, name), call_of(way, *size), []
    try:
        for _ in range(repeats + 1):
            both = []
            for setting in (on, off):
                setattr(module, name, setting)
                start = time.perf_counter()
                call()
                both.append(time.perf_counter() - start)
            times.append(both)
    finally:
        setattr(module, name, on)
    fast, general = np.transpose(times[1:])  # the first calls compile
    return np.median(fast), np.median(general), np.median(fast / general)


def table(way, repeats):
    """Return a table in Markdown."""
    threads = sorted({1, min(2, fs.get_num_threads())})
    rows = [["M, B, P"]]
    for n in threads:
        rows[0] += [f"{n} thread{'s' * (n > 1)}", "general", "ratio"]
    for size in SIZES[way]:
        rows.append([", ".join(map(str, size))])
        for n in threads:
            fs.set_num_threads(n)
            fast, general, ratio = pair(way, size, repeats * (1 if max(size) > 500 else 10))
            rows[-1] += [*map(report.duration, (fast, general)), f"{ratio:.2f}"]
        fs.set_num_threads(threads[-1])
    return report.markdown(rows)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/pairs.md")
    args = parser.parse_args(argv)
    command = shlex.join(["python", "bench/pairs.py", *(sys.argv[1:] if argv is None else argv)])
    parts = ["# pairs", report.header(command, blas=report.computing()), ABOUT]
    for way, title in TITLES.items():
        parts += [f"## {title}", table(way, args.repeats)]
    args.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(args.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
