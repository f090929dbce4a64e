"""Numerical checks shared by all tests."""

import numpy as np


def five_point(f, h=1e-3):
    """Derivative of ``f(s)`` at s = 0 by five-point central differences (error of order h^4)."""
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


def assert_adjoint(f, args, bars, y_bar, rng, h=1e-4, rtol=1e-8, directions=None):
    """<y_bar, J d> equals <J' y_bar, d> for random directions d: one call covers all arguments together.

    ``bars`` are the claimed cotangents of ``args``, in order; ``f(*args)`` returns one array. The comparison is scaled by
    max(1, sum |bar * d|), so cancellation between arguments does not hide behind a small total.
    """
    d = directions or [rng.standard_normal(np.shape(a)) for a in args]
    forward = five_point(lambda s: float(np.vdot(y_bar, f(*(a + s * di for a, di in zip(args, d, strict=True))))), h)
    reverse = sum(float(np.vdot(b, di)) for b, di in zip(bars, d, strict=True))
    scale = max(1.0, sum(float(np.linalg.norm(b)) * float(np.linalg.norm(di)) for b, di in zip(bars, d, strict=True)))
    assert abs(reverse - forward) <= rtol * scale, (reverse, forward, scale)


def assert_as_accurate_as(fast, plain, truth, slack=4):
    """The error of ``fast`` is within ``slack`` of plain NumPy's in the same dtype (or of rounding)."""
    floor = np.finfo(fast.dtype).eps * np.abs(truth).max()
    assert np.abs(fast - truth).max() <= slack * max(np.abs(plain - truth).max(), floor)


def assert_typically_as_accurate_as(fast, plain, truth, slack=4):
    """The same over several problems of one shape, along the first axis: medians of the errors relative to each problem's truth.

    How far off a single sum is in float32 is luck, and the worst problem's error that of its condition; the median is neither.
    """
    fast, plain, truth = (np.reshape(a, (len(truth), -1)) for a in (fast, plain, truth))
    size = np.abs(truth).max(axis=1)
    ours, theirs = (np.median(np.abs(a - truth).max(axis=1) / size) for a in (fast, plain))
    assert ours <= slack * max(theirs, np.finfo(np.float32).eps), (ours, theirs)
