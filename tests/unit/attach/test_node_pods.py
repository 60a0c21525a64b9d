"""The node's pods as the watch tells them: the shim's list, what is owed, the host's network."""

import asyncio
import os
import time
from contextlib import asynccontextmanager

import pytest

from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted, Synced
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni.shim_files import AskingPods
from kube_rdma.attach import repair
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.repair import NodePodWatch, PodWatchDependencies
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.late_binding import PodName, PodSandbox
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside
from tests.unit.agent.world import NODE_NAME, until

ASKS = {ANNOTATION: "rdma"}
LATER = 3600 * 10**9


class Watched:
    """A cluster whose watch events of pods come one by one; its API server has the pods."""

    def __init__(self):
        self._server, self._notices = FakeServer(), asyncio.Queue()

    async def watch(self, kind, where):
        assert (kind, where.fields) == (POD, f"spec.nodeName={NODE_NAME}")
        while True:
            yield await self._notices.get()
            self._notices.task_done()

    async def put(self, name, annotations=None, phase="Running", labels=None, **spec):
        meta = {"name": name, "namespace": "default", "annotations": annotations or {}}
        meta |= {"labels": labels} if labels else {}
        self._server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        found = await Cluster(self._server.line()).get(POD, name, "default")
        await self._tell(Changed(found))
        return pod_state(found)

    async def gone(self, pod):
        self._server.remove(POD, pod.name, pod.namespace)
        await self._tell(Deleted(pod.name, pod.namespace, pod.uid))

    async def synced(self):
        await self._tell(Synced())

    async def _tell(self, event):
        self._notices.put_nowait(event)
        await self._notices.join()


class World:
    """What outlives the agent: its folder, and what people were told."""

    def __init__(self, folder):
        self.folder, self.told, self.news = folder, [], 0

    @asynccontextmanager
    async def life(self, wiring=Wiring.CHAIN):
        """One of the agent, up to its end or to where it is killed."""
        cluster = Watched()
        to = PodWatchDependencies(
            cluster, NODE_NAME, self.folder, NodeContext(network="cbr0"), self._tell
        )
        pods = NodePodWatch(to)
        if wiring:
            pods.wired(wiring)
        async with beside(pods.follow(self._wake)):
            yield pods, cluster

    @property
    def list(self):
        return {pod.name for pod in AskingPods(self.folder / "asking").present()}

    def _tell(self, pod, reason, note, warning):
        self.told.append((pod.name, reason, note, warning))

    def _wake(self):
        self.news += 1


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def sandbox(pod, created):
    return PodSandbox("c", PodName(pod.namespace, pod.name), pod.runtime_uid, True, created)


async def test_a_pod_that_went_between_two_watches_is_not_refused(world):
    async with world.life(wiring=None) as (pods, cluster):
        await cluster.put("a", ASKS, hostNetwork=True)
    async with beside(pods.follow(world._wake)):
        await asyncio.sleep(0)
        pods.wired(Wiring.CHAIN)
    assert world.told == []


async def test_of_a_pods_labels_only_what_is_read_is_kept(world):
    """Its author may write more than a MiB of them, and the node has many pods."""
    async with world.life() as (pods, cluster):
        labels = {RESTART: "true", **{f"a{number}": "x" * 63 for number in range(100)}}
        await cluster.put("a", ASKS, labels=labels)
        (kept,) = pods.asking
        assert kept.labels == ((RESTART, "true"),)


async def test_an_agent_that_is_killed_during_its_first_list_leaves_the_list_as_it_was(world):
    """Else the pods that it was not told yet would be let pass."""
    async with world.life() as (_, cluster):
        for name in "abc":
            await cluster.put(name, ASKS)
        await cluster.synced()
        await until(lambda: world.list == {"a", "b", "c"})
    async with world.life() as (pods, cluster):
        await cluster.put("a", ASKS)
        await cluster.put("b")
        assert [pod.name for pod in pods.asking] == ["a"]
        assert world.list == {"a", "b", "c"}
        await cluster.synced()
        await until(lambda: world.list == {"a"})
        await cluster.gone(await cluster.put("c", ASKS))
        await cluster.put("d", ASKS)
        await until(lambda: world.list == {"a", "d"})


