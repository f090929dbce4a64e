"""The record of sizes and thresholds, and its overrides."""

import dataclasses
import pathlib
import re
import threading

import pytest

import fastsvgp as fs
from fastsvgp.runtime import tuning

PACKAGE = pathlib.Path(fs.__file__).parent
FIELDS = {field.name: field.default for field in dataclasses.fields(tuning.Tuning)}


def test_overrides_nest_and_end():
    with tuning.override(window_range=3, exact_rows=7) as outer:
        assert outer == dataclasses.replace(tuning.Tuning(), window_range=3, exact_rows=7)
        with pytest.raises(KeyError), tuning.override(window_range=5):
            assert (tuning.current.window_range, tuning.current.exact_rows) == (5, 7)
            raise KeyError
        assert tuning.current == outer
    assert tuning.current == tuning.Tuning()


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="window_rang"), tuning.override(window_rang=3):
        pass
    assert tuning.current == tuning.Tuning()


def test_threads_see_an_override_and_leave_theirs_in_any_order():
    seen, overridden, end = [], threading.Event(), threading.Event()

    def other():
        seen.append(tuning.current.window_range)
        with tuning.override(window_range=5):
            overridden.set()
            end.wait(60)

    thread = threading.Thread(target=other)
    with tuning.override(window_range=3):
        thread.start()
        assert overridden.wait(60) and seen == [3]
    assert tuning.current.window_range == 5
    end.set()
    thread.join()
    assert tuning.current == tuning.Tuning()


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_is_documented_and_read(name):
    assert re.search(rf"^    {name} : .+\n        \S", tuning.Tuning.__doc__, re.M)
    others = (p for p in PACKAGE.rglob("*.py") if p.name != "tuning.py")
    assert any(f".{name}" in p.read_text(encoding="utf-8") for p in others)


def test_the_fields_are_read_at_call_time(rng, tune):
    """An override also holds for calls in other threads, and ends with its context."""
    sizes, plain = [], fs.RBF.Kuf

    class Watched(fs.RBF):
        def Kuf(self, inducing, X):
            sizes.append(len(X))
            return plain(self, inducing, X)

    X, Z = rng.standard_normal((23, 1)), rng.standard_normal((4, 1))
    covariance = fs.records.record(Watched)(1.0, 0.8)
    model = fs.SVGP(
        covariance, Z, fs.posteriors.at_prior(fs.Marginal, covariance, Z), fs.Gaussian(0.1)
    )
    fs.elbo(model, X, X[:, 0])
    assert sizes == [23]
    sizes.clear()
    tune(bound_chunk_columns=5, bound_chunk_numbers=1)
    thread = threading.Thread(target=fs.elbo, args=(model, X, X[:, 0]))
    thread.start()
    thread.join()
    assert sizes == [5, 5, 5, 5, 3]
