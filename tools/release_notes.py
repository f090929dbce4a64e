"""Print the section of CHANGELOG.md that a release takes as its notes.

Usage: ``python tools/release_notes.py vX.Y.Z``. The tag, the version of the package and a dated
section of the changelog must agree.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SECTION = r"^## \[{}\] - (\S+)\n(.*?)(?=^## |\Z)"


def notes(tag, version, changelog):
    """Return the notes of the release ``tag``; raise ``SystemExit`` if it is not ready."""
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, and fastsvgp.__version__ is {version}")
    found = re.search(SECTION.format(re.escape(version)), changelog, re.M | re.S)
    if found is None or not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        raise SystemExit(f"CHANGELOG.md needs a section '## [{version}] - YYYY-MM-DD'")
    return found[2].strip()


if __name__ == "__main__":
    text = (ROOT / "fastsvgp" / "__init__.py").read_text(encoding="utf-8")
    print(
        notes(
            sys.argv[1],
            re.search(r'^__version__ = "(.*)"$', text, re.M)[1],
            (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        )
    )
