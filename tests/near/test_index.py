"""Nearest rows by each method are those of brute force."""

import numpy as np
import pytest
from support.peak_memory import peak_numbers
from support.rows import nearest, nearest_earlier

import fastsvgp as fs
from fastsvgp.near import ordered
from fastsvgp.near.index import Nearest, earlier_rows, place_rows


@pytest.fixture(params=["scan", "trees", "cells"])
def method(request, monkeypatch):
    """Make few rows do for each method; cells then share all rows, and are exact."""
    if request.param == "trees":
        monkeypatch.setattr(ordered, "SCANNED", 4)
        monkeypatch.setattr(ordered, "COLUMNS", 100)
    if request.param == "cells":
        monkeypatch.setattr(ordered, "COLUMNS", 0)
        monkeypatch.setattr(ordered, "MANY_SCANNED", 40)
        monkeypatch.setattr(ordered, "CELL", 8)
    return request.param


def rows_of(kind, N, D, rng):
    points = rng.standard_normal((N, D))
    if kind == "grid":
        points = np.rint(2 * points)
    elif kind == "duplicates":
        points = points[rng.integers(0, max(N // 4, 1), N)]
    elif kind == "far clusters":
        points[: N // 2] += 1e6
        points[:1] = 1e9
    return points


@pytest.mark.parametrize("kind", ["normal", "grid", "duplicates", "far clusters"])
@pytest.mark.parametrize(
    "N, D, k", [(1, 2, 3), (2, 1, 1), (90, 25, 1), (150, 3, 8), (130, 12, 140)]
)
@pytest.mark.parametrize("coded", [False, True])
def test_brute_force_agrees(method, kind, N, D, k, coded, rng):
    points = rows_of(kind, N, D, rng)
    order = rng.permutation(N)[: max(1, int(0.9 * N))]
    codes = rng.integers(0, 4, N) if coded else None
    found = earlier_rows(points, order, k, codes)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, nearest_earlier(points, order, k, codes))
    new = np.concatenate([points[:2], 3 * rng.standard_normal((3, D)), np.full((1, D), 1e40)])
    of = rng.integers(0, 6, len(new)) if coded else np.full(len(new), None)
    found = Nearest(points, order, codes).query(new, k, of if coded else None)
    for point, code, row in zip(new, of, found, strict=True):
        truth = nearest(point, code, points, order, k, codes)
        np.testing.assert_array_equal(row[: len(truth)], truth)
        assert (row[len(truth) :] == -1).all()


def test_a_query_that_equals_a_row_finds_it_first(method, rng):
    points = rng.standard_normal((200, 5))
    order = rng.permutation(200)
    assert (Nearest(points, order).query(points, 1)[:, 0] == np.arange(200)).all()


def test_results_depend_on_nothing_else(method, rng):
    """They are the same for any threads, at any time, and for one query and for many."""
    points, order = rng.standard_normal((400, 6)), rng.permutation(400)
    with fs.set_num_threads(2):
        first = earlier_rows(points, order, 5)
    index, new = Nearest(points, order), rng.standard_normal((40, 6))
    with fs.set_num_threads(1):
        np.testing.assert_array_equal(earlier_rows(points, order, 5), first)
    one_by_one = np.concatenate([index.query(new[[i]], 5) for i in range(40)])
    np.testing.assert_array_equal(index.query(new, 5), one_by_one)


def test_equal_rows_and_codes_without_columns(method):
    order = np.arange(300)[::-1]
    equal = earlier_rows(np.ones((300, 2)), order, 4)
    assert (equal[0] >= 0).all() and (equal > np.arange(300)[:, None])[equal >= 0].all()
    codes = np.arange(300) % 2
    found = earlier_rows(np.empty((300, 0)), order, 2, codes)
    assert (codes[found[0]] == 0).all() and (found[-1] == -1).all()
    assert list(found[-2]) == [299, -1]
    assert earlier_rows(np.ones((3, 2)), np.arange(3), 0).shape == (3, 0)


def test_ties_of_many_rows_end(monkeypatch):
    """A tree breaks ties of very many rows by itself, in a way that is always the same."""
    monkeypatch.setattr(ordered, "SCANNED", 4)
    points, order = np.arange(900.0)[:, None] % 3, np.random.default_rng(0).permutation(900)
    found, place = earlier_rows(points, order, 2), np.argsort(order)
    late = order[100:]
    assert (points[found[late]][..., 0] == points[late]).all()
    assert (place[found[late]] < place[late, None]).all()
    np.testing.assert_array_equal(earlier_rows(points, order, 2), found)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_cells_find_nearly_all_neighbours_of_clustered_rows(monkeypatch, spread):
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((60, 20))
    points = centres[rng.integers(0, 60, 6000)] + spread * rng.standard_normal((6000, 20))
    order = rng.permutation(6000)
    exact, late = earlier_rows(points, order, 10), order[2000:]
    for name, number in (("MANY_SCANNED", 1000), ("CELL", 50), ("SHARED", 600)):
        monkeypatch.setattr(ordered, name, number)
    found = earlier_rows(points, order, 10)
    place = np.argsort(order)
    assert (found[late] >= 0).all() and (place[found[late]] < place[late, None]).all()
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found[late], exact[late], strict=True)])
    assert recall > 0.95


def test_memory_grows_with_the_neighbours():
    N, k = 12_000, 20
    points = np.random.default_rng(0).standard_normal((N, 12))
    assert 8 * peak_numbers(lambda: earlier_rows(points, np.arange(N), k)) < 200 * N * k + 2**25


def test_places_are_near_each_other():
    points = np.random.default_rng(0).uniform(size=(500, 2))
    place = place_rows(points)
    assert sorted(place) == list(range(500))
    steps = np.linalg.norm(np.diff(points[np.argsort(place)], axis=0), axis=1)
    assert np.median(steps) < 0.2
