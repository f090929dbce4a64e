"""The compiled step of small models equals the pass of a layer, which serves all others."""

import functools
import warnings

import numpy as np
import pytest
from support.gp_problems import lower_factor
from support.rank_problems import on_ranks

import fastsvgp as fs
from fastsvgp import covariances, kernels, means
from fastsvgp.bounds import small_step
from fastsvgp.bounds.relay import Batch
from fastsvgp.kernels.cpu import small_whitened
from fastsvgp.kernels.cpu.small_whitened import step
from fastsvgp.records import leaves, replace_at

COVARIANCES = (fs.RBF, fs.Matern12, fs.Matern32, fs.Matern52)
TOLERANCE = {"float64": 1e-13, "float32": 2e-5}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


def problem(rng, covariance=fs.RBF, M=6, N=9, D=2, shared=False, dtype="float64"):
    lengthscales = 1.1 if shared else np.linspace(0.8, 1.6, D).astype(dtype)
    W = lower_factor(rng, M)
    q = fs.Whitened(rng.standard_normal(M).astype(dtype), W.astype(dtype))
    Z = 2 * rng.standard_normal((M, D)).astype(dtype)
    X, Y = rng.standard_normal((N, D)).astype(dtype), rng.standard_normal(N).astype(dtype)
    return fs.SVGP(covariance(1.3, lengthscales), Z, q, fs.Gaussian(0.2)), X, Y


