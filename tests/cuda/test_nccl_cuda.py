"""Ranks with one device each: sums by NCCL, by CUDA-aware MPI, and through pinned memory."""

import gc
import types
import weakref

import numpy as np
import pytest
from support import mpi_on_threads
from support.device_ranks import (
    N,
    assert_same_on_all_and_close,
    emulated,
    every_way,
    on_ranks,
    problem,
    sgpr_of,
)

import fastsvgp as fs
from fastsvgp.distributed.groups import leaving
from fastsvgp.distributed.protocol import Communicator

CALLS = {
    "elbo_and_grad": (
        lambda model, X, Y, **g: fs.elbo_and_grad(model, X, Y, num_data=99.0, jitter=1e-6, **g),
        1e-12,
    ),
    "natural_step_and_grad": (
        lambda model, X, Y, **g: [
            fs.optim.natural_step_and_grad(model, X, Y, jitter=1e-6, **g)[i] for i in (2, 0, 3)],
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
    pair = fs.posteriors.InducingPair(model.inducing[:4], model.inducing[4:])
    return fs.bounds.OrthogonalSGPR(model.covariance, pair, model.likelihood.variance)


def layers_of(X):
    return fs.to_device(fs.layers.deep_gp(X.get(), fs.Gaussian(0.1), 2, 6, rng=0))


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
    kinds = "real", "real", "tril", "real"
    triangle = np.array([[1.0, np.nan], [2.0, 3.0]])

    def work(group):
        here, there = np.arange(3.0) + group.rank, gpu.there(triangle)
        return Communicator.of(group).all_reduce(
            kinds, [2.0, here, there, gpu.there(np.array(5.0))]
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
        fs.records.tree_map(lambda value: value.astype(np.float32), model),
        X.astype(np.float32),
        Y.astype(np.float32),
    )
    value, grad = fs.elbo_and_grad(*here)
    due = gpu.back(grad.inducing)
    for found, other in on_ranks(gpu, way, 2, lambda group: fs.elbo_and_grad(*here, group=group)):
        assert found == pytest.approx(value, rel=1e-4)
        assert all(
            leaf.dtype == np.float32 for _, _, leaf in fs.records.leaves(other) if leaf is not None
        )
        np.testing.assert_allclose(
            gpu.back(other.inducing), due, rtol=0, atol=1e-3 * np.abs(due).max()
        )


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
