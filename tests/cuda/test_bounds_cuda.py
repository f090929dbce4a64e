"""Everything above the kernels on device arrays: the same numbers as on the CPU, and no copy to the host but the scalar.

Without a GPU the device is the host: see ``cuda_host.cupy_on_host``.
"""

from unittest import mock

import numpy as np
import pytest
from cuda_host import cupy_on_host
from gp_problems import lower_factor
from posterior_problems import JITTER, ROWS, StackedWhitened, in_model, of_means
from weight_problems import BASES, basis_of, weights

import fastsvgp as fs
from fastsvgp.bounds.layer import LayerPass
from fastsvgp.errors import NotPositiveDefinite, VarianceClampWarning
from fastsvgp.kernels.cuda import libraries, products
from fastsvgp.train import full_batch

M, B, D = 17, 65, 3
f8 = np.float64
TARGETS = {
    "real": lambda rng, shape: rng.standard_normal(shape),
    "labels": lambda rng, shape: rng.integers(0, 2, shape),
    "counts": lambda rng, shape: rng.integers(0, 6, shape),
    "classes": lambda rng, shape: rng.integers(0, 3, B),
}
LIKELIHOODS = [
    (fs.Gaussian(f8(0.3)), "real", ()), (fs.Gaussian(f8(0.3)), "real", (2,)), (fs.BernoulliProbit(), "labels", ()),
    (fs.BernoulliLogit(), "labels", (2,)), (fs.Laplace(f8(0.4)), "real", ()), (fs.StudentT(f8(0.4)), "real", ()),
    (fs.Poisson(), "counts", ()), (fs.RobustMax(num_classes=3), "classes", (3,)), (fs.Softmax(num_classes=3), "classes", (3,)),
]  # fmt: skip
COVARIANCES = [
    fs.Matern12(f8(1.3), f8(0.8)),
    fs.Matern32(f8(1.3), np.ones(D)) + fs.Linear(np.ones(D)) + fs.Constant(f8(0.3)),
    fs.Matern52(f8(1.0), np.ones(D)) * fs.Linear(f8(0.7)),
]
MEANS = [fs.ZeroMean(), fs.ConstantMean(f8(0.3)), fs.LinearMean(np.ones(D), f8(0.2))]


