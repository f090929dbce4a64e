"""Searches whose inputs are memory-mapped: rows are read when they are used."""

import tracemalloc

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.inducing import unique_rows
from fastsvgp.recipes.model_search import (
    collapsed_posterior,
    plain_processes,
    regression,
    regression_answer,
    rows as rows_module,
    search_models,
)
from fastsvgp.recipes.model_search.rows import MappedInputs
from fastsvgp.recipes.scaling import ClassScale, Scale

SETTINGS = {"seconds": 1.0, "by_work": True, "rng": 1}


@pytest.fixture(autouse=True)
def brief(monkeypatch, tune):
    """Searches of one second have a race, and inputs of 101 rows on disk stay there."""
    tune(race_seconds=0.5, exact_rows=100)
    monkeypatch.setattr(unique_rows, "SORTED", 100)
    monkeypatch.setattr(plain_processes.Plain, "M", 32)
    for module in (collapsed_posterior, regression, regression_answer):
        monkeypatch.setattr(module, "M", 32)
    monkeypatch.setattr(regression_answer, "MOST", 32)


def mapped(path, X):
    np.save(path / "X.npy", X)
    return np.load(path / "X.npy", mmap_mode="r")


def table(rng, N=600):
    X = np.c_[np.exp(rng.standard_normal(N)), rng.standard_normal((N, 2)), np.ones(N)]
    return X, np.sin(2 * np.log(X[:, 0])) + X[:, 1] + 0.3 * rng.standard_normal(N)


def test_mapped_inputs_are_indexed_like_the_array(rng, tmp_path):
    X, _ = table(rng)
    scale, on_disk = (
        Scale.fit(X, X[:, 0], True).add_column_maps(X),
        MappedInputs(mapped(tmp_path, X)),
    )
    mask, numbers = rng.random(600) < 0.5, rng.permutation(150)
    for ours, theirs in (
        (on_disk, X),
        (on_disk[mask], X[mask]),
        (on_disk[mask][np.arange(len(X[mask])) > 9].scale(scale), scale.X(X)[mask][10:]),
    ):
        assert isinstance(ours, MappedInputs) and ours.shape == theirs.shape
        np.testing.assert_array_equal(np.asarray(ours), theirs)
        np.testing.assert_array_equal(ours[7:150], theirs[7:150])
        np.testing.assert_array_equal(ours[numbers], theirs[numbers])
        assert type(ours[numbers]) is np.ndarray and ours[numbers].flags.writeable


@pytest.mark.parametrize("kind", [Scale, ClassScale])
@pytest.mark.parametrize("weighted", [False, True])
def test_scale_of_chunks_is_that_of_the_array(rng, tmp_path, monkeypatch, kind, weighted):
    monkeypatch.setattr(rows_module, "CHUNK", 60)
    X, y = table(rng)
    X[:, 1] += 1e6
    weights = rng.uniform(0.5, 2, 600) if weighted else None
    real = kind is Scale
    expected = kind.fit(X, y, real, weights=weights)
    found = rows_module.scale_of(kind, MappedInputs(mapped(tmp_path, X)), y, real, weights)
    for name in ("x_mean", "x_scale", "y_mean", "y_scale", "x_ends"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-12)
    assert found.x_scale[3] == 1.0 and type(found) is kind


def test_bad_rows_on_disk_are_named(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "CHUNK", 60)
    X, y = table(rng)
    X[333, 2] = np.nan
    with pytest.raises(ValueError, match="`X`.* contains nan") as plain:
        fs.search(X, y, 1.0)
    for weights in (None, np.arange(600) % 2):
        with pytest.raises(ValueError) as on_disk:
            fs.search(mapped(tmp_path, X), y, 1.0, weights=weights)
        assert str(on_disk.value) == str(plain.value)
    found = fs.search(mapped(tmp_path, X), y, 0.3, weights=np.arange(600) != 333, rng=0)
    assert np.isfinite(found.model.inducing).all()
    X[333, 2] = 1e151
    with pytest.raises(ValueError, match="too large to be squared"):
        fs.search(mapped(tmp_path, X), y, 1.0)
    with pytest.raises(ValueError, match=r"`y` must be \(600,\)"):
        fs.search(mapped(tmp_path, X), y[:7], 1.0)


@pytest.mark.parametrize(
    "likelihood, seconds",
    [("gaussian", 0.3), ("gaussian", 1.0), ("bernoulli-logit", 0.3), ("poisson", 0.7)],
)
def test_search_on_disk_agrees_with_one_in_memory(tmp_path, monkeypatch, likelihood, seconds):
    """Only the rounding of means and scales differs, and what training makes of it."""
    rng = np.random.default_rng(5)  # other data can be near a tie of two candidates
    monkeypatch.setattr(rows_module, "CHUNK", 60)
    X, y = table(rng)
    if likelihood != "gaussian":
        y = (y > 0).astype(int) + (likelihood == "poisson") * (y > 1)
    settings = SETTINGS | {"seconds": seconds, "likelihood": likelihood}
    settings["weights"] = rng.integers(0, 3, 600) if seconds > 0.5 else None
    memory = fs.search(X, y, **settings)
    disk = fs.search(mapped(tmp_path, X), y, **settings)
    assert [one["candidate"] for one in disk.looks] == [one["candidate"] for one in memory.looks]
    assert disk.plan == memory.plan and disk.chosen == memory.chosen
    for ours, theirs in zip(
        *(fs.predict_y(found.model, found.scale.X(X)) for found in (disk, memory)), strict=True
    ):
        # rows far from the others move most
        assert np.quantile(np.abs(ours - theirs), 0.95) < 0.02 * np.std(theirs)


def test_integers_on_disk(rng, tmp_path):
    X = rng.integers(0, 30, (200, 2)).astype(np.int32)
    found = fs.search(mapped(tmp_path, X), np.sin(X[:, 0] / 5), 0.3, rng=0)
    assert found.model.inducing.dtype == np.float64


def test_memory_of_a_large_file_on_disk(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(unique_rows, "SORTED", 20_000)
    N, D = 500_000, 100  # 400 MB
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (N, D))
    some = rng.standard_normal((20_000, D))
    for start in range(0, N, len(some)):
        X[start : start + len(some)] = some + 1e-6 * start
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
    search_models._rehearse(None)
    tracemalloc.start()
    try:
        found = fs.search(X, y, 0.6, by_work=True, rng=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert any(one["candidate"].startswith("network") for one in found.looks)
    assert peak < X.nbytes / 2  # in memory it is above 5 X.nbytes
