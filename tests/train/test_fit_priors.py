"""Training with priors: what it maximises, on any kind of model and number of ranks."""

import numpy as np
import pytest
from support.fit_problems import assert_same, cast, problem
from support.rank_problems import distance, on_ranks

import fastsvgp as fs

LENGTHSCALES = fs.priors.LogNormal(0.5, 0.4)
NOISE = fs.priors.Gamma(3.0, 40.0)
PRIORS = {"covariance.lengthscales": LENGTHSCALES, "likelihood.variance": NOISE}
OF_SGPR = {"covariance.lengthscales": LENGTHSCALES, "noise_variance": NOISE}


def collapsed(rng):
    model, X, Y = problem(rng)
    return fs.SGPR(model.covariance, model.inducing, 0.1), X, Y


def slope(model, X, Y, priors):
    """Gradient of bound plus log prior, in the logarithms."""
    vector, unravel = fs.ravel(model, transform="log")
    grads = [
        fs.collapsed_bound_and_grad(model, X, Y)[1],
        fs.priors.log_prior_and_grad(model, priors)[1],
    ]
    return sum(unravel.pullback(vector, grad) for grad in grads)


def test_a_collapsed_training_ends_at_the_mode(rng):
    sgpr, X, Y = collapsed(rng)
    plain, _ = fs.fit(sgpr, X, Y)
    found, info = fs.fit(sgpr, X, Y, priors=OF_SGPR)
    assert np.abs(slope(found, X, Y, OF_SGPR)).max() < 2e-2
    log_prior, _ = fs.priors.log_prior_and_grad(found, OF_SGPR)
    assert abs(info.values[-1] - fs.collapsed_bound(found, X, Y) - log_prior) < 1e-9
    assert fs.collapsed_bound(plain, X, Y) > fs.collapsed_bound(found, X, Y)
    assert log_prior > fs.priors.log_prior_and_grad(plain, OF_SGPR)[0]


def test_both_ways_to_train_an_svgp_end_at_a_mode(rng):
    sgpr, X, Y = collapsed(rng)
    sgpr = fs.replace(sgpr, inducing=X[:20].copy())
    model = fs.optimal_svgp(sgpr, X, Y)
    start = np.abs(slope(sgpr, X, Y, OF_SGPR)).max()
    profiled, _ = fs.fit(model, X, Y, priors=PRIORS, fixed="inducing", collapsed=True)
    stepped, _ = fs.fit(
        model, X, Y, priors=PRIORS, fixed="inducing", steps=600, batch_size=len(X), rng=0,
        optimiser=fs.adam(fs.optim.schedules.cosine(0.1, 1e-3, 600), transform="log"),
        natural_step_size=1.0,
    )  # fmt: skip
    for found, allowed in ((profiled, 0.05), (stepped, 0.5)):
        there = fs.SGPR(found.covariance, found.inducing, found.likelihood.variance)
        vector, unravel = fs.ravel(there, transform="log")
        left = slope(there, X, Y, OF_SGPR)
        left[unravel.slices["inducing"]] = 0
        assert np.abs(left).max() < allowed < start


def test_the_log_density_is_added_once_to_each_value(rng):
    """At the first step of minibatches, with and without natural steps."""
    model, X, Y = problem(rng)
    log_prior, _ = fs.priors.log_prior_and_grad(model, PRIORS)
    natural = {"natural_step_size": 0.1}
    held = natural | {"fixed": ("covariance", "likelihood", "inducing")}
    for options in ({}, natural, held):
        given = dict(steps=1, batch_size=7, rng=3, **options)
        _, plain = fs.fit(model, X, Y, **given)
        _, info = fs.fit(model, X, Y, priors=PRIORS, **given)
        assert abs(info.values[0] - plain.values[0] - log_prior) < 1e-9


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_step_moves_the_parameters_of_the_prior_alone(rng, dtype):
    model, X, Y = problem(rng, dtype=dtype)
    model = cast(model, dtype)
    given = dict(
        steps=3, batch_size=20, rng=0, optimiser=fs.sgd(0.0, step_sizes={"likelihood": 0.01})
    )
    plain, _ = fs.fit(model, X, Y, **given)
    found, _ = fs.fit(model, X, Y, priors={"likelihood": fs.priors.LogNormal(8.0, 0.1)}, **given)
    assert found.likelihood.variance > plain.likelihood.variance
    assert found.covariance.lengthscales.dtype == dtype
    assert_same(found.covariance, plain.covariance)


