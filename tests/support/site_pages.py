"""Check that a built site loads nothing from other hosts, and has every page.

``python tests/support/site_pages.py FOLDER`` exits with 1 if a page needs another host or a missing
file, or if a page of ``docs`` is missing or has another heading: Sphinx writes pages of its own,
such as ``search.html``, over those of the same name.
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


class Heading(HTMLParser):
    """The letters and digits of the first h1 of a page, without markup and the link beside it."""

    def __init__(self, text):
        super().__init__()
        self.depth, self.text = 0, None
        self.feed(text)
        self.text = letters(self.text or "")

    def handle_starttag(self, tag, attributes):
        if tag == "h1" and self.text is None:
            self.depth, self.text = 1, ""

    def handle_endtag(self, tag):
        if tag == "h1":
            self.depth = 0

    def handle_data(self, data):
        if self.depth:
            self.text += data


def letters(text):
    return "".join(re.findall(r"\w", text))


def lost_pages(folder, docs):
    """Yield a line per page of ``docs`` that the site does not have, or has under another h1."""
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).with_suffix(".html")
        if not (folder / name).exists():
            yield f"{name} is not in the site"
            continue
        heading = re.search("^# (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if heading is None:
            continue  # the page includes a file with the heading
        wanted = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading[1])
        found = Heading((folder / name).read_text(encoding="utf-8")).text
        if found != letters(wanted):
            yield f"{name} has the heading {found!r}, and its source {wanted!r}"


if __name__ == "__main__":
    site, docs = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parents[2] / "docs"
    lines = [*faults(site), *lost_pages(site, docs)]
    print("\n".join(lines) or "the site has all pages and loads nothing from elsewhere")
    sys.exit(bool(lines))
