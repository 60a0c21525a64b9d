"""Kubernetes 1.30 with containerd 1.7, as fleets still run it: what works there as on the newest.

Most of it is told by tests that other files have for the newest release: they run here once more,
on this cluster. What differs by release has a test of its own.
"""

import json
from contextlib import contextmanager
from functools import partial

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.groups import own
from tests.kit import manifests
from tests.kit.pods import sleeping_pod
from tests.lab.conftest import passes_on, up

pytestmark = pytest.mark.slow

NAME, NODE = "test-older", "node-1"
EXAMPLE = scc.examples() / "s3-network"
NAMESPACE = "mlnx-network-operator"
# Tests of what this release does not have.
VKE = "test_vke.py::test"
EXAMPLE_OF = "test_examples.py::test_a_real_api_server_accepts_each_document"
NEWER = (
    # Devices are bound late only with CDI, which is off in containerd 1.7 as it comes.
    f"{VKE}_devices_are_bound_late_and_are_exactly_those_of_the_card",
    f"{VKE}_a_kubelet_that_lost_its_checkpoint_gives_no_card_twice",
    # The kubelet says of a share whether it is healthy with ResourceHealthStatus, since 1.31.
    f"{VKE}_a_card_that_fails_is_seen_by_its_job_and_on_its_node",
    # The policy for agents knows addresses, since 1.31.
    *(f"test_examples.py::test_{what}" for what in ("an_agent", "a_token")),
    # Claims are resource.k8s.io/v1, since 1.34; a limit of them is a ResourceQuota, as ever.
    *(f"{EXAMPLE_OF}[claims/{name}.yaml]" for name in ("fast-or-slow", "measuring", "two-rails")),
)
FILES = ("native", "vke", "examples", "ip_crds", "api_server", "settings")
LABEL, SHARE = "vke.node.rdma.mode", "vke.volcengine.com/rdma"
PLAIN, ADDRESS = "plain", "192.168.114.7"


@pytest.fixture(scope="module")
def older():
    """Two native nodes of the older release; KUBE_RDMA_TEST_OLDER=NAME takes a running lab."""
    command = "kube-rdma lab up --topology older"
    with up(own(NAME), "older", command, "KUBE_RDMA_TEST_OLDER") as running:
        yield running


@pytest.fixture(scope="module")
def lab(older):
    """What seed S1's DaemonSet is installed on."""
    return older


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


def test_nodes_and_control_plane_are_of_the_older_release(older):
    version = json.loads(cluster.kubectl(older, "get", "--raw=/version"))
    assert version["gitVersion"].startswith("v1.30.")
    for node in cluster.get(older, "nodes")["items"]:
        info = node["status"]["nodeInfo"]
        assert info["kubeletVersion"] == version["gitVersion"]
        assert info["containerRuntimeVersion"].startswith("containerd://1.7.")


@pytest.mark.parametrize("name", FILES)
def test_what_runs_on_the_newest_release_runs_on_this_one(older, name):
    """The same tests, told to take this cluster for the native one."""
    newer = [f"--deselect=tests/lab/native/{test}" for test in NEWER]
    passes_on(older, f"tests/lab/native/test_{name}.py", *newer)


@pytest.fixture
def network(older):
    """The agent of seed S3's example and a network of plain macvlan, without an RDMA resource."""
    scc.install_kinds(older)
    cluster.label_cards(older)
    cluster.kubectl(older, "apply", "-f", f"{EXAMPLE}/agent.yaml")
    cluster.rollout(older, "rdma-shared-dp-ds", NAMESPACE)
    cluster.until_chained(older)
    config = {
        "cniVersion": "1.0.0",
        "name": PLAIN,
        "type": "macvlan",
        "master": "eth0",
        "ipam": {"type": "static", "addresses": [{"address": f"{ADDRESS}/24"}]},
    }
    cluster.apply(older, manifests.network(PLAIN, config, "default"))
    yield PLAIN
    cluster.kubectl(older, "delete", "network-attachment-definitions", PLAIN)
    cluster.kubectl(older, "delete", "-f", f"{EXAMPLE}/agent.yaml", "--cascade=foreground")


@contextmanager
def pod(lab, name, limits=None, **annotations):
    """A Ready pod on the node, while it is needed."""
    document = sleeping_pod(name, limits=limits, annotations=annotations, nodeName=NODE)
    cluster.apply(lab, document)
    try:
        cluster.ready(lab, name)
        yield partial(cluster.kubectl, lab, "exec", name, "--")
    finally:
        cluster.kubectl(lab, "delete", "pod", name, "--grace-period=1")


def test_a_pod_gets_its_network(older, network):
    with pod(older, "networked", **{"k8s.v1.cni.cncf.io/networks": network}) as inside:
        shown = inside("ip", "-d", "addr", "show", "dev", "net1")
        assert "macvlan" in shown
        assert f"inet {ADDRESS}/24" in shown


def test_a_card_s_devices_are_given_at_allocate_for_cdi_is_off(vke):
    """The agent asks the runtime, says why in its log, and the pod lacks nothing."""
    cluster.kubectl(vke, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
    cluster.wait_for_resource(vke, SHARE, 8, node=NODE)
    with pod(vke, "early", {SHARE: "1"}) as inside:
        nodes = inside("ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes
    logs = "/var/log/pods/kube-rdma-vke_rdma-device-plugin-*/agent/*.log"
    assert "CDI is off in its configuration" in cluster.shell(vke, NODE, f"cat {logs}")
