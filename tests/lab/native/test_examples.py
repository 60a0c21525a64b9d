"""The examples' manifests at a real API server, one example beside the others, and agents' rights.

Of agents only their rights are made here, with pods that hold their tokens and do nothing: two
agents on one node would have one journal.
"""

import json
from contextlib import contextmanager

import pytest
import yaml

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.node import CARDS_HEALTHY
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.reports import NodeReport
from kube_rdma.pools.rules.holdings import KEYS
from kube_rdma.pools.rules.labels import REMEMBERED, TABLE, VENDOR, is_nfd
from kube_rdma.reports.node_report import NodeReports, report_status
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit.pods import sleeping_pod

# Whose agents have rights at the API server, by the folder of the example.
NAMESPACES = {
    "s1-vke": "kube-rdma-vke",
    "s3-network": "mlnx-network-operator",
    "s4-infiniband": "kube-rdma-vf",
}
OWN = NAMESPACES["s1-vke"]
OWN_NAMES = "kube-rdma"  # of the presets that follow no document, one of which a cluster has
POLICY = scc.examples().parent / "config/admission/agents-own-node.yaml"
NODES = ("node-1", "node-2")
RUNS = ("DaemonSet", "Deployment")
SERVER_SIDE = ("apply", "--dry-run=server", "--validate=strict")


def manifests(folder):
    """The documents of an example that are installed, by their files."""
    names = ("daemonset.yaml", "agent.yaml", "controller.yaml", "labels.yaml")
    paths = [scc.examples() / folder / name for name in names]
    return {path: list(yaml.safe_load_all(path.read_text())) for path in paths if path.exists()}


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the rights of every example."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{scc.examples().parent}/config/operator")
    cluster.wait(native, "crd", "--all", "--for=condition=Established")
    for folder in NAMESPACES:
        every = [document for some in manifests(folder).values() for document in some]
        cluster.apply(native, *(one for one in every if one["kind"] not in RUNS))
    cluster.kubectl(native, "create", "namespace", OWN_NAMES)
    for node in NODES:
        cluster.apply(native, holder(node))
    cluster.ready(native, *(f"agent-of-{node}" for node in NODES), namespace=OWN)
    yield native
    cluster.kubectl(native, "delete", "-f", f"{scc.examples().parent}/config/operator")
    cluster.kubectl(native, "delete", "namespace", OWN_NAMES)
    for folder in NAMESPACES:
        delete(native, folder)


def holder(node):
    """A pod with the agent's service account on a node."""
    return sleeping_pod(
        f"agent-of-{node}", namespace=OWN, nodeName=node, serviceAccountName="kube-rdma-agent"
    )


def delete(lab, folder):
    """Take an example away as its README does."""
    words = [word for path in manifests(folder) for word in ("-f", str(path))]
    cluster.kubectl(lab, "delete", "--ignore-not-found", *words)


def may_patch_pods(lab, namespace):
    """Whether the agents of an example may tell pods of their networks."""
    user = f"--as=system:serviceaccount:{namespace}:kube-rdma-agent"
    try:
        return cluster.kubectl(lab, "auth", "can-i", "patch", "pods", "-A", user).strip() == "yes"
    except Unavailable:
        return False


@pytest.fixture(scope="module")
def config_of(lab, tmp_path_factory):
    """Write a kubeconfig with the token that the kubelet gives to the agent's pod on a node."""

    def written(bound):
        token = cluster.kubectl(lab, "create", "token", "kube-rdma-agent", "-n", OWN, *bound)
        config = json.loads(lab.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token.strip()}
        path = tmp_path_factory.mktemp("token") / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    return written


@pytest.fixture(scope="module")
def as_agent(lab, config_of):
    """Run kubectl with such a token, once the policy for agents is in force."""
    cluster.kubectl(lab, "apply", "-f", str(POLICY))

    def run(bound, *words):
        return cluster.kubectl(lab, f"--kubeconfig={config_of(bound)}", "-n", OWN, *words)

    def refused():
        try:
            run(pod_of(NODES[0]), *annotate(NODES[1]), "--dry-run=server")
        except Unavailable as error:
            return "may not change" in str(error)
        return False

    until(lab, "the policy in force", refused)
    yield run
    cluster.kubectl(lab, "delete", "-f", str(POLICY), "--ignore-not-found")


def pod_of(node):
    """The words by which a token is bound to the agent's pod on a node, and so to the node."""
    return ("--bound-object-kind=Pod", f"--bound-object-name=agent-of-{node}")


def annotate(node):
    """The words by which an agent tells a pod of a node something."""
    return ("annotate", "--overwrite", "pod", f"agent-of-{node}", "kube-rdma.io/network-status=[]")


# Values, and kinds that this lab does not serve; test_placement.py and test_pod_groups.py apply
# Kueue's and the PodGroup at labs that do.
VALUES = ("values.yaml", "slurm-values.yaml")
NOT_SERVED = ("nccl-tests.yaml", "lws.yaml", "pytorchjob.yaml", "kueue.yaml", "podgroup.yaml")


