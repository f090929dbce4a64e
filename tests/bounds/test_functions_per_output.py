"""Models whose likelihood reads two latent functions per output, wherever an SVGP works."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.likelihoods.layout import laid_out, outputs_of, stack_latents
from fastsvgp.testing import assert_gradient

B, D, M, JITTER = 23, 2, 6, 1e-3
LIKELIHOODS = {
    "gaussian": fs.likelihoods.HeteroskedasticGaussian(),
    "counts": fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=8),
}
each = pytest.mark.parametrize("name", LIKELIHOODS)
outputs = pytest.mark.parametrize("P", [None, 1, 3])


def targets(rng, name, P):
    Y = 1.5 * rng.standard_normal((B,) if P is None else (B, P))
    return np.floor(np.exp(Y)) if name == "counts" else Y


def problem(rng, name="gaussian", P=None, mean=True):
    """``(model, X, Y)``; the functions of output p are rows p and P + p."""
    J = 2 * (P or 1)
    q = fs.Whitened(0.3 * rng.standard_normal((J, M)), lower_factor(rng, J, M, off=0.1))
    covariance, Z = fs.RBF(1.3, np.array([0.9, 1.2])), rng.uniform(-2, 2, (M, D))
    mean = fs.means.ConstantMean(np.linspace(-0.5, 0.3, J)) if mean else None
    model = fs.SVGP(covariance, Z, q, LIKELIHOODS[name], mean)
    return model, rng.uniform(-2, 2, (B, D)), targets(rng, name, P)


def one_output(model, p, P):
    """The model of one of P outputs."""
    rows = [p, P + p]
    q = fs.records.tree_map(lambda a: a[rows], model.posterior)
    return fs.replace(model, posterior=q, mean=fs.means.ConstantMean(model.mean.value[rows]))


@outputs
@each
def test_gradients(rng, tune, name, P):
    """Also in several chunks, with weights, and of missing targets."""
    model, X, Y = problem(rng, name, P)
    w = np.where(rng.random(Y.shape) < 0.3, 0.0, rng.uniform(0.5, 2, Y.shape))
    w.reshape(-1)[0] = 1.0
    Y[w == 0] = np.nan
    options = {"num_data": 50.0, "jitter": JITTER, "weights": w}
    for columns in (1024, 7):
        tune(bound_chunk_columns=columns, bound_chunk_numbers=1)
        value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
        assert value == pytest.approx(fs.elbo(model, X, Y, **options), rel=1e-12)
        if columns == 1024:
            assert_gradient(lambda m: fs.elbo(m, X, Y, **options), model, grad)
            assert_gradient(lambda x: fs.elbo(model, x, Y, **options), X, X_bar)
            expected = grad
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(grad), fs.records.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10, err_msg=path)


@each
def test_outputs_add_up(rng, name):
    model, X, Y = problem(rng, name, 3)
    parts = [
        fs.bounds.data_term_and_grad(one_output(model, p, 3), X, Y[:, p], jitter=JITTER)
        for p in range(3)
    ]
    value, grad = fs.bounds.data_term_and_grad(model, X, Y, jitter=JITTER)
    assert value == pytest.approx(sum(part for part, _ in parts), rel=1e-12)
    for p, (_, part) in enumerate(parts):
        np.testing.assert_allclose(grad.posterior.mean[[p, 3 + p]], part.posterior.mean, rtol=1e-9)


@outputs
@each
def test_predictions_have_the_shape_of_the_targets(rng, name, P):
    model, X, Y = problem(rng, name, P)
    shape, J = Y.shape if P != 1 else (B,), 2 * (P or 1)
    assert [a.shape for a in fs.predict_f(model, X)] == [(B, J)] * 2
    assert fs.predict_f(model, X, full_cov=True)[1].shape == (J, B, B)
    assert fs.sample_f(model, X, 2, rng=0).shape == (2, B, J)
    found = {
        "mean": fs.predict_y(model, X)[0],
        "var": fs.predict_y(model, X)[1],
        "cdf": fs.predict_cdf(model, X, Y),
        "low": fs.predict_quantiles(model, X, 0.1),
    }
    assert {key: a.shape for key, a in found.items()} == dict.fromkeys(found, shape)
    assert fs.predict_quantiles(model, X, [0.2, 0.9]).shape == (2, *shape)
    logs = fs.predict_log_density(model, X, Y, chunk_size=5)
    np.testing.assert_allclose(logs, fs.predict_log_density(model, X, Y), rtol=1e-10)
    assert logs.shape == (B,)
    if P == 3:
        for p in range(3):
            one = one_output(model, p, 3)
            np.testing.assert_allclose(found["mean"][:, p], fs.predict_y(one, X)[0], rtol=1e-10)
            np.testing.assert_allclose(
                found["cdf"][:, p], fs.predict_cdf(one, X, Y[:, p]), rtol=1e-10
            )


@pytest.mark.parametrize("P", [None, 2])
def test_natural_steps_reach_one_optimum(rng, P):
    """Of all kinds of posterior, at once and in turn; the bound never falls with ``monotone``."""
    model, X, Y = problem(rng, "gaussian", P, mean=False)
    bounds = []
    for kind in (
        fs.Whitened,
        fs.Marginal,
        fs.posteriors.AbsorbedDualSites,
        fs.posteriors.DualSites,
    ):
        start = fs.posteriors.convert(model, kind, jitter=JITTER)
        options = {"step_size": 0.6, "jitter": JITTER, "monotone": True}
        moved, infos = fs.sites.natural_steps(start, X, Y, steps=60, **options)
        assert (np.diff([info.value for info in infos]) > -1e-8).all()
        one, _ = fs.natural_step(start, X, Y, **options)
        two, _ = fs.sites.natural_steps(start, X, Y, steps=1, **options)
        assert fs.elbo(one, X, Y, jitter=JITTER) == pytest.approx(
            fs.elbo(two, X, Y, jitter=JITTER), rel=1e-9
        )
        bounds.append(fs.elbo(moved, X, Y, jitter=JITTER))
    np.testing.assert_allclose(bounds, bounds[0], atol=1e-4)


def test_noise_that_varies_is_found(rng):
    """With noise of 0.05 to the left and 0.8 to the right, and with all optimisers' fields."""
    X = np.linspace(-2, 2, 300)[:, None]
    sd = np.where(X[:, 0] < 0, 0.05, 0.8)
    Y = np.sin(2 * X[:, 0]) + sd * rng.standard_normal(300)
    covariance, Z = fs.RBF(1.0, 0.7), np.linspace(-2, 2, 15)[:, None]
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=2)
    model = fs.SVGP(
        covariance,
        Z,
        q,
        fs.likelihoods.HeteroskedasticGaussian(),
        fs.means.ConstantMean(np.zeros(2)),
    )
    model, _ = fs.fit(
        model, X, Y, steps=60, optimiser=fs.adam(0.03), natural_step_size=0.3, batch_size=100, rng=0
    )
    _, var = fs.predict_y(model, np.array([[-1.5], [1.5]]))
    assert np.sqrt(var[0]) < 0.2 and 0.5 < np.sqrt(var[1]) < 1.2


