"""Seed S1's node on the lab: its label alone makes the resource, and the resource tells the truth.

The real kubelet and API server; the cards are constructed, eight per node.
"""

from contextlib import contextmanager

import pytest

from kube_rdma.adapters.cluster.kinds.node import CARDS_HEALTHY
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.native.replay import Replay
from tests.kit.pods import sleeping_pod

RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
NAMESPACE = "kube-rdma-vke"
NODE = "node-1"
AGENT = "kube-rdma agent --role=plugin --role=node --networks"
CARDS = 8


@pytest.fixture(scope="module")
def lab(recorded):
    """Native nodes: labels, shares and restarts need cards, constructed ones do."""
    return recorded


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


def label(lab, value):
    """Label the node; an empty value takes the label away."""
    cluster.kubectl(
        lab, "label", "node", NODE, f"{LABEL}={value}" if value else f"{LABEL}-", "--overwrite"
    )


def wait_for(lab, count, resource=RESOURCE):
    """Wait until the node's allocatable shows so many."""
    cluster.wait_for_resource(lab, resource, count, node=NODE)


def agent_log(lab):
    """What the agent on the node has said."""
    pods = cluster.get(
        lab,
        "pods",
        "-n",
        NAMESPACE,
        "-l",
        "name=rdma-device-plugin",
        f"--field-selector=spec.nodeName={NODE}",
    )
    (pod,) = [each["metadata"]["name"] for each in pods["items"]]
    return cluster.kubectl(lab, "logs", "-n", NAMESPACE, pod)


@contextmanager
def pod(lab, name, **spec):
    """A pod on the node that holds one share; removed at the end."""
    limits = {RESOURCE: "1"} | spec.pop("limits", {})
    annotations = spec.pop("annotations", {})
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1} | spec
    cluster.apply(lab, sleeping_pod(name, limits=limits, annotations=annotations, **spec))
    try:
        yield name
    finally:
        cluster.kubectl(lab, "delete", "pod", name, "--ignore-not-found")


def ready(lab, name):
    """Wait until a pod is Ready."""
    cluster.ready(lab, name)


@pytest.mark.core
@pytest.mark.parametrize(
    ("mode", "count"), [("exclusive", CARDS), ("shared-multi", 16 * CARDS), ("shared", CARDS)]
)
def test_a_label_alone_makes_the_resource(vke, mode, count):
    label(vke, mode)
    wait_for(vke, count)


@pytest.mark.core
def test_devices_are_bound_late_and_are_exactly_those_of_the_card(vke):
    """CDI is proven on this runtime, so the container gets its devices by a file of its own."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    assert "devices are given at Allocate" not in agent_log(vke)
    with pod(vke, "late") as name:
        ready(vke, name)
        nodes = cluster.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband").split()
        assert len([node for node in nodes if node.startswith("uverbs")]) == 1
        assert "rdma_cm" in nodes
        assert "kube-rdma-start-" in cluster.shell(vke, NODE, "ls", "/var/run/cdi")


@pytest.mark.core
def test_a_pod_that_asks_for_a_network_waits_for_it_and_says_why(vke):
    """Fail closed, with a sentence in the pod's event: its sandbox is not made."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    annotations = {"k8s.v1.cni.cncf.io/networks": "rdma"}
    with pod(vke, "waiting", annotations=annotations) as name:
        cluster.until_event(vke, "FailedCreatePodSandBox", "there is no network default/rdma")
        assert cluster.get(vke, f"pod/{name}")["status"]["phase"] == "Pending"


def test_a_change_of_mode_waits_for_a_pod(vke):
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, "holds") as name:
        ready(vke, name)
        label(vke, "shared-multi")
        cluster.until_event(vke, "ModeChangePending", f"default/{name}")
    wait_for(vke, 16 * CARDS)


def card_status(lab, name):
    """What the kubelet says of the share that a pod holds: its id and its health."""
    (status,) = cluster.get(lab, f"pod/{name}")["status"]["containerStatuses"]
    (entry,) = [e for e in status["allocatedResourcesStatus"] if e["name"] == RESOURCE]
    (share,) = entry["resources"]
    return share["resourceID"], share["health"]


def node_says(lab):
    """The node's condition: status and message, None without it."""
    conditions = cluster.get(lab, f"node/{NODE}")["status"]["conditions"]
    ours = [c for c in conditions if c["type"] == CARDS_HEALTHY]
    return (ours[0]["status"], ours[0]["message"]) if ours else None


def notes_of(lab, kind, name, reason):
    """The notes of Events of this reason about an object."""
    found = cluster.get(lab, "events.events.k8s.io", "-A", f"--field-selector=reason={reason}")
    about = ((event["regarding"], event["note"]) for event in found["items"])
    return [note for one, note in about if (one["kind"], one["name"]) == (kind, name)]


