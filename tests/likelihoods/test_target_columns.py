"""Targets of several columns in every kind of model: their shapes, weights, and errors."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.likelihoods.layout import add_unit_columns
from fastsvgp.testing import assert_gradient

N, M, D = 40, 6, 2


def trials(rng, *axes):
    n = rng.integers(1, 6, (N, *axes))
    return np.stack([rng.binomial(n, 0.4), n], axis=-1)


def problem(rng, *outputs, likelihood=None):
    """``(model, X, Y)``; targets are successes and trials."""
    q = fs.Whitened(
        0.3 * rng.standard_normal((*outputs, M)), lower_factor(rng, *outputs, M, off=0.1)
    )
    Z = rng.uniform(-2, 2, (M, D))
    model = fs.SVGP(
        fs.RBF(1.3, np.array([0.9, 1.2])), Z, q, likelihood or fs.likelihoods.Binomial()
    )
    return model, rng.uniform(-2, 2, (N, D)), trials(rng, *outputs)


def test_the_columns_of_outputs_are_those_of_one_model_each(rng):
    model, X, Y = problem(rng, 2)
    value, grad = fs.bounds.data_term_and_grad(model, X, Y)
    q, both = model.posterior, 0.0
    for p in range(2):
        one = fs.replace(model, posterior=fs.Whitened(q.mean[p], q.scale_tril[p]))
        both += fs.bounds.data_term_and_grad(one, X, Y[:, p])[0]
        np.testing.assert_allclose(
            fs.predict_log_density(one, X, Y[:, p]),
            fs.predict_log_density(one, X, Y[:, p : p + 1]),  # one output with an axis
        )
        np.testing.assert_allclose(
            fs.predict_cdf(model, X, Y)[:, p], fs.predict_cdf(one, X, Y[:, p])
        )
    assert value == pytest.approx(both, rel=1e-12)
    assert [a.shape for a in fs.predict_y(model, X)] == [(N, 2)] * 2
    assert fs.predict_quantiles(model, X, (0.1, 0.9)).shape == (2, N, 2)


def test_gradients_with_exposures(rng):
    model, X, Y = problem(rng, likelihood=fs.likelihoods.NegativeBinomial(1.7, exposure="column"))
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, jitter=1e-2, inputs=True)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y, jitter=1e-2), model, grad, rng=rng)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y, jitter=1e-2), X, X_bar, rng=rng)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    assert fs.elbo(single, X.astype(np.float32), Y.astype(np.float32)) == pytest.approx(
        fs.elbo(model, X, Y, jitter=1e-4), rel=1e-4
    )


def test_blocks_layers_sites_and_several_functions_read_the_same_columns(rng):
    model, X, Y = problem(rng)
    value, w = fs.elbo(model, X, Y, jitter=1e-4), rng.integers(0, 3, N)
    blocks = model.covariance.blocks(model.inducing, X)
    parts = model.posterior, model.likelihood
    layer = fs.layers.Layer(model.covariance, model.inducing, model.posterior)
    deep, multi = fs.DeepGP((layer,), model.likelihood), fs.MultiGP((layer,), model.likelihood)
    assert fs.bounds.elbo_and_grad_from_blocks(blocks, *parts, Y, jitter=1e-4)[0] == pytest.approx(
        value
    )
    rows = np.repeat(np.arange(N), w)
    holed = np.where((w > 0)[:, None], Y, np.nan)
    expected = fs.elbo(model, X[rows], Y[rows], jitter=1e-4)
    found, _ = fs.bounds.elbo_and_grad_from_blocks(blocks, *parts, holed, jitter=1e-4, weights=w)
    assert found == pytest.approx(expected, rel=1e-12)
    levels = 0.2, 0.7
    for other in (deep, multi):
        assert fs.elbo(other, X, Y, jitter=1e-4) == pytest.approx(value, rel=1e-12)
        for predict in (fs.predict_log_density, fs.predict_cdf):
            np.testing.assert_allclose(predict(other, X, Y), predict(model, X, Y), rtol=1e-9)
        np.testing.assert_array_equal(
            fs.predict_quantiles(other, X, levels), fs.predict_quantiles(model, X, levels)
        )
    sites = fs.sites.Sites(np.zeros(N), np.full(N, 0.1))
    tied = fs.sites.SiteSVGP(model.covariance, model.inducing, sites, model.likelihood)
    better, _ = fs.em(tied, X, Y, rounds=2)
    assert fs.sites.bound(better, X, Y) > fs.sites.bound(tied, X, Y)


def test_multi_gp_starts_from_the_first_column(rng):
    _, X, Y = problem(rng, 2)
    multi = fs.layers.multi_gp(
        X, Y, num_latents=1, M=M, likelihood=fs.likelihoods.Binomial(), rng=0
    )
    better, _ = fs.natural_step(multi, X, Y, step_size=0.3)
    assert fs.elbo(better, X, Y) > fs.elbo(multi, X, Y)


LIKELIHOODS = [
    (fs.likelihoods.NegativeBinomial(2.0), lambda Y: Y[:, 0]),
    (fs.likelihoods.NegativeBinomial(2.0, exposure="column"), lambda Y: Y),
    (fs.likelihoods.Binomial(), lambda Y: Y),
    (fs.likelihoods.Binomial(link="probit"), lambda Y: Y),
    (fs.likelihoods.Gamma(2.0), lambda Y: 0.5 + Y[:, 0]),
    (fs.likelihoods.Ordinal(-0.5, np.ones(4)), lambda Y: Y[:, 0]),
    (fs.likelihoods.KnownNoise(0.3), lambda Y: 1.0 * Y),
    (fs.likelihoods.Beta(5.0), lambda Y: 0.1 + 0.15 * Y[:, 0]),
    (fs.likelihoods.ZeroInflatedPoisson(0.3), lambda Y: Y[:, 0]),
    (
        fs.likelihoods.Switched((fs.Gaussian(0.3), fs.Gaussian(1.0))),
        lambda Y: np.stack([Y[:, 0], Y[:, 1] % 2], axis=1),
    ),
    (fs.likelihoods.Censored(0.3), lambda Y: np.stack([Y[:, 0], Y[:, 1] % 3 - 1], axis=1)),
]


@pytest.mark.parametrize("likelihood, of", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_natural_steps_climb_and_models_are_kept(likelihood, of, rng, tmp_path):
    model, X, Y = problem(rng, likelihood=likelihood)
    Y, values = of(Y), [fs.elbo(model, X, of(Y))]
    for _ in range(6):
        model, _ = fs.natural_step(model, X, Y, step_size=0.5)
        values.append(fs.elbo(model, X, Y))
    assert (np.diff(values) > -1e-9).all() and values[-1] > values[0]
    vector, unravel = fs.ravel(model)
    fs.save(tmp_path / "model.npz", unravel(vector))
    kept = fs.load(tmp_path / "model.npz")
    assert fs.elbo(kept, X, Y) == pytest.approx(values[-1], rel=1e-12)


def test_training_on_batches_with_weights_and_from_files(rng, tmp_path):
    model, X, Y = problem(rng, 2)
    w = rng.integers(0, 2, (N, 2))
    holed = np.where(w[..., None] > 0, Y, np.nan)
    options = {"steps": 5, "batch_size": 16, "rng": 0, "natural_step_size": 0.3}
    trained, _ = fs.fit(model, X, holed, weights=w, **options)
    assert fs.elbo(trained, X, holed, weights=w) > fs.elbo(model, X, holed, weights=w)
    for name, array in (("X", X), ("Y", Y)):
        np.save(tmp_path / f"{name}.npy", array)
    there = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "XY")
    ours, due = fs.fit(model, *there, **options)[0], fs.fit(model, X, Y, **options)[0]
    np.testing.assert_array_equal(ours.posterior.mean, due.posterior.mean)


def test_shapes_without_the_columns_are_refused(rng):
    model, X, Y = problem(rng)
    both, _, Ys = problem(rng, 2)
    needed = r"a Binomial likelihood reads the columns y, trials, in this order: give Y \(40, 2\)"
    for one, bad, message in (
        (model, Y[:, 0], rf"`Y` has shape \(40,\), and {needed}"),
        (model, np.ones((N, 3)), rf"`Y` has shape \(40, 3\), and {needed}"),
        (both, Ys[..., :1], rf"`Y` has shape \(40, 2, 1\), and {needed}"),
        (both, Y, r"use Y \(N, 2\) with mean \(M,\), or Y \(N, P, 2\) with mean \(P, M\)"),
        (model, Ys, r"use Y \(N, 2\) with mean \(M,\)"),
        (model, Y[1:], r"must have one row for each of the 40 rows of `X`"),
        (model, np.where(np.arange(2), np.nan, Y), r"`Y` contains nan at index \(0, 1\)"),
        (model, Y - np.array([0, 9]), r"in its column trials; got -.* at index \(0, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            fs.elbo(one, X, bad)
    with pytest.raises(ValueError, match=r"`Ys` has shape \(40,\), and a Binomial"):
        fs.predict_log_density(model, X, Y[:, 0])
    # one column: two columns of Y stay two outputs
    with pytest.raises(ValueError, match=r"use Y \(N,\) with mean \(M,\), or Y \(N, P\) with mean"):
        fs.elbo(fs.replace(model, likelihood=fs.Poisson()), X, Y)


def test_weights_are_those_of_targets_not_of_columns(rng):
    model, X, Y = problem(rng)
    both, _, Ys = problem(rng, 2)
    for one, bad, w, message in (
        (model, Y, np.ones((N, 2)), r"`weights` must have shape \(40,\), one for each row of `Y`;"),
        (both, Ys, np.ones((N, 2, 2)), r"shape \(40,\), .* or \(40, 2\), one for each target; got"),
        (both, Ys[:, 0, 0], np.ones(N), r"`Y` has shape \(40,\), and a Binomial likelihood"),
    ):
        with pytest.raises(ValueError, match=message):
            fs.elbo(one, X, bad, weights=w)
    bad, w = Y.astype(float), np.ones(N)
    w[:3], bad[:3], bad[3, 1] = 0, np.nan, 0.5  # the first that counts fills in for the others
    with pytest.raises(ValueError, match=r"column trials; got 0.5 at index \(3, 1\)"):
        fs.elbo(model, X, bad, weights=w)


def test_weight_space_models_take_one_column(rng):
    basis = fs.qsgp.RandomFourier(fs.RBF(1.0, np.ones(D)), num_features=M, seed=0)
    q = fs.qsgp.ChevronWeights(np.zeros(2 * M), np.eye(2 * M, 1), np.ones(2 * M - 1))
    model, X, Y = (
        fs.QSGP(basis, q, fs.likelihoods.Binomial()),
        rng.standard_normal((N, D)),
        trials(rng),
    )
    with pytest.raises(TypeError, match="Binomial, whose targets have the columns y, trials, and"):
        fs.qsgp.bound(model, X, Y)


def test_predictions_take_one_unit_of_the_other_columns():
    y = np.arange(3.0)
    assert add_unit_columns(fs.Poisson(), y) is y
    for likelihood, unit in ((fs.Poisson(exposure="column"), 1), (fs.likelihoods.KnownNoise(), 0)):
        np.testing.assert_array_equal(add_unit_columns(likelihood, y), [y, np.full(3, unit)])

    @fs.records.record
    class Unfinished(fs.likelihoods.Likelihood):
        target_columns = ("y", "side")

    with pytest.raises(TypeError, match="Unfinished .* take for the columns side: set its"):
        add_unit_columns(Unfinished(), np.zeros(2))


@pytest.mark.parametrize("wrong", [0.0, 1.0, 1.5, -0.1, np.nan])
def test_a_probability_outside_0_and_1_is_refused(wrong, rng):
    model, X, Y = problem(rng, likelihood=fs.likelihoods.ZeroInflatedPoisson(wrong))
    with pytest.raises(ValueError, match="likelihood.probability"):
        fs.elbo(model, X, Y[:, 0])
