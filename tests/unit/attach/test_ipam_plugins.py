"""Addresses of other IPAM plugins for interfaces that kube-rdma makes, on a made-up node."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.plugins import ProcessOutcome
from kube_rdma.model.pools import Mode
from kube_rdma_testing.kernel.network import KilledError
from tests.unit.attach.delegate_world import DelegateWorld
from tests.unit.attach.network_world import World, card, config, container, share, site_ipam

STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN = "kube-rdma.io/network-status"


def node(folder, kind="macvlan", mode=Mode.SHARED_MULTI, **fields):
    """A pod with a share that asks for a network of this kind, with addresses of site-ipam."""
    cards = [card(0)]
    networks = {"default/site": config(kind, **{"ipam": site_ipam(), **fields})}
    found = World(folder, cards, [share(each, mode) for each in cards], networks)
    found.sandbox()
    found.ask("site")
    return found


@pytest.fixture
def world(tmp_path):
    return node(tmp_path / "w", routes=[])


async def test_another_ipam_plugin_gives_the_addresses_of_kube_rdma_s_interface(world):
    """The link, its RDMA device and routing table are kube-rdma's; the plugin sees it up."""
    await world.add(1)
    links, _, routes, rules, _ = world.inside(1)
    _, _, up, kind, addresses = links["net1"]
    assert (up, kind) == (True, "macvlan")
    assert [str(address) for address, _ in addresses] == ["10.6.0.2"]
    assert [str(one.source) for one in rules] == ["10.6.0.2"]
    assert {(str(one.to), str(one.via)) for one in routes} >= {("0.0.0.0/0", "10.6.0.1")}
    assert world.node.told[STATUS][0]["ips"] == ["10.6.0.2"]
    assert world.node.told[OWN][0]["rdmaDevice"]


async def test_the_plugin_is_told_what_a_main_plugin_would_tell_it(world):
    """The whole configuration at ADD; at CHECK and DEL the interface's result besides."""
    await world.add(1)
    await world.holds_and_goes(1)
    (first, conf), (asked, _), (last, again) = world.site.calls
    assert [one["CNI_COMMAND"] for one in (first, asked, last)] == ["ADD", "CHECK", "DEL"]
    netns = str(world.folder / "netns-1")
    for one in (first, asked, last):
        assert (one["CNI_IFNAME"], one["CNI_NETNS"]) == ("net1", netns)
        assert one["CNI_CONTAINERID"] == container(1)
    assert (conf["type"], conf["name"], conf["ipam"]) == ("macvlan", "site", site_ipam())
    assert "prevResult" not in conf
    assert again["prevResult"]["interfaces"] == [{"name": "net1", "sandbox": netns}]
    assert [one["interface"] for one in again["prevResult"]["ips"]] == [0]


async def test_an_address_that_the_pod_asks_for_goes_to_a_plugin_that_takes_it(tmp_path):
    """By the capability, without a length too: the plugin knows it."""
    world = node(tmp_path / "w", capabilities={"ips": True})
    world.ask('[{"name": "site", "ips": ["10.6.0.77"]}]')
    await world.add(1)
    assert [str(one) for one in world.site.leases.values()] == ["10.6.0.77"]


async def test_a_plugin_that_fails_leaves_no_link(world):
    """Its sentence names plugin, code and reason."""
    world.site.failing = {"code": 11, "msg": "the pool is empty"}
    with pytest.raises(Unavailable, match="site-ipam refuses ADD with code 11: the pool is empty"):
        await world.add(1)
    assert set(world.inside(1)[0]) == {"lo", "eth0"}
    world.site.failing = None
    await world.goes(1)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"{}", "answered ADD without an address"),
        (b'{"ips": [{"address": "10.6.0"}]}', "something that cannot be read"),
        (b'{"ip4": {"ip": "10.6.0.2/24"}}', "answered ADD without an address"),
        (b"oops", "something that is not a result: oops"),
    ],
)
async def test_an_answer_that_gives_no_address_is_a_failure(world, answer, sentence):
    """As of the reference plugins: an interface without its address is not what was asked for."""
    given = world.host.plugins["site-ipam"]

    def mumbling(environment, text):
        outcome = given(environment, text)
        return ProcessOutcome(0, answer) if environment["CNI_COMMAND"] == "ADD" else outcome

    world.host.plugins["site-ipam"] = mumbling
    await world.refuses(1, sentence, Unavailable)


async def test_the_plugin_s_address_is_released_although_the_agent_died_before_its_answer(world):
    """What was about to be called is in the journal, so DEL follows whatever became of it."""
    world.start(at=await _place_of(world, "an IPAM plugin's address"))
    with pytest.raises(KilledError):
        await world.add(1)
    assert world.site.leases
    world.start()
    assert world.attachments.results(next(iter(world.attachments.by_key))) == ()
    await world.delete(1)
    assert world.site.calls[-1][0]["CNI_COMMAND"] == "DEL"
    world.nothing_left(1)


async def test_a_plugin_that_cannot_release_holds_up_no_card(tmp_path):
    """The card is back on the node; the record stays until the address is released too."""
    world = node(tmp_path / "w", "host-device", Mode.EXCLUSIVE)
    await world.add(1)
    world.site.failing = {"code": 100, "msg": "its server is away"}
    with pytest.raises(Unavailable, match="its server is away"):
        await world.delete(1)
    assert world.on_node() == world.before
    world.site.failing = None
    await world.goes(1)


async def test_behind_a_meta_plugin_the_result_has_the_plugin_s_addresses(tmp_path):
    """Type kube-rdma too; its configuration goes on as the meta-plugin gave it."""
    shares = [share(card(0), Mode.SHARED_MULTI)]
    world = DelegateWorld(tmp_path / "w", [card(0)], shares, {})
    world.sandbox()
    world.ask("other/rail")
    told = {"ips": ["10.6.0.50/24"]}
    result = await world.meta(
        "ADD", 1, ipam=site_ipam(), capabilities={"ips": True}, runtimeConfig=told
    )
    assert [str(one.address) for one in result.addresses] == ["10.6.0.50/24"]
    assert world.site.calls[0][1]["runtimeConfig"] == told
    await world.meta("CHECK", 1, ipam=site_ipam())
    await world.meta("DEL", 1)
    world.nothing_left(1)


async def test_status_of_a_network_asks_its_ipam_plugin_too(tmp_path):
    """As of whoever delegates; the entry in the cluster's list asks nobody."""
    world = DelegateWorld(tmp_path / "w", [card(0)], [], {})
    world.sandbox()
    await world.meta("STATUS", 1, cniVersion="1.1.0", ipam=site_ipam())
    ((variables, conf),) = world.site.calls
    assert (set(variables), conf["ipam"]) == ({"CNI_COMMAND", "CNI_PATH", "PATH"}, site_ipam())
    world.site.failing = {"code": 50, "msg": "its server is away"}
    with pytest.raises(Unavailable, match="site-ipam refuses STATUS with code 50: its server"):
        await world.meta("STATUS", 1, cniVersion="1.1.0", ipam=site_ipam())
    await world.chain("STATUS", 1)


async def test_gc_of_the_runtime_releases_what_lost_its_sandbox_one_by_one(world):
    """The plugin itself gets no GC: others may have addresses of it that no record here has."""
    await world.add(1)
    await world.gc()
    assert [one["CNI_COMMAND"] for one, _ in world.site.calls] == ["ADD", "DEL"]
    world.nothing_left(1)


async def _place_of(world, act):
    """The number that an act has in the life of an agent that is not killed."""
    twin = node(world.folder.parent / "twin")
    await twin.add(1)
    return twin.life.acts.index(act) + 1
