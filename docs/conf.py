"""Sphinx configuration; `make docs` builds the site, and a warning is a failure."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "tenferro_ad"
author = "The tenferro_ad authors"
copyright = author
version = release = metadata.version("tenferro-ad")

extensions = [
    "generated_pages",
    "myst_parser",
    "shown_anchors",
    "stacked_tables",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["testing/*.json"]
nitpicky = False

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "tenferro_ad"
html_show_sphinx = False
html_domain_indices = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/mark.svg"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#7a3e00",
        "color-brand-content": "#7a3e00",
    },
    "dark_css_variables": {
        "color-brand-primary": "#f0a35e",
        "color-brand-content": "#f0a35e",
    },
}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Cost", "notes_style"), ("Source", "notes_style")]
