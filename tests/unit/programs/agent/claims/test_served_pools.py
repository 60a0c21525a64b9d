"""A node goes from shares to claims by its label and back, while a pod holds a share."""

import asyncio
from collections import Counter

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.offered_slice import OFFERED_SLICE
from kube_rdma.api.pools.serve_label import LABEL as SERVE
from kube_rdma.model.claims.prepared import ClaimName
from kube_rdma.model.node import NodeState
from kube_rdma.model.pools.pool import Serving
from kube_rdma.programs.agent.claims.driver import ClaimDriver
from kube_rdma.programs.agent.device_plugin.config_source import ConfigSource
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.programs.agent.world import NODE_NAME, until
from tests.unit.rules.claims.test_prepare import result

from .test_prepared_claims import World as Bookings
from .test_publisher import CARDS, NAMES, ClaimWorld

HCA = "rdma/nic"
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

    def able(self):
        """The agent's doors with its driver."""
        doors = self.publishing()
        self.bookings = Bookings(self.folder)
        claims = self.bookings.agent(offered=False)
        registry = self.folder / "plugins_registry"
        registry.mkdir(exist_ok=True)
        (keeper,) = doors.keepers
        silent = asyncio.Event().wait
        driver = ClaimDriver(claims, registry, NODE_NAME, works, silent, keeper.offered)
        doors.kubelet.prepared = claims
        path = self.folder / "policy.yaml"
        path.write_text(POLICY)
        return replace(doors, config=path, claims=driver)

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
    world.serve(OFFERED_SLICE)
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
    doors = world.able()
    world.bookings.put(name, result(NAMES[0], share="s1", slots=3))
    async with world.serving(doors):
        await until(lambda: world.slots == dict.fromkeys(NAMES, 4))
        await doors.claims.claims.prepare(name)
        world.node("plugin", 0)
        await until(lambda: world.devices == {})
        world.change(*CARDS)
        await until(lambda: world.kubelet.healthy(HCA) == 13)
        await doors.claims.claims.unprepare(name)
        world.change(*CARDS)
        await until(lambda: world.kubelet.healthy(HCA) == 16)


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
    source._again()
    assert source.refusals == ()
