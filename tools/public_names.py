"""Generate the lists that follow from the table of public names.

The table is ``_ROOMS`` of ``fastsvgp/__init__.py``.

``python tools/public_names.py`` updates them; ``--check`` names stale ones without writing. The
lists are the stub ``__init__.pyi``, the ``__init__`` of rooms that consist of public names, the
functions that kinds of model serve (``models.OFFERED``), the modules of records
(``registry.OURS``), and the entries of ``docs/api``. The ``__init__`` of ``kernels`` follows from
its front doors. The sources are read, not imported.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = pathlib.PurePosixPath("fastsvgp")
WIDTH = 100
# public module -> the room that contains it, if its path differs
MODULES = {"schedules": "optim"}
DOORS = "covariances", "likelihoods", "posteriors"
STUB = '''"""The public names, for type checkers and editors; __init__.py loads them lazily.

Written by ``python tools/public_names.py``.
"""
'''


class Sources:
    """The files of the repository, as they are and as they should be."""

    def __init__(self, root=ROOT):
        self.root, self.written = root, {}

    def text(self, path):
        path = str(path)
        return self.written.get(path) or (self.root / path).read_text(encoding="utf-8")

    def tree(self, path):
        return ast.parse(self.text(path))

    def files(self, folder, pattern):
        found = sorted((self.root / folder).rglob(pattern))
        return [pathlib.PurePosixPath(path.relative_to(self.root).as_posix()) for path in found]

    def write(self, path, text):
        self.written[str(path)] = text

    def stale(self):
        """Return the paths of files that are out of date."""
        return [
            path
            for path, text in self.written.items()
            if (self.root / path).read_text(encoding="utf-8") != text
        ]


def constant(tree, name):
    """Return the value of a module's constant, which must be a literal."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"no literal {name}")


def in_order(names):
    """Sort the names of an import as ruff does: constants, classes, then others."""
    return sorted(names, key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))


def import_of(module, names, reexport=False):
    """Return the lines of an import as ruff formats them; a re-export repeats each name."""
    names = [f"{name} as {name}" if reexport else name for name in in_order(names)]
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= WIDTH + 1:
        return line
    lines = (f"    {name},\n" for name in names)
    return f"from {module} import (\n{''.join(lines)})\n"


def literal(name, values, brackets="()"):
    """Return the lines of a constant with strings, one per line."""
    lines = (f"    {value},\n" for value in values)
    return f"{name} = {brackets[0]}\n{''.join(lines)}{brackets[1]}\n"


def replaced(text, tree, name, new):
    """Return a module's text with the lines of one assignment replaced."""
    node = next(
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: node.lineno - 1], new, *lines[node.end_lineno :]])


def stub(rooms, modules):
    parts = [import_of(".", [name for name in modules if name not in MODULES], reexport=True)]
    found = {f".{room}": list(names) for room, names in rooms.items()}
    for name, package in MODULES.items():
        found.setdefault(f".{package}", []).append(name)
    parts += [import_of(module, found[module], reexport=True) for module in sorted(found)]
    return f"{STUB}\n{''.join(parts)}\n__version__: str\n"


