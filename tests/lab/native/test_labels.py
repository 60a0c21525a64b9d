"""Labels of real nodes: those of cards come and go, those of others stay, an operator sees them."""

import json

import pytest

from kube_rdma.pools.rules import labels as table
from kube_rdma.pools.rules.labels import NFD_LIST
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native.replay import Replay
from tests.lab.native import test_operator

NODE = "node-1"
SPACE = "kube-rdma-labels"
VENDOR = "feature.node.kubernetes.io/pci-15b3.present"
KERNEL = f"{table.KERNEL}.full"
CARDS = [f"mlx5_{number}" for number in range(8)]


def metadata(lab, node=NODE):
    return cluster.get(lab, "node", node)["metadata"]


def label_of(lab, key, node=NODE):
    return metadata(lab, node)["labels"].get(key)


@pytest.fixture(scope="module")
def lab(native):
    """Nodes with an agent of role node alone, held to its rights by the policy for agents."""
    root = scc.examples().parent
    # What agents of other files have written, who are gone.
    keys = [f"{row.key.replace(table.VENDOR, '15b3')}-" for row in table.TABLE if row.by_agent]
    cluster.kubectl(native, "label", "node", "--all", VENDOR + "-", *keys)
    cluster.kubectl(native, "annotate", "node", "--all", f"{table.REMEMBERED}-")
    cluster.kubectl(native, "apply", "-f", f"{root}/config/admission")
    cluster.kubectl(native, "apply", "-f", f"{scc.examples()}/s3-network/labels.yaml")
    cluster.rollout(native, "node-labels", SPACE)
    yield native
    switch(native, "remove")
    waiting.until(native, "no label of ours", lambda: not left(native))
    cluster.kubectl(native, "delete", "-f", f"{scc.examples()}/s3-network/labels.yaml", "--wait")
    cluster.kubectl(native, "delete", "-f", f"{root}/config/admission")


def switch(lab, word):
    """Let the agents write their labels, or remove them."""
    args = ["agent", "--role=node", f"--node-labels={word}"]
    container = {"name": "agent", "args": args}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    cluster.kubectl(lab, "-n", SPACE, "patch", "daemonset/node-labels", "-p", json.dumps(patch))
    cluster.rollout(lab, "node-labels", SPACE)


def left(lab):
    """The nodes that remember labels of ours."""
    nodes = cluster.get(lab, "nodes")["items"]
    return [n for n in nodes if table.REMEMBERED in n["metadata"].get("annotations", {})]


def test_a_node_says_what_it_has(lab):
    """By the tree, the node's kernel and the node's own os-release."""
    waiting.until(lab, "the labels", lambda: label_of(lab, table.PORTS) == "8")
    labels = metadata(lab)["labels"]
    release = cluster.shell(lab, NODE, ". /etc/os-release && echo $ID $VERSION_ID").split()
    assert labels[VENDOR] == "true"
    assert labels[table.LINK_LAYER] == "infiniband"
    names = ("ID", "VERSION_ID")[: len(release)]
    assert [labels[f"{table.RELEASE}.{name}"] for name in names] == release
    assert labels[KERNEL]
    assert labels[f"{table.KERNEL}.major"] == labels[KERNEL].split(".")[0]


def test_what_changes_nothing_writes_nothing(lab):
    """Ports that go down and up change nothing: others are as fast. A lost card is one patch."""
    waiting.until(lab, "the labels", lambda: label_of(lab, table.PORTS) == "8")
    before, replay = writes(lab), Replay(lab, NODE)
    replay.down(CARDS[0])
    replay.up(CARDS[0])
    replay.pull(address := replay_address(lab, CARDS[7]))
    waiting.until(lab, "seven ports", lambda: label_of(lab, table.PORTS) == "7")
    waiting.until(lab, "the log", lambda: writes(lab) > before)
    written = writes(lab)
    replay.plug(address)
    waiting.until(lab, "eight ports", lambda: label_of(lab, table.PORTS) == "8")
    assert (before, written) == (1, 2)


def writes(lab):
    """How often the agent of the node wrote labels, by its log."""
    words = ("-n", SPACE, f"--field-selector=spec.nodeName={NODE}")
    (pod,) = cluster.get(lab, "pods", *words)["items"]
    log = cluster.kubectl(lab, "-n", SPACE, "logs", pod["metadata"]["name"])
    return log.count("node labels written")


def replay_address(lab, card):
    """The PCI address of a constructed card."""
    path = cluster.shell(lab, NODE, "readlink", "-f", f"/sys/class/infiniband/{card}/device")
    return path.strip().rpartition("/")[2]


