"""Files that are no models, are damaged, or claim to be more than they are."""

import io
import json
import zipfile

import numpy as np
import pytest
from support.record_files import model, write

import fastsvgp as fs
from fastsvgp.records import persistence


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
