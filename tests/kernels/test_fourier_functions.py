"""Random Fourier features of many functions on the CPU: products, slopes, memory."""

import tracemalloc

import numpy as np
import pytest
from support import fourier_problems as problems
from support.looped import looped
from support.numerics import assert_adjoint

from fastsvgp import kernels
from fastsvgp.kernels.cpu import fourier
from fastsvgp.runtime import num_threads

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_kind = pytest.mark.parametrize("own", problems.KINDS)
SHAPE = 3, 2, 5, 4, 9


@every_dtype
@every_kind
@looped("shape", problems.FUNCTIONS)
def test_by_definition(rng, shape, own, dtype):
    problems.check_functions(fourier, rng, "rbf", shape, dtype, own)


@every_dtype
@pytest.mark.parametrize("family", problems.FAMILIES[1:])
def test_every_family(rng, family, dtype):
    problems.check_functions(fourier, rng, family, (3, 2, 5, 4, 300), dtype, problems.KINDS[0])


@every_kind
@pytest.mark.parametrize("D", [3, 17])
def test_runs_join(rng, own, D, monkeypatch):
    """Several runs of functions and of points, tiles and panels."""
    monkeypatch.setattr(fourier, "PANEL", 8)
    monkeypatch.setattr(fourier, "TILE", 4)
    for run in (1, 600):
        monkeypatch.setattr(fourier, "RUN", run)
        problems.check_functions(fourier, rng, "rbf", (4, 2, 11, D, 21), np.float64, own)


@every_kind
@pytest.mark.parametrize("family", problems.FAMILIES)
def test_vjp(rng, family, own):
    U, X, w, seeds, lengthscales, factors = problems.functions(rng, *SHAPE, np.float64, own)
    model = w, family, seeds, SHAPE[-1], 1.7, lengthscales, factors
    X_bar = kernels.fourier_multiply_rows_vjp(U, X, *model)
    each = [seeds] if np.ndim(seeds) == 0 else seeds.tolist()
    waves = [kernels.fourier_frequencies(family, s, np.arange(SHAPE[-1]), 4) for s in each]
    h = 1e-3 / max(10, np.abs(waves).max())  # heavy tails: the fastest wave sets the step

    def f(X):
        return kernels.fourier_multiply_rows(X, *model)

    assert_adjoint(f, (X,), (X_bar,), U, rng, h=h)


def test_equals_functions_one_by_one(rng):
    """The seed of a function selects its frequencies, and the other products are those of one."""
    U, X, w, seeds, lengthscales, _ = problems.functions(
        rng, *SHAPE, np.float64, (True, True, None)
    )
    found = kernels.fourier_multiply_rows(X, w, "matern32", seeds, 9, 1.3, lengthscales)
    bars = kernels.fourier_multiply_rows_vjp(U, X, w, "matern32", seeds, 9, 1.3, lengthscales)
    for s, seed in enumerate(seeds.tolist()):
        model = "matern32", seed, np.arange(9), 9, 1.3, lengthscales
        one = kernels.fourier_multiply(X[s], w[s], *model)
        bar = problems.bars_of(fourier, U[s], X[s], w[s], *model, need=("X",))[0]
        np.testing.assert_allclose(found[s], one, rtol=0, atol=1e-13)
        np.testing.assert_allclose(bars[s], bar, rtol=0, atol=1e-10 * np.abs(bar).max())
    both = np.stack([seeds[1:], seeds[:-1]])
    for some in both:
        part = kernels.fourier_multiply_rows(X[0], w[:2], "rbf", some, 9, 1.3, 0.7)
        alone = kernels.fourier_multiply_rows(X[0], w[:1], "rbf", int(some[0]), 9, 1.3, 0.7)
        np.testing.assert_array_equal(part[:1], alone)


@every_kind
def test_leading_numbers_of_zero(rng, own):
    for shape in ((0, 2, 5, 4, 9), (3, 0, 5, 4, 9), (3, 2, 0, 4, 9)):
        U, X, w, seeds, lengthscales, factors = problems.functions(rng, *shape, np.float64, own)
        model = w, "rbf", seeds, 9, 1.7, lengthscales, factors
        assert kernels.fourier_multiply_rows(X, *model).shape == shape[:3]
        X_bar = kernels.fourier_multiply_rows_vjp(U, X, *model)
        assert X_bar.shape == X.shape and not X_bar.any()


@every_kind
def test_strides(rng, own):
    U, X, w, seeds, lengthscales, factors = problems.functions(rng, *SHAPE, np.float64, own)
    wide = [np.repeat(a, 2, axis=-1)[..., ::2] for a in (U, X, w)]
    model = "rbf", seeds, SHAPE[-1], 1.7, lengthscales, factors
    for one, other in (
        (
            kernels.fourier_multiply_rows(X, w, *model),
            kernels.fourier_multiply_rows(*wide[1:], *model),
        ),
        (
            kernels.fourier_multiply_rows_vjp(U, X, w, *model),
            kernels.fourier_multiply_rows_vjp(*wide, *model),
        ),
    ):
        np.testing.assert_array_equal(one, other)
        assert other.flags.c_contiguous


@every_dtype
@every_kind
def test_results_repeat_to_the_bit_with_any_threads(rng, own, dtype):
    shape = 5, 2, 40, 6, 300
    U, X, w, seeds, lengthscales, factors = problems.functions(rng, *shape, dtype, own)
    model = w, "rbf", seeds, shape[-1], 1.7, lengthscales, factors
    results = []
    for threads in (1, 2, 3, 3):
        with num_threads.set_num_threads(threads):
            found = kernels.fourier_multiply_rows(X, *model)
            results.append((found, kernels.fourier_multiply_rows_vjp(U, X, *model)))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("own", [(True, True, None), (False, True, None)])
def test_memory_of_runs(rng, own):
    """Beside results and arguments, at most 2^21 numbers; shared points are not copied for each."""
    shape = S, R, n, D, num = 60, 1, 2500, 8, 4
    U, X, w, seeds, lengthscales, _ = problems.functions(rng, *shape, np.float64, own)
    for operation, arguments, size in (
        (kernels.fourier_multiply_rows, (X, w), S * R * n),
        (kernels.fourier_multiply_rows_vjp, (U, X, w), X.size),
    ):
        few = [a[..., :1] if a is U else a[..., :1, :] for a in arguments[:-1]]
        operation(*few, w, "rbf", seeds, num, 1.7, lengthscales)  # loads the code
        tracemalloc.start()
        operation(*arguments, "rbf", seeds, num, 1.7, lengthscales)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 8 * (size + 2**21)


def test_nan_stays_in_its_row(rng):
    _, X, w, seeds, lengthscales, _ = problems.functions(
        rng, *SHAPE, np.float64, (True, True, None)
    )
    X[1, 3, 2] = np.nan
    found = kernels.fourier_multiply_rows(X, w, "rbf", seeds, SHAPE[-1], 1.7, lengthscales)
    expected = np.zeros(found.shape, bool)
    expected[1, :, 3] = True
    np.testing.assert_array_equal(np.isnan(found), expected)
