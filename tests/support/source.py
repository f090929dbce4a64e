"""The source of the package for tests that read it."""

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "fastsvgp"
FILES = sorted(p for p in PACKAGE.rglob("*.py"))


def name_of(path):
    return path.relative_to(PACKAGE).as_posix()


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path, root=PACKAGE.parent):
    """Return the dotted parts of the package at which relative imports of a file start."""
    return list(path.relative_to(root).parts[:-1])


def imports(path, tree, root=PACKAGE.parent):
    """Yield (absolute dotted name, node) of every import in a file of the packages in ``root``.

    ``from a import b`` counts as a.b.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = module_of(path, root)
            base = here[: len(here) - node.level + 1] if node.level else []
            base = base + ([node.module] if node.module else [])
            yield from ((".".join([*base, alias.name]), node) for alias in node.names)


def files_outside(*places):
    """Return the files whose names do not start with one of these places."""
    return [path for path in FILES if not name_of(path).startswith(places)]


NAMED = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
# a comprehension is a loop
BRANCHES = ast.If, ast.IfExp, ast.For, ast.While, ast.comprehension, ast.ExceptHandler


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def own_nodes(tree):
    """Yield the nodes below ``tree`` without those of functions and classes inside it."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, NAMED):
            yield node
            yield from own_nodes(node)


def num_branches(function):
    """Count conditions, loops and handlers of a function, and the operands after ``and``, ``or``.

    Functions inside it count for themselves, lambdas for the function.
    """
    nodes = list(own_nodes(function))
    return (
        sum(isinstance(node, BRANCHES) for node in nodes)
        + sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
        + sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    )
