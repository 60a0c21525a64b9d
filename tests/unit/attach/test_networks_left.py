"""Networks of our types as other tools know them, and ways to networks of other tenants."""

import json
from ipaddress import ip_network

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model.attach.cni import ConfFile
from kube_rdma.model.ipam import IPPool, IPRange, PoolName
from kube_rdma.model.pools import Mode
from kube_rdma_testing.ipam import FakeAddresses
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.network_world import RESOURCE, World, card, share

BLOCKS = "k8s.volcengine.com/pod-networks"
VKE = "vke.volcengine.com/rdma"
TEAM_A = IPPool(PoolName("team-a"), (IPRange(ip_network("10.20.0.0/24")),), namespaces=("team-a",))
STORAGE = json.dumps({"cniVersion": "1.0.0", "type": "macvlan", "master": "ens0f0"})
CONF = ConfFile("9.conf", json.dumps({"cniVersion": "1.0.0", "name": "mgmt", "type": "macvlan"}))
OWN = "kube-rdma.io/network-status"


def node(folder, shares, resource=None, **fields):
    """A pod that asks for a macvlan, with an address of its own."""
    text = json.dumps({"cniVersion": "1.0.0", "type": "macvlan", **fields})
    found = World(folder, [card(0)], shares, {"default/lan": (resource, text)})
    found.sandbox()
    found.ask("lan")
    return found


def tenant(folder, global_namespaces, *blocks, networks=None, shares=()):
    """A pod of namespace default that names networks by blocks, where namespaces are apart."""
    world = World(folder, [card(0)], shares, networks or {})
    world.node.confs = (CONF,)
    world.global_namespaces = global_namespaces
    world.start()
    world.node.annotations[BLOCKS] = json.dumps(blocks)
    world.sandbox()
    return world


def block(name, *ips):
    return {"cniConf": {"name": name}, **({"deviceConf": {"ips": ips}} if ips else {})}


@pytest.mark.parametrize("global_namespaces", [(), ("shared",), ("default", "kube-system"), None])
async def test_a_block_names_networks_of_the_namespaces_for_all_alone(tmp_path, global_namespaces):
    networks = {"kube-system/storage": (RESOURCE, STORAGE)}
    shares = [share(card(0), Mode.SHARED_MULTI)]
    world = tenant(tmp_path, global_namespaces, block("storage"), networks=networks, shares=shares)
    if global_namespaces is None or "kube-system" in global_namespaces:
        await world.add(1)
        assert [one["name"] for one in world.node.told[OWN]] == ["kube-system/storage"]
        await world.delete(1)
    else:
        wanted = "the network kube-system/storage is for pods of kube-system, and this pod is of"
        with pytest.raises(Refused, match=f"{wanted} namespace default. Name one of default"):
            await world.add(1)
    world.nothing_left(1)


@pytest.mark.parametrize("global_namespaces", [(), ("default", "kube-system")])
async def test_a_block_names_no_configuration_of_the_node_where_namespaces_are_apart(
    tmp_path, global_namespaces
):
    world = tenant(tmp_path, global_namespaces, block("mgmt", "10.66.0.66/24"))
    sentence = "there is no network mgmt: known are rdma, and no .* or have the administrator lend"
    await world.refuses(1, sentence)
    world.node.networks["default/mgmt"] = (RESOURCE, STORAGE)
    with pytest.raises(Refused, match="1 block for rdma/hca, and the containers of the pod hold 0"):
        await world.add(1)  # the definition counts, not the node's


