"""Check the rooms, and the direction of imports between them, in the source."""

import ast
import graphlib
import importlib
import re
import sys
import types

import pytest
from support.source import (
    FILES,
    PACKAGE,
    files_outside,
    functions,
    imports,
    name_of,
    num_branches,
    parse,
)

import fastsvgp as fs
from fastsvgp import public_names

FAMILIES = "collapsed", "hilbert", "latents", "layers", "near", "sites", "qsgp"
ROOMS = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in FILES}
FRONT_DOOR = "the public names"
# from the ground up: a room imports only rooms of lower floors, so not those of its own floor
FLOORS = [
    {"names"},
    {"public_names"},
    {"errors"},
    {"files", "models"},
    {"records"},
    {"runtime"},
    {"check", "kernels"},
    {"covariances", "distributed", "likelihoods", "means", "posteriors"},
    {"bounds", "inducing"},
    {"collapsed", "hilbert", "layers", "near", "sites", "qsgp", "uncertain"},
    {"latents"},
    {"conditioning", "optim", "paths", "sensitivity"},
    {"priors"},
    {"interop", "testing", "train"},
    {"extending", "recipes"},
    {"exporting"},
    {"cli", "sklearn"},
]
MAY_IMPORT = {room: set().union(*FLOORS[:i]) for i, floor in enumerate(FLOORS) for room in floor}
MAY_IMPORT["kernels"] = {"errors", "public_names", "runtime"}  # independent of Gaussian processes
MAY_IMPORT["sklearn"] -= {"extending", "testing"}
# public names, and parts without one: files, signals, progress, checks of a file, the BLAS in use
CLI = "bounds check distributed exporting files kernels latents layers names recipes records"
MAY_IMPORT["cli"] = {FRONT_DOOR, *CLI.split(), "runtime", "sensitivity", "train"}

# imports at module level of each part, besides the standard library; all else loads when needed
LIGHT = {"numpy"}
HEAVY_ALLOWED = {
    "kernels/cpu": LIGHT | {"scipy"},
    "near": LIGHT | {"scipy"},
    # but none of its submodules: see test_building_a_model_compiles_nothing
    "likelihoods": LIGHT | {"scipy"},
    "cli": LIGHT | {"scipy", "tqdm", "matplotlib", "sklearn"},
    "sklearn": LIGHT | {"scipy", "sklearn"},
    "interop/torch": LIGHT | {"torch"},
    "interop/jax": LIGHT | {"jax"},
}
HOT = [
    PACKAGE / "kernels" / "cpu",
    *(PACKAGE / room for room in (*FAMILIES, "posteriors", "bounds", "conditioning", "paths")),
]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.fixture(scope="module")
def trees():
    """The syntax tree of each file. Tests do not change it."""
    return {path: parse(path) for path in FILES}


def rooms_imported(path, tree):
    for name, node in imports(path, tree):
        package, *inside = name.split(".")
        if package == "fastsvgp":
            yield inside[0] if inside and inside[0] in ROOMS else FRONT_DOOR, node


# the package's ``__init__`` resolves names lazily; see below
def test_imports_point_one_way(trees):
    files = files_outside("__init__", "__main__")
    homeless = [name_of(path) for path in files if room_of(path) not in MAY_IMPORT]
    assert not homeless, f"these are in no room of this test; give them one: {homeless}"
    wrong = [
        f"{name_of(path)}:{node.lineno} imports {target}"
        for path in files
        for target, node in rooms_imported(path, trees[path])
        if target not in {room_of(path), *MAY_IMPORT[room_of(path)]}
    ]
    assert not wrong


def test_the_command_line_may_import_no_more_than_it_does(trees):
    """The list has everything that the command line uses and that has no public name."""
    found = {
        target
        for path, tree in trees.items()
        if room_of(path) == "cli"
        for target, _ in rooms_imported(path, tree)
    }
    assert MAY_IMPORT["cli"] == found - {"cli"}


def test_no_import_of_ours_hides_in_a_function(trees):
    """A hidden import that breaks a cycle indicates a missing room.

    The command line can import late what not every command needs.
    """
    hidden = [
        f"{name_of(path)}:{node.lineno} imports {target} inside {function.name}()"
        for path in files_outside("cli", "__main__")
        for function in functions(trees[path])
        for target, node in rooms_imported(path, function)
    ]
    assert not hidden