def test_blocks_give_the_bound(rng):
    model, X, Y = problem(rng, "gaussian", 3, mean=False)
    blocks = model.covariance.blocks(model.inducing, X)
    value, (blocks_bar, q_bar, _) = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, jitter=JITTER
    )
    expected, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(q_bar.mean, grad.posterior.mean, rtol=1e-10)
    assert blocks_bar.Kuf.shape == (M, B)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
def test_models_with_a_site_for_each_function_of_a_datum(rng, kind, P):
    svgp, X, Y = problem(rng, "gaussian", P)
    J = 2 * (P or 1)
    sites = fs.sites.Sites(rng.standard_normal((J, B)), rng.uniform(0.1, 1.0, (J, B)))
    inducing = () if kind is fs.sites.VGP else (svgp.inducing,)
    model = kind(svgp.covariance, *inducing, sites, svgp.likelihood, svgp.mean)
    value, grad = fs.sites.bound_and_grad(model, X, Y, jitter=JITTER)
    assert_gradient(lambda m: fs.sites.bound(m, X, Y, jitter=JITTER), model, grad, rtol=1e-6)
    assert sum(fs.sites.bound_terms(model, X, Y, jitter=JITTER)) == pytest.approx(value, rel=1e-9)
    moved, infos = fs.sites.natural_steps(model, X, Y, steps=15, step_size=0.5, monotone=True)
    assert infos[-1].value > infos[0].value
    some, _ = fs.natural_step(model, X, Y, rows=[1, 4], step_size=0.5)
    assert (some.sites.lambda1 != sites.lambda1).any(axis=0).nonzero()[0].tolist() == [1, 4]
    tied = fs.sites.tie_sites(moved, X)
    assert fs.elbo(tied, X, Y) == pytest.approx(fs.sites.bound(moved, X, Y), abs=1e-2)
    if kind is fs.sites.SiteSVGP:
        optimal = fs.sites.dual_parameters(tied, X, Y)
        assert optimal.lambda1.shape == (J, B)
        assert np.isfinite(fs.sites.leave_one_out(tied, X, Y)).all()


