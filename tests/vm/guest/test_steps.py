"""Steps on the real kernel: a card with virtual functions, macvlan, Soft-RoCE in namespaces."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.rtnl_read import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_write import make_link
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.adapters.kernel.sysfs.pod import PodSysfs
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRoute,
    AddRule,
    AwaitGid,
    MakeLink,
    MakeRdma,
    SetLink,
    TakeLink,
    VirtualKind,
)
from kube_rdma.model.device import PciAddress, PlannedHostLink
from kube_rdma.model.pools import FunctionPlace

from .node_ways import NodeWays
from .steps_contract import MAC, MARK, PRIORITY, TABLE, V4, Links
from .steps_contract_probe import LENGTHS, Probed
from .steps_contract_rdma import Made, Rdma, macvlan
from .steps_contract_vf import WANTED, Functions, reset, setting
from .world import CARDS, NET, PHYSICAL_FUNCTION, before_6_15, interface, links, run, until

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]

POD = "steps"
PATH = Path("/run/netns", POD)
NEAR = "near"  # a neighbour of the pod's interface
NO_MAC = "00:00:00:00:00:00"


class RealWorld(NodeWays):
    """The bare machine's kernel; the pod is a namespace."""

    def __init__(self, card, parent, place):
        self.card, self.parent, self.place = card, parent, place
        self.near = macvlan(self)
        self.patch = pytest.MonkeyPatch()

    def open(self, **options):
        return open_pod(PATH, **options)

    def open_gone(self):
        return open_pod(None)

    def end(self):
        pci = self.card.pci
        run("ip", "netns", "delete", POD)
        until(lambda: not PATH.exists() and any(Path(f"/sys/bus/pci/devices/{pci}/net").glob("*")))
        until(lambda: "rxe-pod" not in links())

    def again(self):
        run("ip", "netns", "add", POD)

    def go_down(self, name):
        run("ip", "-n", POD, "link", "set", name, "down")

    def node_link(self, name):
        if not (NET / name).exists():
            return None
        (found,) = json.loads(run("ip", "-json", "link", "show", name))
        return found["mtu"], found["address"], "UP" in found["flags"]

    def node_addresses(self, name):
        (found,) = json.loads(run("ip", "-json", "address", "show", name, "scope", "global"))
        shown = [one for one in found["addr_info"] if one]  # what the filter left out is empty
        return {f"{one['local']}/{one['prefixlen']}" for one in shown}

    def add_link(self, name, *, pod):
        where = ("-n", POD) if pod else ()
        run("ip", *where, "link", "add", name, "type", "dummy")

    def neighbour(self, address):
        parent = self.parent.name
        run("ip", "link", "add", NEAR, "up", "link", parent, "type", "macvlan", "mode", "bridge")
        more = ("nodad",) if address.version == 6 else ()
        run("ip", "address", "add", f"{address}/{LENGTHS[address]}", "dev", NEAR, *more)
        return state(NEAR)["address"]

    def half_made(self, step):
        def made():
            with PATH.open() as pod, open_rtnl() as netlink:
                request = make_link(step, pod.fileno())
                try:
                    netlink.ask(request.kind, request.body, more=request.flags)
                except Unavailable:  # EBUSY: an ipvlan of the last test's namespace is going yet
                    return False
            return True

        until(made)

    def moved_only(self, step):
        run("ip", "link", "set", step.link.name, "netns", POD)

    def rename(self, old, new):
        run("ip", "link", "set", old, "name", new)

    def call_also(self, name, also, *, pod):
        where = ("-n", POD) if pod else ()
        run("ip", *where, "link", "property", "add", "dev", name, "altname", also)

    def add_rdma(self, name):
        run("rdma", "link", "add", name, "type", "rxe", "netdev", self.parent.name)

    def rdma_names(self):
        return links()

    def unplug(self):
        """The world's fixture makes it again."""
        numbers(self.place.physical.name).write_text("0")

    def before_6_15(self):
        before_6_15(self.patch)


@pytest.fixture(scope="module")
def function():
    with one_function() as made:
        yield made


@contextmanager
def one_function():
    """The PCI function of a VF, bound to its driver."""
    name = interface(PHYSICAL_FUNCTION)
    run("ip", "link", "set", name, "up")
    until(lambda: (NET / name / "carrier").read_text() == "1\n")  # it takes no rates before
    numbers(name).write_text("1")
    path = NET / name / "device/virtfn0"
    until(lambda: any(path.glob("net/*")))
    yield path.resolve()
    numbers(name).write_text("0")


def numbers(physical):
    """Where it is told how many virtual functions a card has."""
    return NET / physical / "device/sriov_numvfs"


def state(name):
    (found,) = json.loads(run("ip", "-json", "link", "show", name))
    return found


@pytest.fixture
def world(function):
    with real_world(function, RealWorld) as made:
        yield made


