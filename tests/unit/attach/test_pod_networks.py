"""Pods that ask with a block for each card: the way of Volcengine's VKE, on a made-up node."""

import json
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.kinds import Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION as DEFINED
from kube_rdma.adapters.cluster.kinds.own import DefinitionSpec
from kube_rdma.adapters.cluster.kinds.pod import POD as POD_KIND
from kube_rdma.attach.annotated_networks import asking, meant
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.attach.attachment import CardAddresses, NetworkKind
from kube_rdma.model.attach.cni import ConfFile
from kube_rdma.model.ipam import IPPool, IPRange, PoolName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Mode
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.ipam import FakeAddresses
from tests.unit.attach.network_world import World, card, config, share

RESOURCE = "vke.volcengine.com/rdma"
ANNOTATION = "k8s.volcengine.com/pod-networks"
DEFINITION = "k8s.volcengine.com/pod-networks-definition"
STATUS = "k8s.volcengine.com/network-status"
OWN_STATUS = "kube-rdma.io/network-status"
MULTUS = "k8s.v1.cni.cncf.io/networks"
RDMA = {"cniConf": {"name": "rdma"}}
WITH_ADDRESS = {**RDMA, "deviceConf": {"ips": ["10.9.0.9/24"]}}
MASTER = {"cniConf": {"name": "cello-chainer"}, "master": True}
MODES = [Mode.EXCLUSIVE, Mode.SHARED, Mode.SHARED_MULTI]
POOL = IPPool(PoolName("rdma"), (IPRange(ip_network("10.9.0.0/24")),), cooldown=0.0)
CELLO = {
    "name": "rdma",
    "plugins": [{"type": "host-device", "ipam": {"type": "host-local"}}],
    "meta": {"resourceName": RESOURCE, "ipRangesSource": "netDeviceSelf"},
}


def node(folder, count, mode=Mode.SHARED, networks=None):
    """As many cards as shares of them; the pod's sandbox is there."""
    shares = [share(card(number), mode, RESOURCE) for number in range(count)]
    cards = [each for one in shares for each in one.cards]
    found = World(folder / "w", cards, shares, networks or {})
    found.sandbox()
    return found


def ask(world, *blocks):
    world.node.annotations[ANNOTATION] = json.dumps(blocks)


def configured(world, **conf):
    """The node has this CNI configuration beside that of the cluster."""
    cluster = ConfFile("10-cluster.conflist", '{"name": "cluster", "plugins": []}')
    world.node.confs = (cluster, ConfFile("20-x.conflist", json.dumps(conf)))


def with_pool(world, pool=POOL):
    world.giver = FakeAddresses([pool])
    world.node.pools[pool.name] = pool
    world.start()


def on_cards(world, *addresses):
    """The cards' links have these addresses on the node."""
    links = [link for link in world.kernel.within(world.kernel.node) if link.pci]
    for link, text in zip(links, addresses, strict=True):
        address, _, prefix = text.partition("/")
        link.addresses = [(ip_address(address), int(prefix))]
    world.before = world.on_node()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2, 4])
async def test_the_block_that_people_repeat(tmp_path, mode, count):
    """Nobody configured rdma: each block is a share of a card, with the pool's addresses."""
    world = node(tmp_path, count, mode)
    with_pool(world)
    ask(world, *[RDMA] * count)
    await world.add(1)
    links, _, _, rules, _ = world.inside(1)
    names = [f"eth{n}" for n in range(1, count + 1)]
    assert set(links) == {"lo", "eth0", *names}
    kind = "" if mode is Mode.EXCLUSIVE else "macvlan"
    assert [(links[name][3], len(links[name][4])) for name in names] == [(kind, 1)] * count
    assert [(rule.table, rule.priority) for rule in rules] == [
        (100 + n, 20000) for n in range(1, count + 1)
    ]
    await world.holds_and_goes(1)


@pytest.mark.parametrize("mode", MODES)
async def test_without_any_pool_an_interface_has_the_address_of_its_entry(tmp_path, mode):
    """One without any is refused: its card would have no GID."""
    world = node(tmp_path, 1, mode)
    ask(world, RDMA)
    await world.refuses(1, "no IPPool rdma is there to give eth1 an address")
    ask(world, WITH_ADDRESS)
    await world.add(1)
    assert world.inside(1)[0]["eth1"][4] == ((ip_address("10.9.0.9"), 24),)
    assert len(world.bound) == 1
    await world.goes(1)


