"""Every leaf of every model: seen by the flat vector, optimisers, files, maps and `wrt`."""

import importlib
from typing import Any

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp import check
from fastsvgp.posteriors.dual_sites import WhitenedState
from fastsvgp.records import (
    is_parts,
    is_record,
    leaf,
    missing,
    record,
    registry,
    replace_at,
    restricted,
    static,
)

M, D, P = 4, 2, 3
FACTORS = {"tril": np.eye(M), "symmetric": np.eye(M), "columns": np.eye(M, 2)}  # by their kinds


@record
class Anchors:
    """Record that replaces inducing inputs: numbers of each kind, some in fields that can hold
    records.
    """

    place: Any
    spread: Any = leaf("positive")
    scale_tril: Any = leaf("tril")
    parts: Any
    weights: Any = leaf(default=None)
    label: Any = static(default="north")


@record
class Offset:
    amount: Any


def svgp(rng, covariance=None, inducing=None, posterior=None, likelihood=None, mean=None):
    return fs.SVGP(
        fs.RBF(0.8, rng.uniform(0.5, 2, D)) if covariance is None else covariance,
        rng.standard_normal((M, D)) if inducing is None else inducing,
        (
            fs.Whitened(rng.standard_normal(M), lower_factor(rng, M))
            if posterior is None
            else posterior
        ),
        fs.Gaussian(0.1) if likelihood is None else likelihood,
        mean,
    )


def anchors(rng):
    parts = (
        Offset(rng.standard_normal(M)),
        fs.RBF(0.5, rng.uniform(0.5, 2, D)),
        Offset([1.0, 2.0]),
    )
    return Anchors(
        rng.standard_normal((M, D)),
        rng.uniform(0.5, 2, M),
        lower_factor(rng, M),
        parts,
        label="south",
    )


def two_sets(rng, *batch):
    return [
        field
        for _ in range(2)
        for field in (rng.standard_normal((*batch, M)), lower_factor(rng, *batch, M))
    ]


def weighted(rng, make):
    return fs.QSGP(make(rng), chevron(rng), fs.Gaussian(0.1))


def deep(rng):
    hidden = fs.Layer(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, D)),
        POSTERIORS["whitened"](rng),
        MEANS["constant"](rng),
    )
    pair = fs.InducingPair(*rng.standard_normal((2, M, P)))
    return fs.DeepGP(
        (hidden, fs.Layer(fs.Linear(0.5), pair, fs.Orthogonal(*two_sets(rng)))), fs.Gaussian(0.1)
    )


def chevron(rng):
    return fs.ChevronWeights(
        rng.standard_normal(M), lower_factor(rng, M)[:, :2].copy(), rng.uniform(0.5, 2, M - 2)
    )


def feature_maps(rng):
    shapes = {"image_shape": (3, 3), "patch_shape": (2, 2)}
    filters = fs.LinearMean(rng.standard_normal((P, 4)), rng.standard_normal(P))
    first = fs.ConvolutionalLayer(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, 4)),
        POSTERIORS["whitened"](rng),
        filters,
        **shapes,
    )
    images = fs.Convolutional(
        fs.RBF(0.9, 0.5),
        rng.standard_normal(4),
        fs.Matern32(),
        image_shape=(2, 2, P),
        patch_shape=(1, 1),
    )
    last = fs.Layer(images, rng.standard_normal((M, P + 2)), POSTERIORS["marginal"](rng))
    return fs.DeepGP((first, last), fs.Gaussian(0.1))


