"""Data of ``fit``: containers, masked arrays, memory maps and bad rows."""

import numpy as np
import pytest
from support.fit_problems import assert_same, classes, problem

import fastsvgp as fs


class Series:
    """The parts of pandas.Series that matter here: an index, and brackets that look up labels."""

    iloc = None

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, labels):
        return self.values[::-1][labels]


def test_rows_are_taken_by_number_not_by_label(rng):
    model, X, Y = problem(rng)
    expected = fs.fit(model, X, Y, steps=5, batch_size=10, rng=0)[0]
    assert_same(fs.fit(model, Series(X), Series(Y), steps=5, batch_size=10, rng=0)[0], expected)
    assert_same(fs.fit(model, X.tolist(), Y.tolist(), steps=5, batch_size=10, rng=0)[0], expected)


class Masking:
    """Rows as masked arrays, as in netCDF4."""

    def __init__(self, values, hidden):
        self._values, self.shape, self.dtype = (
            np.ma.masked_array(values, hidden),
            values.shape,
            values.dtype,
        )

    def __len__(self):
        return len(self._values)

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __getitem__(self, rows):
        return self._values[rows]


@pytest.mark.parametrize("batch_size", [16, 60])
@pytest.mark.parametrize("name", ["X", "Y"])
def test_masked_and_non_numeric_entries_are_refused(rng, name, batch_size):
    model, X, Y = problem(rng)
    data = {"X": X, "Y": Y}
    hidden = np.zeros(data[name].shape, bool)
    hidden[7] = True
    masked = np.ma.masked_array(data[name], hidden)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    for bad, said in (
        (masked, "is a masked array"),
        (Masking(data[name], hidden), "is a masked array"),
        (list(masked), "is a masked array"),
        (data[name].astype(object), "must hold real numbers, got dtype object"),
        (data[name].astype(str), "must hold real numbers, got dtype <U"),
        (
            data[name].astype(object).tolist()[:-1] + [None if name == "Y" else [None, None]],
            "dtype object",
        ),
    ):
        for start, options in ((model, {"batch_size": batch_size}), (sgpr, {})):
            with pytest.raises(TypeError, match=f"`{name}` {said}|`{name}` .*{said}"):
                fs.fit(start, **data | {name: bad}, steps=4, **options)
    with pytest.raises(TypeError, match=f"`{name}` is a masked array"):
        fs.elbo(model, **data | {name: masked})
    expected = fs.fit(model, X, Y, steps=4, batch_size=batch_size, rng=0)[0]
    assert_same(
        fs.fit(model, **data | {name: masked.data}, steps=4, batch_size=batch_size, rng=0)[0],
        expected,
    )


@pytest.mark.parametrize("row", [0, 17, 42])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 16},
        {"batch_size": 16, "natural_step_size": 0.1},
        {"batch_size": 60},
        {"batch_size": 8, "natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
    ],
)
def test_bad_data_are_found_by_the_bound_and_named_by_their_row(tmp_path, rng, row, options):
    def refused(model, X, Y, message):
        for seed in range(3):  # in the batch of another step
            with pytest.raises(ValueError, match=message):
                fs.fit(model, X, Y, epochs=2, rng=seed, **options)

    def spoiled(array, index, value):
        file = np.memmap(tmp_path / "data", array.dtype, "w+", shape=array.shape)
        file[...] = array
        file[index] = value
        return file

    model, X, Y = problem(rng)
    bad = spoiled(X, (row, 1), np.nan)
    refused(model, bad, Y, rf"`X` contains nan at index \({row}, 1\);")
    refused(model, np.array(bad), Y, rf"`X` contains nan at index \({row}, 1\);")
    refused(model, X, spoiled(Y, row, np.inf), rf"`Y` contains inf at index {row};")
    model, X, labels = classes(rng)
    refused(model, X, spoiled(labels, row, 3), rf"integer labels .* got 3 at index {row}\. Number")
    model, X, Y = problem(rng, outputs=(2,), likelihood=fs.Poisson())
    refused(
        model,
        X,
        spoiled(np.ones(Y.shape), (row, 1), -1),
        rf"counts; got -1\.0 at index \({row}, 1\)\.",
    )


def test_bad_entries_of_what_a_callback_computes_are_its_own(rng):
    model, X, Y = problem(rng)
    bad = np.where(np.arange(60) == 3, np.nan, Y)
    with pytest.raises(ValueError, match="`Y` contains nan at index 3;"):
        fs.fit(
            model,
            X,
            Y,
            epochs=1,
            batch_size=16,
            callback=lambda step, value, info: fs.elbo(info.model, X, bad),
        )


def test_memmap(tmp_path, rng):
    model, X, Y = problem(rng, N=500)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    mapped = [np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "Y.npy")]
    a, _ = fs.fit(model, X, Y, steps=5, batch_size=64, rng=0)
    b, _ = fs.fit(model, *mapped, steps=5, batch_size=64, rng=0)
    assert_same(a, b)
