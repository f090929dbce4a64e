"""The site: ``python -m pip install ".[docs]" && python -m sphinx -W docs site``.

The build downloads nothing.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import fastsvgp  # noqa: E402

# imported before autodoc mocks torch, which SciPy would take for the real one
import fastsvgp.sklearn  # noqa: E402

project = "fastsvgp"
author = "the fastsvgp developers"
version = release = fastsvgp.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # MathJax within the site: formulas need no other host
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
templates_path = ["_templates"]
exclude_patterns = ["gallery/*.rst", "gallery/*.py"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 4,
}
html_show_sourcelink = False
html_title = "fastsvgp"  # with the version it is too long for a phone
html_css_files = ["site.css"]
html_static_path = ["_static"]

numpydoc_show_class_members = False
autosummary_generate = True
autodoc_default_options = {"members": False}
autodoc_typehints = "none"  # the docstrings have types and shapes
autodoc_mock_imports = ["torch", "jax"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "plot_gallery": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
}

# A page per table of bench/results, which includes it. Existing pages are not rewritten, because
# Sphinx reads changed files.
RESULTS = re.compile(r"\]\((?:\.\./)*bench/results/(\w+)\.md")
for table in (ROOT / "bench" / "results").glob("*.md"):
    page = ROOT / "docs" / "benchmarks" / table.name
    text = f"```{{include}} ../../bench/results/{table.name}\n```\n"
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def link_tables_to_their_pages(app, name, source):
    """Replace links to bench/results, which pages of docs/ use, by links to the pages of tables."""
    depth = name.count("/")
    source[0] = RESULTS.sub("](" + "../" * depth + r"benchmarks/\1.md", source[0])


def setup(app):
    app.connect("source-read", link_tables_to_their_pages)
