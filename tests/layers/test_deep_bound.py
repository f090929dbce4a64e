"""Doubly stochastic bound of a deep GP and its gradient, at given draws."""

import warnings

import numpy as np
import pytest
from support import definitions
from support.deep_problems import CHAINS, B, draws_for, layer_of, problem
from support.derivatives import along, assert_derivative, assert_gradient, extended
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.bounds.relay import chunks
from fastsvgp.layers.chain_pass import Chain
from fastsvgp.layers.draws import hidden_draws
from fastsvgp.records import restricted

SCALE = 3.5
OPTIONS = {"num_data": SCALE * B, "jitter": JITTER}
# jitter where results are compared to rounding: inducing inputs that fall near one another would
# cost digits
FIRM = 1e-2
each_chain = pytest.mark.parametrize("name", CHAINS)


def assert_close(a, b, rtol=1e-12, atol=1e-12):
    """Compare two gradients leaf by leaf; None must be None in both."""
    a, b = (
        {path: bar for path, _, bar in fs.records.leaves(tree) if bar is not None}
        for tree in (a, b)
    )
    assert list(a) == list(b)
    for path, bar in b.items():
        np.testing.assert_allclose(
            a[path], bar, rtol=rtol, atol=atol * max(1, np.abs(bar).max()), err_msg=path
        )


@each_chain
def test_value_and_gradients_follow_the_definition(rng, name):
    model, X, Y = problem(rng, name)
    draws = draws_for(rng, model, 3)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, **OPTIONS)

    def definition(model, X=X):
        return definitions.deep_elbo(model, X, Y, SCALE, JITTER, draws)

    assert value == pytest.approx(definition(model).real, rel=1e-10)
    assert fs.elbo(model, X, Y, draws=draws, **OPTIONS) == pytest.approx(value, rel=1e-12)
    assert_gradient(definition, model, grad, rng)
    exact = fs.records.tree_map(extended, model)
    assert_derivative(
        lambda X: definition(exact, X), extended(X), X_bar, rng.standard_normal(X.shape), name="X"
    )


def unwhitened(rng, lengthscale, M=8):
    """Three ``Marginal`` layers with a probit likelihood.

    A long lengthscale makes Kuu nearly singular except for its jitter.
    """
    layers = []
    for batch in ((2,), (2,), ()):
        covariance = fs.RBF(rng.uniform(1, 5), lengthscale * rng.uniform(0.7, 1.4, 2)) + fs.Linear(
            0.5
        )
        tril = np.tril(0.3 * rng.standard_normal((*batch, M, M)), -1) + np.eye(M) * rng.uniform(
            0.3, 1, (*batch, M, 1)
        )
        layers.append(
            fs.layers.Layer(
                covariance,
                rng.uniform(-2, 2, (M, 2)),
                fs.Marginal(rng.standard_normal((*batch, M)), tril),
            )
        )
    return (
        fs.DeepGP(tuple(layers), fs.BernoulliProbit()),
        rng.uniform(-2, 2, (B, 2)),
        rng.integers(0, 2, B),
    )


def rounded(matrix, rng):
    """Return a function that makes matrices with rounding errors of up to eps of float64."""

    def moved(covariance, X1, X2):
        K = matrix(covariance, X1, X2)
        u = rng.uniform(-1, 1, K.shape)
        return K * (1 + np.finfo(float).eps * (np.tril(u) + np.tril(u, -1).T if X1 is X2 else u))

    return moved


@pytest.mark.parametrize("lengthscale, jitter", [(1.0, FIRM), (3.0, 1e-6), (10.0, 1e-6)])
def test_unwhitened_layers_are_as_exact_as_their_matrices_allow(
    rng, monkeypatch, lengthscale, jitter
):
    """A complex step in extended precision, of exact matrices and of matrices rounded to float64.

    For a well conditioned Kuu a gradient is right to 1e-8. At a condition number of 1e7 its error
    is up to 5e-6, which is rounding: rounding the kernel matrices to float64 changes the true
    gradient as much. Of 80 models none had an error of more than 23 times that change. Differences
    of fourth order, step 1e-3, are too inaccurate here: their error was up to 0.2 over 400 models.
    """
    model, X, Y = unwhitened(rng, lengthscale)
    draws, exact = draws_for(rng, model, 2), fs.records.tree_map(extended, model)
    _, grad = fs.elbo_and_grad(model, X, Y, draws=draws, jitter=jitter)
    bars = {path: bar for path, _, bar in fs.records.leaves(grad)}
    matrix = definitions.covariances.matrix
    for path, kind, leaf in fs.records.leaves(exact):
        d = rng.standard_normal(leaf.shape)
        d = np.tril(d) if kind == "tril" else d

        def slope(of, path=path, leaf=leaf, d=d):
            monkeypatch.setattr(definitions.covariances, "matrix", of)
            return along(
                lambda x: definitions.deep_elbo(
                    fs.records.replace_at(exact, path, x), X, Y, 1.0, jitter, draws
                ),
                leaf,
                d,
            )[1]

        truth, scale = slope(matrix), np.linalg.norm(bars[path]) * np.linalg.norm(d)
        spread = max(abs(slope(rounded(matrix, rng)) - truth) for _ in range(4)) / scale
        off = abs(np.vdot(bars[path], d) - truth) / scale
        assert off <= (1e-8 if jitter == FIRM else 1e-9 + 200 * spread), (path, off, spread)