def counting(name, monkeypatch):
    found, compiled = [], getattr(kernels, name)

    def counted(*args):
        result = compiled(*args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(kernels, name, counted)
    return found


@pytest.fixture
def steps(monkeypatch):
    """Count the compiled steps that gave a result."""
    return counting("whitened_step", monkeypatch)


@pytest.fixture
def sums(monkeypatch):
    """Count the compiled bounds and sums of natural steps that gave a result."""
    return counting("whitened_sums", monkeypatch)


def general(call, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(small_step, "MOST", 0)
        return call()


def assert_equal_steps(call, monkeypatch, dtype="float64"):
    (value, grad), (other, rest) = call(), general(call, monkeypatch)
    np.testing.assert_allclose(value, other, rtol=TOLERANCE[dtype])
    for (path, _, ours), (_, _, theirs) in zip(leaves(grad), leaves(rest), strict=True):
        assert type(ours) is type(theirs) and np.shape(ours) == np.shape(theirs), path
        if ours is not None:
            assert ours.dtype == theirs.dtype, path
            scale = max(1.0, np.abs(theirs).max())
            np.testing.assert_allclose(ours / scale, theirs / scale, atol=TOLERANCE[dtype])


def assert_equal_natural_steps(call, monkeypatch, dtype="float64"):
    """Compare models, reports, and what follows them: value and gradients at the new posterior."""
    (model, info, *more), (other, report, *rest) = call(), general(call, monkeypatch)
    tolerance = 30 * TOLERANCE[dtype]  # of the condition of precisions
    np.testing.assert_allclose(info.value, report.value, rtol=TOLERANCE[dtype])
    assert info._replace(value=0) == report._replace(value=0)
    for name in ("mean", "scale_tril"):
        ours, theirs = getattr(model.posterior, name), getattr(other.posterior, name)
        assert ours.dtype == theirs.dtype == dtype and ours.flags.c_contiguous
        np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())
    assert not np.triu(model.posterior.scale_tril, 1).any()
    if more:
        np.testing.assert_allclose(more[0], rest[0], rtol=tolerance)
        for (path, _, ours), (_, _, theirs) in zip(*map(leaves, (more[1], rest[1])), strict=True):
            if theirs is not None:
                scale = max(1.0, np.abs(theirs).max())
                np.testing.assert_allclose(ours, theirs, atol=tolerance * scale, err_msg=path)


@each_dtype
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_bound_alone(rng, monkeypatch, sums, covariance, dtype):
    model, X, Y = problem(rng, covariance, dtype=dtype)
    value, other = (
        how(lambda: fs.elbo(model, X, Y, num_data=40))
        for how in (lambda call: call(), lambda call: general(call, monkeypatch))
    )
    np.testing.assert_allclose(value, other, rtol=TOLERANCE[dtype])
    assert sums == [True]


@pytest.mark.parametrize("M, N, D", [(1, 1, 1), (1, 7, 3), (7, 1, 2), (33, 65, 5), (3, 1000, 40)])
def test_the_bound_alone_of_odd_shapes(rng, monkeypatch, sums, M, N, D):
    model, X, Y = problem(rng, M=M, N=N, D=D)
    model = fs.replace(model, inducing=np.asfortranarray(model.inducing))
    monkeypatch.setattr(step, "TILE", 64 * 8 * M)
    monkeypatch.setattr(small_whitened, "SERIAL_BELOW", 1)
    with fs.set_num_threads(3):
        value = fs.elbo(model, X, Y, jitter=1e-3)
    assert sums == [True]
    other = general(lambda: fs.elbo(model, X, Y, jitter=1e-3), monkeypatch)
    np.testing.assert_allclose(value, other, rtol=1e-13)


def test_a_bound_of_many_inducing_inputs_is_as_accurate_as_a_pass(rng, sums):
    """An explicit L^-1 would lose four times as much in float32."""
    M = small_step.MOST_OF_BOUND
    for more in (0, 1):
        fs.elbo(*problem(rng, M=M + more, N=9))
    assert sums == [True]


@each_dtype
@pytest.mark.parametrize("step_size", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("function", [fs.natural_step, fs.optim.natural_step_and_grad])
def test_natural_steps(rng, monkeypatch, sums, function, step_size, dtype):
    """A step of 3 from a narrow posterior is halved until the precision is positive definite."""
    model, X, Y = problem(rng, N=30, dtype=dtype)
    L = model.posterior.scale_tril * (0.01 if step_size > 1 else 1)
    filled = np.triu(np.full((6, 6), 1e3, dtype), 1)  # never read
    model = replace_at(model, "posterior.scale_tril", L + filled)
    options = dict(step_size=step_size, num_data=40, jitter=1e-3)
    assert_equal_natural_steps(lambda: function(model, X, Y, **options), monkeypatch, dtype)
    assert sums == [True]
    assert function(model, X, Y, **options)[1].backed_off == (step_size > 1)


@pytest.mark.parametrize("M, N, D", [(1, 1, 1), (1, 7, 3), (7, 1, 2), (33, 65, 5), (3, 1000, 40)])
def test_natural_steps_of_odd_shapes(rng, monkeypatch, sums, M, N, D):
    model, X, Y = problem(rng, M=M, N=N, D=D)
    call = functools.partial(fs.natural_step, model, X, Y, jitter=1e-3)
    assert_equal_natural_steps(call, monkeypatch)
    assert sums == [True]


def test_natural_steps_of_tiles_and_ranges(rng, monkeypatch, sums):
    """Several tiles in each of three ranges of rows."""
    M = 40
    model, X, Y = problem(rng, M=M, N=1000, D=3)
    monkeypatch.setattr(step, "TILE", 64 * 8 * M)
    monkeypatch.setattr(small_whitened, "SERIAL_BELOW", 1)
    call = functools.partial(fs.natural_step, model, X, Y, jitter=1e-3)
    with fs.set_num_threads(3):
        assert_equal_natural_steps(call, monkeypatch)
    assert sums == [True]


def test_a_natural_step_of_size_one_reaches_the_optimum(rng, sums):
    model, X, Y = problem(rng, N=30)
    stepped, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=1e-6)
    best = fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.2), X, Y, jitter=1e-6)
    np.testing.assert_allclose(fs.elbo(stepped, X, Y, jitter=1e-6), best, rtol=1e-9)
    assert sums == [True, True]


def test_monotone_natural_steps(rng, monkeypatch, sums):
    """Every size that is tried is a compiled bound; at the optimum a step beyond it lowers it."""
    model, X, Y = problem(rng, N=30)
    model, _ = fs.natural_step(model, X, Y, step_size=0.99, jitter=1e-3)
    options = dict(step_size=1.999, monotone=True, jitter=1e-3)
    first = fs.natural_step(model, X, Y, **options | dict(monotone=False))[1].step_size
    sums.clear()
    call = functools.partial(fs.natural_step, model, X, Y, **options)
    assert_equal_natural_steps(call, monkeypatch)
    tried = len(sums) - 1
    assert all(sums) and call()[1].step_size == first / 2 ** (tried - 1)


