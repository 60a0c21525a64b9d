"""Three native nodes on two leaf switches, and the jobs of examples/placement on them.

The nodes hear the switches, their agents report it, and the controller labels the nodes: nobody
writes a label by hand. Each node has four cards for a pod each, so only leaf-b has room for eight
pods, and no leaf for nine.
"""

from contextlib import contextmanager
from copy import deepcopy

import yaml

from kube_rdma.fabric.rules.leaves import LEAF
from kube_rdma.install.installation import assignment
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.groups import own
from tests.kit.kueue import names_of, pods_of
from tests.kit.pods import IMAGE, UNTIL_ASKED
from tests.lab.conftest import up

LEAVES = {"node-1": "leaf-b", "node-2": "leaf-a", "node-3": "leaf-b"}
TREE, CARDS = "xe9680-like", 4
NIC, NAMESPACE = "rdma/nic", "kube-rdma"
JOB, ROOM = "on-one-leaf", 8
# The recorded GIDs of native nodes never follow an address.
WITHOUT_NETWORKS = "admission.pods.check=false"


@contextmanager
def labelled(folder, name, like, **more):
    """The nodes with kube-rdma, once they have their labels; KUBE_RDMA_TEST_NAME as elsewhere.

    `like` is a built-in topology of the same release, `more` is written into the topology's file.
    """
    nodes = [{"native": True, "tree": TREE, "leaves": [leaf] * CARDS} for leaf in LEAVES.values()]
    file = folder / "leaves.yaml"
    file.write_text(yaml.safe_dump({"nodes": nodes, **more}))
    command = f"kube-rdma lab up --topology {file} --lldp-seconds 1"
    variable = f"KUBE_RDMA_{name.replace('-', '_').upper()}"
    with up(own(name), like, command, variable) as lab:
        scc.install_kinds(lab)
        cluster.apply(lab, *objects([assignment(WITHOUT_NETWORKS)], "rails"))
        cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)
        for node in LEAVES:
            cluster.wait_for_resource(lab, NIC, CARDS, node=node)
        waiting.until(lab, "labels of leaves", lambda: labels(lab, LEAF) == LEAVES)
        yield lab


def nodes_of(lab):
    """The metadata of each node, by name."""
    return {one["metadata"]["name"]: one["metadata"] for one in cluster.get(lab, "nodes")["items"]}


def labels(lab, key):
    """A label of each node."""
    return {name: one["labels"].get(key) for name, one in nodes_of(lab).items()}


def example(name):
    """The objects of a file of examples/placement; pods have an image of the lab."""
    text = (scc.examples() / f"placement/{name}.yaml").read_text()
    for document in yaml.safe_load_all(text):
        if document["kind"] == "Job":
            spec = document["spec"]["template"]["spec"]
            spec["terminationGracePeriodSeconds"] = 1
            (container,) = spec["containers"]
            container |= {"image": IMAGE, "command": list(UNTIL_ASKED)}
        yield document


def sized(job, pods):
    """A job like another one, with so many pods."""
    made = deepcopy(job)
    made["spec"] |= {"completions": pods, "parallelism": pods}
    return made


@contextmanager
def applied(lab, *documents):
    """These objects for a while, a Job last; then nothing of them is left."""
    cluster.apply(lab, *documents)
    try:
        yield
    finally:
        for one in reversed(documents):
            words = ("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")
            cluster.kubectl(lab, *words, "--cascade=foreground", "--wait")


def placed(lab, pods):
    """The nodes of the job's pods, once all of them run."""
    waiting.until(lab, f"{pods} pods", lambda: len(names_of(lab, JOB)) == pods)
    cluster.ready(lab, *names_of(lab, JOB))
    return [one["spec"]["nodeName"] for one in pods_of(lab, JOB)]


def leaves_of(nodes):
    return {LEAVES[node] for node in nodes}
