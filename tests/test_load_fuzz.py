"""Fuzzing of ``load``: any header, member or size gives a record or a ``DataFileError``.

``FASTSVGP_TEST_SEED`` determines the files. No other error is allowed, no code of a file runs, and
no file can claim more memory than it has bytes.
"""

import io
import json
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import records

FILES = 300  # of each kind
MEMORY = 2**22  # bytes, in addition to eight per byte of the file


def model():
    covariance = fs.covariances.Sum((fs.RBF(1.5, np.array([1.0, 2.0])), fs.Linear()))
    q = fs.Whitened(np.zeros((3, 4), np.float32), np.tile(np.eye(4, dtype=np.float32), (3, 1, 1)))
    return fs.SVGP(
        covariance,
        np.arange(8.0).reshape(4, 2),
        q,
        fs.likelihoods.RobustMax(num_classes=3),
        fs.means.ConstantMean(0.25),
    )


@pytest.fixture
def members(tmp_path):
    """Return {name: bytes} of the members of a good file."""
    fs.save(tmp_path / "good.npz", model(), note=[1, "two"])
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def load(path, content):
    """Load a file with this content; return a record, or None after a ``DataFileError``.

    Other errors propagate.
    """
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = fs.load(path)
    except fs.DataFileError as error:
        tree = None
        assert str(error).strip()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY + 8 * len(content), f"{peak} bytes for a file of {len(content)}"
    assert tree is None or records.is_record(tree)
    return tree


def archive_of(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def array_file(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


ODD = [
    *(
        None,
        True,
        -1,
        0,
        2**70,
        1e308,
        float("nan"),
        "",
        "float",
        "array",
        "RBF",
        "records",
        "../x",
        "a" * 4000,
        [],
        [None] * 50,
    ),
    *({}, {"type": "RBF"}, {"type": "SVGP", "fields": {}}, {"parts": [None]}, {"static": [1, [2]]}),
    {"type": "Sum", "fields": {"parts": 3}},
]


def places(value, path=()):
    yield path
    for key, below in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from places(below, (*path, key))


def changed(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def test_headers_of_any_kind(tmp_path, members, rng):
    header = json.loads(str(np.load(io.BytesIO(members["__fastsvgp__.npy"]))))
    everywhere, loaded = list(places(header)), 0
    for _ in range(FILES):
        made = header
        for _ in range(rng.integers(1, 3)):
            path = everywhere[rng.integers(len(everywhere))]
            try:
                made = changed(made, path, ODD[rng.integers(len(ODD))])
            except (KeyError, IndexError, TypeError):
                pass  # an earlier change took that place away
        text = array_file(np.array(json.dumps(made)))
        loaded += (
            load(tmp_path / "made.npz", archive_of(members | {"__fastsvgp__.npy": text}))
            is not None
        )
    assert 0 < loaded < FILES  # some changes are good files: another setting, a number less


@pytest.mark.parametrize("depth", [100, 100_000])
def test_headers_nested_without_end(tmp_path, members, depth):
    tree = '{"parts": [' * depth + "]}" * depth
    text = array_file(
        np.array('{"format": "fastsvgp-record-2", "tree": ' + tree + ', "extra": {}}')
    )
    assert load(tmp_path / "made.npz", archive_of(members | {"__fastsvgp__.npy": text})) is None


HEADERS = [{"descr": descr, "fortran_order": order, "shape": shape}
           for descr in ("<f8", "|O", "<U9", "<M8[s]", "|V0", "<c16", "no type", [("a", "<f8")])
           for order in (False,
                         3) for shape in ((), (2,), (-1,), (2**62, 2), (0, 2**62), "12", (1.5,),
                                          None)]  # fmt: skip


def test_members_of_any_kind(tmp_path, members, rng):
    """.npy headers: any dtype, objects too; shapes that are invalid or claim too much."""
    names = [name for name in members if name != "__fastsvgp__.npy"]
    for _ in range(FILES):
        name, header = names[rng.integers(len(names))], HEADERS[rng.integers(len(HEADERS))]
        text = repr(header).encode() + b"\n"
        version = bytes([rng.integers(1, 5), 0])
        length = struct.pack(
            "<H" if version[0] == 1 else "<I", rng.choice([len(text), 0, 65535, len(text) - 3])
        )
        content = b"\x93NUMPY" + version + length + text + bytes(int(rng.integers(0, 64)))
        made = {
            n: content if n == name else old for n, old in members.items() if rng.random() < 0.95
        }
        load(tmp_path / "made.npz", archive_of(made))


def test_directories_of_any_kind(tmp_path, members, rng):
    """Sizes, offsets, counts and names in the records that close a zip file."""
    content = archive_of(members)
    start = content.index(b"PK\x01\x02")
    sizes = [0, 1, 2**16 - 1, 2**31, 2**32 - 1, len(content), -len(content) % 2**32]
    for _ in range(FILES):
        made = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(start, len(made) - 4))
            made[at : at + 4] = struct.pack("<I", sizes[rng.integers(len(sizes))])
        load(tmp_path / "made.npz", bytes(made))


def test_other_bytes(tmp_path, rng):
    for start in (b"", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"\x80\x04"):
        for size in (0, 1, 21, 22, 300):
            assert load(tmp_path / "made.npz", start + rng.bytes(size)) is None
