"""The live scheduler and `kube-rdma explain claim/NAME` come to the same end of a claim.

Worlds of tests/kit/claim_worlds at the real API server, whose validation they pass, one after the
other: nodes without a kubelet, slices, what others hold, and a pod that waits for its claim. What
the scheduler does not find, explain refuses on every node; what it finds, explain finds too.
"""

import itertools
import json

import pytest

from kube_rdma.claims.rules.verdicts import explain_claim, judge
from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until
from tests.kit import allocator
from tests.kit.claim_worlds import world
from tests.kit.pods import sleeping_pod

MADE_UP = "kube-rdma.test/world"
START = 20_000  # worlds from here on are asked of no one else
ADMIN = "resource.kubernetes.io/admin-access=true"


@pytest.fixture(scope="module")
def lab(native):
    """Requests with adminAccess are allowed in the namespace."""
    cluster.kubectl(native, "label", "namespace", "default", ADMIN)
    yield native
    cluster.kubectl(native, "label", "namespace", "default", f"{ADMIN.partition('=')[0]}-")


def test_the_scheduler_comes_to_the_same_end(lab):
    assert [*filter(None, (difference(lab, made) for made in worlds(2)))] == []


@pytest.mark.slow
def test_the_scheduler_comes_to_the_same_end_in_fifty_worlds(lab):
    ends = [difference(lab, made) for made in worlds(25)]
    assert [*filter(None, ends)] == []


def worlds(count):
    """As many worlds whose claim can be met as others, of those that the API server takes."""
    made = (prepared(world(number)) for number in itertools.count(START))
    lawful = [one for one in itertools.islice(made, 20 * count) if is_plain(one)]
    met = [one for one in lawful if is_met(one)][:count]
    others = [one for one in lawful if not is_met(one)][:count]
    assert len(met) == len(others) == count
    return [*met, *others]


def is_plain(made):
    """Whether no slice names a device twice, or has one for which a pod waits once it has it."""
    parts = [one["spec"].get("devices", ()) for one in made["slices"]]
    return all(
        len({device["name"] for device in devices}) == len(devices)
        and not any("bindingConditions" in device for device in devices)
        for devices in parts
    )


def is_met(made):
    """By all nodes together: what stops the scheduler on one stops it."""
    return explain_claim(allocator.read(made)).is_met


def difference(lab, made):
    """What both say of a world, and the world, where they differ; else None.

    Where explain finds devices the pod is waited for: the scheduler's cache may be a moment late.
    """
    try:
        put(lab, made)
        node, results = end(lab, scheduled=is_met(made))
    finally:
        clear(lab, made)
    if not is_met(made):
        return ("scheduled", node, results, made) if node else None
    read = allocator.read(made)
    (chosen,) = (each for each in read.nodes if each.name == node)
    ours, theirs = allocator.ours(judge(read, chosen)), allocator.told({"results": results})
    return None if theirs == ours else (node, theirs, ours, made)


def prepared(made):
    """The world as the API server takes it, on nodes that the lab does not have.

    Holders have the request that they met. Rules are of a beta that this API server does not serve.
    """
    made = {**made, "rules": []}
    made = json.loads(json.dumps(made).replace('"node-', '"made-up-'))
    request = {"name": "all", "exactly": {"deviceClassName": "any"}}
    for claim in made["claims"]:
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        exactly = request["exactly"] | ({"adminAccess": True} if "adminAccess" in result else {})
        claim["spec"] = {"devices": {"requests": [{**request, "exactly": exactly}]}}
    for node in made["nodes"]:
        node["metadata"]["labels"][MADE_UP] = "yes"
    return made


def put(lab, made):
    """Everything, and the pod that waits for the claim at last."""
    nodes = [
        {**node, "spec": {"taints": []}, "status": {"allocatable": {"pods": "9"}}}
        for node in made["nodes"]
    ]
    objects = [*made["classes"], *made["slices"], *made["claims"], made["claim"]]
    cluster.apply(lab, *nodes, *map(bare, objects))
    for each in made["claims"]:
        give_status(lab, each, each["status"])
    for node in nodes:
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "made up"}
        status = {**node["status"], "conditions": [ready]}
        give_status(lab, node, status)
    pod = sleeping_pod(
        "waits",
        nodeSelector={MADE_UP: "yes"},
        tolerations=[{"operator": "Exists"}],
        resourceClaims=[{"name": "own", "resourceClaimName": made["claim"]["metadata"]["name"]}],
    )
    cluster.apply(lab, pod)


def bare(document):
    """Without what the API server gives itself."""
    meta = {name: value for name, value in document["metadata"].items() if name != "uid"}
    return {**document, "metadata": meta} | ({"status": {}} if "status" in document else {})


def give_status(lab, document, status):
    """As a patch: a node is written by its controllers meanwhile."""
    words = ("--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}")
    cluster.kubectl(lab, "patch", document["kind"], document["metadata"]["name"], *words)


def end(lab, *, scheduled):
    """The node that the scheduler chose, "" for none, and the results of the claim."""

    def outcome():
        pod = cluster.get(lab, "pod", "waits")
        node = pod["spec"].get("nodeName", "")
        types = [each["type"] for each in pod.get("status", {}).get("conditions", ())]
        return (node,) if node or (not scheduled and "PodScheduled" in types) else None

    (node,) = until(lab, "the scheduler looking at the pod", outcome)
    claim = cluster.get(lab, "resourceclaim", "wanted")
    allocation = claim.get("status", {}).get("allocation", {"devices": {"results": []}})
    return node, allocation["devices"]["results"]


def clear(lab, made):
    """All that was put, so that the next world is alone."""
    gone = ("--ignore-not-found", "--wait=true")
    cluster.kubectl(lab, "delete", "pod", "waits", "--force", "--grace-period=0", *gone)
    cluster.kubectl(lab, "delete", "resourceclaims", "--all", *gone)
    cluster.kubectl(lab, "delete", "nodes", "-l", MADE_UP, *gone)
    cluster.kubectl(lab, "delete", "deviceclasses", "any", "own", *gone)
    names = [one["metadata"]["name"] for one in made["slices"]]
    if names:
        cluster.kubectl(lab, "delete", "resourceslices", *names, *gone)
