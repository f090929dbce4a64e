"""The README's Python blocks. ``python tests/readme.py FOLDER`` writes each to a file there, for a type checker."""

import pathlib
import re
import sys

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def snippets():
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for i, block in enumerate(snippets()):
        (folder / f"readme_{i}.py").write_text(block, encoding="utf-8")
