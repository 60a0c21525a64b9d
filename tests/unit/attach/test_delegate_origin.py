"""Which network a meta-plugin's call is about, whose card it gets, and what the caller is told."""

import json
import os
from ipaddress import ip_network

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.attach.rules.conflist import rdma_conf
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.model.attach.attachment import GrantedShare
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.attach.steps import AddRoute
from kube_rdma.model.ipam import IPPool, IPRange, PoolName
from kube_rdma.model.pools import Bind, Mode, ShareId
from kube_rdma_testing.ipam import FakeAddresses
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.network_world import card, container, share

A, B = "rdma/hca_shared_devices_a", "rdma/hca_shared_devices_b"
VKE = "vke.volcengine.com/rdma"
RDMA = {"cniConf": {"name": "rdma"}}
INFO_FILE = "/var/run/k8s.cni.cncf.io/devinfo/cni/default-rail-c_net1"


def hca(number, resource):
    return GrantedShare("main", resource, ShareId("hca-0"), (card(number),), Mode.HCA, Bind.POOL)


def text(**config):
    return json.dumps({**NETWORK, **config})


@pytest.fixture
def world(tmp_path):
    """A pod with a share of each of two pools, and a network for each."""
    found = DelegateWorld(tmp_path / "w", [card(0), card(1)], (hca(0, A), hca(1, B)), {})
    found.node.networks = {
        "default/net-a": (A, text(name="net-a")),
        "other/net-b": (B, text(name="of-b")),
    }
    found.sandbox()
    return found


def given(world):
    return {one["interface"]: one["rdmaDevice"] for one in json.loads(world.node.own)}


async def test_the_resource_of_the_document_decides_between_ids_that_are_the_same(world):
    """Else the first resource of the pod would have it, whatever the network is tied to."""
    world.ask("other/net-b,net-a")
    await world.meta("ADD", 1, name="of-b", deviceID="hca-0")
    await world.meta("ADD", 1, "net2", name="net-a", deviceID="hca-0")
    assert given(world) == {"net1": "mlx5_1", "net2": "mlx5_0"}
    bound = {held: edits.char_paths[0] for held, edits in world.bound[container(1)].items()}
    assert bound == {(A, "hca-0"): "/dev/infiniband/mlx5_0", (B, "hca-0"): "/dev/infiniband/mlx5_1"}


async def test_an_id_that_may_mean_two_cards_is_refused(world):
    """The document is no more, so nobody says which of them is meant."""
    world.node.networks.clear()
    world.ask("net-a")
    with pytest.raises(Refused, match=f"hca-0 is a share of {A} and of {B}"):
        await world.meta("ADD", 1, name="net-a", deviceID="hca-0")
    world.nothing_left(1)


async def test_a_resource_that_the_pod_does_not_hold_is_refused(world):
    """Any other card would be the wrong one."""
    world.node.networks["default/net-a"] = ("intel.com/vf", text())
    world.ask("net-a")
    with pytest.raises(Refused, match=r"needs a share of intel.com/vf, and the pod holds none"):
        await world.meta("ADD", 1, name="net-a", deviceID="hca-0")
    world.nothing_left(1)


async def test_a_caller_may_count_networks_of_its_own_before_those_of_the_pod(world):
    """As Multus does with defaultNetworks: the configuration's name tells, not the interface."""
    world.ask("other/net-b,net-a")
    await world.meta("ADD", 1, "net2", name="of-b", deviceID="hca-0")
    await world.meta("ADD", 1, "net3", name="net-a", deviceID="hca-0")
    assert given(world) == {"net2": "mlx5_1", "net3": "mlx5_0"}


async def test_a_network_that_the_caller_gives_every_pod_is_none_of_the_entries(world):
    """Its own name tells, and it takes what card there is."""
    world.ask("other/net-b")
    await world.meta("ADD", 1, "net1", name="for-all")
    assert given(world) == {"net1": "mlx5_0"}
    assert [one["name"] for one in json.loads(world.node.own)] == ["default/for-all"]


async def test_while_nobody_tells_the_resource_the_pod_waits(world):
    """A card must not be guessed because the API server is away."""
    world.ask("other/net-b")

    async def away(namespace, name):
        raise Unavailable("no contact")

    world.node.written = away
    with pytest.raises(Unavailable, match="no contact"):
        await world.meta("ADD", 1, name="of-b", deviceID="hca-0")


def cello(tmp_path, mode=Mode.SHARED, pool=True):
    """A pod with two blocks and two shares, behind Cello."""
    shares = [share(card(n), mode, VKE) for n in range(2)]
    found = DelegateWorld(tmp_path / "w", [card(0), card(1)], shares, {})
    if pool:
        pool = IPPool(PoolName("rdma"), (IPRange(ip_network("10.8.0.0/24")),))
        found.node.pools[pool.name] = pool
        found.giver = FakeAddresses(
            [replace(one, cooldown=0.0) for one in found.node.pools.values()]
        )
        found.start()
    found.sandbox()
    found.node.annotations[POD_NETWORKS] = json.dumps([RDMA, RDMA])
    return found