def test_a_size_that_lowers_the_bound_is_halved(rng, monkeypatch, sums):
    model, X, Y = problem(rng, N=30)
    bounds, compiled = [], small_step.sums

    def lower_at_first(*args, natural=False, **options):
        found = compiled(*args, natural=natural, **options)
        bounds.append(natural)
        return found._replace(data=-1e9) if len(bounds) == 2 else found

    monkeypatch.setattr(small_step, "sums", lower_at_first)
    _, info = fs.natural_step(model, X, Y, step_size=0.8, monotone=True)
    assert info.step_size == 0.4 and info.backed_off
    assert bounds == [True, False, False] and sums == [True] * 3


@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize("function", [fs.natural_step, fs.optim.natural_step_and_grad])
def test_ranks_reach_one_posterior(rng, monkeypatch, sums, function, clamped):
    """The limit lies between the numbers of rows, or the variance of one rank is at its floor."""
    M, N = 6, 21
    model, X, Y = problem(rng, M=M, N=N)
    options = {"jitter": 1e-3}
    if clamped:
        tiny = fs.Whitened(model.posterior.mean, 1e-12 * np.eye(M))
        model, X[0], options = fs.replace(model, posterior=tiny), model.inducing[0], {}
        options = {"jitter": 1e-16}
    else:
        monkeypatch.setattr(small_step, "MOST_NATURAL", M * M * (M + N // 2) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = general(lambda: function(model, X, Y, **options), monkeypatch)
        found = on_ranks(2, lambda group: function(model, X, Y, group=group, **options))
    assert sums == []
    (one, *_), (two, *_) = found
    for name in ("mean", "scale_tril"):
        np.testing.assert_array_equal(*(getattr(m.posterior, name) for m in (one, two)))
        due = getattr(expected[0].posterior, name)
        np.testing.assert_allclose(getattr(one.posterior, name), due, rtol=0, atol=1e-7)


@pytest.mark.parametrize("function", [fs.elbo, fs.natural_step, fs.optim.natural_step_and_grad])
def test_clamped_variances_of_bounds_and_natural_steps(rng, monkeypatch, sums, function):
    model, _, Y = problem(rng, M=6, N=6)
    sure = replace_at(model, "posterior.scale_tril", 1e-12 * np.eye(6))
    X = model.inducing.copy()

    def call():
        with pytest.warns(fs.VarianceClampWarning) as said:
            result = function(sure, X, Y, jitter=1e-16)
        return result, [str(one.message) for one in said]

    (found, said), (other, expected) = call(), general(call, monkeypatch)
    assert not any(sums) and said == expected
    if function is fs.elbo:
        assert found == other
    else:
        np.testing.assert_array_equal(found[0].posterior.mean, other[0].posterior.mean)


@each_dtype
def test_a_precision_that_is_not_positive_definite(rng, dtype):
    """The kernel names the row at which the general one fails, and reads any layout."""
    M, size = 7, 0.5
    q = fs.Whitened(np.zeros(M), np.tril(rng.standard_normal((M, M)), -1) * 0.1 + np.eye(M))
    W, sums = q.scale_tril.astype(dtype), rng.standard_normal(M).astype(dtype)
    S = np.linalg.inv(q.scale_tril @ q.scale_tril.T)
    G = -np.eye(M) - 0.1 * np.ones((M, M))
    for layout in (np.ascontiguousarray, np.asfortranarray):
        given = layout(G.astype(dtype))
        mean, tril = kernels.whitened_natural_step(W[0] * 0, layout(W), sums, given, size)
        precision = (1 - size) * S + size * (np.eye(M) - G)
        tolerance = dict(rtol=0, atol=100 * np.finfo(dtype).eps)
        np.testing.assert_allclose(tril @ tril.T @ precision, np.eye(M), **tolerance)
        np.testing.assert_allclose(mean, np.linalg.solve(precision, size * sums), **tolerance)
        assert tril.flags.c_contiguous
    G[2, 2] = 10.0
    precision = (1 - size) * S + size * (np.eye(M) - G)
    with pytest.raises(fs.NotPositiveDefinite) as general_error:
        kernels.cholesky_of_inverse(precision.astype(dtype))
    with pytest.raises(fs.NotPositiveDefinite) as error:
        kernels.whitened_natural_step(W[0] * 0, W, sums, G.astype(dtype), size)
    assert error.value.pivot == general_error.value.pivot == 2
    assert str(error.value) == str(general_error.value)


def test_the_size_of_a_step_is_not_rounded(rng):
    """A step of 1 - 1e-9 in float32 keeps a trace of the old precision."""
    W, none, G = (
        np.full(shape, x, np.float32) for shape, x in (((1, 1), 1e-5), (1, 0), ((1, 1), 0))
    )
    _, tril = kernels.whitened_natural_step(none, W, none, G, 1 - 1e-9)
    np.testing.assert_allclose(tril, 11**-0.5, rtol=1e-5)  # 1e-9 times a precision of 1e10, and 1


def test_failures_of_natural_steps_are_reported_by_the_pass_of_a_layer(rng, sums):
    model, X, Y = problem(rng, M=40, D=1)
    near = fs.replace(model, inducing=1e-3 * model.inducing)
    for function in (fs.elbo, fs.natural_step):
        with pytest.raises(fs.NotPositiveDefinite, match="with jitter 1e-300"):
            function(near, X, Y, jitter=1e-300)
    assert sums == [False, False]


def test_larger_natural_steps_take_the_pass_of_a_layer(rng, monkeypatch, sums):
    model, X, Y = problem(rng)
    monkeypatch.setattr(small_step, "MOST_NATURAL", 6 * 6 * (6 + 9))
    fs.natural_step(model, X, Y)
    assert sums == []
    fs.natural_step(model, X[1:], Y[1:])
    assert sums == [True]


@each_dtype
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_every_covariance(rng, monkeypatch, steps, covariance, shared, dtype):
    model, X, Y = problem(rng, covariance, shared=shared, dtype=dtype)
    assert_equal_steps(lambda: fs.elbo_and_grad(model, X, Y, num_data=40), monkeypatch, dtype=dtype)
    assert steps == [True]


@pytest.mark.parametrize("M, N, D", [(1, 1, 1), (1, 7, 3), (7, 1, 2), (33, 65, 5), (3, 1000, 40)])
def test_odd_shapes(rng, monkeypatch, steps, M, N, D):
    model, X, Y = problem(rng, M=M, N=N, D=D)
    assert_equal_steps(lambda: fs.elbo_and_grad(model, X, Y), monkeypatch)
    assert steps == [True]


def test_rows_in_tiles(rng, monkeypatch, steps):
    """Two tiles and the rest of a third."""
    M = 5
    model, X, Y = problem(rng, M=M, N=2 * step.TILE // (8 * M) + 100)
    assert_equal_steps(lambda: fs.elbo_and_grad(model, X, Y), monkeypatch)
    assert steps == [True]


@pytest.mark.parametrize("M, N, taken", [
    (199, 2, True), (199, 2000, True), (240, 239, False), (240, 240, True), (257, 300, False),
    (3, 400_000, False), (240, 1400, False),
])  # fmt: skip
def test_sizes(M, N, taken):
    """Small, by L^-1 where the passes use it, and one chunk of rows."""
    q = fs.Whitened(np.zeros(M), np.broadcast_to(np.eye(M), (M, M)))
    model = fs.SVGP(fs.RBF(1.0, 1.0), np.zeros((M, 1)), q, fs.Gaussian(0.1))
    batch = Batch(np.zeros((N, 1)), np.zeros(N), None, None)
    assert small_step._is_small(model, batch, small_step.MOST) == taken


@each_dtype
def test_ranges_of_rows_on_several_threads(rng, monkeypatch, steps, dtype):
    model, X, Y = problem(rng, M=20, N=83, dtype=dtype)
    monkeypatch.setattr(small_whitened, "SERIAL_BELOW", 1)
    before = fs.get_num_threads()
    fs.set_num_threads(3)
    try:
        assert_equal_steps(
            lambda: fs.elbo_and_grad(model, X, Y, jitter=0.1), monkeypatch, dtype=dtype
        )
    finally:
        fs.set_num_threads(before)
    assert steps == [True]


@pytest.mark.parametrize(
    "wrt", [("covariance.variance",), ("inducing", "posterior"), ("covariance", "likelihood")]
)
def test_named_fields(rng, monkeypatch, steps, wrt):
    model, X, Y = problem(rng)
    assert_equal_steps(lambda: fs.elbo_and_grad(model, X, Y, wrt=wrt), monkeypatch)
    assert steps == [True]


def test_the_data_term_has_no_divergence(rng, monkeypatch, steps):
    model, X, Y = problem(rng)
    assert_equal_steps(lambda: fs.bounds.data_term_and_grad(model, X, Y, num_data=40), monkeypatch)
    assert steps == [True]


def test_arrays_in_any_order(rng, monkeypatch, steps):
    model, X, Y = problem(rng)
    turned = replace_at(
        model, "posterior.scale_tril", np.asfortranarray(model.posterior.scale_tril)
    )
    turned = fs.replace(turned, inducing=np.asfortranarray(model.inducing))
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    value, grad = fs.elbo_and_grad(turned, wide, np.repeat(Y, 2)[::2])
    expected, rest = fs.elbo_and_grad(model, X, Y)
    assert value == expected and steps == [True, True]
    for (path, _, ours), (_, _, theirs) in zip(leaves(grad), leaves(rest), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=path)


def test_what_is_above_the_diagonal_of_the_factor_is_not_read(rng, steps):
    model, X, Y = problem(rng)
    W = model.posterior.scale_tril
    filled = replace_at(model, "posterior.scale_tril", W + np.triu(np.full(W.shape, 1e3), 1))
    (value, grad), (other, rest) = (fs.elbo_and_grad(m, X, Y) for m in (model, filled))
    assert value == other and steps == [True, True]
    np.testing.assert_array_equal(grad.posterior.scale_tril, rest.posterior.scale_tril)
    assert not np.triu(grad.posterior.scale_tril, 1).any()


def test_repeated_inducing_inputs_are_refused_as_ever(rng, steps):
    model, X, Y = problem(rng)
    model.inducing[3] = model.inducing[1]
    with pytest.raises(fs.NotPositiveDefinite, match="are the same inputs"):
        fs.elbo_and_grad(model, X, Y, jitter=0.0)
    assert steps == []  # without jitter a pass checks the pivots


def test_a_failed_factorisation_is_reported_by_the_pass_of_a_layer(rng, steps):
    model, X, Y = problem(rng, M=40, D=1)
    model = fs.replace(model, inducing=1e-3 * model.inducing)
    with pytest.raises(fs.NotPositiveDefinite, match="with jitter 1e-300"):
        fs.elbo_and_grad(model, X, Y, jitter=1e-300)
    assert steps == [False]


def test_clamped_variances_are_reported_by_the_pass_of_a_layer(rng, monkeypatch, steps):
    model, _, Y = problem(rng, M=6, N=6)
    sure = replace_at(model, "posterior.scale_tril", 1e-12 * np.eye(6))
    X = model.inducing.copy()

    def call():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fs.elbo_and_grad(sure, X, Y, jitter=1e-16)

    assert_equal_steps(call, monkeypatch)
    assert steps == [False]


def test_ranks_share_the_divergence(rng, monkeypatch, steps):
    model, X, Y = problem(rng, N=11)
    expected, rest = fs.elbo_and_grad(model, X, Y, num_data=33)

    def rank(group):
        return fs.elbo_and_grad(model, X, Y, num_data=33, group=group)

    for value, grad in on_ranks(2, rank):
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(grad.inducing, rest.inducing, atol=1e-12)
    assert steps == [True] * 3


def test_other_models_take_the_pass_of_a_layer(rng, steps):
    model, X, Y = problem(rng)
    M = len(model.inducing)
    others = [
        fs.replace(model, covariance=model.covariance + covariances.Constant(0.1)),
        fs.replace(model, likelihood=fs.StudentT(0.5)),
        fs.replace(model, mean=means.ConstantMean(0.5)),
        fs.replace(model, posterior=fs.Marginal(np.zeros(M), np.eye(M))),
        fs.replace(model, posterior=fs.Whitened(np.zeros((1, M)), np.eye(M)[None])),
    ]
    for other in others:
        fs.elbo_and_grad(other, X, Y[:, None] if other.posterior.mean.ndim > 1 else Y)
    fs.elbo_and_grad(model, X, Y, weights=np.ones(len(Y)))
    fs.elbo_and_grad(model, X, Y, inputs=True)
    fs.elbo_and_grad(model, X, Y, wrt=("posterior",))
    assert steps == []


def test_nan_is_named(rng, steps):
    model, X, Y = problem(rng)
    Y[2] = np.nan
    with pytest.raises(ValueError, match="`Y`"):
        fs.elbo_and_grad(model, X, Y)
