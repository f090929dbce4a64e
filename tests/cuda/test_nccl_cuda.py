"""Ranks with one device each: sums by NCCL, by CUDA-aware MPI, and through pinned memory."""

import functools
import gc
import sys
import types
import weakref
from unittest import mock

import numpy as np
import pytest
from cuda_host import cupy_on_host, nccl_on_host
from support import mpi_on_threads

import fastsvgp as fs
from fastsvgp.distributed import same_data
from fastsvgp.distributed.groups import leaving, mpi
from fastsvgp.distributed.packing import Packing
from fastsvgp.distributed.protocol import Communicator, Share
from fastsvgp.optim.natural import svgp as natural
from fastsvgp.runtime import cuda_devices, deferred_checks

N, D, M = 47, 2, 7
WAYS = {
    "nccl": lambda comm: fs.distributed.nccl(comm),
    "device pointers": lambda comm: fs.distributed.mpi(comm, device_pointers=True),
    "pinned": lambda comm: fs.distributed.mpi(comm),
}
every_way = pytest.mark.parametrize("way", WAYS)
emulated = pytest.mark.parametrize("gpu", ["emulated"], indirect=True)


def problem(gpu, M=M):
    """Return ``(model, X, Y)`` on the device."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, D))
    q = fs.Whitened(
        0.2 * rng.standard_normal(M), np.tril(0.1 * rng.standard_normal((M, M))) + np.eye(M)
    )
    model = fs.SVGP(fs.RBF(1.2, np.array([0.8, 1.1])), X[:M].copy(), q, fs.Gaussian(0.1))
    return (
        fs.to_device(model),
        gpu.there(X),
        gpu.there(np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)),
    )


def on_ranks(gpu, way, size, function):
    """Call ``function(group)`` on ``size`` ranks, each on its own host.

    Raises the first error that is not a ``RemoteError``.
    """
    results = mpi_on_threads.run(list(range(size)), lambda comm: function(WAYS[way](comm)))
    errors = [result for result in results if isinstance(result, Exception)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, fs.RemoteError))
    return results


def numbers(gpu, found):
    """Return records, tuples and numbers as one list of NumPy arrays."""
    if isinstance(found, tuple):
        return [array for part in found for array in numbers(gpu, part)]
    if hasattr(found, "_record_fields"):
        return [
            np.asarray(gpu.back(value)) for _, _, value in fs.leaves(found) if value is not None
        ]
    return [np.asarray(gpu.back(found))]


def assert_same_on_all_and_close(gpu, results, expected, rtol):
    results, expected = [numbers(gpu, one) for one in results], numbers(gpu, expected)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    size = max(np.max(np.abs(due)) for due in expected[1:])
    for found, due in zip(results[0], expected, strict=True):
        np.testing.assert_allclose(found, due, rtol=rtol, atol=rtol * size)


CALLS = {
    "elbo_and_grad": (
        lambda model, X, Y, **g: fs.elbo_and_grad(model, X, Y, num_data=99.0, jitter=1e-6, **g),
        1e-12,
    ),
    "natural_step_and_grad": (
        lambda model, X, Y, **g: [
            fs.natural_step_and_grad(model, X, Y, jitter=1e-6, **g)[i] for i in (2, 0, 3)],
        1e-12,
    ),
    "collapsed_bound_and_grad": (
        lambda model, X, Y, **g: fs.collapsed_bound_and_grad(
            sgpr_of(model), X, Y, jitter=1e-6, **g),
        1e-10,
    ),
    "fit": (
        lambda model, X, Y, **g: (0.0, fs.fit(
            model, X, Y, steps=8, batch_size=11, rng=3, natural_step_size=0.1, **g)[0]),
        1e-11,
    ),
    "two sets": (
        lambda model, X, Y, **g: fs.collapsed_bound_and_grad(
            two_sets_of(model), X, Y, jitter=1e-6, **g),
        1e-10,
    ),
    "layers": (
        lambda model, X, Y, **g: (0.0, fs.fit(
            layers_of(X), X, Y, steps=4, batch_size=11, rng=3, **g)[0]),
        1e-9,
    ),
    "fit of an SGPR": (
        lambda model, X, Y, **g: (0.0, fs.fit(sgpr_of(model), X, Y, steps=2, **g)[0]), 1e-7),
}  # fmt: skip


def two_sets_of(model):
    pair = fs.InducingPair(model.inducing[:4], model.inducing[4:])
    return fs.OrthogonalSGPR(model.covariance, pair, model.likelihood.variance)


def layers_of(X):
    return fs.to_device(fs.deep_gp(X.get(), fs.Gaussian(0.1), 2, 6, rng=0))


def sgpr_of(model):
    return fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)


@every_way
@pytest.mark.parametrize("name", CALLS)
@emulated
def test_numbers_are_those_of_one_process(gpu, way, name):
    here = problem(gpu)
    call, rtol = CALLS[name]
    expected = tuple(call(*here))
    for size in (1, 3):
        results = on_ranks(gpu, way, size, lambda group: tuple(call(*here, group=group)))
        assert_same_on_all_and_close(gpu, results, expected, rtol)


@every_way
@emulated
def test_sum_of_host_and_device_numbers(gpu, way):
    """Each sum is returned to where its term was."""
    items = [("real", ()), ("real", (3,)), ("tril", (2, 2)), ("real", ())]
    triangle = np.array([[1.0, np.nan], [2.0, 3.0]])

    def work(group):
        here, there = np.arange(3.0) + group.rank, gpu.there(triangle)
        return Share(Communicator.of(group), [Packing(items)], there).all_reduce(
            [2.0, here, there, gpu.there(np.array(5.0))]
        )

    for number, here, there, other in on_ranks(gpu, way, 2, work):
        assert number == 4 and type(here) is np.ndarray and here.tolist() == [1, 3, 5]
        assert gpu.back(there).tolist() == [[2, 0], [4, 6]] and gpu.back(other) == 10


@emulated
def test_shards_of_other_sizes(gpu):
    model, X, Y = problem(gpu)
    cuts = [0, 1, 20, N]

    def work(comm):
        group = fs.distributed.nccl(comm, rows="own")
        own = slice(cuts[group.rank], cuts[group.rank + 1])
        return fs.elbo_and_grad(model, X[own], Y[own], num_data=99.0, group=group)

    results = mpi_on_threads.run(["a", "b", "c"], work)
    assert_same_on_all_and_close(gpu, results, fs.elbo_and_grad(model, X, Y, num_data=99.0), 1e-12)


@every_way
@emulated
def test_float32_stays_float32(gpu, way):
    """The sums are in float64."""
    model, X, Y = problem(gpu)
    here = (
        fs.tree_map(lambda value: value.astype(np.float32), model),
        X.astype(np.float32),
        Y.astype(np.float32),
    )
    value, grad = fs.elbo_and_grad(*here)
    due = gpu.back(grad.inducing)
    for found, other in on_ranks(gpu, way, 2, lambda group: fs.elbo_and_grad(*here, group=group)):
        assert found == pytest.approx(value, rel=1e-4)
        assert all(leaf.dtype == np.float32 for _, _, leaf in fs.leaves(other) if leaf is not None)
        np.testing.assert_allclose(
            gpu.back(other.inducing), due, rtol=0, atol=1e-3 * np.abs(due).max()
        )


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
    """Two sums on the device: per sum the header and one number are copied, whatever M is."""

    def work(group):
        found = []
        for M in (7, 12):
            model, X, Y = problem(gpu, M)
            fs.collapsed_bound_and_grad(sgpr_of(model), X, Y, group=group)
            with Counted() as counted:
                fs.collapsed_bound_and_grad(sgpr_of(model), X, Y, group=group)
            found.append(counted)
        return found

    (found,) = on_ranks(gpu, "nccl", 1, work)
    for counted in found:
        # value and flags up to the first sum, after it each flag separately; the fingerprint;
        # headers and numbers of two sums
        assert (counted.to_host, counted.bytes_to_host) == (6, 24 + 12 + 16 + 2 * 8 * (5 + 1))
        assert (counted.to_device, counted.bytes_to_device) == (2, 2 * 8 * 5)


@every_way
@emulated
def test_copies_of_a_bound(gpu, way):
    """Value and flags, the parameters' fingerprint, the header, and one number or all of them."""
    here = problem(gpu)

    def work(group):
        fs.elbo_and_grad(*here, group=group)
        with Counted() as counted:
            fs.elbo_and_grad(*here, group=group)
        return counted

    (counted,) = on_ranks(gpu, way, 1, work)
    # the value, q(u), Z, variance and lengthscales, noise
    numbers = 1 + M * (M + 1) // 2 + M + M * D + 1 + D + 1
    assert (counted.to_host, counted.to_device) == (3, 1)
    assert counted.bytes_to_host == 24 + 16 + 8 * (numbers if way == "pinned" else 5 + 1)
    assert counted.bytes_to_device == 8 * (numbers if way == "pinned" else 5)


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
            found = same_data.of_rows(**there)
        assert found == same_data.of_rows(**here)
        assert (counted.to_host, counted.bytes_to_host) == (1, 8 * min(rows, 256) * (D + 2 + 2))
        whole = same_data.of_all(**there)
        # of rows: no more can be compared
        assert same_data.differing([whole, same_data.of_all(**here)]) is None
        other = here["X"].copy()
        other[-2] += 1e-12
        assert same_data.differing(
            [whole, same_data.of_all(**(there | {"X": gpu.there(other)}))]
        ) == ("X", [1])


