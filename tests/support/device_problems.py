"""Small problems for the CUDA twins behind bounds and optimisers, on a GPU or on ``cupy_on_host``.

Each check calls the front door with NumPy arrays and with their copies on the device: both must be
as accurate as plain NumPy.
"""

import functools
import operator

import numpy as np
from scipy.special import log_expit, log_ndtr
from support.near_rows import near_rows_problem
from support.numerics import assert_as_accurate_as, generator

from fastsvgp import kernels
from fastsvgp.records import transforms
from fastsvgp.runtime import deferred_checks, tuning

SIZES = [(1, 1), (3, 17), (65, 33), (130, 300)]  # rows, columns


def as_accurate(results, definition, *arrays, size=0.0):
    """Compare results with a definition in the dtype of the arrays and in extended precision.

    ``size`` is that of terms that can cancel.
    """
    plain, truth = definition(*arrays), definition(*(np.asarray(a, np.longdouble) for a in arrays))
    for result, in_dtype, exact in zip(results, plain, truth, strict=True):
        assert np.shape(result) == np.shape(exact)
        assert_as_accurate_as(
            np.asarray(result, in_dtype.dtype), in_dtype, exact.astype(np.float64), size=size
        )


def both(gpu, operation, definition, *arrays, size=0.0, **settings):
    """Run ``operation(*arrays)`` on both sides; it can modify its arrays, and returns a tuple."""
    for there, back in ((np.copy, lambda x: x), (gpu.there, gpu.back)):
        results = operation(*map(there, arrays), **settings)
        as_accurate([back(x) for x in results], definition, *arrays, size=size)


def lower_with_nan(rng, M, dtype):
    L = np.tril(rng.standard_normal((M, M)) / np.sqrt(M)) + 2 * np.eye(M)
    return L.astype(dtype), np.where(np.tri(M), L, np.nan).astype(dtype)


def check_products(rng, gpu, M, N, dtype):
    A, B = (rng.standard_normal((M, N)).astype(dtype) for _ in range(2))
    x, a, w = (rng.standard_normal(n).astype(dtype) for n in (M, N, N))
    both(
        gpu,
        lambda A, x, B: kernels.column_moments(A, x, B),
        lambda A, x, B: (x @ A, (A * B).sum(0)),
        A,
        x,
        B,
    )
    both(gpu, lambda A, x: kernels.column_moments(A, x), lambda A, x: (x @ A, (A * A).sum(0)), A, x)
    both(gpu, lambda A, w: (kernels.scale_columns(A, w),), lambda A, w: (A * w,), A, w)
    both(gpu, lambda A, w: (kernels.scale_columns(A, w, out=A),), lambda A, w: (A * w,), A, w)
    both(gpu, lambda A, B: (kernels.matmul(A, B, transpose_b=True),), lambda A, B: (A @ B.T,), A, B)
    both(
        gpu,
        lambda A, B: (kernels.matmul(A, B, transpose_b=True),),
        lambda A, B: (A @ B.T,),
        A[:, :0],
        B[:, :0],
    )
    both(gpu, lambda A, B: (kernels.matmul(A.T, B, True, True),), lambda A, B: (A @ B.T,), A, B)
    both(
        gpu,
        lambda A, B: (kernels.matmul(A, B[:, ::2], transpose_a=True),),
        lambda A, B: (A.T @ B[:, ::2],),
        A,
        B,
    )
    both(
        gpu,
        lambda T, x, a: (kernels.add_outer(T, x, a),),
        lambda T, x, a: (T + np.outer(x, a),),
        A,
        x,
        a,
    )
    both(
        gpu,
        lambda T, x, a, w: (kernels.add_outer(T, x, a, w),),
        lambda T, x, a, w: (T * w + np.outer(x, a),),
        A,
        x,
        a,
        w,
    )
    both(
        gpu,
        lambda T, A: (kernels.add_scaled(T, A, 0.3),),
        lambda T, A: (T + T.dtype.type(0.3) * A,),
        A,
        B,
    )
    for scale in (False, True):

        def minus(T, x, a, A, w, scale=scale):
            return kernels.add_outer_minus_scaled(T, x, a, A, w, scale), T

        def plain_minus(T, x, a, A, w, scale=scale):
            return A @ a, (T * w if scale else T) + np.outer(x, a) - A * w

        both(gpu, minus, plain_minus, A, x, a, B, w)
    both(gpu, lambda T, w, x, a, A: (kernels.scale_add_outer(T, w, x, a, A), T),
         lambda T, w, x, a, A: (A @ a, T * w + np.outer(x, a)), A, w, x, a, B)  # fmt: skip
    square = rng.standard_normal((M, M)).astype(dtype)

    def lower(C):
        return (np.tril(gpu.back(C)),)

    # positive and negative weights are summed separately
    size = (A * A * np.abs(w)).sum(axis=1).max()
    for signs in (w, np.abs(w)):
        both(
            gpu,
            lambda A, w: lower(kernels.weighted_gram(A, w)),
            lambda A, w: lower((A * w) @ A.T),
            A,
            signs,
            size=size,
        )
        both(
            gpu,
            lambda A, w, C: lower(kernels.weighted_gram(A, w, out=C, add=True)),
            lambda A, w, C: lower(C + (A * w) @ A.T),
            A,
            signs,
            square,
            size=size,
        )
    both(
        gpu, lambda A: (kernels.symmetrise(A),), lambda A: (np.tril(A) + np.tril(A, -1).T,), square
    )
    L, with_nan = lower_with_nan(rng, M, dtype)
    for factor in (L, with_nan):
        found = [
            float(gpu.back(kernels.tril_sum_of_squares(a))) for a in (gpu.there(factor), factor)
        ]
        np.testing.assert_allclose(
            found, (L.astype(float) ** 2).sum(), rtol=10 * np.finfo(dtype).eps
        )
    for transpose in (False, True):

        def update(C, L, transpose=transpose):
            return (kernels.tril_update(C, L, -0.7, kernels.empty(C.shape, C), transpose),)

        def plain_update(C, L, transpose=transpose):
            L, shift = np.where(np.tri(len(L)), L, 0), L.dtype.type(-0.7)
            return (np.tril(C.T if transpose else C) + shift * (L - np.diag(1 / np.diag(L))),)

        both(gpu, update, plain_update, square, with_nan)


