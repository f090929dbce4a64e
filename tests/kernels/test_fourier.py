"""Random Fourier features on the CPU: generator, spectra, products, reverse rules."""

import numpy as np
import pytest
from oracles import covariances, fourier as oracle
from support import fourier_problems as problems
from support.numerics import assert_adjoint

from fastsvgp import kernels
from fastsvgp.kernels.cpu import fourier
from fastsvgp.kernels.cpu.fourier import philox
from fastsvgp.kernels.cpu.fourier.sweep import waves

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_family = pytest.mark.parametrize("family", problems.FAMILIES)

# Random123 1.14, tests/kat_vectors: counter, key, words
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_known_answers(counter, key, words):
    counters = np.tile(np.array(counter, np.uint64)[:, None], (1, 5))
    philox.philox(counters, 5, *map(np.uint64, key))
    assert (counters.T == words).all()
    assert list(oracle.philox(counter, key)) == words


@every_dtype
@every_family
def test_frequencies_by_definition(family, dtype):
    problems.check_frequencies(fourier, family, 6, dtype)


def test_frequencies_are_a_function_of_seed_and_index(rng):
    indices = rng.integers(0, 2**40, 200)
    omega = kernels.fourier_frequencies("matern32", 5, indices, 7)
    order = rng.permutation(200)
    np.testing.assert_array_equal(
        kernels.fourier_frequencies("matern32", 5, indices[order], 7), omega[order]
    )
    np.testing.assert_array_equal(
        kernels.fourier_frequencies("matern32", 5, indices, 3), omega[:, :3]
    )
    rounded = kernels.fourier_frequencies("matern32", 5, indices, 7, np.float32)
    np.testing.assert_array_equal(rounded, omega.astype(np.float32))
    for seed in (6, 5 + 2**32):
        assert not (kernels.fourier_frequencies("matern32", seed, indices, 7) == omega).any()


# --- statistics --------------------------------------------------------------


def test_moments_of_the_normal_spectrum():
    n = 1 << 17
    omega = kernels.fourier_frequencies("rbf", 3, np.arange(n), 6)
    assert np.abs(omega).max() < 5.8
    # of z^p, z normal: mean and variance
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert np.abs((omega**power).mean(0) - moment).max() < 5 * np.sqrt(variance / n)
    both = np.hstack([omega[1:], omega[:-1]])  # components of one frequency, and of neighbours
    np.testing.assert_allclose(np.corrcoef(both.T), np.eye(12), atol=5.5 / np.sqrt(n))
    np.testing.assert_allclose(np.corrcoef((both**2).T), np.eye(12), atol=5.5 / np.sqrt(n))


@every_family
def test_features_approximate_the_covariance(rng, family):
    """The error is of size sqrt((1 + k(2 x)) / 2 - k(x)^2) / sqrt(m) for every m."""
    X, variance = rng.standard_normal((40, 3)), 1.6
    lengthscales = np.array([0.6, 1.5, 1.1])
    k = lambda X: getattr(covariances, family)(  # noqa: E731
        covariances.distance(X, np.zeros((1, 3)), lengthscales)
    )[:, 0]
    spread = np.sqrt((1 + k(2 * X)) / 2 - k(X) ** 2)
    for m in (1 << 8, 1 << 12, 1 << 16):
        errors = []
        for seed in range(4):  # row 0 of Phi Phi' with x = 0: its sines are 0 and its cosines 1
            w = np.tile(np.sqrt(variance / m) * np.array([1.0, 0.0]), m)
            estimate = kernels.fourier_multiply(
                X, w, family, seed, np.arange(m), m, variance, lengthscales
            )
            errors.append((estimate / variance - k(X)) / spread * np.sqrt(m))
        assert 0.7 < np.sqrt(np.mean(np.square(errors))) < 1.4


def test_squares_are_features_of_twice_the_inputs(rng):
    """(Phi * Phi) v is as documented."""
    X, _, W, indices, variance, lengthscales = problems.problem(rng, 17, 3, 9, 1, np.float64)
    Phi = oracle.features(
        oracle.frequencies("rbf", 1, indices, 3).astype(float),
        X,
        problems.NUM,
        variance,
        lengthscales,
    )
    scale, v = np.sqrt(variance / problems.NUM), W[0]
    differences = np.stack([v[::2] - v[1::2], np.zeros(9)], axis=1).ravel()
    product = kernels.fourier_multiply(
        2 * X, differences, "rbf", 1, indices, problems.NUM, variance, lengthscales
    )
    np.testing.assert_allclose(
        scale / 2 * (scale * v.sum() + product), Phi**2 @ v, rtol=0, atol=1e-14 * scale**2 * 20
    )