async def test_a_whole_card_takes_its_addresses_along_and_back(tmp_path):
    """Where there is no pool; another pod gets them after it."""
    world = node(tmp_path, 2, Mode.EXCLUSIVE)
    on_cards(world, "10.9.0.7/24", "10.9.1.7/24")
    ask(world, RDMA, RDMA)
    for number in (1, world.sandbox()):
        await world.add(number)
        links = world.inside(number)[0]
        assert [links[name][4] for name in ("eth1", "eth2")] == [
            ((ip_address("10.9.0.7"), 24),),
            ((ip_address("10.9.1.7"), 24),),
        ]
        await world.holds_and_goes(number)


async def test_a_card_that_the_pool_has_no_range_for_takes_its_own_address_along(tmp_path):
    """VKE's own network gives the card's address; a pool of four rails knows no fifth card."""
    world = node(tmp_path, 2, Mode.EXCLUSIVE)
    (whole,) = POOL.ranges
    with_pool(world, replace(POOL, ranges=(replace(whole, rail=0),)))
    on_cards(world, "10.9.7.7/24", "10.9.8.7/24")
    ask(world, RDMA, RDMA)
    await world.add(1)
    links = world.inside(1)[0]
    (first,), (second,) = links["eth1"][4], links["eth2"][4]
    assert first[0] in whole.subnet
    assert second == (ip_address("10.9.8.7"), 24)
    await world.holds_and_goes(1)


async def test_a_shared_card_that_the_pool_has_no_range_for_is_refused(tmp_path):
    """Its address is the node's; the sentence says which rail lacks a range."""
    world = node(tmp_path, 2, Mode.SHARED)
    (whole,) = POOL.ranges
    with_pool(world, replace(POOL, ranges=(replace(whole, rail=0),)))
    on_cards(world, "10.9.7.7/24", "10.9.8.7/24")
    ask(world, RDMA, RDMA)
    await world.refuses(1, "IPPool rdma has no range for rail 1")


async def test_addresses_come_back_when_the_namespace_went_first(tmp_path):
    """The kernel brings the link back bare; the agent knows them from its journal."""
    world = node(tmp_path, 1, Mode.EXCLUSIVE)
    on_cards(world, "10.9.0.7/24")
    ask(world, RDMA)
    await world.add(1)
    world.start()
    world.end(1)
    await world.delete(1)
    world.nothing_left()


async def test_the_configuration_of_the_node_comes_first(tmp_path):
    """Before the network of kube-rdma, and before a definition of the same name."""
    world = node(tmp_path, 1, Mode.EXCLUSIVE, {"default/rdma": config("macvlan")})
    configured(world, **CELLO)
    on_cards(world, "10.9.0.7/24")
    ask(world, {**RDMA, "traffic": {"routes": {"default": True}}})
    await world.add(1)
    links, _, routes, *_ = world.inside(1)
    assert links["eth1"][3:] == ("", ((ip_address("10.9.0.7"), 24),))
    main = {(str(route.to), str(route.via)) for route in routes if route.table is None}
    assert ("0.0.0.0/0", "10.9.0.1") in main
    await world.goes(1)


@pytest.mark.parametrize("space", ["default", "kube-system"])
async def test_then_a_definition_near_or_shared(tmp_path, space):
    """In the pod's namespace, else in kube-system; its name is told."""
    _, text = config("macvlan")
    world = node(tmp_path, 1, networks={f"{space}/fabric": (RESOURCE, text)})
    ask(world, {"cniConf": {"name": "fabric"}})
    await world.add(1)
    assert world.node.told[OWN_STATUS][0]["name"] == f"{space}/fabric"
    assert world.node.told[STATUS][-1]["cniName"] == "fabric"


async def test_addresses_of_a_block_are_set_as_they_are(tmp_path):
    """Without a pool they need their length; with one it gives just these."""
    world = node(tmp_path, 1)
    ask(world, {**RDMA, "deviceConf": {"ips": ["10.9.0.9/24"], "ifName": "rail0"}})
    wanted = ((ip_address("10.9.0.9"), 24),)
    await world.add(1)
    assert world.inside(1)[0]["rail0"][4] == wanted
    assert world.held == {}
    await world.delete(1)
    with_pool(world)
    await world.add(1)
    assert world.inside(1)[0]["rail0"][4] == wanted
    assert len(world.held) == 1


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ([RDMA], "has 1 block for vke.volcengine.com/rdma, and .* hold 2 of it"),
        ([RDMA] * 3, "has 3 blocks for vke.volcengine.com/rdma, and .* hold 2 of it"),
        (
            [RDMA, {"cniConf": {"name": "rdam"}}],
            r"pod-networks\[1\]\.cniConf\.name: there is no network rdam: .* Did you mean rdma\?",
        ),
        ([RDMA, {}], r"pod-networks\[1\]\.cniConf: the field is missing"),
        (
            [{**WITH_ADDRESS, "traffic": {"routes": {"default": True}}}, WITH_ADDRESS],
            "no address of eth1 has a",
        ),
        ([{"cniConf": {"name": "x"}}, RDMA], r"CNI configuration x:1:\d+: type: tuning changes"),
        (
            [{**RDMA, "deviceConf": {"ips": ["10.9.0.9"]}}, RDMA],
            r"pod-networks\[0\] \(default/rdma\): deviceConf\.ips\[0\]: 10\.9\.0\.9 has no length",
        ),
        ([{"cniConf": {"name": "lan"}}], "has 0 blocks for vke.volcengine.com/rdma, and .* hold 2"),
        ([MASTER], "has 0 blocks for vke.volcengine.com/rdma, and .* hold 2 of it"),
        ([], "has 0 blocks for vke.volcengine.com/rdma, and .* hold 2 of it"),
    ],
)
async def test_what_cannot_be_made_is_refused_with_nothing_left(tmp_path, blocks, sentence):
    """By entry, and with both numbers where blocks and shares differ."""
    world = node(tmp_path, 2)
    configured(world, name="x", type="tuning")
    lan = ConfFile("30-lan.conflist", '{"name": "lan", "plugins": [{"type": "bridge"}]}')
    world.node.confs = (*world.node.confs, lan)
    ask(world, *blocks)
    await world.refuses(1, sentence)
    assert world.node.told == {}


