"""CUDA twins behind bounds and optimisers, against plain NumPy and their CPU twins."""

import numpy as np
import pytest
from support import device_problems as problems, device_terms

from fastsvgp import kernels
from fastsvgp.errors import NotPositiveDefinite

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("M, N", problems.SIZES)
def test_products(gpu, rng, M, N, dtype):
    problems.check_products(rng, gpu, M, N, dtype)


@every_dtype
@pytest.mark.parametrize("M", [1, 3, 17, 65])
def test_cholesky(gpu, rng, M, dtype):
    problems.check_cholesky(rng, gpu, M, dtype)


def test_half_products_in_bands(gpu, rng):
    A, w = rng.standard_normal((600, 5)), rng.standard_normal(5)
    found = gpu.back(kernels.weighted_gram(gpu.there(A), gpu.there(w)))
    np.testing.assert_allclose(np.tril(found), np.tril((A * w) @ A.T), rtol=0, atol=1e-12)


@pytest.mark.parametrize("factorise", [kernels.cholesky, kernels.cholesky_of_inverse])
def test_not_positive_definite_raises_as_on_the_cpu(gpu, factorise):
    indefinite = np.stack([np.eye(5), np.diag([1.0, 2, -3, 4, 5])])
    for A in (indefinite, indefinite[1], np.full((2, 2), np.nan), np.diag([1, np.inf])):
        with pytest.raises(NotPositiveDefinite) as here:
            factorise(A, 1e-6)
        with pytest.raises(NotPositiveDefinite) as there:
            factorise(gpu.there(A), 1e-6)
        assert here.value.batch == there.value.batch and here.value.size == there.value.size
        if not np.isnan(A).any():
            assert str(here.value) == str(there.value)


@every_dtype
@pytest.mark.parametrize("N, C", [(1, 2), (3, 5), (300, 3)])
def test_quadrature(gpu, rng, N, C, dtype):
    device_terms.check_quadrature(rng, gpu, N, C, dtype)


@every_dtype
def test_sums(gpu, rng, dtype):
    problems.check_sums(rng, gpu, dtype)


def test_links_far_out(gpu):
    device_terms.check_links(gpu)


@every_dtype
@pytest.mark.parametrize("M", [1, 3, 17, 300])
def test_packing(gpu, rng, M, dtype):
    problems.check_packing(rng, gpu, M, dtype)


@pytest.mark.parametrize("name", ["softplus", "log"])
def test_positive_entries(gpu, rng, name):
    problems.check_positive(rng, gpu, name)


@pytest.mark.parametrize("n", [0, 1, 300])
def test_updates(gpu, rng, n):
    problems.check_updates(rng, gpu, n)


@every_dtype
@pytest.mark.parametrize("P, N", [(1, 1), (2, 17), (3, 300)])
def test_terms(gpu, rng, P, N, dtype):
    device_terms.check_terms(rng, gpu, P, N, dtype)


def test_ranges_are_checked_together(twin_of, rng):
    """Arrays of two dtypes in several launches: any number outside its range is found."""
    shapes = [
        (),
        (3,),
        (2, 5),
        (40, 70),
        (0, 3),
        (2, 3, 4),
        (1,),
        (300,),
        (5, 1),
        (1, 9),
        (2, 2, 2, 2),
        *[(4,)] * 12,
    ]
    limits = [(-1.0, 1.0), (0.0, 1.0)]
    arrays = [
        np.asarray(rng.uniform(0.1, 1, shape), (np.float32, np.float64)[k % 3 == 0])
        for k, shape in enumerate(shapes)
    ]
    arrays[3] = arrays[3][:, ::-2]
    ranges = [(a, *limits[k % 2]) for k, a in enumerate(arrays)]
    find_outside = twin_of("deferred_checks").find_outside
    outside = lambda ranges: find_outside(ranges, np.zeros(1, np.int32))[0]  # noqa: E731
    assert outside(ranges) == outside([]) == 0
    for k, a in enumerate(arrays):
        for value in (-0.5, 1.5, np.nan) if a.size else ():
            place = tuple(n - 1 for n in a.shape)
            kept, a[place] = a[place].copy(), value
            assert (outside(ranges) > 0) == (value != -0.5 or k % 2 == 1), (k, value)
            a[place] = kept


@every_dtype
def test_checks(gpu, rng, dtype):
    problems.check_checks(rng, gpu, dtype)
