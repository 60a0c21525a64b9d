"""The controller evicts pods that lack networks: fresh requests of their own nodes, few at once."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.attach.cluster import Restarts, request_of
from kube_rdma.attach.rules.repair import AT_ONCE, FRESH, LONGEST_WAIT, EvictionTurns, evictable
from kube_rdma.controller.evictions import Evictions, EvictionTiming
from kube_rdma.model.attach.attachment import RESTART, RestartRequest
from kube_rdma.model.kubernetes import MIRROR, PodState, moment
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded

NOW = 1_000_000.0


class World:
    """A cluster with an agent's client and a controller; `time` is the wall clock."""

    def __init__(self):
        self.server, self.time = FakeServer(), NOW
        self.cluster = Cluster(self.server.line())
        self.agent = Restarts(Cluster(self.server.line()))
        self.pods = Pods(Cluster(self.server.line()))
        self.start()

    def start(self):
        pace = EvictionTiming(0.0, lambda: self.time)
        cluster = Cluster(self.server.line())
        self.controller = Evictions(cluster, Events(cluster, "controller"), pace)

    async def pod(
        self, name, *, node="node-1", phase="Running", ask=True, asker="node-1", owner="", **more
    ):
        """With an `owner` that makes it anew where one is named; `more` is of the request."""
        meta = {"name": name, "namespace": "default"}
        if owner:
            by = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u"}
            meta["ownerReferences"] = [{**by, "controller": True}]
        spec = {"nodeName": node}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        pod = await self.pods.read("default", name)
        if ask:
            request = RestartRequest(asker, int(self.time), f"{name} lacks net1", **more)
            await self.agent.ask(pod, request)
        return pod

    @property
    def left(self):
        return {one["metadata"]["name"] for one in self.server.documents("pods")}


@pytest.fixture
def world():
    with recorded() as log:
        world = World()
        world.log = log
        yield world


async def test_a_pod_for_which_its_node_asks_is_evicted(world):
    """No other one, and one of the same name that is another pod neither."""
    await world.pod("a")
    await world.pod("b", ask=False)
    assert await world.controller.round() == 1
    assert world.left == {"b"}
    assert world.log.of("pod evicted for missing networks")[0]["why"] == "a lacks net1"
    await world.pod("a", ask=False)
    assert await world.controller.round() == 0
    assert world.left == {"a", "b"}


async def test_what_was_asked_and_taken_back_is_forgotten(world):
    """The agent could give the networks after all."""
    pod = await world.pod("a")
    assert request_of(await world.pods.read("default", "a")).why == "a lacks net1"
    await world.agent.withdraw(pod)
    assert request_of(await world.pods.read("default", "a")) is None
    assert await world.controller.round() == 0


@pytest.mark.parametrize("phase", ["Pending", "Running"])
async def test_a_pod_that_cannot_start_goes_when_an_owner_makes_another(world, phase):
    """Its containers hold another device's nodes: it is Pending, or runs from before a reboot."""
    await world.pod("a", phase=phase, owner="set", outdated=True)
    await world.pod("bare", phase=phase, outdated=True)
    await world.pod("far", phase=phase, owner="set", outdated=True, asker="node-2")
    await world.pod("over", phase="Failed", owner="set", outdated=True)
    assert await world.controller.round() == 1
    assert world.left == {"bare", "far", "over"}
    (line,) = world.log.of("pod evicted for outdated device nodes")
    assert (line["pod"], line["why"]) == ("default/a", "a lacks net1")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"node": 1, "at": 1, "why": ""}', "{"])
async def test_what_no_agent_writes_is_no_request(world, text):
    meta = {"name": "a", "namespace": "default", "labels": {RESTART: "true"}}
    document = {"metadata": {**meta, "annotations": {RESTART: text}}, "spec": {"nodeName": "n"}}
    world.server.put(POD, {**document, "status": {"phase": "Running"}})
    assert await world.controller.round() == 0


