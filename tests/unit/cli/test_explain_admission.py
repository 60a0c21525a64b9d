"""`kube-rdma explain` says what only a cluster knows of a pod: its policies, pools and tenants."""

import json

import pytest

from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.reports.cluster import DAEMON_SETS
from tests.kit import explained as kit
from tests.unit.cli.test_explain import run, written

VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
SELECTED = {"pool": "a"}


def policy(server, mode):
    """Nodes of a label give their cards in a mode."""
    pools = [{"resource": kit.HCA, "mode": mode}]
    spec = {"nodeSelector": SELECTED, "pools": pools}
    server.put(NODE_POLICY, {"metadata": {"name": "a"}, "spec": spec})


def agents(server, *words):
    """A DaemonSet of agents with these options."""
    container = {"name": "agent", "image": "kube-rdma", "command": ["kube-rdma", "agent", *words]}
    spec = {"selector": {}, "template": {"spec": {"containers": [container]}}}
    server.put(DAEMON_SETS, {"metadata": {"name": "a", "namespace": "kube-rdma"}, "spec": spec})


def problems(server, folder, document, *words):
    """What stands in the way of a pod that does not exist yet, and of the same that waits."""
    kit.put_pod(server, document)
    name = document["metadata"]["name"]
    told = []
    for asked in (("-f", written(folder, document), *words), (f"pod/{name}",)):
        printed = json.loads(run(server, *asked, "--json").stdout)
        told.append([one["problem"] for one in printed["obstacles"]])
    return told


def waiting(**fields):
    """A pod that waits for a node."""
    made = kit.pod("new", "Pending", node="", **fields)
    made["metadata"]["namespace"] = "default"
    return made


@pytest.mark.parametrize(
    ("mode", "fields", "words"),
    [
        ("exclusive", {"volumes": [VEPFS]}, "vePFS, which cannot be used in mode exclusive"),
        ("shared-multi", {}, "mode shared-multi is not recommended for pods with GPUs"),
    ],
)
def test_a_mode_that_a_node_policy_sets_counts(tmp_path, mode, fields, words):
    """For the nodes that the pod selects; of another node's mode nothing is said."""
    server = kit.server()
    policy(server, mode)
    document = waiting()
    document["spec"] |= fields
    document["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    for told in problems(server, tmp_path, document):
        assert not [one for one in told if words in one]
    document["spec"]["nodeSelector"] = SELECTED
    for told in problems(server, tmp_path, document):
        assert [one for one in told if words in one]


def test_a_mode_of_the_node_itself_counts(tmp_path):
    server = kit.server(mode="exclusive")
    document = kit.pod("new", "Running")
    document["spec"]["volumes"] = [VEPFS]
    for told in problems(server, tmp_path, document, "--node", kit.NODE_NAME):
        assert [one for one in told if "cannot be used in mode exclusive" in one]


def test_a_pool_that_is_missing_is_named(tmp_path):
    server = kit.server()
    conf = {"ipam": {"type": "kube-rdma-ipam", "pool": "gone"}}
    server.put(DEFINITION, kit.definition("lost", type="kube-rdma", **conf))
    for told in problems(server, tmp_path, waiting(**{kit.NETWORKS: "lost"})):
        assert [one for one in told if "names IPPool gone, which is not here" in one]
    for told in problems(server, tmp_path, waiting(**{kit.NETWORKS: "rail-net"})):
        assert not [one for one in told if "IPPool" in one]


@pytest.mark.parametrize(
    ("option", "is_kept"),
    [((), False), (("--namespace-isolation",), True), (("--namespace-isolation=train",), False)],
)
def test_a_network_that_the_agents_keep_to_its_namespace_is_in_the_way(tmp_path, option, is_kept):
    server = kit.server()
    agents(server, *option)
    other = kit.definition("fast", type="kube-rdma")
    other["metadata"]["namespace"] = "train"
    server.put(DEFINITION, other)
    for told in problems(server, tmp_path, waiting(**{kit.NETWORKS: "train/fast"})):
        assert bool([one for one in told if "is for pods of train" in one]) is is_kept