async def test_both_annotations_at_once_are_refused(tmp_path):
    """Each would number the interfaces of the pod."""
    world = node(tmp_path, 1)
    with_pool(world)
    ask(world, RDMA)
    world.ask("rdma")
    with pytest.raises(Refused, match=f"the pod has the annotations {MULTUS} and {ANNOTATION}"):
        await world.add(1)
    world.ask(" ")
    await world.add(1)


async def test_a_pod_is_tried_again_until_its_blocks_are_written(tmp_path):
    """The definition says that somebody will write them."""
    world = node(tmp_path, 1)
    with_pool(world)
    world.node.annotations[DEFINITION] = '[{"name": "a", "namespace": "b"}]'
    with pytest.raises(Unavailable, match="has 0 entries"):
        await world.add(1)
    ask(world, RDMA)
    with pytest.raises(Unavailable, match="has not finished"):
        await world.add(1)
    ask(world, {**RDMA, "name": "a", "namespace": "b"})
    await world.add(1)
    await world.goes(1)


def real(confs=(), kinds=(IP_POOL, POD_KIND)):
    """The real node over a fake API server that knows these kinds."""
    cluster = Cluster(FakeServer(kinds).line())
    return cluster, NodeView(
        NodeViewDependencies(cluster, None, NodeContext({}), None, None, lambda: confs)
    )


def asking_for(name):
    text = json.dumps([{"cniConf": {"name": name}}])
    return asking(PodState("train", "a", "uid-1", ((ANNOTATION, text),)), "cluster")


async def test_the_network_rdma_needs_no_custom_resource():
    """Where NetworkAttachmentDefinitions are not installed; its pool is found by name."""
    cluster, node_ = real()
    for pool, addresses in ((None, CardAddresses.MOVE), (POOL, CardAddresses.MOVE)):
        if pool:
            await cluster.create(IP_POOL, Wanted("rdma", spec=replace(pool, cooldown=60.0)))
        asks, definitions = await meant(asking_for("rdma"), node_, None)
        found = definitions["train/rdma"].network
        assert [one.namespace for one in asks] == ["train"]
        assert (found.kind, found.card_addresses) == (NetworkKind.CARD, addresses)


async def test_a_definition_without_a_configuration_is_that_of_the_node():
    """By its name, as Multus reads it; where the node has none it is refused."""
    conf = ConfFile("20-lab.conflist", '{"name": "lab", "plugins": [{"type": "bridge"}]}')
    cluster, node_ = real((conf,), (IP_POOL, POD_KIND, DEFINED))
    for name in ("lab", "other"):
        await cluster.create(DEFINED, Wanted(name, "train", spec=DefinitionSpec(config=" ")))
    found = await node_.definition("train", "lab")
    assert (found.network.name, found.network.plugin) == ("train/lab", "bridge")
    with pytest.raises(Refused, match="the node has no CNI configuration named other"):
        await node_.definition("train", "other")


async def test_a_pool_of_a_configuration_is_made():
    plugin = {"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.9.0.0/24"}}
    conf = ConfFile("20-x.conf", json.dumps({"name": "x", **plugin, "master": "ens1f0"}))
    _, node_ = real((conf,))
    _, definitions = await meant(asking_for("x"), node_, None)
    (pool,) = definitions["train/x"].network.pools
    assert await node_.has_pool(pool)
    with pytest.raises(Refused, match="there is no network y: known are x, rdma, and no"):
        await meant(asking_for("y"), node_, None)
