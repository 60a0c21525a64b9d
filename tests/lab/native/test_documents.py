"""Each page with commands for native nodes, followed line by line to its end, as a stranger would.

On a lab where nothing is installed (conftest.py). What a page makes it takes away again.
"""

import pytest

from tests.documents.on_lab import followed, on_lab
from tests.documents.pages import pages
from tests.documents.rules import Runs


@pytest.mark.parametrize("page", [page for page in pages() if on_lab(page, Runs.NATIVE)])
def test_what_needs_no_machine_is_followed_on_native_nodes(native, page):
    with followed(native, page, Runs.NATIVE):
        pass
