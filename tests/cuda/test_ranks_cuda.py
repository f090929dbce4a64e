"""Groups and device arrays: the numbers of one process; the buffer is packed on the device, and copied once each way."""

import numpy as np
import pytest
from device_models import B, Copies, D, assert_same, moved, small_model

import fastsvgp as fs


def problem(rng):
    return small_model(rng), rng.standard_normal((B, D)), rng.standard_normal(B)


@pytest.mark.parametrize("size", [1, 2])
def test_bounds_and_steps(gpu, rng, size):
    here = problem(rng)
    there = moved(gpu, *here)
    sgpr = fs.SGPR(here[0].covariance, here[0].inducing, 0.2)
    (device_sgpr,) = moved(gpu, sgpr)
    groups = fs.distributed.threads(size)
    for call, model, other in (
        (fs.elbo_and_grad, here[0], there[0]),
        (fs.natural_step, here[0], there[0]),
        (fs.collapsed_bound_and_grad, sgpr, device_sgpr),
    ):
        expected = call(model, *here[1:])
        for found in groups.run(lambda group, call=call, other=other: call(other, *there[1:], group=group)):
            if call is fs.natural_step:
                assert found[1].value == pytest.approx(expected[1].value, rel=1e-10)
                assert_same(found[0], expected[0])
            else:
                assert found[0] == pytest.approx(expected[0], rel=1e-10)
                assert_same(found[1], expected[1])


def test_one_copy_more_each_way(gpu, rng):
    """Value and verdicts as ever; the fingerprint of the parameters, and the buffer."""
    there = moved(gpu, *problem(rng))
    (group,) = fs.distributed.threads(1)
    fs.elbo_and_grad(*there, group=group)
    with Copies(gpu, 3):
        fs.elbo_and_grad(*there, group=group)


def test_training(gpu, rng):
    here = problem(rng)
    there = moved(gpu, *here)
    options = {"steps": 6, "batch_size": B // 2, "rng": 0, "natural_step_size": 0.1}
    expected, _ = fs.fit(*here, **options)
    for found, _ in fs.distributed.threads(2).run(lambda group: fs.fit(*there, group=group, **options)):
        for (path, _, a), (_, _, b) in zip(fs.leaves(found), fs.leaves(expected), strict=True):
            np.testing.assert_allclose(gpu.back(a), b, rtol=0, atol=1e-8 * max(1, np.max(np.abs(b))), err_msg=path)