async def test_what_was_owed_networks_is_known_in_the_next_life(world):
    """By when its pod was first known to ask, and when we were first chained."""
    before = time.time_ns() - LATER
    async with world.life() as (pods, cluster):
        pod = await cluster.put("a", ASKS)
        assert not pods.owed(sandbox(pod, time.time_ns() + LATER), pod)
        await cluster.synced()
        await until(lambda: world.list)
        assert not pods.owed(sandbox(pod, before), pod)
        after = time.time_ns() + LATER
        assert pods.owed(sandbox(pod, after), pod)
    async with world.life(None) as (pods, _):
        assert pods.owed(sandbox(pod, after), pod)
        assert not pods.owed(sandbox(pod, before), pod)


@pytest.mark.parametrize(
    ("change", "owed"),
    [
        (lambda pods: pods.wired(Wiring.CHAIN), True),
        (lambda pods: pods.wired(Wiring.NONE), True),
        (lambda pods: pods.wired(Wiring.DELEGATE), False),
        (lambda pods: pods.unwired(), False),
    ],
)
async def test_nothing_is_owed_from_before_we_were_chained_again(world, change, owed):
    """Without a network nothing starts, so that is no interruption."""
    async with world.life() as (pods, cluster):
        pod = await cluster.put("a", ASKS)
        await cluster.synced()
        await until(lambda: world.list)
        for file in ("asking/default/a", "chained"):
            os.utime(world.folder / file, ns=(5, 5))
        middle = sandbox(pod, 6)
        change(pods)
        pods.wired(Wiring.CHAIN)
        assert pods.owed(middle, pod) is owed


async def test_a_pod_that_asks_wakes_the_rounds_when_it_begins_to_run(world):
    async with world.life() as (_, cluster):
        for annotations, phase, news in (
            (ASKS, "Pending", 0),
            (ASKS, "Running", 1),
            (ASKS | {"seen": "yes"}, "Running", 1),
            ({}, "Running", 1),
            (ASKS, "Running", 2),
        ):
            await cluster.put("a", annotations, phase)
            assert world.news == news


async def test_a_pod_on_the_hosts_network_is_told_once_that_it_asks_in_vain(world):
    """With the networks and the remedy; one that asks for nothing, or has ended, is not."""
    async with world.life() as (pods, cluster):
        for _ in range(2):
            await cluster.put("a", ASKS, hostNetwork=True)
            await cluster.put("b", {ANNOTATION: "[]"}, hostNetwork=True)
            await cluster.put("c", ASKS, "Succeeded", hostNetwork=True)
            await cluster.put("d", hostNetwork=True)
        ((name, reason, note, warning),) = world.told
        assert (name, reason, warning) == ("a", "NetworksRefused", True)
        assert "Remove hostNetwork: true" in note
        assert pods.asking == ()
        await cluster.gone(await cluster.put("a", ASKS, hostNetwork=True))
        await cluster.put("a", ASKS, hostNetwork=True)
        assert [each[0] for each in world.told] == ["a", "a"]


async def test_a_pod_on_the_hosts_network_whose_reader_raises_silences_no_other(world, monkeypatch):
    def read(pod, network):
        if pod.name == "a":
            raise RecursionError
        return asking(pod, network)

    monkeypatch.setattr(repair, "asking", read)
    async with world.life(None) as (pods, cluster):
        for name in "ab":
            await cluster.put(name, ASKS, hostNetwork=True)
        with recorded():
            pods.wired(Wiring.CHAIN)
    told = {name: note for name, _, note, _ in world.told}
    assert "cannot handle this Pod (RecursionError)" in told["a"]
    assert "Remove hostNetwork: true" in told["b"]


async def test_a_pod_on_the_hosts_network_that_cannot_be_understood_is_told_so(world):
    """Its annotation is wrong besides; while others still write it, nothing is said."""
    half = {POD_NETWORKS: '[{"cniConf": {"name": "rdma"}}]', POD_NETWORKS_DEFINITION: "[]"}
    async with world.life() as (_, cluster):
        await cluster.put("a", {ANNOTATION: "{"}, hostNetwork=True)
        await cluster.put("b", half, hostNetwork=True)
    assert [(name, reason) for name, reason, *_ in world.told] == [("a", "NetworksRefused")]


async def test_behind_a_meta_plugin_pods_on_the_hosts_network_are_its_own(world):
    async with world.life(Wiring.DELEGATE) as (pods, cluster):
        await cluster.put("a", ASKS, hostNetwork=True)
        assert not world.told
        pods.wired(Wiring.CHAIN)
        assert [each[0] for each in world.told] == ["a"]