COVARIANCES = {
    "rbf": lambda rng: fs.RBF(1.5, rng.uniform(0.5, 2, D)),
    "matern12": lambda rng: fs.Matern12(np.float64(0.7), 0.4),
    "matern32": lambda rng: fs.Matern32(0.7, [0.4, 2.0]),
    "matern52": lambda rng: fs.Matern52(0.7, (0.4, 2.0)),
    "linear": lambda rng: fs.Linear(rng.uniform(0.5, 2, D)),
    "convolutional": lambda rng: fs.Convolutional(
        fs.Sum((fs.RBF(0.8, 0.5), fs.Linear(0.2))),
        rng.standard_normal(6),
        fs.Matern32(),
        image_shape=(3, 2),
        patch_shape=(1, 1),
    ),
    "on features": lambda rng: fs.OnFeatures(
        fs.RBF(0.8, 0.5), fs.Network.random((D, 4, 2), rng=rng)
    ),
    "composed": lambda rng: fs.Sum(
        (fs.Product((fs.Linear(0.5), fs.RBF(1.1, 0.9))), fs.Constant(0.3))
    ),
}
POSTERIORS = {
    "whitened": lambda rng: fs.Whitened(rng.standard_normal((P, M)), lower_factor(rng, P, M)),
    "marginal": lambda rng: fs.Marginal(rng.standard_normal(M), lower_factor(rng, M)),
    "likelihood_form": lambda rng: fs.LikelihoodForm(
        rng.standard_normal((P, M)), rng.uniform(0.5, 2, M), preconditioned=False
    ),
    "relaxed": lambda rng: fs.Relaxed(
        rng.standard_normal(M), rng.uniform(0.5, 2, M), lower_factor(rng, M)
    ),
    "inverse_free": lambda rng: fs.InverseFreeWhitened(
        rng.standard_normal(M), lower_factor(rng, M), lower_factor(rng, M)
    ),
    "absorbed_dual_sites": lambda rng: fs.AbsorbedDualSites(*two_sets(rng, P)[:2]),
    "whitened_state": lambda rng: WhitenedState(*two_sets(rng)[:2]),
    "dual_sites": lambda rng: fs.DualSites(*two_sets(rng)[:2]),
    "orthogonal": lambda rng: fs.Orthogonal(*two_sets(rng)),
    "decoupled": lambda rng: fs.Decoupled(*two_sets(rng, P)[:3]),
    "decoupled_weights": lambda rng: fs.DecoupledWeights(*two_sets(rng, P)[:3]),
    "whitened_orthogonal": lambda rng: fs.WhitenedOrthogonal(*two_sets(rng, P)),
}
LIKELIHOODS = {
    "gaussian": fs.Gaussian(np.float64(0.2)),
    "laplace": fs.Laplace(0.3),
    "student_t": fs.StudentT(0.3, df=3.0),
    "poisson": fs.Poisson(),
    "probit": fs.BernoulliProbit(),
    "logit": fs.BernoulliLogit(num_nodes=10),
    "robust_max": fs.RobustMax(num_classes=P),
    "softmax": fs.Softmax(num_classes=P),
}
MEANS = {
    "zero": lambda rng: fs.ZeroMean(),
    "constant": lambda rng: fs.ConstantMean(rng.standard_normal(P)),
    "linear": lambda rng: fs.LinearMean(rng.standard_normal(D), 0.25),
    "identity": lambda rng: fs.IdentityMean(),
}
INDUCING = {
    "list": lambda rng: rng.standard_normal((M, D)).tolist(),
    "tuple": lambda rng: tuple(map(tuple, rng.standard_normal((M, D)).tolist())),
    "record": anchors,
    "records": lambda rng: (anchors(rng), Offset(0.5)),
    "pair": lambda rng: fs.InducingPair(rng.standard_normal((M, D)), rng.standard_normal((2, D))),
    "nested": lambda rng: Offset(Offset(rng.standard_normal((M, D)))),
}
BASES = {
    "fourier": lambda rng: fs.RandomFourier(
        fs.Matern32(0.8, rng.uniform(0.5, 2, D)), num_features=M, seed=3
    ),
    "inducing": lambda rng: fs.InducingBasis(fs.RBF(0.8, 0.5), rng.standard_normal((M, D))),
    "relevance": lambda rng: fs.RelevanceBasis(
        fs.RBF(0.8, 0.5), rng.standard_normal((M, D)), rng.uniform(0.5, 2, M)
    ),
}
MODELS = {
    **{
        f"covariance {name}": lambda rng, make=make: svgp(rng, covariance=make(rng))
        for name, make in COVARIANCES.items()
    },
    **{
        f"posterior {name}": lambda rng, make=make: svgp(rng, posterior=make(rng))
        for name, make in POSTERIORS.items()
    },
    **{
        f"likelihood {name}": lambda rng, part=part: svgp(rng, likelihood=part)
        for name, part in LIKELIHOODS.items()
    },
    **{
        f"mean {name}": lambda rng, make=make: svgp(rng, mean=make(rng))
        for name, make in MEANS.items()
    },
    **{
        f"inducing {name}": lambda rng, make=make: svgp(rng, inducing=make(rng))
        for name, make in INDUCING.items()
    },
    "sgpr": lambda rng: fs.SGPR(
        fs.RBF(0.8, 0.5), rng.standard_normal((M, D)), 0.1, fs.ConstantMean(0.5)
    ),
    "site svgp": lambda rng: fs.SiteSVGP(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, D)),
        fs.Sites(*rng.standard_normal((2, P, 9))),
        fs.Gaussian(0.1),
    ),
    "vgp": lambda rng: fs.VGP(
        fs.RBF(0.8, 0.5),
        fs.Sites(*rng.standard_normal((2, 9))),
        fs.Gaussian(0.1),
        fs.ConstantMean(0.5),
    ),
    "orthogonal sgpr": lambda rng: fs.OrthogonalSGPR(
        fs.RBF(0.8, 0.5),
        fs.InducingPair(*rng.standard_normal((2, M, D))),
        0.1,
        *two_sets(rng)[:2],
        fs.ConstantMean(0.5),
    ),
    **{f"basis {name}": lambda rng, make=make: weighted(rng, make) for name, make in BASES.items()},
    "deep": lambda rng: deep(rng),
    "sgpr inducing record": lambda rng: fs.SGPR(fs.RBF(0.8, 0.5), anchors(rng), np.float64(0.1)),
    "feature maps": lambda rng: feature_maps(rng),
}


