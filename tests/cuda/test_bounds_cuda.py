"""Bounds on device arrays: the results of the CPU, and only the scalar is copied to the host."""

from unittest import mock

import numpy as np
import pytest
from cuda_host import cupy_on_host
from support.device_models import (
    COVARIANCES,
    LIKELIHOODS,
    MEANS,
    TARGETS,
    B,
    Copies,
    D,
    M,
    assert_same,
    check_bound,
    errors,
    f8,
    model_of_row,
    moved,
    small_model,
)
from support.gp_problems import lower_factor
from support.posterior_problems import JITTER, ROWS, StackedWhitened, of_means
from support.weight_problems import BASES, basis_of, weights

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda.common import libraries


@pytest.mark.parametrize("batch", [B, 8], ids=["long", "short"])
@pytest.mark.parametrize("posterior", ["whitened", "marginal"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_elbo_and_grad(gpu, rng, posterior, outputs, batch):
    assert_bounds_of_the_cpu(gpu, rng, posterior, outputs, batch)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", ROWS)
def test_every_posterior(gpu, rng, posterior, outputs):
    assert_bounds_of_the_cpu(gpu, rng, posterior, outputs, B)


def assert_bounds_of_the_cpu(gpu, rng, posterior, outputs, batch):
    model, settings = model_of_row(rng, posterior, outputs)
    here = model, rng.standard_normal((batch, D)), rng.standard_normal((batch, *outputs))
    there = moved(gpu, *here)
    for inputs in (True, False):
        check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=inputs, **settings)
    check_bound(gpu, fs.elbo_and_grad, here, there, wrt=(), inputs=True, **settings)
    some = ("inducing", "covariance.variance", of_means(here[0].posterior))
    check_bound(gpu, fs.bounds.data_term_and_grad, here, there, wrt=some, inputs=True, **settings)
    check_bound(gpu, fs.elbo_and_grad, here, there, wrt=("inducing", "covariance"), **settings)
    check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1], **settings)
    with Copies(gpu, 1):
        assert abs(fs.elbo(*there, **settings) - fs.elbo(*here, **settings)) < 1e-9


def test_the_inputs_alone_are_on_the_device(gpu, rng):
    model, X, Y = small_model(rng), rng.standard_normal((B, D)), rng.standard_normal(B)
    _, grad, X_bar = fs.elbo_and_grad(*moved(gpu, model, X, Y), wrt=(), inputs=True)
    assert not [path for path, _, bar in fs.records.leaves(grad) if bar is not None]
    assert X_bar.shape == X.shape and hasattr(X_bar, "__cuda_array_interface__")


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize(
    "posterior", [name for name in ROWS if name.startswith("relaxed") and "probe" not in name]
)
def test_likelihood_direction(gpu, rng, posterior, outputs):
    model, settings = model_of_row(rng, posterior, outputs)
    # near the inverse, and far from it, where the direction is the gradient
    for scale in (1.0, 2.0):
        there_tril = scale * np.tril(model.posterior.inverse_tril)
        here = (
            fs.records.replace_at(model, "posterior.inverse_tril", there_tril),
            rng.standard_normal((B, D)),
        )
        here = *here, rng.standard_normal((B, *outputs))
        there = moved(gpu, *here)
        value, grad = fs.bounds.lsvgp_direction(*here, num_data=1000, **settings)
        found, found_grad = fs.bounds.lsvgp_direction(*there, num_data=1000, **settings)
        assert found == pytest.approx(value, rel=1e-10)
        assert_same(found_grad, grad)


