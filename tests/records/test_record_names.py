"""Names of records: which class a name belongs to, in a process and in a file."""

import importlib
import pkgutil
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from support.looped import looped
from support.record_files import header_of, model, write

import fastsvgp as fs
from fastsvgp import records
from fastsvgp.records import persistence, registry as catalogue


def boulder(module):
    """A record as a module of that name would define it."""

    @records.record
    class Boulder:
        __module__ = module
        size: Any = records.leaf("positive")
        shade: Any = records.static(default="grey")

    return Boulder


def test_the_catalogue_holds_our_records_and_no_others():
    # the last four need optional packages
    others = {
        "fastsvgp.__main__",
        "fastsvgp.interop.jax",
        "fastsvgp.interop.torch",
        "fastsvgp.interop.torch_tensors",
    }
    for module in pkgutil.walk_packages(fs.__path__, "fastsvgp."):
        if module.name not in others:
            importlib.import_module(module.name)
    ours = {name: module for module, name in records.REGISTRY if module.startswith("fastsvgp.")}
    assert ours == {name: f"fastsvgp.{module}" for name, module in catalogue.OURS.items()}


def test_files_do_not_know_private_records(registry):
    @records.private_record
    class Pebble:
        size: Any = records.leaf("positive")

    assert records.is_record(Pebble(1.0)) and (__name__, "Pebble") not in registry
    assert [(path, kind) for path, kind, _ in fs.records.leaves(Pebble([1.0]))] == [
        ("size", "positive")
    ]
    assert not [name for name in catalogue.OURS if name.startswith("_")]
    with pytest.raises(AttributeError):  # frozen
        Pebble(1.0).size = 2.0

    @records.record
    class Pebble:  # the name stays free
        size: Any = records.leaf("positive")

    assert registry[__name__, "Pebble"] is Pebble


def test_a_module_and_a_name_belong_to_one_class(tmp_path, registry):
    # by a reload, or in the cell of a notebook
    first, again = boulder("my_rocks"), boulder("my_rocks")
    assert registry["my_rocks", "Boulder"] is again
    assert records.is_record(first(1.0)) and records.is_record(again(1.0))
    hers = boulder("her_rocks")
    for size, kind in enumerate((first, hers), 1):
        fs.save(tmp_path / f"{size}.npz", kind(float(size)))
    with warnings.catch_warnings(action="error"):
        one, two = (fs.load(tmp_path / f"{size}.npz") for size in (1, 2))
    assert (type(one), one.size, type(two), two.size) == (again, 1.0, hers, 2.0)


def own_gamma(module):
    """A record with the name of a likelihood of the package, and a field of its own."""

    @records.record
    class Gamma:
        __module__ = module
        sharpness: Any = records.leaf("positive")

    return Gamma


@pytest.mark.parametrize("imported", [True, False])
def test_an_own_record_bears_a_name_of_ours(tmp_path, registry, imported):
    """Whether or not ours is imported; this is a name that a later version takes."""
    ours = fs.likelihoods.Gamma
    if not imported:
        del registry["fastsvgp.likelihoods.gamma", "Gamma"]
    Gamma = own_gamma("my_rocks")
    registry["fastsvgp.likelihoods.gamma", "Gamma"] = ours
    mixed = fs.covariances.Sum((Gamma(2.0), ours(3.0), fs.covariances.On(Gamma(4.0), columns=(0,))))
    fs.save(tmp_path / "mixed.npz", mixed)
    own, package, inner = header_of(tmp_path / "mixed.npz")["tree"]["fields"]["parts"]["parts"]
    assert own["module"] == "my_rocks" == inner["fields"]["part"]["module"]
    assert "module" not in package
    with warnings.catch_warnings(action="error"):
        loaded = fs.load(tmp_path / "mixed.npz")
    assert [type(part) for part in loaded.parts] == [Gamma, ours, fs.covariances.On]
    assert repr(loaded) == repr(mixed)
    del registry["my_rocks", "Gamma"]
    with pytest.raises(
        fs.DataFileError, match="type 'Gamma', which the module 'my_rocks' defines; import it first"
    ):
        fs.load(tmp_path / "mixed.npz")
    fs.save(tmp_path / "ours.npz", ours(3.0))
    own_gamma("her_rocks")
    assert type(fs.load(tmp_path / "ours.npz")) is ours


def test_an_own_record_has_all_settings_of_its_file(tmp_path, registry):
    @records.record
    class Relaxed:
        __module__ = "my_rocks"
        size: Any = records.leaf()

    fs.save(tmp_path / "rock.npz", Relaxed(1.5))
    header = header_of(tmp_path / "rock.npz")["tree"]
    header["fields"]["direction"] = {"static": "exact"}
    write(tmp_path / "rock.npz", header, size=1.5)
    with pytest.raises(fs.DataFileError, match="type 'Relaxed' with a field 'direction', but"):
        fs.load(tmp_path / "rock.npz")


def test_a_script_that_two_modules_could_be(tmp_path, registry):
    fs.save(tmp_path / "rock.npz", boulder("__main__")(1.5))
    del registry["__main__", "Boulder"]
    boulder("my_rocks"), boulder("her_rocks")
    both = "which 'my_rocks' and 'her_rocks' define; import only the right one, then load again"
    with pytest.raises(fs.DataFileError, match=both):
        fs.load(tmp_path / "rock.npz")


