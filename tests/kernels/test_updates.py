"""Packed triangles and fused updates against direct NumPy code."""

import functools
import operator

import numpy as np
import pytest

from fastsvgp import kernels


@pytest.mark.parametrize("size", [1, 2, 3, 17, 300])
@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pack_and_unpack(rng, size, batch, dtype):
    A = rng.standard_normal(batch + (size, size)).astype(dtype)
    A[..., *np.triu_indices(size, 1)] = np.nan
    length = size * (size + 1) // 2
    packed = np.full(batch + (length,), np.nan)
    kernels.pack_tril(A, packed)
    np.testing.assert_array_equal(packed, A[..., *np.tril_indices(size)])
    back = kernels.unpack_tril(packed, size, dtype)
    assert back.dtype == dtype and back.flags.c_contiguous
    np.testing.assert_array_equal(back, np.tril(A))


def test_pack_any_strides(rng):
    A = rng.standard_normal((5, 5, 3)).T
    packed = np.empty((3, 15))
    kernels.pack_tril(A, packed)
    np.testing.assert_array_equal(packed, A[..., *np.tril_indices(5)])
    kernels.pack_tril(np.asfortranarray(A[0]), packed[0])
    np.testing.assert_array_equal(packed[0], A[0][np.tril_indices(5)])


@pytest.mark.parametrize("n", [0, 1, 17, 4099])
def test_fold_bits(rng, n):
    x = rng.standard_normal(n)
    bits = [int(one) for one in x.view(np.uint64)]
    found = kernels.fold_bits(x)
    assert found.dtype == np.uint64 and found.tolist() == [
        functools.reduce(operator.xor, bits, 0),
        sum(bits) % 2**64,
    ]
    np.testing.assert_array_equal(kernels.fold_bits(rng.permutation(x)), found)


@pytest.mark.parametrize("n", [0, 1, 17, 100_003])
@pytest.mark.parametrize("count", [1, 7])
def test_adam(rng, n, count):
    x, g, m = rng.standard_normal((3, n))
    v = rng.uniform(0, 1, n)
    before = [a.copy() for a in (x, g, m, v)]
    out = tuple(np.full(n, np.nan) for _ in range(3))
    kernels.adam(x, g, m, v, out, step_size=0.1, beta1=0.8, beta2=0.99, epsilon=1e-6, count=count)
    for a, b in zip((x, g, m, v), before, strict=True):
        np.testing.assert_array_equal(a, b)
    m_new, v_new = 0.8 * m + 0.2 * g, 0.99 * v + 0.01 * g * g
    step = 0.1 * (m_new / (1 - 0.8**count)) / (np.sqrt(v_new / (1 - 0.99**count)) + 1e-6)
    expected = (x + step, abs(x) + abs(step)), (m_new, 0.8 * abs(m) + 0.2 * abs(g)), (v_new, v_new)
    for fast, (plain, before_cancellation) in zip(out, expected, strict=True):
        assert (abs(fast - plain) <= 1e-13 * before_cancellation).all()
