"""Nodes, pods and Events, with the objects of Kubernetes itself: the fake, and the real ones."""

import asyncio
import uuid
from contextlib import aclosing, asynccontextmanager, suppress

import msgspec
import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Wanted, Where
from kube_client.objects import Cluster
from kube_client.watching import Deleted
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import CARDS_HEALTHY, NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Nodes, Pods
from kube_rdma.attach.cluster import NetworkObjects
from kube_rdma.model.kubernetes import LabelChange, NodeCondition, NodeState, PodState, Taint
from tests.kit.api_server import TRIAL, Spec, clear_all
from tests.kit.beside import beside

OWN = "kube-rdma.io/network-status"  # an annotation of pods that is read


@pytest.fixture
def name():
    """A name that no earlier run used."""
    return f"contract-{uuid.uuid4().hex[:8]}"


async def put(clients, kind, name, spec, status, **meta):
    """Create an object as the kubelet and users do, with all fields, status included."""
    namespace = "default" if kind.namespaced else ""
    document = {"apiVersion": "v1", "kind": kind.kind, "metadata": {"name": name, **meta}}
    request = wire.ApiRequest("create", "", "v1", kind.plural, namespace)
    await clients.other.write(with_body(request, document | {"spec": spec}))
    request = wire.ApiRequest("patch", "", "v1", kind.plural, namespace, name, "status")
    await clients.other.write(with_body(request, {"status": status}, wire.MERGE))


def with_body(request, document, content_type=wire.JSON):
    return replace(request, body=msgspec.json.encode(document), content_type=content_type)


