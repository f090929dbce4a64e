"""Records: leaves, maps, and files that are complete or absent."""

import copy
import importlib
import inspect
import io
import json
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest
from support import format_1, format_2

import fastsvgp as fs
from fastsvgp import files, means, records
from fastsvgp.records import decorator, persistence, registry as catalogue, treedef_of


def model():
    covariance = fs.Sum(
        (fs.RBF(1.5, np.array([1.0, 2.0])), fs.Product((fs.Linear(), fs.Constant(0.5))))
    )
    posterior = fs.Whitened(
        np.zeros((3, 4), np.float32), np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    )
    return fs.SVGP(
        covariance,
        np.arange(8.0).reshape(4, 2),
        posterior,
        fs.RobustMax(num_classes=3),
        fs.ConstantMean(0.25),
    )


def test_leaves_name_every_number_in_order():
    assert [path for path, _, _ in fs.leaves(model())] == [
        "covariance.parts.0.variance",
        "covariance.parts.0.lengthscales",
        "covariance.parts.1.parts.0.variance",
        "covariance.parts.1.parts.1.variance",
        "inducing",
        "posterior.mean",
        "posterior.scale_tril",
        "mean.value",
    ]
    kinds = {path: kind for path, kind, _ in fs.leaves(model())}
    assert kinds["posterior.scale_tril"] == "tril" and kinds["inducing"] == "real"
    assert kinds["covariance.parts.0.variance"] == "positive"


def test_tree_map_keeps_settings_and_gaps():
    m = model()
    doubled = fs.tree_map(lambda a, b: a + b, m, m)
    assert doubled.covariance.parts[0].variance == 3.0 and doubled.likelihood.num_classes == 3
    assert doubled.posterior.mean.dtype == np.float32
    gap = fs.replace_at(m, "covariance.parts.0.lengthscales", None)
    assert fs.tree_map(lambda a, b: a + b, m, gap).covariance.parts[0].lengthscales is None
    assert fs.tree_map(np.negative, fs.replace(m, mean=None)).mean is None


def test_replace_at_changes_one_leaf_and_nothing_else():
    m = model()
    n = fs.replace_at(m, "covariance.parts.1.parts.0.variance", 9.0)
    assert (
        n.covariance.parts[1].parts[0].variance == 9.0
        and m.covariance.parts[1].parts[0].variance == 1.0
    )
    assert n.posterior is m.posterior
    for path in (
        "covariance.nothing",
        "covariance.parts.2",
        "covariance.parts.-1",
        "covariance.matrix",
        "mean.value.deeper",
        "",
    ):
        with pytest.raises(
            ValueError,
            match="`path` .* is not a field of this SVGP; it has covariance.parts.0.variance",
        ):
            fs.replace_at(m, path, 1.0)
    with pytest.raises(TypeError, match="`path` must be a dotted path"):
        fs.replace_at(m, 3, 1.0)
    with pytest.raises(TypeError, match="`tree` must be a fastsvgp record, got dict"):
        fs.replace_at({}, "mean", 1.0)
    with pytest.raises(AttributeError):  # frozen
        m.mean = None


def test_repr_shows_shapes_not_numbers():
    assert (
        repr(model().posterior) == "Whitened(mean=<float32 (3, 4)>, scale_tril=<float32 (3, 4, 4)>)"
    )
    assert "Constant(variance=0.5)" in repr(model())


def test_save_and_load_round_trip(tmp_path):
    path = tmp_path / "model.npz"
    m = model()
    persistence.save(path, m, columns=["a", "b"])
    n, extra = persistence.load_with_extra(path)
    assert extra == {"columns": ["a", "b"]}
    assert repr(n) == repr(m) and isinstance(n.covariance.parts[0].variance, float)
    for (p, _, a), (q, _, b) in zip(fs.leaves(m), fs.leaves(n), strict=True):
        assert p == q and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)
    assert fs.load(path).likelihood.num_classes == 3
    assert os.listdir(tmp_path) == ["model.npz"]
    with np.load(path, allow_pickle=False) as file:  # plain arrays: no pickle
        assert json.loads(str(file["__fastsvgp__"]))["format"] == persistence.FORMAT