async def by_cello(world, verb, interface, **runtime):
    """As libcni calls for our own configuration: with what its capabilities let through."""
    conf = json.loads(rdma_conf().text)
    return await world.meta(verb, 1, interface, **{"ipam": None} | conf, runtimeConfig=runtime)


def plans(world):
    return [plan for one in world.attachments.by_key.values() for plan in one.plans]


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.SHARED_MULTI])
async def test_a_block_rdma_behind_cello_is_a_share_with_an_address_of_its_pool(tmp_path, mode):
    """What it is in the chain; but rules to its table Cello makes, and fails where one is there."""
    world = cello(tmp_path, mode)
    for number, one in enumerate(world.node.shares, 1):
        found = await by_cello(world, "ADD", f"eth{number}", deviceID=one.share)
        assert [str(address.address) for address in found.addresses] == [f"10.8.0.{number}/24"]
    links, _, routes, rules, _ = world.inside(1)
    assert set(links) == {"lo", "eth0", "eth1", "eth2"}
    assert rules == ()
    assert {route.table for route in routes if route.table} == {101, 102}
    assert [(one["name"], one["rdmaDevice"]) for one in json.loads(world.node.own)] == [
        ("default/rdma", "mlx5_0"),
        ("default/rdma", "mlx5_1"),
    ]
    for name in ("eth2", "eth1"):
        await by_cello(world, "DEL", name)
    world.nothing_left(1)


async def test_the_id_of_a_share_decides_behind_cello_too(tmp_path):
    """Cello counts the devices itself, and cuts ids off at an @."""
    world = cello(tmp_path)
    first, second = world.node.shares
    soft = replace(second, share=ShareId("rxe1@ens1f0-0"))
    world.node.shares = (first, soft)
    await by_cello(world, "ADD", "eth1", deviceID="rxe1")
    assert list(world.bound[container(1)]) == [soft.held]


async def test_tables_of_both_callers_do_not_meet(tmp_path):
    """Multus over Cello: what Multus asks for gets a table that no block has."""
    world = cello(tmp_path)
    first, second = world.node.shares
    world.node.annotations = {POD_NETWORKS: json.dumps([RDMA]), ANNOTATION: "rail"}
    await by_cello(world, "ADD", "eth1", deviceID=first.share)
    await world.meta("ADD", 1, deviceID=second.share)
    assert [rule.table for rule in world.inside(1)[3]] == [102]
    tables = {step.table for step in plans(world)[0].steps if isinstance(step, AddRoute)}
    assert tables == {101}


async def test_the_cluster_s_network_is_never_made_of_our_configuration(tmp_path):
    """A runtime takes it where Cello's are gone for a moment; the kubelet tries again."""
    world = cello(tmp_path)
    for wiring in (Wiring.NONE, Wiring.CHAIN):
        world.wiring = wiring
        with pytest.raises(Unavailable, match="No cluster network is configured on this node"):
            await by_cello(world, "ADD", "eth0")
    world.nothing_left(1)
    await by_cello(world, "ADD", "eth1")


@pytest.fixture
def told(world, tmp_path):
    """The callers' folder of device information; the pod has a network with the capability."""
    world.infos = DeviceInfoFolder(tmp_path / "devinfo" / "dp")
    world.start()
    world.ask("net-a")
    return tmp_path / "devinfo" / "cni" / INFO_FILE.rpartition("/")[2]


WANTS = {"name": "net-a", "runtimeConfig": {"CNIDeviceInfoFile": INFO_FILE}}


async def test_the_caller_is_told_of_the_device_where_no_file_says_it(world, told):
    """A share of a whole pool has no file of the device plugin, from which Multus would copy."""
    await world.meta("ADD", 1, **WANTS)
    assert json.loads(told.read_text()) == {
        "type": "pci",
        "version": "1.1.0",
        "pci": {"pci-address": "0000:10:00.1", "rdma-device": "mlx5_0"},
    }
    assert told.stat().st_mode & 0o777 == 0o444


async def test_a_caller_without_the_capability_is_not_told(world, told):
    await world.meta("ADD", 1, name="net-a")
    assert not told.parent.exists()


async def test_a_pod_starts_though_the_caller_cannot_be_told(world, told):
    told.parent.parent.mkdir()
    told.parent.write_text("no folder")
    await world.meta("ADD", 1, **WANTS)
    assert "net1" in world.inside(1)[0]
    assert os.listdir(told.parent.parent) == ["cni"]  # noqa: PTH208
