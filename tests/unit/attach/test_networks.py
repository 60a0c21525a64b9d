"""Networks of pods, call by call: what ADD, DEL, CHECK, GC and STATUS do on a made-up node."""

from ipaddress import ip_address

import pytest

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.attach.cni import Call, CniResult, Verb
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import RESOURCE, World, card, config, container, eth0, share

STATUS = "k8s.v1.cni.cncf.io/network-status"
SHARED = [share(card(n), Mode.SHARED_MULTI) for n in range(2)]


def node(folder, *shares, **networks):
    """Two cards and networks of namespace default, with a sandbox of the pod on it."""
    cards = [each for one in shares for each in one.cards]
    found = World(folder, cards, shares, {f"default/{name}": one for name, one in networks.items()})
    found.sandbox()
    return found


@pytest.fixture
def world(tmp_path):
    """A pod with two shares of macvlan's cards; it asks for nothing yet."""
    networks = {
        "rdma": config("macvlan"),
        "other": config("bridge"),
        "typo": config("brigde"),
        "broken": (RESOURCE, '{"type": "macvlan", "mtu": "large"}'),
    }
    return node(tmp_path / "w", *SHARED, **networks)


async def test_a_pod_that_asks_for_nothing_gets_nothing(world):
    """Its ADD is answered with an empty result, and nothing was done."""
    assert await world.add(1) == CniResult()
    assert world.life.acts == []
    world.nothing_left(1)


async def test_a_sandbox_without_a_pod_gets_nothing(world):
    """The runtime was asked by somebody who is not the kubelet."""
    world.ask("rdma")
    assert await world.add(1, pod=None) == CniResult()
    assert world.life.acts == []


async def test_macvlan_with_an_address_of_its_range(world):
    """The link stands on the card of the pod's share, and all goes with DEL."""
    world.ask("rdma")
    assert await world.add(1) == CniResult()
    link = next(one for one in world.kernel.links if one.name == "net1")
    assert (link.kind, link.parent.name, link.up, link.mtu) == ("macvlan", "ens0f0", True, 9000)
    assert [str(address) for address, _ in link.addresses] == list(world.held[container(1)])
    await world.check(1)
    assert await world.delete(1) == CniResult()
    world.nothing_left(1)


async def test_the_share_is_bound_to_the_device_of_its_network(world):
    """Each share with the device nodes of its card's device, and the connection manager's."""
    world.ask("rdma,rdma")
    await world.add(1)
    assert {key: edits.char_paths for key, edits in world.bound[container(1)].items()} == {
        one.held: (f"/dev/infiniband/mlx5_{number}", "/dev/infiniband/rdma_cm")
        for number, one in enumerate(SHARED)
    }


@pytest.mark.parametrize(
    ("asks", "sentence"),
    [
        ("rdm", r"networks\[0\]: there is no network default/rdm\. .*Create the NetworkAtt"),
        ("typo", r"type: the node has no CNI plugin brigde in /opt/cni/bin\. Did you mean bridge"),
        ("broken", "mtu"),
        ('[{"name": ', "networks"),
        ("rdma,rdma,rdma", "3 networks need a share of rdma/hca each, and the pod holds 2"),
        ("rdma,typo", "the node has no CNI plugin brigde"),
    ],
)
async def test_what_cannot_be_made_is_refused_with_nothing_left(world, asks, sentence):
    """The kubelet shows the sentence in the pod's event."""
    world.ask(asks)
    await world.refuses(1, sentence)
    assert world.node.told == {}


@pytest.mark.parametrize(
    ("network", "device"),
    [
        (config("macvlan", master="ens0f0"), "bond0.200"),
        (config("host-device", device="ens1f0"), "veth1234"),
        (config("host-device"), "veth1234"),
        (config("host-device", capabilities={"deviceID": True}), "veth1234"),
        (config("macvlan", capabilities={"deviceID": True}), "bond0.200"),
        (config("macvlan"), "ens1f0"),
    ],
)
async def test_a_pod_s_word_takes_no_interface_of_the_node(tmp_path, network, device):
    """The VLAN of others and another pod's veth stay, whatever the pod says; nothing is left."""
    _, document = network
    world = node(tmp_path / "w", SHARED[0], net=(None, document))
    world.kernel.add_link("bond0.200", mac="02:00:00:00:09:01", kind="vlan", up=True)
    world.kernel.add_link("veth1234", mac="02:00:00:00:09:02", kind="veth", up=True)
    world.kernel.add_link("ens1f0", mac="02:00:00:00:09:03", pci="0000:99:00.0", up=True)
    world.before = world.on_node()
    world.ask(f'[{{"name": "net", "deviceID": "{device}", "ips": ["10.200.0.66/24"]}}]')
    await world.refuses(1, "deviceID")