def test_numbers_of_numpy_keep_their_dtype(tmp_path):
    path = tmp_path / "model.npz"
    for number in (np.float64(0.5), np.float32(0.5), 0.5):
        fs.save(path, fs.Gaussian(number))
        assert type(fs.load(path).variance) is type(number)


def test_tuples_of_numbers_are_numbers(tmp_path):
    m = fs.replace_at(model(), "covariance.parts.0.lengthscales", (1.0, 2.0))
    np.testing.assert_array_equal(
        dict((p, v) for p, _, v in fs.leaves(m))["covariance.parts.0.lengthscales"], [1.0, 2.0]
    )
    assert fs.tree_map(np.shape, m).covariance.parts[0].lengthscales == (2,)
    vector, unravel = fs.ravel(m)
    np.testing.assert_array_equal(vector, fs.ravel(model())[0])
    np.testing.assert_allclose(unravel(vector).covariance.parts[0].lengthscales, [1.0, 2.0])
    fs.save(tmp_path / "m.npz", m)
    np.testing.assert_array_equal(
        fs.load(tmp_path / "m.npz").covariance.parts[0].lengthscales, [1.0, 2.0]
    )


def test_settings_may_be_numbers_of_numpy(tmp_path):
    m = fs.replace(
        model(),
        likelihood=fs.RobustMax(
            num_classes=np.array([0, 1, 2]).max() + 1, epsilon=np.float32(0.25)
        ),
    )
    persistence.save(tmp_path / "m.npz", m, edges=np.arange(3))
    n, extra = persistence.load_with_extra(tmp_path / "m.npz")
    assert (
        n.likelihood.num_classes == 3
        and n.likelihood.epsilon == 0.25
        and extra == {"edges": [0, 1, 2]}
    )
    with pytest.raises(TypeError, match="save: .* cannot be stored"):
        fs.save(tmp_path / "n.npz", fs.replace(m, likelihood=fs.RobustMax(num_classes=len)))
    assert not (tmp_path / "n.npz").exists()


def test_records_can_be_copied_and_pickled():
    m = model()
    for other in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert repr(other) == repr(m) and type(other) is fs.SVGP
        for (_, _, a), (_, _, b) in zip(fs.leaves(m), fs.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_with_gaps_can_be_saved(tmp_path):
    g = fs.replace(fs.replace_at(model(), "posterior.mean", None), covariance=None)
    fs.save(tmp_path / "g.npz", g)
    h = fs.load(tmp_path / "g.npz")
    assert h.posterior.mean is None and h.covariance is None


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    fs.save(path, model())
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        fs.save(path, model())
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.npz"]


def test_what_is_no_path_and_what_json_can_not_hold_is_refused(tmp_path, capfd):
    for wrong in (1, True, None):
        with pytest.raises(
            TypeError, match=r"save: `path` must be a path \(text or os.PathLike\), got "
        ):
            fs.save(wrong, model())
    assert capfd.readouterr().out == ""  # 1 is an open file: standard output
    path = tmp_path / "model.npz"
    for extra in (np.longdouble(1), [np.longdouble(1)], np.ones(2, np.longdouble)):
        if np.dtype(np.longdouble) != np.float64:
            with pytest.raises(
                TypeError,
                match=r"save: .* of dtype (float|longdouble).* convert it with float\(...\)",
            ):
                fs.save(path, model(), scale=extra)
    with pytest.raises(TypeError, match="cannot be stored"):
        fs.save(path, model(), scale=np.complex128(1j))
    assert os.listdir(tmp_path) == []
    fs.save(os.fsencode(path), model(), scale=np.float32(1.5))
    assert persistence.load_with_extra(path)[1] == {"scale": 1.5}


def test_links_are_followed_and_devices_are_written_to(tmp_path):
    (tmp_path / "target.npz").write_bytes(b"old")
    (tmp_path / "link.npz").symlink_to("target.npz")
    fs.save(tmp_path / "link.npz", fs.RBF(1.5, 2.0))
    assert (tmp_path / "link.npz").is_symlink() and fs.load(tmp_path / "target.npz").variance == 1.5
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_atomically(tmp_path / "pipe", lambda file: file.write(b"content"))
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 3


def test_wrong_files_are_named(tmp_path):
    text = tmp_path / "text.npz"
    text.write_text("not a model")
    with pytest.raises(fs.DataFileError, match=r"text\.npz is not a fastsvgp model"):
        fs.load(text)
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, a=np.ones(3))
    with pytest.raises(fs.DataFileError, match="it has no header"):
        fs.load(arrays)
    plain = tmp_path / "plain.npy"
    np.save(plain, np.ones(3))
    with pytest.raises(fs.DataFileError, match="not a fastsvgp model"):
        fs.load(plain)
    cut = tmp_path / "cut.npz"
    fs.save(cut, model())
    cut.write_bytes(cut.read_bytes()[:-200])
    with pytest.raises(fs.DataFileError):
        fs.load(cut)
    other = tmp_path / "other.npz"
    np.savez(other, __fastsvgp__=np.array(json.dumps({"format": "fastsvgp-record-99"})))
    with pytest.raises(fs.DataFileError, match="fastsvgp-record-99"):
        fs.load(other)
    alien = tmp_path / "alien.npz"
    np.savez(
        alien,
        __fastsvgp__=np.array(
            json.dumps({"format": persistence.FORMAT, "tree": {"type": "Nope", "fields": {}}})
        ),
    )
    with pytest.raises(fs.DataFileError, match="Nope"):
        fs.load(alien)
    with pytest.raises(FileNotFoundError):
        fs.load(tmp_path / "absent.npz")


