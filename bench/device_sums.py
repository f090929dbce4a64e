"""Measure the cost of a group in a step on a device, with one rank or several.

    python -m mpi4py bench/device_sums.py               # one GPU: the overhead without waiting
    python -m mpi4py bench/device_sums.py --small       # tiny sizes: a test that it runs
    mpiexec -n 4 python -m mpi4py bench/device_sums.py  # one GPU per rank

Needs CuPy, NCCL, mpi4py and an MPI. A step is ``elbo_and_grad`` of a Whitened posterior, P = 1, D =
8, with all gradients and 1000 rows per rank: in one process, in a group that sums by NCCL on the
device, and in a group that sums by MPI through pinned memory. The table also has the all-reduce of
the buffer by NCCL, one copy of it from the device to pinned memory, and the fingerprint of the
parameters, each separately. Medians, in microseconds, of rank 0; the bytes are those of the buffer.
"""

import argparse
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
COLUMNS = "M", "rows", "bytes", "one process", "nccl", "pinned", "sum", "copy", "fingerprint"


def median(call, count):
    """Return the microseconds of ``call``, including synchronisation."""
    import cupy
    import numpy as np

    stream, times = cupy.cuda.get_current_stream(), []
    for _ in range(count + 2):
        stream.synchronize()
        started = time.perf_counter()
        call()
        stream.synchronize()
        times.append(time.perf_counter() - started)
    return 1e6 * float(np.median(times[2:]))


def measured(nccl, through_host, M, B, count):
    """Return a row of the table.

    ``nccl``, ``through_host``: groups; ``B``: the rows of all ranks.
    """
    import cupy
    import numpy as np

    import fastsvgp as fs
    from fastsvgp.distributed import buffers, reduce

    rng = np.random.default_rng(0)
    X, Y = (cupy.asarray(rng.standard_normal(shape)) for shape in ((B, 8), B))
    q = fs.Whitened(0.1 * rng.standard_normal(M), np.eye(M))
    model = fs.to_device(
        fs.SVGP(fs.RBF(1.0, np.full(8, 3.0)), rng.standard_normal((M, 8)), q, fs.Gaussian(0.1))
    )
    wholes = [
        median(lambda more=more: fs.elbo_and_grad(model, X, Y, num_data=10 * B, **more), count)
        for more in ({}, {"group": nccl}, {"group": through_host})
    ]
    _, kinds, values = zip(*fs.records.leaves(model), strict=True)
    buffer = cupy.zeros(1 + buffers.packing_of(kinds, values).size)
    near = np.frombuffer(cupy.cuda.alloc_pinned_memory(buffer.nbytes), np.float64, buffer.size)
    parts = (
        lambda: nccl.sum(buffer),
        lambda: buffer.get(out=near),
        lambda: reduce.fingerprint(model),
    )
    return [M, B, buffer.nbytes, *wholes, *(median(part, count) for part in parts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    import fastsvgp as fs

    nccl, through_host = fs.distributed.nccl(), fs.distributed.mpi()
    if nccl.rank == 0:
        import device

        from fastsvgp.runtime import cuda_devices

        print(f"{device.facts()}; NCCL {cuda_devices.nccl().get_version()}, {nccl.size} ranks\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{' ---: |' * len(COLUMNS)}")
    for M in (20,) if small else (500, 1000, 2000, 4000):
        row = measured(
            nccl, through_host, M, (50 if small else 1000) * nccl.size, 5 if small else 50
        )
        if nccl.rank == 0:
            print(f"| {' | '.join(f'{number:.0f}' for number in row)} |", flush=True)


if __name__ == "__main__":
    main()
