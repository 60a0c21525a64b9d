"""A pod by a claim gets what a pod by a share gets: the same plan, addresses and undo."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.codec import CLAIMS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.claim_networks import granted
from kube_rdma.claims.prepared_claims import ClaimDependencies, PreparedClaims
from kube_rdma.claims.rules.names import device_name
from kube_rdma.model.claims.claim import AllocatedClaim, AllocatedDevice, ClaimName, PodClaims
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import Attach, Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime
from tests.unit.attach.network_world import (
    POD,
    RESOURCE,
    UID,
    World,
    card,
    config,
    share,
)

CLAIM = ClaimName(POD.namespace, "train-0-nic", "uid-claim")


def pool_of(of, mode, attach=None):
    """A pool of one card."""
    spec = PoolSpec(RESOURCE, mode, "policy:1", attach=attach)
    name = of.id if mode is Mode.SRIOV else f"{of.id}-0"
    return Pool(spec, (Share(ShareId(name), healthy=True, card=of.id),), (of,))


def booking(folder, pool, configs=(), count=1, pod_claim="", **facts):
    """The claims of a node that offers this pool, of which the scheduler gave its card.

    `count` devices of one request, with these configurations; `facts` are dependencies.
    """
    given = AllocatedDevice("nic", DRIVER, "node-1", device_name(pool, pool.cards[0]))
    claim = AllocatedClaim(CLAIM, (given,) * count, (), tuple(configs), pod_claim)

    async def read(_):
        return claim

    async def pod(_):
        return PodClaims(POD.namespace, POD.name, UID, (("nic", CLAIM.name),))

    async def listed():
        return ()

    journal = Journal(FakeDisk(), CLAIMS)
    to = ClaimDependencies(
        journal=journal,
        cdi=CdiFolder(folder / "cdi"),
        read=read,
        pod=pod,
        sandboxes=listed,
        node="node-1",
        boot="b00t",
        settled=0.0,
        **facts,
    )
    claims = PreparedClaims(to)
    claims.offered({RESOURCE: pool})
    return claims


class ClaimWorld(World):
    """The same node, whose agent binds claims besides."""

    def __init__(self, claims, folder, *node):
        super().__init__(folder, *node)
        kubelet = KubeletView(None)
        kubelet.claims = claims
        view = NodeView(NodeViewDependencies(None, kubelet, NodeContext({}), None, None))
        self.node.made, self.node.ended = view.made, view.ended


KINDS = {
    "shared": (card(0), Mode.SHARED_MULTI, config("macvlan")),
    "function": (card(0, virtual=True), Mode.SRIOV, config("sriov", vlan=100)),
    "whole card": (card(0), Mode.EXCLUSIVE, config("host-device")),
    "soft device": (card(0, soft=True), Mode.SHARED_MULTI, config("macvlan")),
    "InfiniBand": (card(0, wide=True), Mode.SHARED_MULTI, config("ipoib", pkey="0x8012")),
    "function of InfiniBand": (card(0, virtual=True, wide=True), Mode.SRIOV, config("ib-sriov")),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pod_by_a_claim_has_what_a_pod_by_a_share_has(tmp_path, kind):
    of, mode, network = KINDS[kind]
    by_share = World(tmp_path / "a", [of], [share(of, mode)], {"default/net": network})
    pool = pool_of(of, mode, Attach.AUTO)
    claims = booking(tmp_path, pool)
    devices = await claims.prepare(CLAIM)
    shares = granted(await claims.holdings_of(POD), claims.booked, {RESOURCE: pool})
    by_claim = ClaimWorld(claims, tmp_path / "b", [of], shares, {"default/net": network})
    answers = []
    for world in (by_share, by_claim):
        world.ask("net")
        world.sandbox()
        answers.append(await world.add(1))
    assert answers[0] == answers[1]
    assert by_share.inside(1) == by_claim.inside(1)
    made = FakeCdiRuntime(tmp_path / "cdi").create(*devices[0].cdi)
    (entry,) = by_claim.node.told["kube-rdma.io/network-status"]
    door = f"/dev/infiniband/{entry['rdmaDevice']}"  # a soft device is the pod's own
    assert set(made.char_paths) == {door, "/dev/infiniband/rdma_cm"}
    await by_claim.delete(1)
    by_claim.nothing_left(1)
    await claims.unprepare(CLAIM)
    assert not list((tmp_path / "cdi").iterdir())


async def test_the_agents_view_has_claims_beside_shares(tmp_path):
    """Each of its kind, and a share that is gone is missed as before."""
    of = card(0)
    pool = pool_of(of, Mode.SHARED_MULTI)
    claims = booking(tmp_path, pool)
    kubelet = KubeletView(None)
    kubelet.claims = claims
    asked = NodeViewDependencies(None, kubelet, NodeContext({RESOURCE: pool}), None, None)
    await claims.prepare(CLAIM)
    plugin = Holding(POD.namespace, POD.name, "main", RESOURCE, (pool.shares[0].id,))
    by_claim = await claims.holdings_of(POD)
    mine = NodeView(asked).granted((*by_claim, plugin))
    assert [one.share for one in mine] == [pool.shares[0].id, *by_claim[0].shares]
    await claims.unprepare(CLAIM)
    with pytest.raises(Unavailable, match="has no share"):
        NodeView(asked).granted(by_claim)


async def test_a_card_of_a_claim_is_not_free(tmp_path):
    of = card(0)
    claims = booking(tmp_path, pool_of(of, Mode.EXCLUSIVE))
    assert claims.cards() == frozenset()
    await claims.prepare(CLAIM)
    assert claims.cards() == {of.id}