@pytest.mark.parametrize("likelihood, kind, outputs", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_likelihoods(gpu, rng, likelihood, kind, outputs):
    here = (
        small_model(rng, outputs, likelihood=likelihood),
        rng.standard_normal((B, D)),
        TARGETS[kind](rng, (B, *outputs)),
    )
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    for predict, count in ((fs.predict_f, 2), (fs.predict_y, 2), (fs.predict_log_density, 3)):
        expected = predict(*here[:count])
        # their number depends on the data
        adaptive = {fs.StudentT: 1, fs.likelihoods.HeteroskedasticGaussian: 1}
        adaptive[fs.likelihoods.HeteroskedasticNegativeBinomial] = 2  # rules over either function
        nodes = adaptive.get(type(likelihood), 0) if count == 3 else 0
        with Copies(gpu, 1 + nodes):
            found = predict(*there[:count], chunk_size=40)
        assert_same(found, expected)


@pytest.mark.parametrize("posterior, wrt, inverses", [
    ("whitened", None, 0), ("WhitenedOrthogonal", None, 0),
    ("marginal", ("posterior", "mean"), 0), ("marginal", None, 1),
])  # fmt: skip
def test_kl_term_inverts_only_factors_that_it_needs(rng, posterior, wrt, inverses):
    """If the KL divergence does not depend on Kuu, its gradient there is zero too."""
    model, _ = model_of_row(rng, posterior)
    data = rng.standard_normal((B, D)), rng.standard_normal(B)
    expected = fs.bounds.kl_term_and_grad(model, wrt=wrt, jitter=JITTER)
    with cupy_on_host.cupy_on_host() as cp:
        there = fs.to_device(model, "cuda")
        with mock.patch.object(
            kernels, "inverse_triangular", side_effect=kernels.inverse_triangular
        ) as inverse:
            found = fs.bounds.kl_term_and_grad(there, wrt=wrt, jitter=JITTER)
            assert inverse.call_count == inverses
            fs.elbo_and_grad(there, *map(cp.asarray, data), wrt=wrt, jitter=JITTER)
            assert inverse.call_count == inverses + 1
        assert abs(found[0] - expected[0]) <= 1e-10 * max(1, expected[0])
        assert_same(found[1], expected[1])
    for path, _, bar in fs.records.leaves(expected[1]):
        if (
            path.startswith(("covariance", "inducing"))
            and bar is not None
            and not posterior == "marginal"
        ):
            assert not bar.any(), path


@pytest.mark.parametrize("dtype, solves", [("float64", 0), ("float32", 4)])
def test_large_factors_are_inverted_where_that_is_accurate(rng, dtype, solves):
    model = small_model(rng)
    q = fs.Whitened(rng.standard_normal(260), np.eye(260))
    model = fs.replace(model, inducing=rng.standard_normal((260, D)), posterior=q)
    data = (rng.standard_normal(shape).astype(dtype) for shape in ((B, D), B))
    here = fs.records.tree_map(lambda a: np.asarray(a, dtype), model), *data
    with (
        cupy_on_host.cupy_on_host() as cp,
        mock.patch.object(libraries, "trsm", side_effect=libraries.trsm) as trsm,
    ):
        there = fs.to_device(here[0], "cuda"), *map(cp.asarray, here[1:])
        value, grad = fs.elbo_and_grad(*there)
        assert trsm.call_count == solves
        exact, exact_grad = fs.elbo_and_grad(*here)
        assert value == pytest.approx(exact, rel=1e-10 if dtype == "float64" else 1e-4)
        if dtype == "float64":
            assert_same(grad, exact_grad, 1e-8)


def test_two_sets_of_inducing_inputs(gpu, rng):
    model = small_model(rng)
    q, Z = model.posterior, model.inducing
    model = fs.replace(
        model,
        posterior=StackedWhitened(q.mean, q.scale_tril),
        inducing=fs.posteriors.InducingPair(Z[:10], Z[10:]),
    )
    here = model, rng.standard_normal((B, D)), rng.standard_normal(B)
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, inputs=True)
    check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1])
    with Copies(gpu, 1):
        found = fs.predict_f(*there[:2])
    assert_same(found, fs.predict_f(*here[:2]))
    for wrong in (np.full((M - 10, D), np.nan), Z[10:, :2]):
        bad = fs.records.replace_at(model, "inducing.O", wrong), *here[1:]
        message, other = errors(fs.elbo_and_grad, bad, moved(gpu, *bad))
        assert message == other


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize(
    "kind",
    [
        fs.posteriors.WhitenedOrthogonal,
        fs.posteriors.Orthogonal,
        fs.posteriors.Decoupled,
        fs.posteriors.DecoupledWeights,
    ],
)
def test_orthogonal_inducing_inputs(gpu, rng, kind, P):
    batch = () if P is None else (P,)
    fields = [
        field
        for m in (10, 4)
        for field in (rng.standard_normal((*batch, m)), lower_factor(rng, *batch, m, off=0.2))
    ]
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (10, D)), rng.uniform(-2, 2, (4, D)))
    posterior = kind(*fields[: len(kind._record_fields)])
    model = fs.SVGP(fs.RBF(f8(1.3), np.ones(D)), pair, posterior, fs.Gaussian(f8(0.3)))
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *batch))
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1])
    for full_cov in (False, True):
        assert_same(*(fs.predict_f(*side[:2], full_cov=full_cov) for side in (there, here)), 1e-9)
    truth, other = fs.natural_step(*here, step_size=0.4)
    with Copies(gpu, 2):
        ours, info = fs.natural_step(*there, step_size=0.4)
    assert info.step_size == other.step_size
    for (_, _, a), (_, _, b) in zip(
        fs.records.leaves(fs.to_host(ours.posterior)),
        fs.records.leaves(truth.posterior),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    joint, same = (fs.posteriors.joint_posterior(side[0]) for side in (there, here))
    np.testing.assert_allclose(
        fs.to_host(joint.posterior).mean, same.posterior.mean, rtol=1e-9, atol=1e-9
    )
    q = fs.posteriors.at_prior(kind, there[0].covariance, there[0].inducing, outputs=P)
    truth = fs.posteriors.at_prior(kind, model.covariance, pair, outputs=P)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(fs.to_host(q)), fs.records.leaves(truth), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-9, err_msg=path)
    if kind is fs.posteriors.DecoupledWeights:
        check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, sampled=[0, 2, 2])
        check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1], sampled=3, rng=0)


