"""Numerical checks and random numbers shared by all tests."""

import os

import numpy as np

LONG = np.longdouble
SEED = int(os.environ.get("FASTSVGP_TEST_SEED", 20240917))


def generator(*stream):
    """Random numbers of a test that has no ``rng`` fixture: a function of ``FASTSVGP_TEST_SEED`` and of ``stream``."""
    return np.random.default_rng([SEED, *stream])


def exactly(*arrays):
    """The arrays in long double: an oracle of them rounds to 1e-19 where the platform has it, and else as float64 does."""
    return tuple(np.asarray(a, LONG)[()] for a in arrays)


def five_point(f, h=1e-3):
    """Derivative of ``f(s)`` at s = 0 by five-point central differences (error of order h^4), in the precision of ``f``."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def nine_point(f, h=1e-3):
    """The same with an error of order h^8."""
    return (
        sum(
            c * (f(n * h) - f(-n * h))
            for n, c in enumerate((4 / 5, -1 / 5, 4 / 105, -1 / 280), start=1)
        )
        / h
    )


def assert_adjoint(f, args, bars, y_bar, rng, h=1e-3, directions=None, condition=1.0):
    """<y_bar, J d> equals <bar, d> for each argument alone, along a random direction d of its own (or the given one).

    ``bars`` are the claimed cotangents of ``args``, in order; ``f(*args)`` returns one array. An
    argument's scale is |bar| |d|, no other's, so no cotangent hides behind a larger one; what
    differences of ``f`` lose to rounding, in the precision of its values and times ``condition``,
    is allowed for. Steps are to be small beside the way to a kink or pole of ``f``.
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
    """The error of ``fast`` is within ``slack`` of plain NumPy's in the same dtype, or of the rounding of what is as large as the
    truth, or as ``size``: that of terms which may cancel in it, where a single result of plain
    NumPy may be good by luck."""
    floor = np.finfo(fast.dtype).eps * max(np.abs(truth).max(), size)
    assert np.abs(fast - truth).max() <= slack * max(np.abs(plain - truth).max(), floor)


def assert_typically_as_accurate_as(fast, plain, truth, slack=4, dtype=np.float32):
    """The same over several problems of one shape, along the first axis: medians of the errors relative to each problem's truth.

    How far off a single sum is in float32 is luck, and the worst problem's error that of its
    condition; the median is neither. ``dtype`` is what they were computed in: its rounding is
    allowed, too.
    """
    fast, plain, truth = (np.reshape(a, (len(truth), -1)) for a in (fast, plain, truth))
    size = np.abs(truth).max(axis=1)
    ours, theirs = (np.median(np.abs(a - truth).max(axis=1) / size) for a in (fast, plain))
    assert ours <= slack * max(theirs, np.finfo(dtype).eps), (ours, theirs)
