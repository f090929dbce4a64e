"""Time the parts of a step on several ranks, and predict clusters: ``python bench/scaling.py``.

The script starts itself by ``mpiexec`` with 1, 2 and 4 ranks of one thread each. It needs mpi4py
and an MPI (``pip install mpi4py mpich``), and writes bench/results/scaling.md. A step is
``elbo_and_grad`` of a Whitened posterior, P = 1, D = 8, with all gradients. Its parts on a rank are
the pass on its rows; packing, with the fingerprint of the parameters, and unpacking; waiting for
the slowest rank; and the all-reduce. The time of a step is that of its slowest rank; all times are
medians over steps.

The model is T = F(M, B / R) / rate + 4 log2(R) alpha + 2 (R - 1) / R bytes / bandwidth, with F the
flops of a step, whose ranks meet and then sum; its rate is that of one rank here, its alpha and
bandwidth those of all-reduces of 8 bytes and of the buffer over the ranks of this host, or of a
named network with assumed figures.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import report

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
SIZES = (1000, 1000), (1000, 2000), (1000, 4000), (512, 2048), (512, 4096)
RANKS, FAR = (1, 2, 4), (8, 32, 128, 512, 1024)
STEPS, WARM = 12, 3
PREDICTED = (
    ("Whitened", 512, 1000),
    ("Whitened", 1000, 1000),
    ("LikelihoodForm", 1000, 1000),
    ("Whitened", 4000, 1000),
)
STRONG = 64_000  # rows of a batch
# alpha, bytes per second: assumed
NETWORKS = {"10 Gb/s Ethernet": (30e-6, 1.1e9), "200 Gb/s InfiniBand": (2e-6, 2e10)}


def flops(M, B):
    """Return the flops of a step with a Whitened posterior and all gradients."""
    return min(4 * B + 14 / 3 * M, 5 * B + 10 / 3 * M, 6 * B + 4 / 3 * M) * M * M


# --- on every rank --------------------------------------------------------------------------------


def work(steps):
    """Measure on this rank; rank 0 prints."""
    import numpy as np

    import fastsvgp as fs
    from fastsvgp.distributed import buffers, protocol, reduce

    group = fs.distributed.mpi()
    spent = dict.fromkeys(("pack", "wait", "sum"), 0.0)

    def timed(part, function):
        def call(*arguments):
            started = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                spent[part] += time.perf_counter() - started

        return call

    class Timed:
        rank, size, rows, broadcast = group.rank, group.size, "all", group.broadcast

        def sum(self, buffer):
            timed("wait", group.comm.Barrier)()
            timed("sum", group.sum)(buffer)

    buffers.Packing.unpack = timed("pack", buffers.Packing.unpack)
    plain, reduce.fingerprint = buffers.Packing.pack, timed("pack", reduce.fingerprint)
    all_reduce = protocol.Communicator.all_reduce

    def counted_once(self, *arguments):
        buffers.Packing.pack = timed("pack", plain)  # already counted in a fingerprint
        try:
            return all_reduce(self, *arguments)
        finally:
            buffers.Packing.pack = plain

    protocol.Communicator.all_reduce = counted_once
    mine = Timed()
    for M, B in SIZES:
        rng = np.random.default_rng(0)
        X, Y = rng.standard_normal((B, 8)), rng.standard_normal(B)
        q = fs.Whitened(0.1 * rng.standard_normal(M), np.eye(M))
        model = fs.SVGP(
            fs.RBF(1.0, np.full(8, 3.0)), rng.standard_normal((M, 8)), q, fs.Gaussian(0.1)
        )
        rows = []
        for _ in range(steps + WARM):
            spent.update(dict.fromkeys(spent, 0.0))
            group.comm.Barrier()
            started = time.perf_counter()
            fs.elbo_and_grad(model, X, Y, num_data=10 * B, group=mine)
            total = time.perf_counter() - started
            rows.append([total, total - sum(spent.values()), *spent.values()])
        ours = np.median(rows[WARM:], axis=0)
        numbers = 1 + M * (M + 1) // 2 + M + M * 8 + 10
        bare = {}
        for name, count in (("alpha", 1), ("buffer", numbers)):
            buffer, times = np.zeros(count), []
            for _ in range(50):
                group.comm.Barrier()
                started = time.perf_counter()
                group.sum(buffer)
                times.append(time.perf_counter() - started)
            bare[name] = float(np.median(times))
        everyone = np.array(group.comm.allgather(ours))
        if group.rank == 0:
            slowest = dict(
                zip(
                    ("step", "compute", "pack", "wait", "sum"),
                    map(float, everyone.max(axis=0)),
                    strict=True,
                )
            )
            print(
                json.dumps(
                    {"M": M, "B": B, "ranks": group.size, "bytes": 8 * numbers} | slowest | bare
                ),
                flush=True,
            )


# --- the table ------------------------------------------------------------------------------------


def measured(steps):
    beside = pathlib.Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise SystemExit("mpiexec not found: pip install mpi4py mpich")
    one = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    rows = []
    for count in RANKS:
        command = [
            launcher,
            "-n",
            str(count),
            sys.executable,
            "-m",
            "mpi4py",
            __file__,
            "--work",
            "--steps",
            str(steps),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | one
        )
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return rows


def predicted(row, M, B, count):
    """Predict the seconds of a step from the rate, the network and the bytes of a row."""
    network = (
        4 * math.log2(count) * row["latency"]
        + 2 * (count - 1) / count * row["bytes"] / row["bandwidth"]
    )
    return flops(M, B / count) / row["rate"] + network


def tables(rows):
    yield (
        "| M | B | ranks | step ms | compute | packing | waiting | sum | packing + sum | predicted"
        " ms | speed-up | efficiency |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    alone = {(row["M"], row["B"]): row for row in rows if row["ranks"] == 1}
    for row in rows:
        one = alone[row["M"], row["B"]]
        row["rate"] = flops(row["M"], row["B"]) / one["compute"]
        if row["ranks"] > 1:
            row["latency"] = row["alpha"] / (2 * math.log2(row["ranks"]))
            row["bandwidth"] = 2 * (row["ranks"] - 1) / row["ranks"] * row["bytes"] / row["buffer"]
        guess = (
            f"{1e3 * predicted(row, row['M'], row['B'], row['ranks']):.1f}"
            if row["ranks"] > 1
            else "-"
        )
        gain = one["step"] / row["step"]
        share = (row["pack"] + row["sum"]) / row["step"]
        parts = " | ".join(
            f"{1e3 * row[name]:.2f}" for name in ("step", "compute", "pack", "wait", "sum")
        )
        what = f"| {row['M']} | {row['B']} | {row['ranks']}"
        yield (
            f"{what} | {parts} | {100 * share:.1f} % | {guess} | {gain:.2f} |"
            f" {gain / row['ranks']:.2f} |"
        )
    yield ""
    yield (
        "Measured weak scaling (rows grow with the ranks): the time of one rank with its rows over"
        " that of all ranks."
    )
    yield ""
    yield "| M | rows per rank | ranks | one rank ms | all ms | efficiency |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        one = alone.get((row["M"], row["B"] // row["ranks"]))
        if one is not None and 1 < row["ranks"] <= os.cpu_count():
            each = (
                f"{row['B'] // row['ranks']} | {row['ranks']} | {1e3 * one['step']:.2f} |"
                f" {1e3 * row['step']:.2f}"
            )
            yield f"| {row['M']} | {each} | {one['step'] / row['step']:.2f} |"
    yield ""
    yield from predictions({row["M"]: row for row in rows if row["ranks"] == 2})


def predictions(of_two):
    """Predict clusters from the rate and the network of two ranks here, per M at its last batch."""
    yield (
        "Predicted weak scaling (rows grow with the ranks): efficiency, the time of one rank over"
        " that of R ranks with R B"
    )
    yield (
        "rows. The rate and the network of this host are measured; the other networks are assumed."
        " For M = 4000 the rate is"
    )
    yield (
        "that of M = 1000. A LikelihoodForm sends 2 M numbers instead of M (M + 3) / 2; the flops"
        " are those of a Whitened posterior."
    )
    yield ""
    far = " | ".join(f"R = {count}" for count in FAR)
    yield (
        "| posterior | M | rows per rank | GFLOP/s per rank | network | alpha us | bandwidth GB/s |"
        f" {far} |"
    )
    yield "|---" * (7 + len(FAR)) + "|"
    for posterior, M, B in PREDICTED:
        for name, row in networks(of_two[min(M, 1000)], posterior, M):
            figures = [
                predicted(row, M, B, 1) / predicted(row, M, B * count, count) for count in FAR
            ]
            yield line(posterior, M, B, name, row, figures)
    yield ""
    yield (
        "Predicted strong scaling (a fixed batch is split): speed-up over one rank. It is limited"
        " by the M^3 work of every"
    )
    yield "rank."
    yield ""
    yield (
        f"| posterior | M | rows | GFLOP/s per rank | network | alpha us | bandwidth GB/s | {far} |"
    )
    yield "|---" * (7 + len(FAR)) + "|"
    for M in (1000, 4000):
        for name, row in networks(of_two[1000], "Whitened", M):
            figures = [
                predicted(row, M, STRONG, 1) / predicted(row, M, STRONG, count) for count in FAR
            ]
            yield line("Whitened", M, STRONG, name, row, figures)


def networks(row, posterior, M):
    """Yield ``(name, row)`` per network, measured and assumed, with the bytes of this posterior."""
    row = row | {
        "bytes": (
            8 * (2 * M if posterior == "LikelihoodForm" else M * (M + 3) // 2) + 8 * (8 * M + 16)
        )
    }
    yield "this host", row
    for name, (latency, bandwidth) in NETWORKS.items():
        yield name, row | {"latency": latency, "bandwidth": bandwidth}


def line(posterior, M, B, name, row, figures):
    about = (
        f"{1e-9 * row['rate']:.0f} | {name} | {1e6 * row['latency']:.1f} |"
        f" {1e-9 * row['bandwidth']:.1f}"
    )
    return (
        f"| {posterior} | {M} | {B} | {about} |"
        f" {' | '.join(f'{figure:.{2 if figure < 2 else 0}f}' for figure in figures)} |"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--results", default=HERE / "results", type=pathlib.Path)
    args = parser.parse_args()
    if args.work:
        return work(args.steps)
    rows = measured(args.steps)
    lines = [
        "# scaling",
        "",
        report.header(
            "python bench/scaling.py",
            (*report.PACKAGES, "mpi4py", "mpich"),
            blas=report.computing(),
        ),
        "",
        (
            "One thread per rank, all on one host; more ranks than cores share the cores, and wait"
            " for each other. Load average at the end, including these ranks:"
            f" {os.getloadavg()[0]:.2f}."
        ),
        "",
        *tables(rows),
    ]
    text = "\n".join(lines) + "\n"
    (args.results / "scaling.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
