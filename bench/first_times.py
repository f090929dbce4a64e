"""Measure the rates of a GPU, and single calls of each kernel against their floors, in minutes.

    python bench/first_times.py                     # into bench/results/first_times_cuda.md
    python bench/first_times.py --small             # tiny arrays, seconds: a test that it runs
    python bench/first_times.py pairwise chevron    # some families of kernels
    python bench/first_times.py --results FOLDER    # into another folder

The table has four times of each call, in microseconds. Graph: only the kernels, replayed from a
CUDA graph; "-" if a call waits for the device, or cannot be captured. Back to back: consecutive
calls on the device, by its clock. Wall: one call including synchronisation. Host: the time of
Python and CuPy to launch one call. The floor is the minimal time of the flops, bytes or
instructions of a call at the rates above the table; the ratio is that of the first time, or else
the second, to the floor. Error: the largest difference from plain formulas in float64, scaled by
the largest entry (or 1); of a training, the difference of its losses from those without graphs.

The table is written after each family and dtype, to ``first_times_cuda.md``, and its numbers to
``first_times_cuda.json``; with some families the names end in theirs. If an error exceeds
``WORST``, or a call fails, the exit status is 1.
"""

import argparse
import json
import pathlib
import sys
import time

import device
import first_families
import numpy as np
import report

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = "float64", "float32"
WORST = {"float64": 1e-6, "float32": 1e-2}  # as in measure.py
HEADER = ["call", "graph, µs", "back to back", "wall", "host", "floor", "ratio", "error"]
NAME = "first_times_cuda"
SECONDS = 0.2  # of the calls that one time is the mean of


# --- times and rates ------------------------------------------------------------------------------


def elapsed(call, count):
    """Return the seconds per call on the device, over ``count`` consecutive calls."""
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    for _ in range(count):
        call()
    stop.record()
    stop.synchronize()
    return cupy.cuda.get_elapsed_time(start, stop) / count / 1e3


def best(call, count, repeats=3):
    return min(elapsed(call, count) for _ in range(repeats))


def times(call, waits=False, most=200):
    """Return the seconds of one call: ``(graph or None, back to back, wall, host)``.

    Each is of up to ``most`` calls.
    """
    import cupy

    stream, repeats = cupy.cuda.get_current_stream(), min(3, most)
    call()
    stream.synchronize()
    count = int(min(most, max(5, SECONDS / max(elapsed(call, repeats), 1e-6))))
    back, walls = best(call, count, repeats), []
    for _ in range(count):
        start = time.perf_counter()
        call()
        stream.synchronize()
        walls.append(time.perf_counter() - start)
    launches = min(count, 50)
    start = time.perf_counter()
    for _ in range(launches):
        call()
    host = (time.perf_counter() - start) / launches
    stream.synchronize()
    replay = None if waits else captured(call)
    return replay and best(replay, count, repeats), back, float(np.median(walls)), host


def captured(call):
    """Return a function that replays a call as a graph, or None if it cannot be captured."""
    import cupy

    from fastsvgp.kernels.cuda.common import libraries

    stream = cupy.cuda.get_current_stream()
    try:
        with libraries.workspace() as workspace:
            stream.begin_capture()
            try:
                kept = call()
            finally:
                graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    except Exception as error:  # of CuPy, a library or the driver: the reason is printed
        first = error.__context__ or error
        print(f"(not captured: {type(first).__name__}: {str(first)[:150]})", flush=True)
        return None
    # the graph refers to this memory, so it must stay allocated
    return lambda used=(kept, workspace): graph.launch()