@pytest.mark.parametrize(
    "path",
    sorted(
        path for path in scc.examples().glob("*/*.y*ml") if path.name not in VALUES + NOT_SERVED
    ),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_a_real_api_server_accepts_each_document(lab, path):
    """All fields are known to it."""
    with namespaces(lab, path):
        cluster.kubectl(lab, *SERVER_SIDE, "-f", str(path))


@contextmanager
def namespaces(lab, path):
    """The namespaces that a file makes for its own objects: a dry run makes none."""
    documents = list(yaml.safe_load_all(path.read_text()))
    used = {one.get("metadata", {}).get("namespace") for one in documents if one}
    there = {one["metadata"]["name"] for one in cluster.get(lab, "namespaces")["items"]}
    made = [
        one
        for one in documents
        if one and one["kind"] == "Namespace" and one["metadata"]["name"] in used - there
    ]
    if made:
        cluster.apply(lab, *made)
    try:
        yield
    finally:
        for one in made:
            cluster.kubectl(lab, "delete", "namespace", one["metadata"]["name"], "--wait")


@pytest.mark.parametrize(("node", "other"), [NODES, NODES[::-1]])
def test_an_agent_is_refused_the_pods_of_another_node(lab, as_agent, node, other):
    """Although its role allows to patch every pod."""
    with pytest.raises(Unavailable, match=f"{node} may not change pods of node {other}"):
        as_agent(pod_of(node), *annotate(other))


async def write_status(config, node, **patch):
    """Write a node's status as the agent does, with its own client: kubectl would read it first."""
    request = wire.ApiRequest("patch", "", "v1", "nodes", "", node, "status")
    body = json.dumps(patch).encode()
    async with connect(config) as cluster:
        await cluster.write(replace(request, body=body, content_type=wire.STRATEGIC))


# A field, a key of labels or annotations, a condition, a taint.
NOT_AN_AGENTS = "An agent (may not write|writes no|changes nothing|changes no taint)"


def condition(kind, **more):
    """A status with an entry for one condition."""
    entry = {"type": kind, "status": "True", "reason": "Test", "message": "of a test"}
    return {"conditions": [entry | more]}


async def test_an_agent_writes_the_condition_of_its_own_node(as_agent, config_of):
    config = config_of(pod_of(NODES[0]))
    await write_status(config, NODES[0], status=condition(CARDS_HEALTHY))
    with pytest.raises(Refused, match="node-1 may not change nodes of node node-2"):
        await write_status(config, NODES[1], status=condition(CARDS_HEALTHY))
    gone = {"$patch": "delete"}
    await write_status(config, NODES[0], status=condition(CARDS_HEALTHY, **gone))


@pytest.mark.parametrize(
    "patch",
    [
        {"status": condition("MemoryPressure")},
        {"status": condition("Ready", **{"$patch": "delete"})},
        {"status": {"capacity": {"example.org/none": "1"}}},
        {"status": {"allocatable": {"cpu": "1"}}},
        {"metadata": {"labels": {"kube-rdma.io/test": "yes"}}},
        {"metadata": {"annotations": {"kube-rdma.io/test": "yes"}}},
    ],
    ids=["condition", "deletion", "capacity", "allocatable", "label", "annotation"],
)
async def test_an_agent_writes_nothing_else_by_way_of_its_node_s_status(as_agent, config_of, patch):
    """Although its role allows that as a whole, and the API server lets it change labels."""
    with pytest.raises(Refused, match=NOT_AN_AGENTS):
        await write_status(config_of(pod_of(NODES[0])), NODES[0], **patch)


async def test_an_agent_writes_the_report_of_its_own_node(as_agent, config_of):
    """Object and status, although its role knows no nodes."""
    status = report_status(None, NodeReport("1"), "2026-01-01T00:00:00Z")
    async with connect(config_of(pod_of(NODES[0]))) as cluster:
        own, other = [await Nodes(cluster).read(name) for name in NODES]
        await NodeReports(cluster, own.name).write(own, None, status)
        with pytest.raises(Refused, match="node-1 may not change nodereports of node node-2"):
            await NodeReports(cluster, other.name).write(other, None, status)


async def write_node(config, node, **patch):
    """Write a node as the agent does."""
    request = wire.ApiRequest("patch", "", "v1", "nodes", "", node)
    async with connect(config) as cluster:
        await cluster.write(
            replace(request, body=json.dumps(patch).encode(), content_type=wire.MERGE)
        )


LABELS = {row.key.replace(VENDOR, "15b3"): "1" for row in TABLE if row.by_agent}
NFD_LABELS = {key: value for key, value in LABELS.items() if is_nfd(key)}


async def test_an_agent_writes_the_labels_of_its_own_node(as_agent, config_of):
    """Each of ours in the table, and what it remembers; and takes them away."""
    config = config_of(pod_of(NODES[0]))
    own = {key: value for key, value in LABELS.items() if key not in NFD_LABELS}
    meta = {"labels": own, "annotations": {REMEMBERED: "a"}}
    with pytest.raises(Refused, match="node-1 may not change nodes of node node-2"):
        await write_node(config, NODES[1], metadata=meta)
    await write_node(config, NODES[0], metadata=meta)
    gone = {"labels": dict.fromkeys(own), "annotations": {REMEMBERED: None}}
    await write_node(config, NODES[0], metadata=gone)


@pytest.mark.parametrize("key", NFD_LABELS)
async def test_an_agent_starts_no_drivers_of_others_on_its_node(lab, as_agent, config_of, key):
    """It may not write such a label, nor change one, and takes away what an older agent wrote."""
    config = config_of(pod_of(NODES[0]))
    cluster.kubectl(lab, "label", "node", NODES[0], f"{key}-")
    with pytest.raises(Refused, match="only with the right to write nfdlabels"):
        await write_node(config, NODES[0], metadata={"labels": {key: "1"}})
    cluster.kubectl(lab, "label", "node", NODES[0], f"{key}=1")
    with pytest.raises(Refused, match="only with the right to write nfdlabels"):
        await write_node(config, NODES[0], metadata={"labels": {key: "2"}})
    await write_node(config, NODES[0], metadata={"labels": {key: None}})
    assert key not in cluster.get(lab, "node", NODES[0])["metadata"]["labels"]


async def test_an_agent_with_the_right_writes_labels_of_node_feature_discovery(
    lab, as_agent, config_of
):
    """That of labels.yaml, bound to the account of another example here."""
    (role,) = (
        one["metadata"]["name"]
        for one in manifests("s3-network")[scc.examples() / "s3-network/labels.yaml"]
        if one["kind"] == "ClusterRole"
    )
    account = f"--serviceaccount={OWN}:kube-rdma-agent"
    config = config_of(pod_of(NODES[0]))
    cluster.kubectl(lab, "create", "clusterrolebinding", "nfd", f"--clusterrole={role}", account)
    try:
        until(lab, "the right", lambda: may_write_nfd(as_agent))
        await write_node(config, NODES[0], metadata={"labels": NFD_LABELS})
    finally:
        cluster.kubectl(lab, "delete", "clusterrolebinding", "nfd")
    await write_node(config, NODES[0], metadata={"labels": dict.fromkeys(NFD_LABELS)})


def may_write_nfd(as_agent):
    """Whether the API server has heard of the right."""
    key = next(iter(NFD_LABELS))
    words = ("label", "node", NODES[0], f"{key}=1", "--overwrite", "--dry-run=server")
    try:
        as_agent(pod_of(NODES[0]), *words)
    except Unavailable as error:
        if "only with the right" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"kube-rdma.io/leaf": "a"}}},
        {"metadata": {"labels": {"kubernetes.io/arch": None}}},
        {"metadata": {"labels": {"kubernetes.io/os": "other"}}},
        {"metadata": {"labels": {f"{next(iter(LABELS))}x": "true"}}},
        {"metadata": {"annotations": {"kube-rdma.io/test": "yes"}}},
        {"metadata": {"finalizers": ["example.org/a"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "kube-rdma.io/starting", "effect": "NoSchedule"}]}},
    ],
    ids=lambda patch: json.dumps(patch)[:60],
)
async def test_an_agent_writes_nothing_else_of_its_node(as_agent, config_of, patch):
    with pytest.raises(Refused, match=NOT_AN_AGENTS):
        await write_node(config_of(pod_of(NODES[0])), NODES[0], **patch)