def test_flat_gradient_of_a_deep_gp_by_differences(rng):
    """The gradient that an optimiser of flat vectors sees."""
    model, X, Y = problem(rng, "three")
    options, paths = {"draws": draws_for(rng, model, 2), **OPTIONS}, fs.ravel(model)[1].paths
    _, grad = fs.elbo_and_grad(model, X, Y, wrt=paths, **options)
    fs.testing.assert_gradient(
        lambda m: fs.elbo(m, X, Y, **options), model, grad, wrt=paths, rng=rng, rtol=1e-9
    )


@pytest.mark.parametrize("name", EVERY)
def test_a_deep_gp_of_one_layer_is_an_svgp(rng, name):
    layer = layer_of(rng, name, 2, None)
    X, Y = rng.uniform(-2, 2, (B, 2)), rng.standard_normal(B)
    deep = fs.DeepGP((layer,), fs.Gaussian(0.3))
    shallow = fs.SVGP(
        layer.covariance, layer.inducing, layer.posterior, deep.likelihood, layer.mean
    )
    value, grad, X_bar = fs.elbo_and_grad(deep, X, Y, inputs=True, **OPTIONS)
    due, due_grad, due_X_bar = fs.elbo_and_grad(shallow, X, Y, inputs=True, **OPTIONS)
    assert value == pytest.approx(due, rel=1e-13)
    assert_close(
        grad.layers[0], fs.layers.Layer(due_grad.covariance, due_grad.inducing, due_grad.posterior)
    )
    assert_close(grad.likelihood, due_grad.likelihood)
    np.testing.assert_allclose(X_bar, due_X_bar, rtol=1e-12, atol=1e-12)
    for call in (
        fs.predict_f,
        fs.predict_y,
        lambda m, X, **kw: fs.predict_log_density(m, X, Y, **kw),
        lambda m, X, **kw: fs.predict_cdf(m, X, Y, **kw),
        lambda m, X, **kw: fs.predict_quantiles(m, X, (0.1, 0.5), **kw),
        lambda m, X, **kw: fs.sample_f(m, X, 3, rng=1, **kw),
    ):
        np.testing.assert_allclose(
            call(deep, X, jitter=JITTER), call(shallow, X, jitter=JITTER), rtol=1e-12, atol=1e-12
        )


def certain(layer):
    """Return the layer at its prior, whose functions are their mean to 1e-15."""
    M = len(layer.inducing)
    q = fs.Whitened(np.zeros((2, M)), np.stack([np.eye(M)] * 2))
    return fs.replace(
        layer, covariance=fs.RBF(1e-30, 1.0), posterior=q, mean=fs.means.IdentityMean()
    )


def test_an_identity_layer_without_variance_changes_nothing(rng):
    below, above = certain(layer_of(rng, "whitened", 2, 2)), layer_of(rng, "relaxed", 2, None)
    X, Y = rng.uniform(-2, 2, (B, 2)), rng.standard_normal(B)
    deep, shallow = (fs.DeepGP(layers, fs.Gaussian(0.3)) for layers in ((below, above), (above,)))
    value, grad, X_bar = fs.elbo_and_grad(deep, X, Y, rng=0, inputs=True, **OPTIONS)
    due, due_grad, due_X_bar = fs.elbo_and_grad(shallow, X, Y, inputs=True, **OPTIONS)
    assert value == pytest.approx(due, rel=1e-12)
    assert_close(grad.layers[1], due_grad.layers[0])
    np.testing.assert_allclose(X_bar, due_X_bar, rtol=1e-9)
    np.testing.assert_allclose(
        fs.predict_f(deep, X, jitter=JITTER), fs.predict_f(shallow, X, jitter=JITTER), rtol=1e-12
    )