def test_any_damaged_byte_is_a_damaged_file(tmp_path, rng):
    """Or has no effect in unused bytes; no other error of zipfile or NumPy escapes."""
    path = tmp_path / "model.npz"
    fs.save(path, fs.RBF(1.5, np.ones(2)))
    content = path.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            fs.load(path)
        except fs.DataFileError as error:
            assert "model.npz" in str(error)
        path.write_bytes(content[:at])
        with pytest.raises(fs.DataFileError, match="model.npz"):
            fs.load(path)


def test_save_takes_records_only(tmp_path):
    with pytest.raises(TypeError, match="`tree` must be a fastsvgp record"):
        fs.save(tmp_path / "x.npz", {"a": 1})


@pytest.mark.parametrize("wrong", [[fs.RBF(), fs.RBF()], object()])
def test_what_is_no_number_and_no_record_is_not_saved(tmp_path, wrong):
    with pytest.raises(
        TypeError,
        match=(
            "save: `inducing` cannot be stored; it must be numbers, a record or a tuple of records"
        ),
    ):
        fs.save(tmp_path / "x.npz", fs.replace(model(), inducing=wrong))
    with pytest.raises(TypeError, match="save: `variance` cannot be stored"):
        fs.save(tmp_path / "x.npz", fs.RBF(variance=wrong))
    assert os.listdir(tmp_path) == []


def test_a_default_may_be_given_by_position_or_by_name():
    @records.record
    class ByPosition:
        size: Any = records.leaf("positive", 2.0)
        setting: Any = records.static(3)

    @records.record
    class ByName:
        size: Any = records.leaf("positive", default=2.0)
        setting: Any = records.static(default=3)

    for kind in (ByPosition, ByName):
        assert (kind().size, kind().setting, kind(size=1.0).size) == (2.0, 3, 1.0)
        assert list(fs.leaves(kind())) == [("size", "positive", 2.0)]


