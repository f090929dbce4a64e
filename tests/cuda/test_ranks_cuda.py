"""Groups and device arrays: the results of one process, with a buffer packed on the device.

It is summed there, or copied to the host and back. Cases that only the emulation has, for example
several devices, are in the files ``test_nccl_*_cuda``.
"""

import pathlib
import sys

import numpy as np
import pytest
from cuda_host import nccl_on_host
from support import mpi_on_threads
from support.device_models import B, Copies, D, assert_same, moved, small_model

import fastsvgp as fs
from fastsvgp.runtime import cuda_devices


def problem(rng):
    return small_model(rng), rng.standard_normal((B, D)), rng.standard_normal(B)


def threads(size, on_device):
    """Ranks of one process and of one device, which sum on the host or on the device."""
    groups = fs.distributed.threads(size)
    for group in groups:
        group.sums_on_device = on_device
    return groups


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_bounds_and_steps(gpu, rng, size, on_device):
    here = problem(rng)
    there = moved(gpu, *here)
    sgpr = fs.SGPR(here[0].covariance, here[0].inducing, 0.2)
    (device_sgpr,) = moved(gpu, sgpr)
    groups = threads(size, on_device)
    for call, model, other in (
        (fs.elbo_and_grad, here[0], there[0]),
        (fs.natural_step, here[0], there[0]),
        (fs.collapsed_bound_and_grad, sgpr, device_sgpr),
    ):
        expected = call(model, *here[1:])
        for found in groups.run(
            lambda group, call=call, other=other: call(other, *there[1:], group=group)
        ):
            if call is fs.natural_step:
                assert found[1].value == pytest.approx(expected[1].value, rel=1e-10)
                assert_same(found[0], expected[0])
            else:
                assert found[0] == pytest.approx(expected[0], rel=1e-10)
                assert_same(found[1], expected[1])


def test_one_copy_more_each_way(gpu, rng):
    """Value and flags as without a group; the fingerprint of the parameters, and the buffer."""
    there = moved(gpu, *problem(rng))
    (group,) = fs.distributed.threads(1)
    fs.elbo_and_grad(*there, group=group)
    with Copies(gpu, 3):
        fs.elbo_and_grad(*there, group=group)


@pytest.mark.parametrize("on_device", [False, True])
def test_training(gpu, rng, on_device):
    here = problem(rng)
    there = moved(gpu, *here)
    options = {"steps": 6, "batch_size": B // 2, "rng": 0, "natural_step_size": 0.1}
    expected, _ = fs.fit(*here, **options)
    for found, _ in threads(2, on_device).run(lambda group: fs.fit(*there, group=group, **options)):
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(found), fs.records.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(
                gpu.back(a), b, rtol=0, atol=1e-8 * max(1, np.max(np.abs(b))), err_msg=path
            )


@pytest.fixture
def one_rank(real, monkeypatch):
    """The part of NCCL that a single device can show; the emulation lacks NCCL itself."""
    if "fakegpu" in sys.modules:
        monkeypatch.setattr(cuda_devices, "nccl", lambda: nccl_on_host)
        monkeypatch.setattr(cuda_devices, "device_names", lambda: ["the host"])
    try:
        cuda_devices.nccl()
    except ImportError as error:
        pytest.skip(str(error))

    def run(work):
        (found,) = mpi_on_threads.run(["here"], work)
        if isinstance(found, Exception):
            raise found
        return found

    return run


def test_nccl_with_one_rank(real, one_rank):
    model, X, Y = problem(np.random.default_rng(0))
    there = fs.to_device(model), real.asarray(X), real.asarray(Y)

    def work(comm):
        group = fs.distributed.nccl(comm)
        return (
            group.device,
            fs.elbo_and_grad(*there, group=group),
            fs.fit(*there, steps=3, natural_step_size=0.1, group=group)[0],
        )

    device, (value, grad), trained = one_rank(work)
    expected, expected_grad = fs.elbo_and_grad(model, X, Y)
    assert device == 0 and value == pytest.approx(expected, rel=1e-10)
    assert_same(grad, expected_grad)
    assert_same(trained, fs.fit(model, X, Y, steps=3, natural_step_size=0.1)[0], 1e-8)


def test_what_a_group_costs_a_step(one_rank, monkeypatch):
    """The table of bench/device_sums.py, with small sizes."""
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "bench"))
    import device_sums

    row = one_rank(
        lambda comm: device_sums.measured(
            fs.distributed.nccl(comm), fs.distributed.mpi(comm), 8, 30, 2
        )
    )
    assert (
        row[:3] == [8, 30, 8 * (1 + 36 + 8 + 64 + 9 + 1)]
        and len(row) == len(device_sums.COLUMNS)
        and min(row[3:]) > 0
    )