def test_labels_go_with_the_last_card_and_come_back(lab):
    waiting.until(lab, "the labels", lambda: label_of(lab, table.PORTS) == "8")
    replay = Replay(lab, NODE)
    addresses = [replay.pull(card) for card in CARDS]
    try:
        waiting.until(lab, "no card", lambda: label_of(lab, VENDOR) is None)
        waiting.until(lab, "no port", lambda: label_of(lab, table.LINK_LAYER) is None)
        assert metadata(lab)["labels"][KERNEL]
    finally:
        for address in addresses:
            replay.plug(address)
    waiting.until(lab, "the cards", lambda: label_of(lab, table.PORTS) == "8")


def test_what_node_feature_discovery_wrote_is_not_touched(lab):
    """Its labels and its list, as it writes them, over those of the agent; then it goes."""
    waiting.until(lab, "the labels", lambda: label_of(lab, VENDOR))
    kernel = label_of(lab, KERNEL)
    theirs = {KERNEL: "of-nfd", f"{table.FEATURE}/cpu-model.id": "143"}
    names = ",".join(key.partition("/")[2] for key in theirs)
    overwrite(lab, theirs, {NFD_LIST: names})

    def given_up():
        return f"{KERNEL}=" not in metadata(lab)["annotations"].get(table.REMEMBERED, "")

    waiting.until(lab, "the label given up", given_up)
    switch(lab, "remove")
    waiting.until(lab, "no label of ours", lambda: not left(lab))
    assert theirs.items() <= metadata(lab)["labels"].items()
    switch(lab, "write-nfd")
    waiting.until(lab, "the labels", lambda: label_of(lab, VENDOR))
    assert theirs.items() <= metadata(lab)["labels"].items()
    overwrite(lab, dict.fromkeys(theirs), {NFD_LIST: None})
    waiting.until(lab, "the kernel", lambda: label_of(lab, KERNEL) == kernel)


def test_labels_by_which_others_start_drivers_stay_and_are_not_written_anew(lab):
    """As after an update to an agent that writes its own alone: even when the last card goes."""
    waiting.until(lab, "the labels", lambda: label_of(lab, table.PORTS) == "8")
    before = of_nfd(lab)
    assert before[VENDOR] == "true"
    switch(lab, "write")
    replay = Replay(lab, NODE)
    addresses = [replay.pull(card) for card in CARDS]
    waiting.until(lab, "no card", lambda: label_of(lab, table.PORTS) is None)
    assert of_nfd(lab) == before
    for address in addresses:
        replay.plug(address)
    waiting.until(lab, "the cards", lambda: label_of(lab, table.PORTS) == "8")
    switch(lab, "remove")
    waiting.until(lab, "no label of ours", lambda: not left(lab))
    switch(lab, "write")
    waiting.until(lab, "the labels", lambda: label_of(lab, table.PORTS) == "8")
    assert not of_nfd(lab)
    switch(lab, "write-nfd")
    waiting.until(lab, "all labels", lambda: of_nfd(lab) == before)


def of_nfd(lab):
    """The labels of the node below Node Feature Discovery's prefix."""
    return {k: v for k, v in metadata(lab)["labels"].items() if table.is_nfd(k)}


def overwrite(lab, labels, annotations):
    """Write metadata of the node as its owner does who has every right."""
    patch = json.dumps({"metadata": {"labels": labels, "annotations": annotations}})
    cluster.kubectl(lab, "patch", "node", NODE, "--type=merge", "-p", patch)


def test_the_operator_s_nodes_are_selected_without_labels_by_hand(lab):
    """Seed S3's policy, from nodes that nobody labelled to shares of the constructed cards."""
    root = scc.examples().parent
    operator = f"{scc.examples()}/s3-network/operator.yaml"
    for path in (f"{root}/config/operator", f"{root}/config/crds", operator):
        cluster.kubectl(lab, "apply", "-f", path)
    space = test_operator.NAMESPACE
    cluster.wait(lab, "-n", space, "deployment/kube-rdma-operator", "--for=condition=Available")
    try:
        cluster.apply(lab, test_operator.policy(lab))
        ready = "--for=jsonpath={.status.state}=ready"
        cluster.wait(lab, "-n", space, test_operator.POLICY, ready)
        cluster.wait_for_resource(lab, test_operator.RESOURCE, "1k")
        cluster.kubectl(lab, "-n", space, "delete", test_operator.POLICY, "--wait")
    finally:
        cluster.kubectl(lab, "delete", "-f", operator, "--wait")
        cluster.kubectl(lab, "delete", "-f", f"{root}/config/operator", "--wait")