class TestSettingsAreKeywordOnly:
    """In any class of the hierarchy, with or without a default."""

    @pytest.fixture
    def Sieve(self):
        @records.record
        class Sieve:
            rows: Any = records.static()
            width: Any = records.leaf("positive")
            depth: Any = records.leaf(default=2.0)
            colour: Any = records.static(default="grey")
            holes: Any = records.static()

        return Sieve

    def test_by_name(self, Sieve):
        with warnings.catch_warnings(action="error"):
            for sieve in (
                Sieve(1.0, rows=3, holes=4),
                Sieve(1.0, 2.0, colour="grey", holes=4, rows=3),
                Sieve(rows=3, width=1.0, holes=4),
                fs.replace(Sieve(5.0, rows=3, holes=4), width=1.0),
            ):
                assert repr(sieve) == "Sieve(rows=3, width=1.0, depth=2.0, colour='grey', holes=4)"
            assert fs.Softmax(num_classes=3).num_classes == 3 and fs.StudentT(0.3, df=5.0).df == 5.0
        assert [path for path, _, _ in fs.leaves(sieve)] == ["width", "depth"]
        assert str(inspect.signature(Sieve)).startswith(
            "(width: Any, depth: Any = 2.0, *, rows: Any, "
        )

    @pytest.mark.parametrize(
        "make, line",
        [
            (lambda _: fs.StudentT(0.3, 4.0), "StudentT(..., df=4.0)"),
            (lambda _: fs.StudentT(0.3, 4.0, 30), "StudentT(..., df=4.0, num_nodes=30)"),
            (lambda _: fs.Poisson(2.0), "Poisson(exposure=2.0)"),
            (lambda _: fs.Softmax(3, 16), "Softmax(num_classes=3, num_samples=16)"),
            (
                lambda _: fs.LikelihoodForm(0.0, 1.0, False),
                "LikelihoodForm(..., preconditioned=False)",
            ),
            (
                lambda _: fs.RandomFourier(fs.RBF(), 8, 3),
                "RandomFourier(..., num_features=8, seed=3)",
            ),
            (
                lambda _: fs.Convolutional(fs.RBF(), 1.0, None, (4, 4)),
                "Convolutional(..., image_shape=(4, 4))",
            ),
            (
                lambda Sieve: Sieve(3, 1.0, 2.0, 4, "red"),
                "Sieve(..., rows=3, holes=4, colour='red')",
            ),
            (lambda Sieve: Sieve(1.0, 2.0, "red", rows=3, holes=4), "Sieve(..., colour='red')"),
        ],
    )
    def test_by_position_they_are_refused_with_the_line_to_write(self, Sieve, make, line):
        with pytest.raises(
            TypeError, match=re.escape(f"settings are keyword-only: write {line}") + "$"
        ):
            make(Sieve)

    @pytest.mark.parametrize("make, line", [
        (lambda _: fs.Softmax(3), "Softmax(num_classes=3)"),
        (lambda _: fs.RobustMax(3, epsilon=0.1), "RobustMax(num_classes=3)"),
        (lambda _: fs.RandomFourier(fs.RBF(), 8, seed=1), "RandomFourier(..., num_features=8)"),
        (lambda Sieve: Sieve(3, 1.0, 2.0, 4), "Sieve(..., rows=3, holes=4)"),
        (lambda Sieve: Sieve(3, 1.0, holes=4), "Sieve(..., rows=3)"),
    ])  # fmt: skip
    def test_those_without_a_default_still_come_in_their_place(self, Sieve, make, line):
        """As before, with a warning whose line gives the same record."""
        with pytest.warns(DeprecationWarning, match=re.escape(f"write {line};")) as found:
            made = make(Sieve)
        assert found[0].filename == __file__
        settings = {
            name: getattr(made, name) for name, kind in made._record_fields if kind == "static"
        }
        assert all(repr(settings[name]) == value for name, value in re.findall(r"(\w+)=(\d)", line))
        assert "width" not in vars(made) or made.width == 1.0

    def test_those_of_a_record_that_another_extends_do_too(self, Sieve):
        @records.record
        class Mesh(Sieve):
            pass

        with pytest.warns(DeprecationWarning, match=re.escape("write Mesh(..., rows=3, holes=4);")):
            assert Mesh(3, 1.0, 2.0, 4).depth == 2.0
        assert Mesh(1.0, rows=3, holes=4).width == 1.0

    @pytest.mark.parametrize("make", [
        lambda Sieve: fs.Softmax(),
        lambda Sieve: fs.RandomFourier(fs.RBF()),
        lambda Sieve: fs.Convolutional(fs.RBF(), 1.0),
        lambda Sieve: Sieve(1.0, rows=3),
        lambda Sieve: fs.Gaussian(1.0, 2.0),
    ])  # fmt: skip
    def test_what_else_is_wrong_python_says(self, Sieve, make):
        with pytest.raises(TypeError, match="missing|takes from 1 to 2"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(Sieve)


def test_whatever_stands_in_a_field_can_be_shown():
    shown = repr(fs.RBF(variance=[1, [2]], lengthscales=np.ones(2)))
    assert shown == "RBF(variance=[1, [2]], lengthscales=<float64 (2,)>)"


def test_a_record_in_the_place_of_a_number_is_no_number():
    model = fs.RBF(variance=fs.RBF())
    assert [path for path, _, _ in fs.leaves(model)] == ["variance", "lengthscales"]


# --- files that claim to be more than they are ----------------------------------------------------


def rewritten(path, name, change, compression=zipfile.ZIP_STORED):
    """The archive at ``path`` with the bytes of one member changed."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def with_shape(content, shape):
    """The same .npy file with another shape in its header."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue() + content[-8:]


@pytest.mark.parametrize("shape", [(10**11, 3), (2**63, 2**63), (2,), (0,)])
def test_a_header_that_claims_other_sizes_than_its_member_has(tmp_path, shape):
    path = tmp_path / "model.npz"
    fs.save(path, fs.RBF(1.5, np.array([2.0])))
    rewritten(path, "lengthscales.npy", lambda content: with_shape(content, (1,)))
    np.testing.assert_array_equal(fs.load(path).lengthscales, [2.0])
    rewritten(path, "lengthscales.npy", lambda content: with_shape(content, shape))
    with pytest.raises(
        fs.DataFileError, match=r"model.npz is damaged: lengthscales.npy claims \d+ bytes.*holds 8"
    ):
        fs.load(path)


def test_compressed_members_are_refused(tmp_path):
    """They can expand a thousandfold: 10 MB of zeros in 10 kB."""
    path = tmp_path / "model.npz"
    fs.save(path, fs.RBF(1.5, np.zeros(10**6)))
    rewritten(path, "lengthscales.npy", lambda content: content, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    with pytest.raises(fs.DataFileError, match="compressed members.*again with numpy.savez"):
        fs.load(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays)  # as the message says
    assert fs.load(path).lengthscales.size == 10**6


def test_members_that_claim_more_than_the_file_has(tmp_path):
    path = tmp_path / "model.npz"
    fs.save(path, fs.RBF(1.5, np.ones(3)))
    content = bytearray(path.read_bytes())
    # the entry of the first member in the directory: its two sizes
    at = content.index(b"PK\x01\x02")
    content[at + 20 : at + 28] = (2**31).to_bytes(4, "little") * 2
    path.write_bytes(content)
    with pytest.raises(
        fs.DataFileError,
        match="model.npz is damaged: its members claim more bytes than the file has",
    ):
        fs.load(path)


def test_a_plain_array_that_claims_to_be_huge(tmp_path):
    path = tmp_path / "array.npy"
    path.write_bytes(with_shape(b"\0" * 8, (10**11,)))
    with pytest.raises(fs.DataFileError, match="array.npy is not a fastsvgp model"):
        fs.load(path)


# --- the names of records -------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    """The registered records, for one test to change."""
    monkeypatch.setattr(decorator, "REGISTRY", dict(decorator.REGISTRY))
    return decorator.REGISTRY


def boulder(module):
    """A record as a module of that name would define it."""

    @records.record
    class Boulder:
        __module__ = module
        size: Any = records.leaf("positive")
        shade: Any = records.static(default="grey")

    return Boulder


def header_of(path):
    with np.load(path, allow_pickle=False) as file:
        return json.loads(str(file["__fastsvgp__"]))


def write(path, tree, version=persistence.FORMAT, **arrays):
    """Write a file with any header."""
    with open(path, "wb") as file:
        np.savez(
            file,
            __fastsvgp__=np.array(json.dumps({"format": version, "tree": tree, "extra": {}})),
            **arrays,
        )


def test_the_catalogue_holds_our_records_and_no_others():
    # the last two need optional packages
    others = {
        "fastsvgp.__main__",
        "fastsvgp.interop.jax",
        "fastsvgp.interop.torch",
        "fastsvgp.interop.torch_once",
    }
    for module in pkgutil.walk_packages(fs.__path__, "fastsvgp."):
        if module.name not in others:
            importlib.import_module(module.name)
    ours = {
        name: cls.__module__
        for name, cls in records.REGISTRY.items()
        if cls.__module__.startswith("fastsvgp.")
    }
    assert ours == {name: f"fastsvgp.{module}" for name, module in catalogue.OURS.items()}


def test_files_do_not_know_private_records(registry):
    @records.private_record
    class Pebble:
        size: Any = records.leaf("positive")

    assert records.is_record(Pebble(1.0)) and "Pebble" not in registry
    assert [(path, kind) for path, kind, _ in fs.leaves(Pebble([1.0]))] == [("size", "positive")]
    assert not [name for name in catalogue.OURS if name.startswith("_")]
    with pytest.raises(AttributeError):  # frozen
        Pebble(1.0).size = 2.0

    @records.record
    class Pebble:  # the name stays free
        size: Any = records.leaf("positive")

    assert registry["Pebble"] is Pebble


def test_a_name_belongs_to_one_module(registry):
    # by a reload, or in the cell of a notebook
    first, again = boulder("my_rocks"), boulder("my_rocks")
    assert (
        registry["Boulder"] is again
        and records.is_record(first(1.0))
        and records.is_record(again(1.0))
    )
    for other in ("her_rocks", "__main__"):
        taken = (
            f"'{other}' defines a record 'Boulder', but 'my_rocks' already has one of that name"
            ".*rename one.*under one name only"
        )
        with pytest.raises(TypeError, match=taken):
            boulder(other)
    assert registry["Boulder"] is again


@pytest.mark.parametrize("imported", [True, False])
def test_our_names_are_taken_whether_or_not_they_are_imported(registry, imported):
    ours = means.ZeroMean
    if not imported:
        del registry["ZeroMean"]

    def zero_mean(module):
        @records.record
        class ZeroMean:
            __module__ = module

        return ZeroMean

    with pytest.raises(
        TypeError,
        match="'my_means' defines a record 'ZeroMean', but 'fastsvgp.means' already has one",
    ):
        zero_mean("my_means")
    assert registry.get("ZeroMean") is (ours if imported else None)
    assert zero_mean("fastsvgp.means") is registry["ZeroMean"]  # as a reload of that module does


def test_our_records_load_whatever_was_imported(tmp_path):
    """In a new process, in both orders, because some records import others."""
    optimiser = fs.by_field(fs.adam(fs.schedules.plateau(0.1)), {"variance": fs.sgd(0.1)})
    state = optimiser.init(fs.RBF(1.5, 2.0))
    training = fs.TrainingState(model(), state)
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


@pytest.mark.parametrize(
    "name", ["cli", "kernels", "fit", "os", "__main__", "train.state", "marked", "marked.Toy"]
)
@pytest.mark.parametrize("module", [None, "os", "fastsvgp.cli", "marked"])
@pytest.mark.parametrize("version", persistence.READABLE)
def test_nothing_is_imported_that_a_file_names(tmp_path, monkeypatch, name, module, version):
    (tmp_path / "marked.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('mark').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "model.npz", {"type": name, "module": module, "fields": {}}, version)
    fs.save(tmp_path / "fine.npz", fs.RBF(1.5, 2.0))
    fs.load(tmp_path / "fine.npz")  # loads all that NumPy needs
    before = set(sys.modules)
    with pytest.raises(
        fs.DataFileError,
        match=f"the file holds a record of type {name!r}, which .* first, then load again",
    ):
        fs.load(tmp_path / "model.npz")
    assert set(sys.modules) == before and not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "tree",
    [{"type": "RBF"}, {"type": ["RBF"], "fields": {}}, {"type": "No", "module": [1], "fields": {}}],
)
def test_headers_of_no_sense_are_damage(tmp_path, tree):
    write(tmp_path / "model.npz", tree)
    with pytest.raises(
        fs.DataFileError, match="model.npz is not a fastsvgp model, or it is damaged"
    ):
        fs.load(tmp_path / "model.npz")


def test_a_file_says_which_module_to_import(tmp_path, registry):
    path = tmp_path / "rocks.npz"
    Boulder = boulder("my_rocks")
    fs.save(path, fs.Sum((fs.RBF(variance=1.5), Boulder(np.array([2.0, 3.0]), shade="red"))))
    header = header_of(path)
    assert header["format"] == persistence.FORMAT == "fastsvgp-record-2"
    rbf, own = header["tree"]["fields"]["parts"]["parts"]
    assert own["module"] == "my_rocks" and "module" not in rbf and "module" not in header["tree"]
    assert type(fs.load(path).parts[1]) is Boulder and fs.load(path).parts[1].shade == "red"
    del registry["Boulder"]
    message = (
        "the file holds a record of type 'Boulder', which the module 'my_rocks' defines; import it"
        " first, then load again"
    )
    with pytest.raises(fs.DataFileError, match=f"^{message}$"):
        fs.load(path)
    assert "my_rocks" not in sys.modules
    fs.save(path, boulder("__main__")(1.0))
    del registry["Boulder"]
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
    del registry["Boulder"]
    Boulder = boulder(reader)
    with warnings.catch_warnings(action="error"):
        rock = fs.load(tmp_path / "rock.npz")
    assert type(rock) is Boulder and rock.size == 1.5


def test_a_class_that_has_moved_loads_with_a_warning_where_its_fields_fit(tmp_path, registry):
    fs.save(tmp_path / "rock.npz", boulder("my_rocks")(1.5, shade="red"))
    del registry["Boulder"]
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


# --- files of format 1 ----------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path):
    """A function that writes one of the old files and returns its path."""

    def write(name):
        (tmp_path / name).write_bytes(format_1.content(name))
        assert header_of(tmp_path / name)["format"] == "fastsvgp-record-1"
        return tmp_path / name

    return write


def assert_leaves(tree, **expected):
    found = {
        path.replace(".", "_"): value for path, _, value in fs.leaves(tree) if value is not None
    }
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(
            found[path], value, err_msg=path, strict=isinstance(value, np.ndarray)
        )
        assert type(found[path]) is type(value), path


COMMON = {
    "covariance_variance": 1.5,
    "covariance_lengthscales": np.array([0.5]),
    "inducing": np.array([[-0.5], [0.75]]),
}
MEAN, TRIL = np.array([0.5, -1.0]), np.array([[0.5, 0.0], [-0.25, 1.0]])


def test_models_of_format_1(tmp_path, old):
    expected = {
        **COMMON,
        "posterior_mean": MEAN,
        "posterior_scale_tril": TRIL,
        "likelihood_variance": 0.25,
        "mean_value": 0.125,
    }
    svgp = fs.load(old("SVGP"))
    kinds = [
        type(part) for part in (svgp, svgp.covariance, svgp.posterior, svgp.likelihood, svgp.mean)
    ]
    assert kinds == [fs.SVGP, fs.RBF, fs.Whitened, fs.Gaussian, fs.ConstantMean]
    assert_leaves(svgp, **expected)
    fs.save(tmp_path / "again", svgp)
    assert header_of(tmp_path / "again")["format"] == persistence.FORMAT
    assert_leaves(fs.load(tmp_path / "again"), **expected)
    sgpr = fs.load(old("SGPR"))
    assert type(sgpr) is fs.SGPR and sgpr.mean is None
    assert_leaves(sgpr, **COMMON, noise_variance=0.25)


def test_models_of_format_2(tmp_path):
    """They load, whatever ``save`` writes later."""
    for name in ("SVGP", "SGPR"):
        (tmp_path / name).write_bytes(format_2.content(name))
        assert header_of(tmp_path / name)["format"] == "fastsvgp-record-2"
    svgp, extra = fs.load_with_extra(tmp_path / "SVGP")
    assert extra == {"note": [1, "two"]} and [type(part) for part in svgp.covariance.parts] == [
        fs.RBF,
        fs.Linear,
    ]
    assert type(svgp.likelihood) is fs.StudentT and (
        svgp.likelihood.df,
        svgp.likelihood.num_nodes,
    ) == (3.0, 20)
    expected = {
        f"covariance_parts_0_{name[11:]}": value
        for name, value in COMMON.items()
        if name.startswith("covariance")
    }
    expected |= {
        "covariance_parts_1_variance": 0.5,
        "inducing": COMMON["inducing"],
        "posterior_mean": MEAN,
    }
    assert_leaves(
        svgp, **expected, posterior_scale_tril=TRIL, likelihood_scale=0.25, mean_value=0.125
    )
    sgpr = fs.load(tmp_path / "SGPR")
    assert type(sgpr) is fs.SGPR and sgpr.mean is None
    assert_leaves(sgpr, **COMMON, noise_variance=0.25)


def test_training_goes_on_from_a_checkpoint_of_format_1(old):
    path = old("TrainingState")
    state = fs.load(path)
    assert (
        type(state) is fs.TrainingState
        and type(state.model) is fs.SVGP
        and type(state.model.posterior) is fs.Whitened
    )
    assert (state.step, state.seed, state.num_data, state.batch_size) == (2, 3, 4, 2)
    assert (
        state.optimiser.count == 2
        and state.optimiser.first.shape == (11,)
        and state.values.shape == (2,)
    )
    start, optimiser = fs.load(old("SVGP")), fs.adam(0.125)
    model, info = fs.fit(
        start, format_1.X, format_1.Y, steps=4, optimiser=optimiser, resume=path, **format_1.OPTIONS
    )
    np.testing.assert_array_equal(info.values[:2], state.values)
    straight, _ = fs.fit(
        start, format_1.X, format_1.Y, steps=4, optimiser=optimiser, **format_1.OPTIONS
    )
    for (path, _, a), (_, _, b) in zip(fs.leaves(model), fs.leaves(straight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=path)


def test_a_setting_that_a_record_no_longer_has(tmp_path, old, registry):
    expected = {
        **COMMON,
        "posterior_mean": MEAN,
        "posterior_variance": np.array([0.25, 0.5]),
        "posterior_inverse_tril": TRIL,
    }
    expected |= {"likelihood_variance": 0.25, "mean_value": 0.125}
    path = old("Relaxed")

    @records.record
    class Relaxed:
        __module__ = "fastsvgp.posteriors.relaxed"
        mean: Any = records.leaf()
        variance: Any = records.leaf("positive")
        inverse_tril: Any = records.leaf("tril")
        preconditioned: Any = records.static(default=True)

    gone = (
        r"a Relaxed with direction='likelihood', a field that was removed: pass it to training as "
    )
    advice = r'fit\(..., inverse_updates=fs.inverse_updates\(direction="likelihood"\)\)$'
    with pytest.warns(UserWarning, match=gone + advice) as found:
        model = fs.load(path)
    assert (
        found[0].filename == __file__
        and type(model.posterior) is Relaxed
        and model.posterior.preconditioned is True
    )
    assert_leaves(model, **expected)
    tree = header_of(path)["tree"]
    settings = tree["fields"]["posterior"]["fields"]
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "__fastsvgp__"}
    settings["direction"]["static"] = "exact"  # its default
    write(path, tree, "fastsvgp-record-1", **arrays)
    with warnings.catch_warnings(action="error"):
        assert_leaves(fs.load(path), **expected)
    settings["directions"] = settings.pop("direction")
    write(path, tree, "fastsvgp-record-1", **arrays)
    with pytest.raises(
        fs.DataFileError,
        match="type 'Relaxed' with a field 'directions', but the class in",
    ):
        fs.load(path)


def test_a_setting_is_dropped_only_where_the_record_has_it_no_longer(old):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        posterior = fs.load(old("Relaxed")).posterior
    stays = "direction" in dict(fs.Relaxed._record_fields)
    assert type(posterior) is fs.Relaxed and len(found) == (not stays)
    assert not stays or posterior.direction == "likelihood"


def test_a_tree_definition_is_pickled_as_the_one_that_there_is():
    definition = treedef_of(model())
    assert pickle.loads(pickle.dumps(definition)) is definition
    assert copy.deepcopy(definition) is definition
