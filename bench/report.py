"""Write tables of pytest-benchmark in Markdown, headed by machine, versions and command."""

import datetime
import os
import pathlib
import platform
import subprocess
import textwrap
from importlib.metadata import PackageNotFoundError, version

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = "numpy", "scipy", "numba", "fastsvgp"
PEERS = {"paths": ("torch", "gpytorch", "botorch")}  # of a table with a column for a peer
HOST = """
Floor: the time of the best known algorithm, that is, its flops at the rate of `scipy.linalg.blas`
gemm on (M, M) times (M, B), or the bytes that it must move at the rate of a plain copy. Both rates
are measured between the timed calls. The ratios are median over median, and best over the lowest
floor. Peak extra: the memory of one call beyond its inputs, including its results; for a training
step the unit is M² + M B numbers.
"""
DEVICE = """
A row is the time of one call on one GPU, including the synchronisation. Floor: the flops of the
best known algorithm at the rate of a cuBLAS product (`cupy.matmul`; the source of the benchmark
states its shape), with random features also the time of their cosines and sines in registers; or
the bytes that it must move at the rate of a copy within the device's memory, or of `cudaMemset` if
it only writes. The reference of the floor is timed between the calls: 20 launches with one
synchronisation, best of five. The ratios are median over median, and best over the lowest floor.
Peak extra: the memory that CuPy's pool takes from the device during one call.
"""
PATHS = """
64 functions, 1024 random features that all share or own ones of each, 512 inducing inputs, D = 8,
float64, one thread. Times are CPU seconds of the process, on a machine with other work. Floor: the
products of the weights with features and covariances alone, as one gemm of SciPy's BLAS. Peer:
BoTorch with the same q and as many shared features, without autograd's graph where no gradient is
asked for; peer and floor are timed between the calls, and ratios are median over median. Peak
extra: the memory of one call beyond its inputs, including its results; the unit is 2^21 numbers,
without the results.
"""
OF_TABLE = {"paths": PATHS}  # instead of ``HOST``
ERROR = (
    "Error: the largest error of value and gradients, each scaled by its largest entry (or 1),"
    " against a more accurate answer."
)


def commit():
    """Return the commit of the checkout; without git ``FASTSVGP_COMMIT``, or else "unknown".

    A mark is added if files other than tables have changed since the commit.
    """
    try:
        ask = dict(cwd=HERE, capture_output=True, text=True, check=True)
        name = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **ask).stdout.strip()
        status = [
            "git",
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ":/",
            ":(exclude)results",
        ]
        changed = subprocess.run(status, **ask).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("FASTSVGP_COMMIT") or "unknown"
    return name + (" (changed since)" if changed else "")


def versions(packages):
    found = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            pass
    return ", ".join(found)


def machine():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    visible = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {visible} cores visible, {platform.system()}"


def computing():
    """Return SciPy's BLAS, its kernels for this CPU, and the number of threads of this process."""
    from fastsvgp.cli import info

    return f"BLAS {info.blas()}; threads: {info.threads()}"


def header(command, packages=PACKAGES, device=None, blas=None):
    """Return machine, versions, commit, time and command.

    ``device`` is the result of ``device.facts()``, ``blas`` that of ``computing()``.
    """
    now = datetime.datetime.now(datetime.UTC)
    there = "".join(f"{facts};\n" for facts in (blas, device) if facts)
    return (
        f"{machine()}; {versions(packages)};\n{there}commit {commit()}; {now:%Y-%m-%dT%H:%M}"
        f" UTC.\n`{command}`"
    )


def duration(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def size(count):
    for unit, amount in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= amount:
            return f"{count / amount:.3g} {unit}"
    return f"{count:.0f} B"


COLUMNS = (
    ("median", lambda s, e: duration(s["median"])),
    ("quartiles", lambda s, e: f"{duration(s['q1'])} – {duration(s['q3'])}"),
    ("best", lambda s, e: duration(s["min"])),
    ("floor", lambda s, e: duration(e["floor"])),
    ("median / floor", lambda s, e: f"{e['ratio']:.2f}"),
    ("best / floor", lambda s, e: f"{e['ratio_best']:.2f}"),
    ("peer", lambda s, e: duration(e["peer"])),
    ("median / peer", lambda s, e: f"{e['of_peer']:.3f}"),
    ("gemm", lambda s, e: f"{e['gemm_rate'] / 1e9:.0f} GFLOP/s"),
    ("peak extra", lambda s, e: size(e["peak_extra"])),
    ("/ unit", lambda s, e: f"{e['peak_units']:.2f}"),
    ("error", lambda s, e: f"{e['error']:.1e}"),
)


def rows(data):
    """Return the table as lists of strings, header first, without empty columns."""
    table = [["benchmark", *(name for name, _ in COLUMNS)]]
    for b in data["benchmarks"]:
        row = [b["name"].removeprefix("bench_")]
        for _, show in COLUMNS:
            try:
                row.append(show(b["stats"], b["extra_info"]))
            except KeyError:
                row.append("")
        table.append(row)
    keep = [i for i in range(len(table[0])) if any(row[i] for row in table[1:])]
    return [[row[i] for i in keep] for row in table]


def markdown(table):
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + " --- |" * len(table[0]), *lines[1:]])


def document(data, name, command, device=None, failed=(), runs=1):
    """Return the file of a table.

    ``data`` is the JSON of pytest-benchmark; ``failed`` names missing rows and their reasons.
    """
    words = DEVICE if device else OF_TABLE.get(name, HOST)
    best = f"Each row comes from the one of {runs} runs with its lowest floor"
    chosen = [f"{best} (or median, without one)."] * (runs > 1)
    legend = textwrap.fill(" ".join([words.strip(), ERROR, *chosen]), 130)
    packages = *PACKAGES, *PEERS.get(name, ())
    head = header(
        command, packages, device=device, blas=data.get("machine_info", {}).get("computing")
    )
    missing = "".join(f"\nMissing: {row}\n" for row in failed)
    return f"# {name}\n\n{head}\n\n{legend}\n\n{markdown(rows(data))}\n{missing}"
