"""Splits by groups and by time: what is left out, random effects, and examples of their use."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fastsvgp as fs
from fastsvgp.recipes.model_search.candidates import Hyper
from fastsvgp.recipes.model_search.collapsed_posterior import Collapsed, make_svgp, sums
from fastsvgp.recipes.model_search.held_out_density import better_by
from fastsvgp.recipes.model_search.left_out import (
    ByEvidence,
    blocks_of,
    covariances_for_groups,
    covariances_for_later,
    cross_validate,
    draw,
    evidence_and_grad,
    leave_out,
    varying_inside,
)
from fastsvgp.recipes.model_search.plain_processes import plain_on
from fastsvgp.recipes.model_search.plan import SearchPlan
from fastsvgp.recipes.model_search.rows import SearchRows, mark
from fastsvgp.recipes.splits import Split, signs


def grouped(rng, N=30, G=6, weighted=False):
    X, y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    w = rng.integers(1, 4, N).astype(float) if weighted else None
    return SearchRows(X, y, w, labels=np.append(np.arange(G), rng.integers(0, G, N - G)))


def dense(hyper, rows):
    """Return the covariance of targets, and that of f."""
    K = hyper.covariance.matrix(rows.X)
    w = np.ones(len(rows)) if rows.weights is None else rows.weights
    same = np.equal.outer(rows.labels, rows.labels)
    return K + hyper.effect * same + np.diag(hyper.noise / w), K


@pytest.mark.parametrize("weighted", [False, True])
def test_the_evidence_has_its_gradient(rng, weighted):
    rows = grouped(rng, weighted=weighted)
    smooth = fs.Matern32(1.2, np.array([0.7, 1.9]))
    covariance, noise, effect = fs.covariances.Sum((fs.Linear(0.4), smooth)), 0.3, 0.8
    value, bar, others = evidence_and_grad(rows, covariance, noise, effect)
    K, _ = dense(Hyper(covariance, noise, None, effect), rows)
    expected = -0.5 * (np.linalg.slogdet(2 * np.pi * K)[1] + rows.y @ np.linalg.solve(K, rows.y))
    assert value == pytest.approx(expected, rel=1e-10)
    vector, unravel = fs.ravel(covariance, transform="log")
    point = np.concatenate([vector, [noise, effect]])
    found = np.concatenate([unravel.pullback(vector, bar), others])
    for i, step in enumerate(1e-5 * np.eye(len(point))):
        ends = (
            evidence_and_grad(rows, unravel(p[:-2]), *p[-2:])[0]
            for p in (point + step, point - step)
        )
        assert found[i] == pytest.approx((next(ends) - next(ends)) / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_whole_groups_are_left_out(rng, weighted):
    rows = grouped(rng, weighted=weighted)
    hyper = Hyper(fs.Matern32(1.3, np.array([0.8, 1.5])), 0.2, None, 0.6)
    left = leave_out(hyper, rows, SearchPlan(1.0, True))
    (K, f), w = dense(hyper, rows), np.ones(30) if rows.weights is None else rows.weights
    for i in range(30):
        rest = rows.labels != rows.labels[i]
        k = f[i, rest]
        assert left.mean[i] == pytest.approx(k @ np.linalg.solve(K[rest][:, rest], rows.y[rest]))
        assert left.var_f[i] == pytest.approx(1.3 - k @ np.linalg.solve(K[rest][:, rest], k))
    assert_allclose(left.clusters, rows.labels)
    assert np.isfinite(left.density).all() and w.all()


def test_few_groups_are_left_out_of_hyperparameters(rng):
    rows = grouped(rng)
    changed = rows.y.copy()
    changed[rows.labels == 2] += 5 * rng.standard_normal(np.sum(rows.labels == 2))
    found = []
    for y in (rows.y, changed):
        given = SearchRows(rows.X, y, labels=rows.labels)
        one = ByEvidence("one", None, given, plain_on(rows.X), effect=0.3)
        left = cross_validate(one, given, SearchPlan(1.0, True), 1.0)
        found.append(left.mean[rows.labels == 2])
    # they are targets less shifts, so rounding is that of the targets
    assert_allclose(*found, rtol=1e-9, atol=1e-12 * np.abs(changed).max())
    assert np.ptp(found[0]) > 0


def test_the_future_is_left_out(rng):
    N = 40
    order = rng.permutation(N)
    X, y = np.c_[order / 10.0, rng.standard_normal(N)], rng.standard_normal(N)
    rows = SearchRows(X, y, labels=order, later=True)
    hyper = Hyper(fs.Matern32(1.3, np.array([0.8, 1.5])), 0.2, None)
    left, block = leave_out(hyper, rows, SearchPlan(1.0, True)), blocks_of(rows)
    assert np.bincount(block).tolist() == [24, 4, 4, 4, 4]
    assert order[block == 4].min() > order[block == 3].max()
    K, f = dense(hyper, rows)
    for i, row in enumerate(np.flatnonzero(block)):
        rest = block < block[row]
        k = f[row, rest]
        assert left.mean[i] == pytest.approx(k @ np.linalg.solve(K[rest][:, rest], y[rest]))
        assert left.var_f[i] == pytest.approx(1.3 - k @ np.linalg.solve(K[rest][:, rest], k))


def test_the_posterior_knows_that_noise_of_a_group_is_shared(rng):
    rows = grouped(rng, weighted=True)
    covariance, n, effect = fs.Matern32(1.3, np.array([0.8, 1.5])), 0.2, 0.6
    K, f = dense(Hyper(covariance, n, None, effect), rows)
    new = rng.standard_normal((5, 2))
    k = covariance.matrix(rows.X, new)
    mean, var = k.T @ np.linalg.solve(K, rows.y), 1.3 - (k * np.linalg.solve(K, k)).sum(0)
    given = rows.X, rows.y, rows.weights, 1e-10, (rows.labels, effect / n)
    collapsed = Collapsed(covariance, rows.X, sums(covariance, rows.X, *given), 1.0, n, effect)
    assert_allclose(collapsed.predict(new), (mean, var), rtol=1e-6, atol=1e-7)
    svgp, factors = make_svgp(collapsed, rows.X, (1.5, 0.7), rows)
    assert factors == (1.5, 0.7) and svgp.likelihood.variance == pytest.approx(0.7 * (n + effect))
    assert_allclose(fs.predict_f(svgp, new), (mean, 1.5 * var), rtol=1e-3, atol=1e-4)


def test_rows_that_depend_on_one_another_count_as_one(rng):
    gain, w = rng.standard_normal(6), np.arange(1.0, 7)
    clusters = np.array([0, 0, 3, 3, 3, 1])
    means = [np.average(gain[clusters == c], weights=w[clusters == c]) for c in (0, 1, 3)]
    expected = better_by(np.array(means), np.zeros(3), np.array([3.0, 6, 12]))
    assert better_by(gain, np.zeros(6), w, clusters) == pytest.approx(expected)
    twice = better_by(np.tile(gain, 2), np.zeros(12), None, np.tile(np.arange(6), 2))
    assert twice == pytest.approx(better_by(gain, np.zeros(6)))


def test_whole_labels_are_marked(rng):
    labels = rng.integers(0, 12, 200)
    held = mark(labels, False, 40, rng)
    assert 40 <= held.sum() < 100
    assert not set(labels[held]) & set(labels[~held])
    later = mark(labels, True, 40, rng)
    assert labels[later].min() > labels[~later].max()


def test_rows_that_train_have_several_of_each_label(rng):
    for labels, fewest in ((np.repeat(np.arange(50), 40), 10), (rng.integers(0, 800, 2000), 1)):
        N = len(labels)
        rows = SearchRows(rng.standard_normal((N, 1)), np.zeros(N), labels=labels)
        counts = np.bincount(draw(rows, 500).labels)
        assert 400 <= counts.sum() <= 510 and counts[counts > 0].min() >= fewest
        assert len(draw(rows, N)) == N


def test_candidates_of_groups_and_of_time(rng):
    rows = grouped(rng)
    X = np.c_[rows.X, rows.labels * 2.0]
    rows = SearchRows(X, rows.y, labels=rows.labels)
    assert varying_inside(rows) == (0, 1)
    assert [name for name, _ in covariances_for_groups(rows)] == [
        "linear, random effects", "random effects",
        "random effects, without columns of the group",
    ]  # fmt: skip
    t = np.arange(120.0)
    y = np.sin(2 * np.pi * t / 12) + 0.1 * rng.standard_normal(120)
    later = SearchRows(np.c_[t / 40, rng.standard_normal(120)], y, labels=t.astype(int), later=True)
    found = dict(covariances_for_later(later, 0))
    assert list(found) == ["plain", "level", "level and cycles"]
    wave = found["level and cycles"].parts[-1].part if len(found) == 3 else None
    periods = [one.part.period[0] for one in found["level and cycles"].parts[3:]]
    assert wave is not None and min(abs(p - 12 / 40) for p in periods) < 0.005
    assert list(dict(covariances_for_later(later, None))) == ["plain"]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"groups": 0, "time": 1}, "has `groups` and `time`"),
        ({"groups": 7}, "`groups` is column 7, but `X` has 2 columns"),
        ({"time": np.arange(3)}, r"`time` must be \(4,\), one for each row"),
        ({"time": np.array([0, 1, np.nan, 2])}, "`time` has missing values"),
        ({"groups": ["a"] * 4}, "`groups` is the same in all rows"),
    ],
)
def test_bad_splits_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Split(**given).labels(np.zeros((4, 2)))


def test_another_split_is_refused():
    with pytest.raises(TypeError, match="must be a fs.recipes.Split, got str"):
        fs.search(np.zeros((4, 1)), np.arange(4.0), 1, split="time")


def test_a_column_of_groups_is_no_input(rng):
    X = np.c_[np.repeat(np.arange(12.0), 5), rng.standard_normal(60)]
    y = np.sin(X[:, 1]) + rng.standard_normal(12)[X[:, 0].astype(int)]
    found = fs.search(X, y, 1.0, by_work=True, rng=0, split=Split(groups=0, name="who"))
    there, other = (fs.predict_y(found.model, found.scale.X(np.array([[g, 0.3]]))) for g in (3, 99))
    assert_allclose(there, other, rtol=1e-12)
    assert found.holds.startswith("for new values of 'who': RMSE")


def test_signs_of_groups_and_of_time(rng):
    N, who = 300, np.repeat(np.arange(20.0), 15)
    x, effect = rng.standard_normal(N), rng.standard_normal(20)
    y = 3 * effect[rng.permutation(20)][who.astype(int)] + x
    (one,) = signs(np.c_[x, who], y)
    assert (one.option, one.column) == ("groups", 1) and "20 values of about 15 rows" in one.why
    age, height = rng.standard_normal((2, 20))
    (one,) = signs(np.c_[x, age[who.astype(int)], height[who.astype(int)]], x)  # by two columns
    assert one.option == "groups" and one.why.endswith("as column 1 has")
    (one,) = signs(np.c_[x, np.arange(300.0)], x)
    assert (one.option, one.column) == ("time", 1)
    # a smooth function of few values, noise, and one input are no signs
    few = rng.integers(0, 20, N).astype(float)
    assert signs(np.c_[x, few], few / 5) == [] and signs(np.c_[x, few], x) == []
    assert signs(np.arange(300.0)[:, None], x) == []


@pytest.mark.parametrize("later", [False, True])
def test_many_rows_race_with_whole_labels_held_out(rng, tune, later):
    tune(exact_rows=120)
    who, x = np.repeat(np.arange(40), 12), rng.standard_normal(480)
    t = np.arange(480.0)
    y = np.sin(x) + (0.01 * t if later else 2 * rng.standard_normal(40)[who])
    X = np.c_[t, x] if later else np.c_[rng.standard_normal(40)[who], x]
    split = Split(time=0) if later else Split(groups=who)
    y = y + 0.1 * rng.standard_normal(480)
    found = fs.search(X, y, 5.0, by_work=True, rng=0, split=split)
    names = {look["candidate"] for look in found.looks}
    assert ("level" if later else "random effects") in names
    assert found.holds.startswith("for later times" if later else "for new groups")
    assert "rows seen once" in found.holds and found.holds in found.story
    mean, var = found.scale.back(*fs.predict_y(found.model, found.scale.X(X)))
    assert np.isfinite(mean).all()
    if not later:
        assert np.all(var > 0.5)  # of one effect
