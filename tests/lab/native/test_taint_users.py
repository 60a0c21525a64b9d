"""What the real Kueue and JobSet make of a node that a RepairPolicy taints: pods go elsewhere.

Nodes and job are those of test_placement, the JobSet is that of docs/repair.md.
"""

import json
from contextlib import contextmanager

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.model import repair as model
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.installation import objects
from kube_rdma_lab.native.replay import Replay
from tests.kit.gangs import JOB_SET, makers
from tests.kit.kueue import admitted, conditions, kueue, names_of, pods_of, workload
from tests.kit.on_leaves import (
    CARDS,
    JOB,
    NAMESPACE,
    WITHOUT_NETWORKS,
    applied,
    example,
    labelled,
    placed,
    sized,
)
from tests.kit.on_page import on_page
from tests.kit.pods import IMAGE
from tests.lab.native.test_repair import taints

pytestmark = pytest.mark.slow  # Kueue takes many minutes to build, and the lab is its own

PAGE, CARD, CONTROLLERS = "docs/repair.md", "mlx5_1", "deployment/kube-rdma-controller"
# Unlike a pod that ends well when it is asked to, this one is not counted as done.
UNTIL_EVICTED = ("sh", "-c", "trap 'exit 143' TERM; sleep 1000000 & wait")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Nodes on leaves, a controller that repairs; KUBE_RDMA_TEST_TAINT_USERS=NAME as elsewhere."""
    with labelled(tmp_path_factory.mktemp("users"), "test-taint-users", "native") as made:
        layers = [assignment(word) for word in (WITHOUT_NETWORKS, "controller.repair=true")]
        cluster.apply(made, *objects(layers, "rails"))
        words = ("rollout", "status", CONTROLLERS, "-n", NAMESPACE, "--timeout=0")
        waiting.run(made, made.kubectl(*words), concerns=words)
        yield made


@contextmanager
def card_down(lab, node):
    """A card of a node that is down for a while; then the node's taints go."""
    replay = Replay(lab, node)
    replay.down(CARD)
    try:
        yield
    finally:
        replay.up(CARD)
        waiting.until(lab, "the end of all taints", lambda: not taints(lab, node))


def repair_policy(effect):
    """The policy of the page for nodes of four cards."""
    document = on_page(PAGE, "RepairPolicy")
    when = {"healthyCardsBelow": CARDS}
    document["spec"] |= {"when": when, "taint": effect, "enforce": True, "clearAfterSeconds": 10}
    return document


def until_tainted(lab, node, effect):
    taint = f"{model.KEY}=cards:{effect}"
    waiting.until(lab, "the taint", lambda: taint in taints(lab, node))


@pytest.fixture(scope="module")
def queued(lab, tmp_path_factory):
    """Kueue with the queue of examples/placement; a job of two pods on one leaf."""
    *queue, job = example("kueue")
    job["spec"]["template"]["spec"]["containers"][0]["command"] = list(UNTIL_EVICTED)
    with kueue(lab, tmp_path_factory.mktemp("kueue")), applied(lab, *queue):
        cluster.wait(lab, "clusterqueue/rdma", "--for=condition=Active")
        yield sized(job, 2)


def assigned(lab):
    """The nodes that Kueue has assigned to the job."""
    return json.dumps(admitted(lab, JOB)["topologyAssignment"])


def test_kueue_gives_pods_of_a_node_with_a_bad_card_another_node(lab, queued):
    """The job is not queued again: of its admission only the node changes."""
    with applied(lab, repair_policy("NoExecute"), queued):
        (node,) = set(placed(lab, 2))
        assert node in assigned(lab)
        with card_down(lab, node):
            until_tainted(lab, node, "NoExecute")
            waiting.until(lab, "another node", lambda: node not in assigned(lab))
            waiting.until(lab, "pods there", lambda: running(lab, away_from=node) == 2)
            assert "Evicted" not in conditions(lab, JOB)


def running(lab, *, away_from):
    """How many pods of the job run on other nodes."""
    pods = [one for one in pods_of(lab, JOB) if one["status"]["phase"] == "Running"]
    return sum(one["spec"]["nodeName"] != away_from for one in pods)


def test_without_eviction_kueue_leaves_pods_where_they_run_until_all_have_ended(lab, queued):
    with applied(lab, repair_policy("NoSchedule"), queued):
        (node,) = set(placed(lab, 2))
        names = names_of(lab, JOB)
        with card_down(lab, node):
            until_tainted(lab, node, "NoSchedule")
            assert node in assigned(lab)
            assert not workload(lab, JOB).get("unhealthyNodes")
            cluster.kubectl(lab, "delete", "pod", *names)
            waiting.until(lab, "pods elsewhere", lambda: running(lab, away_from=node) == 2)


def test_a_jobset_starts_again_elsewhere_and_does_not_count_it(lab, tmp_path):
    job_set = on_page(PAGE, "JobSet")
    (workers,) = job_set["spec"]["replicatedJobs"]
    spec = workers["template"]["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 1
    spec["containers"][0] |= {"image": IMAGE, "command": list(UNTIL_EVICTED)}
    policy = repair_policy("NoExecute")
    with makers(lab, tmp_path, JOB_SET), applied(lab, policy, job_set):
        node = pods_where(lab, 0)[0]
        with card_down(lab, node):
            until_tainted(lab, node, "NoExecute")
            assert node not in pods_where(lab, 1)
            status = cluster.get(lab, "jobset/train")["status"]
            assert status["restarts"] == 1
            assert not status.get("restartsCountTowardsMax")


def pods_where(lab, attempt):
    """The nodes of the JobSet's pods of a start, once both run."""
    words = ("pods", "-l", f"jobset.sigs.k8s.io/restart-attempt={attempt}")

    def nodes():
        pods = cluster.get(lab, *words)["items"]
        ready = [one["spec"]["nodeName"] for one in pods if one["status"]["phase"] == "Running"]
        return ready if len(ready) == 2 else ()

    return waiting.until(lab, f"the pods of start {attempt}", nodes)
