"""Jobs on one leaf: Kueue's Topology-Aware Scheduling goes by labels that come from LLDP alone.

The queue and the job are those of examples/placement.
"""

import json

import pytest

from kube_rdma.fabric.rules.leaves import BLOCK, LEAF, OWN
from kube_rdma_lab import cluster, waiting
from tests.documents.shell import Shell
from tests.kit.kueue import RESERVED, admitted, conditions, kueue, names_of
from tests.kit.on_leaves import (
    CARDS,
    JOB,
    LEAVES,
    NIC,
    ROOM,
    applied,
    example,
    labelled,
    labels,
    leaves_of,
    nodes_of,
    placed,
    sized,
)

pytestmark = pytest.mark.slow  # Kueue takes many minutes to build, and the lab is its own

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
SPEC = "topology.slinky.slurm.net/spec"
# As an administrator would who has Slinky (examples/placement/README.md).
FOR_SLINKY = """\
kubectl get nodes -l kube-rdma.io/leaf -L kube-rdma.io/leaf --no-headers |
    awk '{print $1, "topology.slinky.slurm.net/spec=fabric:" $NF}' |
    xargs -n 2 kubectl annotate node --overwrite
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Nodes with labels; KUBE_RDMA_TEST_PLACEMENT=NAME takes a running lab."""
    with labelled(tmp_path_factory.mktemp("topology"), "test-placement", "native") as made:
        yield made


def test_the_labels_are_what_the_nodes_hear(lab):
    """And the controller remembers them as its own."""
    assert labels(lab, BLOCK) == LEAVES
    for node, metadata in nodes_of(lab).items():
        written = json.loads(metadata["annotations"][OWN])
        assert written == {BLOCK: LEAVES[node], LEAF: LEAVES[node]}


def test_slinky_s_annotation_follows_from_the_label(lab):
    """What Slinky makes of it needs Slurm, which the lab has not."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}, lab.state.binaries) as shell:
        shell.check(FOR_SLINKY)
    noted = {name: one["annotations"][SPEC] for name, one in nodes_of(lab).items()}
    assert noted == {node: f"fabric:{leaf}" for node, leaf in LEAVES.items()}
    cluster.kubectl(lab, "annotate", "node", *LEAVES, f"{SPEC}-")


@pytest.fixture(scope="module")
def queued(lab, tmp_path_factory):
    """Kueue with the queue of the example; its job."""
    *queue, job = example("kueue")
    with kueue(lab, tmp_path_factory.mktemp("kueue")), applied(lab, *queue):
        cluster.wait(lab, "clusterqueue/rdma", "--for=condition=Active")
        yield job


def test_kueue_puts_eight_pods_on_the_leaf_that_has_room(lab, queued):
    with applied(lab, queued):
        assert sorted(placed(lab, ROOM)) == ["node-1"] * CARDS + ["node-3"] * CARDS
        given = admitted(lab, JOB)
        assert given["resourceUsage"] == {NIC: str(ROOM)}
        assert given["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]


def test_with_kueue_nine_pods_wait_that_ask_for_one_leaf_and_run_otherwise(lab, queued):
    """So it is the leaf that keeps them: the cards are there."""
    nine = sized(queued, ROOM + 1)
    with applied(lab, nine):
        waiting.until(lab, "Kueue's word", lambda: RESERVED in conditions(lab, JOB))
        status, message = conditions(lab, JOB)[RESERVED]
        assert status == "False"
        assert f'topology "fabric" allows to fit only {ROOM} out of {ROOM + 1} pod(s)' in message
        assert not names_of(lab, JOB)
    del nine["spec"]["template"]["metadata"]["annotations"][REQUIRED]
    with applied(lab, nine):
        assert leaves_of(placed(lab, ROOM + 1)) == {"leaf-a", "leaf-b"}
