"""`kube-rdma explain` against a real cluster: from a kubeconfig, and in the agent's container.

On native nodes, whose recorded cards have no interfaces: the pod's macvlan is on the node's own.
"""

import json
import subprocess
import sys

import pytest

from kube_rdma.install.installation import objects
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.kit.cluster_users import impersonating
from tests.kit.pods import sleeping_pod

EXAMPLE = scc.examples() / "s3-network" / "agent.yaml"
NAMESPACE, DAEMONSET = "mlnx-network-operator", "rdma-shared-dp-ds"
NODE, POD, NETWORK = "node-1", "explained", "explained"
READER = "reader"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
CONFIG = {
    "cniVersion": "1.0.0",
    "name": NETWORK,
    "type": "macvlan",
    "master": "eth0",
    "ipam": {"type": "whereabouts", "range": "10.77.0.0/24"},
}


@pytest.fixture(scope="module")
def network(native):
    """An agent that gives networks, and one network on the node's interface."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.kubectl(native, "apply", "-f", str(EXAMPLE))
    try:
        cluster.rollout(native, DAEMONSET, NAMESPACE)
        cluster.until_chained(native, NODE)
        definition = {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": NETWORK},
            "spec": {"config": json.dumps(CONFIG)},
        }
        cluster.apply(native, definition)
        yield native
    finally:
        cluster.kubectl(native, "delete", "-f", str(EXAMPLE), "--ignore-not-found", "--wait")
        cluster.kubectl(native, "delete", "net-attach-def", NETWORK, "--ignore-not-found")


@pytest.fixture(scope="module")
def pod(network):
    """A pod that runs on it."""
    cluster.apply(network, manifest(POD))
    cluster.ready(network, POD)
    yield POD
    cluster.kubectl(network, "delete", "pod", POD, "--ignore-not-found", "--grace-period=1")


def manifest(name, networks=NETWORK):
    return sleeping_pod(name, annotations={NETWORKS: networks}, nodeName=NODE)


def explained(lab, *words, kubeconfig=None):
    """What a person with a kubeconfig is told, and the exit code."""
    program = [sys.executable, "-m", "kube_rdma.cli.main", "explain", "--json"]
    command = [*program, f"--kubeconfig={kubeconfig or lab.kubeconfig}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def in_agent(lab, *words):
    """The same in the agent's container on the pod's node, whose own namespace is another."""
    chosen = ("pods", "-n", NAMESPACE, f"--field-selector=spec.nodeName={NODE}")
    (agent,) = cluster.get(lab, *chosen)["items"]
    name = agent["metadata"]["name"]
    text = cluster.kubectl(
        lab,
        "exec",
        "-n",
        NAMESPACE,
        name,
        "--",
        "kube-rdma",
        "explain",
        "--json",
        "-n",
        "default",
        *words,
    )
    return json.loads(text)


def test_a_laptop_plans_what_the_agent_has_recorded(network, pod):
    """By the rules from the pod's annotation, and by the journal: the same steps."""
    planned, code = explained(network, f"pod/{pod}")
    recorded = in_agent(network, f"pod/{pod}")
    assert code == 0
    assert (planned["stepsFrom"], recorded["stepsFrom"]) == ("rules", "record")
    steps = [one["steps"] for one in planned["interfaces"]]
    assert steps == [one["steps"] for one in recorded["interfaces"]]
    assert [one["done"] for one in recorded["interfaces"]] == [True]
    shown = cluster.kubectl(network, "exec", pod, "--", "ip", "addr", "show", "net1")
    (address,) = planned["seen"]["interfaces"][0]["addresses"]
    assert address in shown


def test_a_file_is_judged_before_its_pod_is_made(network, tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(manifest("later")))
    before, code = explained(network, "-f", str(path), "--node", NODE)
    assert (before["phase"], code) == (None, 0)
    assert "give net1 the address ADDRESS/24" in before["interfaces"][0]["steps"]
    path.write_text(json.dumps(manifest("later", f"{NETWORK},{NETWORK}x")))
    refused, code = explained(network, "-f", str(path), "--node", NODE)
    assert code == 1
    near, missing = refused["obstacles"]
    assert (near["stage"], missing["stage"]) == ("admission", "agent")
    assert near["remedy"] == f"Did you mean {NETWORK}?"
    assert f"no network default/{NETWORK}x" in missing["problem"]


def aggregated():
    """What the chart adds to view and edit of Kubernetes."""
    made = objects([], "default")
    return [one for one in made if "aggregate-to" in one["metadata"]["name"]]


PARTS = (
    "the Node object",
    "the NodeReport",
    "the NodePolicies",
    "other pods",
    "pools of addresses",
    "whether networks are kept to their namespaces",
)
HIDDEN = {f"Not seen: {part}" for part in PARTS}


@pytest.fixture
def reader(network, tmp_path):
    """A kubeconfig of somebody who may view one namespace, and nothing of the cluster."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": READER, "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": READER}],
    }
    cluster.apply(network, binding, *aggregated())
    asked = ("auth", "can-i", "get", "network-attachment-definitions", f"--as={READER}")
    waiting.until(network, "the right", lambda: cluster.kubectl(network, *asked).strip() == "yes")
    yield impersonating(network, READER, tmp_path)
    roles = [f"clusterrole/{one['metadata']['name']}" for one in aggregated()]
    cluster.kubectl(network, "delete", f"rolebinding/{READER}", *roles)


def test_the_rights_of_a_namespace_are_enough(network, pod, reader, tmp_path):
    """Each part that a right hides is named with the right; what the pod has is there."""
    told, code = explained(network, f"pod/{pod}", kubeconfig=reader)
    assert code == 0
    assert told["seen"]["interfaces"][0]["addresses"]
    hidden = [note for note in told["notes"] if note.startswith("Not seen")]
    assert {note.partition(",")[0] for note in hidden} == HIDDEN, hidden
    assert all(f'resource "{one}"' in " ".join(hidden) for one in ("nodes", "nodereports")), hidden
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(manifest("later", f"{NETWORK}x")))
    refused, code = explained(network, "-f", str(path), kubeconfig=reader)
    assert code == 1
    assert f"Did you mean default/{NETWORK}?" in refused["obstacles"][0]["remedy"]
