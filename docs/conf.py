"""The configuration of Sphinx: Markdown pages, and docstrings where a page includes them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "docs")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django  # noqa: E402 - the path must be set first
from pygments.lexers.special import TextLexer  # noqa: E402
from pygments.lexers.sql import PostgresLexer  # noqa: E402
from sphinx.highlighting import lexers  # noqa: E402

import django_graphile_worker  # noqa: E402

django.setup()

project = "django-graphile-worker"
author = "django-graphile-worker contributors"
copyright = f"2026, {author}"
release = version = django_graphile_worker.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "verb_help"]
exclude_patterns = ["_build"]
# A section may be empty. A page that no section lists is an error.
suppress_warnings = ["toc.empty_glob"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4

# Tests find the blocks of the pages by these names. Pygments has no lexer for crontabs, and `sql` is another dialect.
lexers["crontab"] = TextLexer()
lexers["sql"] = PostgresLexer()

autodoc_typehints = "description"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"{project} {release}"