@pytest.mark.parametrize("global_namespaces", [None, ("shared",)])
@pytest.mark.parametrize("address", ["10.20.0.5/24", "10.20.0.1/24"])
async def test_a_pod_takes_no_address_of_a_pool_for_others(tmp_path, global_namespaces, address):
    """By the built-in network, which has no IPPool here."""
    shares = [share(card(0), Mode.SHARED_MULTI, VKE)]
    world = tenant(tmp_path, global_namespaces, block("rdma", address), shares=shares)
    world.node.pools = {TEAM_A.name: TEAM_A}
    sentence = "is of IPPool team-a, which is for pods of team-a, and this pod is of namespace def"
    await world.refuses(1, rf"deviceConf\.ips: {address[:-3]} {sentence}")
    world.node.pools = {TEAM_A.name: replace(TEAM_A, namespaces=("default",))}
    await world.add(1)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"ips": ["10.20.0.5/24"]}, "macvlan"),
        ({"cni-args": {"ips": ["10.20.0.5/24"]}}, "macvlan"),
        ({"ips": ["10.20.0.5/24"]}, "bridge"),
        ({"cni-args": {"ips": ["10.20.0.5/24"]}}, "bridge"),
        ({"ips": ["::ffff:10.20.0.5/120"]}, "macvlan"),
        ({"ips": ["10.9.0.1/24"], "cni-args": {"ips": ["10.20.0.5/24"]}}, "bridge"),
        ({"cni-args": {"IPs": ["10.20.0.5/24"]}}, "bridge"),
        ({"cni-args": {"ip\u017f": "::ffff:10.20.0.5/120"}}, "bridge"),
        ({"cni-args": {"ips": [None, "10.20.0.5/24"]}}, "bridge"),
    ],
)
async def test_an_entry_takes_no_address_of_a_pool_for_others(tmp_path, entry, kind):
    """Whoever makes the interface, and however a plugin in Go understands the entry."""
    text = json.dumps({"cniVersion": "1.0.0", "type": kind, "capabilities": {"ips": True}})
    shares = [share(card(0), Mode.SHARED_MULTI)]
    world = World(tmp_path, [card(0)], shares, {"default/lan": (RESOURCE, text)})
    world.sandbox()
    world.node.pools = {TEAM_A.name: TEAM_A}
    world.ask(json.dumps([{"name": "lan", **entry}]))
    await world.refuses(1, "IPPool team-a, which is for pods of team-a")


async def test_a_pool_for_others_gives_nothing_whatever_network_names_it(tmp_path):
    """Also one that the pod's own namespace has."""
    ipam = {"type": "kube-rdma-ipam", "pool": "team-a"}
    world = node(tmp_path, [share(card(0), Mode.SHARED_MULTI)], RESOURCE, ipam=ipam)
    world.giver = FakeAddresses([TEAM_A])
    world.node.pools = {TEAM_A.name: TEAM_A}
    world.start()
    await world.refuses(1, "IPPool team-a is for pods of team-a")


@pytest.mark.parametrize("global_namespaces", [(), ("team-b",), None])
async def test_a_network_of_others_is_refused_to_a_meta_plugin_too(tmp_path, global_namespaces):
    """Whichever namespaces the meta-plugin itself lets pods name."""
    networks = {"team-b/rail": (RESOURCE, json.dumps(NETWORK))}
    world = DelegateWorld(tmp_path, [card(0)], [share(card(0), Mode.SHARED_MULTI)], networks)
    world.global_namespaces = global_namespaces
    world.start()
    world.ask("team-b/rail")
    world.sandbox()
    if global_namespaces == ():
        with pytest.raises(Refused, match="the network team-b/rail is for pods of team-b"):
            await world.meta("ADD", 1)
    else:
        await world.meta("ADD", 1)


async def test_an_address_of_cni_args_is_of_no_pool_for_others_either(tmp_path):
    """So Multus passes on what a pod's entry asks for."""
    networks = {"default/rail": (RESOURCE, json.dumps(NETWORK))}
    world = DelegateWorld(tmp_path, [card(0)], [share(card(0), Mode.SHARED_MULTI)], networks)
    world.ask("rail")
    world.sandbox()
    world.start()
    world.node.pools = {TEAM_A.name: TEAM_A}
    ipam = {"type": "static", "addresses": [{"address": "10.7.0.9/24"}]}
    with pytest.raises(Refused, match="IPPool team-a, which is for pods of team-a"):
        await world.meta("ADD", 1, cni_args=";IP=10.20.0.5/24", ipam=ipam)
    args = ";IP=10.7.0.5/24,10.8.0.5/24;GATEWAY=10.7.0.254"
    result = await world.meta("ADD", 1, cni_args=args, ipam=ipam)
    told = [(str(one.address), str(one.gateway)) for one in result.addresses]
    assert told == [
        ("10.7.0.9/24", "10.7.0.254"),
        ("10.7.0.5/24", "10.7.0.254"),
        ("10.8.0.5/24", "None"),
    ]