@pytest.mark.parametrize(
    "root, folder", [(PACKAGE.parent, "fastsvgp"), (PACKAGE.parent / "bench", ".")]
)
def test_imports_have_no_circles(trees, root, folder):
    """Imports in functions and for type checkers count, too: a reader follows them."""
    files = {}
    for path in (root / folder).rglob("*.py"):
        *package, stem = path.relative_to(root).with_suffix("").parts
        files[".".join(package if stem == "__init__" else [*package, stem])] = path
    graph = {}
    for module, path in files.items():
        names = [name for name, _ in imports(path, trees.get(path) or parse(path), root)]
        found = {name if name in files else name.rpartition(".")[0] for name in names}
        graph[module] = found & files.keys() - {module}
    assert sum(map(len, graph.values())) > 50
    graphlib.TopologicalSorter(graph).prepare()  # raises a CycleError with the circle


def uses_importlib(tree):
    return any(isinstance(n, ast.Attribute) and n.attr == "import_module" for n in ast.walk(tree))


def test_names_are_resolved_at_run_time_in_four_places_only(trees):
    found = {name_of(p) for p in FILES if uses_importlib(trees[p]) and room_of(p) != "cli"}
    others = {"records/persistence.py", "runtime/dispatch.py", "kernels/cpu/common/ahead.py"}
    assert found <= {"public_names.py"} | others


def run_at_import(tree):
    """Yield the nodes below ``tree`` without those of functions: the code that runs at import."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from run_at_import(node)


def test_modules_load_light(trees):
    wrong, met = [], set()
    for path, tree in trees.items():
        where = name_of(path)
        allowed = next(
            (names for prefix, names in HEAVY_ALLOWED.items() if where.startswith(prefix)), LIGHT
        )
        at_import = set(run_at_import(tree))
        for name, node in imports(path, tree):
            root = name.split(".")[0]
            if node not in at_import or root in {"fastsvgp", *sys.stdlib_module_names}:
                continue
            met.add(root)
            if root not in allowed:
                wrong.append(f"{where}:{node.lineno} imports {name} at module level")
    assert not wrong
    assert {"numpy", "scipy", "torch", "sklearn"} <= met


# between the kernels and Numba, and intrinsics
SHIM = "common/compiled common/link_once common/numba_cache common/forms common/blas"
NUMBA = tuple(f"kernels/cpu/{stem}.py" for stem in SHIM.split())


def test_numba_and_cupy_stay_in_the_kernels(trees):
    """CuPy is imported in functions (see above), when a CuPy array is used."""
    cuda = "kernels/cuda", "runtime/cuda_devices", "cli"
    places = {"numba": (*NUMBA, "cli"), "llvmlite": NUMBA, "cupy": cuda}
    found = [
        (name.split(".")[0], name_of(path))
        for path, tree in trees.items()
        for name, _ in imports(path, tree)
    ]
    assert {package for package, _ in found} >= places.keys()
    assert not [pair for pair in found if not pair[1].startswith(places.get(pair[0], ""))]


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


MODELS = *FAMILIES, "posteriors", "bounds", "conditioning", "paths", "optim", "train"
BASES = PACKAGE / "qsgp" / "bases"  # inducing inputs of bases are an array


def test_inducing_inputs_are_the_business_of_covariances(trees):
    """Inducing inputs can be an array or any record; only the covariance knows their number."""
    wrong = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        if room_of(path) in MODELS and path.parent != BASES
        for node in ast.walk(tree)
        if looks_into_inducing(node)
    ]
    assert not wrong


def public_objects(tree):
    """Yield the names that an ``__init__`` binds to objects other than its modules."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (n.id for n in node.targets if isinstance(n, ast.Name))


def test_modules_and_public_objects_have_different_names(trees):
    """Otherwise importing the module replaces the object, or the object hides the module."""
    both = []
    for init in PACKAGE.rglob("__init__.py"):
        modules = {p.stem for p in init.parent.glob("*.py")} - {"__init__"}
        modules |= {p.parent.name for p in init.parent.glob("*/__init__.py")}
        objects = set(public_objects(trees[init]))
        if init.parent == PACKAGE:
            objects |= set(fs.__all__) - {*public_names.MODULES, *public_names.WHOLE}
        elif init.parent.parent == PACKAGE:
            files = public_names.MODULES.get(init.parent.name, {})
            objects |= {name for names in files.values() for name in names}
        both += [f"{name_of(init)}: {name}" for name in modules & objects]
    assert not both