def defined_in(sources, room):
    """Return the module of a room that defines each name, dotted if it lies in a folder."""
    return {
        node.name: ".".join(path.relative_to(PACKAGE / room).with_suffix("").parts)
        for path in sources.files(PACKAGE / room, "*.py")
        for node in sources.tree(path).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


def door(sources, room, names):
    """Return the ``__init__`` of a room: docstring, imports of public names, and names."""
    module, found = defined_in(sources, room), {}
    for name in names:
        found.setdefault(module[name], []).append(name)
    said = ast.get_docstring(sources.tree(PACKAGE / room / "__init__.py"), clean=False)
    imports = "".join(import_of(f".{stem}", found[stem]) for stem in sorted(found))
    listed = literal("__all__", [f'"{name}"' for name in in_order(names)], "[]")
    return f'"""{said}"""\n\n{imports}\n{listed}'


def operations(sources, room):
    """Return the ``__init__`` of the kernels: docstring, and the operations of each front door."""
    said = ast.get_docstring(sources.tree(room / "__init__.py"), clean=False)
    found = {
        path.stem: [f.name for f in sources.tree(path).body if isinstance(f, ast.FunctionDef)]
        for path in sources.files(room, "*.py")
        if path.parent == room and path.stem != "__init__"
    }
    imports = (import_of(f".{stem}", names, reexport=True) for stem, names in found.items())
    return f'"""{said}"""\n\n{"".join(imports)}'


def decorated(node, pattern):
    return any(re.fullmatch(pattern, ast.unparse(item)) for item in node.decorator_list)


def modules_of_records(sources):
    """Return the module of each record class by its name."""
    found = {}
    for path in sources.files(PACKAGE, "*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in sources.tree(path).body:
            if isinstance(node, ast.ClassDef) and decorated(node, r"(\w+\.)?record"):
                found[node.name] = module.removesuffix(".__init__")
    return found


def served(sources, public):
    """Return the public functions that dispatch on the kind of model."""
    found = set()
    for path in sources.files(PACKAGE, "*.py"):
        for node in ast.walk(sources.tree(path)):
            if isinstance(node, ast.FunctionDef) and decorated(node, r"public_call\([A-Z]\w*.*\)"):
                found.add(node.name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "models.register":
                found |= {keyword.arg for keyword in node.keywords}
    return [name for name in public if name in found]


def entries(text):
    """Return ``(name, position of its line)`` of each ``fastsvgp`` entry on a page of docs/api."""
    module = None
    for match in re.finditer(r"(?m)^(?:\.\. currentmodule:: (\S+)|   (\w+))\n", text):
        module = match.group(1) or module
        if module == "fastsvgp" and match.group(2):
            yield match.group(2), match.span()


def pages(sources, rooms):
    """Update the entries of docs/api: remove old names, add new ones after their room."""
    names = [name for group in rooms.values() for name in group]
    paths = [p for p in sources.files("docs/api", "*.rst") if "generated" not in p.parts]
    for path in paths:
        text = sources.text(path)
        for name, (start, end) in reversed(list(entries(text))):
            if name not in names:
                text = text[:start] + text[end:]
        sources.write(path, text)
    at = {name: path for path in paths for name, _ in entries(sources.text(path))}
    for group in rooms.values():
        for name in [name for name in group if name not in at]:
            near = [other for other in group if other in at]
            if not near:
                raise SystemExit(
                    f"{name} stands on no page of docs/api, and no other name of its module does:"
                    " write it onto one"
                )
            path = at[name] = at[near[-1]]
            text = sources.text(path)
            end = dict(entries(text))[near[-1]][1]
            sources.write(path, f"{text[:end]}   {name}\n{text[end:]}")


def update(sources):
    """Write all lists to ``sources``."""
    table = sources.tree(PACKAGE / "__init__.py")
    rooms, modules = constant(table, "_ROOMS"), constant(table, "_MODULES")
    public = [name for names in rooms.values() for name in names]
    sources.write(PACKAGE / "__init__.pyi", stub(rooms, modules))
    for room in DOORS:
        sources.write(PACKAGE / room / "__init__.py", door(sources, room, rooms[room]))
    sources.write(PACKAGE / "kernels" / "__init__.py", operations(sources, PACKAGE / "kernels"))
    for path, name, values, brackets in (
        (PACKAGE / "models.py", "OFFERED", [f'"{n}"' for n in served(sources, public)], "()"),
        (
            PACKAGE / "records" / "registry.py",
            "OURS",
            [f'"{n}": "{m}"' for n, m in sorted(modules_of_records(sources).items())],
            "{}",
        ),
    ):
        new = literal(name, values, brackets)
        sources.write(path, replaced(sources.text(path), sources.tree(path), name, new))
    pages(sources, rooms)


def main(arguments):
    sources = Sources()
    update(sources)
    stale = sources.stale()
    if "--check" in arguments:
        if stale:
            raise SystemExit(f"stale: {', '.join(stale)}; run python tools/public_names.py")
        return
    for path in stale:
        (ROOT / path).write_text(sources.written[path], encoding="utf-8")
        print(f"{path} is up to date again")


if __name__ == "__main__":
    main(sys.argv[1:])
