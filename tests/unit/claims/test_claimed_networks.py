"""A pod by claim has the interface that the parameters ask for, without an annotation."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_network
from itertools import count

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.claim_networks import granted
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.claims.claim import ConfigOrigin, OpaqueConfig
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import IPPool, IPRange, PoolName
from kube_rdma.model.pools import Mode
from kube_rdma_testing.ipam import FakeAddresses
from kube_rdma_testing.kernel.network import KilledError
from tests.unit.attach.network_world import POD, RESOURCE, World, card, config, share
from tests.unit.claims.test_attached import CLAIM, ClaimWorld, booking, pool_of

OWN = "kube-rdma.io/network-status"
TEAM_A = IPPool(PoolName("team-a"), (IPRange(ip_network("10.20.0.0/24")),), namespaces=("team-a",))
MAC = "02:0a:14:00:00:05"
BARE = json.dumps({"cniVersion": "1.0.0", "type": "macvlan"})


def said(origin=ConfigOrigin.CLAIM, **fields):
    """One configuration of an allocation."""
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", **fields}
    return OpaqueConfig(origin, DRIVER, json.dumps(document).encode())


async def by_claim(folder, *configs, networks=None, annotation=None, beside=()):
    """A node on which a pod starts whose claim was allocated with these configurations."""
    of = card(0)
    pool = pool_of(of, Mode.SHARED_MULTI)
    claims = booking(folder, pool, configs)
    await claims.prepare(CLAIM)
    shares = granted(await claims.holdings_of(POD), claims.booked, {RESOURCE: pool})
    named = networks or {"default/net": (None, config("macvlan")[1])}
    world = ClaimWorld(claims, folder / "world", [of], (*beside, *shares), named)
    world.node.claimed_devices = await claims.interfaces_of(POD)
    if annotation:
        world.ask(annotation)
    world.sandbox()
    return world


def told(world):
    """Interfaces of the pod by name, as its annotation has them."""
    return {one["interface"]: one for one in world.node.told[OWN]}


async def test_it_is_what_the_annotation_would_have_made(tmp_path):
    """The same plan, address, undo and result, by a network that is tied to no resource."""
    of = card(0)
    pair = [of], [share(of, Mode.SHARED_MULTI)], {"default/net": config("macvlan")}
    by_share = World(tmp_path / "a", *pair)
    by_share.ask("net")
    by_share.sandbox()
    world = await by_claim(tmp_path, said(network="net"))
    assert await by_share.add(1) == await world.add(1)
    assert by_share.inside(1) == world.inside(1)
    assert by_share.node.told == world.node.told
    await world.goes(1)


async def test_the_runtimes_word_that_a_pod_asks_for_nothing_is_no_end(tmp_path):
    """It has the annotations alone."""
    world = await by_claim(tmp_path, said(network="net"))
    world.context.wiring = Wiring.CHAIN
    await world.calls.answer(replace(world.call("ADD", 1), annotations=()))
    assert list(told(world)) == ["net1"]


def with_pool(world, pool):
    """The cluster has this IPPool alone."""
    world.giver = FakeAddresses([pool])
    world.node.pools = {pool.name: pool}
    world.start()


async def test_parameters_without_a_network_make_one(tmp_path):
    """An administrator's class may say its addresses too."""
    world = await by_claim(
        tmp_path,
        said(type="macvlan"),
        said(
            ConfigOrigin.CLASS, addresses=["10.4.0.5/24"], mac=MAC, routes=[{"dst": "10.0.0.0/8"}]
        ),
    )
    await world.add(1)
    (mine,) = told(world).values()
    assert mine["name"] == "default/train-0-nic:nic"
    assert world.inside(1)[0]["net1"][0] == MAC
    await world.goes(1)


async def test_a_claim_takes_no_card_that_others_share(tmp_path):
    world = await by_claim(tmp_path, said(type="host-device"))
    await world.refuses(1, "cannot move into one pod: other pods share its card")


async def test_a_pool_gives_a_claim_the_address_that_it_wants(tmp_path):
    world = await by_claim(tmp_path, said(type="macvlan", pool="team-a", addresses=["10.20.0.5"]))
    with_pool(world, replace(TEAM_A, namespaces=(POD.namespace,)))
    await world.add(1)
    assert "10.20.0.5" in json.dumps(told(world))


@pytest.mark.parametrize(
    ("configs", "network"),
    [
        ((said(pool="team-a", addresses=["10.20.0.5"]),), config("macvlan")[1]),
        ((said(network="net", addresses=["10.20.0.5/24"]),), BARE),
        ((said(network="net", addresses=["10.20.0.1/24"]),), BARE),  # the gateway's, say
        ((said(ConfigOrigin.CLASS, network="net"), said(addresses=["10.20.0.5/24"])), BARE),
    ],
)
async def test_an_address_of_a_pool_for_others_is_refused(tmp_path, configs, network):
    """Whether the pool is named or not."""
    world = await by_claim(tmp_path, *configs, networks={"default/net": (None, network)})
    with_pool(world, TEAM_A)
    sentence = (
        r"IPPool team-a(, which)? is for pods of team-a, and this pod is of namespace default"
    )
    await world.refuses(1, sentence)


async def test_an_annotation_says_nothing_of_an_interface_that_a_claim_alone_makes(tmp_path):
    """Else it would say what the claim cannot."""
    world = await by_claim(tmp_path, said(type="macvlan"))
    for name in ("train-0-nic.nic", "train-0-nic:nic"):
        world.ask(json.dumps([{"name": name, "ips": ["10.20.0.5/24"], "mac": MAC}]))
        await world.refuses(1, r"there is no network|is not the name of an object")


