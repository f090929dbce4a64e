"""Old paths of modules still work and warn with the new path."""

import importlib
import pickle
import sys

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.runtime import moved

NAMED = {  # by pages of earlier versions
    "fastsvgp.bounds.layer": ("LayerPass",),
    "fastsvgp.train.recorder": ("Recorder",),
    "fastsvgp.weighing": ("svgp",),
}
STAYED = {
    "fastsvgp.covariances.base": ("ALL",),
    "fastsvgp.likelihoods.base": ("NODES", "total"),
    "fastsvgp.posteriors.base": ("Bars", "Joint", "Projection"),
    "fastsvgp.records": ("leaves", "matches", "record"),
    "fastsvgp.train.state": ("TrainingState", "started"),
    "fastsvgp.train.steps": ("Snapshot", "Steps"),
}


@pytest.fixture(autouse=True)
def not_imported(monkeypatch):
    for old in moved.MOVED:
        monkeypatch.delitem(sys.modules, f"fastsvgp.{old}", raising=False)


@pytest.mark.parametrize("old", moved.MOVED)
def test_an_old_path_is_the_module_of_the_new_one(old):
    new = importlib.import_module(f"fastsvgp.{moved.MOVED[old]}")
    with pytest.warns(
        DeprecationWarning, match=f"fastsvgp.{old} is now {new.__name__}; import from there"
    ):
        found = importlib.import_module(f"fastsvgp.{old}")
    assert found is new and new.__spec__.name == new.__name__


@pytest.mark.parametrize("old", NAMED)
def test_names_come_from_old_paths(old):
    with pytest.warns(DeprecationWarning, match="is now"):
        module = importlib.import_module(old)
    assert all(hasattr(module, name) for name in NAMED[old])


@pytest.mark.parametrize("path", STAYED)
def test_names_at_unchanged_paths_still_import(path, recwarn):
    module = importlib.import_module(path)
    assert all(hasattr(module, name) for name in STAYED[path]) and not recwarn


def test_pickles_of_models_whose_modules_moved():
    sgpr = fs.SGPR(fs.RBF(1.0, 1.0), np.array([[0.5], [1.5]]), fs.Gaussian(0.1))
    plain = pickle.dumps(sgpr, protocol=0)
    with pytest.warns(DeprecationWarning, match="fastsvgp.collapsed.sgpr"):
        model = pickle.loads(
            plain.replace(b"fastsvgp.collapsed.sgpr", b"fastsvgp.bounds.collapsed")
        )
    assert type(model) is fs.SGPR and model.inducing.tolist() == sgpr.inducing.tolist()


def test_other_paths_are_not_there():
    with pytest.raises(ModuleNotFoundError, match="fastsvgp.bounds.layers"):
        importlib.import_module("fastsvgp.bounds.layers")
