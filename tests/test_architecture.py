"""Check the rooms, and the direction of imports between them, in the source."""

import ast
import graphlib
import importlib
import inspect
import re
import sys
import types

import pytest
from support.source import (
    FILES,
    PACKAGE,
    every_file,
    files_outside,
    functions,
    imports,
    name_of,
    num_branches,
    parse,
)

import fastsvgp as fs

FAMILIES = "collapsed", "latents", "layers", "sites", "weight_space"
ROOMS = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in FILES}
FRONT_DOOR = "the public names"
# from the ground up: a room imports only rooms of lower floors, so not those of its own floor
FLOORS = [
    {"errors", "names"},
    {"files", "models"},
    {"records"},
    {"runtime"},
    {"check", "kernels"},
    {"covariances", "distributed", "likelihoods", "means", "posteriors"},
    {"bounds", "initialise"},
    {"collapsed", "layers", "sites", "weight_space"},
    {"latents"},
    {"optim", "paths"},
    {"interop", "train"},
    {"extending", "recipes", "testing"},
    {"cli", "sklearn"},
]
MAY_IMPORT = {room: set().union(*FLOORS[:i]) for i, floor in enumerate(FLOORS) for room in floor}
MAY_IMPORT["kernels"] = {"errors", "runtime"}  # independent of Gaussian processes
MAY_IMPORT["sklearn"] -= {"extending", "testing"}
# public names, and parts without one: files, signals, progress on stderr; checks of a model in a
# file; the BLAS in use
MAY_IMPORT["cli"] = {
    FRONT_DOOR,
    "check",
    "distributed",
    "files",
    "kernels",
    "layers",
    "names",
    "recipes",
    "records",
    "runtime",
}
MAY_IMPORT["cli"] |= {"latents", "train", "weight_space"}

# allowed imports at module level of each part, besides the standard library; everything else loads
# with the first call that needs it
LIGHT = {"numpy"}
HEAVY_ALLOWED = {
    "kernels/cpu": LIGHT | {"numba", "llvmlite", "scipy"},
    # but none of its submodules: see test_building_a_model_compiles_nothing
    "likelihoods": LIGHT | {"scipy"},
    "cli": LIGHT | {"scipy", "tqdm", "matplotlib", "sklearn"},
    "sklearn": LIGHT | {"scipy", "sklearn"},
    "interop/torch": LIGHT | {"torch"},
    "interop/jax": LIGHT | {"jax"},
}
HOT = [
    PACKAGE / "kernels" / "cpu",
    *(PACKAGE / room for room in (*FAMILIES, "posteriors", "bounds", "paths")),
]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(path, tree):
    for name, node in imports(path, tree):
        package, *inside = name.split(".")
        if package == "fastsvgp":
            yield inside[0] if inside and inside[0] in ROOMS else FRONT_DOOR, node