def is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


def starts_a_pool(node):
    """Whether a node is ``prange``, or one of two arguments of a function that compiles."""
    if isinstance(node, ast.keyword):
        return node.arg in ("parallel", "fastmath") and is_true(node.value)
    return "prange" in (getattr(node, "id", ""), getattr(node, "attr", ""))


def test_one_pool_of_threads(trees):
    """No prange, no parallel=True: an OpenMP or TBB pool would spin against OpenBLAS's.

    See thread_pool.py.
    """
    wrong = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if starts_a_pool(node)
    ]
    assert not wrong


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


def run_often(tree):
    """Yield the nodes below ``tree`` without those of functions that run once."""
    for node in ast.iter_child_nodes(tree):
        if not runs_once(node):
            yield node
            yield from run_often(node)


def test_one_blas(trees):
    """No @, np.dot or np.linalg in hot paths: NumPy's own OpenBLAS would spin against SciPy's."""
    wrong = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        if any(hot in path.parents for hot in HOT)
        for node in run_often(tree)
        if is_product(node)
    ]
    assert not wrong


LINES = 450  # of one file


def num_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_files_hold_one_idea_each():
    tests = (PACKAGE.parent / "tests").rglob("*.py")
    assert [path for path in (*FILES, *tests) if num_lines(path) >= LINES] == []


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


def test_functions_branch_little(trees):
    """A function with more branches has several ideas, each of which deserves a name."""
    numbers = {
        f"{name_of(path)}:{function.lineno} {function.name}": num_branches(function)
        for path, tree in trees.items()
        for function in functions(tree)
    }
    assert not {name: number for name, number in numbers.items() if number > MOST_BRANCHES}
    assert max(numbers.values()) > MOST_BRANCHES / 2  # else nothing was counted


def test_folders_are_small():
    """At most nine modules at the root, and twenty in any other folder."""
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file())]
    sizes = {path.relative_to(PACKAGE): len(list(path.glob("*.py"))) for path in folders}
    assert len(sizes) > 30
    assert not {name: n for name, n in sizes.items() if n > (20 if name.parts else 9)}


def test_lines_of_pages_are_short():
    """Prose has lines of at most 100; tables, code, formulas and pages of figures may be longer."""
    root, long = PACKAGE.parent, []
    for path in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        prose = "".join(path.read_text(encoding="utf-8").split("```")[::2])
        lines = [] if path.name == "papers.md" else prose.splitlines()
        lines = [line for line in lines if not set("$\\|") & set(line)]
        long += [line for line in lines if len(line) > 100 and not re.match("!|<|`| {4}", line)]
    assert not long


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


def test_what_is_taken_from_our_modules_is_there(trees):
    """This includes functions that no test calls without a device or MPI."""
    absent = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
    missing = []
    for path in files_outside("__main__"):  # importing it runs the command line
        where = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if where.startswith(tuple(f"fastsvgp.interop.{library}" for library in absent)):
            continue
        names = vars(importlib.import_module(where.removesuffix(".__init__"))).items()
        modules = {
            name: thing
            for name, thing in names
            if isinstance(thing, types.ModuleType) and thing.__name__.startswith("fastsvgp")
        }
        missing += [
            f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
            for node in attributes_of_modules(trees[path], modules)
            if not hasattr(modules[node.value.id], node.attr)
        ]
    assert not missing


def test_oracles_import_nothing_of_ours():
    for path in sorted((PACKAGE.parent / "tests" / "oracles").glob("*.py")):
        names = {name.split(".")[0] for name, _ in imports(PACKAGE / "x.py", parse(path))}
        assert "fastsvgp" not in names, path.name


def test_nothing_left_undone():
    for path in FILES:
        found = [m for m in ("TO" + "DO", "FIX" + "ME") if m in path.read_text(encoding="utf-8")]
        assert not found, f"{name_of(path)}: {found}"
