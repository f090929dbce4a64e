"""The Python blocks of the README and of docs/.

A block that needs a library beyond the test requirements says so after its fence, as in "python
needs torch". ``python tests/support/readme.py FOLDER`` writes the other blocks of the README to
files there, for a type checker.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"```python(?: needs (\w+))?\n(.*?)```", re.S)
PAGES = sorted(
    page for page in (ROOT / "docs").rglob("*.md") if BLOCK.search(page.read_text(encoding="utf-8"))
)


def snippets(page=README):
    """Return the blocks that need only the test requirements."""
    return [block for needs, block in BLOCK.findall(page.read_text(encoding="utf-8")) if not needs]


def needs(page):
    """Return the libraries that the other blocks of a page need."""
    return sorted({name for name, _ in BLOCK.findall(page.read_text(encoding="utf-8")) if name})


def run(page, having=()):
    """Run the blocks of a page in order, as one script, and return its variables.

    Tracebacks show lines of the page. Blocks that need a library that is not in ``having`` are
    skipped.
    """
    text, names = page.read_text(encoding="utf-8"), {"__name__": f"docs.{page.stem}"}
    for block in BLOCK.finditer(text):
        if block[1] and block[1] not in having:
            continue
        lines_before = "\n" * text.count("\n", 0, block.start(2))
        exec(compile(lines_before + block[2], str(page), "exec"), names)
    return names


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for i, block in enumerate(snippets()):
        (folder / f"readme_{i}.py").write_text(block, encoding="utf-8")
