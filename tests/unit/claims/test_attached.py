"""A pod by claims has what a pod by shares has, and its claims and containers are told of it."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_address
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import Conflict, Lost
from kube_rdma.adapters.journal.codec import CLAIMS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import ClaimFiles
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.claim_networks import granted
from kube_rdma.claims import prepared_claims
from kube_rdma.claims.rules.prepare import FOLDER
from kube_rdma.claims.rules.shape import device_name
from kube_rdma.model.attach.attachment import AttachedInterface, InterfaceAddress, Sandbox
from kube_rdma.model.claims.claim import (
    AllocationResult,
    ClaimName,
    DeviceStatus,
    PodClaims,
    ResourceClaim,
)
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.holdings import ClaimingSandbox, Holding
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Attach, Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime
from tests.unit.attach.network_world import POD, RESOURCE, UID, World, card, config, share

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
    given = AllocationResult("nic", DRIVER, "node-1", device_name(pool, pool.cards[0]))
    claim = ResourceClaim(
        CLAIM, allocated=(given,) * count, configs=tuple(configs), pod_claim=pod_claim
    )

    async def read(_):
        return claim

    async def pod(_):
        return PodClaims(POD.namespace, POD.name, UID, (("nic", CLAIM.name),))

    async def listed():
        return ()

    to = prepared_claims.ClaimDependencies(
        journal=Journal(FakeDisk(), CLAIMS),
        cdi=CdiFolder(folder / "cdi"),
        read=read,
        pod=pod,
        sandboxes=listed,
        node="node-1",
        boot="b00t",
        settled=0.0,
        **facts,
    )
    claims = prepared_claims.PreparedClaims(to)
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
    node = f"/dev/infiniband/{entry['rdmaDevice']}"  # a soft device is the pod's own
    assert set(made.char_paths) == {node, "/dev/infiniband/rdma_cm"}
    await by_claim.goes(1)
    await claims.unprepare(CLAIM)
    assert not list((tmp_path / "cdi").iterdir())


async def test_the_agents_view_has_claims_beside_shares(tmp_path):
    """Each of its kind, and a share that is gone is missed as before."""
    pool = pool_of(card(0), Mode.SHARED_MULTI)
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


OTHER = ClaimName("team", "other", "uid-other")
FIRST, SECOND = (
    (DeviceStatus("node-1", "card", None, (), interface=name),) for name in ("net1", "net2")
)
GONE = Conflict("it is gone", Lost.GONE)
FORBIDDEN = Refused("forbidden", remedy="Give the right", where="claims")


class Server:
    """What takes the statuses: what was written, and what it answers next."""

    def __init__(self, *answers):
        self.written, self.answers = [], list(answers)
        self.news = asyncio.Event()
        self.statuses = prepared_claims.ClaimStatuses(self.write)

    async def write(self, claim, devices):
        if self.answers and (answer := self.answers.pop(0)):
            raise answer
        self.written.append((claim.name, devices))
        self.news.set()


async def test_the_newest_is_written_and_the_same_never_twice():
    server = Server()
    server.statuses.tell(CLAIM, FIRST)
    server.statuses.tell(CLAIM, SECOND)
    for _ in range(2):
        await server.statuses.write()
        server.statuses.tell(CLAIM, SECOND)
    await server.statuses.write()
    assert server.written == [(CLAIM.name, SECOND)]


@pytest.mark.parametrize("answer", [GONE, FORBIDDEN, AttributeError("x")])
async def test_what_cannot_be_written_holds_up_no_other_and_is_given_up(answer):
    server = Server(answer)
    server.statuses.tell(CLAIM, FIRST)
    server.statuses.tell(OTHER, FIRST)
    await server.statuses.write()
    await server.statuses.write()
    assert server.written == [(OTHER.name, FIRST)]


async def test_a_missing_right_is_told_once_for_all_claims():
    server = Server(FORBIDDEN, FORBIDDEN, FORBIDDEN)
    with capture_logs() as logs:
        for claim in (CLAIM, OTHER, replace(CLAIM, uid="third")):
            server.statuses.tell(claim, FIRST)
        await server.statuses.write()
    assert [one["event"] for one in logs] == ["status of claim not written"]


async def test_a_server_that_does_not_answer_is_asked_again():
    server = Server(Unavailable("nobody answers"), None)
    server.statuses.tell(CLAIM, FIRST)
    await server.statuses.write()
    assert server.written == []
    await server.statuses.write()
    assert server.written == [(CLAIM.name, FIRST)]


async def test_what_is_given_back_is_written_no_more():
    server = Server(Unavailable("nobody answers"))
    server.statuses.tell(CLAIM, FIRST)
    await server.statuses.write()
    server.statuses.forget(CLAIM)
    await server.statuses.write()
    assert server.written == []


async def test_the_loop_writes_what_it_is_told():
    server = Server()
    task = asyncio.create_task(server.statuses.run())
    server.statuses.tell(CLAIM, FIRST)
    await server.news.wait()
    task.cancel()
    assert server.written == [(CLAIM.name, FIRST)]


def interface(of, name="net1", address="10.0.0.5"):
    addresses = (InterfaceAddress(ip_address(address), 24),)
    return AttachedInterface("default/net", name, "02:00:00:00:00:01", 1500, addresses, card=of.id)


def settled(pod, container):
    sandbox = Sandbox(ContainerId(container), pod, "", "", 0)
    return ClaimingSandbox(sandbox, (), {}, {})


async def test_a_claim_says_what_its_pods_have_from_prepare_to_the_last_end(tmp_path):
    """Two pods of one claim; the end of one leaves the other's."""
    server, of = Server(), card(0)
    second = PodName(POD.namespace, "train-1")
    claims = booking(tmp_path, pool_of(of, Mode.SHARED_MULTI), statuses=server.statuses)

    async def said():
        await server.statuses.write()
        ((device,),) = [devices for _, devices in server.written[-1:]]
        return [(one.type, one.holds) for one in device.conditions], device.addresses

    await claims.prepare(CLAIM)
    assert await said() == ([("Ready", True), ("NetworkReady", False)], ())
    for number, pod in enumerate((POD, second)):
        claims.seen(PodClaims(pod.namespace, pod.name, f"uid-{number}", (("nic", CLAIM.name),)))
        await claims.settle(settled(pod, f"s{number}"))
        await claims.attached(pod, [interface(of, address=f"10.0.0.{number}")])
    assert await said() == ([("Ready", True), ("NetworkReady", True)], ("10.0.0.0/24",))
    await claims.detach(ContainerId("s0"))
    assert (await said())[1] == ("10.0.0.1/24",)
    await claims.detach(ContainerId("s1"))
    assert await said() == ([("Ready", True), ("NetworkReady", False)], ())