async def test_few_at_once_and_those_that_a_budget_holds_hold_up_no_other(world):
    """Whoever was refused is tried again after all others."""
    names = [f"p{number}" for number in range(3 * AT_ONCE)]
    for name in names:
        await world.pod(name)
    world.server.protected |= {("default", name) for name in names[:AT_ONCE]}
    assert [await world.controller.round() for _ in range(3)] == [AT_ONCE, AT_ONCE, 0]
    assert world.left == set(names[:AT_ONCE])
    assert len(world.log.of("pod eviction failed")) == AT_ONCE  # once each
    world.server.protected.clear()
    assert await world.controller.round() == AT_ONCE


async def test_without_the_right_to_list_pods_it_says_so(world):
    """The round is refused as a whole; `run` goes on."""
    world.server.forbidden.add(("list", "pods"))
    with pytest.raises(Refused):
        await world.controller.round()


def pod(uid, annotations=(), **facts):
    facts = {"node": "n", "phase": "Running", **facts}
    return PodState("default", f"p{uid}", f"uid-{uid}", annotations, **facts)


@given(
    st.lists(
        st.tuples(
            st.builds(
                pod,
                st.integers(0, 9),
                st.sampled_from([(), ((MIRROR, "x"),)]),
                node=st.sampled_from(["n", "m", ""]),
                phase=st.sampled_from(["Running", "Pending", "Succeeded", ""]),
                deleting=st.booleans(),
                owner=st.sampled_from(["", "Job/j"]),
            ),
            st.builds(
                RestartRequest,
                st.sampled_from(["n", "m"]),
                st.integers(-2000, 2000),
                st.just("w"),
                st.booleans(),
            ),
        ),
        unique_by=lambda one: one[0].uid,
    )
)
def test_only_fresh_requests_of_the_pods_own_node_count(asked):
    found = evictable(asked, 0.0, EvictionTurns())
    for one, request in asked:
        is_meant = (
            one.node == request.node
            and (
                one.controlled and one.phase in ("Pending", "Running")
                if request.outdated
                else one.phase == "Running"
            )
            and not one.deleting
            and not one.is_static
            and abs(request.at) <= FRESH
        )
        assert ((one, request) in found) == is_meant


async def test_the_request_is_what_kubectl_can_find(world):
    """By its label; the annotation is an object that a person can read."""
    await world.pod("a")
    (document,) = world.server.documents("pods")
    assert document["metadata"]["labels"] == {RESTART: "true"}
    written = json.loads(document["metadata"]["annotations"][RESTART])
    assert written == {"node": "node-1", "at": int(NOW), "why": "a lacks net1"}
    await world.pod("b", outdated=True)
    document = next(d for d in world.server.documents("pods") if d["metadata"]["name"] == "b")
    assert json.loads(document["metadata"]["annotations"][RESTART])["outdated"] is True


NESTED = "[" * 1200 + "]" * 1200


@pytest.mark.parametrize(
    "text",
    [
        NESTED,
        f'{{"node":"node-1","at":1000000,"why":"x","more":{NESTED}}}',
        f'{{"node":"node-1","at":1{"0" * 400},"why":"x"}}',
        '{"node":"node-1","at":"\ud7ff","why":1e999}',
    ],
)
async def test_what_a_pods_author_writes_into_the_request_harms_nobody(world, text):
    """The pod is left alone, and another one's request is carried out in the same round."""
    marked = {"labels": {RESTART: "true"}, "annotations": {RESTART: text}}
    meta = {"name": "hostile", "namespace": "default", **marked}
    pod = {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}
    world.server.put(POD, pod)
    await world.pod("a")
    assert await world.controller.round() == 1
    assert world.left == {"hostile"}


