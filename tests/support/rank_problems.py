"""Run several ranks in one process, and compare their results."""

import numpy as np

import fastsvgp as fs


def on_ranks(size, function, rows="all"):
    return fs.distributed.threads(size, rows).run(function)


def ends(size, function, rows="all"):
    """Return the result or the error of each rank."""

    def work(group):
        try:
            return function(group)
        except Exception as error:
            return error

    return on_ranks(size, work, rows)


def assert_ended_by(errors, text):
    """Assert that one rank raised a ``ValueError``, which the other ranks report."""
    (failed,) = [rank for rank, error in enumerate(errors) if not isinstance(error, fs.RemoteError)]
    assert isinstance(errors[failed], ValueError) and text in str(errors[failed])
    for other in [*errors[:failed], *errors[failed + 1 :]]:
        assert other.rank == failed and text in other.message


def distance(one, other):
    """Return the largest difference of two models over all leaves."""
    pairs = zip(fs.leaves(one), fs.leaves(other), strict=True)
    return max(np.max(np.abs(np.subtract(a, b))) for (_, _, a), (_, _, b) in pairs if a is not None)


def numbers(found):
    """Return records, tuples and numbers as one list of arrays."""
    if isinstance(found, (tuple, list)):
        return [array for part in found for array in numbers(part)]
    if hasattr(found, "_record_fields"):
        found = [
            (kind, np.asarray(value)) for _, kind, value in fs.leaves(found) if value is not None
        ]
        return [np.tril(value) if kind in ("tril", "symmetric") else value for kind, value in found]
    return [np.asarray(found)]


def assert_same_on_all_and_close(results, expected, rtol):
    """Assert that results are bitwise equal on all ranks, and close to ``expected``.

    The tolerance is ``rtol`` of the size of an array, or of a hundredth of the largest gradient,
    because sums can cancel.
    """
    # the first array is the value
    least = 0.01 * max(np.max(np.abs(due), initial=0.1) for due in numbers(expected)[1:])
    for other in results[1:]:
        for one, two in zip(numbers(results[0]), numbers(other), strict=True):
            np.testing.assert_array_equal(one, two)
    for one, due in zip(numbers(results[0]), numbers(expected), strict=True):
        assert one.dtype == due.dtype and one.shape == due.shape
        np.testing.assert_allclose(one, due, rtol=0, atol=rtol * max(np.max(np.abs(due)), least))


def uneven(size, rows):
    """Return the starts of the shares: each rank except the last has one row."""
    return [*range(size), rows]
