"""Each page with commands for native nodes, followed line by line to its end, as a stranger would.

On a lab where nothing is installed (conftest.py). What a page makes it takes away again.
"""

import re

import pytest

from kube_rdma_lab import cluster
from tests.documents.on_lab import followed, on_lab
from tests.documents.pages import pages
from tests.documents.rules import Runs
from tests.kit import helm as kit

HELM = re.compile(r"(?m)^helm ")
# A release of the chart brings these, and takes over none that somebody applied.
DEFINITIONS = tuple(f"{kit.ROOT}/config/{folder}" for folder in ("crds", "foreign"))


@pytest.fixture
def helm(native):
    """The folder of a real Helm, on a cluster whose definitions nobody has applied by hand."""
    files = [word for folder in DEFINITIONS for word in ("-f", folder)]
    cluster.kubectl(native, "delete", "--ignore-not-found", *files)
    with kit.built(kit.NEWEST) as programs:
        yield str(programs[kit.NEWEST].parent)
    cluster.kubectl(native, "apply", "-f", DEFINITIONS[0])  # other files want them


@pytest.mark.parametrize("page", [page for page in pages() if on_lab(page, Runs.NATIVE)])
def test_what_needs_no_machine_is_followed_on_native_nodes(native, page, request):
    calls_helm = any(HELM.search(block.text) for block in on_lab(page, Runs.NATIVE))
    programs = (request.getfixturevalue("helm"),) if calls_helm else ()
    with followed(native, page, Runs.NATIVE, programs=programs):
        pass
