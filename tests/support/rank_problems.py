"""Groups of ranks in one process, and comparisons of their results."""

from functools import partial

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.optim.natural.backtracking import NaturalStepInfo


def on_ranks(size, function, rows="all"):
    return fs.distributed.threads(size, rows).run(function)


class Changed:
    """A group with some members replaced, or more of them."""

    def __init__(self, group, **changes):
        members = {name: getattr(group, name) for name in "rank size rows sum broadcast".split()}
        vars(self).update(members | changes)


def counting(group):
    """Return the group with ``sent``, a list of the lengths of its buffers."""
    sent = []

    def noted(buffer):
        sent.append(len(buffer))
        group.sum(buffer)

    return Changed(group, sum=noted, sent=sent)


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
    pairs = zip(fs.records.leaves(one), fs.records.leaves(other), strict=True)
    return max(np.max(np.abs(np.subtract(a, b))) for (_, _, a), (_, _, b) in pairs if a is not None)


def numbers(found):
    """Return records, tuples and numbers as one list of arrays."""
    if isinstance(found, (tuple, list)):
        return [array for part in found for array in numbers(part)]
    if hasattr(found, "_record_fields"):
        found = [
            (kind, np.asarray(value))
            for _, kind, value in fs.records.leaves(found)
            if value is not None
        ]
        return [np.tril(value) if kind in ("tril", "symmetric") else value for kind, value in found]
    return [np.asarray(found)]


def assert_same_on_all_and_close(results, expected, rtol):
    """Check that results are bitwise equal on all ranks, and close to the expected ones.

    Each array is compared to ``rtol`` times its largest entry, or times a hundredth of the largest
    gradient, because sums can cancel.
    """
    # the first number is the value
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


def without_infos(found):
    """Split a result into the rest and its ``NaturalStepInfo``, or None."""
    if not isinstance(found, tuple):
        return found, None
    infos = [part for part in found if isinstance(part, NaturalStepInfo)]
    rest = tuple(part for part in found if not isinstance(part, NaturalStepInfo))
    return (rest[0] if len(rest) == 1 else rest), (infos[0] if infos else None)


def same_leaves(rtol):
    """Compare by ``assert_same_on_all_and_close``; single numbers relative to their size."""

    def compare(found, expected):
        if isinstance(expected, float):
            assert len(set(found)) == 1 and found[0] == pytest.approx(expected, rel=rtol)
        else:
            assert_same_on_all_and_close(found, expected, rtol)

    return compare


def same_model(rtol):
    """A comparison of models by ``distance``, relative to the largest entry of all leaves."""

    def compare(found, expected):
        assert all(distance(one, found[0]) == 0 for one in found)
        size = max(
            np.max(np.abs(leaf)) for _, _, leaf in fs.records.leaves(expected) if leaf is not None
        )
        assert distance(found[0], expected) < rtol * max(size, 1.0)

    return compare


def on_shards(call, data, size, rows):
    """``call(*data, group=group)`` on all ranks, with rows "own" on shards of uneven sizes."""
    starts = uneven(size, len(data[0]))

    def work(group):
        at = slice(*starts[group.rank : group.rank + 2]) if rows == "own" else slice(None)
        return call(*(array[at] for array in data), group=group)

    return on_ranks(size, work, rows)


def assert_group_equals_one(call, data, size, rows, compare):
    """Check that a group gives what ``call(*data)`` gives in one process."""
    expected, info = without_infos(call(*data))
    found, infos = zip(*map(without_infos, on_shards(call, data, size, rows)), strict=True)
    compare(found, expected)
    assert all(one == infos[0] for one in infos)
    if info is not None:
        assert infos[0].value == pytest.approx(info.value, rel=1e-12)
        assert infos[0][1:] == info[1:]  # step size, whether it was backed off, and a count


def assert_trajectory_of_one(model, data, size, rows="all", tolerance=1e-11, **options):
    """Check that ``fit`` in a group makes the steps that it makes in one process."""
    updates = [], []

    def train(*data, noted, **group):
        def note(step, value, info):
            noted.append(info.inverse)

        return fs.fit(model, *data, callback=note, **options, **group)

    expected, info = train(*data, noted=updates[0])
    found = on_shards(partial(train, noted=updates[1]), data, size, rows)
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert distance(found[0][0], expected) < tolerance
    np.testing.assert_allclose(found[-1][1].values, info.values, rtol=tolerance)
    assert {one.reason for _, one in found} == {"steps"}
    assert_same_updates(*updates, rtol=10 * tolerance)


def assert_same_updates(expected, found, rtol):
    """Check the updates of inverse factors in each step: their number, and the gap in nats."""
    expected, found = (
        [one for step in steps for one in (step if type(step) is tuple else (step,))]
        for steps in (expected, found)
    )
    assert [one is None for one in found] == [one is None for one in expected]
    expected, found = ([one for one in ones if one is not None] for ones in (expected, found))
    if expected:
        assert [one.steps for one in found] == [one.steps for one in expected]
        assert max(one.steps for one in found) > 0
        np.testing.assert_allclose(
            [one.gap for one in found], [one.gap for one in expected], rtol=rtol
        )