@pytest.mark.parametrize("global_namespaces", [(), ("shared",)])
async def test_a_network_of_another_namespace_is_refused_where_namespaces_are_apart(
    world, global_namespaces
):
    """Whether there is one or not; those of the pod's own, and of namespaces for all, are given."""
    world.node.networks["team-b/rdma"] = world.node.networks["default/rdma"]
    world.node.networks["shared/rdma"] = world.node.networks["default/rdma"]
    world.global_namespaces = global_namespaces
    world.start()
    refused = [
        "team-b/rdma",
        "rdma,team-b/nothing@net7",
        *([] if global_namespaces else ["shared/rdma"]),
    ]
    for asks in refused:
        world.ask(asks)
        await world.refuses(1, "and this pod is of namespace default")
    world.ask("default/rdma,shared/rdma" if global_namespaces else "rdma")
    await world.add(1)
    await world.goes(1)


async def test_an_address_that_somebody_has_is_refused_with_nothing_left(world):
    """Only where the pool says that the network is asked; the sentence has the MAC."""
    taken = ip_address("10.9.0.1")
    world.kernel.neighbours[taken] = "02:00:00:00:00:99"
    world.ask("rdma")
    await world.add(1)
    assert world.held == {container(1): {str(taken)}}
    await world.delete(1)
    world.node.pools = {name: replace(one, probe=True) for name, one in world.node.pools.items()}
    await world.refuses(1, f"{taken} is in use already: 02:00:00:00:00:99 answers")


async def test_the_reason_of_an_add_is_told_and_not_that_of_its_clean_up(world):
    world.ask("rdma")

    def fail():
        world.giver.failing = Unavailable("The disk is full.")
        raise Unavailable("The API server does not answer.")

    world.node.before_telling = fail
    with pytest.raises(Unavailable, match="API server"):
        await world.add(1)
    world.giver.failing = None
    await world.goes(1)


async def test_an_add_after_one_that_could_not_be_ended_begins_anew(world):
    """The same sandbox; what is left of the first one is ended before."""
    world.ask("rdma")

    def fail():
        world.giver.failing = Unavailable("The disk is full.")
        raise world.giver.failing

    world.node.before_telling = fail
    with pytest.raises(Unavailable):
        await world.add(1)
    assert "net1" not in world.inside(1)[0]
    world.giver.failing, world.node.before_telling = None, lambda: None
    await world.add(1)
    await world.holds_and_goes(1)


async def test_an_add_that_is_repeated_changes_nothing(world):
    world.ask("rdma,rdma")
    await world.add(1)
    before = world.inside(1), dict(world.held), list(world.life.acts)
    assert await world.add(1) == CniResult()
    assert (world.inside(1), world.held, world.life.acts) == before


async def test_del_knows_no_errors_where_there_is_nothing(world):
    """Of an unknown container, twice, and with its namespace gone."""
    assert await world.delete(1) == CniResult()
    world.ask("rdma")
    await world.add(1)
    world.end(1)
    assert await world.delete(1) == CniResult()
    assert await world.delete(1) == CniResult()
    world.nothing_left()


async def test_check_finds_an_address_that_somebody_removed(world):
    """The sentence names interface, network and address."""
    world.ask("rdma")
    await world.add(1)
    link = next(one for one in world.kernel.links if one.name == "net1")
    ((address, _),) = link.addresses
    link.addresses = []
    with pytest.raises(Broken, match=rf"net1 \(default/rdma\): the address {address}/24 is not"):
        await world.check(1)


async def test_gc_ends_what_is_not_valid(tmp_path):
    world = node(tmp_path / "w", SHARED[0], rdma=config("macvlan"))
    world.ask("rdma")
    second = world.sandbox()
    await world.add(1)
    await world.add(second)
    kept = world.inside(second)
    await world.gc(second)
    assert set(world.held) == set(world.bound) == {container(second)}
    assert "net1" not in world.inside(1)[0]
    assert world.inside(second) == kept
    await world.gc()
    world.nothing_left(second)


async def test_status_says_to_callers_by_name_when_no_address_could_be_given(world):
    """Behind the cluster's plugin it would make the node NotReady, for all other pods too."""
    status = Call(Verb.STATUS, "1.1.0", "cluster", b"{}", container(1), eth0)
    assert await world.networks.answer(status) == CniResult()
    world.giver.failing = Unavailable("The API server does not answer.")
    with pytest.raises(Unavailable, match="API server"):
        await world.networks.answer(status)
    assert await world.networks.answer(replace(status, marked=True)) == CniResult()