# the package's ``__init__`` resolves names lazily; see below
@files_outside("__init__", "__main__")
def test_imports_point_one_way(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"{name_of(path)} is in no room of this test; give it one"
    for target, node in rooms_imported(path, parse(path)):
        assert target == room or target in MAY_IMPORT[room], (
            f"{name_of(path)}:{node.lineno} imports {target}"
        )


def test_the_command_line_may_import_no_more_than_it_does():
    """The list has everything that the command line uses and that has no public name."""
    found = {
        target
        for path in FILES
        if room_of(path) == "cli"
        for target, _ in rooms_imported(path, parse(path))
    }
    assert MAY_IMPORT["cli"] == found - {"cli"}


@files_outside("cli", "__main__")
def test_no_import_of_ours_hides_in_a_function(path):
    """A hidden import that breaks a cycle indicates a missing room.

    The command line can import late what not every command needs.
    """
    for function in functions(parse(path)):
        for target, node in rooms_imported(path, function):
            raise AssertionError(
                f"{name_of(path)}:{node.lineno} imports {target} inside {function.name}()"
            )


@pytest.mark.parametrize(
    "root, folder", [(PACKAGE.parent, "fastsvgp"), (PACKAGE.parent / "bench", ".")]
)
def test_imports_have_no_circles(root, folder):
    """Imports in functions and for type checkers count, too: a reader follows them."""
    files = {}
    for path in (root / folder).rglob("*.py"):
        *package, stem = path.relative_to(root).with_suffix("").parts
        files[".".join(package if stem == "__init__" else [*package, stem])] = path
    graph = {}
    for module, path in files.items():
        names = [name for name, _ in imports(path, parse(path), root)]
        found = {name if name in files else name.rpartition(".")[0] for name in names}
        graph[module] = found & files.keys() - {module}
    assert sum(map(len, graph.values())) > 50
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError with the circle


def uses_importlib(tree):
    return any(isinstance(n, ast.Attribute) and n.attr == "import_module" for n in ast.walk(tree))


def test_names_are_resolved_at_run_time_in_four_places_only():
    found = {name_of(p) for p in FILES if uses_importlib(parse(p)) and room_of(p) != "cli"}
    assert found <= {
        "__init__.py",
        "runtime/moved.py",
        "records/persistence.py",
        "runtime/dispatch.py",
    }


def module_level(tree):
    """Return the tree without the bodies of functions: the code that runs at import."""
    tree = ast.parse(ast.unparse(tree))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [ast.Pass()]
    return tree


@every_file
def test_modules_load_light(path):
    where = name_of(path)
    allowed = next(
        (names for prefix, names in HEAVY_ALLOWED.items() if where.startswith(prefix)), LIGHT
    )
    for name, _ in imports(path, module_level(parse(path))):
        root = name.split(".")[0]
        if root == "fastsvgp" or root in sys.stdlib_module_names:
            continue
        assert root in allowed or any(name.startswith(a) for a in allowed if "." in a), (
            f"{where} imports {name} at module level"
        )


@files_outside("kernels/cpu", "cli")
def test_numba_stays_in_the_kernels(path):
    names = {name.split(".")[0] for name, _ in imports(path, parse(path))}
    assert not names & {"numba", "llvmlite"}, name_of(path)


@files_outside("kernels/cuda", "runtime/cuda_devices", "cli")
def test_cupy_stays_in_the_kernels(path):
    """They import it in functions (see test_modules_load_light), when a CuPy array is used."""
    assert "cupy" not in {name.split(".")[0] for name, _ in imports(path, parse(path))}, name_of(
        path
    )


def looks_into_inducing(node):
    """Whether a node looks into inducing inputs, or calls a block other than by name.

    Such nodes are ``len(x.inducing)``, ``x.inducing[...]``, ``x.inducing.shape`` and similar ones.
    """
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "").removesuffix("_vjp") in (
        "matrix",
        "diag",
    ):
        return "covariance" in ast.unparse(node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return ast.unparse(node.args[0]).endswith(".inducing")
    return isinstance(node, (ast.Subscript, ast.Attribute)) and ast.unparse(node.value).endswith(
        ".inducing"
    )


MODELS = *FAMILIES, "posteriors", "bounds", "paths", "optim", "train"
BASES = PACKAGE / "weight_space" / "bases"  # inducing inputs of bases are an array


@pytest.mark.parametrize(
    "path", [p for p in FILES if room_of(p) in MODELS and p.parent != BASES], ids=name_of
)
def test_inducing_inputs_are_the_business_of_covariances(path):
    """Inducing inputs can be an array or any record; only the covariance knows their number."""
    for node in ast.walk(parse(path)):
        assert not looks_into_inducing(node), f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"


def public_objects(init):
    """Yield the names that an ``__init__`` binds to objects other than its modules."""
    for node in parse(init).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (n.id for n in node.targets if isinstance(n, ast.Name))


@pytest.mark.parametrize("init", sorted(PACKAGE.rglob("__init__.py")), ids=name_of)
def test_modules_and_public_objects_have_different_names(init):
    """Otherwise importing the module replaces the object, or the object hides the module."""
    modules = {p.stem for p in init.parent.glob("*.py")} - {"__init__"}
    modules |= {p.parent.name for p in init.parent.glob("*/__init__.py")}
    objects = set(public_objects(init))
    if init.parent == PACKAGE:
        objects |= {name for name in fs.__all__ if not inspect.ismodule(getattr(fs, name))}
    assert not modules & objects


@every_file
def test_one_pool_of_threads(path):
    """No prange, no parallel=True: an OpenMP or TBB pool would spin against OpenBLAS's.

    See thread_pool.py.
    """
    for node in ast.walk(parse(path)):
        assert "prange" not in (
            getattr(node, "id", ""),
            getattr(node, "attr", ""),
        ), f"{name_of(path)}:{node.lineno}"
        if isinstance(node, ast.keyword) and node.arg in ("parallel", "fastmath"):
            assert not (isinstance(node.value, ast.Constant) and node.value.value is True), (
                f"{name_of(path)}:{node.value.lineno}"
            )


SECOND_BLAS = {"dot", "matmul", "einsum", "tensordot", "vdot", "inner", "linalg"}


def is_product(node):
    """Whether a node is a product by NumPy's own BLAS.

    One operand is not a product: ``einsum("nn->n", A)`` is a view.
    """
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return isinstance(node.op, ast.MatMult)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "einsum"
    ):
        return len(node.args) > 2
    name = (
        node.value.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        else None
    )
    return name == "np" and node.attr in SECOND_BLAS - {"einsum"}


