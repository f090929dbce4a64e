"""Records: leaves, maps, changes of one leaf, copies, and how they are shown."""

import copy
import gc
import pathlib
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from support.record_files import model

import fastsvgp as fs
from fastsvgp import records
from fastsvgp.kernels.cpu.common import ahead
from fastsvgp.records import build, flat, replace_leaves
from fastsvgp.records.decorator import KEPT

PACKAGE = str(pathlib.Path(fs.__file__).parent)
SHIM = "common/compiled.py", "common/forms.py", "common/link_once.py", "common/ahead.py"


def test_leaves_name_every_number_in_order():
    assert [path for path, _, _ in fs.records.leaves(model())] == [
        "covariance.parts.0.variance",
        "covariance.parts.0.lengthscales",
        "covariance.parts.1.parts.0.variance",
        "covariance.parts.1.parts.1.variance",
        "inducing",
        "posterior.mean",
        "posterior.scale_tril",
        "mean.value",
    ]
    kinds = {path: kind for path, kind, _ in fs.records.leaves(model())}
    assert kinds["posterior.scale_tril"] == "tril" and kinds["inducing"] == "real"
    assert kinds["covariance.parts.0.variance"] == "positive"


def test_tree_map_keeps_settings_and_gaps():
    m = model()
    doubled = fs.records.tree_map(lambda a, b: a + b, m, m)
    assert doubled.covariance.parts[0].variance == 3.0 and doubled.likelihood.num_classes == 3
    assert doubled.posterior.mean.dtype == np.float32
    gap = fs.records.replace_at(m, "covariance.parts.0.lengthscales", None)
    assert fs.records.tree_map(lambda a, b: a + b, m, gap).covariance.parts[0].lengthscales is None
    assert fs.records.tree_map(np.negative, fs.replace(m, mean=None)).mean is None


def test_replace_at_changes_one_leaf_and_nothing_else():
    m = model()
    n = fs.records.replace_at(m, "covariance.parts.1.parts.0.variance", 9.0)
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
            fs.records.replace_at(m, path, 1.0)
        assert len(str(e.value)) < 180
    with pytest.raises(TypeError, match="`path` must be a dotted path"):
        fs.records.replace_at(m, 3, 1.0)
    with pytest.raises(TypeError, match="`tree` must be a fastsvgp record, got dict"):
        fs.records.replace_at({}, "mean", 1.0)
    with pytest.raises(AttributeError):  # frozen
        m.mean = None


def test_repr_shows_shapes_not_numbers():
    assert (
        repr(model().posterior) == "Whitened(mean=<float32 (3, 4)>, scale_tril=<float32 (3, 4, 4)>)"
    )
    assert "Constant(variance=0.5)" in repr(model())


def test_the_result_of_a_training_is_shown_like_a_record(rng):
    X = rng.uniform(-2, 2, (300, 1))
    q = fs.Whitened(np.zeros(2), np.eye(2))
    svgp = fs.SVGP(fs.RBF(), X[:2].copy(), q, fs.Gaussian(0.1))
    _, info = fs.fit(svgp, X, X[:, 0], steps=60)
    assert repr(info).startswith("FitInfo(values=<float64 (60,)>, smoothed=-")


def test_unknown_attributes_say_what_there_is():
    @fs.records.record
    class Lazy:
        size: Any = fs.records.leaf(default=1.0)

        @property
        def broken(self):
            return self.size.no_such_thing

    for name, message in (
        ("fit", r"SVGP has no attribute `fit`; functions take models: fastsvgp.fit\(model, ...\)"),
        ("kernel", "SVGP has no attribute `kernel`; did you mean `covariance`"),
        ("qqq", "no attribute `qqq`; its fields are covariance, inducing, posterior, likelihood"),
        ("_qqq", "'SVGP' object has no attribute '_qqq'"),
    ):
        with pytest.raises(AttributeError, match=message):
            getattr(model(), name)
    with pytest.raises(AttributeError, match="'float' object has no attribute 'no_such_thing'"):
        Lazy().broken  # noqa: B018
    with pytest.raises(TypeError, match=r"Sum takes one tuple; write a \+ b"):
        fs.covariances.Sum(fs.RBF(), fs.RBF())
    with pytest.raises(TypeError, match=r"save: `path` must .* got RBF; write save\(path, model\)"):
        fs.save(fs.RBF(), "m.npz")
    with pytest.raises(TypeError, match="adam has no option `lr`; did you mean `step_size`"):
        fs.adam(lr=0.1)
    sgpr = fs.SGPR(fs.RBF(), np.zeros((2, 1)), fs.Gaussian(0.1))
    with pytest.raises(
        TypeError, match="`noise_variance` must hold .* Gaussian; give its variance"
    ):
        fs.collapsed_bound(sgpr, np.zeros((3, 1)), np.zeros(3))


