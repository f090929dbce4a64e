"""Check the rooms, and the direction of imports between them, in the source."""

import ast
import importlib
import inspect
import pathlib
import sys
import types

import pytest

import fastsvgp as fs

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "fastsvgp"
FILES = sorted(p for p in PACKAGE.rglob("*.py"))

FAMILIES = "collapsed", "layers", "sites", "weight_space"
ROOMS = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in FILES}
FRONT_DOOR = "the public names"
# from the ground up: a room imports only rooms of lower floors, so not those of its own floor
FLOORS = [
    {"errors", "names", "thresholds"},
    {"files", "models"},
    {"records"},
    {"runtime"},
    {"check", "kernels"},
    {"covariances", "distributed", "likelihoods", "means", "posteriors"},
    {"bounds", "initialise"},
    {"collapsed", "layers", "sites", "weight_space"},
    {"optim"},
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
    "thresholds",
}
MAY_IMPORT["cli"] |= {"train", "weight_space"}

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
    *(PACKAGE / room for room in (*FAMILIES, "posteriors", "bounds")),
]


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path):
    """Return the dotted parts of the package at which relative imports of a file start."""
    return ["fastsvgp", *path.relative_to(PACKAGE).parts[:-1]]


def imports(path, tree):
    """Yield (absolute dotted name, node) of every import in a file.

    ``from a import b`` counts as a.b.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = module_of(path)
            base = here[: len(here) - node.level + 1] if node.level else []
            base = base + ([node.module] if node.module else [])
            yield from ((".".join([*base, alias.name]), node) for alias in node.names)


def rooms_imported(path, tree):
    for name, node in imports(path, tree):
        package, *inside = name.split(".")
        if package == "fastsvgp":
            yield inside[0] if inside and inside[0] in ROOMS else FRONT_DOOR, node


every_file = pytest.mark.parametrize("path", FILES, ids=name_of)


@every_file
def test_imports_point_one_way(path):
    room = room_of(path)
    if room in (
        "__init__",
        "__main__",
    ):  # the package's ``__init__`` resolves names lazily; see below
        return
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


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


@every_file
def test_no_import_of_ours_hides_in_a_function(path):
    """A hidden import that breaks a cycle indicates a missing room.

    The command line can import late what not every command needs.
    """
    if room_of(path) in ("cli", "__main__"):
        return
    for function in functions(parse(path)):
        for target, node in rooms_imported(path, function):
            raise AssertionError(
                f"{name_of(path)}:{node.lineno} imports {target} inside {function.name}()"
            )


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


@every_file
def test_numba_stays_in_the_kernels(path):
    if name_of(path).startswith("kernels/cpu") or room_of(path) == "cli":
        return
    names = {name.split(".")[0] for name, _ in imports(path, parse(path))}
    assert not names & {"numba", "llvmlite"}, name_of(path)


@every_file
def test_cupy_stays_in_the_kernels(path):
    """They import it in functions (see test_modules_load_light), when a CuPy array is used."""
    if name_of(path).startswith(("kernels/cuda", "runtime/cuda_devices")) or room_of(path) == "cli":
        return
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


MODELS = *FAMILIES, "posteriors", "bounds", "optim", "train"
BASES = PACKAGE / "weight_space" / "bases"  # inducing inputs of bases are an array


@pytest.mark.parametrize(
    "path", [p for p in FILES if room_of(p) in MODELS and p.parent != BASES], ids=name_of
)
def test_inducing_inputs_are_the_business_of_covariances(path):
    """Inducing inputs can be an array or any record; only the covariance knows their number."""
    for node in ast.walk(parse(path)):
        assert not looks_into_inducing(node), f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"


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


DOORS = {p.stem: p for p in (PACKAGE / "kernels").glob("*.py") if "twin = family(" in p.read_text()}
# operations that a front door composes of those of its twins
COMPOSED = {
    "full": set(),
    "chevron_multiply_vjp": {"outer", "multiply"},
    "chevron_gram": {"multiply"},
    "chevron_multiply_rows_vjp": {"outer_rows", "multiply_rows_transposed"},
    "chevron_multiply_rows_transposed_vjp": {"outer_rows", "multiply_rows"},
}
# in these families, function names of twins do not start with the name of the family
SHORT = {"chevron"}


def operations(stem):
    """Return the public functions of a front door, by name."""
    return {f.name: f for f in functions(parse(DOORS[stem])) if not f.name.startswith("_")}


def is_twin(node):
    """Whether a node is ``module``, or ``twin(...)`` itself."""
    return ast.unparse(node) == "module" or (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "twin"
    )


def calls_of_twins(function):
    """Return ``(name, arguments)`` of each function of a twin that an operation calls."""
    return [
        (n.func.attr, n.args)
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
        assert f'\ntwin = family("{stem}")\n' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("stem", DOORS)
def test_a_front_door_calls_the_twins_by_its_own_names(stem):
    """An operation and its twin share names and arguments, so a text search finds both."""
    twins = signatures(families(CPU)[stem])
    for name, f in operations(stem).items():
        calls = calls_of_twins(f)
        own = name.removeprefix(f"{stem}_") if stem in SHORT else name
        assert {called for called, _ in calls} == COMPOSED.get(name, {own}), name
        for node in ast.walk(f):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "twin":
                said = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
                assert said == {argument: argument for argument in said}, name
        if name not in COMPOSED:
            parameters = ast.parse(f"def f({twins[own]}): pass").body[0].args
            assert [ast.unparse(a) for a in calls[0][1]] == [a.arg for a in parameters.args], name
            door = f.args.posonlyargs + f.args.args + f.args.kwonlyargs
            # ``like`` can be only the selector of the twin
            assert {a.arg for a in door} - {"like"} == {a.arg for a in parameters.args} - {"like"}


def test_the_front_door_offers_each_operation():
    """``kernels/__init__`` imports each operation from its front door, and nothing else."""
    offered = {
        (node.module, alias.name)
        for node in parse(PACKAGE / "kernels" / "__init__.py").body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert offered == {(stem, name) for stem in DOORS for name in operations(stem)}


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


def test_twins_do_not_know_each_other():
    for one, other in ((CPU, "cuda"), (CUDA, "cpu")):
        for path in one.rglob("*.py"):
            names = [name for name, _ in imports(path, parse(path))]
            assert not [n for n in names if n.startswith(f"fastsvgp.kernels.{other}")], name_of(
                path
            )


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


@every_file
def test_files_hold_one_idea_each(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 450, name_of(path)


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


@every_file
def test_what_is_taken_from_our_modules_is_there(path):
    """This includes functions that no test calls without a device or MPI."""
    where = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    if where == "fastsvgp.__main__":  # importing it runs the command line
        return
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
