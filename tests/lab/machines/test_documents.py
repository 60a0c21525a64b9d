"""Each page with commands for a lab, followed line by line to its end, as a stranger would.

On labs where nothing is installed (conftest.py). What a page makes it takes away again. README
comes last: it begins where `make demo` ends.
"""

from pathlib import Path

import pytest

from tests.documents.on_lab import followed, on_lab
from tests.documents.pages import pages

README = "README.md"
# Followed by a file that proves more of the example while it stands.
BY_OTHERS = {
    "examples/s0-ack/README.md": "test_ack.py",
    "examples/s1-vke/README.md": "test_vke_network.py",
    "examples/s3-network/README.md": "test_pod_network.py",
    "examples/s4-infiniband/README.md": "test_training.py",
}
# The demo, and README behind it, run the same manifests.
SLOW = ("examples/s2-scc/README.md",)
# The examples first: there is something to see then for the pages about one part of it.
HERE = sorted(
    (page for page in pages() if on_lab(page) and page not in BY_OTHERS),
    key=lambda page: (page == README, not page.startswith("examples/")),
)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in HERE]
)
def test_a_page_is_followed_to_its_end_and_leaves_nothing(request, lab, page):
    if page == README:
        request.getfixturevalue("proof")
    with followed(lab, page):
        pass


@pytest.mark.slow  # native/test_operator.py has the policy, test_pod_network the network
def test_a_policy_makes_the_network_too(lab):
    """The end of seed S3's page; test_pod_network follows what is before it."""
    with followed(lab, "examples/s3-network/README.md", part=slice(-1, None)):
        pass


@pytest.mark.parametrize("page", BY_OTHERS)
def test_a_page_is_followed_by_the_file_that_says_so(page):
    text = (Path(__file__).parent / BY_OTHERS[page]).read_text()
    assert f'followed(lab, "{page}"' in text
