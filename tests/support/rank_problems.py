"""Several ranks in one process, and what their results are compared by."""

import numpy as np

import fastsvgp as fs


def on_ranks(size, function, rows="all"):
    return fs.distributed.threads(size, rows).run(function)


def ends(size, function, rows="all"):
    """What each rank returns or raises."""

    def work(group):
        try:
            return function(group)
        except Exception as error:
            return error

    return on_ranks(size, work, rows)


def assert_ended_by(errors, text):
    """One rank, whichever, met a ``ValueError`` of its own, and the others know which and what."""
    (failed,) = [rank for rank, error in enumerate(errors) if not isinstance(error, fs.RemoteError)]
    assert isinstance(errors[failed], ValueError) and text in str(errors[failed])
    for other in [*errors[:failed], *errors[failed + 1 :]]:
        assert other.rank == failed and text in other.message


def distance(one, other):
    """The largest difference of two models, of all leaves."""
    pairs = zip(fs.leaves(one), fs.leaves(other), strict=True)
    return max(np.max(np.abs(np.subtract(a, b))) for (_, _, a), (_, _, b) in pairs if a is not None)


def numbers(found):
    """Records, tuples and numbers as one list of arrays."""
    if isinstance(found, (tuple, list)):
        return [array for part in found for array in numbers(part)]
    if hasattr(found, "_record_fields"):
        found = [
            (kind, np.asarray(value)) for _, kind, value in fs.leaves(found) if value is not None
        ]
        return [np.tril(value) if kind in ("tril", "symmetric") else value for kind, value in found]
    return [np.asarray(found)]


def assert_same_on_all_and_close(results, expected, rtol):
    """Bits agree on all ranks; each array to ``rtol`` of its size, or of a hundredth of the largest gradient: sums may cancel."""
    # the first one is the value
    least = 0.01 * max(np.max(np.abs(due), initial=0.1) for due in numbers(expected)[1:])
    for other in results[1:]:
        for one, two in zip(numbers(results[0]), numbers(other), strict=True):
            np.testing.assert_array_equal(one, two)
    for one, due in zip(numbers(results[0]), numbers(expected), strict=True):
        assert one.dtype == due.dtype and one.shape == due.shape
        np.testing.assert_allclose(one, due, rtol=0, atol=rtol * max(np.max(np.abs(due)), least))


def uneven(size, rows):
    """Where the shares begin: each rank but the last has one row."""
    return [*range(size), rows]
