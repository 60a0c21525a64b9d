"""Which files are pages, and where they lie in the site."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.site.pages import file_at, pages, parent, pictures, place

ROOT = Path(__file__).resolve().parents[4]
PLACES = [
    ("README.md", "index.md"),
    ("docs/README.md", "docs/index.md"),
    ("docs/ip.md", "docs/ip.md"),
    ("docs/picture.svg", "docs/picture.svg"),
]
NAMES = st.lists(st.sampled_from(["docs", "a-b", "README", "x.y"]), min_size=1, max_size=3)


@pytest.mark.parametrize(("name", "there"), PLACES)
def test_only_a_readme_has_another_name_in_the_site(name, there):
    assert place(name) == there


@given(NAMES.map(lambda parts: "/".join(parts) + ".md"))
def test_a_place_tells_which_file_lies_there(name):
    assert file_at(place(name)) == name


def test_the_pages_of_this_checkout_are_in_the_site():
    names = pages(ROOT)
    assert {"README.md", "CHANGELOG.md", "docs/ip.md", "examples/s2-scc/README.md"} <= {*names}
    assert "docs/decisions/0001-packages.md" in names
    assert len({place(name) for name in names}) == len(names)
    assert "docs/picture.svg" in pictures(ROOT)


@pytest.mark.parametrize(
    ("name", "above"),
    [
        ("docs/decisions/0001-packages.md", "docs/decisions/README.md"),
        ("docs/decisions/README.md", "docs/README.md"),
        ("examples/s2-scc/README.md", "examples/README.md"),
        ("examples/README.md", "README.md"),
        ("SECURITY.md", "README.md"),
    ],
)
def test_a_page_stands_below_the_next_readme_above_it(name, above):
    assert parent(name) == above
