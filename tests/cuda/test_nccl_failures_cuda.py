"""Ranks with one device each: if one fails or has other data, all ranks report it."""

import functools
from unittest import mock

import numpy as np
import pytest
from support.device_ranks import (
    M,
    N,
    assert_same_on_all_and_close,
    emulated,
    every_way,
    on_ranks,
    problem,
    sgpr_of,
)

import fastsvgp as fs
from fastsvgp.distributed.protocol import Communicator
from fastsvgp.optim.natural import step as natural
from fastsvgp.runtime import deferred_checks


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


@every_way
@pytest.mark.parametrize("name", ["nan", "memory", "indefinite"])
@emulated
def test_failing_rank_is_reported(gpu, way, name):
    """All ranks end, or try again, and the group remains usable."""
    model, X, Y = problem(gpu)
    hole = gpu.back(X)
    hole[-1] = np.nan
    options = {"steps": 5, "batch_size": N, "rng": 3, "natural_step_size": 0.1}

    def work(group):
        communicator, count = Communicator.of(group), [0]

        def run(compute):
            count[0] += 1
            fails = name != "nan" and group.rank == 1 and count[0] == 4
            return Communicator.run(communicator, broken if fails else compute)

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
                fs.optim.natural_step_and_grad(mine, X, Y, jitter=0.0, group=group)
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
    expected = fs.optim.natural_step_and_grad(*here)
    plain, faults = natural.gradient_through, []

    def gradient_through(*arguments, **options):
        if not faults:
            faults.append(0)
            raise deferred_checks.CheckFailed
        return plain(*arguments, **options)

    monkeypatch.setattr(natural, "gradient_through", gradient_through)
    results = on_ranks(
        gpu,
        way,
        2,
        lambda group: tuple(
            fs.optim.natural_step_and_grad(*here, group=group)[i] for i in (2, 0, 3)
        ),
    )
    assert faults == [0]
    assert_same_on_all_and_close(gpu, results, tuple(expected[i] for i in (2, 0, 3)), 1e-11)


@every_way
@pytest.mark.parametrize("at", [1, 2, 4, 8])
@emulated
def test_an_error_between_steps(gpu, way, at):
    """Rank 0 reports it when the others meet next: before a sum, or at the end."""
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
    """One rank lacks memory: it allocates before the others sum, and reports the failure."""
    here, call = problem(gpu), functools.partial(fs.fit, steps=2) if training else fs.elbo_and_grad

    def work(group):
        if group.rank == 1:
            Communicator.of(group)._buffer_for = mock.Mock(side_effect=MemoryError("64 MB"))
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