def test_a_card_that_fails_is_seen_by_its_job_and_on_its_node(vke):
    """In the pod's own status, as its Event and in the node's condition; then all is well again."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    well = ("True", f"{CARDS} of {CARDS} cards can be used")
    waiting.until(vke, "a condition of the node", lambda: node_says(vke) == well)
    with pod(vke, "job") as name:
        ready(vke, name)
        share, health = card_status(vke, name)
        assert health == "Healthy"
        folder = f"/sys/bus/pci/devices/{share.rpartition('-')[0]}/infiniband"
        card = cluster.shell(vke, NODE, "ls", folder).strip()
        replay = Replay(vke, NODE)
        replay.down(card)
        try:
            waiting.until(
                vke, "an unhealthy share", lambda: card_status(vke, name) == (share, "Unhealthy")
            )
            status, message = waiting.until(
                vke, "the node's word", lambda: node_says(vke) != well and node_says(vke)
            )
            assert status == "False"
            assert message.startswith(f"{CARDS - 1} of {CARDS} cards can be used. {card} (")
            (note,) = waiting.until(
                vke, "an Event", lambda: notes_of(vke, "Pod", name, "RDMACardUnhealthy")
            )
            assert card in note
        finally:
            replay.up(card)
        waiting.until(vke, "a healthy share", lambda: card_status(vke, name) == (share, "Healthy"))
        waiting.until(vke, "the node's word", lambda: node_says(vke) == well)
        assert waiting.until(vke, "an Event", lambda: notes_of(vke, "Pod", name, "RDMACardHealthy"))
    label(vke, "")
    waiting.until(vke, "no condition of a node without cards", lambda: node_says(vke) is None)


def test_a_kubelet_killed_at_once_gets_everything_again(vke):
    """SIGKILL leaves its socket behind; what pods hold is still known afterwards."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, "outlives") as name:
        ready(vke, name)
        before = agent_log(vke).count("event=registered")
        cluster.shell(vke, NODE, "kill -9 $(pidof kubelet)")
        wait_for_log(vke, "event=registered", before + 1)
        wait_for(vke, CARDS)

        def nodes():  # a kubelet that has just begun does not know its pods yet
            return cluster.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")

        assert "uverbs" in waiting.until(vke, "the kubelet knows its pod", nodes)


def test_a_kubelet_that_lost_its_checkpoint_gives_no_card_twice(vke):
    """It forgot who holds what, and gives the same card to the next pod, which waits and says why.

    All are free to it, so it is advised as it was before.
    """
    label(vke, "exclusive")
    wait_for(vke, CARDS)
    with pod(vke, "job") as job:
        ready(vke, job)
        share, _ = card_status(vke, job)
        before = agent_log(vke).count("event=registered")
        cluster.shell(vke, NODE, "sv", "-w", "60", "force-stop", "kubelet")
        cluster.shell(vke, NODE, "rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
        cluster.shell(vke, NODE, "sv", "start", "kubelet")
        wait_for_log(vke, "event=registered", before + 1)
        wait_for(vke, CARDS)
        with pod(vke, "thief") as thief:
            why = f"share {share} is still held by pod default/{job}, which runs"
            cluster.until_event(vke, "Failed", why)
            assert "uverbs" in cluster.kubectl(vke, "exec", job, "--", "ls", "/dev/infiniband")
            assert cluster.get(vke, f"pod/{thief}")["status"]["phase"] == "Pending"
            cluster.kubectl(vke, "delete", "pod", job)
            ready(vke, thief)
    wait_for(vke, CARDS)


def wait_for_log(lab, text, count):
    """Wait until the agent on the node has logged a text so often."""
    log = f"/var/log/pods/{NAMESPACE}_rdma-device-plugin-*/agent/*.log"
    cluster.until_on_node(lab, NODE, f"[ $(cat {log} | grep -c '{text}') -ge {count} ]")


def test_an_agent_killed_at_once_knows_its_promises(vke):
    """The container of a late-bound pod restarts after the agent did, with the same devices."""
    label(vke, "shared")
    wait_for(vke, CARDS)
    with pod(vke, "promised") as name:
        ready(vke, name)
        before = agent_log(vke).count("event=registered")
        cluster.shell(vke, NODE, "pkill", "-KILL", "-f", AGENT)
        wait_for_log(vke, "event=registered", before + 1)
        # In the background: with the container's first process its shell ends too, by SIGKILL.
        later = "(sleep 1; kill 1) >/dev/null 2>&1 &"
        cluster.kubectl(vke, "exec", name, "--", "sh", "-c", later)
        restarts = "{.status.containerStatuses[0].restartCount}=1"
        cluster.wait(vke, f"pod/{name}", f"--for=jsonpath={restarts}")
        ready(vke, name)
        assert "uverbs" in cluster.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")
    wait_for(vke, CARDS)


def test_containerd_may_restart(vke):
    label(vke, "shared")
    wait_for(vke, CARDS)
    cluster.shell(vke, NODE, "sv", "-w", "60", "force-restart", "containerd")
    with pod(vke, "after-containerd") as name:
        ready(vke, name)
        assert "uverbs" in cluster.kubectl(vke, "exec", name, "--", "ls", "/dev/infiniband")