KINDS = {
    "svgp": lambda rng: (*problem(rng), {"batch_size": 20, "natural_step_size": 0.1}, PRIORS),
    "profiled": lambda rng: (*problem(rng), {"collapsed": True}, PRIORS),
    "sgpr": lambda rng: (*collapsed(rng), {}, OF_SGPR),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_is_bitwise_the_same(tmp_path, rng, kind):
    model, X, Y, options, priors = KINDS[kind](rng)
    path, given = tmp_path / "c.npz", options | {"rng": 0, "priors": priors}
    half, _ = fs.fit(model, X, Y, steps=4, checkpoint=path, **given)
    resumed, info = fs.fit(model, X, Y, steps=8, resume=path, **given)
    if kind == "svgp":  # L-BFGS restarts with an empty history
        whole, expected = fs.fit(model, X, Y, steps=8, **given)
        assert_same(resumed, whole)
        np.testing.assert_array_equal(info.values, expected.values)
    else:
        again, _ = fs.fit(half, X, Y, steps=4, **given)
        assert_same(resumed, again)
    other = next(iter(priors)), fs.priors.LogNormal(0.5, 0.5)
    for changed, said in (
        (None, "`priors` .* then, None now"),
        (priors | {other[0]: other[1]}, r"`priors.covariance.lengthscales.sd` 0.4 then, 0.5 now"),
    ):
        with pytest.raises(fs.errors.OtherTraining, match=said):
            fs.fit(model, X, Y, steps=8, resume=path, **given | {"priors": changed})


@pytest.mark.parametrize("rows", ["all", "own"])
@pytest.mark.parametrize("kind", ["svgp", "sgpr"])
def test_ranks_add_it_once_and_stay_alike(rng, kind, rows):
    model, X, Y, options, priors = KINDS[kind](rng)
    options = options | {"steps": 5, "rng": 0, "priors": priors, "batch_size": len(X)}
    if kind == "sgpr":
        options.pop("batch_size")
    expected, info = fs.fit(model, X, Y, **options)

    def work(group):
        own = slice(None) if rows == "all" else slice(group.rank, None, group.size)
        return fs.fit(model, X[own], Y[own], group=group, **options)

    found = on_ranks(2, work, rows)
    assert distance(found[0][0], found[1][0]) == 0
    assert distance(found[0][0], expected) < 1e-6
    np.testing.assert_allclose(found[0][1].values, info.values, rtol=1e-8)

    def apart(group):
        more = {} if group.rank == 0 else {"priors": None}
        return fs.fit(model, X, Y, group=group, **options | more)

    with pytest.raises(Exception, match="priors"):
        on_ranks(2, apart)


def test_layers_and_several_functions_take_priors_by_their_paths(rng):
    _, X, Y = problem(rng)
    Z, q = X[:4].copy(), fs.Whitened(np.zeros(4), np.eye(4))
    layer = fs.layers.Layer(fs.RBF(1.0, np.ones(2)), Z, q)
    several = fs.MultiGP((layer, layer), fs.Gaussian(0.1), rng.standard_normal((2, 2)))
    hidden = fs.layers.Layer(
        fs.RBF(1.0, np.ones(2)), Z, fs.Whitened(np.zeros((2, 4)), np.stack([np.eye(4)] * 2))
    )
    deep = fs.DeepGP((hidden, layer), fs.Gaussian(0.1))
    near = fs.VIF(fs.RBF(1.0, np.ones(2)), Z, q, fs.Gaussian(0.1), neighbours=3)
    for model, path, targets in (
        (several, "latents.1.covariance", np.stack([Y, -Y], axis=1)),
        (deep, "layers.0.covariance", Y),
        (near, "covariance", Y),
    ):
        priors = {path: fs.priors.LogNormal(0.0, 0.3)}
        given = dict(steps=1, batch_size=10, rng=0)
        log_prior, _ = fs.priors.log_prior_and_grad(model, priors)
        _, plain = fs.fit(model, X, targets, **given)
        _, info = fs.fit(model, X, targets, priors=priors, **given)
        assert abs(info.values[0] - plain.values[0] - log_prior) < 1e-9


def test_a_qsgp_takes_no_priors(rng):
    _, X, Y = problem(rng)
    chevron = fs.qsgp.ChevronWeights(np.zeros(8), np.eye(8, 1), np.ones(7))
    covariance = fs.RBF(1.0, np.ones(2))
    model = fs.QSGP(fs.qsgp.RandomFourier(covariance, num_features=8), chevron, fs.Gaussian(0.1))
    with pytest.raises(ValueError, match="a QSGP .*; `priors` would have no effect"):
        fs.fit(model, X, Y, steps=1, priors={"likelihood.variance": NOISE})
