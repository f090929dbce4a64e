"""Every kind of model travels through one relay, which reads the protocol of layers alone."""

import ast
import pathlib
import sys

import numpy as np
import pytest
from support.looped import looped

import fastsvgp as fs
from fastsvgp.bounds.protocol import KINDS, LayerProtocol, ModelKind

PACKAGE = pathlib.Path(fs.__file__).parent
RELAY = (
    "bounds/at_inputs.py",
    "bounds/objectives.py",
    "bounds/predict.py",
    "bounds/predict_vjp.py",
    "bounds/relay.py",
    "optim/natural/sites.py",
    "sites/dual.py",
    "sites/vgp.py",
    "optim/natural/step.py",
    "train/natural_steps.py",
)

# the others have defaults
REQUIRED = set("checked quantities begin gradient check_natural turns".split())


def functions(path):
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def called(function):
    """Return the names of the methods and functions that a function calls."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {getattr(f, "attr", getattr(f, "id", None)) for f in calls}


def test_one_function_takes_data_through_a_layer_and_a_likelihood():
    found = {
        (path.relative_to(PACKAGE).as_posix(), function.name)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "likelihoods"
        for function in functions(path.relative_to(PACKAGE))
        if "forward" in called(function) and called(function) & {"data_term", "expected_log_prob"}
    }
    assert found == {
        ("bounds/relay.py", "sweep"),
        ("bounds/from_blocks.py", "elbo_and_grad_from_blocks"),  # blocks have no rows to loop over
    }


@looped("path", RELAY)
def test_a_relay_reads_the_protocol_alone(path):
    members = {name for name in dir(LayerProtocol) if not name.startswith("_")}
    members |= set(LayerProtocol.__annotations__) | {"data"}  # of the sums of a small model
    for function in functions(path):
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and (
                isinstance(node.value, ast.Name) and node.value.id in ("layer", "there", "after")
                or isinstance(node.value, ast.Attribute) and node.value.attr == "layer"
            ):  # fmt: skip
                assert node.attr in members, f"{path}:{node.lineno} {node.attr}"


def test_each_kind_of_model_supplies_the_same_methods():
    known = {name for name in dir(ModelKind) if not name.startswith("_")}
    for model in (fs.SVGP, fs.DeepGP, fs.MultiGP):
        kind = type(KINDS[model])
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert REQUIRED <= own <= known, kind


def test_bounds_know_one_name_of_the_rooms_of_ranks():
    """It is called in one line of a public function; trainings meet ranks in two modules."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and "distributed" in (node.module or "").split("."):
                found.setdefault(name, set()).update(alias.name for alias in node.names)
    rooms = ("bounds/", "collapsed/", "optim/", "latents/", "layers/", "sites/")
    bounds = [names for name, names in found.items() if name.startswith(rooms)]
    assert all(names == {"call_on_ranks"} for names in bounds)
    train = {name for name in found if name.startswith("train/")}
    assert train == {"train/ranks.py", "train/batches.py"}


def calls_of(model, X, Y):
    random = {"rng": 0} if isinstance(model, fs.DeepGP) else {}
    fs.elbo(model, X, Y, **random)
    fs.elbo_and_grad(model, X, Y, **random)
    fs.natural_step(model, X, Y, **random)
    fs.predict_y(model, X)


@pytest.mark.parametrize("kind", ["SVGP", "DeepGP", "MultiGP", "SGPR"])
def test_one_process_never_enters_the_rooms_of_ranks(rng, kind):
    X = rng.standard_normal((12, 2))
    Y = np.sin(X[:, 0])
    covariance = fs.RBF(1.0, np.ones(2)) + fs.Matern32(0.5, np.ones(2))  # no compiled step
    layer = fs.layers.Layer(covariance, X[:4].copy(), fs.Whitened(np.zeros(4), np.eye(4)))
    likelihood, entered = fs.Gaussian(0.1), set()

    def seen(frame, event, argument):
        path = pathlib.PurePath(frame.f_code.co_filename)
        if path.parts[-3:-1] == ("fastsvgp", "distributed"):
            entered.add(frame.f_code.co_name)

    models = {
        "SVGP": lambda: fs.SVGP(covariance, layer.inducing, layer.posterior, likelihood),
        "DeepGP": lambda: fs.DeepGP((layer,), likelihood),
        "MultiGP": lambda: fs.MultiGP((layer,), likelihood),
    }
    if kind == "SGPR":
        model = fs.SGPR(covariance, layer.inducing, 0.1)
        run = lambda: (fs.collapsed_bound_and_grad(model, X, Y), fs.optimal_svgp(model, X, Y))  # noqa: E731
    else:
        model = models[kind]()
        run = lambda: calls_of(model, X, Y)  # noqa: E731
    run()  # what is imported at the first call runs its modules
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    assert not entered


def test_one_model_by_three_kinds_is_one_model(rng):
    """The numbers of an SVGP, a deep GP of one layer and a MultiGP of one function are the same."""
    X = rng.standard_normal((30, 2))
    Y = np.sin(X[:, 0])
    q = fs.Whitened(rng.standard_normal(5), np.tril(rng.uniform(0.2, 1, (5, 5))))
    covariance, likelihood = fs.Matern52(1.2, np.full(2, 1.5)), fs.StudentT(0.3, df=5.0)
    layer = fs.layers.Layer(covariance, X[:5].copy(), q)
    kinds = (
        fs.SVGP(covariance, X[:5].copy(), q, likelihood),
        fs.DeepGP((layer,), likelihood),
        fs.MultiGP((layer,), likelihood),
    )
    values = [fs.elbo_and_grad(model, X, Y) for model in kinds]
    assert len({value for value, _ in values}) == 1
    bars = [[bar for _, _, bar in fs.records.leaves(grad) if bar is not None] for _, grad in values]
    for ours, *others in zip(*bars, strict=True):
        for other in others:
            np.testing.assert_array_equal(ours, other)
    steps = [fs.natural_step(model, X, Y)[0] for model in kinds]
    first, *others = [fs.predict_y(model, X) for model in steps]
    for other in others:
        np.testing.assert_array_equal(first, other)
