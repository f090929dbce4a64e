"""Several files of rows are one array of rows."""

import numpy as np
import pytest

import fastsvgp as fs

SIZES = 7, 1, 0, 12


@pytest.fixture
def files(tmp_path, rng):
    """``(paths, all rows)``."""
    whole, paths, start = rng.standard_normal((sum(SIZES), 3)), [], 0
    for i, size in enumerate(SIZES):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], whole[start : start + size])
        start += size
    return paths, whole


def test_rows_by_number_and_slice(files, rng):
    paths, whole = files
    rows = fs.records.row_files(paths)
    assert (len(rows), rows.shape, rows.dtype) == (20, (20, 3), np.float64)
    np.testing.assert_array_equal(rows, whole)
    slices = slice(5, 9), slice(None), slice(3, 3), slice(1, 18, 4)
    for at in (*slices, np.array([0, 6, 7, 8, 19]), rng.permutation(20), 8, whole[:, 0] > 0):
        np.testing.assert_array_equal(rows[at], whole[at])


def test_training_on_files_is_training_on_one(files, tmp_path, rng):
    paths, whole = files
    Y = rng.standard_normal(20)
    model = fs.SVGP(
        fs.RBF(1.0, np.ones(3)),
        whole[:4].copy(),
        fs.Whitened(np.zeros(4), np.eye(4)),
        fs.Gaussian(0.1),
    )
    np.save(tmp_path / "whole.npy", whole)
    for batch_size in (6, 20):
        options = {"steps": 9, "batch_size": batch_size, "rng": 0}
        one, _ = fs.fit(model, np.load(tmp_path / "whole.npy", mmap_mode="r"), Y, **options)
        for run in (
            fs.fit(model, fs.records.row_files(paths), Y, **options),
            fs.distributed.threads(1).run(
                lambda group, o=options: fs.fit(
                    model, fs.records.row_files(paths), Y, group=group, **o
                )
            )[0],
        ):
            for (_, _, a), (_, _, b) in zip(
                fs.records.leaves(run[0]), fs.records.leaves(one), strict=True
            ):
                np.testing.assert_array_equal(a, b)


def test_files_that_do_not_fit_are_named(files, tmp_path):
    paths, whole = files
    for name, array, message in (
        (
            "narrow.npy",
            whole[:, :2],
            r"narrow.npy has rows of shape \(2,\), and .*0.npy has \(3,\)",
        ),
        (
            "single.npy",
            whole.astype(np.float32),
            r"single.npy has dtype float32, and .*0.npy has float64",
        ),
        ("number.npy", np.array(1.0), "holds no array of rows"),
    ):
        np.save(tmp_path / name, array)
        with pytest.raises(fs.DataFileError, match=message):
            fs.records.row_files([*paths, tmp_path / name])
    (tmp_path / "text.npy").write_text("a, b")
    with pytest.raises(fs.DataFileError, match="not a .npy file"):
        fs.records.row_files([tmp_path / "text.npy"])
    with pytest.raises(FileNotFoundError):
        fs.records.row_files([tmp_path / "nowhere.npy"])
    with pytest.raises(ValueError, match="empty"):
        fs.records.row_files([])


def test_row_numbers_are_those_of_numpy(tmp_path, rng):
    whole = rng.standard_normal((9, 2))
    for i, part in enumerate(np.split(whole, [4])):
        np.save(tmp_path / f"{i}.npy", part)
    rows = fs.records.row_files([tmp_path / "0.npy", tmp_path / "1.npy"])
    for taken in (-1, [-1, 0, -9], np.array([1, 8], np.uint64), whole[:, 0] > 0, np.array([], int)):
        np.testing.assert_array_equal(rows[taken], whole[taken])
    assert fs.records.row_files(tmp_path / "0.npy").shape == (4, 2)  # a path, as text would be
    for taken in (9, [-10], (slice(None), 0), [[0, 1]], np.ones(5, bool), [0.5]):
        with pytest.raises(IndexError, match="row_files: "):
            rows[taken]