@pytest.mark.parametrize("posterior", ROWS)
def test_every_posterior_there_and_back(gpu, rng, posterior):
    model, _ = model_of_row(rng, posterior, (2,))
    there = fs.to_device(model)
    assert type(there.posterior) is type(model.posterior)
    assert all(
        hasattr(leaf, "__cuda_array_interface__")
        for _, _, leaf in fs.records.leaves(there.posterior)
    )
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(fs.to_host(there)), fs.records.leaves(model), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)


@pytest.mark.parametrize("covariance", COVARIANCES, ids=lambda c: type(c).__name__)
def test_covariances_and_mean_functions(gpu, rng, covariance):
    for mean in MEANS:
        here = (
            small_model(rng, covariance=covariance, mean=mean),
            rng.standard_normal((B, D)),
            rng.standard_normal(B),
        )
        check_bound(gpu, fs.elbo_and_grad, here, moved(gpu, *here), num_data=1000, inputs=True)
    sgpr = fs.SGPR(covariance, here[0].inducing, f8(0.3), mean)
    check_bound(gpu, fs.collapsed_bound_and_grad, (sgpr, *here[1:]), moved(gpu, sgpr, *here[1:]))


@pytest.mark.parametrize("posterior", ROWS)
def test_from_blocks(gpu, rng, posterior):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    model, settings = model_of_row(rng, posterior)
    blocks = model.covariance.blocks(model.inducing, X, full_cov=True)
    value, bars = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, **settings
    )
    there, on_device = fs.to_device(model), fs.records.tree_map(gpu.there, blocks)
    with Copies(gpu, 1):
        found, found_bars = fs.bounds.elbo_and_grad_from_blocks(
            on_device, there.posterior, there.likelihood, gpu.there(Y), **settings
        )
    assert abs(found - value) < 1e-9
    assert_same(found_bars, bars)
    for full_cov in (False, True):
        expected = fs.bounds.predict_from_blocks(
            blocks, model.posterior, full_cov=full_cov, jitter=JITTER
        )
        with Copies(gpu, 1):
            found = fs.bounds.predict_from_blocks(
                on_device, there.posterior, full_cov=full_cov, jitter=JITTER
            )
        assert_same(found, expected, 1e-9)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_collapsed(gpu, rng, outputs):
    model = small_model(rng)
    check_collapsed(
        gpu,
        rng,
        fs.SGPR(model.covariance, model.inducing, f8(0.3), fs.means.ConstantMean(f8(0.1))),
        outputs,
    )


