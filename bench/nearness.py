"""Compare trainings on several ranks with one process: ``python bench/nearness.py``.

The trainings are 200 steps of Adam, of natural steps, and of rounds of both, for a Gaussian and a
softmax problem, from a q(u) different from the prior and from the prior; and 20 iterations of
L-BFGS on an SGPR, compared with one process whose rows are in another order. The table has the
largest difference between two models, over seeds, and the cost of the draws of a deep GP. Groups
are threads, which sum like processes. Writes bench/results/nearness.md.
"""

import argparse
import pathlib
import time

import numpy as np
import report

import fastsvgp as fs

HERE = pathlib.Path(__file__).resolve().parent
N, D, M = 53, 2, 6
WAYS = {
    "Adam": {},
    "natural steps": {"natural_step_size": 0.1},
    "rounds of both": {"natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
}


def problem(seed, likelihood, outputs, off):
    """Return ``(model, X, Y)``, with q(u) different from or equal to the prior."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, D))
    Y = rng.integers(0, 3, N) if outputs else np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    mean = np.broadcast_to(off * np.linspace(-0.5, 0.5, M), (*outputs, M)).copy()
    q = fs.Whitened(mean, np.broadcast_to((1 - 0.2 * off) * np.eye(M), (*outputs, M, M)).copy())
    return fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, likelihood), X, Y


def distance(one, other):
    pairs = zip(fs.records.leaves(one), fs.records.leaves(other), strict=True)
    return max(
        float(np.max(np.abs(np.subtract(a, b)))) for (_, _, a), (_, _, b) in pairs if a is not None
    )


def of_ranks(size, function):
    return fs.distributed.threads(size).run(lambda group: function(group=group)[0])[0]


def rows(seeds):
    for off in (1, 0):
        softmax = fs.Softmax(num_classes=3, num_samples=16)
        for name, likelihood, outputs in (
            ("Gaussian", fs.Gaussian(0.1), ()),
            ("softmax", softmax, (3,)),
        ):
            for way, options in WAYS.items():
                found = []
                for seed in range(seeds):
                    model, X, Y = problem(seed, likelihood, outputs, off)

                    def train(model=model, X=X, Y=Y, options=options, **group):
                        return fs.fit(
                            model, X, Y, steps=200, batch_size=17, rng=5, **options, **group
                        )

                    one = train()[0]
                    found += [distance(of_ranks(size, train), one) for size in (2, 3)]
                start = "off the prior" if off else "at the prior"
                yield f"{name}, {way}, {start}", "2 and 3 ranks", min(found), max(found)
    found, shuffled = [], []
    for seed in range(seeds):
        model, X, Y = problem(seed, fs.Gaussian(0.1), (), 1)
        sgpr, order = (
            fs.SGPR(model.covariance, model.inducing, 0.3),
            np.random.default_rng(seed).permutation(N),
        )

        def search(sgpr=sgpr, X=X, Y=Y, **group):
            return fs.fit(sgpr, X, Y, steps=20, **group)

        one = search()[0]
        found.append(distance(of_ranks(3, search), one))
        shuffled.append(distance(search(X=X[order], Y=Y[order])[0], one))
    yield "SGPR, 20 iterations of L-BFGS", "3 ranks", min(found), max(found)
    yield "the same", "one process, rows in another order", min(shuffled), max(shuffled)


def drawing():
    """Return the nanoseconds per standard normal number."""
    rng, times = np.random.default_rng(0), []
    for _ in range(20):
        started = time.perf_counter()
        rng.standard_normal((4096, 8))
        times.append((time.perf_counter() - started) / (4096 * 8))
    return 1e9 * float(np.median(times))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--results", default=HERE / "results", type=pathlib.Path)
    args = parser.parse_args()
    lines = [
        "# nearness",
        "",
        report.header("python bench/nearness.py", blas=report.computing()),
        "",
    ]
    lines += [
        (
            "The largest difference between the numbers of two models: least and most over"
            f" {args.seeds} seeds."
        ),
        "",
    ]
    lines += ["| training | on | least | most |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {where} | {least:.1e} | {most:.1e} |"
        for what, where, least, most in rows(args.seeds)
    ]
    lines += ["", f"A standard normal number takes {drawing():.0f} ns to draw."]
    text = "\n".join(lines) + "\n"
    (args.results / "nearness.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
