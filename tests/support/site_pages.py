"""Check that a built site loads nothing from other hosts.

``python tests/support/site_pages.py FOLDER`` exits with 1 if a page needs another host, or a
missing file.
"""

import pathlib
import re
import sys
from html.parser import HTMLParser

OTHER_HOST = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]+)", re.IGNORECASE)
# kinds of <link> that only name a page
NO_LOADS = {"canonical", "next", "prev", "search", "index", "author", "alternate"}


class Loads(HTMLParser):
    """The addresses that a browser fetches to show a page.

    Links that a reader may follow are not among them.
    """

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and not NO_LOADS & set((given.get("rel") or "").split()):
            self.found.append(given.get("href"))
        self.found += [given.get("src"), given.get("data") if tag == "object" else None]


def faults(folder):
    """Yield a line per address that a page or style could not fetch without internet."""
    for path in sorted(folder.rglob("*")):
        # _static has templates of the theme
        if path.suffix == ".html" and path.parent.name != "_static":
            found = Loads(path.read_text(encoding="utf-8")).found
        elif path.suffix == ".css":
            found = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        for address in filter(None, found):
            where = f"{path.relative_to(folder)}: {address[:100]}"
            if OTHER_HOST.match(address):
                yield f"{where} is on another host"
            elif (
                not re.match(r"(data:|#)", address)
                and not (path.parent / re.split("[?#]", address)[0]).exists()
            ):
                yield f"{where} is not in the site"


if __name__ == "__main__":
    lines = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(lines) or "the site loads nothing from elsewhere")
    sys.exit(bool(lines))