@pytest.mark.parametrize(
    ("configs", "taken"),
    [
        ((said(network="net", addresses=["10.4.0.5/24"]),), "addresses: 10.4.0.5"),
        ((said(network="net", mac=MAC),), f"mac: {MAC}"),
        ((said(ConfigOrigin.CLASS, type="macvlan", addresses=["10.4.0.5/24"]),), "10.4.0.5"),
        ((said(ConfigOrigin.CLASS, type="macvlan", mac=MAC),), f"mac: {MAC}"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_two_pods_of_a_claim_do_not_get_one_address(tmp_path, configs, taken, at_once):
    """The second one is refused while the first one has it, and starts when that has ended."""
    world = await by_claim(tmp_path, *configs, networks={"default/net": (None, BARE)})
    second = world.sandbox()
    if at_once:
        answers = await asyncio.gather(world.add(1), world.add(second), return_exceptions=True)
        (refused,) = [one for one in answers if isinstance(one, Exception)]
        first, second = (1, second) if answers[1] is refused else (second, 1)
    else:
        first = 1
        await world.add(1)
        with pytest.raises(Refused) as caught:
            await world.add(second)
        refused = caught.value
    assert taken in str(refused)
    assert "is taken, default/train-0" in str(refused)
    await world.delete(first)
    await world.add(second)
    await world.goes(second)


async def test_two_pods_of_a_claim_do_not_get_one_address_of_a_pool(tmp_path):
    world = await by_claim(tmp_path, said(network="net", addresses=["10.9.0.77"]))
    second = world.sandbox()
    await world.add(1)
    with pytest.raises(Refused, match="the pool is full"):
        await world.add(second)


async def test_a_network_for_other_shares_is_refused_with_the_way_out(tmp_path):
    networks = {"default/net": ("rdma/other", config("macvlan")[1])}
    world = await by_claim(tmp_path, said(network="net"), networks=networks)
    sentence = (
        r"claim default/train-0-nic: request nic \(default/net\): network: the network is for "
        r"shares of rdma/other, and the claim's device is of rdma/hca\. Name a network of rdma/hca"
    )
    await world.refuses(1, sentence)


async def test_a_network_that_is_nowhere_names_the_claim(tmp_path):
    world = await by_claim(tmp_path, said(network="away"))
    with pytest.raises(Refused, match=r"claim default/train-0-nic: request nic: there is no net"):
        await world.add(1)


async def test_networks_of_other_tenants_are_not_for_claims_either(tmp_path):
    world = await by_claim(tmp_path, said(network="infra/net"))
    world.global_namespaces = ("kube-system",)
    world.start()
    with pytest.raises(Refused, match="the network infra/net is for pods of infra"):
        await world.add(1)


async def test_an_add_that_was_killed_leaves_nothing(tmp_path):
    """Whichever act was the last."""
    for at in count(1):
        world = await by_claim(tmp_path / str(at), said(network="net"))
        world.start(at)
        try:
            await world.add(1)
        except KilledError:
            killed = True
        else:
            killed = world.life.dead
        world.start()
        if killed:
            await world.calls.pipeline.recover()
        await world.goes(1)
        if not killed:
            break
    assert at > 8


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"mtu": "9000"}, r'config\[0\]: mtu: "9000" is not a whole number'),
        ({"speed": 9}, "speed: there is no such field. Remove it"),
        ({"network": "net", "pool": "p"}, "the network net has its own pool. Remove pool, or"),
        ({"mode": "l2"}, "request nic: mode: "),
        *(
            (
                {"type": "macvlan", field: value},
                f"nic: {field}: a claim can say {field} only beside {backers}. Add {backers}, or",
            )
            for field, value, backers in (
                ("addresses", ["10.20.0.5/24"], "network or pool"),
                ("routes", [{"dst": "0.0.0.0/1", "gw": "10.20.0.1"}], "network or pool"),
                ("defaultRoute", True, "network or pool"),
                ("mac", MAC, "network"),
            )
        ),
        ({"guid": "02:00:0a:00:00:00:00:01"}, "guid only beside network. Add network, or have"),
        ({"type": "macvlan", "pool": "p", "mac": MAC}, "mac only beside network"),
        *(
            ({"network": "net", field: value}, f"{field}: there is no such field")
            for field, value in (
                *(("vlan", 5), ("pkey", "0x8001"), ("master", "ens0f0"), ("deviceID", "ens0f0")),
                *(("gateway", "10.20.0.1"), ("sysctls", {}), ("trust", "on"), ("ipam", {})),
                *(("namespace", "infra"), ("resource", "rdma/x"), ("slots", 9)),
            )
        ),
    ],
)
async def test_wrong_parameters_are_refused_when_the_claim_is_prepared(tmp_path, fields, sentence):
    """The kubelet shows it as an Event of the pod; nothing is booked."""
    claims = booking(tmp_path, pool_of(card(0), Mode.SHARED_MULTI), [said(**fields)])
    with pytest.raises(Refused, match=sentence):
        await claims.prepare(CLAIM)
    assert claims.booked == ()
    assert not (tmp_path / "cdi").exists()


async def test_behind_a_meta_plugin_parameters_are_refused_and_claims_without_are_not(tmp_path):
    pool = pool_of(card(0), Mode.SHARED_MULTI)
    with pytest.raises(Refused, match="a meta-plugin"):
        await booking(tmp_path, pool, [said(mtu=9000)], wiring=lambda: Wiring.DELEGATE).prepare(
            CLAIM
        )
    await booking(tmp_path, pool, wiring=lambda: Wiring.DELEGATE).prepare(CLAIM)
