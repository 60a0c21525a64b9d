"""Pods as the real JobSet and LeaderWorkerSet make them: preflight finds their gang and its size.

There are no nodes: nobody runs the pods, and that one has failed is written into its status.
"""

import json

import pytest

from kube_base.errors import Refused
from kube_client.kinds import Where
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.install.installation import assignment, objects
from kube_rdma.model import preflight as model
from kube_rdma.preflight.cluster import ASKING_POD, asking_pod, owner_spec
from kube_rdma.preflight.rules import asked, size_by_owner
from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until
from tests.groups import own
from tests.kit import manifests
from tests.kit.gangs import BOTH, makers
from tests.lab.conftest import up

# Slow: to build them takes minutes.
pytestmark = pytest.mark.slow

TEAM, NAME = "default", "test-gangs"
VALUES = ("image.repository=localhost/kube-rdma", "controller.preflight=true")
LWS = "leaderworkerset.sigs.k8s.io/"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A control plane, policies and both controllers; KUBE_RDMA_TEST_GANGS=NAME as elsewhere."""
    command = "kube-rdma lab up --topology control-plane"
    folder = tmp_path_factory.mktemp("gangs")
    with (
        up(own(NAME), "control-plane", command, "KUBE_RDMA_TEST_GANGS") as made,
        makers(made, folder, *BOTH),
    ):
        policies = objects([*map(assignment, VALUES)], "default", "preflight")
        cluster.apply(made, *policies)
        trial = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, **template()}
        trial["metadata"] |= {"annotations": {model.REQUEST: "ring"}}
        words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        until(
            made,
            "the policies",
            lambda: model.AWAITS in cluster.kubectl(made, *words, stdin=json.dumps(trial)),
        )
        yield made
        for one in policies:
            cluster.kubectl(made, "delete", one["kind"], one["metadata"]["name"])


@pytest.fixture
def gangs(lab):
    """Nothing of a test is left for the next."""
    yield lab
    for kind in ("jobsets", "leaderworkersets"):
        cluster.kubectl(lab, "delete", kind, "--all", "--cascade=foreground")


def template(*, asks=False):
    """The template of a pod with a share, which asks for a ring or for nothing."""
    container = {"name": "main", "image": "i", "resources": {"limits": {"rdma/nic": 1}}}
    made = {"spec": {"containers": [container]}}
    return {"metadata": {"annotations": {model.REQUEST: "ring"}}, **made} if asks else made


def job_set(name, jobs=2, pods=4, **spec):
    """A JobSet whose workers ask, with a job beside them that does not."""

    def job(name, pods, *, asks):
        inner = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
        inner["template"] = template(asks=asks)
        inner["template"]["spec"]["restartPolicy"] = "Never"
        return {"name": name, "replicas": jobs if asks else 1, "template": {"spec": inner}}

    both = [job("workers", pods, asks=True), job("driver", 1, asks=False)]
    spec = {"replicatedJobs": both, **spec}
    return manifests.manifest("jobset.x-k8s.io/v1alpha2", "JobSet", named(name), spec)


def leader_worker_set(name, groups=1, size=8, leader=None, **spec):
    group = {"size": size, "workerTemplate": template(asks=True)}
    if leader:
        group["leaderTemplate"] = leader
    spec = {"replicas": groups, "leaderWorkerTemplate": group, **spec}
    return manifests.manifest("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", named(name), spec)


def named(name):
    return {"name": name, "namespace": TEAM}


async def seen(lab):
    """The pods that ask and have not ended, as the controller reads them."""
    async with connect(lab.kubeconfig) as client:
        stored = await client.list(ASKING_POD, Where(namespace=TEAM, labels=model.REQUEST))
    pods = [asked(asking_pod(one)) for one in stored]
    assert all(pod.gang and not pod.refusal for pod in pods)
    return [pod for pod in pods if not (pod.is_over or pod.deleting)]


def number_of(lab, *words):
    return len(cluster.get(lab, "pods", *words)["items"])


async def gang_of(lab, count):
    """The one gang of so many pods, once they are there."""
    until(lab, f"{count} pods", lambda: number_of(lab, "-l", model.REQUEST) == count)
    pods = await seen(lab)
    (gang,) = {pod.gang for pod in pods}
    return gang, pods


async def size(lab, gang):
    """How many pods a gang has, by the spec of its owner."""
    async with connect(lab.kubeconfig) as client:
        return size_by_owner(gang.kind, await owner_spec(client, gang))


def initial(lab, name):
    return [one["name"] for one in cluster.get(lab, f"pod/{name}")["spec"]["initContainers"]]


async def test_the_pods_of_a_jobset_are_one_gang(gangs):
    """Of two jobs; the job beside them does not count."""
    cluster.apply(gangs, job_set("train"))
    gang, pods = await gang_of(gangs, 8)
    assert (gang.kind, gang.name, gang.size) == ("JobSet", "train", None)
    assert await size(gangs, gang) == len(pods) == 8
    assert initial(gangs, pods[0].name) == [model.MEASURES, model.AWAITS]
    made = cluster.get(gangs, f"jobset/{gang.name}")["metadata"]["uid"]
    assert gang.attempt == f"{made} 0"


async def test_a_jobset_that_restarts_is_another_gang_with_other_pods(gangs):
    cluster.apply(gangs, job_set("train", failurePolicy={"maxRestarts": 1}))
    first, pods = await gang_of(gangs, 8)
    failed = json.dumps({"status": {"phase": "Failed"}})
    words = ("patch", "pod", pods[0].name, "--subresource=status", "--type=merge", "-p", failed)
    cluster.kubectl(gangs, *words)
    second = f"{model.REQUEST},jobset.sigs.k8s.io/restart-attempt=1"
    until(gangs, "the second attempt", lambda: number_of(gangs, "-l", second) == 8)
    until(gangs, "the end of the first", lambda: number_of(gangs) == 9)
    again, others = await gang_of(gangs, 8)
    assert again.attempt == first.attempt.replace(" 0", " 1")
    assert again.key != first.key
    assert {pod.name for pod in pods}.isdisjoint(pod.name for pod in others)
    assert await size(gangs, again) == 8


async def test_a_jobset_that_starts_its_jobs_in_order_is_refused_if_both_ask(gangs):
    made = job_set("train", startupPolicy={"startupPolicyOrder": "InOrder"})
    for one in made["spec"]["replicatedJobs"]:
        one["template"]["spec"]["template"] |= {"metadata": template(asks=True)["metadata"]}
    cluster.apply(gangs, made)
    gang, _ = await gang_of(gangs, 8)  # the other job has no pods before they are ready
    with pytest.raises(Refused, match="starts its jobs one after the other"):
        await size(gangs, gang)


async def test_a_group_of_a_leader_worker_set_is_a_gang(gangs):
    """Leader and workers have different owners, and all of them the label of their group."""
    cluster.apply(gangs, leader_worker_set("infer", groups=2, size=4))
    until(gangs, "eight pods", lambda: number_of(gangs) == 8)
    pods = await seen(gangs)
    assert {pod.name: pod.gang.name for pod in pods} == {
        name: f"infer-{group}"
        for group in range(2)
        for name in (f"infer-{group}", *(f"infer-{group}-{worker}" for worker in range(1, 4)))
    }
    assert {await size(gangs, pod.gang) for pod in pods} == {4}
    assert all(initial(gangs, pod.name) == [model.MEASURES, model.AWAITS] for pod in pods)


async def test_workers_alone_may_ask_also_if_they_wait_for_their_leader(gangs):
    """The leader is made ready by hand: without it there are no workers."""
    made = leader_worker_set("infer", size=4, leader=template(), startupPolicy="LeaderReady")
    cluster.apply(gangs, made)
    until(gangs, "the leader", lambda: number_of(gangs))
    ready = [{"type": "Ready", "status": "True"}]
    status = json.dumps({"status": {"phase": "Running", "conditions": ready}})
    words = ("patch", "pod", "infer-0", "--subresource=status", "--type=merge", "-p", status)
    cluster.kubectl(gangs, *words)
    gang, pods = await gang_of(gangs, 3)
    assert {pod.name for pod in pods} == {f"infer-0-{worker}" for worker in range(1, 4)}
    assert await size(gangs, gang) == 3


async def test_a_leader_whose_workers_wait_until_it_is_ready_is_refused(gangs):
    """The workers of the other set show that the controller has looked at both."""
    cluster.apply(gangs, leader_worker_set("later", size=4, startupPolicy="LeaderReady"))
    until(gangs, "its leader", lambda: number_of(gangs))
    cluster.apply(gangs, leader_worker_set("now", size=4))
    until(gangs, "the others", lambda: number_of(gangs) == 5)
    (waits,) = [pod.gang for pod in await seen(gangs) if pod.gang.name == "later-0"]
    with pytest.raises(Refused, match="starts its workers when their leader is ready"):
        await size(gangs, waits)