@pytest.fixture
async def node(clients, name):
    # The server wants all of them, if any.
    facts = "architecture bootID kernelVersion kubeProxyVersion machineID operatingSystem osImage"
    info = dict.fromkeys([*facts.split(), "systemUUID"], "")
    info |= {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.4.2"}
    status = {
        "allocatable": {"rdma/hca": "1k", "cpu": "3920m", "memory": "64Mi"},
        "nodeInfo": info,
        "conditions": [{"type": "Ready", "status": "False"}],
    }
    taint = {"key": "example.org/t", "value": "v", "effect": "PreferNoSchedule"}
    spec = {"unschedulable": True, "taints": [taint]}
    await put(clients, NODE, name, spec, status, labels={"a": "1"}, annotations={"n": "2"})
    yield name
    await clear_all(clients.other, NODE, Where(name=name))


async def test_a_node(clients, node):
    """What the kubelet wrote is a model value; the cluster adds taints and annotations."""
    state = await Nodes(clients.cluster).read(node)
    assert state == NodeState(
        name=node,
        uid=state.uid,
        labels=(("a", "1"),),
        annotations=state.annotations,
        allocatable=(("cpu", 3), ("memory", 64 * 2**20), ("rdma/hca", 1000)),
        kubelet_version="v1.36.3",
        runtime_version="containerd://2.4.2",
        unschedulable=True,
        taints=state.taints,
        ready=False,
    )
    assert Taint("example.org/t", "PreferNoSchedule", "v") in state.taints
    assert ("n", "2") in state.annotations
    assert await Nodes(clients.cluster).read("nobody") is None


async def test_one_taint_of_a_node_is_removed(clients, node):
    """Others stay as they are, whoever gave them; what is not there cannot be removed."""
    before = await given_taints(clients, node)
    mine, other = (
        {"key": "example.org/starting", "effect": effect, "value": "v"}
        for effect in ("NoSchedule", "NoExecute")
    )
    request = wire.ApiRequest("patch", "", "v1", "nodes", "", node)
    every = [{"key": t.key, "effect": t.effect, "value": t.value} for t in before]
    body = {"spec": {"taints": [mine, *every, other]}}
    await clients.other.write(with_body(request, body, wire.MERGE))
    nodes = Nodes(clients.cluster)
    assert await nodes.remove_taint(node, "example.org/starting", "NoSchedule") is True
    left = Taint("example.org/starting", "NoExecute", "v")
    assert await given_taints(clients, node) == [*before, left]
    assert await nodes.remove_taint(node, "example.org/starting", "NoSchedule") is False
    assert await nodes.remove_taint("nobody", "example.org/starting", "NoExecute") is False


async def test_one_key_has_one_taint_and_an_annotation(clients, node):
    """Both are written and removed at once; taints of others stay as they are."""
    before, nodes = await given_taints(clients, node), Nodes(clients.cluster)
    key = "example.org/bad"
    for effect in ("NoSchedule", "NoExecute"):
        taint = Taint(key, effect, "policy")
        written = await faster_than_others(nodes.set_taint, node, key, taint, effect)
        assert taint in written.spec.taints
        assert await given_taints(clients, node) == [*before, taint]
        assert (key, effect) in (await nodes.read(node)).annotations
        behind = Taint(f"example.org/{effect}", "PreferNoSchedule", "behind")
        await faster_than_others(nodes.set_taint, node, behind.key, behind, None)
        assert await nodes.set_taint(node, key, taint, effect) is None
        await faster_than_others(nodes.set_taint, node, behind.key, None, None)
    await faster_than_others(nodes.set_taint, node, key, None, None)
    assert await given_taints(clients, node) == before
    assert key not in dict((await nodes.read(node)).annotations)
    assert await nodes.set_taint(node, key, None, None) is None
    assert await nodes.set_taint("nobody", key, Taint(key, "NoSchedule"), "") is None


async def faster_than_others(write, *words):
    """Repeat a write that conflicts: the real one's node controller writes a new node, too."""
    async with asyncio.timeout(30):
        while True:
            with suppress(Conflict):
                return await write(*words)


async def given_taints(clients, node):
    """A node's taints but those that a cluster's controller gives and takes at any moment."""
    taints = (await Nodes(clients.cluster).read(node)).taints
    return [taint for taint in taints if not taint.key.startswith("node.kubernetes.io/")]


async def test_labels_of_a_node_are_written_and_taken_away(clients, node):
    """Others stay; nothing is written where nothing is to change, or somebody was faster."""
    nodes, seen = Nodes(clients.cluster), []

    def decide(state):
        seen.append(state)
        return LabelChange({"example.org/b": "2", "a": None}, {"example.org/c": "3"})

    async with asyncio.timeout(30):
        while not seen or ("example.org/b", "2") not in (await nodes.read(node)).labels:
            with suppress(Conflict):  # the real one's node controller writes a new node, too
                assert await nodes.relabel(node, decide)
    state = await nodes.read(node)
    assert ("a", "1") in seen[-1].labels
    assert state.labels == (("example.org/b", "2"),)
    assert {("n", "2"), ("example.org/c", "3")} <= {*state.annotations}
    assert await nodes.relabel(node, lambda _: None) is None
    assert await nodes.relabel("nobody", decide) is None


async def test_labels_are_not_written_over_a_node_that_is_newer(clients, node):
    """A decision is for the node as it was read."""
    meta = {"resourceVersion": "1", "labels": {"a": "2"}}
    request = wire.ApiRequest("patch", "", "v1", "nodes", "", node)
    with pytest.raises(Conflict):
        await clients.other.write(with_body(request, {"metadata": meta}, wire.MERGE))


async def test_one_condition_of_a_node_is_written_and_taken_away(clients, node):
    """Others stay; a transition that is none keeps its time; what is not there may be taken."""
    nodes = Nodes(clients.cluster)
    well = NodeCondition("True", "CardsHealthy", "2 of 2 cards can be used")
    seen = await nodes.read(node)
    assert seen.cards is None
    await nodes.set_cards(seen, well)
    first, seen = await times_of(clients, node), await nodes.read(node)
    assert (seen.cards, seen.ready) == (well, False)
    assert first["lastTransitionTime"]
    await nodes.set_cards(seen, replace(well, message="3 of 3 cards can be used"))
    assert (await times_of(clients, node))["lastTransitionTime"] == first["lastTransitionTime"]
    for _ in range(2):
        await nodes.set_cards(await nodes.read(node), None)
        assert (await nodes.read(node)).cards is None
    assert (await nodes.read(node)).ready is False
    with pytest.raises(Conflict) as lost:
        await nodes.set_cards(NodeState("nobody"), well)
    assert lost.value.lost is Lost.GONE


async def test_a_strategic_patch_is_for_kubernetes_own_kinds(clients, name):
    """A custom resource is asked for another one."""
    await clients.other.create(TRIAL, Wanted(name, spec=Spec(size=1)))
    request = wire.ApiRequest("patch", TRIAL.group, TRIAL.version, TRIAL.plural, "", name)
    with pytest.raises(Refused, match="unknown format"):
        await clients.other.write(with_body(request, {"status": {}}, wire.STRATEGIC))


async def times_of(clients, node):
    """Our condition of a node, as on the wire."""
    request = wire.ApiRequest("get", "", "v1", "nodes", "", node)
    conditions = msgspec.json.decode(await clients.other.write(request))["status"]["conditions"]
    (ours,) = [one for one in conditions if one["type"] == CARDS_HEALTHY]
    return ours


async def test_a_node_is_watched(clients, node):
    """Its labels come as they change, and its end."""
    async with aclosing(Nodes(clients.cluster).watch(node)) as events:
        seen = await anext(events)
        assert seen.labels == (("a", "1"),)
        await clients.other.patch(NODE, node, labels=(("a", None), ("mode", "shared")))
        async for event in events:  # the cluster's own changes are told, too
            if isinstance(event, NodeState) and event.labels == (("mode", "shared"),):
                break
        await clear_all(clients.other, NODE, Where(name=node))
        assert [each async for each in events_until(events, Deleted)][-1] == Deleted(
            node, "", seen.uid
        )


async def events_until(events, end):
    async for event in events:
        yield event
        if isinstance(event, end):
            return


@pytest.fixture
async def pod(clients, name):
    """Make a pod on a node of the same name, which nobody runs, and leave nothing of it.

    No kubelet ends it, so it would stay for a minute under the tests that share this API server.
    """
    container = {"name": "c", "image": "example.org/none"}
    spec = {
        "nodeName": name,
        "hostNetwork": True,
        "containers": [container],
        "automountServiceAccountToken": False,
    }
    await put(clients, POD, name, spec, {"phase": "Running"}, annotations={"n": "1", OWN: "1"})
    yield await Pods(clients.cluster).read("default", name)
    at_once = (("gracePeriodSeconds", "0"),)
    request = wire.ApiRequest("delete", "", "v1", POD.plural, "default", name, query=at_once)
    with suppress(Conflict):  # the test evicted it
        await clients.other.write(request)


async def test_a_pod(clients, name, pod):
    """One by name, and those of a node; annotations that nobody here reads are left out."""
    pods = Pods(clients.cluster)
    own = PodState("default", name, pod.uid, ((OWN, "1"),), (), True, name, "Running")
    assert pod == replace(own, created=pod.created)
    assert pod.uid
    assert pod.created
    assert await pods.on_node(name) == (pod,)
    assert await pods.on_node("nobody") == ()
    assert await pods.read("default", "nobody") is None


async def test_a_pod_is_told_its_networks_and_another_of_its_name_is_not(clients, name, pod):
    """It was deleted and made anew since it was read."""
    pods, networks = Pods(clients.cluster), NetworkObjects(clients.cluster)
    with pytest.raises(Conflict) as lost:
        await networks.tell(replace(pod, uid=str(uuid.uuid4())), ((OWN, "2"),))
    assert lost.value.lost is Lost.CHANGED
    assert await pods.read("default", name) == pod
    await networks.tell(pod, ((OWN, "3"),))
    assert (await pods.read("default", name)).annotations == ((OWN, "3"),)


async def test_an_evicted_pod(clients, name, pod):
    """It ends; a pod of its name that is another one does not, and there may be none."""
    pods = Pods(clients.cluster)
    await pods.evict(replace(pod, uid=str(uuid.uuid4())))
    assert await pods.read("default", name) == pod
    await pods.evict(pod)
    found = await pods.read("default", name)
    assert found is None or found.deleting
    await pods.evict(replace(pod, name=f"{name}-x"))


async def test_a_pod_that_a_budget_protects_is_not_evicted(server):
    """Only later it may be, so it is no refusal. Of the fake: a real budget needs a controller."""
    server.put(POD, {"metadata": {"name": "a", "namespace": "default"}, "spec": {}})
    server.protected.add(("default", "a"))
    pods = Pods(Cluster(server.line()))
    pod = await pods.read("default", "a")
    with pytest.raises(Unavailable, match="disruption budget"):
        await pods.evict(pod)
    assert await pods.read("default", "a") == pod


@asynccontextmanager
async def telling(events):
    async with beside(events.run()):
        yield events


async def written(clients, name):
    """The Events of kube-rdma about an object, as on the wire; a real cluster has others of it."""
    query = (("fieldSelector", "metadata.namespace=default"),)
    request = wire.ApiRequest("list", "events.k8s.io", "v1", "events", "default", query=query)
    return [
        event
        for event in msgspec.json.decode(await clients.other.write(request))["items"]
        if event["regarding"]["name"] == name
        and event["reportingController"].startswith("kube-rdma.io/")
    ]


async def test_events(clients, node):
    """Repeats of one sentence are one Event with a series; the server accepts all of it."""
    about = About("Node", node, uid=(await Nodes(clients.cluster).read(node)).uid)
    async with telling(Events(clients.cluster, node)) as events:
        events.tell(about, "CardVanished", "rxe0 is gone", warning=True)
        assert await events.settle(10)
        for _ in range(4):
            events.tell(about, "CardVanished", "rxe0 is gone", warning=True)
        events.tell(about, "CardAppeared", "ü" * 2000)
        assert await events.settle(10)
        assert events.dropped == 0
    first, second = sorted(await written(clients, node), key=lambda event: event["type"])
    assert (first["reason"], first["note"]) == ("CardAppeared", "ü" * 512)
    assert "series" not in first or first["series"] is None
    assert (second["reason"], second["type"]) == ("CardVanished", "Warning")
    assert second["series"]["count"] == 5
    assert second["reportingInstance"] == node


async def test_events_of_a_namespace_that_is_not_there_are_dropped(clients):
    """A refusal ends the matter; it is counted, and the next Event is written."""
    async with telling(Events(clients.powerless, "node-1")) as events:
        events.tell(About("Pod", "p", "no-such-namespace"), "Attached", "all is well")
        assert await events.settle(10)
        assert events.dropped == 1