def check_collapsed(gpu, rng, sgpr, outputs):
    here = sgpr, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    check_bound(gpu, fs.collapsed_bound_and_grad, here, there)
    with Copies(gpu, 1):
        best = fs.optimal_svgp(*there)
    assert_same(best, fs.optimal_svgp(*here), 1e-9)


@pytest.mark.parametrize("given", ["none", "mean", "both"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_collapsed_with_orthogonal_inducing_inputs(gpu, rng, given, outputs):
    m, W = (rng.standard_normal((*outputs, 4)), 0.3 * lower_factor(rng, *outputs, 4))
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (9, D)), rng.uniform(-2, 2, (4, D)))
    q_of_v = {"none": {}, "mean": {"mean_v": m}, "both": {"mean_v": m, "scale_tril_v": W}}[given]
    sgpr = fs.bounds.OrthogonalSGPR(
        fs.Matern32(f8(1.1), np.ones(D)),
        pair,
        f8(0.3),
        **q_of_v,
        mean=fs.means.ConstantMean(f8(0.1)),
    )
    check_collapsed(gpu, rng, sgpr, outputs)


def test_tighter(gpu, rng):
    model = small_model(rng)
    here = (
        fs.SGPR(model.covariance, model.inducing, f8(0.3)),
        rng.standard_normal((B, D)),
        rng.standard_normal(B),
    )
    check_bound(gpu, fs.bounds.tighter_bound_and_grad, here, moved(gpu, *here))


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_certificate(gpu, rng, outputs):
    model = small_model(rng, outputs)
    X, Y = rng.standard_normal((B, D)), rng.poisson(2, (B, *outputs)).astype(float)
    for likelihood in (fs.Gaussian(f8(0.3)), fs.Poisson()):
        here = fs.replace(model, likelihood=likelihood), X, Y
        expected, found = fs.certificate(*here), fs.certificate(*moved(gpu, *here))
        np.testing.assert_allclose(found.upper, expected.upper, rtol=1e-9)
        np.testing.assert_allclose(found.lower, expected.lower, rtol=1e-9)
    sgpr, X, Y = fs.SGPR(model.covariance, model.inducing, f8(0.3)), X[:60], Y[:60]
    Xs = rng.standard_normal((5, D))
    expected = fs.bounds.moment_interval(sgpr, X, Y, Xs)
    for one, other in zip(
        expected, fs.bounds.moment_interval(*moved(gpu, sgpr, X, Y, Xs)), strict=True
    ):
        np.testing.assert_allclose(other.mean.get(), one.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other.var.get(), one.var, rtol=1e-9, atol=1e-9)
    _, info = fs.fit(*moved(gpu, sgpr, X, Y), within=0.1, steps=4, fixed="inducing")
    assert info.steps == 4 and info.certificate.num_data == 60


@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_models_with_a_site_for_each_datum(gpu, rng, kind, outputs):
    gpu, model = gpu, small_model(rng, outputs)
    lambda2 = rng.uniform(0.1, 1, (*outputs, B))
    lambda2[..., ::7] *= -0.05
    inducing = () if kind is fs.sites.VGP else (model.inducing,)
    model = kind(
        model.covariance,
        *inducing,
        fs.sites.Sites(rng.standard_normal((*outputs, B)), lambda2),
        fs.StudentT(0.5, df=4.0),
    )
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    expected, grad = fs.sites.bound_and_grad(*here, jitter=JITTER)
    value, found = fs.sites.bound_and_grad(*there, jitter=JITTER)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_same(found, grad, 1e-8)
    assert fs.sites.bound_terms(*there, jitter=JITTER) == pytest.approx(
        fs.sites.bound_terms(*here, jitter=JITTER), rel=1e-9
    )
    for rows in ([np.arange(0, B, 2), np.array([3, 1])], None):
        expected, _ = fs.sites.natural_steps(*here, rows=rows, step_size=0.4, jitter=JITTER)
        found, _ = fs.sites.natural_steps(*there, rows=rows, step_size=0.4, jitter=JITTER)
        assert_same(found, expected, 1e-8)
    assert_same(
        fs.sites.tie_sites(*there[:2], jitter=JITTER),
        fs.sites.tie_sites(*here[:2], jitter=JITTER),
        1e-8,
    )


