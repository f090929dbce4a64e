"""Check the families of kernels in the source: twins, front doors, and what each calls."""

import ast
import pathlib
import re

import pytest
from support.source import PACKAGE, functions, imports, name_of, parse

TESTS = pathlib.Path(__file__).parent
CPU, CUDA = PACKAGE / "kernels" / "cpu", PACKAGE / "kernels" / "cuda"
# modules that serve the families; on the CPU, checks are NumPy's
NO_TWINS = "common", "deferred_checks", "tiled"


def families(backend):
    """Return {name: file} of the kernel families; a file can be a folder's ``__init__``."""
    files = {p.stem: p for p in backend.glob("*.py") if p.stem != "__init__"}
    return files | {p.parent.name: p for p in backend.glob("*/__init__.py")}


CUDA_TWINS = sorted(families(CUDA).keys() - {*NO_TWINS})


def signatures(path):
    functions = [
        n for n in parse(path).body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    ]
    return {
        f.name: ast.unparse(f.args)
        for f in functions
        if not any("njit" in ast.unparse(d) for d in f.decorator_list)
    }


DOORS = {p.stem: p for p in (PACKAGE / "kernels").glob("*.py") if p.stem != "__init__"}
# operations that a front door composes of those of its twins
COMPOSED = {
    "full": set(),
    "solve_triangular_vjp": {"solve_triangular", "tril_product"},
    "multiply_triangular_vjp": {"multiply_triangular", "tril_product"},
    "solve_tril_vjp": {"solve_tril", "tril_product"},
    "inverse_triangular_vjp": {"multiply_triangular", "tril"},
    "cholesky_vjp": {"whitening_vjp"},
    "cholesky_inverse_vjp": set(),
}


def operations(stem):
    """Return the public functions of a front door, by name."""
    return {f.name: f for f in functions(parse(DOORS[stem])) if not f.name.startswith("_")}


def arrays_of(function):
    """Return the arrays of an operation that ``@operation(...)`` declares; None for others."""
    for call in function.decorator_list:
        return [ast.literal_eval(a).removeprefix("*") for a in call.args]


def is_twin(node):
    """Whether a node is ``module``, or ``twin(...)`` itself."""
    return ast.unparse(node) == "module" or (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "twin"
    )


def parameters_of(function):
    return [a.arg for a in function.args.args + function.args.kwonlyargs]


def calls_of_twins(function):
    """Return ``(name, arguments)`` of each function of a twin that an operation calls."""
    if arrays_of(function):
        return [(function.name, parameters_of(function))]
    return [
        (n.func.attr, [ast.unparse(a) for a in n.args])
        for n in ast.walk(function)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and is_twin(n.func.value)
    ]


@pytest.mark.parametrize("stem", CUDA_TWINS)
def test_twins_share_stem_and_signatures(stem):
    assert (PACKAGE.parent / "kernels_cuda" / f"{stem}.cu").exists()
    other = signatures(families(CPU)[stem])  # some of these serve other modules of the CPU
    called = {name for f in operations(stem).values() for name, _ in calls_of_twins(f)}
    assert signatures(families(CUDA)[stem]) == {name: other[name] for name in called}


def test_each_family_has_a_front_door():
    """The families on the CPU are the front doors, and each requests the twin of its own name."""
    assert families(CPU).keys() - {*NO_TWINS} == DOORS.keys()
    assert families(CUDA).keys() - {*NO_TWINS} <= DOORS.keys()
    for stem, path in DOORS.items():
        text = path.read_text(encoding="utf-8")
        assert f'\ntwin = family("{stem}")\n' in text or "family(" not in text


@pytest.mark.parametrize("stem", DOORS)
def test_a_front_door_calls_the_twins_by_its_own_names(stem):
    """An operation and its twin share names and arguments, so a text search finds both."""
    twins = signatures(families(CPU)[stem])
    for name, f in operations(stem).items():
        calls = calls_of_twins(f)
        assert {called for called, _ in calls} == COMPOSED.get(name, {name}), name
        assert {*(arrays_of(f) or ())} <= {*parameters_of(f)}, name
        for node in ast.walk(f):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "twin":
                said = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
                assert said == {argument: argument for argument in said}, name
        if name not in COMPOSED:
            parameters = ast.parse(f"def f({twins[name]}): pass").body[0].args
            assert calls[0][1] == [a.arg for a in parameters.args], name
            # ``like`` can be only the selector of the twin
            assert {*parameters_of(f)} - {"like"} == {a.arg for a in parameters.args} - {"like"}


def test_twins_do_not_know_each_other():
    for one, other in ((CPU, "cuda"), (CUDA, "cpu")):
        for path in one.rglob("*.py"):
            names = [name for name, _ in imports(path, parse(path))]
            assert not [n for n in names if n.startswith(f"fastsvgp.kernels.{other}")], name_of(
                path
            )


def test_cuda_runs_every_body_of_the_cpu_that_takes_a_twin():
    for path in (TESTS / "kernels").glob("test_*.py"):
        fixture = re.compile("twin_of|door_of")
        bodies = {f.name for f in functions(parse(path)) if fixture.search(ast.unparse(f.args))}
        there = TESTS / "cuda" / f"{path.stem}_cuda.py"
        used = {name for name, _ in imports(there, parse(there))} if bodies else set()
        assert {f"tests.kernels.{path.stem}.{body}" for body in bodies} <= used, path