@every_way
@emulated
def test_other_data_on_a_rank(gpu, way):
    model, X, Y = problem(gpu)
    other = gpu.there(gpu.back(Y)[::-1].copy())

    def work(group):
        for call in (fs.elbo, functools.partial(fs.fit, steps=2)):
            with pytest.raises(
                ValueError, match="`Y` holds other numbers on rank 1 than on rank 0"
            ):
                call(model, X, other if group.rank else Y, group=group)

    on_ranks(gpu, way, 2, work)


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
    for M in (7, 12):
        here = problem(gpu, M)
        (steps,) = on_ranks(
            gpu, way, 1, lambda group, here=here: steps_of_training(here, group=group)
        )
        assert {one["to_host"] for one in steps} == {8}
        # row indices of the batches
        rows = [one["bytes_to_device"] for one in steps_of_training(here)]
        sent = {one["bytes_to_device"] - other for one, other in zip(steps, rows, strict=True)}
        found[M] = {one["bytes_to_host"] for one in steps}, sent
    # value and flags of two bounds and a check, a flag, a count, the fingerprint; then two sums:
    # headers, and 2 and 1 numbers
    beside = 72 + 1 + 8 + 16
    natural, gradient = (lambda M: 2 + M + M * (M + 1) // 2), (lambda M: 1 + M * D + 1 + D + 1)
    for M, (to_host, to_device) in found.items():
        numbers = natural(M) + gradient(M)
        assert to_host == {beside + 8 * (numbers if way == "pinned" else 10 + 3)}
        assert to_device == {8 * numbers if way == "pinned" else 8 * 10}


@every_way
@pytest.mark.parametrize("name", ["nan", "memory", "indefinite"])
@emulated
def test_failing_rank_is_reported(gpu, way, name):
    """It sends zeros; all ranks end, or try again, and the group remains usable."""
    model, X, Y = problem(gpu)
    hole = gpu.back(X)
    hole[-1] = np.nan
    options = {"steps": 5, "batch_size": N, "rng": 3, "natural_step_size": 0.1}

    def work(group):
        communicator, count = Communicator.of(group), [0]

        def run(sums, compute, summed):
            count[0] += 1
            fails = name != "nan" and group.rank == 1 and count[0] == 3
            return Communicator.run(
                communicator, sums, (lambda share: broken()) if fails else compute, summed
            )

        def broken():
            raise (
                MemoryError("8 GiB")
                if name == "memory"
                else fs.NotPositiveDefinite((), 3, 1e-6, M, float)
            )

        communicator.run = run
        try:
            end = fs.fit(model, gpu.there(hole) if name == "nan" else X, Y, group=group, **options)[
                1
            ].retries
        except Exception as error:
            end = error
        del communicator.run
        return end, fs.elbo(model, X, Y, group=group)

    (first, value), (second, same) = on_ranks(gpu, way, 2, work)
    assert value == same == pytest.approx(fs.elbo(model, X, Y), rel=1e-12)
    said = "8 GiB" if name == "memory" else "`X` contains nan at index (46, 0)"
    if name == "indefinite":
        assert first == second == 1
    else:
        assert isinstance(first, fs.RemoteError) and first.rank == 1
        assert isinstance(second, MemoryError if name == "memory" else ValueError)
        assert said in str(second) and said in first.message


@every_way
@pytest.mark.parametrize("name", ["collapsed_bound_and_grad", "natural_step_and_grad"])
@emulated
def test_failed_factor_of_one_rank_in_a_call_of_two_sums(gpu, way, name):
    """A device reports the failure late.

    The rank reports it in the first sum, and all would try again with more jitter.
    """
    model, X, Y = problem(gpu)
    Z = gpu.back(model.inducing).copy()
    Z[1] = Z[0]
    other = fs.replace(model, inducing=gpu.there(Z))

    def work(group):
        mine = other if group.rank else model
        try:
            if name == "natural_step_and_grad":
                fs.natural_step_and_grad(mine, X, Y, jitter=0.0, group=group)
            else:
                fs.collapsed_bound_and_grad(sgpr_of(mine), X, Y, jitter=0.0, group=group)
        except Exception as error:
            end = error
        return end, fs.elbo(model, X, Y, group=group)

    (first, value), (second, same) = on_ranks(gpu, way, 2, work)
    assert (
        isinstance(first, fs.NotPositiveDefinite)
        and isinstance(first, fs.RemoteError)
        and first.rank == 1
    )
    assert (
        isinstance(second, fs.NotPositiveDefinite)
        and "are the same inputs" in str(second)
        and value == same
    )


@every_way
@emulated
def test_failed_check_between_sums_repeats_the_step(gpu, way, monkeypatch):
    """A check fails after the first sum of a natural step with a gradient.

    Only the failing rank repeats the rest of the step.
    """
    here = problem(gpu)
    expected = fs.natural_step_and_grad(*here)
    plain, faults = natural.accumulate_bound, []

    def accumulate_bound(*arguments, **options):
        if not faults:
            faults.append(0)
            raise deferred_checks.CheckFailed
        return plain(*arguments, **options)

    monkeypatch.setattr(natural, "accumulate_bound", accumulate_bound)
    results = on_ranks(
        gpu,
        way,
        2,
        lambda group: tuple(fs.natural_step_and_grad(*here, group=group)[i] for i in (2, 0, 3)),
    )
    assert faults == [0]
    assert_same_on_all_and_close(gpu, results, tuple(expected[i] for i in (2, 0, 3)), 1e-11)


@every_way
@pytest.mark.parametrize("at", [1, 2, 4, 8])
@emulated
def test_an_error_between_steps(gpu, way, at):
    """Rank 0 reports it in the others' next sum: on the device, or the first of headers only."""
    here = problem(gpu)

    def work(group):
        def callback(step, *_):
            return step == at and 1 / 0

        try:
            fs.fit(
                *here,
                steps=8,
                batch_size=N,
                rng=3,
                natural_step_size=0.1,
                callback=callback,
                group=group,
            )
        except Exception as error:
            return type(error).__name__, str(error), fs.elbo(*here, group=group)

    (first, _, value), (second, said, same) = on_ranks(gpu, way, 2, work)
    assert (first, second) == (
        "ZeroDivisionError",
        "RemoteError",
    ) and "rank 0 failed: ZeroDivisionError" in said
    assert value == same


@every_way
@pytest.mark.parametrize("training", [False, True])
@emulated
def test_lack_of_memory_for_the_buffer_is_reported(gpu, way, training):
    """One rank lacks memory: it allocates before the others compute, and reports the failure."""
    here, call = problem(gpu), functools.partial(fs.fit, steps=2) if training else fs.elbo_and_grad

    def work(group):
        if group.rank == 1:
            Communicator.of(group).reserve = mock.Mock(side_effect=MemoryError("64 MB"))
        try:
            call(*here, group=group)
        except Exception as error:
            return [error]

    (first,), (second,) = on_ranks(gpu, way, 2, work)
    assert (
        isinstance(first, fs.RemoteError)
        and "64 MB" in first.message
        and isinstance(second, MemoryError)
    )


@emulated
def test_calls_of_nccl(gpu):
    """One per sum, on the device, and one at the end, like the first; headers alone go by MPI."""
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
        *[("allReduce", 0, 5 + natural), ("allReduce", 0, 5 + gradient)] * 3,
        ("allReduce", 0, 5 + natural),
    ]  # fmt: skip