class Card:
    """The rates of a device: bytes/s copied, bytes/s written, and cuBLAS flop/s per dtype."""

    def __init__(self, small):
        import cupy

        size, n = (2**18, 256) if small else (2**29, 8192)
        source, target = first_families.numbers(size // 8), cupy.empty(size // 8)
        copy = lambda: target.data.copy_from_device_async(source.data, size)  # noqa: E731
        self.copy = 2 * size / best(copy, 10)
        self.write = size / best(lambda: target.data.memset_async(0, size), 10)
        self.gemm = {}
        for dtype in DTYPES:
            A, B, C = (first_families.numbers(n, n, dtype=dtype) for _ in range(3))
            self.gemm[dtype] = 2 * n**3 / best(lambda A=A, B=B, C=C: cupy.matmul(A, B, out=C), 3)

    def __str__(self):
        flops = ", ".join(f"{rate / 1e12:.1f} TFLOP/s {dtype}" for dtype, rate in self.gemm.items())
        return (
            f"Copy {self.copy / 1e12:.2f} TB/s (read and written), memset {self.write / 1e12:.2f}"
            f" TB/s; cuBLAS gemm {flops}."
        )


# --- the table ------------------------------------------------------------------------------------


def measured(row, dtype, most=200):
    """Return the numbers of a row, or the reason why there are none, as a dictionary.

    A time is that of up to ``most`` calls.
    """
    found = {"call": f"{dtype}, {row.name}", "floor": row.floor, "what": row.what}
    try:
        found["error"] = row.error(row.call())
        graph, back, wall, host = times(row.call, row.waits, most)
    except Exception as error:
        said = (str(error).splitlines() or [""])[0][:120]
        return found | {"failed": f"{type(error).__name__}: {said}"}
    return found | {
        "graph": graph,
        "back": back,
        "wall": wall,
        "host": host,
        "ratio": (graph or back) / row.floor,
        "wrong": not found["error"] <= WORST[dtype],  # NaN is
    }


def cells(found):
    """Return a line of the table."""
    if "failed" in found:
        return [found["call"], found["failed"], *[""] * (len(HEADER) - 2)]
    shown = (found[name] for name in ("graph", "back", "wall", "host"))
    return [
        found["call"],
        *(f"{1e6 * t:.1f}" if t else "-" for t in shown),
        f"{1e6 * found['floor']:.1f} ({found['what']})",
        f"{found['ratio']:.2f}",
        f"{found['error']:.1e}{' WRONG' if found['wrong'] else ''}",
    ]


def write(path, command, card, rows):
    """Write the table and its numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head, legend = report.header(command, device=device.facts()), __doc__.split("\n\n")[2]
    table = report.markdown([HEADER, *map(cells, rows)])
    parts = "# First times", head, str(card), " ".join(legend.split()), table
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    families = first_families.FAMILIES
    parser.add_argument(
        "families",
        nargs="*",
        metavar="FAMILY",
        help=f"some of {', '.join(families)} (default: all)",
    )
    parser.add_argument("--small", action="store_true", help="tiny arrays; by default not written")
    parser.add_argument(
        "--results", type=pathlib.Path, help="the folder of the table (default: bench/results)"
    )
    args = parser.parse_args(arguments)
    if unknown := set(args.families) - set(families):
        parser.error(f"no family {', '.join(sorted(unknown))}; there are {', '.join(families)}")
    if device.REASON:
        parser.error(device.REASON)
    import cupy

    folder = args.results or (None if args.small else HERE / "results")
    path = folder and folder / f"{'_'.join([NAME, *args.families])}.md"
    command, rows = " ".join(["python bench/first_times.py", *arguments]), []
    with cupy.cuda.Stream(non_blocking=True):
        card = Card(args.small)
        print(card, flush=True)
        for family in args.families or families:
            for dtype in DTYPES:
                for row in families[family](card, dtype, args.small):
                    found = measured(row, dtype, *([1] if args.small else ()))
                    rows.append({"family": family} | found)
                    print(" | ".join(cells(rows[-1])), flush=True)
                cupy.get_default_memory_pool().free_all_blocks()
                if path:
                    write(path, command, card, rows)
    if path:
        print(path)
    return int(any("failed" in row or row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
