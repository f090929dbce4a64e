"""Records: leaves, maps, changes of one leaf, copies, and how they are shown."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from support.record_files import model

import fastsvgp as fs
from fastsvgp import records
from fastsvgp.records import treedef_of


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
    nearest = {
        "covariance.nothing": "did you mean covariance",
        "covariance.parts.2": "did you mean covariance.parts.",
        "covariance.parts.-1": "did you mean covariance.parts.1",
        "covariance.matrix": "did you mean covariance",
        "mean.value.deeper": "did you mean mean.value",
        "lengthscales": "did you mean covariance.parts.0.lengthscales",
        "": "its fields are covariance, inducing, posterior, mean",
    }
    for path, said in nearest.items():
        with pytest.raises(ValueError, match=f"`path` .* is not a field of this SVGP; {said}") as e:
            fs.replace_at(m, path, 1.0)
        assert len(str(e.value)) < 180
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


def test_records_can_be_copied_and_pickled():
    m = model()
    for other in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert repr(other) == repr(m) and type(other) is fs.SVGP
        for (_, _, a), (_, _, b) in zip(fs.leaves(m), fs.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)


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


def test_whatever_stands_in_a_field_can_be_shown():
    shown = repr(fs.RBF(variance=[1, [2]], lengthscales=np.ones(2)))
    assert shown == "RBF(variance=[1, [2]], lengthscales=<float64 (2,)>)"


def test_a_record_in_the_place_of_a_number_is_no_number():
    model = fs.RBF(variance=fs.RBF())
    assert [path for path, _, _ in fs.leaves(model)] == ["variance", "lengthscales"]


def test_a_tree_definition_is_pickled_as_the_one_that_there_is():
    definition = treedef_of(model())
    assert pickle.loads(pickle.dumps(definition)) is definition
    assert copy.deepcopy(definition) is definition
