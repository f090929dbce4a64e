"""Deep GPs on device arrays: the results of the CPU for the same seed, one copy to the host."""

import numpy as np
import pytest
from support.deep_problems import B, draws_for, problem
from support.device_models import Copies, assert_same, check_bound, moved
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.errors import NotPositiveDefinite

SETTINGS = {"num_data": 30.0, "jitter": JITTER}
f8 = np.float64


def arrays_of(model):
    """Return Python numbers as NumPy's, for comparison with gradients on a device."""
    return fs.records.tree_map(lambda leaf: f8(leaf) if isinstance(leaf, float) else leaf, model)


@pytest.mark.parametrize("name", ["two", "three", "outputs"])
def test_bounds(gpu, rng, name):
    model, X, Y = problem(rng, name)
    here = arrays_of(model), X, Y
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, rng=1, inputs=True, **SETTINGS)
    check_bound(
        gpu,
        fs.bounds.data_term_and_grad,
        here,
        there,
        rng=1,
        num_samples=3,
        wrt=("layers.0.inducing",),
        **SETTINGS,
    )
    check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1], jitter=JITTER)
    draws = draws_for(rng, model, 2)
    with Copies(gpu, 1):
        value = fs.elbo(*there, draws=tuple(map(gpu.there, draws)), **SETTINGS)
    assert abs(value - fs.elbo(*here, draws=draws, **SETTINGS)) < 1e-9


@pytest.mark.parametrize("name", ["three", "outputs"])
def test_predictions(gpu, rng, name):
    model, X, Y = problem(rng, name)
    here = arrays_of(fs.replace(model, likelihood=fs.Gaussian(0.3))), X
    there = moved(gpu, *here)
    for call in (fs.predict_f, fs.predict_y):
        with Copies(gpu, 1):
            found = call(*there, jitter=JITTER, num_samples=8, chunk_size=3)
        assert_same(found, call(*here, jitter=JITTER, num_samples=8))
    settings = {"jitter": JITTER, "num_samples": 4}
    for call in (fs.predict_log_density, fs.predict_cdf):
        assert_same(call(*there, gpu.there(Y), **settings), call(*here, Y, **settings))
    found, due = (fs.predict_quantiles(*side, (0.2, 0.5), **settings) for side in (there, here))
    assert_same(found, due, 1e-8)
    assert_same(
        fs.sample_f(*there, 2, rng=0, jitter=JITTER),
        fs.sample_f(*here, 2, rng=0, jitter=JITTER),
        1e-8,
    )


def test_steps(gpu, rng):
    model, X, Y = problem(rng, "outputs")
    here = arrays_of(model), X, Y
    there = moved(gpu, *here)
    (found, info), (due, due_info) = (
        fs.natural_step(*side, step_size=0.5, rng=2, **SETTINGS) for side in (there, here)
    )
    assert_same(found.layers[-1].posterior, due.layers[-1].posterior, 1e-9)
    assert info.step_size == due_info.step_size and info.value == pytest.approx(due_info.value)
    (_, grad), (_, due_grad) = (
        fs.elbo_and_grad(*side, rng=2, **SETTINGS) for side in (there, here)
    )
    q, due_q = found.layers[0].posterior, due.layers[0].posterior
    with Copies(gpu, 1):
        q = fs.optim.natural_update(q, grad.layers[0].posterior, 0.1)
    assert_same(q, fs.optim.natural_update(due_q, due_grad.layers[0].posterior, 0.1), 1e-9)
    relaxed = moved(gpu, arrays_of(problem(rng, "three")[0]))[0]
    refreshed, infos = fs.optim.update_inverse_factor(relaxed, jitter=JITTER)
    assert infos[1].converged and hasattr(
        refreshed.layers[1].posterior.inverse_tril, "__cuda_array_interface__"
    )


def test_a_floor_and_a_failure(gpu, rng):
    model, _, Y = problem(rng, "two")
    hidden = fs.replace(
        model.layers[0],
        posterior=fs.posteriors.LikelihoodForm(rng.standard_normal((3, 4)), np.full(4, 1e-17)),
    )
    model = arrays_of(fs.replace(model, layers=(hidden, model.layers[1])))
    X = np.concatenate([hidden.inducing[:2], rng.uniform(-2, 2, (B - 2, 2))])
    results = []
    for side in ((model, X, Y), moved(gpu, model, X, Y)):
        with pytest.warns(fs.VarianceClampWarning):
            results.append(fs.elbo_and_grad(*side, rng=0, jitter=0.0))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    q = fs.Whitened(np.zeros((3, 4)), np.stack([np.eye(4)] * 3))
    twice = fs.replace(hidden, inducing=np.repeat(hidden.inducing[:2], 2, axis=0), posterior=q)
    bad = moved(gpu, arrays_of(fs.replace(model, layers=(twice, model.layers[1]))), X, Y)
    with pytest.raises(
        NotPositiveDefinite, match=r"`layers\[0\]`: `inducing\[1\]` and `inducing\[0\]`"
    ):
        fs.elbo(*bad, rng=0, jitter=0.0)


def test_start_is_that_of_the_cpu(gpu, rng):
    X = rng.standard_normal((30, 3))
    for width in (None, 2, 4):
        here, there = (
            fs.layers.deep_gp(rows, fs.Gaussian(f8(0.1)), 3, 5, width=width, rng=0)
            for rows in (X, gpu.there(X))
        )
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(there), fs.records.leaves(here), strict=True
        ):
            np.testing.assert_allclose(
                a.get() if hasattr(a, "get") else a, b, rtol=1e-9, atol=1e-11, err_msg=path
            )
