"""Test the checks of a built site: it needs no internet, and has every page."""

import pytest
from support.site_pages import faults, lost_pages

HOST = "https://example.org"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "a.js").write_text("")
    return tmp_path


@pytest.mark.parametrize("page", [
    '<script src="_static/a.js?v=1"></script>',
    f'<a href="{HOST}">a link that a reader may follow</a>',
    f'<link rel="canonical" href="{HOST}">',
    '<img src="data:image/png;base64,AA==">',
])  # fmt: skip
def test_a_page_may_load_its_own_files_and_link_anywhere(folder, page):
    (folder / "index.html").write_text(page)
    assert not list(faults(folder))


@pytest.mark.parametrize("name, text", [
    ("index.html", f'<script defer src="{HOST}/mathjax.js"></script>'),
    ("index.html", '<link rel="stylesheet" href="//example.org/style.css">'),
    ("index.html", f'<img alt="x" src="{HOST}/x.png">'),
    ("index.html", '<script src="_static/b.js"></script>'),
    ("_static/site.css", f"@import '{HOST}/x.css';"),
    ("_static/site.css", f"@font-face {{ src: url({HOST}/x.woff2); }}"),
    ("_static/site.css", "body { background: url(missing.png); }"),
])  # fmt: skip
def test_remote_and_missing_files_are_reported(folder, name, text):
    (folder / name).write_text(text)
    (line,) = faults(folder)
    assert line.startswith(name)


@pytest.mark.parametrize("html, said", [
    ('<h1>Search for a <code>model</code><a href="#x">#</a></h1><h1>Other</h1>', None),
    ("<h1>Search</h1>", "page.html has the heading 'Search', and its source 'Search for"),
    ("<p>Search</p>", "page.html has the heading ''"),
    (None, "page.html is not in the site"),
])  # fmt: skip
def test_pages_that_are_missing_or_written_over_are_reported(tmp_path, html, said):
    docs, site = tmp_path / "docs", tmp_path / "site"
    docs.mkdir(), site.mkdir()
    (docs / "page.md").write_text("% comment\n# Search for a `model`\n\ntext\n")
    if html is not None:
        (site / "page.html").write_text(html)
    lines = list(lost_pages(site, docs))
    assert len(lines) == (said is not None) and all(line.startswith(said) for line in lines)