@contextmanager
def real_world(function, kind):
    """A world of this kind around a VF, which is called vf0 in it; no trace of it afterwards."""
    parent = interface(CARDS[0])
    run("ip", "link", "set", parent, "mtu", "1500", "up")
    (path,) = function.glob("net/*")
    if path.name != "vf0":
        run("ip", "link", "set", path.name, "down")
        run("ip", "link", "set", path.name, "name", "vf0")
    run("ip", "link", "set", "vf0", "down", "mtu", "1500")
    found = state("vf0")
    card = TakeLink(
        PlannedHostLink(found["ifindex"], "vf0"),
        "net1",
        PciAddress(function.name),
        found["mtu"],
        found["address"],
        up=False,
    )
    run("ip", "netns", "add", POD)
    physical = interface(PHYSICAL_FUNCTION)
    above = PciAddress((NET / physical / "device").resolve().name)
    place = FunctionPlace(PlannedHostLink(state(physical)["ifindex"], physical), above, 0)
    made = kind(card, PlannedHostLink(state(parent)["ifindex"], parent), place)
    yield made
    made.patch.undo()
    run("sh", "-c", f"ip netns delete {POD} 2>/dev/null || true")
    if not function.exists():
        numbers(physical).write_text("1")
    until(lambda: any(function.glob("net/*")))
    run("ip", "link", "set", physical, "vf", "0", "mac", NO_MAC)
    run("sh", "-c", f"ip link delete {NEAR} 2>/dev/null || true")
    for name in ("net1", "vf0"):
        run("sh", "-c", f"ip link delete {name} type dummy 2>/dev/null || true")
    for name in links():
        run("sh", "-c", f"rdma link delete {name} || true")
    until(lambda: not links())


class TestLinks(Links):
    pass


class TestMade(Made):
    pass


class TestProbed(Probed):
    pass


class TestRdma(Rdma):
    pass


class TestFunctions(Functions):
    pass


def test_iproute2_sees_what_a_function_was_set_to(world):
    name = world.place.physical.name
    with world.open() as pod:
        step = setting(world, pod, WANTED)
        before = run("ip", "link", "show", name)
        pod.run(step)
        told = run("ip", "link", "show", name)
        for words in ("vlan 100, qos 3", "max_tx_rate 100Mbps", "spoof checking off", "trust on"):
            assert words in told
        pod.undo(reset(step))
    assert run("ip", "link", "show", name) == before


def test_iproute2_sees_what_was_asked(world):
    with world.open() as pod:
        for step in (
            MakeLink(VirtualKind.MACVLAN, world.parent, "net1", MARK, "vepa", 1400, MAC),
            SetLink("net1"),
            AddAddress("net1", V4, 24),
            AddRoute("net1", ip_network("10.9.0.0/24"), None, V4, TABLE),
            AddRoute("net1", ip_network("10.8.0.0/16"), ip_address("10.9.0.254")),
            AddRule(V4, TABLE, PRIORITY),
        ):
            pod.run(step)
    (made,) = json.loads(run("ip", "-n", POD, "-details", "-json", "link", "show", "net1"))
    assert made["linkinfo"]["info_kind"] == "macvlan"
    assert made["linkinfo"]["info_data"]["mode"] == "vepa"
    assert (made["mtu"], made["address"], made["ifalias"]) == (1400, MAC, MARK)
    (given,) = json.loads(run("ip", "-n", POD, "-4", "-json", "address", "show", "net1"))
    (address,) = given["addr_info"]
    assert (address["local"], address["broadcast"]) == ("10.9.0.1", "10.9.0.255")
    text = run("ip", "-n", POD, "route", "show", "table", str(TABLE))
    assert text.strip() == "10.9.0.0/24 dev net1 proto static scope link src 10.9.0.1"
    assert "10.8.0.0/16 via 10.9.0.254 dev net1" in run("ip", "-n", POD, "route", "show")
    assert f"{PRIORITY}:\tfrom 10.9.0.1 lookup {TABLE}" in run("ip", "-n", POD, "rule", "show")


def test_a_device_that_the_node_does_not_show_is_read_in_the_pod_s_own_sysfs(world, tmp_path):
    """The node's class/infiniband is empty here, as for a device that was moved."""
    steps = (
        macvlan(world),
        SetLink("net1"),
        AddAddress("net1", V4, 24),
        MakeRdma("rxe-pod", "rxe", "net1"),
        AwaitGid("rxe-pod", "net1", V4),
    )
    with world.open(rdma=tmp_path) as pod:
        for step in steps:
            pod.run(step)
        (device,) = pod.look().rdma
    assert ("net1", V4) in device.gids
    with PATH.open() as namespace, closing(PodSysfs(namespace.fileno(), tmp_path)) as sysfs:
        own = sysfs.devices("rxe-pod").parent / "net"
        assert {path.name for path in own.iterdir() if path.is_dir()} == {"lo", "net1"}


def test_what_is_opened_is_bound_to_the_pod(world):
    """A new descriptor of the namespace has the inode that the pod tells."""
    with world.open() as pod:
        assert pod.inode == PATH.stat().st_ino
        assert (
            open_inside(PATH, lambda: Path("/proc/thread-self/ns/net").stat().st_ino) == pod.inode
        )