def test_tuples_of_numbers_are_numbers(tmp_path):
    m = fs.records.replace_at(model(), "covariance.parts.0.lengthscales", (1.0, 2.0))
    np.testing.assert_array_equal(
        dict((p, v) for p, _, v in fs.records.leaves(m))["covariance.parts.0.lengthscales"],
        [1.0, 2.0],
    )
    assert fs.records.tree_map(np.shape, m).covariance.parts[0].lengthscales == (2,)
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
        for (_, _, a), (_, _, b) in zip(
            fs.records.leaves(m), fs.records.leaves(other), strict=True
        ):
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
        assert list(fs.records.leaves(kind())) == [("size", "positive", 2.0)]


def test_whatever_stands_in_a_field_can_be_shown():
    shown = repr(fs.RBF(variance=[1, [2]], lengthscales=np.ones(2)))
    assert shown == "RBF(variance=[1, [2]], lengthscales=<float64 (2,)>)"


def test_a_record_in_the_place_of_a_number_is_no_number():
    model = fs.RBF(variance=fs.RBF())
    assert [path for path, _, _ in fs.records.leaves(model)] == ["variance", "lengthscales"]


def test_leaves_are_found_once_and_kept_apart_from_the_record():
    here = model()
    before = dict(vars(here)), len(pickle.dumps(here))
    assert flat(here) is flat(here)
    assert vars(here) == before[0] and len(pickle.dumps(here)) == before[1]
    for copied in (copy.copy(here), copy.deepcopy(here), pickle.loads(pickle.dumps(here))):
        assert vars(copied).keys() == vars(here).keys()
        assert flat(copied)[:2] == flat(here)[:2]
    assert id(here) in KEPT
    key = id(here)
    del here, before
    gc.collect()
    assert key not in KEPT


def test_a_changed_record_has_leaves_of_its_own():
    here = model()
    flat(here)
    moved = fs.records.tree_map(lambda value: value + 1, here)
    for changed in (
        fs.replace(here, mean=fs.means.ConstantMean(3.0)),
        fs.records.replace_at(here, "mean.value", 3.0),
        replace_leaves(here, {"mean.value": 3.0}),
        build(here, [*flat(here)[2][:-1], 3.0]),
        copy.replace(here, mean=fs.means.ConstantMean(3.0)) if hasattr(copy, "replace") else moved,
    ):
        paths, kinds, values = flat(changed)
        assert paths == flat(here)[0] and kinds == flat(here)[1]
        assert values[-1] == changed.mean.value != here.mean.value
    fewer = fs.replace(here, mean=None)
    assert flat(fewer)[0] == flat(here)[0][:-1]


def test_leaves_read_while_a_record_is_made_are_those_of_the_finished_one():
    @records.record
    class Halved:
        width: Any = records.leaf("positive")
        inner: Any = None

        def __post_init__(self):
            (width,) = (value for path, _, value in fs.records.leaves(self) if path == "width")
            object.__setattr__(self, "width", 0.5 * np.asarray(width))

    assert [*fs.records.leaves(Halved(4.0))] == [("width", "positive", 2.0)]


def test_structures_that_share_their_classes():
    """Empty optional fields, tuples and parts change the paths, not the classes of a model."""
    inducing, likelihood = np.zeros((2, 1)), fs.Gaussian(0.1)

    def paths(covariance):
        return flat(fs.SVGP(covariance, inducing, None, likelihood))[0]

    two, three = fs.RBF() + fs.RBF(), fs.RBF() + fs.RBF() + fs.RBF()
    assert len(paths(two)) == 7 and len(paths(three)) == 9 and len(paths(two)) == 7
    assert paths(fs.RBF() + fs.covariances.Constant()) != paths(two)
    assert paths(None)[0] == "covariance" and paths(fs.RBF())[0] == "covariance.variance"


@pytest.mark.parametrize(
    "covariance, most", [(fs.RBF(), 600), (fs.RBF() + fs.Matern32(), 800)], ids=["RBF", "sum"]
)
def test_a_further_step_of_fit_calls_few_functions(rng, covariance, most):
    """Comprehensions are not counted: whether they are functions depends on Python.

    Nor is what stands between a call and a kernel that Numba compiles, in the place of a module.
    """
    between = SHIM if ahead.found()[1] is None else ()
    X = rng.standard_normal((100, 2))
    q = fs.Whitened(np.zeros(20), np.eye(20))
    model = fs.SVGP(covariance, X[:20].copy(), q, fs.StudentT(scale=0.3))

    def calls(steps):
        count = 0

        def entered(frame, event, _):
            nonlocal count
            code = frame.f_code
            ours = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")
            count += event == "call" and ours and not code.co_filename.endswith(between)

        sys.setprofile(entered)
        try:
            fs.fit(model, X, X[:, 0], steps=steps, rng=0)
        finally:
            sys.setprofile(None)
        return count

    calls(1)  # the first call imports
    assert (calls(7) - calls(5)) / 2 <= most