def test_files_and_flat_vectors(rng, tmp_path):
    model, X, Y = problem(rng, "counts", 3)
    fs.save(tmp_path / "model.npz", model)
    assert fs.elbo(fs.load(tmp_path / "model.npz"), X, Y) == fs.elbo(model, X, Y)
    vector, unravel = fs.ravel(model)
    assert fs.elbo(unravel(vector), X, Y) == pytest.approx(fs.elbo(model, X, Y), rel=1e-12)


def test_layout_of_rows():
    likelihood = fs.likelihoods.HeteroskedasticGaussian()
    assert outputs_of(likelihood, (2,)) == () and outputs_of(likelihood, (6,)) == (3,)
    assert outputs_of(fs.Gaussian(), (6,)) == (6,)
    f = fs.records.Marginals(np.arange(24.0).reshape(6, 4), np.ones((6, 4)))
    there = laid_out(likelihood, f)
    assert there.mean.shape == (2, 3, 4) and (there.mean[1, 2] == f.mean[5]).all()
    np.testing.assert_array_equal(stack_latents(likelihood, there).mean, f.mean)
    assert laid_out(fs.Gaussian(), f) is f and stack_latents(fs.Gaussian(), f) is f
    assert stack_latents(likelihood, None) is None
    none = fs.records.Marginals(np.zeros((2, 3, 0)), np.zeros((2, 3, 0)))
    assert stack_latents(likelihood, none).mean.shape == (6, 0)


def test_wrong_numbers_of_functions_are_named(rng):
    model, X, Y = problem(rng)

    def of(J):
        shape = () if J is None else (J,)
        q = fs.Whitened(np.zeros((*shape, M)), np.broadcast_to(np.eye(M), (*shape, M, M)).copy())
        return fs.replace(model, posterior=q, mean=None)

    said = r"`posterior` holds 3 latent functions, .* a HeteroskedasticGaussian .* takes 2 per"
    for call in (lambda: fs.elbo(of(3), X, Y), lambda: fs.predict_y(of(3), X)):
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(ValueError, match=r"`posterior` holds 1 latent function, leading axes \(\)"):
        fs.elbo(of(None), X, Y)
    with pytest.raises(
        ValueError, match=r"`Y` has shape \(23, 3\) .* mean \(2, M\), or Y \(N, P\)"
    ):
        fs.elbo(of(2), X, np.zeros((B, 3)))
    layer = fs.layers.Layer(model.covariance, model.inducing, of(3).posterior)
    with pytest.raises(ValueError, match=said):
        fs.predict_f(fs.DeepGP((layer,), model.likelihood), X)
    sites = fs.sites.SiteSVGP(
        model.covariance,
        model.inducing,
        fs.sites.Sites(np.zeros((4, B)), np.ones((4, B))),
        model.likelihood,
    )
    with pytest.raises(ValueError, match=r"`sites` has lambda1 \(4, 23\), .* shape \(2, 23\)"):
        fs.sites.bound(sites, X, Y)
    odd = fs.replace(sites, sites=fs.sites.Sites(np.zeros((3, B)), np.ones((3, B))))
    with pytest.raises(ValueError, match="`sites` holds 3 latent functions"):
        fs.sites.bound(odd, X, Y)
    with pytest.raises(TypeError, match="a class; .*at_prior.*outputs=2"):
        fs.elbo(fs.replace(model, posterior=fs.Whitened), X, Y)
    q = fs.qsgp.ChevronWeights(mean=np.zeros(50), columns=np.eye(50, 1), diagonal=np.ones(49))
    weights = fs.QSGP(fs.qsgp.RandomFourier(fs.RBF(), num_features=50), q, model.likelihood)
    with pytest.raises(
        TypeError, match="which takes 2 latent functions per output, and a QSGP has"
    ):
        fs.predict_y(weights, X)

    @fs.records.record
    class Both(fs.likelihoods.HeteroskedasticGaussian):
        num_latent = 3

    with pytest.raises(TypeError, match="Both sets `num_latent`, for integer labels, and"):
        fs.elbo(fs.replace(of(6), likelihood=Both()), X, np.zeros(B, int))
