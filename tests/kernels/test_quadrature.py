"""Quadrature kernels against the rules written out in NumPy and SciPy."""

import numpy as np
import pytest
from scipy.special import log_expit, log_ndtr, logsumexp as scipy_logsumexp, ndtr
from support.numerics import assert_adjoint, assert_as_accurate_as, nine_point

from fastsvgp import kernels

FUNCTIONS = {
    "log_ndtr": log_ndtr,
    "log_sigmoid": log_expit,
    "log1p_square": lambda f: np.log1p(f * f),
}
each = pytest.mark.parametrize("name", FUNCTIONS)


def plain_rule(g, mean, var, num, dtype=np.float64):
    z, w = np.polynomial.hermite.hermgauss(num)
    z, w = z.astype(dtype), (w / np.sqrt(np.pi)).astype(dtype)
    return sum(wk * g(mean + np.sqrt(2 * var) * zk) for wk, zk in zip(w, z, strict=True))


def gaussians(rng, shape, dtype=np.float64):
    return rng.standard_normal(shape).astype(dtype), rng.gamma(1.0, 1.0, shape).astype(dtype)


@pytest.mark.parametrize("num", [1, 2, 7, 20, 100])
def test_polynomials_are_exact(num, rng):
    mean, var = gaussians(rng, (2, 3))
    F = kernels.gauss_hermite_nodes(mean, var, num)
    assert F.shape == (num, 2, 3)
    np.testing.assert_allclose(
        F + F[::-1], np.broadcast_to(2 * mean, F.shape), rtol=1e-14, atol=1e-14
    )
    np.testing.assert_allclose(kernels.gauss_hermite(np.ones_like(F)), 1, rtol=1e-14)
    if num > 1:
        np.testing.assert_allclose(kernels.gauss_hermite((F - mean) ** 2), var, rtol=1e-12)
        np.testing.assert_allclose(kernels.gauss_hermite((F - mean) ** 3), 0, atol=1e-12)
    np.testing.assert_allclose(
        kernels.log_gauss_hermite(0.3 * F - 1e4),
        np.log(kernels.gauss_hermite(np.exp(0.3 * F))) - 1e4,
    )


def test_log_gauss_hermite_of_zero(rng):
    with np.errstate(all="raise"):
        assert kernels.log_gauss_hermite(np.full((20, 3), -np.inf)).tolist() == [-np.inf] * 3


@pytest.mark.parametrize("shape", [(1,), (17,), (2, 3, 5), (0,)])
def test_reverse_rule(shape, rng):
    mean, var = gaussians(rng, shape)
    var += 0.05
    e_bar, d, e = rng.standard_normal((3, *shape))

    # plus 1, so that no value is smaller than the rounding errors of its terms by chance
    def value(m, v):
        return kernels.gauss_hermite(1 + np.sin(1.3 * kernels.gauss_hermite_nodes(m, v, 11)))

    slope = 1.3 * np.cos(1.3 * kernels.gauss_hermite_nodes(mean, var, 11))
    mean_bar, var_bar = kernels.gauss_hermite_vjp(e_bar, slope, mean, var)
    assert mean_bar.shape == var_bar.shape == shape
    # var stays positive
    assert_adjoint(value, (mean, var), (mean_bar, var_bar), e_bar, rng, directions=[d, 0.1 * e])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("var", [0.0, 1e-300, 1e-14, 1e-10])
def test_reverse_rule_has_its_limit(var, dtype, rng):
    mean = rng.standard_normal(17).astype(dtype)
    v = np.full_like(mean, var)
    slope = np.cos(kernels.gauss_hermite_nodes(mean, v))
    _, var_bar = kernels.gauss_hermite_vjp(np.ones_like(mean), slope, mean, v)
    assert var_bar.dtype == dtype
    np.testing.assert_allclose(
        var_bar, -np.sin(mean.astype(float)) / 2, atol=1e-9 + np.finfo(dtype).eps
    )


