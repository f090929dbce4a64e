"""Saved records: round trips, what cannot be saved, and saves that fail."""

import json
import os

import numpy as np
import pytest
from support.record_files import model

import fastsvgp as fs
from fastsvgp import files
from fastsvgp.records import persistence


def test_save_and_load_round_trip(tmp_path):
    path = tmp_path / "model.npz"
    m = model()
    persistence.save(path, m, columns=["a", "b"])
    n, extra = persistence.load_with_extra(path)
    assert extra == {"columns": ["a", "b"]}
    assert repr(n) == repr(m) and isinstance(n.covariance.parts[0].variance, float)
    for (p, _, a), (q, _, b) in zip(fs.records.leaves(m), fs.records.leaves(n), strict=True):
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


def test_settings_may_be_numbers_of_numpy(tmp_path):
    m = fs.replace(
        model(),
        likelihood=fs.likelihoods.RobustMax(
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
        fs.save(
            tmp_path / "n.npz", fs.replace(m, likelihood=fs.likelihoods.RobustMax(num_classes=len))
        )
    assert not (tmp_path / "n.npz").exists()


def test_gradients_with_gaps_can_be_saved(tmp_path):
    g = fs.replace(fs.records.replace_at(model(), "posterior.mean", None), covariance=None)
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


def test_a_setting_that_would_come_back_as_a_tuple_is_not_saved(tmp_path):
    @fs.records.record
    class Masked:
        mask: object = fs.records.static()

    with pytest.raises(TypeError, match="save: the setting `mask` holds an array, .* a tuple of"):
        fs.save(tmp_path / "x.npz", Masked(np.ones(3)))
    for mask in ((1, 0.5), "x", None, True, np.int64(3)):
        fs.save(tmp_path / "x.npz", Masked(mask))
        assert fs.load(tmp_path / "x.npz").mask == mask
