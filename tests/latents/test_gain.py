"""What several latent functions are for: scores on missing outputs, and under varying noise."""

import importlib
import pathlib

import numpy as np
import pytest

import fastsvgp as fs

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
ROUNDS = 20


@pytest.fixture
def several_outputs(monkeypatch):
    """Import the benchmark, whose ten seeds take minutes; its folder is not a package."""
    monkeypatch.syspath_prepend(str(BENCH))
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")  # the module sets it
    return importlib.import_module("several_outputs")


@pytest.mark.parametrize("seed", [1, 2])
def test_mixed_functions_fill_a_gap_of_each_output(several_outputs, seed):
    X, Y, seen = several_outputs.with_gaps(seed)
    targets, score = np.where(seen, Y, np.nan), {}
    for num_latents in (2, "separate"):
        start = several_outputs.start(X, targets, seen, num_latents, shorter=2)
        model = several_outputs.in_turn(start, X, targets, seen, ROUNDS)
        score[num_latents] = several_outputs.log_density(model, X, Y, ~seen)
    assert score[2] > score["separate"] + 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_that_varies_is_found(several_outputs, seed):
    X, Y, Xs, Ys = several_outputs.problem("noise", seed)
    found = {}
    for likelihood in (None, fs.likelihoods.HeteroskedasticGaussian()):
        start = fs.layers.multi_gp(
            X, Y, "separate", several_outputs.M, likelihood=likelihood, rng=0
        )
        found[likelihood], _ = fs.em(start, X, Y, rounds=5)
    constant, varying = (fs.predict_log_density(model, Xs, Ys).mean() for model in found.values())
    assert varying > constant + 0.2