def test_our_records_load_whatever_was_imported(tmp_path):
    """In a new process, in both orders, because some records import others."""
    optimiser = fs.optim.by_field(
        fs.adam(fs.optim.schedules.plateau(0.1)), {"variance": fs.sgd(0.1)}
    )
    state = optimiser.init(fs.RBF(1.5, 2.0))
    training = fs.optim.TrainingState(model(), state)
    trees = (
        state.parts[1].schedules[0],
        training.trend,
        state.parts[0],
        state,
        model().posterior,
        model(),
        training,
    )
    for tree in trees:
        fs.save(tmp_path / type(tree).__name__, tree)
    names = [type(tree).__name__ for tree in trees]
    assert names == [
        "PlateauState",
        "Trend",
        "OptimiserState",
        "ByFieldState",
        "Whitened",
        "SVGP",
        "TrainingState",
    ]
    load = "import sys; from fastsvgp.records.persistence import load"
    program = f"{load}; print(*(type(load(name)).__name__ for name in sys.argv[1:]))"
    for order in (names, names[::-1]):
        done = subprocess.run(
            [sys.executable, "-c", program, *order],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == order


@looped("name", ["cli", "kernels", "fit", "os", "__main__", "train.state", "marked", "marked.Toy"])
@looped("module", [None, "os", "fastsvgp.cli", "marked"])
def test_nothing_is_imported_that_a_file_names(tmp_path, monkeypatch, name, module):
    (tmp_path / "marked.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('mark').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "model.npz", {"type": name, "module": module, "fields": {}})
    fs.save(tmp_path / "fine.npz", fs.RBF(1.5, 2.0))
    fs.load(tmp_path / "fine.npz")  # loads all that NumPy needs
    before = set(sys.modules)
    with pytest.raises(
        fs.DataFileError,
        match=f"the file holds a record of type {name!r}, which (.* first, then load again|this )",
    ):
        fs.load(tmp_path / "model.npz")
    assert set(sys.modules) == before and not (tmp_path / "mark").exists()


def test_a_file_says_which_module_to_import(tmp_path, registry):
    path = tmp_path / "rocks.npz"
    Boulder = boulder("my_rocks")
    fs.save(
        path, fs.covariances.Sum((fs.RBF(variance=1.5), Boulder(np.array([2.0, 3.0]), shade="red")))
    )
    header = header_of(path)
    assert header["format"] == persistence.FORMAT == "fastsvgp-record-2"
    rbf, own = header["tree"]["fields"]["parts"]["parts"]
    assert own["module"] == "my_rocks" and "module" not in rbf and "module" not in header["tree"]
    assert type(fs.load(path).parts[1]) is Boulder and fs.load(path).parts[1].shade == "red"
    del registry["my_rocks", "Boulder"]
    message = (
        "the file holds a record of type 'Boulder', which the module 'my_rocks' defines; import it"
        " first, then load again"
    )
    with pytest.raises(fs.DataFileError, match=f"^{message}$"):
        fs.load(path)
    assert "my_rocks" not in sys.modules
    fs.save(path, boulder("__main__")(1.0))
    del registry["__main__", "Boulder"]
    with pytest.raises(
        fs.DataFileError,
        match="'Boulder', which was defined in a script; define it, or import",
    ):
        fs.load(path)


@pytest.mark.parametrize("script", ["__main__", "__mp_main__"])
@pytest.mark.parametrize("saved_by_the_script", [True, False])
def test_a_script_may_be_imported_later(tmp_path, registry, script, saved_by_the_script):
    writer, reader = (script, "my_rocks") if saved_by_the_script else ("my_rocks", script)
    fs.save(tmp_path / "rock.npz", boulder(writer)(1.5))
    del registry[writer, "Boulder"]
    Boulder = boulder(reader)
    with warnings.catch_warnings(action="error"):
        rock = fs.load(tmp_path / "rock.npz")
    assert type(rock) is Boulder and rock.size == 1.5


def test_a_class_that_has_moved_loads_with_a_warning_where_its_fields_fit(tmp_path, registry):
    fs.save(tmp_path / "rock.npz", boulder("my_rocks")(1.5, shade="red"))
    del registry["my_rocks", "Boulder"]
    Boulder = boulder("her_rocks")
    moved = "type 'Boulder' of the module 'my_rocks', but the class of 'her_rocks' is used"
    with pytest.warns(UserWarning, match=moved):
        rock = fs.load(tmp_path / "rock.npz")
    assert type(rock) is Boulder and rock.size == 1.5 and rock.shade == "red"
    header = header_of(tmp_path / "rock.npz")["tree"]
    header["fields"]["weight"] = "float"
    write(tmp_path / "rock.npz", header, size=1.5, weight=2.0)
    lacks = (
        "type 'Boulder' with a field 'weight', but the class in 'her_rocks' has no such field;"
        " load it with"
    )
    with pytest.warns(UserWarning, match=moved), pytest.raises(fs.DataFileError, match=lacks):
        fs.load(tmp_path / "rock.npz")
