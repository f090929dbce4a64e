"""Numerical assertions and random numbers for all tests.

In their names, ``fast`` is a result of the package, ``plain`` the same formula by NumPy in the same
dtype, and ``truth`` that formula in extended precision.
"""

import os

import numpy as np

LONG = np.longdouble
SEED = int(os.environ.get("FASTSVGP_TEST_SEED", 20240917))


def generator(*stream):
    """Return a generator that depends on ``FASTSVGP_TEST_SEED`` and ``stream``.

    Tests without the fixture ``rng`` use it.
    """
    return np.random.default_rng([SEED, *stream])


def exactly(*arrays):
    """Return the arrays in long double, which has rounding 1e-19 if the platform supports it."""
    return tuple(np.asarray(a, LONG)[()] for a in arrays)


def symmetric(rng, N, dtype=np.float64):
    """Return a random symmetric matrix."""
    A = rng.standard_normal((N, N))
    return (A + A.T).astype(dtype)


def five_point(f, h=1e-3):
    """Return the derivative of ``f(s)`` at s = 0 by five-point central differences, of order h^4.

    The result has the precision of ``f``.
    """
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def nine_point(f, h=1e-3):
    """Return the derivative of ``f(s)`` at s = 0 by nine-point differences, of order h^8."""
    return (
        sum(
            c * (f(n * h) - f(-n * h))
            for n, c in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), start=1)
        )
        / h
    )


def assert_adjoint(f, args, bars, y_bar, rng, h=1e-3, directions=None, condition=1.0):
    """Assert that <y_bar, J d> equals <bar, d> for each argument separately.

    ``f(*args)`` returns one array, ``y_bar`` is its cotangent, and ``bars`` are the claimed
    cotangents of ``args``, in order. Each d is random, or given by ``directions``. The tolerance of
    an argument is relative to its |bar| |d|, so an error in a small cotangent is not hidden by a
    larger one. It also allows for the rounding of the differences of ``f``, in the precision of its
    values and times ``condition``. The step h must be small compared with the distance to a kink or
    pole of ``f``.
    """
    value = np.asarray(f(*args))
    rounding = 50 * np.finfo(value.dtype).eps * condition * np.abs(y_bar * value).sum() / h
    for i, (a, bar) in enumerate(zip(args, bars, strict=True)):
        d = rng.standard_normal(np.shape(a)) if directions is None else directions[i]

        def moved(s, i=i, a=a, d=d):
            return (y_bar * f(*args[:i], a + s * d, *args[i + 1 :])).sum()

        forward, reverse = nine_point(moved, h), np.vdot(bar, d)
        allowed = 1e-10 * np.linalg.norm(bar) * np.linalg.norm(d) + rounding
        assert abs(reverse - forward) <= allowed, (i, reverse, forward, allowed)


def assert_as_accurate_as(fast, plain, truth, slack=4, size=0.0):
    """Assert that the error of ``fast`` is at most ``slack`` times that of ``plain``.

    The error of plain NumPy counts at least as the rounding of the truth, or of ``size``, the size
    of terms that cancel: a single result of plain NumPy can be accurate by chance.
    """
    floor = np.finfo(fast.dtype).eps * max(np.abs(truth).max(), size)
    assert np.abs(fast - truth).max() <= slack * max(np.abs(plain - truth).max(), floor)


def assert_typically_as_accurate_as(fast, plain, truth, slack=4, dtype=np.float32):
    """Assert the same for the median over several problems of one shape, along the first axis.

    Errors are relative to the truth of each problem. The error of a single sum in float32 is
    random, and the error of the worst problem depends on its condition; the median has neither
    problem. ``dtype`` is the dtype of the computation, whose rounding is also allowed.
    """
    fast, plain, truth = (np.reshape(a, (len(truth), -1)) for a in (fast, plain, truth))
    size = np.abs(truth).max(axis=1)
    ours, theirs = (np.median(np.abs(a - truth).max(axis=1) / size) for a in (fast, plain))
    assert ours <= slack * max(theirs, np.finfo(dtype).eps), (ours, theirs)