@each
@pytest.mark.parametrize(
    "shape, num", [((1,), 20), ((3,), 1), ((65,), 7), ((2, 3, 17), 20), ((5000,), 20), ((0,), 20)]
)
def test_expectation(name, shape, num, rng):
    mean, var = gaussians(rng, shape)
    mean *= 4
    value, d_mean, d_var = kernels.expectation(name, mean, var, num)
    np.testing.assert_allclose(value, plain_rule(FUNCTIONS[name], mean, var, num), rtol=2e-13)
    alone = kernels.expectation(name, mean, var, num, need=False)
    assert alone[1:] == (None, None)
    np.testing.assert_array_equal(alone[0], value)
    forward = nine_point(lambda s: kernels.expectation(name, mean + s, var, num)[0])
    np.testing.assert_allclose(d_mean, forward, rtol=1e-8, atol=1e-8)
    forward = nine_point(lambda s: kernels.expectation(name, mean, var * (1 + s), num)[0])
    np.testing.assert_allclose(var * d_var, forward, rtol=1e-8, atol=1e-8)


@each
def test_expectation_in_float32(name, rng):
    mean, var = gaussians(rng, 65, np.float32)
    truth = kernels.expectation(name, mean.astype(float), var.astype(float))
    fast = kernels.expectation(name, mean, var)
    assert all(x.dtype == np.float32 for x in fast)
    assert_as_accurate_as(
        fast[0], plain_rule(FUNCTIONS[name], mean, var, 20, np.float32), truth[0], slack=1
    )
    for x, t in zip(fast[1:], truth[1:], strict=True):
        assert_as_accurate_as(x, t.astype(np.float32), t)


@each
def test_functions_are_accurate_far_out(name):
    """With one node at the mean the rule is the function itself.

    It is accurate for |f| from 1e-30 to 1e150, without a warning.
    """
    size = np.concatenate([np.logspace(-30, 1.5, 2000), np.logspace(1.5, 150, 300)])
    mean = np.concatenate([-size, [0.0], size])
    value, d_mean, _ = kernels.expectation(name, mean, np.zeros_like(mean), 1)
    with np.errstate(under="ignore"):
        exact = FUNCTIONS[name](mean)
        slope = {
            "log_ndtr": lambda f: np.exp(-0.5 * f * f - log_ndtr(f)) / np.sqrt(2 * np.pi),
            "log_sigmoid": lambda f: np.exp(log_expit(-f)),
            "log1p_square": lambda f: 2 * f / (1 + f * f),
        }[name](np.clip(mean, -30, 30))
    # exp(-x^2 / 2) loses x^2 / 2 rounding units
    np.testing.assert_allclose(value, exact, rtol=2e-13, atol=1e-300)
    near = np.abs(mean) < 30
    np.testing.assert_allclose(d_mean[near], slope[near], rtol=1e-12, atol=1e-190)
    if name == "log_ndtr":
        # phi / Phi ~ -f - 1 / f ...
        np.testing.assert_allclose(d_mean[mean < -1e3], -mean[mean < -1e3], rtol=1.1e-6)
        assert (d_mean[mean > 40] == 0).all()


@pytest.mark.parametrize("size", [1e-60, 1e-12, 1e-6, 1e-3])
def test_log1p_square_is_accurate_near_zero(size, rng):
    """For log(1 + f^2) with f of size ``size``, mean and derivatives are those of f^2."""
    mean, var = size * rng.standard_normal(65), size * size * rng.gamma(1.0, 1.0, 65)
    mean[0], var[1] = 0.0, 0.0
    value, d_mean, d_var = kernels.expectation("log1p_square", mean, var)
    tolerance = {"rtol": 1e-10 + 100 * size * size}
    np.testing.assert_allclose(value, mean * mean + var, **tolerance)
    np.testing.assert_allclose(d_mean, 2 * mean, atol=1e-15 * size, **tolerance)
    np.testing.assert_allclose(d_var, 1, **tolerance)


def tables(rng):
    """Three functions at nodes of two tables, and the weights of nodes whose distances grow."""
    t = 0.08 * np.arange(-150.0, 151)
    nodes, weights = np.stack([np.sinh(t), 5 + 2 * np.sinh(t)]), np.stack([np.cosh(t)] * 2)
    return np.stack([np.log1p(nodes**2), np.cos(nodes), nodes], axis=1), nodes, weights


