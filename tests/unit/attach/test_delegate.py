"""Beside a meta-plugin: one interface a call, whole results, and one writer of network-status."""

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.model.attach.cni import ANNOTATIONS, CniAttachment, CniResult, Wiring
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import Mode
from tests.unit.attach.delegate_world import NETWORK, PREVIOUS, DelegateWorld
from tests.unit.attach.network_life import Halting
from tests.unit.attach.network_world import RANGE, card, container, share

SHARED = [share(card(n), Mode.SHARED_MULTI) for n in range(2)]
net1 = InterfaceName("net1")


@pytest.fixture
def world(tmp_path):
    """A pod with two shares, whose annotation Multus has read."""
    found = DelegateWorld(tmp_path / "w", [card(0), card(1)], SHARED, {})
    found.sandbox()
    found.ask("other/rail@net1,rail@net2")
    return found


def addresses(result):
    return [str(one.address) for one in result.addresses]


async def test_one_call_makes_one_interface_and_answers_with_all_of_it(world):
    """Interface, address with its place, and nothing of what the annotation says besides."""
    found = await world.meta("ADD", 1)
    links = world.inside(1)[0]
    assert set(links) == {"lo", "eth0", "net1"}
    (link,) = found.links
    assert (link.name, link.mac, link.mtu) == ("net1", links["net1"][0], 9000)
    assert link.sandbox.endswith("netns-1")
    ((address, prefix),) = links["net1"][4]
    assert addresses(found) == [f"{address}/{prefix}"]
    assert found.addresses[0].link == 0
    assert await world.meta("CHECK", 1) == CniResult()
    assert await world.meta("DEL", 1) == CniResult()
    world.nothing_left(1)


async def test_each_interface_gets_the_next_share_and_its_own_table(world):
    """Call by call it comes to what one call for all of them makes."""
    for name in ("net1", "net2"):
        await world.meta("ADD", 1, name)
    _, _, _, rules, sysctls = world.inside(1)
    assert [rule.table for rule in rules] == [101, 102]
    assert {sysctls[f"net/ipv4/conf/{name}/arp_ignore"] for name in ("net1", "net2")} == {"1"}
    assert {held: edits.char_paths[0] for held, edits in world.bound[container(1)].items()} == {
        one.held: f"/dev/infiniband/mlx5_{number}" for number, one in enumerate(SHARED)
    }
    with pytest.raises(Refused, match="the pod holds none"):
        await world.meta("ADD", 1, "net3")
    for name in ("net2", "net1"):
        await world.meta("DEL", 1, name)
    world.nothing_left(1)


async def test_the_share_that_the_meta_plugin_names_is_taken(world):
    """deviceID is the id that the kubelet granted, wherever the configuration has it."""
    second = SHARED[1]
    await world.meta("ADD", 1, deviceID=second.share)
    assert list(world.bound[container(1)]) == [second.held]
    await world.meta("DEL", 1)
    await world.meta("ADD", 1, runtimeConfig={"deviceID": second.cards[0].id})
    assert list(world.bound[container(1)]) == [second.held]
    with pytest.raises(Refused, match=r"on 0000:99:00\.0, and the pod was given"):
        await world.meta("ADD", 1, "net2", deviceID="0000:99:00.0")


async def test_one_interface_ends_and_the_others_stay(world):
    """Also when its DEL is repeated; late binding ends with the last one."""
    for name in ("net1", "net2"):
        await world.meta("ADD", 1, name)
    for _ in range(2):
        await world.meta("DEL", 1, "net2")
        assert set(world.inside(1)[0]) == {"lo", "eth0", "net1"}
        assert set(world.held) == {(container(1), "net1")}
        assert container(1) in world.bound
    await world.meta("ADD", 1, "net2")
    assert [rule.table for rule in world.inside(1)[3]] == [101, 102]


async def test_a_failed_call_leaves_the_other_interfaces(world):
    """What it has taken itself is given back."""
    await world.meta("ADD", 1)
    before = world.inside(1)
    world.node.failing = None
    bad = {"runtimeConfig": {"ips": ["10.77.0.1"]}}
    with pytest.raises(Refused):
        await world.meta("ADD", 1, "net2", **bad)
    assert world.inside(1) == before
    assert len(world.delegated.names()) == 1


async def test_a_sandbox_that_ended_without_a_word_is_found(world):
    """Multus forgets a sandbox whose cache it has lost, and calls nobody."""
    await world.meta("ADD", 1)
    await world.calls.pipeline.sweep()
    assert world.held
    world.end(1)
    await world.calls.pipeline.sweep()
    world.nothing_left()


async def test_a_missed_del_is_about_its_interface_only(world):
    """The shim notes container and interface while nobody answers."""
    for name in ("net1", "net2"):
        await world.meta("ADD", 1, name)
    await world.calls.missed(CniAttachment(container(1), net1))
    assert set(world.inside(1)[0]) == {"lo", "eth0", "net2"}


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"prevResult": PREVIOUS}, "behind another plugin"),
        ({"pod": ""}, "names no pod of Kubernetes"),
        ({"deviceID": 3}, "deviceID"),
        ({"runtimeConfig": {"ips": ["x"]}}, "is not an IP address"),
        ({"runtimeConfig": {"infinibandGUID": "02:00:00:00:00:00:00:01"}}, "is not InfiniBand"),
        ({"runtimeConfig": {"bandwidth": {}}}, "bandwidth has no effect"),
        ({"ipam": {"type": "whereabots"}}, 'Did you mean "whereabouts"'),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_done(world, facts, sentence):
    """With a remedy, as the pod's event shows it."""
    with pytest.raises(Refused, match=sentence) as refused:
        await world.meta("ADD", 1, **facts)
    assert refused.value.remedy
    world.nothing_left(1)