# --- products ----------------------------------------------------------------


@every_dtype
# the last two are shared among threads; the one before them has more than two fours of right-hand
# sides
@pytest.mark.parametrize(
    "shape", [*problems.SHAPES, (33, 9, 20, 9), (700, 8, 130, 2), (2100, 24, 131, 1)]
)
def test_against_the_feature_matrix(rng, shape, dtype):
    problems.check_all(fourier, rng, "rbf", *shape, dtype)


@every_dtype
@every_family
def test_every_family(rng, family, dtype):
    problems.check_all(fourier, rng, family, 33, 5, 21, 3, dtype)


@every_dtype
def test_shared_lengthscale(rng, dtype):
    X, U, W, indices, variance, _ = problems.problem(rng, 33, 4, 21, 2, dtype)
    problems.check_products(fourier, "matern52", X, U, W, indices, variance, dtype(1.3))


def test_panels_tiles_and_passes_join(rng, monkeypatch):
    """Several of each."""
    monkeypatch.setattr(fourier, "PANEL", 8)
    monkeypatch.setattr(fourier, "SCRATCH", 100)
    for D in (5, 33):
        problems.check_all(fourier, rng, "rbf", 65, D, 33, 2, np.float64)


def test_leading_axes_and_strides(rng):
    X, U, W, indices, *scales = problems.problem(rng, 33, 4, 21, 6, np.float64)
    spectrum = "rbf", 8, indices, problems.NUM
    flat = kernels.fourier_multiply(X, W, *spectrum, *scales)
    odd = kernels.fourier_multiply(
        np.asfortranarray(X), np.repeat(W, 2, axis=1)[:, ::2].reshape(2, 3, 42), *spectrum, *scales
    )
    np.testing.assert_array_equal(odd, flat.reshape(2, 3, 33))
    wide = "rbf", 8, np.repeat(indices, 2)[::2], problems.NUM
    np.testing.assert_array_equal(kernels.fourier_multiply(X[::-1][::-1], W, *wide, *scales), flat)
    assert kernels.fourier_multiply(X, U[0], *spectrum, *scales, transpose=True).shape == (42,)
    assert kernels.fourier_multiply(X[:0], W, *spectrum, *scales).shape == (6, 0)


@pytest.mark.parametrize("D", [3, 33])
def test_no_frequencies_and_no_points(rng, D):
    X, U, W, indices, *scales = problems.problem(rng, 9, D, 5, 2, np.float64)
    none = "rbf", 8, indices[:0], 7
    assert not kernels.fourier_multiply(X, W[:, :0], *none, *scales).any()
    X_bar, W_bar, variance_bar, _ = problems.bars_of(fourier, U, X, W[:, :0], *none, *scales)
    assert not X_bar.any() and W_bar.shape == (2, 0) and variance_bar == 0
    few = "rbf", 8, indices, problems.NUM
    X_bar, W_bar, variance_bar, _ = problems.bars_of(fourier, U[:, :0], X[:0], W, *few, *scales)
    assert X_bar.shape == (0, D) and not W_bar.any() and variance_bar == 0


def test_nan_stays_in_its_row(rng):
    X, _, W, indices, *scales = problems.problem(rng, 33, 4, 21, 1, np.float64)
    X[5, 2] = np.nan
    found = kernels.fourier_multiply(X, W, "rbf", 8, indices, problems.NUM, *scales)
    np.testing.assert_array_equal(np.isnan(found[0]), np.arange(33) == 5)


# --- reverse rules -----------------------------------------------------------


@pytest.mark.parametrize("D", [3, 21])
@every_family
def test_vjp(rng, family, D):
    X, U, W, indices, variance, lengthscales = problems.problem(rng, 17, D, 9, 2, np.float64)
    num = 20  # few, so that the values are of size 1
    indices %= num

    def f(X, W, v, s):
        return kernels.fourier_multiply(X, W, family, 1, indices, num, v, s)

    bars = problems.bars_of(fourier, U, X, W, family, 1, indices, num, variance, lengthscales)
    # heavy tails: the fastest wave sets the step
    size = np.abs(kernels.fourier_frequencies(family, 1, indices, D)).max()
    assert_adjoint(f, (X, W, variance, lengthscales), bars, U, rng, h=1e-3 / max(10, size))