def check_cholesky(rng, gpu, M, dtype):
    L, with_nan = lower_with_nan(rng, M, dtype)
    A = (L.astype(float) @ L.T.astype(float)).astype(dtype)
    C = rng.standard_normal((M, M)).astype(dtype)
    names = {
        "cholesky": (
            np.where(np.tri(M), A, np.nan).astype(dtype),
            0.1,
            False,
            rng.uniform(0.1, 1.0, M).astype(dtype),
        ),
        "cholesky_vjp": (C, L),
        "whitening_vjp": (C, L),
        "cholesky_inverse": (L,),
        "cholesky_inverse_vjp": (C, L, kernels.cholesky_inverse(L)),
        "cholesky_product": (with_nan,),
        "cholesky_of_inverse": (A, 0.1),
    }
    for name, arguments in names.items():
        here = getattr(kernels, name)(*arguments)
        there = getattr(kernels, name)(
            *(gpu.there(a) if isinstance(a, np.ndarray) else a for a in arguments)
        )
        tolerance = 300 * np.finfo(dtype).eps * max(1, np.abs(here).max())
        np.testing.assert_allclose(gpu.back(there), here, rtol=0, atol=tolerance, err_msg=name)
    inverse = kernels.inverse_triangular(L)
    there = kernels.whitening_vjp(*map(gpu.there, (C, L)), inverse=gpu.there(inverse))
    np.testing.assert_allclose(
        gpu.back(there), kernels.whitening_vjp(C, L), rtol=0, atol=1000 * np.finfo(dtype).eps
    )
    factor, column, variance = rng.standard_normal((M, 4)), C[0].astype(float), np.full(M, 9.0)
    on_gpu = [gpu.there(a) for a in (factor, column, variance)]
    kernels.deflate(factor, 3, 0, column, variance)
    kernels.deflate(on_gpu[0], 3, 0, *on_gpu[1:])
    for one, other in zip(on_gpu, (factor, column, variance), strict=True):
        np.testing.assert_allclose(gpu.back(one), other, rtol=0, atol=1e-12)
    batch, expected = np.stack([A, 2 * A]), kernels.cholesky(np.stack([A, 2 * A]), 0.1)
    found = gpu.back(kernels.cholesky(gpu.there(batch), 0.1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=100 * np.finfo(dtype).eps)
    assert not np.triu(found, 1).any()


FUNCTIONS = {
    "log_ndtr": log_ndtr,
    "log_sigmoid": log_expit,
    "log1p_square": lambda x: np.log1p(x * x),
}


def check_positive(rng, gpu, name):
    """Positive entries in place, against the functions of the transform."""
    transform = transforms.look_up(name)
    u = np.array([0, 1e-9, -1e-9, 3, -3, 35, -40, 600, -700, 745, -750, 1e300, -1e300, np.nan])
    u = np.concatenate([u, rng.standard_normal(300)])
    entries, limits = rng.permutation(u.size)[:-3], np.full((2, u.size - 3), 0.0)
    limits[0], limits[1] = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    forward, slope = transform.forward(u), transform.derivative(u)
    u_bar = rng.uniform(-1, 1, u.size)
    for place in (np.array, gpu.there):
        x, bar, at = place(u.copy()), place(u_bar.copy()), place(entries)
        kernels.to_positive_vjp(bar, x, at, transform)
        expected = u_bar.copy()
        expected[entries] *= slope[entries]
        np.testing.assert_allclose(gpu.back(bar), expected, rtol=1e-14)
        kernels.to_positive(x, at, transform, *place(limits))
        expected = u.copy()
        expected[entries] = np.clip(forward[entries], *limits)
        np.testing.assert_allclose(gpu.back(x), expected, rtol=1e-14)
        expected[entries] = transform.inverse(expected[entries])
        kernels.from_positive(x, at, transform)
        np.testing.assert_allclose(gpu.back(x), expected, rtol=1e-14, atol=1e-14)
    kernels.to_positive(x, at[:0], transform, *place(limits[:, :0]))


def check_packing(rng, gpu, M, dtype):
    A = rng.standard_normal((2, M, M)).astype(dtype)
    packed, there = np.empty((2, M * (M + 1) // 2)), gpu.there(np.empty((2, M * (M + 1) // 2)))
    kernels.pack_tril(np.where(np.tri(M), A, np.nan).astype(dtype), packed)
    kernels.pack_tril(gpu.there(np.where(np.tri(M), A, np.nan).astype(dtype)), there)
    np.testing.assert_array_equal(gpu.back(there), packed)
    np.testing.assert_array_equal(packed, A[:, *np.tril_indices(M)])
    np.testing.assert_array_equal(gpu.back(kernels.unpack_tril(there, M, dtype)), np.tril(A))
    fields = [A, A[0, :, 0], np.array(0.5, dtype), A[:, : M // 2], 0.25, A[1], A[0, :1], A[:0]]
    triangles = [True, *[False] * 4, True, False, False]
    numbers = [A[:, *np.tril_indices(M)], *fields[1:5], A[1][np.tril_indices(M)], *fields[6:]]
    expected = np.concatenate([np.ravel(one) for one in numbers])
    there = [one if isinstance(one, float) else gpu.there(one) for one in fields]
    for place, given in (np.asarray, fields), (gpu.there, there):
        vector = place(np.full(expected.size, np.nan))
        kernels.pack_fields(given, triangles, vector)
        np.testing.assert_array_equal(gpu.back(vector), expected)
        back = [place(np.full(np.shape(one), np.nan, dtype)) for one in fields]
        kernels.unpack_fields(vector, back, triangles)
        for one, found, triangle in zip(fields, back, triangles, strict=True):
            np.testing.assert_array_equal(gpu.back(found), np.tril(one) if triangle else one)
    there = gpu.there(packed)
    for part in (slice(None), slice(1, None), slice(0)):  # of the flat numbers
        here = packed.reshape(-1)[part]
        folded = kernels.fold_bits(here)
        np.testing.assert_array_equal(kernels.fold_bits(there.reshape(-1)[part]), folded)
        bits = [int(one) for one in here.view(np.uint64)]
        assert folded.tolist() == [functools.reduce(operator.xor, bits, 0), sum(bits) % 2**64]


def check_updates(rng, gpu, n):
    x, g, first, second = rng.standard_normal((4, n))
    second = second**2
    settings = {"step_size": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "count": 3}
    here, there = [np.empty(n) for _ in range(3)], [gpu.there(np.empty(n)) for _ in range(3)]
    kernels.adam(x, g, first, second, tuple(here), **settings)
    kernels.adam(*map(gpu.there, (x, g, first, second)), tuple(there), **settings)
    numbers = {
        name: gpu.there(np.asarray(float(settings[name]))) for name in ("step_size", "count")
    }
    by_numbers = [gpu.there(np.empty(n)) for _ in range(3)]
    kernels.adam(*map(gpu.there, (x, g, first, second)), tuple(by_numbers), **settings | numbers)
    for one, other, third in zip(here, there, by_numbers, strict=True):
        np.testing.assert_allclose(gpu.back(other), one, rtol=1e-12)
        np.testing.assert_array_equal(gpu.back(third), gpu.back(other))


def check_sums(rng, gpu, dtype):
    """Check groups of one to four arrays of any shapes and both dtypes, beyond one launch."""
    shapes = [(), (1,), (3, 5), (0, 2), (700,), (2, 3, 4), (4, 4), (7,)]
    groups = [
        tuple(rng.standard_normal(shape).astype(dtype) for _ in range(1 + i % 4))
        for i, shape in enumerate(shapes)
    ]
    groups.append(
        (rng.standard_normal((5, 6)).T.astype(dtype), rng.standard_normal((6, 5)).astype(dtype))
    )
    groups.append(tuple(rng.standard_normal((2, 9)).astype(np.float32)))
    for factor in (1.0, -0.3):
        found = kernels.sum_each([tuple(map(gpu.there, arrays)) for arrays in groups], factor)
        for arrays, one, other in zip(groups, kernels.sum_each(groups, factor), found, strict=True):
            eps = np.finfo(arrays[0].dtype).eps
            expected = factor * np.sum(np.stack(arrays), axis=0, dtype=np.float64)
            scale = np.abs(np.stack(arrays)).sum(0)
            for result in (one, gpu.back(other)):
                assert np.shape(result) == arrays[0].shape and result.dtype == arrays[0].dtype
                assert (abs(result - expected) <= 4 * eps * scale).all()


def check_checks(rng, gpu, dtype):
    x = rng.uniform(0.5, 2, (5, 7, 7)).astype(dtype)
    for array in (x, x[0, 0, 0], x[:, 0, 0], x[0], x[0].T, x[0, ::2, 1:3], np.zeros((0, 3), dtype)):
        assert deferred_checks.all_within(gpu.there(array)) and deferred_checks.all_within(
            gpu.there(array), 0
        )
    moved = gpu.there(x)
    assert deferred_checks.all_within(moved.diagonal(axis1=-2, axis2=-1), 0)
    for wrong in (np.nan, np.inf, -np.inf):
        moved[3, 2, 2] = wrong
        assert not deferred_checks.all_within(moved) and not deferred_checks.all_within(
            moved.diagonal(axis1=-2, axis2=-1)
        )
        assert deferred_checks.all_within(moved[:, 0])
    moved[3, 2, 2] = -1
    assert deferred_checks.all_within(moved) and not deferred_checks.all_within(moved, 0)


def small_run(gpu):
    """Run every kernel once, on more than one block, only on the device, for slow runs."""
    rng = generator(1)

    def numbers(*shape):
        return gpu.there(rng.standard_normal(shape).astype(np.float32))

    A, T, x, a = numbers(3, 35), numbers(3, 35), numbers(3), numbers(35)
    kernels.column_moments(A, x, T)
    kernels.scale_columns(A, a)
    kernels.add_outer(T, x, a, a)
    kernels.add_scaled(T, A, 0.3)
    kernels.add_scaled(T, A, gpu.there(np.array(0.3)))
    kernels.add_outer_minus_scaled(T, x, a, A, a, scale=True)
    L = kernels.cholesky(kernels.weighted_gram(A, a * a), 10.0)
    for dtype in (np.float32, np.float64):  # three blocks, a sum in two slices
        kernels.cholesky(gpu.there(np.eye(257, dtype=dtype)), 0.1)
    with tuning.override(own_cholesky_rows=0):
        kernels.cholesky(L)
    kernels.tril_sum_of_squares(kernels.cholesky_product(L))
    tiles = numbers(33, 33)  # two by two tiles
    kernels.tril_update(tiles, tiles, -0.7, kernels.empty(tiles.shape, tiles), transpose=True)
    kernels.symmetrise(tiles)
    mean, var = numbers(3, 2), numbers(3, 2) ** 2
    for name in FUNCTIONS:
        kernels.expectation(name, mean, var, 3)
    nodes = np.linspace(-9.0, 9.0, 60)[None]
    tables = map(
        gpu.there, (np.sin(nodes)[:, None], nodes, np.ones((1, 60)), np.zeros((3, 2), int))
    )
    kernels.tabulated_average(*tables, mean, var)
    kernels.largest(gpu.there(np.arange(2)), mean, var, 3)
    kernels.expected_logsumexp(mean, var, gpu.there(rng.standard_normal((300, 3))))
    K, Lam, rows, noise = map(gpu.there, near_rows_problem(rng, 9, 7, 20, 70))
    near, _, phi, factor, _ = kernels.near_rows(K, Lam, rows, noise)
    kernels.near_rows_vjp(Lam, rows, near, factor, near, phi[:, 0], phi)
    angles, grids = gpu.there(rng.uniform(0, 3, (3, 2))), gpu.there(np.zeros((1, 26, 28, 30)))
    kernels.spread_to_grid(angles, gpu.there(rng.standard_normal((1, 2))), grids)
    kernels.interpolate_grid(angles, grids)
    packed = gpu.there(np.empty(6))
    kernels.pack_tril(L, packed)
    kernels.unpack_tril(packed, 3, np.float32)
    fields, triangles = [numbers(2, 40, 40), numbers(300), 0.5], [True, False, False]
    vector = gpu.there(np.empty(2 * 820 + 301))
    kernels.pack_fields(fields, triangles, vector)
    kernels.unpack_fields(vector, [*fields[:2], numbers()], triangles)
    entries, ends = (
        gpu.there(np.arange(0, 600, 2)),
        gpu.there(np.array([[0.1], [9.0]] * np.ones(300))),
    )
    for transform in (transforms.softplus, transforms.log):
        kernels.to_positive(vector, entries, transform, *ends)
        kernels.to_positive_vjp(vector, vector.copy(), entries, transform)
        kernels.from_positive(vector, entries, transform)
    kernels.fold_bits(gpu.there(np.arange(600.0)))
    kernels.adam(*[packed] * 4, (packed.copy(), packed.copy(), packed.copy()),
                 step_size=0.1, beta1=0.9, beta2=0.9, epsilon=1e-8, count=1)  # fmt: skip
    assert not deferred_checks.all_within(A, 0) and deferred_checks.all_within(A)
    with deferred_checks.deferred(A) as checks:
        value = kernels.gaussian_term(mean, mean, var, 0.3)[0] + kernels.kl_from_standard(x, L)
        value = value + kernels.gaussian_term(mean, mean, var, 0.3, weights=var)[0]
        assert deferred_checks.all_within(A) and np.isfinite(checks.read(value)[0])
    kernels.raise_to_floor(var, var[0])
    kernels.sum_each([(mean, var), (mean, mean, mean)], 0.5)
    rows = gpu.there(rng.integers(0, 40, 600))  # two chunks
    distinct, sums = kernels.sum_rows((rows,), (numbers(600, 1),))
    state = numbers(40, 1), numbers(40, 1) ** 2
    kernels.adagrad_rows(*state, distinct, sums, step_size=0.1, epsilon=1e-8, period=3)
    kernels.gather_rows(numbers(40, 35), rows[:40], numbers(35, 40))  # two by two tiles
    kernels.stratified_units(1000, 300, 1, 2, 2, like=A)
