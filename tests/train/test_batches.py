"""Minibatches: every row once per epoch, a function of (seed, step), and no other rows read."""

import numpy as np
import pytest

from fastsvgp.errors import BadEntry
from fastsvgp.train.batches import Batches, OnDevice


def data(N):
    return np.arange(N, dtype=float)[:, None], np.arange(N) * 10


@pytest.mark.parametrize("N, size", [(1, 1), (10, 3), (17, 5), (65, 64), (12, 4), (5, 100)])
def test_each_row_once_an_epoch(N, size):
    batches = Batches(*data(N), size, seed=3)
    steps = 4 * N
    rows = []
    for step in range(steps):
        X, Y = batches.at(step)
        assert X.shape == (min(size, N), 1)
        np.testing.assert_array_equal(X[:, 0] * 10, Y)
        rows.append(X[:, 0].astype(int))
    np.testing.assert_array_equal(
        np.bincount(np.concatenate(rows), minlength=N), np.full(N, steps * min(size, N) // N)
    )


@pytest.mark.parametrize("N, size", [(10, 3), (17, 5), (12, 4), (5, 5)])
@pytest.mark.parametrize(
    "make", [lambda batches: batches, lambda batches: OnDevice(batches, np.zeros(1))]
)
def test_bad_entries_of_a_batch_are_found_in_the_data(N, size, make):
    batches = make(Batches(*data(N), size, seed=3))
    for step in range(3 * N):
        for i, row in enumerate(batches.at(step)[0][:, 0]):
            for name, found in (("X", int(row)), ("Y", int(row)), ("inducing", i)):
                error = BadEntry(name, "contains nan", (i, 2), "")
                batches.locate(error, step)
                assert str(error) == f"`{name}` contains nan at index ({found}, 2)"


def test_a_function_of_seed_and_step():
    first, second, other = (Batches(*data(50), 7, seed=s) for s in (1, 1, 2))
    expected = [first.at(step)[1] for step in range(40)]
    assert any((other.at(step)[1] != expected[step]).any() for step in range(5))
    other.reseed(1)
    for step in (39, 0, 13, 14, 3):  # in any order
        np.testing.assert_array_equal(second.at(step)[1], expected[step])
        np.testing.assert_array_equal(other.at(step)[1], expected[step])
    assert (first.at(0)[1] != first.at(50)[1]).any()  # another order in another epoch


class OnDisk:
    """Rows indexed only by increasing numbers, as in h5py, and counted."""

    def __init__(self, array):
        self._array, self.shape, self.dtype, self.most = array, array.shape, array.dtype, 0

    def __len__(self):
        return len(self._array)

    def __getitem__(self, rows):
        assert (np.diff(rows) > 0).all()
        self.most = max(self.most, len(rows))
        return self._array[rows]


def test_only_the_rows_of_a_batch_are_read():
    X, Y = map(OnDisk, data(30))
    batches, plain = Batches(X, Y, 8, seed=0), Batches(*data(30), 8, seed=0)
    for step in range(30):
        for ours, expected in zip(batches.at(step), plain.at(step), strict=True):
            np.testing.assert_array_equal(ours, expected)
    assert X.most == Y.most == 8


def test_all_rows_are_the_data_as_they_are():
    X, Y = data(5)
    assert Batches(X, Y, 5, seed=0).at(7)[0] is X
    assert Batches(X, Y, 5, seed=0).per_epoch == 1 and Batches(X, Y, 3, seed=0).per_epoch == 2
