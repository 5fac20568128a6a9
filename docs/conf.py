"""Configuration of the documentation site; `make docs` builds it with `tools/build_docs.py`."""

from __future__ import annotations

from katib.model.version import __version__

project = "Katib tuning service"
author = "the authors of the Katib tuning service"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
language = "en"
highlight_language = "none"
smartquotes_action = "D"  # dashes in lists of parameters, no curly quotes

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["keras", "lightgbm", "lightning", "pytorch_lightning", "torch", "transformers", "xgboost"]
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Katib tuning service {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#00558a", "color-brand-content": "#00558a"},
    "dark_css_variables": {"color-brand-primary": "#6cc0f5", "color-brand-content": "#6cc0f5"},
}