@pytest.fixture(params=MODELS)
def model(request, rng):
    return MODELS[request.param](rng)


def values(tree):
    """Return kind and numbers of each leaf by path; for triangles and symmetric matrices those that
    count.
    """
    found = (
        (path, kind, np.asarray(value))
        for path, kind, value in fs.leaves(tree)
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
    rooms = ("bases", "covariances", "layers", "likelihoods", "means", "posteriors")
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
        for path, kind, _ in fs.leaves(svgp(rng, inducing=anchors(rng)))
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
            for entry in fs.leaves(svgp(rng, inducing=INDUCING[name](rng)))
            if entry[0].startswith("inducing")
        ]
        assert [entry[:2] for entry in found] == [("inducing", "real")]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_flat_vector_moves_every_leaf(model, dtype):
    model = fs.tree_map(lambda v: v.astype(dtype) if isinstance(v, np.ndarray) else v, model)
    vector, unravel = fs.ravel(model)
    assert vector.size == sum(value.size for _, value in values(model).values())
    moved = unravel(vector + 1e-3)
    assert_all(np.not_equal, model, moved)
    assert settings(moved) == settings(model)
    assert_all(lambda a, b: np.isclose(a, b, rtol=10 * np.finfo(dtype).eps), model, unravel(vector))
    np.testing.assert_allclose(
        unravel.pack(moved), vector + 1e-3, rtol=0, atol=100 * np.finfo(dtype).eps
    )


def test_a_step_of_an_optimiser_moves_every_leaf(model):
    for optimiser in (fs.adam(1e-3), fs.sgd(1e-3)):
        moved, _ = optimiser.step(model, fs.tree_map(np.ones_like, model), optimiser.init(model))
        assert_all(np.less, model, moved)
        assert settings(moved) == settings(model)


def test_files_and_maps_keep_every_leaf(model, tmp_path):
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    for same in (
        loaded,
        fs.tree_map(lambda v: v, model),
        fs.tree_map(lambda v, w: w, model, loaded),
    ):
        assert_all(np.equal, model, same)
        assert settings(same) == settings(model)
    assert_all(lambda a, b: a + 1 == b, model, fs.tree_map(lambda v: np.asarray(v) + 1, model))
    for path, _, value in fs.leaves(model):
        if isinstance(value, (float, np.ndarray, np.generic)):
            assert type({p: v for p, _, v in fs.leaves(loaded)}[path]) is type(value), path


def test_every_leaf_can_be_changed_restricted_to_and_missed(model):
    here = values(model)
    assert list(missing(model)) == []
    for path in here:
        changed = values(replace_at(model, path, FACTORS.get(here[path][0], 7.0)))
        assert list(changed) == list(here)
        assert [
            p
            for p in here
            if changed[p][1].shape != here[p][1].shape or (changed[p][1] != here[p][1]).any()
        ] == [path]
        without = replace_at(model, path, None)
        due = [path] if path not in model._optional_fields else []
        assert list(missing(without)) == due and list(values(without)) == [
            p for p in here if p != path
        ]
        assert check.names((path,), model) == (path,)
        assert list(values(restricted(model, (path,)))) == [path]


def test_fixed_leaves_stay_the_objects_that_they_are(model):
    before = {path: value for path, _, value in fs.leaves(model) if value is not None}
    root = next(name for name in ("inducing", "sites", "basis", "layers") if hasattr(model, name))
    for fixed in (root, *(path for path in before if path.startswith(f"{root}."))):
        vector, unravel = fs.ravel(model, fixed=fixed)
        held = [path for path in before if path == fixed or path.startswith(fixed + ".")]
        after = {path: value for path, _, value in fs.leaves(unravel(vector + 1e-3))}
        assert held and unravel.paths == tuple(path for path in before if path not in held)
        assert all(after[path] is before[path] for path in held)
        assert all(
            np.any(np.asarray(after[path]) != np.asarray(before[path])) for path in unravel.paths
        )


def test_names_below_a_record_in_the_place_of_inducing_inputs(rng):
    model = svgp(rng, inducing=anchors(rng), mean=fs.ConstantMean(0.5))
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
        match="`wrt` names 'inducing.nothing', which is not a field.*; it has .*inducing.place",
    ):
        check.names(("inducing.nothing",), model)
    vector, unravel = fs.ravel(model, fixed=("posterior", "mean"))
    with pytest.raises(ValueError, match="field 'inducing.spread' is free here, but None came"):
        unravel.pullback(vector, restricted(model, ("covariance", "likelihood", "inducing.place")))
    optimiser = fs.by_field(fs.sgd(0.0625), {"inducing.place": fs.sgd(0.25)})
    moved, _ = optimiser.step(model, fs.tree_map(np.ones_like, model), optimiser.init(model))
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
        assert (name, "real", None) in list(fs.leaves(without))
    assert [path for path, _, _ in fs.leaves(model)] == list(values(model))
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
