"""Ready means something: what users do in the second in which `rollout status` returns.

On native nodes, whose cards have no interfaces: the pods' macvlan stands on the node's own
interface. The agent starts as for the first time: what an earlier one left in the CNI configuration
is taken out.
"""

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit import manifests
from tests.kit.chain import unchain
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network" / "agent.yaml"
NAMESPACE, DAEMONSET = "mlnx-network-operator", "rdma-shared-dp-ds"
AGENT = "[k]ube-rdma agent --role=plugin --role=node --networks"
NODE, NETWORK = "node-1", "at-once"
CONFIG = {
    "cniVersion": "1.0.0",
    "type": "macvlan",
    "master": "eth0",
    "ipam": {"type": "whereabouts", "range": "10.83.0.0/24"},
}
DEFINITION = manifests.network(NETWORK, CONFIG)
POD = sleeping_pod("at-once", annotations={"k8s.v1.cni.cncf.io/networks": NETWORK}, nodeName=NODE)
AGENTS = ("pods", "-n", NAMESPACE, f"--field-selector=spec.nodeName={NODE}")


@pytest.fixture(scope="module")
def lab(native):
    """The network's definition is there, and no agent."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.apply(native, DEFINITION)
    for node in ("node-1", "node-2"):
        unchain(native, node)
    yield native
    cluster.kubectl(native, "delete", "pod", "at-once", "--ignore-not-found", "--grace-period=1")
    cluster.kubectl(native, "delete", "-f", str(EXAMPLE), "--ignore-not-found", "--wait")
    cluster.kubectl(native, "delete", "net-attach-def", NETWORK, "--ignore-not-found")


def status(lab):
    """The status of the agent's container on the node."""
    (agent,) = cluster.get(lab, *AGENTS)["items"]
    (container,) = agent["status"]["containerStatuses"]
    return container


def test_a_pod_made_when_the_rollout_is_over_has_its_network(lab):
    """It started with it, and was not given it late."""
    cluster.kubectl(lab, "apply", "-f", str(EXAMPLE))
    cluster.rollout(lab, DAEMONSET, NAMESPACE)
    cluster.apply(lab, POD)
    assert "kube-rdma" in cluster.shell(lab, NODE, "cat /etc/cni/net.d/*.conflist")
    cluster.ready(lab, "at-once")
    shown = cluster.kubectl(lab, "exec", "at-once", "--", "ip", "addr", "show", "net1")
    assert "inet 10.83.0." in shown
    query = ("events", "--field-selector=involvedObject.name=at-once,reason=NetworksAttachedLate")
    assert not cluster.get(lab, *query)["items"]


def test_an_agent_that_was_killed_is_ready_by_its_own_word(lab):
    """The container that starts answers for itself, whatever the one before it has said."""
    before = status(lab)
    cluster.shell(lab, NODE, f"pkill -KILL -f '{AGENT}'")
    until(
        lab,
        "the agent's container, started anew",
        lambda: status(lab)["restartCount"] > before["restartCount"] and status(lab)["ready"],
    )