async def test_the_end_of_an_earlier_sandbox_is_not_that_of_the_pod(tmp_path):
    server, of = Server(), card(0)
    claims = booking(tmp_path, pool_of(of, Mode.SHARED_MULTI), statuses=server.statuses)
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    for container in ("earlier", "later"):
        await claims.settle(settled(POD, container))
    await claims.attached(POD, [interface(of)])
    await claims.detach(ContainerId("earlier"))
    await server.statuses.write()
    ((device,),) = [devices for _, devices in server.written[-1:]]
    assert device.interface == "net1"


DEVICE = "0000-10-00-1"
SHOWN = {DEVICE: {"rail": {"int": 3}}}
DIRECT = f"{FOLDER}/resourceclaims/{CLAIM.name}/nic/rdma.kube-rdma.io-metadata.json"
MADE = f"{FOLDER}/resourceclaimtemplates/nic/nic/rdma.kube-rdma.io-metadata.json"


def claims_of(folder, **facts):
    made = prepared_claims.ClaimMetadata(ClaimFiles(folder / "metadata"), lambda: SHOWN)
    claims = booking(folder, pool_of(card(0), Mode.SHARED_MULTI), metadata=made, **facts)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    return claims


async def seen(folder, claims, path):
    """The device in the file that a container with the claim has at this path."""
    (device,) = await claims.prepare(CLAIM)
    mounts = FakeCdiRuntime(folder / "cdi").create(*device.cdi).mounts
    (mount,) = [one for one in mounts if one.container_path == path]
    (request,) = json.loads(await asyncio.to_thread(Path(mount.host_path).read_text))["requests"]
    return request["devices"][0]


async def test_a_container_finds_its_device_with_what_the_slice_says(tmp_path):
    claims = claims_of(tmp_path)
    device = await seen(tmp_path, claims, DIRECT)
    assert (device["name"], device["attributes"]) == (DEVICE, SHOWN[DEVICE])
    await claims.unprepare(CLAIM)
    assert list((tmp_path / "metadata").iterdir()) == []


async def test_the_claim_of_one_pod_has_its_network_too(tmp_path):
    """The pod's name for it is in the path."""
    claims = claims_of(tmp_path, pod_claim="nic")
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    await claims.attached(POD, [interface(card(0))])
    device = await seen_again(tmp_path)
    assert device["networkData"]["ips"] == ["10.0.0.5/24"]


async def seen_again(folder):
    (path,) = (folder / "metadata").glob("*/nic")
    return json.loads(path.read_text())["requests"][0]["devices"][0]


async def test_the_claim_of_several_pods_has_none(tmp_path):
    """One pod would read what another one's network made."""
    claims = claims_of(tmp_path)
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    await claims.attached(POD, [interface(card(0))])
    assert "networkData" not in await seen_again(tmp_path)


async def test_a_file_that_cannot_be_changed_holds_up_no_pod(tmp_path):
    claims = claims_of(tmp_path, pod_claim="nic")
    await claims.prepare(CLAIM)
    (prepared,) = claims.booked
    blocked = tmp_path / "file"
    blocked.write_text("")
    made = prepared_claims.ClaimMetadata(ClaimFiles(blocked), lambda: SHOWN)
    await made.attached(prepared, [interface(card(0))])
    await made.attached(replace(prepared, pod_claim=""), [])
    try:
        made.mounts(prepared)
    except Unavailable:
        return
    raise AssertionError("a CDI device would name a file that is not there")
