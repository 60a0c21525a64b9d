"""The configuration of Sphinx: the look of Furo with own colours, and links as a forge has them.

kube_rdma_tools/site starts Sphinx with this folder; nothing else imports it.
"""

from pathlib import Path

project = "kube-rdma"
project_copyright = "the authors of kube-rdma"
root_doc = "index"
extensions = ["myst_parser", "sphinx_copybutton"]

# Headings are link targets by the names that a forge gives them.
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]  # `<img>`, which can have a width, is a picture like others
# What pages write is plain Markdown; signs that mean more to MyST than to a forge mean nothing.
myst_disable_syntax = [
    "colon_fence",
    "myst_block_break",
    "myst_line_comment",
    "myst_role",
    "myst_target",
]
smartquotes = False  # `--option` and "word" stay as they are written
suppress_warnings = [
    "misc.highlighting_failure",  # output with `…` in it is no JSON
    "myst.header",  # a page may go from a title to a small heading
]

html_theme = "furo"
html_title = "kube-rdma"
html_logo = "static/logo.svg"
html_favicon = "static/logo.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
templates_path = ["templates"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp"

# The colours of docs/picture.svg: ink, paper, lines, and indigo for what is kube-rdma's.
_LIGHT_INDIGO, _DARK_INDIGO = "#4c46d6", "#aba7ff"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": _LIGHT_INDIGO,
        "color-brand-content": _LIGHT_INDIGO,
        "color-brand-visited": _LIGHT_INDIGO,
        "color-foreground-primary": "#1c2434",
        "color-foreground-secondary": "#46536b",
        "color-foreground-muted": "#5d6b82",
        "color-foreground-border": "#8b98ad",
        "color-background-secondary": "#f6f8fb",
        "color-background-hover": "#ecebfd",
        "color-background-hover--transparent": "#ecebfd00",
        "color-background-border": "#dfe5ee",
        "color-inline-code-background": "#f1f3f8",
        "color-sidebar-link-text--top-level": "#36425a",
        "color-table-header-background": "#f6f8fb",
    },
    "dark_css_variables": {
        "color-brand-primary": _DARK_INDIGO,
        "color-brand-content": _DARK_INDIGO,
        "color-brand-visited": _DARK_INDIGO,
        "color-foreground-primary": "#d9dfe9",
        "color-foreground-secondary": "#aab4c5",
        "color-foreground-muted": "#8c98ac",
        "color-foreground-border": "#66728a",
        "color-background-primary": "#141821",
        "color-background-secondary": "#191e29",
        "color-background-hover": "#242a3a",
        "color-background-hover--transparent": "#242a3a00",
        "color-background-border": "#2a3242",
        "color-inline-code-background": "#212837",
        "color-sidebar-link-text--top-level": "#b9c3d4",
        "color-table-header-background": "#191e29",
    },
}