@each_chain
def test_many_draws_give_the_mean_of_single_ones(rng, name):
    model, X, Y = problem(rng, name)
    draws = draws_for(rng, model, 3)
    value, grad = fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)
    single = [
        fs.elbo_and_grad(model, X, Y, draws=[eps[s : s + 1] for eps in draws], **OPTIONS)
        for s in range(3)
    ]
    assert value == pytest.approx(sum(one for one, _ in single) / 3, rel=1e-12)
    assert_close(
        grad,
        fs.records.tree_map(lambda *bars: sum(bars) / 3, *(one for _, one in single)),
        atol=1e-10,
    )


@each_chain
def test_chunks_and_shards_add_up_to_the_whole(rng, name, tune):
    model, X, Y = problem(rng, name)
    draws = draws_for(rng, model, 2)
    whole = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, num_data=SCALE * B, jitter=FIRM)
    shards = [slice(0, 2), slice(2, B)]
    data = [
        fs.bounds.data_term_and_grad(
            model,
            X[at],
            Y[at],
            num_data=SCALE * len(X[at]),
            jitter=FIRM,
            inputs=True,
            draws=[eps[:, at] for eps in draws],
        )
        for at in shards
    ]
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=FIRM)
    tune(bound_chunk_columns=4, bound_chunk_numbers=1)
    runs = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, num_data=SCALE * B, jitter=FIRM)
    assert len(chunks(Chain(model, FIRM, draws=draws), X)) > 1
    sharded = sum(part[0] for part in data) - kl
    summed = fs.records.tree_map(
        lambda *bars: bars[0] + bars[1] - bars[2], data[0][1], data[1][1], kl_grad
    )
    for value, grad, X_bar in (runs, (sharded, summed, np.concatenate([part[2] for part in data]))):
        assert value == pytest.approx(whole[0], rel=1e-12)
        assert_close(grad, whole[1], rtol=1e-11)
        np.testing.assert_allclose(X_bar, whole[2], rtol=1e-11, atol=1e-12)


NAMES = [
    ("layers.1.covariance",),
    ("layers.0.posterior.mean",),
    ("likelihood",),
    ("layers.2",),
    ("layers",),
    (),
    ("layers.1.inducing", "layers.2.covariance.parts.0.variance"),
    ("layers.0.covariance.parts.1.variance", "likelihood"),
]


@pytest.mark.parametrize("inputs", [False, True])
def test_only_requested_gradients_are_computed(rng, inputs):
    model, X, Y = problem(rng, "three")
    draws = draws_for(rng, model, 2)
    value, whole, X_bar = fs.elbo_and_grad(model, X, Y, draws=draws, inputs=True, **OPTIONS)
    for wrt in NAMES:
        found, grad, *bars = fs.elbo_and_grad(
            model, X, Y, draws=draws, wrt=wrt, inputs=inputs, **OPTIONS
        )
        assert found == pytest.approx(value, rel=1e-13)
        assert_close(grad, restricted(whole, wrt))
        for bar in bars:
            np.testing.assert_allclose(bar, X_bar, rtol=1e-12)
        kl_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER, wrt=wrt)[1]
        assert_close(kl_grad, restricted(fs.bounds.kl_term_and_grad(model, jitter=JITTER)[1], wrt))


def at_a_floor(rng, kind):
    """Return ``(model, X, Y, draws)`` with a variance below its floor.

    The first row of X is an inducing input of a layer without variance there. Rounding leaves its
    variance on either side of the floor, so problems are drawn until it is below.
    """
    for _ in range(50):
        model, _, Y = problem(rng, "two")
        mean, Z = rng.standard_normal((3, 4)), model.layers[0].inducing
        if kind is fs.posteriors.LikelihoodForm:
            hidden = fs.replace(model.layers[0], posterior=kind(mean, np.full(4, 1e-17)))
        else:
            q = kind(mean, np.stack([1e-10 * np.eye(4)] * 3), rng.standard_normal((3, 2)))
            hidden = fs.replace(
                model.layers[0],
                inducing=fs.posteriors.InducingPair(Z, rng.uniform(-2, 2, (2, 2))),
                posterior=q,
            )
        model = fs.replace(model, layers=(hidden, model.layers[1]))
        X, draws = np.concatenate([Z[:1], rng.uniform(-2, 2, (B - 1, 2))]), draws_for(rng, model, 2)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            fs.elbo_and_grad(model, X, Y, draws=draws, num_data=SCALE * B, jitter=0.0, inputs=True)
        if any(issubclass(one.category, fs.VarianceClampWarning) for one in found):
            return model, X, Y, draws
    raise AssertionError("no variance was driven below its floor")


