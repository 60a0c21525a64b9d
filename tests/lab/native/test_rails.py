"""Kueue asks whether the rails of a job's nodes are well: real Kueue, our controller in a pod.

The controller runs with the value controller.queue, so its rights are those of its role. Jobs and
nodes are those of test_placement; a queue without topology can be given more than there is.
"""

import json
from copy import deepcopy
from datetime import UTC, datetime

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.preflight import RESULT
from kube_rdma.model.queue import CONTROLLER
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.installation import objects
from tests.kit.kueue import API, LABEL, conditions, kueue, names_of, workload
from tests.kit.on_leaves import (
    CARDS,
    JOB,
    LEAVES,
    NAMESPACE,
    NIC,
    ROOM,
    WITHOUT_NETWORKS,
    applied,
    example,
    labelled,
    placed,
    sized,
)

pytestmark = pytest.mark.slow  # Kueue takes many minutes to build, and the lab is its own

CHECK, PLAIN, FREE = "rails", "plain", "free"  # FREE: a queue without the check
TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
CONTROLLERS = "deployment/kube-rdma-controller"


def made(kind, name, **spec):
    """An object of Kueue."""
    metadata = {"name": name, **({"namespace": "default"} if kind == "LocalQueue" else {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def plain_queues():
    """Two queues without topology, whose quota is more than the nodes have."""
    resource = {"name": NIC, "nominalQuota": 64}
    flavors = [{"name": PLAIN, "resources": [resource]}]
    yield made("ResourceFlavor", PLAIN)
    groups = [{"coveredResources": [NIC], "flavors": flavors}]
    for name in (PLAIN, FREE):
        queue = made("ClusterQueue", name, namespaceSelector={}, resourceGroups=groups)
        yield checked(queue) if name == PLAIN else queue
        yield made("LocalQueue", name, clusterQueue=name)


def checked(document):
    """An object of Kueue; a ClusterQueue names the check."""
    if document["kind"] == "ClusterQueue":
        document["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    return document


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Nodes with labels, and the controller; KUBE_RDMA_TEST_RAILS=NAME takes a running lab."""
    with labelled(tmp_path_factory.mktemp("rails"), "test-rails", "native") as made_lab:
        layers = [assignment(word) for word in (WITHOUT_NETWORKS, "controller.queue=true")]
        cluster.apply(made_lab, *objects(layers, "rails"))
        words = ("rollout", "status", CONTROLLERS, "-n", NAMESPACE, "--timeout=0")
        waiting.run(made_lab, made_lab.kubectl(*words), concerns=words)
        yield made_lab


@pytest.fixture(scope="module")
def queued(lab, tmp_path_factory):
    """Kueue with the queue of examples/placement and plain ones; the example's job."""
    *queue, job = example("kueue")
    check = made("AdmissionCheck", CHECK, controllerName=CONTROLLER)
    all_of_it = (check, *map(checked, queue), *plain_queues())
    with kueue(lab, tmp_path_factory.mktemp("kueue")), applied(lab, *all_of_it):
        cluster.wait(lab, f"admissionchecks.kueue.x-k8s.io/{CHECK}", "--for=condition=Active")
        for name in ("rdma", PLAIN, FREE):
            cluster.wait(lab, f"clusterqueue/{name}", "--for=condition=Active")
        yield job


def answer(lab, job=JOB):
    """The state and the message of the check in a job's workload."""
    checks = workload(lab, job).get("admissionChecks", ())
    return next(
        ((one["state"], one["message"]) for one in checks if one["name"] == CHECK), ("", "")
    )


def in_plain_queue(job, pods, queue=PLAIN, name=JOB):
    """The job with so many pods, where no topology matters."""
    changed = deepcopy(sized(job, pods))
    changed["metadata"] |= {"name": name, "labels": {LABEL: queue}}
    del changed["spec"]["template"]["metadata"]["annotations"][TOPOLOGY]
    return changed


def test_a_job_starts_on_nodes_that_are_well(lab, queued):
    """And the answer says that each of them was judged."""
    with applied(lab, queued):
        assert sorted(set(placed(lab, ROOM))) == ["node-1", "node-3"]
        state, message = answer(lab)
        assert state == "Ready"
        assert "on each of 2 chosen nodes" in message


def test_a_job_without_chosen_nodes_is_judged_by_their_sum(lab, queued):
    with applied(lab, in_plain_queue(queued, ROOM + 1)):
        placed(lab, ROOM + 1)
        state, message = answer(lab)
        assert state == "Ready"
        assert f"the nodes of flavor {PLAIN} together" in message


def test_a_job_that_asks_for_more_than_is_well_is_queued_again(lab, queued):
    """Kueue evicts it a minute later, which it counts; the next answer says two minutes."""
    most = CARDS * len(LEAVES)
    with applied(lab, in_plain_queue(queued, most + 1)):
        why = cluster.until_event(lab, "RailsNotWell", f"{most} healthy shares of {NIC}")
        assert f"the pods ask for {most + 1}" in why

        def again():
            (check,) = workload(lab, JOB).get("admissionChecks", ({},))
            pause = check.get("requeueAfterSeconds")
            return (check.get("state"), check.get("retryCount"), pause) == ("Retry", 1, 120)

        waiting.until(lab, "a second answer", again)
        assert conditions(lab, JOB)["Requeued"][0] == "True"
        assert not names_of(lab, JOB)


def suspecting(node):
    """A BandwidthCheck of kube-rdma's namespace that ended so, as the controller would write it."""
    now = moment(datetime.now(UTC))
    suspects = [{"kind": "card", "node": node, "device": "mlx5_0", "pairs": 3, "of": 3}]
    times = {"startTime": now, "completionTime": now}
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "BandwidthCheck",
        "metadata": {"name": "weekly", "namespace": NAMESPACE, "labels": {RESULT: "a" * 16}},
        "spec": {"preflight": "Job/weekly"},
        "status": {"observedGeneration": 1, "state": "NotWell", "suspects": suspects, **times},
    }


def test_a_job_waits_while_a_measurement_suspects_one_of_its_nodes(lab, queued):
    check = suspecting("node-1")
    named = ("bandwidthcheck", "weekly", "-n", NAMESPACE)
    patch = json.dumps({"status": check.pop("status")})
    cluster.apply(lab, check)
    cluster.kubectl(lab, "patch", *named, "--subresource=status", "--type=merge", "-p", patch)
    try:
        with applied(lab, queued):
            why = cluster.until_event(lab, "RailsNotWell", "suspect of BandwidthCheck")
            assert f"node node-1 is a suspect of BandwidthCheck {NAMESPACE}/weekly (mlx5_0)" in why
            assert not names_of(lab, JOB)
    finally:
        cluster.kubectl(lab, "delete", *named)


def test_without_the_controller_pending_stays_pending_and_other_queues_go_on(lab, queued):
    """The next controller answers what waits."""
    cluster.kubectl(lab, "scale", CONTROLLERS, "-n", NAMESPACE, "--replicas=0")
    pods = ("pods", "-n", NAMESPACE, "-l", "name=kube-rdma-controller")
    waiting.until(lab, "no controller", lambda: not cluster.get(lab, *pods)["items"])
    waits, free = (
        in_plain_queue(queued, 1, queue, name) for queue, name in ((PLAIN, JOB), (FREE, "other"))
    )
    with applied(lab, waits), applied(lab, free):
        waiting.until(lab, "quota", lambda: answer(lab)[0])
        waiting.until(lab, "the other queue's pod", lambda: names_of(lab, "other"))
        cluster.ready(lab, *names_of(lab, "other"))
        assert answer(lab)[0] == "Pending"
        assert not names_of(lab, JOB)
        cluster.kubectl(lab, "scale", CONTROLLERS, "-n", NAMESPACE, "--replicas=1")
        placed(lab, 1)
        assert answer(lab)[0] == "Ready"
