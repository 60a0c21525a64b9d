"""A node goes from shares to claims by its label and back, while a pod holds a share."""

import asyncio
from collections import Counter
from functools import partial

import pytest
from grpclib import GRPCError

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.adapters.kubelet.folders import DeviceCheckpoint
from kube_rdma.claims.driver import ClaimDriver
from kube_rdma.model.claims.claim import ClaimName
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Serving, ShareId
from kube_rdma.pools.config import ConfigSource
from kube_rdma.pools.documents.config import SERVE_LABEL as SERVE
from kube_rdma.pools.kubelet_view import KubeletRecord, KubeletView
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import NODE_NAME, until
from tests.unit.claims.rules.test_prepare import result
from tests.unit.claims.test_prepared_claims import World as Bookings
from tests.unit.claims.test_publisher import CARDS, NAMES, ClaimWorld

HCA = "rdma/nic"
WITHOUT_ONE = dict.fromkeys(NAMES, 4) | {NAMES[0]: 3}
OLD = Holding("default", "old", "c", HCA, (ShareId("0000:81:00.0-0"),))
DASHES = str.maketrans(":.", "--")
POLICY = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: here}
spec: {pools: [{resource: rdma/nic, mode: shared-multi, shares: 4}]}
"""


async def works():
    return True, "containerd is v2.4.2 and CDI is on."


class ServedWorld(ClaimWorld):
    """A node whose agent can serve claims, with a pool from a file."""

    def node(self, serve, shares):
        """The Node object: its label, and what the kubelet has told the API server."""
        labels = {SERVE: serve} if serve else {}
        meta = {"name": NODE_NAME, "labels": labels}
        status = {} if shares is None else {"allocatable": {HCA: str(shares)}}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})

    def place(self, name):
        """A container of a pod that the API server has, too."""
        if not any(pod["metadata"]["name"] == name for pod in self.server.documents("pods")):
            self.pod(name)
        pods = {pod["metadata"]["name"]: pod for pod in self.server.documents("pods")}
        return ContainerPlace(name, uid=pods[name]["metadata"]["uid"])

    def able(self):
        """The agent's dependencies with its driver."""
        dependencies = self.publishing()
        self.bookings = Bookings(self.folder)
        self.bookings.holders = dependencies.kubelet.plugin_holders
        claims = self.bookings.agent(offered=False)
        registry = self.folder / "plugins_registry"
        registry.mkdir(exist_ok=True)
        (keeper,) = dependencies.keepers
        silent = asyncio.Event().wait
        driver = ClaimDriver(claims, registry, NODE_NAME, works, silent, keeper.offered)
        dependencies.kubelet.claims = claims
        dependencies.kubelet.record = self.record(self.kubelet.directory)
        path = self.folder / "policy.yaml"
        path.write_text(POLICY)
        return replace(dependencies, config=path, claims=driver)

    def record(self, folder):
        """The kubelet's record in a folder, completed by the API server's pods."""
        pods = partial(Pods(Cluster(self.server.line())).on_node, NODE_NAME)
        return KubeletRecord(DeviceCheckpoint(folder).read, pods)

    @property
    def slots(self):
        """Those of each card, whose devices stand in rows."""
        slots = Counter()
        for device in self.devices.values():
            address = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
            slots[address.translate(DASHES)] += int(device["capacity"]["slots"]["value"])
        return dict(slots)


@pytest.fixture
def world(tmp_path_factory):
    world = ServedWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.serve(RESOURCE_SLICE)
    world.node(None, None)
    return world


async def test_a_node_goes_to_claims_and_back_while_a_pod_holds_a_share(world):
    """The device waits for the API server, the share for the slices; nothing is given twice."""
    async with world.serving(world.able()):
        await until(lambda: world.kubelet.healthy(HCA) == 16)
        assert world.devices == {}
        first = next(share for share in world.kubelet.devices[HCA] if "81:00.0-0" in share)
        await world.kubelet.allocate(HCA, 1, (first,), place=ContainerPlace("old"))
        world.node("claims", 16)
        await until(lambda: world.kubelet.healthy(HCA) == 0)
        await world.again(2)
        assert world.devices == {}, "the scheduler may still send a pod for a share"
        world.node("claims", 0)
        await until(lambda: world.slots == dict.fromkeys(NAMES, 4) | {NAMES[0]: 3})
        assert world.kubelet.held(HCA) == {first}
        world.node("plugin", 0)
        await until(lambda: world.devices == {})
        world.change(*CARDS)
        await until(lambda: world.kubelet.healthy(HCA) == 16)


async def test_a_share_that_a_claim_holds_is_not_given_by_the_plugin(world):
    """The claim was prepared before the node went back."""
    name = ClaimName("team", "job-0-nic-x7", "uid-1")
    world.node("claims", 0)
    dependencies = world.able()
    world.bookings.put(name, result(NAMES[0], share="s1", slots=3))
    async with world.serving(dependencies):
        await until(lambda: world.slots == dict.fromkeys(NAMES, 4))
        await dependencies.claims.claims.prepare(name)
        world.node("plugin", 0)
        await until(lambda: world.devices == {})
        world.change(*CARDS)
        await until(lambda: world.kubelet.healthy(HCA) == 13)
        await dependencies.claims.claims.unprepare(name)
        world.change(*CARDS)
        await until(lambda: world.kubelet.healthy(HCA) == 16)