@emulated
def test_other_numbers_than_float64_are_refused(gpu):
    def work(group):
        for function in (group.sum, group.broadcast):
            with pytest.raises(TypeError, match="`buffer` must be float64, got float32"):
                function(gpu.there(np.ones(4, np.float32)))

    on_ranks(gpu, "nccl", 1, work)


@emulated
def test_a_communicator_outlives_its_group(gpu, monkeypatch):
    """Destroying it is collective; after a failure one rank would be alone in that call."""
    # this keeps groups
    monkeypatch.setattr(leaving, "_GROUPS", types.SimpleNamespace(append=lambda entry: None))
    for group, communicator in on_ranks(
        gpu, "nccl", 2, lambda group: (weakref.ref(group), weakref.ref(group._devices))
    ):
        gc.collect()
        assert group() is None and communicator() is not None


@emulated
def test_mpi_waits_for_what_writes_the_buffer(gpu, monkeypatch):
    here, waited = problem(gpu), []
    monkeypatch.setattr(
        cupy_on_host.CUDA.Stream, "synchronize", lambda stream: waited.append(stream)
    )
    on_ranks(gpu, "device pointers", 1, lambda group: fs.elbo_and_grad(*here, group=group))
    assert len(waited) == 3  # the trial sum and broadcast, and the real sum