@pytest.mark.parametrize("key", KEYS)
async def test_an_agent_takes_the_startup_taint_off_and_no_other(lab, as_agent, config_of, key):
    starting = {"key": key, "effect": "NoSchedule"}
    other = {"key": "example.org/a", "effect": "PreferNoSchedule"}
    cluster.kubectl(lab, "patch", "node", NODES[0], "-p", taints(starting, other))
    try:
        config = config_of(pod_of(NODES[0]))
        with pytest.raises(Refused, match="changes no taint of its node but the startup taint"):
            await write_node(config, NODES[0], spec={"taints": [starting]})
        await write_node(config, NODES[0], spec={"taints": [other]})
    finally:
        cluster.kubectl(lab, "patch", "node", NODES[0], "--type=merge", "-p", taints())


def taints(*some):
    """A patch by which a node has these taints."""
    return json.dumps({"spec": {"taints": some}})


def test_a_token_that_is_bound_to_no_node_changes_nothing(lab, as_agent):
    with pytest.raises(Unavailable, match="token is bound to no node"):
        as_agent((), *annotate(NODES[0]))


@pytest.mark.parametrize("folder", NAMESPACES)
def test_an_example_that_is_taken_away_leaves_the_rights_of_the_others(lab, folder):
    """The last test of the file: at its end none is left."""
    others = [one for one in NAMESPACES if one > folder]
    assert may_patch_pods(lab, NAMESPACES[folder])
    delete(lab, folder)
    assert not may_patch_pods(lab, NAMESPACES[folder])
    assert all(may_patch_pods(lab, NAMESPACES[one]) for one in others)