WIDE = [share(card(n, virtual=True, wide=True), Mode.SRIOV) for n in range(2)]


@pytest.fixture
def wide(tmp_path):
    """Two sandboxes whose pod holds the first of two functions of InfiniBand; the giver halts."""
    found = DelegateWorld(tmp_path / "w", [cards for one in WIDE for cards in one.cards], WIDE, {})
    found.giver = Halting(replace(pool, cooldown=0.0) for pool in found.node.pools.values())
    found.start()
    found.node.shares = (WIDE[0],)
    for _ in range(2):
        found.sandbox()
    return found


async def test_in_the_chain_only_one_of_two_reads_the_annotation(world):
    """Behind a meta-plugin an asking pod waits, or its interfaces would come twice."""
    with pytest.raises(Unavailable, match="has just become this node's network"):
        await world.chain("ADD", 1)
    world.ask("")
    assert await world.chain("ADD", 1) == CniResult()
    await world.chain("DEL", 1)
    world.nothing_left(1)


@pytest.mark.parametrize("wiring", [Wiring.CHAIN, Wiring.DELEGATE])
async def test_a_pod_that_is_told_to_ask_for_nothing_needs_no_api_server(world, wiring):
    """The runtime says so with the call; of a pod that asks, the object is read."""
    world.wiring, world.node.failing = wiring, Unavailable("The API server does not answer.")
    plain = {"runtimeConfig": {ANNOTATIONS: {"note": "x", ANNOTATION: " "}}}
    assert await world.chain("ADD", 1, **plain) == CniResult()
    with pytest.raises(Unavailable, match="API server"):
        await world.chain("ADD", 1, runtimeConfig={ANNOTATIONS: {ANNOTATION: "rail"}})


FAR = "10.8.0.0/16"
IPAM = {"type": "macvlan", "master": "ens1f0", "ipam": {"type": "kube-rdma-ipam"}}


def ipam(world, **block):
    """A macvlan configuration with our IPAM; the pool is that of the world's range."""
    (name,) = world.node.pools
    return {**IPAM, "ipam": {**IPAM["ipam"], **(block or {"pool": name})}}


async def test_another_plugin_gets_addresses_and_nothing_else(world):
    """Without places of interfaces, which only the plugin knows; CHECK and DEL as for ours."""
    config = ipam(world)
    found = await world.meta("ADD", 1, **config)
    assert (found.links, found.addresses[0].link) == ((), None)
    assert addresses(found)[0].startswith(RANGE.removesuffix("0/24"))
    assert set(world.inside(1)[0]) == {"lo", "eth0"}
    assert set(world.held) == {(container(1), "net1")}
    assert await world.meta("CHECK", 1, **config) == CniResult()
    for _ in range(2):
        await world.meta("DEL", 1, **config)
    world.nothing_left(1)


@pytest.mark.parametrize(("name", "kept"), [("net1", [FAR]), ("eth0", None)])
async def test_another_plugin_gets_no_default_route_for_a_further_interface(world, name, kept):
    """It would put it into the pod's main table; that of the cluster's own network has to be."""
    routes = ["0.0.0.0/0", "0.0.0.0/1", "::/0", FAR]
    config = ipam(world)
    config["ipam"]["routes"] = [{"dst": to} for to in routes]
    given = await world.meta("ADD", 1, name, **config)
    assert [str(one.to) for one in given.routes] == (kept or routes)


async def test_the_answer_has_the_routes_of_the_main_table_alone(world):
    """A default route is in the interface's own table, and Multus sets the one of default-route."""
    gw = RANGE.replace("0/24", "1")
    ipam = {**NETWORK["ipam"], "routes": [{"dst": to, "gw": gw} for to in ("0.0.0.0/0", FAR)]}
    given = await world.meta("ADD", 1, ipam=ipam)
    assert [str(one.to) for one in given.routes] == [FAR]
    tables = {one.table for one in world.inside(1)[2] if str(one.to) == "0.0.0.0/0"}
    assert tables == {101}
    assert await world.meta("CHECK", 1, ipam=ipam) == CniResult()


async def test_the_same_interface_asks_again_and_gets_the_same(world):
    """An ADD that the runtime repeats takes no second address."""
    config = ipam(world)
    first = await world.meta("ADD", 1, **config)
    assert await world.meta("ADD", 1, **config) == first


async def test_a_pool_for_each_rail_follows_the_master(world):
    """The rail is that of the card whose interface the plugin works on."""
    (name,) = world.node.pools
    config = ipam(world, pools={"1": name})
    assert addresses(await world.meta("ADD", 1, **config))
    with pytest.raises(Refused, match="names no pool for rail 0"):
        await world.meta("ADD", 1, "net2", **{**config, "master": "ens0f0"})
    with pytest.raises(Refused, match="nothing is not the interface of a card"):
        await world.meta("ADD", 1, "net2", **{**config, "master": ""})


async def test_an_address_of_another_plugins_interface_can_be_asked_for(world):
    """And one that is taken is refused; what was noted for it goes."""
    config = {**ipam(world), "runtimeConfig": {"ips": ["10.9.0.44/24"]}}
    assert addresses(await world.meta("ADD", 1, **config)) == ["10.9.0.44/24"]
    world.sandbox()
    with pytest.raises(Refused):
        await world.meta("ADD", 2, **config)
    assert len(world.delegated.names()) == 1


async def test_addresses_of_a_sandbox_under_way_are_not_collected(world):
    """The runtime does not list it yet, but the journal knows it."""
    await world.meta("ADD", 1, **ipam(world))
    await world.networks.collect(frozenset(), world.networks.now())
    assert world.held
    world.end(1)
    await world.calls.pipeline.sweep()
    assert not world.held