def small_model(rng, outputs=(), posterior=fs.Whitened, **fields):
    W = np.tril(0.1 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    defaults = {
        "covariance": fs.RBF(f8(1.3), np.array([0.8, 1.1, 1.4])),
        "inducing": rng.standard_normal((M, D)),
        "posterior": posterior(0.3 * rng.standard_normal((*outputs, M)), W),
        "likelihood": fs.Gaussian(f8(0.3)),
    }
    return fs.SVGP(**defaults | fields)


def assert_same(there, here, tolerance=1e-10):
    """A record or a tuple of arrays from the device against those from the CPU."""
    if isinstance(here, tuple):
        for one, other in zip(there, here, strict=True):
            assert_same(one, other, tolerance)
        return
    if not hasattr(here, "_record_fields"):
        there, here = [("", "", there)], [("", "", here)]
    for (path, _, one), (_, _, other) in zip(*(x if isinstance(x, list) else fs.leaves(x) for x in (there, here)), strict=True):
        assert (one is None) is (other is None), path
        if other is not None:
            assert hasattr(one, "__cuda_array_interface__") and one.shape == np.shape(other) and one.dtype == other.dtype, path
            assert np.abs(one.get() - other).max(initial=0) <= tolerance * max(1, np.abs(other).max(initial=0)), path


class Copies:
    """Asserts how many copies to the host a block makes; a real device does not count."""

    def __init__(self, gpu, number):
        self.counts, self.number = gpu.cupy is cupy_on_host.cupy, number

    def __enter__(self):
        self.before = cupy_on_host.copies.to_host

    def __exit__(self, kind, *_):
        if kind is None and self.counts:
            assert cupy_on_host.copies.to_host - self.before == self.number


def moved(gpu, model, *arrays):
    return fs.to_device(model), *map(gpu.there, arrays)


def check_bound(gpu, bound, here, there, **settings):
    """The value and what comes with it: the gradient, and with ``inputs`` that in X."""
    value, *bars = bound(*here, **settings)
    with Copies(gpu, 1):
        other_value, *other_bars = bound(*there, **settings)
    assert type(other_value) is float and abs(other_value - value) <= 1e-10 * max(1, abs(value))
    assert_same(tuple(other_bars), tuple(bars))


def model_of_row(rng, name, outputs=(), jitter=JITTER):
    """A model with the posterior of a row, and what a bound of it is asked for."""
    model, random = in_model(rng, name, small_model(rng), outputs, jitter)
    return model, {"jitter": jitter, **{quantity: 4 for quantity in random}, **({"rng": 1} if random else {})}


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
    check_bound(gpu, fs.data_term_and_grad, here, there, wrt=some, inputs=True, **settings)
    check_bound(gpu, fs.elbo_and_grad, here, there, wrt=("inducing", "covariance"), **settings)
    check_bound(gpu, fs.kl_term_and_grad, here[:1], there[:1], **settings)
    with Copies(gpu, 1):
        assert abs(fs.elbo(*there, **settings) - fs.elbo(*here, **settings)) < 1e-9


def test_the_inputs_alone_are_on_the_device(gpu, rng):
    model, X, Y = small_model(rng), rng.standard_normal((B, D)), rng.standard_normal(B)
    _, grad, X_bar = fs.elbo_and_grad(*moved(gpu, model, X, Y), wrt=(), inputs=True)
    assert not [path for path, _, bar in fs.leaves(grad) if bar is not None]
    assert X_bar.shape == X.shape and hasattr(X_bar, "__cuda_array_interface__")


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", [name for name in ROWS if name.startswith("relaxed") and "probe" not in name])
def test_likelihood_direction(gpu, rng, posterior, outputs):
    model, settings = model_of_row(rng, posterior, outputs)
    for scale in (1.0, 2.0):  # near the inverse, and far from it, where the direction is the gradient
        there_tril = scale * np.tril(model.posterior.inverse_tril)
        here = fs.replace_at(model, "posterior.inverse_tril", there_tril), rng.standard_normal((B, D))
        here = *here, rng.standard_normal((B, *outputs))
        there = moved(gpu, *here)
        value, grad = fs.likelihood_direction(*here, num_data=1000, **settings)
        found, found_grad = fs.likelihood_direction(*there, num_data=1000, **settings)
        assert found == pytest.approx(value, rel=1e-10)
        assert_same(found_grad, grad)


@pytest.mark.parametrize("likelihood, kind, outputs", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_likelihoods(gpu, rng, likelihood, kind, outputs):
    here = small_model(rng, outputs, likelihood=likelihood), rng.standard_normal((B, D)), TARGETS[kind](rng, (B, *outputs))
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    for predict, count in ((fs.predict_f, 2), (fs.predict_y, 2), (fs.predict_log_density, 3)):
        expected = predict(*here[:count])
        nodes = isinstance(likelihood, fs.StudentT) and count == 3  # their number depends on the data
        with Copies(gpu, 2 if nodes else 1):
            found = predict(*there[:count], chunk_size=40)
        assert_same(found, expected)


@pytest.mark.parametrize("likelihood, kind", [(x[0], x[1]) for x in LIKELIHOODS if x[1] in ("real", "counts") and not x[2]],
                         ids=lambda x: type(x).__name__)  # fmt: skip
def test_quantiles(gpu, rng, likelihood, kind):
    here = small_model(rng, (), likelihood=likelihood), rng.standard_normal((B, D)), TARGETS[kind](rng, B)
    there = moved(gpu, *here)
    assert_same(fs.predict_cdf(*there), fs.predict_cdf(*here))
    assert_same(fs.predict_quantiles(*there[:2], (0.05, 0.5, 0.9)), fs.predict_quantiles(*here[:2], (0.05, 0.5, 0.9)))


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", ROWS)
def test_predictions_of_every_posterior(gpu, rng, posterior, outputs):
    here = model_of_row(rng, posterior, outputs)[0], rng.standard_normal((B, D))
    there = moved(gpu, *here)
    for full_cov in (False, True):
        assert_same(*(fs.predict_f(*side, full_cov=full_cov, jitter=JITTER) for side in (there, here)), 1e-9)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("posterior", ROWS)
def test_the_way_back_from_predictions(gpu, rng, posterior, outputs):
    """One copy to the host forward, and one back; a second way back makes the rows again."""
    here = fs.replace(model_of_row(rng, posterior, outputs)[0], mean=MEANS[0 if outputs else 2]), rng.standard_normal((B, D))
    there = moved(gpu, *here)
    *expected, vjp = fs.predict_f_and_vjp(*here, jitter=JITTER)
    with Copies(gpu, 1):
        *found, there_vjp = fs.predict_f_and_vjp(*there, jitter=JITTER)
    assert_same(tuple(found), tuple(expected), 1e-9)
    bars = [rng.standard_normal((B, *outputs)) for _ in range(2)]
    for _ in range(2):
        with Copies(gpu, 1):
            found = there_vjp(*map(gpu.there, bars))
        assert_same((found,), (vjp(*bars),), 1e-9)
    with pytest.raises(TypeError, match="`var_bar` on the CPU, |different devices: `Xs` on the GPU, `var_bar` on the CPU"):
        there_vjp(None, bars[1])
    with pytest.raises(ValueError, match="`mean_bar` contains nan"):
        there_vjp(gpu.there(bars[0] * np.nan), None)


def test_chunks_grow_with_the_device(rng, monkeypatch):
    here = small_model(rng), rng.standard_normal((B, D))
    with cupy_on_host.cupy_on_host(multiprocessors=3):
        there = fs.to_device(here[0], "cuda"), cupy_on_host.cupy.asarray(here[1])
        for numbers, rows in ((M, 3), (2 * M, 6), (2**18, B)):
            monkeypatch.setattr(products, "CHUNK_EACH", numbers)
            with mock.patch.object(LayerPass, "forward", autospec=True, side_effect=LayerPass.forward) as forward:
                assert_same(fs.predict_f(*there), fs.predict_f(*here))
            *there_rows, here_rows = [len(call.args[1]) for call in forward.call_args_list]
            assert here_rows == sum(there_rows) == B and set(there_rows[:-1]) <= {rows} and len(there_rows) == -(-B // rows)


@pytest.mark.parametrize("dtype, solves", [("float64", 0), ("float32", 4)])
def test_large_factors_are_inverted_where_that_is_accurate(rng, dtype, solves):
    model = small_model(rng)
    q = fs.Whitened(rng.standard_normal(260), np.eye(260))
    model = fs.replace(model, inducing=rng.standard_normal((260, D)), posterior=q)
    data = (rng.standard_normal(shape).astype(dtype) for shape in ((B, D), B))
    here = fs.tree_map(lambda a: np.asarray(a, dtype), model), *data
    with cupy_on_host.cupy_on_host() as cp, mock.patch.object(libraries, "trsm", side_effect=libraries.trsm) as trsm:
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
    model = fs.replace(model, posterior=StackedWhitened(q.mean, q.scale_tril), inducing=fs.InducingPair(Z[:10], Z[10:]))
    here = model, rng.standard_normal((B, D)), rng.standard_normal(B)
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, inputs=True)
    check_bound(gpu, fs.kl_term_and_grad, here[:1], there[:1])
    with Copies(gpu, 1):
        found = fs.predict_f(*there[:2])
    assert_same(found, fs.predict_f(*here[:2]))
    for wrong in (np.full((M - 10, D), np.nan), Z[10:, :2]):
        bad = fs.replace_at(model, "inducing.O", wrong), *here[1:]
        message, other = errors(fs.elbo_and_grad, bad, moved(gpu, *bad))
        assert message == other


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", [fs.WhitenedOrthogonal, fs.Orthogonal, fs.Decoupled, fs.DecoupledWeights])
def test_orthogonal_inducing_inputs(gpu, rng, kind, P):
    batch = () if P is None else (P,)
    fields = [field for m in (10, 4) for field in (rng.standard_normal((*batch, m)), lower_factor(rng, *batch, m, off=0.2))]
    pair = fs.InducingPair(rng.uniform(-2, 2, (10, D)), rng.uniform(-2, 2, (4, D)))
    posterior = kind(*fields[: len(kind._record_fields)])
    model = fs.SVGP(fs.RBF(f8(1.3), np.ones(D)), pair, posterior, fs.Gaussian(f8(0.3)))
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *batch))
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    check_bound(gpu, fs.kl_term_and_grad, here[:1], there[:1])
    for full_cov in (False, True):
        assert_same(*(fs.predict_f(*side[:2], full_cov=full_cov) for side in (there, here)), 1e-9)
    truth, other = fs.natural_step(*here, step_size=0.4)
    with Copies(gpu, 2):
        ours, info = fs.natural_step(*there, step_size=0.4)
    assert info.step_size == other.step_size
    for (_, _, a), (_, _, b) in zip(fs.leaves(fs.to_host(ours.posterior)), fs.leaves(truth.posterior), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    joint, same = (fs.to_joint(side[0]) for side in (there, here))
    np.testing.assert_allclose(fs.to_host(joint.posterior).mean, same.posterior.mean, rtol=1e-9, atol=1e-9)
    q = fs.at_prior(kind, there[0].covariance, there[0].inducing, outputs=P)
    truth = fs.at_prior(kind, model.covariance, pair, outputs=P)
    for (path, _, a), (_, _, b) in zip(fs.leaves(fs.to_host(q)), fs.leaves(truth), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9, err_msg=path)
    if kind is fs.DecoupledWeights:
        check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, sampled=[0, 2, 2])
        check_bound(gpu, fs.kl_term_and_grad, here[:1], there[:1], sampled=3, rng=0)


