"""Every leaf of every model: seen by the flat vector, optimisers, files, maps and `wrt`."""

import importlib

import numpy as np
import pytest
from support.every_model import INDUCING, MODELS, D, M, Offset, anchors, svgp
from support.looped import looped

import fastsvgp as fs
from fastsvgp import check
from fastsvgp.posteriors.locate import part_at
from fastsvgp.records import is_parts, is_record, missing, registry, replace_at, restricted

FACTORS = {"tril": np.eye(M), "symmetric": np.eye(M), "columns": np.eye(M, 2)}  # by their kinds


each_model = looped("name", MODELS)


def values(tree):
    """Return kind and numbers of each leaf by path; for triangles and symmetric matrices those that
    count.
    """
    found = (
        (path, kind, np.asarray(value))
        for path, kind, value in fs.records.leaves(tree)
        if value is not None
    )
    lower = {
        "tril": np.tril_indices(M),
        "symmetric": np.tril_indices(M),
        "columns": np.tril_indices(M, 0, 2),
    }
    return {
        path: (kind, value[..., *lower[kind]] if kind in lower else value)
        for path, kind, value in found
    }


def assert_all(compare, a, b):
    a, b = values(a), values(b)
    assert list(a) == list(b)
    for path in a:
        assert a[path][0] == b[path][0] and a[path][1].shape == b[path][1].shape, path
        assert compare(a[path][1], b[path][1]).all(), path


def records_in(tree):
    yield tree
    for value in vars(tree).values():
        for part in value if is_parts(value) else (value,) if is_record(value) else ():
            yield from records_in(part)


def settings(tree):
    fixed = (
        (part, [name for name, kind in part._record_fields if kind == "static"])
        for part in records_in(tree)
    )
    return [(type(part), {name: getattr(part, name) for name in names}) for part, names in fixed]


def test_every_part_of_the_package_is_in_some_model(rng):
    rooms = ("bases", "covariances", "latents", "layers", "likelihoods", "means", "posteriors")
    ours = {
        getattr(importlib.import_module(f"fastsvgp.{m}"), n)
        for n, m in registry.OURS.items()
        if m.split(".")[0] in rooms
    }
    bases = {base for part in ours for base in part.__mro__[1:]}
    assert (
        ours - bases - {type(part) for make in MODELS.values() for part in records_in(make(rng))}
        == set()
    )


def test_leaves_below_a_record_and_in_fields_that_may_hold_one(rng):
    found = {
        path: kind
        for path, kind, _ in fs.records.leaves(svgp(rng, inducing=anchors(rng)))
        if path.startswith("inducing")
    }
    assert found == {
        "inducing.place": "real",
        "inducing.spread": "positive",
        "inducing.scale_tril": "tril",
        "inducing.parts.0.amount": "real",
        "inducing.parts.1.variance": "positive",
        "inducing.parts.1.lengthscales": "positive",
        "inducing.parts.2.amount": "real",
        "inducing.weights": "real",
    }
    for name in ("list", "tuple"):
        found = [
            entry
            for entry in fs.records.leaves(svgp(rng, inducing=INDUCING[name](rng)))
            if entry[0].startswith("inducing")
        ]
        assert [entry[:2] for entry in found] == [("inducing", "real")]


@each_model
@looped("dtype", [np.float32, np.float64])
def test_the_flat_vector_moves_every_leaf(rng, name, dtype):
    model = MODELS[name](rng)
    model = fs.records.tree_map(
        lambda v: v.astype(dtype) if isinstance(v, np.ndarray) else v, model
    )
    vector, unravel = fs.ravel(model)
    assert vector.size == sum(value.size for _, value in values(model).values())
    moved = unravel(vector + 1e-3)
    assert_all(np.not_equal, model, moved)
    assert settings(moved) == settings(model)
    assert_all(lambda a, b: np.isclose(a, b, rtol=10 * np.finfo(dtype).eps), model, unravel(vector))
    np.testing.assert_allclose(
        unravel.pack(moved), vector + 1e-3, rtol=0, atol=100 * np.finfo(dtype).eps
    )


@each_model
def test_a_step_of_an_optimiser_moves_every_leaf(rng, name):
    model = MODELS[name](rng)
    for optimiser in (fs.adam(1e-3), fs.sgd(1e-3)):
        moved, _ = optimiser.step(
            model, fs.records.tree_map(np.ones_like, model), optimiser.init(model)
        )
        assert_all(np.less, model, moved)
        assert settings(moved) == settings(model)


@each_model
def test_files_and_maps_keep_every_leaf(rng, name, tmp_path):
    model = MODELS[name](rng)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    for same in (
        loaded,
        fs.records.tree_map(lambda v: v, model),
        fs.records.tree_map(lambda v, w: w, model, loaded),
    ):
        assert_all(np.equal, model, same)
        assert settings(same) == settings(model)
    assert_all(
        lambda a, b: a + 1 == b, model, fs.records.tree_map(lambda v: np.asarray(v) + 1, model)
    )
    for path, _, value in fs.records.leaves(model):
        if isinstance(value, (float, np.ndarray, np.generic)):
            assert type({p: v for p, _, v in fs.records.leaves(loaded)}[path]) is type(value), path


