"""Small problems for the terms of a bound on a device: quadrature, likelihoods and divergences.

They are checked as in ``device_problems``.
"""

import itertools

import numpy as np
from scipy.special import log_expit, log_ndtr, ndtr
from support.device_problems import FUNCTIONS, lower_with_nan

from fastsvgp import kernels


def check_quadrature(rng, gpu, N, C, dtype):
    mean, var = (
        (3 * rng.standard_normal((C, N))).astype(dtype),
        rng.uniform(0, 2, (C, N)).astype(dtype),
    )
    var.flat[0] = 0
    labels, points = rng.integers(0, C, N), kernels.normal_points(C, 64)
    tolerance = {"rtol": 0, "atol": 3e-6 if dtype == np.float32 else 2e-12}

    def compare(here, there):
        for one, other in zip(here, there, strict=True):
            if one is None:
                assert other is None
            else:
                assert other.dtype == one.dtype
                np.testing.assert_allclose(gpu.back(other), one, **tolerance)

    moved = gpu.there(mean), gpu.there(var)
    for need in (True, False):
        for name in FUNCTIONS:
            compare(
                kernels.expectation(name, mean, var, 20, need),
                kernels.expectation(name, *moved, 20, need),
            )
        compare(
            kernels.largest(labels, mean, var, 20, need),
            kernels.largest(gpu.there(labels), *moved, 20, need),
        )
        there = kernels.expected_logsumexp(
            *moved, kernels.normal_points(C, 64, like=moved[0]), need
        )
        compare(kernels.expected_logsumexp(mean, var, points, need), there)
    far = dtype(1e4) + dtype(2.0**-8) * rng.integers(0, 4, (C, N)).astype(dtype)
    narrow = rng.uniform(0, 1e-4, (C, N)).astype(dtype)
    narrow.flat[0] = 1e-12
    found = kernels.largest(gpu.there(labels), gpu.there(far), gpu.there(narrow))
    for other, one in zip(found, kernels.largest(labels, far, narrow), strict=True):
        np.testing.assert_allclose(
            gpu.back(other), one, rtol=1e-5 if dtype == np.float32 else 1e-9, atol=1e-12
        )
    tiny = dtype(1e-12) * mean, dtype(1e-24) * var
    found = kernels.expectation("log1p_square", *map(gpu.there, tiny))
    for other, one, size in zip(
        found, kernels.expectation("log1p_square", *tiny), (1e-24, 1e-12, 1), strict=True
    ):
        np.testing.assert_allclose(
            gpu.back(other), one, rtol=1e-5 if dtype == np.float32 else 1e-9, atol=1e-6 * size
        )
    t = 0.1 * np.arange(-120.0, 121)
    nodes = np.stack([np.sinh(t), np.sinh(t) + 2])
    G, weights = np.stack([np.log1p(nodes**2), np.cos(nodes)], axis=1), np.stack([np.cosh(t)] * 2)
    table = rng.integers(-1, 2, (C, N))
    wide = (9 * mean).astype(dtype), (9 * (1 + var)).astype(dtype)
    for need in (True, False):
        compare(
            kernels.tabulated_average(G, nodes, weights, table, *wide, need),
            kernels.tabulated_average(*map(gpu.there, (G, nodes, weights, table, *wide)), need),
        )
    nodes = kernels.gauss_hermite_nodes(mean, var, 7)
    compare([nodes], [kernels.gauss_hermite_nodes(*moved, 7)])
    for op in (kernels.gauss_hermite, kernels.log_gauss_hermite):
        compare([op(np.sin(nodes))], [op(gpu.there(np.sin(nodes)))])
    wide = np.maximum(var, dtype(0.1))
    arguments = np.ones(mean.shape, dtype), np.cos(nodes), mean, wide
    compare(
        kernels.gauss_hermite_vjp(*arguments), kernels.gauss_hermite_vjp(*map(gpu.there, arguments))
    )