@pytest.mark.parametrize("posterior", ROWS)
def test_every_posterior_there_and_back(gpu, rng, posterior):
    model, _ = model_of_row(rng, posterior, (2,))
    there = fs.to_device(model)
    assert type(there.posterior) is type(model.posterior)
    assert all(hasattr(leaf, "__cuda_array_interface__") for _, _, leaf in fs.leaves(there.posterior))
    for (path, _, a), (_, _, b) in zip(fs.leaves(fs.to_host(there)), fs.leaves(model), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)


@pytest.mark.parametrize("covariance", COVARIANCES, ids=lambda c: type(c).__name__)
def test_covariances_and_mean_functions(gpu, rng, covariance):
    for mean in MEANS:
        here = small_model(rng, covariance=covariance, mean=mean), rng.standard_normal((B, D)), rng.standard_normal(B)
        check_bound(gpu, fs.elbo_and_grad, here, moved(gpu, *here), num_data=1000, inputs=True)
    sgpr = fs.SGPR(covariance, here[0].inducing, f8(0.3), mean)
    check_bound(gpu, fs.collapsed_bound_and_grad, (sgpr, *here[1:]), moved(gpu, sgpr, *here[1:]))


@pytest.mark.parametrize("posterior", ROWS)
def test_from_blocks(gpu, rng, posterior):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    model, settings = model_of_row(rng, posterior)
    blocks = model.covariance.blocks(model.inducing, X, full_cov=True)
    value, bars = fs.elbo_and_grad_from_blocks(blocks, model.posterior, model.likelihood, Y, **settings)
    there, on_device = fs.to_device(model), fs.tree_map(gpu.there, blocks)
    with Copies(gpu, 1):
        found, found_bars = fs.elbo_and_grad_from_blocks(on_device, there.posterior, there.likelihood, gpu.there(Y), **settings)
    assert abs(found - value) < 1e-9
    assert_same(found_bars, bars)
    for full_cov in (False, True):
        expected = fs.predict_from_blocks(blocks, model.posterior, full_cov=full_cov, jitter=JITTER)
        with Copies(gpu, 1):
            found = fs.predict_from_blocks(on_device, there.posterior, full_cov=full_cov, jitter=JITTER)
        assert_same(found, expected, 1e-9)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_collapsed(gpu, rng, outputs):
    gpu, model = gpu, small_model(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, f8(0.3), fs.ConstantMean(f8(0.1)))
    here = sgpr, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    check_bound(gpu, fs.collapsed_bound_and_grad, here, there)
    with Copies(gpu, 1):
        best = fs.optimal_svgp(*there)
    assert_same(best, fs.optimal_svgp(*here), 1e-9)


