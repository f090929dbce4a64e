"""Ranks with one device each: copies between host and device, and calls of NCCL and MPI."""

import numpy as np
from cuda_host import cupy_on_host, nccl_on_host
from support.device_ranks import D, M, emulated, every_way, on_ranks, problem, sgpr_of

import fastsvgp as fs
from fastsvgp.distributed import same_data


class Counted:
    """The copies made in a block: their number and bytes."""

    def __enter__(self):
        self._before = dict(vars(cupy_on_host.copies))
        return self

    def __exit__(self, *_):
        for name, value in vars(cupy_on_host.copies).items():
            setattr(self, name, value - self._before[name])


@emulated
def test_copies_of_a_collapsed_bound(gpu):
    """Two sums on the device: per sum one number is copied, whatever M is."""

    def work(group):
        found = []
        for size in (7, 12):
            model, X, Y = problem(gpu, size)
            fs.collapsed_bound_and_grad(sgpr_of(model), X, Y, group=group)
            with Counted() as counted:
                fs.collapsed_bound_and_grad(sgpr_of(model), X, Y, group=group)
            found.append(counted)
        return found

    (found,) = on_ranks(gpu, "nccl", 1, work)
    for counted in found:
        # value and flags up to the first sum, after it each flag separately; the fingerprint;
        # numbers of two sums
        assert (counted.to_host, counted.bytes_to_host) == (6, 24 + 12 + 16 + 2 * 8)
        assert (counted.to_device, counted.bytes_to_device) == (0, 0)


@every_way
@emulated
def test_copies_of_a_bound(gpu, way):
    """Value and flags, the parameters' fingerprint, and one number or all of them."""
    here = problem(gpu)

    def work(group):
        fs.elbo_and_grad(*here, group=group)
        with Counted() as counted:
            fs.elbo_and_grad(*here, group=group)
        return counted

    (counted,) = on_ranks(gpu, way, 1, work)
    # the value, q(u), Z, variance and lengthscales, noise
    numbers = 1 + M * (M + 1) // 2 + M + M * D + 1 + D + 1
    assert (counted.to_host, counted.to_device) == (3, way == "pinned")
    assert counted.bytes_to_host == 24 + 16 + 8 * (numbers if way == "pinned" else 1)
    assert counted.bytes_to_device == 8 * (numbers if way == "pinned" else 0)


@emulated
def test_digests_of_data_on_the_device(gpu):
    """Checksums equal the host's: a bound copies its rows, a training only the fingerprint."""
    rng = np.random.default_rng(0)
    for rows in (100, 300):
        here = {
            "X": rng.standard_normal((rows, D)),
            "Y": rng.standard_normal((rows, 2)).astype(np.float32),
        }
        here["weights"] = rng.integers(0, 2, (rows, 2)).astype(float)
        here["weights"][-2] = 1
        here["Y"][here["weights"] == 0] = np.nan
        there = {name: gpu.there(array) for name, array in here.items()}
        with Counted() as counted:
            found = same_data.digest_rows(**there)
        assert found == same_data.digest_rows(**here)
        assert (counted.to_host, counted.bytes_to_host) == (1, 8 * min(rows, 256) * (D + 2 + 2))
        whole = same_data.digest_all(**there)
        # of rows: no more can be compared
        assert same_data.differing([whole, same_data.digest_all(**here)]) is None
        other = here["X"].copy()
        other[-2] += 1e-12
        assert same_data.differing(
            [whole, same_data.digest_all(**(there | {"X": gpu.there(other)}))]
        ) == ("X", [1])


def steps_of_training(problem, **group):
    """Count the copies of each step of a short training except the first."""
    counts = []
    options = {"steps": 5, "batch_size": 11, "rng": 3, "natural_step_size": 0.1}
    fs.fit(
        *problem,
        callback=lambda *_: counts.append(dict(vars(cupy_on_host.copies))),
        **options,
        **group,
    )
    return [
        {name: after[name] - before[name] for name in after}
        for before, after in zip(counts, counts[1:], strict=False)
    ]


@every_way
@emulated
def test_copies_of_a_step_of_training(gpu, way):
    """Two sums, of a natural step and of the gradient after it.

    With sums on the device the number of bytes does not depend on M.
    """
    found = {}
    for size in (7, 12):
        here = problem(gpu, size)
        (steps,) = on_ranks(
            gpu, way, 1, lambda group, here=here: steps_of_training(here, group=group)
        )
        assert {one["to_host"] for one in steps} == {8}
        # row indices of the batches
        rows = [one["bytes_to_device"] for one in steps_of_training(here)]
        sent = {one["bytes_to_device"] - other for one, other in zip(steps, rows, strict=True)}
        found[size] = {one["bytes_to_host"] for one in steps}, sent
    # value and flags of two bounds and a check, a flag, a count, the fingerprint; then two sums,
    # with 2 and 1 numbers of the host
    beside = 72 + 1 + 8 + 16
    natural, gradient = (lambda M: 2 + M + M * (M + 1) // 2), (lambda M: 1 + M * D + 1 + D + 1)
    for size, (to_host, to_device) in found.items():
        numbers = natural(size) + gradient(size)
        assert to_host == {beside + 8 * (numbers if way == "pinned" else 3)}
        assert to_device == {8 * numbers if way == "pinned" else 0}


@emulated
def test_calls_of_nccl(gpu):
    """One per sum, on the device; ranks meet by MPI."""
    here = problem(gpu)
    del nccl_on_host.calls[:]
    on_ranks(
        gpu,
        "nccl",
        1,
        lambda group: fs.fit(
            *here, steps=3, batch_size=11, rng=0, natural_step_size=0.1, group=group
        ),
    )
    natural, gradient = 2 + M + M * (M + 1) // 2, 1 + M * D + D + 2
    assert nccl_on_host.calls == [
        ("allReduce", 0, 5), ("bcast", 0, 1),  # a trial of each
        *[("allReduce", 0, natural), ("allReduce", 0, gradient)] * 3,
    ]  # fmt: skip


@emulated
def test_mpi_waits_for_what_writes_the_buffer(gpu, monkeypatch):
    here, waited = problem(gpu), []
    monkeypatch.setattr(
        cupy_on_host.CUDA.Stream, "synchronize", lambda stream: waited.append(stream)
    )
    on_ranks(gpu, "device pointers", 1, lambda group: fs.elbo_and_grad(*here, group=group))
    assert len(waited) == 3  # the trial sum and broadcast, and the real sum
