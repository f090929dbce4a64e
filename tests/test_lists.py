"""Lists and tuples of numbers in a model: arrays, in every public function."""

import numpy as np
import pytest
from support.looped import looped
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.records import is_parts, is_record
from tests.test_fuzz import cases


def as_list(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def as_tuple(value):
    return tuple(map(as_tuple, value)) if isinstance(value := as_list(value), list) else value


def rebuilt(tree, leaf):
    """Construct the record again by its class, with each array converted by ``leaf``."""
    if is_parts(tree):
        return tuple(rebuilt(part, leaf) for part in tree)
    if not is_record(tree):
        return leaf(tree)
    fields = {name: (kind, getattr(tree, name)) for name, kind in tree._record_fields}
    return type(tree)(
        **{
            name: value if kind == "static" else rebuilt(value, leaf)
            for name, (kind, value) in fields.items()
        }
    )


def numbers(found):
    """All arrays and numbers in what a function returned."""
    if is_record(found):
        return [
            (path, value)
            for path, _, value in fs.records.leaves(found)
            if not isinstance(value, fs.qsgp.SparseRows | None)
        ]
    if isinstance(found, (tuple, list)):
        return [entry for part in found for entry in numbers(part)]
    return [("", found)] if isinstance(found, (float, np.ndarray, np.generic)) else []


def assert_same(found, expected):
    found, expected = numbers(found), numbers(expected)
    assert [path for path, _ in found] == [path for path, _ in expected]
    for (path, one), (_, other) in zip(found, expected, strict=True):
        assert np.shape(one) == np.shape(other), path
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11, err_msg=path)


# of a basis past its class: refused by its name
NAMED = "draw_basis_sample", "sampled_bound_and_grad with a control"
WITH_RECORDS = [
    name for name, (_, arguments) in cases().items() if any(map(is_record, arguments.values()))
]


@looped("name", WITH_RECORDS)
def test_a_model_with_lists_is_the_one_with_arrays(name):
    """Lists are given to the class, or left by ``tree_map``, which does not convert results."""
    function, arguments = cases()[name]
    expected = function(**arguments)
    for leaf in (as_list, as_tuple):
        given = {
            key: rebuilt(value, leaf) if is_record(value) else value
            for key, value in arguments.items()
        }
        assert_same(function(**given), expected)
    if name not in NAMED:
        mapped = {
            key: fs.records.tree_map(as_list, value) if is_record(value) else value
            for key, value in arguments.items()
        }
        assert_same(function(**mapped), expected)


def listed():
    """The model with which lists were met first, and the same with arrays."""
    Z, mean, tril = (
        [[0.1, 0.2], [0.7, -0.3], [-0.5, 0.4]],
        [0.1, 0, -0.2],
        [[1, 0, 0], [0.5, 2, 0], [0, 0.1, 1]],
    )
    arrays = (np.array(Z), fs.Whitened(np.array(mean), np.array(tril, float)), fs.Gaussian(0.5))
    return (
        fs.SVGP(fs.Linear([1.0, 1.0]), Z, fs.Whitened(mean, tril), fs.Gaussian(0.5)),
        fs.SVGP(fs.Linear(np.ones(2)), *arrays),
    )


def test_files_vectors_and_methods_take_lists(tmp_path):
    ours, theirs = listed()
    X = generator(0).standard_normal((9, 2))
    fs.save(tmp_path / "m.npz", ours)
    assert_same(fs.load(tmp_path / "m.npz"), theirs)
    vector, unravel = fs.ravel(ours, fixed="likelihood")
    np.testing.assert_array_equal(vector, fs.ravel(theirs, fixed="likelihood")[0])
    assert_same(unravel(vector), unravel(fs.ravel(theirs, fixed="likelihood")[0]))
    assert ours.inducing.shape == (3, 2) and "inducing=<float64 (3, 2)>" in repr(ours)
    for covariance in (
        fs.Linear([1.0, 2.0]),
        fs.RBF(1, (1, 2)),
        fs.covariances.Sum([fs.RBF(1.0, [1.0, 2.0]), fs.Linear((1, 2))]),
    ):
        arrays = rebuilt(covariance, lambda value: np.asarray(value, float))
        np.testing.assert_allclose(covariance.Kff(X), arrays.Kff(X), rtol=1e-15)
    np.testing.assert_array_equal(
        fs.means.LinearMean([1.0, 2.0], 0.5)(X), fs.means.LinearMean(np.array([1.0, 2.0]), 0.5)(X)
    )


def test_a_list_where_all_else_is_an_array_of_the_dtype():
    """Only this leaf needs a cast: it bypasses the constructor."""
    X = generator(1).standard_normal((9, 2))
    model = fs.records.tree_map(lambda value: np.asarray(value, float)[()], listed()[1])
    for _, _, value in fs.records.leaves(model):
        for one in (as_list(value), as_tuple(value)):
            given = fs.records.tree_map(
                lambda leaf, value=value, one=one: one if leaf is value else leaf, model
            )
            for function in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
                assert_same(function(given, X, X[:, 0]), function(model, X, X[:, 0]))
            assert_same(
                fs.em(given, X, X[:, 0], rounds=1)[0], fs.em(model, X, X[:, 0], rounds=1)[0]
            )
            assert_same(
                fs.fit(given, X, X[:, 0], steps=2)[0], fs.fit(model, X, X[:, 0], steps=2)[0]
            )


def test_tuples_of_records_and_settings_stay_what_they_are():
    rbf = fs.RBF(1.0, [0.5])
    assert (
        fs.covariances.Sum([rbf, rbf]).parts == fs.covariances.Sum((rbf, rbf)).parts == (rbf, rbf)
        and fs.covariances.Sum(()).parts == ()
    )
    layers = (fs.layers.Layer(rbf, [[0.0]], fs.Whitened([0.0], [[1.0]])),)
    assert fs.DeepGP(layers, fs.Gaussian(0.1)).layers == layers
    convolutional = fs.covariances.Convolutional(rbf, 1.0, image_shape=(3, 2), patch_shape=[1, 1])
    assert convolutional.image_shape == (3, 2) and convolutional.patch_shape == [1, 1]
    assert fs.records.tree_map(np.shape, rbf).lengthscales == (1,)


BAD = {
    "rows of unequal length": [[1.0, 2.0], [3.0]],
    "text": ["a", "b"],
    "complex": [1j, 2.0],
    "a masked row": [np.ma.masked_array([1.0, 2.0], [0, 1])] * 3,
    "NaN": [1.0, np.nan],
}


@pytest.mark.parametrize("bad", BAD)
@looped("path", ["covariance.variance", "inducing", "posterior.mean"])
def test_lists_that_are_no_arrays_are_refused_by_name(path, bad):
    X, Y = np.zeros((4, 2)), np.zeros(4)
    model = fs.records.replace_at(listed()[0], path, BAD[bad])
    for call in (
        fs.elbo,
        fs.elbo_and_grad,
        fs.natural_step,
        fs.em,
        lambda *given: fs.fit(*given, steps=1),
    ):
        with pytest.raises((TypeError, ValueError), match=path):
            call(model, X, Y)
    for call in (fs.predict_f, fs.predict_y, fs.sample_f):
        with pytest.raises((TypeError, ValueError), match=path):
            call(model, X)
