"""Predictions on device arrays: the results of the CPU, with the fewest copies to the host."""

from unittest import mock

import numpy as np
import pytest
from cuda_host import cupy_on_host
from support.device_models import (
    LIKELIHOODS,
    MEANS,
    TARGETS,
    B,
    Copies,
    D,
    M,
    assert_same,
    model_of_row,
    moved,
    small_model,
)
from support.posterior_problems import JITTER, ROWS

import fastsvgp as fs
from fastsvgp.bounds.layer_pass import LayerPass
from fastsvgp.kernels.cuda import products


@pytest.mark.parametrize("likelihood, kind", [(x[0], x[1]) for x in LIKELIHOODS
                                              if x[1] in ("real", "counts") and not x[2]],
                         ids=lambda x: type(x).__name__)  # fmt: skip
def test_quantiles(gpu, rng, likelihood, kind):
    here = (
        small_model(rng, (), likelihood=likelihood),
        rng.standard_normal((B, D)),
        TARGETS[kind](rng, B),
    )
    there = moved(gpu, *here)
    assert_same(fs.predict_cdf(*there), fs.predict_cdf(*here))
    assert_same(
        fs.predict_quantiles(*there[:2], (0.05, 0.5, 0.9)),
        fs.predict_quantiles(*here[:2], (0.05, 0.5, 0.9)),
    )


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", ROWS)
def test_predictions_of_every_posterior(gpu, rng, posterior, outputs):
    here = model_of_row(rng, posterior, outputs)[0], rng.standard_normal((B, D))
    there = moved(gpu, *here)
    for full_cov in (False, True):
        assert_same(
            *(fs.predict_f(*side, full_cov=full_cov, jitter=JITTER) for side in (there, here)), 1e-9
        )


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", ROWS)
def test_backward_pass_of_predictions(gpu, rng, posterior, outputs):
    """One copy to the host in the forward pass, and one in the backward pass.

    A second backward pass recomputes the rows.
    """
    here = (
        fs.replace(model_of_row(rng, posterior, outputs)[0], mean=MEANS[0 if outputs else 2]),
        rng.standard_normal((B, D)),
    )
    there = moved(gpu, *here)
    *expected, vjp = fs.bounds.predict_f_and_vjp(*here, jitter=JITTER)
    with Copies(gpu, 1):
        *found, there_vjp = fs.bounds.predict_f_and_vjp(*there, jitter=JITTER)
    assert_same(tuple(found), tuple(expected), 1e-9)
    bars = [rng.standard_normal((B, *outputs)) for _ in range(2)]
    for _ in range(2):
        with Copies(gpu, 1):
            found = there_vjp(*map(gpu.there, bars))
        assert_same((found,), (vjp(*bars),), 1e-9)
    with pytest.raises(
        TypeError,
        match="`var_bar` on the CPU, |different devices: `Xs` on the GPU, `var_bar` on the CPU",
    ):
        there_vjp(None, bars[1])
    with pytest.raises(ValueError, match="`mean_bar` contains nan"):
        there_vjp(gpu.there(bars[0] * np.nan), None)


def test_joint_predictions(gpu, rng):
    gpu, model, Xs = gpu, small_model(rng, (2,)), rng.standard_normal((7, D))
    there = moved(gpu, model, Xs)
    assert_same(fs.predict_f(*there, full_cov=True), fs.predict_f(model, Xs, full_cov=True))
    assert_same(fs.sample_f(*there, 3, rng=1), fs.sample_f(model, Xs, 3, rng=1), 1e-8)


def test_chunks_grow_with_the_device(rng, monkeypatch):
    here = small_model(rng), rng.standard_normal((B, D))
    with cupy_on_host.cupy_on_host(multiprocessors=3):
        there = fs.to_device(here[0], "cuda"), cupy_on_host.cupy.asarray(here[1])
        for numbers, rows in ((M, 3), (2 * M, 6), (2**18, B)):
            monkeypatch.setattr(products, "CHUNK_EACH", numbers)
            with mock.patch.object(
                LayerPass, "forward", autospec=True, side_effect=LayerPass.forward
            ) as forward:
                assert_same(fs.predict_f(*there), fs.predict_f(*here))
            *there_rows, here_rows = [len(call.args[1]) for call in forward.call_args_list]
            assert (
                here_rows == sum(there_rows) == B
                and set(there_rows[:-1]) <= {rows}
                and len(there_rows) == -(-B // rows)
            )