def mark(world, namespace, name, owner="", made=NOW, **meta):
    """A pod for which somebody asks now, with a label and annotation that any author may write."""
    text = json.dumps({"node": "node-1", "at": int(world.time), "why": "x"})
    meta |= {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    meta["creationTimestamp"] = moment(datetime.fromtimestamp(made, UTC))
    meta["labels"] = {RESTART: "true", **meta.get("labels", {})}
    meta["annotations"] = {RESTART: text}
    if owner:
        by = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"u-{owner}"}
        meta["ownerReferences"] = [{**by, "controller": True}]
    status = {"phase": "Running"}
    world.server.put(POD, {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": status})


def names(world, namespace):
    every = [one["metadata"] for one in world.server.documents("pods")]
    return {one["name"] for one in every if one["namespace"] == namespace}


async def test_pods_that_are_made_anew_with_the_mark_take_nobodys_turn(world):
    """Two pods of a ReplicaSet whose template has the mark were evicted for ever, nobody else."""
    for number in range(2):
        mark(world, "tenant", f"evil-{number}", "evil")
    for turn in range(3):
        mark(world, "train", f"honest-{turn}", "honest", NOW - 60)
        await world.controller.round()
        assert not names(world, "train")
        world.time += 10
        for number in range(2 - len(names(world, "tenant"))):
            mark(world, "tenant", f"evil-{turn + 1}-{number}", "evil", world.time)


async def test_a_budget_that_lets_no_pod_of_a_namespace_go_delays_no_other(world):
    """The API server was asked in vain for 400 pods of a tenant first."""
    for number in range(400):
        mark(world, "tenant", f"evil-{number}", "evil")
        world.server.protected.add(("tenant", f"evil-{number}"))
    world.time += 1
    mark(world, "train", "honest")
    assert await world.controller.round() == 1
    assert not names(world, "train")
    assert len(names(world, "tenant")) == 400


async def test_owners_of_a_namespace_have_turns_too(world):
    for number in range(9):
        mark(world, "train", f"big-{number}", "big")
    world.time += 1
    mark(world, "train", "small", "small")
    await world.controller.round()
    assert "small" not in names(world, "train")


async def test_what_replaces_an_evicted_pod_waits_each_time_longer(world):
    """Whatever the template was: a Deployment makes another ReplicaSet for each."""
    evicted = []
    for second in range(0, 2 * 3600, 10):
        world.time = NOW + second
        if not names(world, "train"):
            hashed = {"labels": {"pod-template-hash": f"h{second}"}}
            mark(world, "train", f"pod-{second}", f"job-h{second}", world.time, **hashed)
        elif second % 300 == 0:  # its agent still asks
            (name,) = names(world, "train")
            annotations = ((RESTART, f'{{"node":"node-1","at":{int(world.time)},"why":"x"}}'),)
            await world.cluster.patch(POD, name, "train", annotations=annotations)
        if await world.controller.round():
            evicted.append(second)
    waits = [after - before for before, after in pairwise(evicted)]
    assert len(waits) > 4
    assert all(after > 1.5 * before for before, after in pairwise(waits))
    assert max(waits) <= LONGEST_WAIT + 10


async def test_pods_of_an_owner_that_were_there_before_wait_for_nothing(world):
    for number in range(9):
        mark(world, "train", f"pod-{number}", "set", NOW - 60)
    assert [await world.controller.round() for _ in range(5)] == [2, 2, 2, 2, 1]


async def test_a_pod_that_cannot_be_read_or_evicted_holds_up_no_other(world):
    """Its failure has a line with its cause, a count, and waits by itself."""
    mark(world, "default", "unread")
    documents = {one["metadata"]["name"]: one for one in world.server.documents("pods")}
    world.server.put(POD, documents["unread"] | {"spec": {"nodeName": 5}})
    mark(world, "default", "failing")
    await world.pod("a")
    evict, before = world.controller._pods.evict, bulkhead.object_failures["Pod"]

    async def fail(pod):
        if pod.name == "failing":
            raise AttributeError("x")
        await evict(pod)

    world.controller._pods.evict = fail
    assert await world.controller.round() == 1
    assert world.left == {"unread", "failing"}
    assert await world.controller.round() == 0
    assert bulkhead.object_failures["Pod"] > before
    assert len(world.log.of("object failed")) == 1