def test_strong_sites_of_a_vgp_in_float32(gpu, rng):
    """They are computed in float64 there too."""
    X, Y = rng.standard_normal((B, D)).astype(np.float32), rng.standard_normal(B).astype(np.float32)
    model = fs.sites.VGP(
        small_model(rng).covariance, fs.sites.Sites(1e4 * Y, np.full(B, 1e4)), fs.Gaussian(1e-4)
    )
    here = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model), X, Y
    there = moved(gpu, *here)
    expected, grad = fs.sites.bound_and_grad(*here)
    value, found = fs.sites.bound_and_grad(*there)
    assert value == pytest.approx(expected, rel=1e-6)
    assert {bar.dtype for _, _, bar in fs.records.leaves(found)} == {np.dtype(np.float32)}
    assert_same(found.covariance, grad.covariance, 1e-5)
    stepped, _ = fs.natural_step(*there, step_size=1.0)
    assert fs.sites.bound(stepped, *there[1:]) == pytest.approx(expected, rel=1e-6)


def test_there_and_back(gpu, rng):
    model = fs.replace(small_model(rng), likelihood=fs.Gaussian(0.3))
    there = fs.to_device(model)
    assert all(
        hasattr(value, "__cuda_array_interface__") for _, _, value in fs.records.leaves(there)
    )
    assert there.likelihood.variance.dtype == np.float64
    back = fs.to_host(there)
    for (_, _, one), (_, _, other) in zip(
        fs.records.leaves(back), fs.records.leaves(model), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert isinstance(back.likelihood.variance, np.float64)
    with pytest.raises(ValueError, match='must be "cuda"'):
        fs.to_device(model, "gpu")
    with pytest.raises(TypeError, match="use cupy.asarray"):
        fs.to_device(model.inducing)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_weight_space(gpu, rng, name, k, dtype):
    model = fs.QSGP(basis_of(rng, name, 8), weights(rng, 8, k), fs.Gaussian(f8(0.3)))
    model = fs.records.tree_map(lambda a: np.nan_to_num(np.asarray(a, dtype))[()], model)
    X, Y = rng.standard_normal((B, 2)).astype(dtype), rng.standard_normal(B).astype(dtype)
    there, tolerance = moved(gpu, model, X, Y), 1e-9 if dtype is np.float64 else 2e-3
    value, grad = fs.qsgp.bound_and_grad(model, X, Y, num_data=100, jitter=1e-2)
    other, found = fs.qsgp.bound_and_grad(*there, num_data=100, jitter=1e-2)
    assert abs(other - value) <= tolerance * abs(value)
    assert_same(found, grad, tolerance)
    assert_same(fs.predict_f(there[0], there[1]), fs.predict_f(model, X), tolerance)
    if name == "inducing":
        for augmented in (True, X[:5]):
            away = augmented if augmented is True else there[1][:5]
            assert_same(
                fs.predict_f(*there[:2], augmented=away),
                fs.predict_f(model, X, augmented=augmented),
                tolerance,
            )
    if name == "relevance":
        for call in (
            fs.qsgp.optimal_precision,
            fs.qsgp.relevance_vectors,
            lambda model: fs.qsgp.prune(model, [0, 1]),
        ):
            with pytest.raises(TypeError, match="works on NumPy arrays"):
                call(there[0])