@pytest.mark.parametrize("shape", [(1,), (17,), (2, 3, 5), (3000,), (0,)])
def test_tabulated_average(shape, rng):
    G, nodes, weights = tables(rng)
    mean, var, table = (
        rng.normal(1, 2, shape),
        np.exp(rng.uniform(1, 6, shape)),
        rng.integers(0, 2, shape),
    )
    value, d_mean, d_var = kernels.tabulated_average(G, nodes, weights, table, mean, var)
    z = (nodes[table] - mean[..., None]) / np.sqrt(var)[..., None]
    e = weights[table] * np.exp(-0.5 * z * z) * (abs(z) < 8.4)
    e /= e.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        value, np.moveaxis((e[..., None, :] * G[table]).sum(axis=-1), -1, 0), rtol=1e-12, atol=1e-12
    )
    alone = kernels.tabulated_average(G, nodes, weights, table, mean, var, need=False)
    assert alone[1:] == (None, None)
    np.testing.assert_array_equal(alone[0], value)
    # the mean of f itself, to the 1e-12 of the rule: its derivatives are 1 and 0
    np.testing.assert_allclose(value[2], mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(d_mean[2], 1, rtol=1e-9)

    def moved(mean, var):
        return kernels.tabulated_average(G, nodes, weights, table, mean, var)[0]

    forward = nine_point(lambda s: moved(mean + s, var))
    np.testing.assert_allclose(d_mean, forward, rtol=1e-7, atol=1e-7)
    forward = nine_point(lambda s: moved(mean, var * (1 + s)))
    np.testing.assert_allclose(var * d_var, forward, rtol=1e-7, atol=1e-7)


def test_tabulated_average_of_rows_without_a_table(rng):
    """Their mean and variance can be anything."""
    G, nodes, weights = tables(rng)
    table = np.array([0, -1, 1, -1, -1])
    mean, var = np.array([0.3, 1e300, -2.0, np.nan, 0.0]), np.array([5.0, 0.0, 9.0, np.inf, -1.0])
    found = kernels.tabulated_average(G, nodes, weights, table, mean, var)
    at = table >= 0
    alone = kernels.tabulated_average(G, nodes, weights, table[at], mean[at], var[at])
    for all_rows, rows in zip(found, alone, strict=True):
        np.testing.assert_array_equal(all_rows[:, at], rows)
        assert not all_rows[:, ~at].any()


def plain_largest(Y, mean, var, num=20):
    n = np.arange(len(Y))

    def product(f):
        P = ndtr((f - mean) / np.sqrt(var))
        P[Y, n] = 1
        return P.prod(axis=0)

    return plain_rule(product, mean[Y, n], var[Y, n], num)


@pytest.mark.parametrize("C, N", [(1, 3), (2, 1), (3, 17), (10, 600), (700, 5), (3, 0)])
def test_largest(C, N, rng):
    mean, var = gaussians(rng, (C, N))
    var += 0.1
    Y = rng.integers(0, C, N)
    p, d_mean, d_var = kernels.largest(Y, mean, var)
    np.testing.assert_allclose(p, plain_largest(Y, mean, var), rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(kernels.largest(Y, mean, var, need=False)[0], p)
    for _ in range(2):
        d, e = rng.standard_normal((C, N)), rng.standard_normal((C, N)) * np.minimum(var, 1)
        for bar, move, forward in (
            (d_mean, d, nine_point(lambda s, d=d: kernels.largest(Y, mean + s * d, var)[0])),
            (d_var, e, nine_point(lambda s, e=e: kernels.largest(Y, mean, var + s * e)[0])),
        ):
            np.testing.assert_allclose((bar * move).sum(axis=0), forward, atol=1e-8)


def test_largest_far_from_zero(rng):
    """Differences of means that are exact at either place give the same results."""
    near, Y = np.round(rng.standard_normal((3, 65)) * 1024) * 2.0**-20, rng.integers(0, 3, 65)
    var = 1e-6 * (0.1 + rng.random((3, 65)))
    here, there = kernels.largest(Y, near, var), kernels.largest(Y, near + 1e4, var)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(other, one)
    np.testing.assert_allclose(here[0], plain_largest(Y, near, var), rtol=1e-12, atol=1e-300)


def test_largest_ignores_variances_below_the_floor(rng):
    """Value and derivative agree there too: neither depends on the variance."""
    mean, Y = 1e-6 * rng.standard_normal((3, 17)), rng.integers(0, 3, 17)
    p, _, d_var = kernels.largest(Y, mean, np.full((3, 17), 1e-12))
    assert not d_var.any()
    np.testing.assert_array_equal(kernels.largest(Y, mean, np.full((3, 17), 2e-12))[0], p)
    assert kernels.largest(Y, mean, np.full((3, 17), 1e-10))[2].all()


def test_largest_where_products_underflow():
    mean = np.array([[0.0, 1e4, -1e4, 0.0], [1e3, 0.0, 1e4, 0.0], [-1e4, 1e4, 0.0, 0.0]])
    for var in (0.0, 1e-12, 1.0):
        p, d_mean, d_var = kernels.largest(np.array([0, 0, 1, 2]), mean, np.full_like(mean, var))
        np.testing.assert_allclose(p[:3], [0, 0.5, 1], atol=1e-15)
        assert 0 <= p[3] <= 1
        assert np.isfinite(d_mean).all() and np.isfinite(d_var).all()


@pytest.mark.parametrize("dim, num", [(1, 2), (3, 64), (10, 128), (40, 64), (21_202, 4)])
def test_normal_points(dim, num):
    z = kernels.normal_points(dim, num)
    assert z.shape == (num, dim)
    np.testing.assert_array_equal(z[num // 2 :], -z[: num // 2])
    np.testing.assert_allclose((z * z).mean(axis=0), 1, rtol=1e-12)
    if num >= 4 * dim:
        np.testing.assert_allclose(z.T @ z / num, np.eye(dim), atol=1e-12)
    np.testing.assert_array_equal(z, kernels.normal_points(dim, num, 0))
    np.testing.assert_array_equal(
        kernels.normal_points(dim, num, np.random.default_rng(3)),
        kernels.normal_points(dim, num, np.random.default_rng(3)),
    )
    if dim > 1:
        assert not np.array_equal(z, kernels.normal_points(dim, num, 1))


@pytest.mark.parametrize("C, N", [(1, 3), (3, 17), (10, 600), (700, 5), (3, 0)])
def test_expected_logsumexp(C, N, rng):
    mean, var = gaussians(rng, (C, N))
    var += 0.01
    z = rng.standard_normal((7, C))
    z = np.concatenate([z, -z])
    value, d_mean, d_var = kernels.expected_logsumexp(mean, var, z)
    f = mean + np.sqrt(var) * z[:, :, None]
    np.testing.assert_allclose(value, scipy_logsumexp(f, axis=1).mean(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(kernels.expected_logsumexp(mean, var, z, need=False)[0], value)
    softmax = np.exp(f - scipy_logsumexp(f, axis=1, keepdims=True))
    np.testing.assert_allclose(d_mean, softmax.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        d_var, (softmax * z[:, :, None]).mean(axis=0) / (2 * np.sqrt(var)), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("op", ["largest", "expected_logsumexp"])
def test_multi_class_in_float32(op, rng):
    mean, var = gaussians(rng, (3, 65), np.float32)
    Y, z = rng.integers(0, 3, 65), kernels.normal_points(3, 16)
    fast, truth = (
        kernels.largest(Y, m, v) if op == "largest" else kernels.expected_logsumexp(m, v, z)
        for m, v in ((mean, var), (mean.astype(float), var.astype(float)))
    )
    for x, t in zip(fast, truth, strict=True):
        assert x.dtype == np.float32
        assert_as_accurate_as(x, t.astype(np.float32), t)


@pytest.mark.parametrize(
    "op", ["expectation", "tabulated_average", "largest", "expected_logsumexp"]
)
def test_any_strides(op, rng):
    mean, var = gaussians(rng, (3, 34))
    var += 1
    Y, z = rng.integers(0, 3, 34), kernels.normal_points(3, 16)
    call = {
        "expectation": lambda Y, m, v: kernels.expectation("log_ndtr", m, v),
        "tabulated_average": lambda Y, m, v: kernels.tabulated_average(
            *(np.asfortranarray(a) for a in tables(rng)), np.zeros(m.shape, int)[::-1], m, v
        ),
        "largest": kernels.largest,
        "expected_logsumexp": lambda Y, m, v: kernels.expected_logsumexp(m, v, z),
    }[op]
    thin = call(Y[::-2], mean[:, ::-2], np.asfortranarray(var)[:, ::-2])
    dense = call(Y[::-2].copy(), mean[:, ::-2].copy(), var[:, ::-2].copy())
    for a, b in zip(thin, dense, strict=True):
        assert a.flags.c_contiguous
        np.testing.assert_array_equal(a, b)