@emulated
def test_models_in_different_places(gpu):
    model, X, Y = problem(gpu)
    on_host = fs.to_host(model), gpu.back(X), gpu.back(Y)

    def work(group):
        with pytest.raises(
            ValueError, match="`place of the model` is 'the host' there, and 'a device' on rank 0"
        ):
            fs.elbo(*(on_host if group.rank else (model, X, Y)), group=group)
        with pytest.raises(
            ValueError, match="`place of the model` is 'the host' there, and 'a device' on rank 0"
        ):
            fs.fit(*(on_host if group.rank else (model, X, Y)), steps=2, group=group)

    on_ranks(gpu, "nccl", 2, work)


@emulated
def test_a_group_that_does_not_sum_on_devices(gpu):
    class Forgetful:
        rank, size, rows, sums_on_device = 0, 2, "all", True

        def sum(self, buffer):
            if not hasattr(buffer, "get"):
                buffer[:] = [2, 1, 1, 0, 0]

        def broadcast(self, buffer):
            pass

    with pytest.raises(
        ValueError, match=r"`group.sum` does not sum over the ranks.* it made \[1.0, 0.0, 0.0\]"
    ):
        fs.elbo(*problem(gpu), group=Forgetful())


# --- the device of a rank -------------------------------------------------------------------------