def check_links(gpu):
    """Check the functions under the integrals separately, at extreme values: a rule of one node."""
    x = np.concatenate([-np.logspace(2, -8, 97), [0], np.logspace(-8, 2, 97)])
    zero = np.zeros_like(x)
    for name, function in FUNCTIONS.items():
        value, slope, _ = (
            gpu.back(a) for a in kernels.expectation(name, gpu.there(x), gpu.there(zero), 1)
        )
        np.testing.assert_allclose(value, function(x), rtol=1e-12, atol=1e-300)
        expected = {
            "log_ndtr": np.exp(-0.5 * x * x - log_ndtr(x)) / np.sqrt(2 * np.pi),
            "log_sigmoid": np.exp(log_expit(-x)),
        }
        np.testing.assert_allclose(slope, expected.get(name, 2 * x / (1 + x * x)), rtol=3e-12)
    labels = gpu.there(np.zeros(len(x), int))
    means = gpu.there(np.stack([x, zero]))
    p = gpu.back(
        kernels.largest(labels, means, gpu.there(np.stack([1e-12 + zero, 1 + zero])), 1)[0]
    )
    np.testing.assert_allclose(p, ndtr(x), rtol=1e-12, atol=1e-300)


def check_terms(rng, gpu, P, N, dtype):
    """Check small terms of a bound: expected log likelihoods, floors of variances, divergences."""
    tolerance = {"rtol": 1e-6 if dtype == np.float32 else 1e-12, "atol": 0}

    def compare(here, there):
        for one, other in zip(here, there, strict=True):
            if one is None:
                assert other is None
            else:
                found = gpu.back(other)
                assert found.shape == np.shape(one) and (
                    found.dtype == np.float64 or found.dtype == one.dtype
                )
                np.testing.assert_allclose(found, one, **tolerance)

    Y, mean = rng.standard_normal((2, P, N)).astype(dtype)
    var, s, weights = (
        rng.uniform(0, 2, (P, N)).astype(dtype),
        dtype(0.3),
        rng.integers(0, 3, (P, N)).astype(dtype),
    )
    for need, w in itertools.product((True, False), (None, weights)):
        here, there = (
            kernels.gaussian_term(Y, mean, var, s, need, w),
            (None if w is None else gpu.there(w)),
        )
        for variance in (s, gpu.there(np.asarray(s))):
            compare(
                here, kernels.gaussian_term(*map(gpu.there, (Y, mean, var)), variance, need, there)
            )
    compare(kernels.gaussian_term(Y[:, ::2], mean[:, ::2], var[:, ::2], s),
            kernels.gaussian_term(*(gpu.there(a[:, ::2]) for a in (Y, mean, var)), s))  # fmt: skip
    kff = rng.uniform(1, 2, N).astype(dtype)
    below = np.where(rng.uniform(size=(P, N)) < 0.3, -var, var)
    square = np.zeros((P, N, N), dtype)
    square[:, range(N), range(N)] = below
    for array in (
        below.copy(),
        below[0].copy(),
        square.reshape(P, N * N)[:, :: N + 1],
        below[:, ::2],
    ):
        there, at = gpu.there(array), kff[: array.shape[-1]]
        count, expected = (
            kernels.raise_to_floor(there, gpu.there(at)),
            kernels.raise_to_floor(array, at),
        )
        assert int(gpu.back(count)) == expected == (array == np.finfo(dtype).eps * at).sum()
        np.testing.assert_array_equal(gpu.back(there), array)
        # the sum with kff is positive at some inputs, and below the floor at others
        less = array - at
        there = gpu.there(less.copy())
        count, expected = (
            kernels.raise_to_floor(*side, add=True) for side in ((there, gpu.there(at)), (less, at))
        )
        assert int(gpu.back(count)) == expected
        np.testing.assert_array_equal(gpu.back(there), less)
    means, trils = (
        rng.standard_normal((P, N)).astype(dtype),
        np.stack([lower_with_nan(rng, N, dtype)[1] for _ in range(P)]),
    )
    for parts in ((means, trils), (means[0], trils[0])):
        compare(
            (kernels.kl_from_standard(*parts),), (kernels.kl_from_standard(*map(gpu.there, parts)),)
        )
