"""The navigation is that of docs/README.md, and no page is left out of it."""

import re
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma_tools.site import shelves as site
from kube_rdma_tools.site.pages import SHELVES, pages, place

ROOT = Path(__file__).resolve().parents[4]
INDEX = """# Documentation
Start with [the README](../README.md).

## Start
| page | for | read it to |
|---|---|---|
| [Install](install.md) | platform engineer | install, see [more](ip.md) |

## Reference
| page | has |
|---|---|
| [A](reference/a.md), [B](reference/b.md) | every field |
| [Examples](../examples/README.md) | manifests |
"""
NAMES = (
    "README.md",
    "docs/README.md",
    "docs/install.md",
    "docs/reference/a.md",
    "docs/reference/b.md",
    "examples/README.md",
    "examples/gpu/README.md",
)


def test_the_first_cell_of_a_row_is_what_stands_on_a_shelf():
    start, reference = site.shelves(INDEX, NAMES)
    assert (start.title, reference.title) == ("Start", "Reference")
    assert [entry.page for entry in start.entries] == ["docs/install.md"]
    assert [(entry.words, entry.page) for entry in reference.entries] == [
        ("A", "docs/reference/a.md"),
        ("B", "docs/reference/b.md"),
        ("Examples", "examples/README.md"),
    ]


def test_a_row_that_leads_to_no_page_is_refused():
    with pytest.raises(Refused, match=r"docs/README\.md: the shelf has gone\.md, which is no page"):
        site.shelves("## Start\n| [Gone](gone.md) | x |\n", NAMES)


def test_what_is_on_no_shelf_stands_below_the_page_of_its_folder():
    shelves = site.shelves(INDEX, NAMES)
    assert site.below("examples/README.md", shelves, NAMES) == ("examples/gpu/README.md",)
    assert site.below("README.md", shelves, NAMES) == ("docs/README.md",)
    assert site.navigation("docs/install.md", shelves, NAMES) == ""
    start = site.navigation("README.md", shelves, NAMES)
    assert ":caption: Start\n\nInstall </docs/install>\n" in start
    assert "Examples </examples/index>" in start


def test_every_page_of_this_checkout_is_in_the_navigation_once():
    names = pages(ROOT)
    shelves = site.shelves((ROOT / SHELVES).read_text(encoding="utf-8"), names)
    lists = "".join(site.navigation(name, shelves, names) for name in names)
    listed = re.findall(r"(?m)^(?:.* <)?/([\w./-]+?)>?$", lists)
    wanted = [place(name).removesuffix(".md") for name in names if name != "README.md"]
    assert sorted(listed) == sorted(wanted)
    captions = re.findall(r"(?m)^:caption: (.+)$", lists)
    assert captions == ["Start", "How to", "Reference", "Design"]
