"""Links of a page in the site, by where the project's other files are."""

import pytest

from kube_rdma_tools.site.links import Surroundings, rewritten

PAGE = "[a](b.md#c), [the `x[0]` of it](../src/x.py), [gone](gone.py) and ![d](e.svg)"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://files.example/", "[the `x[0]` of it](https://files.example/src/x.py)"),
        ("", "the `x[0]` of it"),
    ],
)
def test_a_link_to_what_is_no_page_needs_an_address(address, shown):
    """What is nowhere stays a link, and Sphinx refuses it."""
    around = Surroundings({"docs/b.md", "docs/e.svg"}, {"src/x.py"}.__contains__, address)
    wanted = f"[a](b.md#c), {shown}, [gone](gone.py) and ![d](e.svg)"
    assert rewritten("docs/a.md", PAGE, around) == wanted