def placed(hosts, seen=None, make=WAYS["nccl"]):
    """Return the outcome of ranks on these hosts: the device of each, or its error."""

    def work(comm):
        names.here = None if seen is None else seen[comm.Get_rank()]
        group = make(comm)
        assert cupy_on_host.CUDA.Device.used.id == group.device
        return group.device

    names = mpi_on_threads.threading.local()
    with cupy_on_host.cupy_on_host(devices=2):
        plain = cuda_devices.device_names
        with mock.patch.object(
            cuda_devices, "device_names", lambda: plain() if names.here is None else names.here
        ):
            return mpi_on_threads.run(hosts, work)


@pytest.mark.parametrize("way", ["nccl", "device pointers"])
def test_each_rank_of_a_host_has_a_device(way):
    assert placed(["a", "a", "b", "b"], make=WAYS[way]) == [0, 1, 0, 1]
    assert placed(["a", "b", "a", "b"], make=WAYS[way]) == [0, 0, 1, 1]


def test_devices_that_a_launcher_shows_to_single_ranks():
    assert placed(["a"] * 3, [["A"], ["B"], ["C"]]) == [0, 0, 0]
    assert placed(["a"] * 4, [["A", "B"], ["C", "D"]] * 2) == [0, 0, 1, 1]


@pytest.mark.parametrize("way", ["nccl", "device pointers"])
def test_more_ranks_than_devices(way):
    *full, other = placed(["a"] * 3 + ["b"], make=WAYS[way])
    for error in full:
        assert type(
            error
        ) is RuntimeError and "3 ranks on this host, and they see 2 of its devices" in str(error)
    assert (
        isinstance(other, fs.RemoteError)
        and other.rank == 0
        and "3 ranks on this host" in other.message
    )


def test_what_is_missing(monkeypatch):
    first, second = missing(ImportError("CuPy cannot be imported; pip install it"))
    assert isinstance(first, fs.RemoteError) and "CuPy cannot be imported" in first.message
    assert type(second) is ImportError
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setitem(
        sys.modules, "cupy.cuda", types.SimpleNamespace(nccl=types.SimpleNamespace(available=False))
    )
    monkeypatch.setattr(cuda_devices, "cupy", lambda: sys.modules["cupy"])
    with pytest.raises(
        ImportError, match="CuPy finds no NCCL library; python -m pip install nvidia-nccl-cu13"
    ):
        cuda_devices.nccl()
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match="nccl: mpi4py could not be loaded.*pip install"):
        fs.distributed.nccl()


def missing(error):
    """Return the outcome of two ranks, of which the second lacks something."""

    def work(comm):
        raises.here = comm.Get_rank() == 1
        return fs.distributed.nccl(comm)

    def nccl():
        if raises.here:
            raise error
        return nccl_on_host

    raises = mpi_on_threads.threading.local()
    with cupy_on_host.cupy_on_host(devices=2), mock.patch.object(cuda_devices, "nccl", nccl):
        return mpi_on_threads.run(["a", "a"], work)


def test_bad_arguments():
    with (
        mock.patch.object(mpi, "library", mock.Mock()),
        pytest.raises(TypeError, match="`device_pointers` must be"),
    ):
        fs.distributed.mpi(device_pointers=1)
