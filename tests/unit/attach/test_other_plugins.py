"""Networks that plugins of others make: called, checked, told and taken back on a made-up node."""

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import World, card, config, container, share

STATUS = "k8s.v1.cni.cncf.io/network-status"


def node(folder, mode, kind):
    """A pod with two shares, a network of ours of this kind and one of another plugin."""
    cards = [card(0), card(1)]
    networks = {"default/rdma": config(kind), "default/other": config("bridge")}
    found = World(folder, cards, [share(each, mode) for each in cards], networks)
    found.sandbox()
    return found


@pytest.fixture
def world(tmp_path):
    return node(tmp_path / "w", Mode.SHARED_MULTI, "macvlan")


async def test_another_plugin_makes_what_is_not_ours(world):
    """It is told the pod, its namespace and interface, and takes it back with what it answered."""
    world.ask("rdma,other")
    await world.add(1)
    assert world.inside(1)[0]["net2"][3] == "veth"
    await world.holds_and_goes(1)
    (first, _), (asked, answered), (last, again) = world.veths.calls
    netns = str(world.folder / "netns-1")
    assert [one["CNI_COMMAND"] for one in (first, asked, last)] == ["ADD", "CHECK", "DEL"]
    for one in (first, asked, last):
        assert (one["CNI_IFNAME"], one["CNI_NETNS"]) == ("net2", netns)
        assert one["CNI_CONTAINERID"] == container(1)
        assert "K8S_POD_NAMESPACE=default;K8S_POD_NAME=train-0" in one["CNI_ARGS"]
    assert answered["prevResult"] == again["prevResult"]
    assert answered["prevResult"]["dns"] == {"domain": "x"}


async def test_the_status_of_another_plugins_interface_is_what_the_pod_shows(world):
    """In its place in the annotation, with the DNS of the plugin's answer."""
    world.ask("other,rdma")
    await world.add(1)
    other, ours = world.node.told[STATUS]
    assert (other["interface"], other["ips"]) == ("net1", ["10.5.0.2"])
    assert (other["mac"], other["dns"]) == ("06:cc:00:00:00:01", {"domain": "x"})
    assert (ours["interface"], ours["dns"]) == ("net2", {})


async def test_an_interface_beside_another_plugins_answers_for_itself_only(world):
    """It would answer for that one's addresses too, where both are on one network."""
    world.ask("rdma,other")
    await world.add(1)
    assert world.inside(1)[4]["net/ipv4/conf/net1/arp_ignore"] == "1"


async def test_a_plugin_that_fails_takes_all_back(world):
    """Its sentence names plugin, code and reason; ours were made before."""
    world.ask("rdma,other")
    world.veths.failing = {"code": 11, "msg": "no room", "details": "in 10.5.0.0/24"}
    with pytest.raises(Unavailable, match="bridge refuses ADD with code 11: no room: in 10"):
        await world.add(1)
    assert "net1" not in world.inside(1)[0]
    world.veths.failing = None
    await world.goes(1)


async def test_a_plugin_that_cannot_be_run_holds_no_pod(world):
    """It is asked for its version before anything is begun, so that nothing has to be ended."""
    world.host.root, world.host.permitted = "/host", False
    world.ask("rdma,other")
    with pytest.raises(Refused, match=r"bridge cannot be run below /host: .*SYS_CHROOT"):
        await world.add(1)
    assert world.attachments.by_key == {}
    await world.goes(1)


async def test_a_plugin_that_cannot_end_holds_up_no_card(tmp_path):
    """The card is back on the node; the record stays until the plugin has ended too."""
    world = node(tmp_path / "w", Mode.EXCLUSIVE, "host-device")
    world.ask("rdma,other")
    await world.add(1)
    world.veths.failing = {"code": 100, "msg": "it is asleep"}
    with pytest.raises(Unavailable, match="it is asleep"):
        await world.delete(1)
    assert world.on_node() == world.before
    world.veths.failing = None
    await world.goes(1)


async def test_check_finds_an_interface_that_somebody_removed(world):
    world.ask("other")
    await world.add(1)
    link = next(one for one in world.kernel.links if one.name == "net1")
    world.kernel.remove(link)
    with pytest.raises(
        Broken, match=r"net1 \(default/other\): the interface of type bridge is not"
    ):
        await world.check(1)