def runs_once(node):
    """Whether a node is a function with a cached result."""
    return isinstance(node, ast.FunctionDef) and any(
        "cache" in ast.unparse(d) for d in node.decorator_list
    )


@pytest.mark.parametrize(
    "path", [p for p in FILES if any(h in p.parents for h in HOT)], ids=name_of
)
def test_one_blas(path):
    """No @, np.dot or np.linalg in hot paths: NumPy's own OpenBLAS would spin against SciPy's."""
    tree = parse(path)
    for function in [n for n in ast.walk(tree) if runs_once(n)]:
        function.body = [ast.Pass()]
    for node in ast.walk(tree):
        assert not is_product(node), f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"


LINES = 450  # of one file


def num_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


@every_file
def test_files_hold_one_idea_each(path):
    assert num_lines(path) < LINES, name_of(path)


MOST_BRANCHES = 20  # of one function


def test_branches_are_counted():
    source = """
def outer(a, b):
    if a and b or a:
        for i in [x for x in a if x if i]:
            b = lambda: 1 if a else 2
    elif b:
        def inner():
            while a:
                pass
    try:
        pass
    except ValueError:
        pass
"""
    outer, inner = functions(ast.parse(source))
    assert (num_branches(outer), num_branches(inner)) == (10, 1)


def test_functions_branch_little():
    """A function with more branches has several ideas, each of which deserves a name."""
    numbers = {
        f"{name_of(path)}:{function.lineno} {function.name}": num_branches(function)
        for path in FILES
        for function in functions(parse(path))
    }
    assert not {name: number for name, number in numbers.items() if number > MOST_BRANCHES}
    assert max(numbers.values()) > MOST_BRANCHES / 2  # else nothing was counted


def test_folders_are_small():
    """At most eight modules at the root, and twenty in any other folder."""
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file())]
    sizes = {path.relative_to(PACKAGE): len(list(path.glob("*.py"))) for path in folders}
    assert len(sizes) > 30
    assert not {name: n for name, n in sizes.items() if n > (20 if name.parts else 8)}


def test_lines_of_pages_are_short():
    """Prose has lines of at most 100; tables, code, formulas and pages of figures may be longer."""
    root, long = PACKAGE.parent, []
    for path in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        prose = "".join(path.read_text(encoding="utf-8").split("```")[::2])
        lines = [] if path.name == "papers.md" else prose.splitlines()
        lines = [line for line in lines if not set("$\\|") & set(line)]
        long += [line for line in lines if len(line) > 100 and not re.match("!|<|`| {4}", line)]
    assert not long


def test_files_of_tests_hold_one_idea_each():
    long = [path for path in (PACKAGE.parent / "tests").rglob("*.py") if num_lines(path) >= LINES]
    assert long == []


def attributes_of_modules(tree, modules):
    """Yield each ``module.name`` for these modules, unless a local variable hides them."""
    for node in ast.iter_child_nodes(tree):
        inner = modules
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            names = [n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)]
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            names += [n.id for n in stored if isinstance(n.ctx, ast.Store)]
            inner = modules.keys() - names
            inner = {name: modules[name] for name in inner}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in modules:
                yield node
        yield from attributes_of_modules(node, inner)


@files_outside("__main__")  # importing it runs the command line
def test_what_is_taken_from_our_modules_is_there(path):
    """This includes functions that no test calls without a device or MPI."""
    where = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    if where.startswith(("fastsvgp.interop.torch", "fastsvgp.interop.jax")):
        pytest.importorskip(where.rpartition(".")[2])
    names = vars(importlib.import_module(where.removesuffix(".__init__"))).items()
    modules = {
        name: thing
        for name, thing in names
        if isinstance(thing, types.ModuleType) and thing.__name__.startswith("fastsvgp")
    }
    for node in attributes_of_modules(parse(path), modules):
        assert hasattr(modules[node.value.id], node.attr), (
            f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        )


def test_oracles_import_nothing_of_ours():
    for path in sorted((PACKAGE.parent / "tests" / "oracles").glob("*.py")):
        names = {name.split(".")[0] for name, _ in imports(PACKAGE / "x.py", parse(path))}
        assert "fastsvgp" not in names, path.name


def test_nothing_left_undone():
    marks = ["TO" + "DO", "FIX" + "ME"]
    for path in FILES:
        found = [mark for mark in marks if mark in path.read_text(encoding="utf-8")]
        assert not found, f"{name_of(path)}: {found}"