def test_vjp_of_a_shared_lengthscale(rng):
    X, U, W, indices, variance, _ = problems.problem(rng, 17, 3, 9, 2, np.float64)
    indices %= 20

    def f(X, w, v, s):
        return kernels.fourier_multiply(X, w, "matern32", 1, indices, 20, v, s)

    bars = problems.bars_of(fourier, U, X, W, "matern32", 1, indices, 20, variance, 0.8)
    assert np.ndim(bars[3]) == 0
    # some frequencies of this spectrum are very high
    assert_adjoint(f, (X, W, variance, 0.8), bars, U, rng, h=2e-4)


def test_vjp_of_what_is_needed(rng):
    X, U, W, indices, *scales = problems.problem(rng, 17, 3, 9, 2, np.float64)
    arguments = U, X, W, "rbf", 1, indices, problems.NUM, *scales
    names = "X", "W", "variance", "lengthscales"
    everything = problems.bars_of(fourier, *arguments)
    for need in ((), *((name,) for name in names), ("variance", "lengthscales")):
        bars = problems.bars_of(fourier, *arguments, need=need)
        for name, full, bar in zip(names, everything, bars, strict=True):
            assert (bar is not None) == (name in need)
            if bar is not None:
                np.testing.assert_array_equal(bar, full)


# --- numbers at the edges ----------------------------------------------------


@pytest.mark.parametrize("wrong", [-1, 17])
def test_indices_out_of_range(rng, wrong):
    X, U, W, indices, *scales = problems.problem(rng, 9, 3, 5, 2, np.float64)
    indices = np.r_[indices[:4] % 17, wrong]
    for call in (
        lambda: kernels.fourier_multiply(X, W, "rbf", 1, indices, 17, *scales),
        lambda: kernels.fourier_multiply(X, U, "rbf", 1, indices, 17, *scales, transpose=True),
        lambda: problems.bars_of(fourier, U, X, W, "rbf", 1, indices, 17, *scales),
    ):
        with pytest.raises(
            IndexError, match=rf"`indices` holds {wrong}, but there are 17 frequencies \(0 to 16\)"
        ):
            call()


def test_frequencies_of_any_index_but_negative_ones():
    last = kernels.fourier_frequencies("rbf", 1, np.array([2**63 - 1]), 4)
    np.testing.assert_allclose(
        last, oracle.frequencies("rbf", 1, [2**63 - 1], 4).astype(float), rtol=1e-14, atol=1e-15
    )
    with pytest.raises(
        IndexError,
        match=r"`indices` holds -3, but there are \d+ frequencies \(0 to 9223372036854775807\)",
    ):
        kernels.fourier_frequencies("rbf", 1, np.array([5, -3]), 4)


@every_dtype
def test_cos_sin(rng, dtype):
    chosen = 0.0, -0.0, 0.25, 0.5, 0.75, -0.25, 3.5, 1e6 + 0.5
    t = np.r_[chosen, rng.uniform(-30, 30, 1000), rng.uniform(-1e5, 1e5, 99)].astype(dtype)
    found = np.empty((2, t.size), dtype)
    waves(t, *found)
    turns = t.astype(np.longdouble)
    angle = 8 * np.arctan(np.longdouble(1)) * (turns - np.rint(turns))
    tolerance = 3e-16 if dtype == np.float64 else 2e-7
    np.testing.assert_allclose(found[0], np.cos(angle).astype(float), rtol=0, atol=tolerance)
    np.testing.assert_allclose(found[1], np.sin(angle).astype(float), rtol=0, atol=tolerance)
    assert found[0][0] == 1 and found[1][0] == 0


def test_results_repeat_to_the_bit(rng):
    X, U, W, indices, *scales = problems.problem(rng, 700, 8, 130, 2, np.float32)
    spectrum = "rbf", 8, indices, problems.NUM
    for w, transpose in ((W, False), (U, True)):
        first = kernels.fourier_multiply(X, w, *spectrum, *scales, transpose)
        for _ in range(3):
            np.testing.assert_array_equal(
                kernels.fourier_multiply(X, w, *spectrum, *scales, transpose), first
            )