async def moved_with_a_pod(world, dependencies):
    """The pod `old` holds a share of the first card, and then claims serve the node; the share."""
    await until(lambda: world.kubelet.healthy(HCA) == 16)
    share = next(one for one in world.kubelet.devices[HCA] if "81:00.0-0" in one)
    await world.kubelet.allocate(HCA, 1, (share,), place=world.place("old"))
    world.node("claims", 0)
    await until(lambda: world.slots == WITHOUT_ONE)
    return share


async def test_a_kubelet_that_starts_and_tells_of_no_pods_makes_no_slot_free(world):
    """Neither for slices nor for a claim; what it tells at last is what counted all the while."""
    name = ClaimName("team", "job-0-nic-x7", "uid-1")
    dependencies = world.able()
    world.bookings.put(name, result(NAMES[0], share="s1", slots=4))
    async with world.serving(dependencies):
        await moved_with_a_pod(world, dependencies)
        await world.kubelet.restart(silent=True)
        await until(lambda: HCA in world.kubelet.states)
        await world.again(3)
        assert await dependencies.kubelet.holdings() == (OLD,)
        assert world.slots == WITHOUT_ONE
        with pytest.raises(Unavailable, match="of which pod default/old"):
            await dependencies.claims.claims.prepare(name)
        world.kubelet.pod_resources.heard = None
        await world.again(2)
        assert world.slots == WITHOUT_ONE
        world.kubelet.remove_pod("old")
        world.server.remove(POD, "old", "default")
        await world.again(2)
        await until(lambda: world.slots == dict.fromkeys(NAMES, 4))
        await dependencies.claims.claims.prepare(name)


async def test_a_record_that_cannot_be_read_makes_no_share_free(world, tmp_path):
    """The kubelet is asked; while it does not answer either, nothing is known."""
    name = ClaimName("team", "job-0-nic-x7", "uid-1")
    dependencies = world.able()
    world.bookings.put(name, result(NAMES[0], share="s1", slots=4))
    async with world.serving(dependencies):
        await moved_with_a_pod(world, dependencies)
        (tmp_path / "kubelet_internal_checkpoint").write_text("{")
        dependencies.kubelet.record = world.record(tmp_path)
        with pytest.raises(Unavailable, match="of which pod default/old"):
            await dependencies.claims.claims.prepare(name)
        silent = KubeletView(None)
        silent.record = dependencies.kubelet.record
        with pytest.raises(Unavailable, match="neither the kubelet nor its record"):
            await silent.plugin_holders({HCA})
        with pytest.raises(Unavailable, match="neither the kubelet nor its record"):
            await KubeletView(None).plugin_holders({HCA})


async def test_a_silent_kubelet_gets_no_share_that_a_claim_holds(world):
    """On the way back: the share that a pod holds stays, so another one is withheld."""
    name = ClaimName("team", "job-0-nic-x7", "uid-1")
    dependencies = world.able()
    world.bookings.put(name, result(NAMES[0], share="s1", slots=3))
    async with world.serving(dependencies):
        share = await moved_with_a_pod(world, dependencies)
        await dependencies.claims.claims.prepare(name)
        world.node("plugin", 0)
        await until(lambda: world.devices == {})
        await world.kubelet.restart(silent=True)
        await world.again(2)
        own = [f"0000:81:00.0-{n}" for n in range(4)]
        await until(lambda: set(own) & set(world.kubelet.store.healthy(HCA)) == {share})
        free = next(one for one in own if one != share)
        with pytest.raises(GRPCError, match="3 of the 4 shares of"):
            await world.kubelet.allocate(HCA, 1, (free,), place=ContainerPlace("new"))
        await world.kubelet.allocate(HCA, 1, (share,), place=world.place("old"))


async def test_without_the_kind_of_slices_the_plugin_serves(world):
    """An API server without resource.k8s.io has no slice that could give a card twice."""
    world.serve()
    world.node(None, None)
    async with world.serving(world.able()):
        await until(lambda: world.kubelet.healthy(HCA) == 16)


def test_nothing_is_listed_before_the_nodes_label_is_known(tmp_path):
    """An agent that starts without an API server could give what claims hold."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    source = ConfigSource(path, lambda: None, claims=True)
    source.read()
    assert [spec.serve for spec in source.specs] == [Serving.CLAIMS]
    source.label(NodeState(NODE_NAME))
    assert [spec.serve for spec in source.specs] == [Serving.PLUGIN]
    source.label(NodeState(NODE_NAME, labels=((SERVE, "claims"),)))
    assert [spec.serve for spec in source.specs] == [Serving.CLAIMS]
    source.label(NodeState(NODE_NAME, labels=((SERVE, "claim"),)))
    assert [spec.serve for spec in source.specs] == [Serving.CLAIMS]
    assert any('"claim" is no way' in why for why in source.refusals)


def test_what_the_document_says_counts_before_the_label(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("shares: 4", "shares: 4, serve: plugin"))
    source = ConfigSource(path, lambda: None, claims=True)
    source.read()
    source.label(NodeState(NODE_NAME, labels=((SERVE, "claims"),)))
    assert [spec.serve for spec in source.specs] == [Serving.PLUGIN]


def test_a_pool_for_claims_is_told_where_the_agent_serves_none(tmp_path):
    """It lists no share: a node that served claims before may still have pods with them."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("shares: 4", "shares: 4, serve: claims"))
    source = ConfigSource(path, lambda: None)
    source.read()
    (why,) = source.refusals
    assert "claims are to serve rdma/nic, and this agent does not serve claims" in why
    path.write_text(POLICY)
    source._again(path)
    assert source.refusals == ()