@each_model
def test_every_leaf_can_be_changed_restricted_to_and_missed(rng, name):
    model = MODELS[name](rng)
    here = values(model)
    shared = list(missing(model))  # the layers take the inducing inputs of the model
    assert all(".latents." in f".{path}" and path.endswith(".inducing") for path in shared)
    for path in here:
        changed = values(replace_at(model, path, FACTORS.get(here[path][0], 7.0)))
        assert list(changed) == list(here)
        assert [
            p
            for p in here
            if changed[p][1].shape != here[p][1].shape or (changed[p][1] != here[p][1]).any()
        ] == [path]
        without = replace_at(model, path, None)
        above, _, name = path.rpartition(".")
        owner = part_at(model, above) if above else model
        due = [path] if name not in getattr(owner, "_optional_fields", ()) else []
        assert sorted(missing(without)) == sorted(due + shared) and list(values(without)) == [
            p for p in here if p != path
        ]
        assert check.names((path,), model) == (path,)
        assert list(values(restricted(model, (path,)))) == [path]


@each_model
def test_fixed_leaves_stay_the_objects_that_they_are(rng, name):
    model = MODELS[name](rng)
    before = {path: value for path, _, value in fs.records.leaves(model) if value is not None}
    root = next(
        name for name in ("latents", "inducing", "sites", "basis", "layers") if hasattr(model, name)
    )
    for fixed in (root, *(path for path in before if path.startswith(f"{root}."))):
        vector, unravel = fs.ravel(model, fixed=fixed)
        held = [path for path in before if path == fixed or path.startswith(fixed + ".")]
        after = {path: value for path, _, value in fs.records.leaves(unravel(vector + 1e-3))}
        assert held and unravel.paths == tuple(path for path in before if path not in held)
        assert all(after[path] is before[path] for path in held)
        assert all(
            np.any(np.asarray(after[path]) != np.asarray(before[path])) for path in unravel.paths
        )


def test_names_below_a_record_in_the_place_of_inducing_inputs(rng):
    model = svgp(rng, inducing=anchors(rng), mean=fs.means.ConstantMean(0.5))
    grad = restricted(model, check.names(("inducing.place", "covariance"), model))
    assert list(values(grad)) == [
        "covariance.variance",
        "covariance.lengthscales",
        "inducing.place",
    ]
    assert grad.inducing.label == "south" and grad.posterior is None and grad.mean is None
    below = values(restricted(model, ("inducing.parts.1",)))
    assert list(below) == ["inducing.parts.1.variance", "inducing.parts.1.lengthscales"]
    with pytest.raises(
        ValueError,
        match="`wrt` names 'inducing.nothing', which is not a field.*; did you mean inducing.*\\?",
    ):
        check.names(("inducing.nothing",), model)
    vector, unravel = fs.ravel(model, fixed=("posterior", "mean"))
    with pytest.raises(ValueError, match="field 'inducing.spread' is free here, but None came"):
        unravel.pullback(vector, restricted(model, ("covariance", "likelihood", "inducing.place")))
    optimiser = fs.optim.by_field(fs.sgd(0.0625), {"inducing.place": fs.sgd(0.25)})
    moved, _ = optimiser.step(
        model, fs.records.tree_map(np.ones_like, model), optimiser.init(model)
    )
    np.testing.assert_allclose(moved.inducing.place - model.inducing.place, 0.25)
    np.testing.assert_allclose(
        moved.inducing.parts[0].amount - model.inducing.parts[0].amount, 0.0625
    )


def test_restricting_keeps_settings(rng):
    assert restricted(anchors(rng), ("place",)).label == "south"
    assert (
        restricted(svgp(rng, inducing=anchors(rng)), ("inducing.place",)).inducing.label == "south"
    )


def test_what_is_none_is_missed_but_where_that_is_the_default(rng):
    model = svgp(rng)
    assert model.mean is None and list(missing(model)) == []
    for name in ("covariance", "inducing", "posterior", "likelihood"):
        without = fs.replace(model, **{name: None})
        assert list(missing(without)) == [name]
        assert (name, "real", None) in list(fs.records.leaves(without))
    assert [path for path, _, _ in fs.records.leaves(model)] == list(values(model))
    below = fs.replace(model, inducing=Offset(None))
    assert list(missing(below)) == ["inducing.amount"]
    X, Y = np.zeros((2, D)), np.zeros(2)
    for call in (
        lambda m: fs.elbo(m, X, Y),
        lambda m: fs.elbo_and_grad(m, X, Y),
        lambda m: fs.predict_f(m, X),
    ):
        with pytest.raises(
            TypeError, match="`inducing` is None where a number or an array must be"
        ):
            call(fs.replace(model, inducing=None))
    with pytest.raises(TypeError, match="`inducing` is None where a number or an array must be"):
        fs.collapsed_bound(fs.SGPR(fs.RBF(), None, 0.1), X, Y)


def test_a_number_between_0_and_1_moves_by_its_log_odds(rng):
    model = svgp(rng, likelihood=fs.likelihoods.ZeroInflatedPoisson(0.3))
    vector, unravel = fs.ravel(model)
    at = unravel.slices["likelihood.probability"]
    np.testing.assert_allclose(vector[at], np.log(0.3 / 0.7), rtol=1e-14)
    grad = fs.records.tree_map(np.ones_like, model)
    np.testing.assert_allclose(unravel.pullback(vector, grad)[at], 0.3 * 0.7, rtol=1e-14)
    for end in (-1e3, 1e3):
        vector[at] = end
        moved = unravel(vector).likelihood.probability
        assert 0 < moved < 1 and abs(moved - (end > 0)) < 1e-15
    for wrong in (0.0, 1.0, 1.2, np.nan):
        bad = fs.replace(model, likelihood=fs.likelihoods.ZeroInflatedPoisson(wrong))
        with pytest.raises(ValueError, match="'likelihood.probability' must lie between 0 and 1"):
            fs.ravel(bad)
    steps = fs.optim.adagrad(0.1)
    with pytest.raises(TypeError, match="no steps for field 'likelihood.probability'"):
        steps.step(model, grad, steps.init(model))
