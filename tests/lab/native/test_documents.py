"""Each page with commands for native nodes, followed line by line to its end, as a stranger would.

On a lab where nothing is installed (conftest.py) but what belongs to others. What a page makes it
takes away again, and nothing else.
"""

import re

import pytest

from kube_rdma_lab import cluster
from tests.documents.on_lab import followed, on_lab
from tests.documents.pages import pages
from tests.documents.rules import Runs
from tests.kit import helm as kit
from tests.kit.pods import sleeping_pod

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


# A driver of NVIDIA's operator, by its namespace and selector, and a mode that a node pool has set.
SPACE, DRIVER = "mlnx-network-operator", "ofed-driver"
SET_BY_OTHERS = {"node-1": f"{cluster.CARDS_LABEL}=true", "node-2": "vke.node.rdma.mode=exclusive"}


def driver():
    pod, labels = sleeping_pod(DRIVER)["spec"], {"app": DRIVER}
    # On one node alone, for the page labels the other one meanwhile.
    pod["nodeSelector"] = {cluster.CARDS_LABEL: "true", "kubernetes.io/hostname": "node-1"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DRIVER, "namespace": SPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture(scope="module")
def others(native):
    """What stands in the cluster before a page begins, and has to stand there when it ends."""
    cluster.kubectl(native, "create", "namespace", SPACE)
    for node, label in SET_BY_OTHERS.items():
        cluster.kubectl(native, "label", "node", node, label, "--overwrite")
    cluster.apply(native, driver())
    cluster.rollout(native, DRIVER, SPACE)
    yield
    cluster.kubectl(native, "delete", "namespace", SPACE)
    for node, label in SET_BY_OTHERS.items():
        cluster.kubectl(native, "label", "node", node, f"{label.partition('=')[0]}-")


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("page", [page for page in pages() if on_lab(page, Runs.NATIVE)])
def test_what_needs_no_machine_is_followed_on_native_nodes(native, page, request):
    calls_helm = any(HELM.search(block.text) for block in on_lab(page, Runs.NATIVE))
    programs = (request.getfixturevalue("helm"),) if calls_helm else ()
    with followed(native, page, Runs.NATIVE, programs=programs):
        pass
