"""The Python blocks of the README and of docs/.

``python tests/readme.py FOLDER`` writes those of the README to files there, for a type checker.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.S)
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if BLOCK.search(page.read_text(encoding="utf-8")))


def snippets(page=README):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run(page):
    """Run the blocks of a page in order, as one script; the names that it leaves. Tracebacks show lines of the page."""
    text, names = page.read_text(encoding="utf-8"), {"__name__": f"docs.{page.stem}"}
    for block in BLOCK.finditer(text):
        lines_before = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(lines_before + block[1], str(page), "exec"), names)
    return names


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for i, block in enumerate(snippets()):
        (folder / f"readme_{i}.py").write_text(block, encoding="utf-8")
