"""A user-mode node on the next Kubernetes, with feature gates and an API group on."""

import json

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.release import Release
from tests.groups import own
from tests.lab.conftest import up

pytestmark = pytest.mark.slow
GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup")
GROUP = "scheduling.k8s.io/v1beta1"
TOPOLOGY = f"""\
release: {Release.NEXT}
feature_gates: {{{", ".join(f"{gate}: true" for gate in GATES)}}}
api_groups: {{{GROUP}: true}}
nodes:
- user_mode: true
  nics: [{{name: ens2f0, rail: 0}}]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A node of a topology file; KUBE_RDMA_TEST_GATES=NAME takes a running lab."""
    path = tmp_path_factory.mktemp("topology") / "gated.yaml"
    path.write_text(TOPOLOGY)
    command = f"kube-rdma lab up --topology {path}"
    with up(own("test-gates"), f"user-mode-{Release.NEXT}", command, "KUBE_RDMA_TEST_GATES") as it:
        yield it


def enabled(metrics):
    """The feature gates that a program's metrics call enabled."""
    lines = (line for line in metrics.splitlines() if line.startswith("kubernetes_feature_enabled"))
    return {line.split('name="')[1].split('"')[0] for line in lines if line.endswith(" 1")}


def test_the_node_is_ready_and_of_the_release(lab):
    (node,) = cluster.get(lab, "nodes")["items"]
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith(f"v{Release.NEXT}.")
    cluster.wait(lab, "node/node-1", "--for=condition=Ready")


def test_gates_are_on_in_the_programs_that_know_them(lab):
    server = enabled(cluster.kubectl(lab, "get", "--raw=/metrics"))
    kubelet = enabled(cluster.kubectl(lab, "get", "--raw=/api/v1/nodes/node-1/proxy/metrics"))
    assert set(GATES) <= server
    assert set(GATES) <= kubelet


def test_the_api_group_is_served(lab):
    kinds = json.loads(cluster.kubectl(lab, "get", f"--raw=/apis/{GROUP}"))["resources"]
    assert "podgroups" in {each["name"] for each in kinds}