@pytest.mark.parametrize("given", ["none", "mean", "both"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_collapsed_with_orthogonal_inducing_inputs(gpu, rng, given, outputs):
    gpu, (m, W) = gpu, (rng.standard_normal((*outputs, 4)), 0.3 * lower_factor(rng, *outputs, 4))
    pair = fs.InducingPair(rng.uniform(-2, 2, (9, D)), rng.uniform(-2, 2, (4, D)))
    q_of_v = {"none": {}, "mean": {"mean_v": m}, "both": {"mean_v": m, "scale_tril_v": W}}[given]
    sgpr = fs.OrthogonalSGPR(fs.Matern32(f8(1.1), np.ones(D)), pair, f8(0.3), **q_of_v, mean=fs.ConstantMean(f8(0.1)))
    here = sgpr, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    check_bound(gpu, fs.collapsed_bound_and_grad, here, there)
    with Copies(gpu, 1):
        best = fs.optimal_svgp(*there)
    assert_same(best, fs.optimal_svgp(*here), 1e-9)


def test_tighter(gpu, rng):
    model = small_model(rng)
    here = fs.SGPR(model.covariance, model.inducing, f8(0.3)), rng.standard_normal((B, D)), rng.standard_normal(B)
    check_bound(gpu, fs.tighter_bound_and_grad, here, moved(gpu, *here))


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
def test_natural_step(gpu, rng, posterior):
    gpu, here = gpu, (small_model(rng, (2,), posterior), rng.standard_normal((B, D)), rng.standard_normal((B, 2)))
    there = moved(gpu, *here)
    expected, info = fs.natural_step(*here, step_size=0.4, num_data=500)
    with Copies(gpu, 2):  # the value, and whether the step stayed in the cone
        found, found_info = fs.natural_step(*there, step_size=0.4, num_data=500)
    assert_same(found, expected, 1e-9)
    assert found_info.step_size == info.step_size
    *_, value, grad = fs.natural_step_and_grad(*here, step_size=0.4, num_data=500)
    with Copies(gpu, 3):  # and the value there
        *_, found_value, found_grad = fs.natural_step_and_grad(*there, step_size=0.4, num_data=500)
    np.testing.assert_allclose(found_value, value, rtol=1e-9)
    assert_same(found_grad, grad, 1e-8)


@pytest.mark.parametrize("posterior", ["whitened", "marginal", "absorbed-sites", "dual-sites"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_natural_steps_and_sites(gpu, rng, posterior, outputs):
    gpu, (model, _) = gpu, model_of_row(rng, posterior, outputs)
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    expected, infos = fs.natural_steps(*here, steps=3, step_size=0.4, jitter=JITTER)
    with Copies(gpu, 7 if "sites" in posterior else 8):  # two a step; Kuu in the beginning, a factor in the end
        found, found_infos = fs.natural_steps(*there, steps=3, step_size=0.4, jitter=JITTER)
    assert_same(found, expected, 1e-8)
    assert [info[1:] for info in found_infos] == [info[1:] for info in infos]
    with Copies(gpu, 1):
        sites = fs.dual_parameters(*there, jitter=JITTER)
    assert_same(sites, fs.dual_parameters(*here, jitter=JITTER), 1e-9)
    for kind in (fs.Whitened, fs.AbsorbedDualSites):
        with Copies(gpu, 1):
            found = fs.convert(there[0], kind, jitter=JITTER)
        assert_same(found, fs.convert(model, kind, jitter=JITTER), 1e-8)
    best, _ = fs.natural_step(*here, step_size=1.0, jitter=JITTER)
    found = fs.leave_one_out(fs.to_device(best), *there[1:], jitter=JITTER)
    np.testing.assert_allclose(found.get(), fs.leave_one_out(best, *here[1:], jitter=JITTER), rtol=1e-8, atol=1e-9)


def test_faults_amid_many_steps(gpu, rng):
    """What is wrong in a later batch is found and named, and what is wrong with Kuu too, as on the CPU."""
    gpu, (model, _) = gpu, model_of_row(rng, "whitened")
    X, Y = rng.standard_normal((B, D)), rng.standard_normal(B)
    Y[25] = np.nan
    there = moved(gpu, model, X, Y)
    with pytest.raises(ValueError, match="`Y` contains nan at index 25"):
        fs.natural_steps(*there, rows=(np.arange(i, i + 10) for i in range(0, 50, 10)), jitter=JITTER)
    with pytest.raises(ValueError, match="`Y` contains nan at index 25"):
        fs.fit(there[0], X, Y, steps=9, batch_size=10, e_steps=3, natural_step_size=0.1, rng=0)
    Y[25] = 0.0
    with pytest.raises(fs.NotPositiveDefinite):
        fs.natural_steps(*moved(gpu, fs.replace(model, inducing=0 * model.inducing), X, Y), steps=2, jitter=0.0)


@pytest.mark.parametrize("kind", [fs.SiteSVGP, fs.VGP], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_models_with_a_site_for_each_datum(gpu, rng, kind, outputs):
    gpu, model = gpu, small_model(rng, outputs)
    lambda2 = rng.uniform(0.1, 1, (*outputs, B))
    lambda2[..., ::7] *= -0.05
    inducing = () if kind is fs.VGP else (model.inducing,)
    model = kind(model.covariance, *inducing, fs.Sites(rng.standard_normal((*outputs, B)), lambda2), fs.StudentT(0.5, df=4.0))
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    expected, grad = fs.site_bound_and_grad(*here, jitter=JITTER)
    value, found = fs.site_bound_and_grad(*there, jitter=JITTER)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_same(found, grad, 1e-8)
    assert fs.site_bound_terms(*there, jitter=JITTER) == pytest.approx(fs.site_bound_terms(*here, jitter=JITTER), rel=1e-9)
    for rows in ([np.arange(0, B, 2), np.array([3, 1])], None):
        expected, _ = fs.natural_steps(*here, rows=rows, step_size=0.4, jitter=JITTER)
        found, _ = fs.natural_steps(*there, rows=rows, step_size=0.4, jitter=JITTER)
        assert_same(found, expected, 1e-8)
    assert_same(fs.tied(*there[:2], jitter=JITTER), fs.tied(*here[:2], jitter=JITTER), 1e-8)


def test_joint_predictions(gpu, rng):
    gpu, model, Xs = gpu, small_model(rng, (2,)), rng.standard_normal((7, D))
    there = moved(gpu, model, Xs)
    assert_same(fs.predict_f(*there, full_cov=True), fs.predict_f(model, Xs, full_cov=True))
    assert_same(fs.sample_f(*there, 3, rng=1), fs.sample_f(model, Xs, 3, rng=1), 1e-8)


@pytest.mark.parametrize("natural", [None, 0.2])
def test_fit(gpu, rng, natural, tmp_path):
    gpu, model, X = gpu, small_model(rng), rng.standard_normal((B, D))
    Y, settings = np.sin(X[:, 0]), {"batch_size": 20, "rng": 3, "natural_step_size": natural}
    expected, info = fs.fit(model, X, Y, steps=4, **settings)
    there, saved = fs.to_device(model), tmp_path / "state.npz"
    found, found_info = fs.fit(there, X, Y, steps=4, **settings)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-9)
    assert_same(found, expected, 1e-9)
    assert_same(fs.fit(there, gpu.there(X), gpu.there(Y), steps=4, **settings)[0], expected, 1e-9)
    fs.fit(there, X, Y, steps=2, checkpoint=saved, **settings)
    assert_same(fs.fit(there, X, Y, steps=4, resume=saved, **settings)[0], expected, 1e-9)
    whole = settings | {"batch_size": B}
    assert_same(fs.fit(there, X, Y, steps=2, **whole)[0], fs.fit(model, X, Y, steps=2, **whole)[0], 1e-9)


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("settings, copies", [
    ({}, 1),  # the value, and whether all is well, the gradient too
    ({"graph": False}, 1),
    ({"natural_step_size": 0.2}, 3),  # before it the value at the natural step, and whether that stayed in the cone
    ({"optimiser": fs.adam(fs.schedules.plateau(0.01))}, 2),  # whose step size the value decides on
    ({"natural_step_size": 0.2, "fixed": ("covariance", "inducing", "likelihood")}, 2),
])  # fmt: skip
def test_copies_of_a_training_step(gpu, rng, settings, copies, outputs):
    """However many outputs there are."""
    model, X, counts = small_model(rng, outputs), rng.standard_normal((B, D)), []
    fs.fit(fs.to_device(model), X, np.sin(X) if outputs else X[:, 0], steps=4, batch_size=20, rng=3,
           callback=lambda *_: counts.append(cupy_on_host.copies.to_host), **settings)  # fmt: skip
    if gpu.cupy is cupy_on_host.cupy:
        assert set(np.diff(counts)) == {copies}


def test_fit_collapsed(gpu, rng, monkeypatch):
    model, X, calls = small_model(rng), rng.standard_normal((B, D)), []
    sgpr = fs.SGPR(model.covariance, model.inducing, f8(0.3))
    expected, _ = fs.fit(sgpr, X, X[:, 0], steps=3)
    plain = full_batch.collapsed_bound_and_grad
    monkeypatch.setattr(full_batch, "collapsed_bound_and_grad", lambda *a, **s: calls.append(copies.to_host) or plain(*a, **s))
    copies = cupy_on_host.copies
    found, _ = fs.fit(fs.to_device(sgpr), X, X[:, 0], steps=3)
    assert_same(found, expected, 1e-6)
    if gpu.cupy is cupy_on_host.cupy:
        assert set(np.diff(calls)) == {2}  # for each evaluation the value, and the gradient, which SciPy wants on the host


def test_there_and_back(gpu, rng):
    model = fs.replace(small_model(rng), likelihood=fs.Gaussian(0.3))
    there = fs.to_device(model)
    assert all(hasattr(value, "__cuda_array_interface__") for _, _, value in fs.leaves(there))
    assert there.likelihood.variance.dtype == np.float64
    back = fs.to_host(there)
    for (_, _, one), (_, _, other) in zip(fs.leaves(back), fs.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert isinstance(back.likelihood.variance, np.float64)
    with pytest.raises(ValueError, match='must be "cuda"'):
        fs.to_device(model, "gpu")
    with pytest.raises(TypeError, match="use cupy.asarray"):
        fs.to_device(model.inducing)


# --- what is wrong is said in the same words ---------------------------------------------------------------------------------


def errors(function, here, there):
    """The messages that the two sides raise."""
    messages = []
    for arguments in (here, there):
        with pytest.raises((ValueError, TypeError, NotPositiveDefinite)) as caught:
            function(*arguments)
        messages.append((type(caught.value), str(caught.value)))
    return messages


def test_faults_have_the_same_words(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    good = small_model(rng)

    def with_leaf(path, value):
        return fs.replace_at(good, path, value)

    spoilt, W = X.copy(), good.posterior.scale_tril.copy()
    spoilt[3, 1], W[4, 4] = np.nan, -1
    inside = good.posterior.scale_tril.copy()
    inside[5, 2] = np.inf
    twice = good.inducing.copy()
    twice[1] = twice[0]
    labels = fs.replace(good, likelihood=fs.BernoulliProbit())
    classes = small_model(rng, (3,), likelihood=fs.RobustMax(num_classes=3))
    pairs = [np.where(np.arange(M)[:, None] == 4, Z[2], Z) for Z in rng.standard_normal((6, M, D))]  # some pass Cholesky
    cases = [
        (good, spoilt, Y),
        (with_leaf("covariance.lengthscales", None), X, Y),
        *((with_leaf("inducing", Z), X, Y, 0.0) for Z in pairs),
        (good, X, np.where(Y == Y.max(), np.inf, Y)),
        (with_leaf("covariance.lengthscales", np.array([1.0, -1, 1])), X, Y),
        (with_leaf("covariance.variance", f8(np.nan)), X, Y),
        (with_leaf("likelihood.variance", f8(0)), X, Y),
        (with_leaf("posterior.scale_tril", W), X, Y),
        (with_leaf("posterior.scale_tril", inside), X, Y),
        (labels, X, np.arange(B) % 3),
        (classes, X, np.arange(B) % 4),
        (with_leaf("inducing", twice), X, Y, 0.0),
    ]
    for model, *data in cases:
        settings = {"jitter": data.pop()} if len(data) == 3 else {}
        here, there = errors(lambda *a, s=settings: fs.elbo_and_grad(*a, **s), (model, *data), moved(gpu, model, *data))
        assert here == there
    assert NotPositiveDefinite is here[0]
    check_bound(gpu, fs.elbo_and_grad, (good, X, Y), moved(gpu, good, X, Y))  # nothing is left behind


def test_faults_of_the_other_entries(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    good = small_model(rng)
    bad = fs.replace_at(good, "covariance.lengthscales", -np.ones(D))
    sgpr = fs.SGPR(bad.covariance, good.inducing, f8(0.3))
    silent = fs.SGPR(good.covariance, good.inducing, f8(1e-310))
    twice = fs.SGPR(good.covariance, np.where(np.arange(M)[:, None] == 4, good.inducing[2], good.inducing), f8(0.3))
    q = good.posterior
    stopped = fs.replace(good, posterior=fs.InverseFreeWhitened(q.mean, q.scale_tril, np.eye(M)))  # too far, which is met first
    stopped = fs.replace_at(stopped, "covariance.variance", f8(np.nan))
    for function, model, *data in [
        (fs.elbo, stopped, X, Y), (fs.natural_step, bad, X, Y), (fs.predict_y, bad, X), (fs.kl_term_and_grad, bad),
        (fs.collapsed_bound, sgpr, X, Y), (fs.collapsed_bound_and_grad, silent, X, Y),
        (lambda *a: fs.collapsed_bound(*a, jitter=0.0), twice, X, Y),
        (fs.optimal_svgp, sgpr, X, Y), (fs.sample_f, bad, X),
        (lambda *a: fs.fit(*a, steps=1), bad, X, Y),
    ]:  # fmt: skip
        here, there = errors(function, (model, *data), moved(gpu, model, *data))
        assert here == there


def test_mixed_devices_are_named(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    model = small_model(rng)
    there = fs.to_device(model)
    with pytest.raises(TypeError, match="`X` on the GPU, `Y` on the CPU"):
        fs.elbo_and_grad(there, gpu.there(X), Y)
    with pytest.raises(TypeError, match="`covariance.variance`.* on the GPU, `X`, `Y` on the CPU"):
        fs.elbo_and_grad(there, X, Y)
    with pytest.raises(TypeError, match="`X`, `Y` on the GPU, `covariance.lengthscales`, `inducing`"):
        fs.elbo_and_grad(model, gpu.there(X), gpu.there(Y))
    with pytest.raises(TypeError, match="different devices"):
        fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.3), gpu.there(X), Y)


def test_raised_variances_are_reported(gpu, rng):
    model = small_model(rng)
    X = np.repeat(model.inducing, 20, axis=0)  # rounding has many chances
    X += 1e-9 * rng.standard_normal(X.shape)
    tiny = fs.replace(model, covariance=fs.RBF(f8(1.3), f8(4)), posterior=fs.Whitened(np.zeros(M), 1e-9 * np.eye(M)))
    with pytest.warns(VarianceClampWarning) as here:
        value = fs.elbo(tiny, X, X[:, 0], jitter=1e-15)
    with pytest.warns(VarianceClampWarning) as there, Copies(gpu, 1):
        assert abs(fs.elbo(*moved(gpu, tiny, X, X[:, 0]), jitter=1e-15) - value) < 1e-8 * abs(value)
    assert here[0].message.args[0].split()[1:] == there[0].message.args[0].split()[1:]


CHOOSERS = {
    "kmeans": lambda X, covariance: fs.kmeans_inducing(X, M, 3),
    "greedy": lambda X, covariance: fs.greedy_variance_inducing(X, M, covariance, 3),
    "lengthscales": lambda X, covariance: fs.median_lengthscales(X, 3),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("choose", CHOOSERS)
def test_where_to_start(gpu, rng, choose, dtype):
    """For data on a device the same choice as on the host, on the device, from one copy of the rows that are looked at."""
    gpu, X, covariance = gpu, rng.standard_normal((B, D)).astype(dtype), fs.RBF(1.3, np.ones(D, dtype))
    there = gpu.there(X), fs.to_device(covariance)
    with Copies(gpu, 1 if choose != "greedy" else 3):  # of the rows, and of each field of the covariance
        found = CHOOSERS[choose](*there)
    assert_same(found, CHOOSERS[choose](X, covariance), 0)
    spoilt = X.copy()
    spoilt[9, 2] = np.nan
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(9, 2\)"):
        CHOOSERS[choose](gpu.there(spoilt), there[1])


def test_where_to_start_with_a_covariance_elsewhere(gpu, rng):
    X, covariance = rng.standard_normal((B, D)), fs.RBF(1.3, np.ones(D))
    with pytest.raises(TypeError, match="`X` on the GPU, `covariance.lengthscales` on the CPU"):
        fs.greedy_variance_inducing(gpu.there(X), M, covariance)
    with pytest.raises(TypeError, match="`covariance.lengthscales` on the GPU, `X` on the CPU"):
        fs.greedy_variance_inducing(X, M, fs.to_device(covariance))
    assert fs.greedy_variance_inducing(gpu.there(X), M, fs.RBF(1.3, 0.8)).shape == (M, D)  # numbers go anywhere
    assert type(fs.median_lengthscales(gpu.there(X), ard=False)) is float


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_weight_space(gpu, rng, name, k, dtype):
    model = fs.QSGP(basis_of(rng, name, 8), weights(rng, 8, k), fs.Gaussian(f8(0.3)))
    model = fs.tree_map(lambda a: np.nan_to_num(np.asarray(a, dtype))[()], model)
    X, Y = rng.standard_normal((B, 2)).astype(dtype), rng.standard_normal(B).astype(dtype)
    there, tolerance = moved(gpu, model, X, Y), 1e-9 if dtype is np.float64 else 2e-3
    value, grad = fs.weight_bound_and_grad(model, X, Y, num_data=100, jitter=1e-2)
    other, found = fs.weight_bound_and_grad(*there, num_data=100, jitter=1e-2)
    assert abs(other - value) <= tolerance * abs(value)
    assert_same(found, grad, tolerance)
    assert_same(fs.predict_f(there[0], there[1]), fs.predict_f(model, X), tolerance)
    if name == "inducing":
        for augmented in (True, X[:5]):
            away = augmented if augmented is True else there[1][:5]
            assert_same(fs.predict_f(*there[:2], augmented=away), fs.predict_f(model, X, augmented=augmented), tolerance)
    if name == "relevance":
        for call in (fs.optimal_precision, fs.relevance_vectors, lambda model: fs.prune(model, [0, 1])):
            with pytest.raises(TypeError, match="works on NumPy arrays"):
                call(there[0])


def test_numbers_beside_arrays_on_a_device(gpu, rng):
    """Python numbers stay what they are in flat vectors and steps."""
    gpu, X = gpu, rng.standard_normal((B, D))
    model = small_model(rng, covariance=fs.RBF(1.3, np.ones(D)), likelihood=fs.Gaussian(0.3))
    there = fs.replace(moved(gpu, model)[0], likelihood=fs.Gaussian(0.3))
    vector, unravel = fs.ravel(there)
    np.testing.assert_allclose(vector.get(), fs.ravel(model)[0], rtol=1e-12)
    assert type(unravel(vector).likelihood.variance) is not np.ndarray
    adam = fs.adam(0.01)
    _, grad = fs.elbo_and_grad(model, X, X[:, 0])
    expected, _ = adam.step(model, grad, adam.init(model))
    found, _ = adam.step(there, moved(gpu, grad)[0], adam.init(there))
    np.testing.assert_allclose(found.inducing.get(), expected.inducing, rtol=1e-10)
