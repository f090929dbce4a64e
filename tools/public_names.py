"""Generate the lists that follow from the tables of public names.

The tables are those of ``fastsvgp/public_names.py``.

``python tools/public_names.py`` updates them; ``--check`` names stale ones without writing. The
lists are the stubs of the package and of modules whose names load at their first use, the functions
that kinds of model serve (``models.OFFERED``), the modules of records (``registry.OURS``), and the
entries of ``docs/api``. The ``__init__`` of ``kernels`` follows from its front doors. The sources
are read, not imported.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = pathlib.PurePosixPath("fastsvgp")
WIDTH = 100
STUB = '''"""Public names, for type checkers and editors; the module loads them at their first use.

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

    def has(self, path):
        return (self.root / path).exists()

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
            if not self.has(path) or (self.root / path).read_text(encoding="utf-8") != text
        ]


def constant(tree, name):
    """Return the value of a module's constant, which must be a literal."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if targets[0] is not None and ast.unparse(targets[0]) == name:
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


def lazy(tree):
    """Whether a module defines and imports none of its names."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    defines = any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body)
    return not defines and all(node.module in (None, "public_names") for node in imports)


def stub(dots, files):
    """Return the stub of a module whose names are in these files; ``dots`` lead to the package."""
    found: dict = {}
    for file, names in files.items():
        parent, _, last = file.rpartition(".")
        found.setdefault(file if names else parent, []).extend(names or [last])
    parts = (import_of(f"{dots}{file}", found[file], reexport=True) for file in sorted(found))
    return f"{STUB}\n{''.join(parts)}"


def stubs(sources, modules, own, front, whole):
    """Write the stubs of the package and of its lazy modules."""
    shown = {
        name: file for files in modules.values() for file, names in files.items() for name in names
    }
    files = {file: list(names) for file, names in own.items()}
    for name in front:
        files.setdefault(shown[name], []).append(name)
    names = import_of(".", [*modules, *whole], reexport=True)
    imports = stub(".", files).removeprefix(f"{STUB}\n")
    text = f"{STUB}\n{names}{imports}\n__version__: str\n"
    sources.write(PACKAGE / "__init__.pyi", text)
    for module, files in modules.items():
        folder = PACKAGE / module
        path = (
            folder / "__init__.py"
            if sources.has(folder / "__init__.py")
            else folder.with_suffix(".py")
        )
        if sources.text(path).endswith(f'= offer("{module}")\n') and lazy(sources.tree(path)):
            sources.write(
                path.with_suffix(".pyi"), stub(".." if path.stem == "__init__" else ".", files)
            )


def operations(sources, room):
    """Return the ``__init__`` of the kernels: docstring, and the operations of each front door."""
    said = ast.get_docstring(sources.tree(room / "__init__.py"), clean=False)
    found = {
        path.stem: [
            f.name
            for f in sources.tree(path).body
            if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")
        ]
        for path in sources.files(room, "*.py")
        if path.parent == room and path.stem != "__init__"
    }
    imports = (import_of(f".{stem}", names, reexport=True) for stem, names in found.items())
    imports = import_of("..public_names", ["offer_defined"]) + "".join(imports)
    shown = "__getattr__, __dir__ = offer_defined(__name__)"
    return f'"""{said}"""\n\n{imports}\n{shown}\n'


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
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if re.fullmatch(r"public_call\([A-Z]\w*.*\)", ast.unparse(call)):
                        named = {k.arg: k.value for k in call.keywords}.get("name")
                        found.add(node.name if named is None else ast.literal_eval(named))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "models.register":
                found |= {keyword.arg for keyword in node.keywords}
    return [name for name in public if name in found]


def entries(text):
    """Return ``(name, position of its line)`` of each dotted entry on a page of docs/api."""
    module = None
    for match in re.finditer(r"(?m)^(?:\.\. currentmodule:: (\S+)|   (\w+))\n", text):
        module = match.group(1) or module
        if module and match.group(2):
            yield f"{module}.{match.group(2)}", match.span()


def pages(sources, groups):
    """Update the entries of docs/api: remove old names, add new ones after a name of their group.

    groups : lists of dotted names that are defined together
    """
    names = {name for group in groups for name in group}
    modules = {name.rpartition(".")[0] for name in names}
    paths = [p for p in sources.files("docs/api", "*.rst") if "generated" not in p.parts]
    for path in paths:
        text = sources.text(path)
        for name, (start, end) in reversed(list(entries(text))):
            if name.rpartition(".")[0] in modules and name not in names:
                text = text[:start] + text[end:]
        sources.write(path, text)
    at = {name: path for path in paths for name, _ in entries(sources.text(path))}
    for group in groups:
        for name in [name for name in group if name not in at]:
            module = name.rpartition(".")[0]
            near = [
                other
                for other in [*at, *group]
                if other in at and other.rpartition(".")[0] == module
            ]
            near = [other for other in group if other in at] or near
            if not near:
                raise SystemExit(
                    f"{name} stands on no page of docs/api, and no other name of its module does:"
                    " write it onto one"
                )
            path = at[name] = at[near[-1]]
            text = sources.text(path)
            end = dict(entries(text))[near[-1]][1]
            sources.write(path, f"{text[:end]}   {name.rpartition('.')[2]}\n{text[end:]}")


def documented(modules, own, front):
    """Return the dotted names of the reference by file: each at the place where users find it."""
    groups = [[f"fastsvgp.{name}" for name in names] for names in own.values()]
    groups.append([f"fastsvgp.{name}" for name in front])
    for module, files in modules.items():
        for names in files.values():
            groups.append([f"fastsvgp.{module}.{name}" for name in names if name not in front])
    return groups


def update(sources):
    """Write all lists to ``sources``."""
    table = sources.tree(PACKAGE / "public_names.py")
    modules, own, front, whole = (constant(table, n) for n in ("MODULES", "OWN", "FRONT", "WHOLE"))
    groups = {"": own} | modules
    public = dict.fromkeys(
        one
        for module, files in groups.items()
        for names in files.values()
        for name in names
        for one in (name, f"{module}.{name}")
    )
    stubs(sources, modules, own, front, whole)
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
    pages(sources, documented(modules, own, front))


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