@pytest.mark.parametrize("kind", [fs.posteriors.LikelihoodForm, fs.posteriors.DecoupledWeights])
def test_a_variance_at_its_floor_has_no_gradient(rng, kind):
    """At an inducing input of a layer without variance; the gradient would divide by about 1e-8."""
    model, X, Y, draws = at_a_floor(rng, kind)
    still = (np.where(np.arange(B)[None, :, None] < 1, 0.0, draws[0]),)
    results = []
    for eps in (draws, still):
        with pytest.warns(fs.VarianceClampWarning):
            results.append(
                fs.elbo_and_grad(
                    model, X, Y, draws=eps, num_data=SCALE * B, jitter=0.0, inputs=True
                )
            )
    (value, grad, X_bar), (due, due_grad, due_X_bar) = results
    assert value == pytest.approx(due, rel=1e-6)
    np.testing.assert_allclose(X_bar, due_X_bar, rtol=1e-4, atol=1e-5 * np.abs(due_X_bar).max())
    assert_close(grad, due_grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["likelihood", "relaxed"])
def test_outputs_in_the_form_of_a_likelihood_cost_nothing(rng, kind, monkeypatch):
    """The number of products of (M, M) with M rows does not depend on the number of outputs."""
    X, Y, counts = rng.uniform(-2, 2, (20, 2)), rng.standard_normal(20), []
    for name in (
        "matmul",
        "multiply_triangular",
        "weighted_gram",
        "tril_congruence",
        "newton_schulz_gram",
        "cholesky",
    ):
        own = getattr(kernels, name)

        def counted(A, *args, own=own, **kwargs):
            counts[-1] += A.shape[-2:] in ((12, 12), (12, 20))
            return own(A, *args, **kwargs)

        monkeypatch.setattr(kernels, name, counted)
    for P in (1, 6):
        layers = layer_of(rng, kind, 2, P, M=12), layer_of(rng, "likelihood", P, None)
        counts.append(0)
        fs.elbo_and_grad(fs.DeepGP(layers, fs.Gaussian(0.1)), X, Y, rng=0, num_samples=1)
    assert counts[0] == counts[1] > 3


def float32_errors(rng, name):
    """Return errors of the value and of each gradient, relative to the largest entry."""
    model, X, Y = problem(rng, name)
    draws, Y = draws_for(rng, model, 2), Y.astype(np.float32) if Y.dtype == float else Y
    due, due_grad = fs.elbo_and_grad(model, X, Y, draws=draws, **OPTIONS)
    single = fs.records.tree_map(lambda leaf: np.float32(leaf), model)
    value, grad, X_bar = fs.elbo_and_grad(
        single, X.astype(np.float32), Y, draws=draws, inputs=True, **OPTIONS
    )
    assert X_bar.dtype == np.float32
    assert all(
        a.dtype == np.float32 for a in fs.predict_f(single, X.astype(np.float32), jitter=JITTER)
    )
    errors = [abs(value / due - 1)]
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(grad), fs.records.leaves(due_grad), strict=True
    ):
        assert a.dtype == np.float32, path
        errors.append(np.abs(a - b).max() / np.abs(b).max())
    return errors


@each_chain
def test_float32_is_close_to_float64(rng, name):
    """Medians, because nearby inducing inputs cost a problem its digits."""
    value, *gradients = np.median([float32_errors(rng, name) for _ in range(5)], axis=0)
    assert value < 1e-3 and max(gradients) < 1e-2


def test_draws_are_a_function_of_the_seed(rng):
    """Standard normal, a function of the seed; an even number comes in pairs of opposite sign."""
    model, X, Y = problem(rng, "rare")
    for num in (1, 2, 3, 4):
        draws = hidden_draws(model, X, None, num, 7)
        assert [eps.shape for eps in draws] == [(num, B, P) for P in (2, 1, 3)]
        flat = np.concatenate([eps.reshape(num, -1) for eps in draws], axis=1)
        assert len(np.unique(np.abs(flat))) == flat.size // (1 if num % 2 else 2)
        if num % 2 == 0:
            np.testing.assert_array_equal(flat[num // 2 :], -flat[: num // 2])
        given = fs.elbo(model, X, Y, draws=draws, **OPTIONS)
        assert fs.elbo(model, X, Y, rng=7, num_samples=num, **OPTIONS) == given
        assert (
            fs.elbo(model, X, Y, rng=np.random.default_rng(7), num_samples=num, **OPTIONS) == given
        )
    many = np.concatenate(
        [eps.ravel() for eps in hidden_draws(model, np.zeros((2000, 2)), None, 2, rng)]
    )
    assert abs(np.square(many).mean() - 1) < 0.1
    assert fs.elbo(model, X, Y, **OPTIONS) != fs.elbo(model, X, Y, **OPTIONS)
