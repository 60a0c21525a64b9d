"""Steps on the fake kernel, all of the contract; on this machine's kernel what it can do."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.pod.errors import judged
from kube_rdma.adapters.kernel.pod.probe import arp_announcement
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.model.attach import steps
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import FunctionPlace
from kube_rdma_testing.kernel.network import KilledError, refusal
from kube_rdma_testing.kernel.network_kernel import FakeKernel
from tests.kit.pod_networks import AS_MADE
from tests.unit.adapters.kernel.pod.test_namespaces import holder, needs_root
from tests.vm.guest.node_ways import NodeWays
from tests.vm.guest.steps_contract import MAC, MARK, PRIORITY, TABLE, V4, V6, Links, link
from tests.vm.guest.steps_contract_probe import LENGTHS, Probed
from tests.vm.guest.steps_contract_rdma import Made, Rdma, macvlan
from tests.vm.guest.steps_contract_vf import Functions

POD = Path("/run/netns/pod")
CARD_MAC, FUNCTION_MAC = "52:54:00:00:00:01", "52:54:00:00:01:00"
NEIGHBOUR = "02:00:00:00:00:77"


class FakeWorld:
    """A card and one of its functions."""

    def __init__(self):
        self.kernel = FakeKernel()
        eth = self.kernel.add_link("eth1", mac=CARD_MAC, pci="0000:81:00.0", up=True)
        eth.functions, eth.cannot = {0: AS_MADE}, frozenset({"link_state", "min_rate"})
        own = {"physical": eth, "number": 0}
        vf = self.kernel.add_link("vf0", mac=FUNCTION_MAC, pci="0000:81:00.1", **own)
        self.place = FunctionPlace(PlannedHostLink(eth.index, "eth1"), eth.pci, 0)
        self.parent = PlannedHostLink(eth.index, "eth1")
        self.card = steps.TakeLink(
            PlannedHostLink(vf.index, "vf0"), "net1", vf.pci, vf.mtu, FUNCTION_MAC, up=False
        )
        self.near = self.card
        self.kernel.add_pod(POD)

    def open(self, **options):
        return self.kernel.open_pod(POD, **options)

    def open_gone(self):
        return self.kernel.open_pod(None)

    def end(self):
        self.kernel.end(POD)

    def again(self):
        self.kernel.add_pod(POD)

    def go_down(self, name):
        self.kernel.named(self.kernel.space(POD), name).up = False

    def node_link(self, name):
        found = self.kernel.named(self.kernel.node, name)
        return (found.mtu, found.mac, found.up) if found else None

    def node_addresses(self, name):
        found = self.kernel.named(self.kernel.node, name)
        return {f"{address}/{prefix}" for address, prefix in found.addresses}

    def node_ways(self, name):
        node = self.kernel.node
        routes = (one for one in node.routes if one.name == name)
        shown = {(str(one.to), str(one.via or ""), one.table or 254) for one in routes}
        return shown, {(str(rule.source), rule.table) for rule in node.rules}

    def forget_rule(self, rule):
        self.kernel.node.rules = []

    def add_link(self, name, *, pod):
        where = POD if pod else None
        self.kernel.add_link(name, mac="02:00:00:00:00:99", pod=where, kind="dummy")

    def neighbour(self, address):
        self.kernel.neighbours[address] = NEIGHBOUR
        return NEIGHBOUR

    def half_made(self, step):
        self.kernel.die_after(1)
        with pytest.raises(KilledError), self.open() as pod:
            pod.run(step)

    def moved_only(self, step):
        found = self.kernel.named(self.kernel.node, step.link.name)
        self.kernel.move(found, self.kernel.space(POD), step.link.name)

    def rename(self, old, new):
        self.kernel.rename(self.kernel.named(self.kernel.node, old), new)

    def call_also(self, name, also, *, pod):
        space = self.kernel.space(POD if pod else None)
        assert self.kernel.named(space, also) is None
        self.kernel.named(space, name).alternative_names.add(also)

    def add_rdma(self, name):
        on = self.kernel.named(self.kernel.node, "eth1")
        self.kernel.add_rdma(name, on, soft=True)

    def rdma_names(self):
        return {device.name for device in self.kernel.rdma}

    def unplug(self):
        self.kernel.unplug(self.card.pci)

    def before_6_15(self):
        self.kernel.old = True


def ip(*words):
    done = subprocess.run(("ip", *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class RealWorld(NodeWays):
    """This kernel, in the namespace of a process; the card's link is one end of a veth.

    A veth goes with its namespace, and tells no function: it is found by index, MAC and name.
    """

    def __init__(self, process):
        self._process = process
        self._netns = Path(f"/proc/{process.pid}/ns/net")
        ip("link", "add", "kr-card", "type", "veth", "peer", "name", "kr-peer")
        (found,) = json.loads(ip("-json", "link", "show", "kr-card"))
        where = PlannedHostLink(found["ifindex"], "kr-card")
        self.card = steps.TakeLink(where, "net1", None, found["mtu"], found["address"], up=False)
        self.near = self.card

    def open(self, **options):
        return open_pod(self._netns, **options)

    def open_gone(self):
        return open_pod(None)

    def end(self):
        self._process.stdin.close()
        self._process.wait()

    def node_link(self, name):
        if not Path("/sys/class/net", name).exists():
            return None
        (found,) = json.loads(ip("-json", "link", "show", name))
        return found["mtu"], found["address"], "UP" in found["flags"]

    def node_addresses(self, name):
        (found,) = json.loads(ip("-json", "address", "show", name, "scope", "global"))
        return {f"{one['local']}/{one['prefixlen']}" for one in found["addr_info"]}

    def add_link(self, name, *, pod):
        where = ("netns", str(self._process.pid)) if pod else ()
        ip("link", "add", name, *where, "type", "veth", "peer", "name", "kr-other")

    def neighbour(self, address):
        ip("link", "set", "kr-peer", "up")
        more = ("nodad",) if address.version == 6 else ()
        ip("address", "add", f"{address}/{LENGTHS[address]}", "dev", "kr-peer", *more)
        (found,) = json.loads(ip("-json", "link", "show", "kr-peer"))
        return found["address"]

    def moved_only(self, step):
        ip("link", "set", step.link.name, "netns", str(self._process.pid))

    def rename(self, old, new):
        ip("link", "set", old, "name", new)

    def call_also(self, name, also, *, pod):
        if pod:
            nsenter = ("nsenter", f"--net=/proc/{self._process.pid}/ns/net")
            command = (*nsenter, "ip", "link", "property", "add", "dev", name, "altname", also)
            subprocess.run(command, check=True)
        else:
            ip("link", "property", "add", "dev", name, "altname", also)


@pytest.fixture
def world():
    return FakeWorld()


class TestFakeLinks(Links):
    pass


class TestFakeMade(Made):
    pass


class TestFakeRdma(Rdma):
    pass


class TestFakeProbed(Probed):
    pass


class TestFakeFunctions(Functions):
    pass


@pytest.fixture
def real():
    with holder() as process:
        yield RealWorld(process)
    for name in ("kr-peer", "kr-other"):
        subprocess.run(("ip", "link", "del", name), capture_output=True, check=False)


@needs_root
class TestRealLinks(Links):
    @pytest.fixture
    def world(self, real):
        return real


@needs_root
class TestRealProbed(Probed):
    @pytest.fixture
    def world(self, real):
        return real


def test_macvlan_on_infiniband_is_refused_with_what_to_use(world):
    ib = world.kernel.add_link("ib0", mac="00:" * 19 + "01", hardware=32)
    step = steps.MakeLink(steps.VirtualKind.MACVLAN, PlannedHostLink(ib.index, "ib0"), "net1", MARK)
    with world.open() as pod, pytest.raises(Refused, match="ib0 is InfiniBand") as refused:
        pod.run(step)
    assert "ipoib" in refused.value.remedy


def test_a_device_moves_in_exclusive_mode_and_is_then_the_pod_s_alone():
    kernel = FakeKernel(shared=False)
    eth = kernel.add_link("eth1", mac=CARD_MAC, pci="0000:81:00.0")
    kernel.add_rdma("mlx5_0", eth)
    kernel.add_pod(POD)
    with kernel.open_pod(POD) as pod:
        assert pod.look().rdma == ()
        for _ in range(2):
            pod.run(steps.MoveRdma("mlx5_0", eth.pci))
        assert [device.name for device in pod.look().rdma] == ["mlx5_0"]
    kernel.end(POD)
    assert kernel.rdma[0].space is kernel.node


STEPS = (
    steps.MakeLink(
        steps.VirtualKind.MACVLAN, PlannedHostLink(2, "eth1"), "net1", MARK, "bridge", 1400, MAC
    ),
    steps.SetSysctl("net/ipv4/conf/net1/arp_ignore", "1"),
    steps.SetLink("net1", 1400),
    steps.AddAddress("net1", V4, 24),
    steps.MakeRdma("rxe-pod", "rxe", "net1"),
    steps.AddRoute("net1", ip_network("0.0.0.0/0"), ip_address("10.9.0.254"), None, TABLE),
    steps.AddRule(V4, TABLE, PRIORITY),
    steps.AwaitGid("rxe-pod", "net1", V4),
)


def attach(world):
    """Run all of STEPS; what the pod has then."""
    with world.open() as pod:
        for step in STEPS:
            pod.run(step)
        return pod.look(("net/ipv4/conf/net1/arp_ignore",))


@pytest.mark.parametrize("killed_after", range(1, 9))
def test_an_attachment_killed_after_any_message_is_the_same_when_repeated(world, killed_after):
    world.kernel.die_after(killed_after)
    with pytest.raises(KilledError):
        attach(world)
    assert attach(world) == attach(FakeWorld())


@needs_root
def test_announcements_arrive_at_the_other_end():
    with holder() as process:
        world = RealWorld(process)
        ip("link", "set", "kr-peer", "up")
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as other:
                other.bind(("kr-peer", 3))
                other.settimeout(20)
                with world.open() as pod:
                    for step in (world.card, steps.SetLink("net1", mac=MAC)):
                        pod.run(step)
                    for address, length in ((V4, 24), (V6, 64)):
                        pod.run(steps.AddAddress("net1", address, length))
                        pod.run(steps.Announce("net1", address))
                while not (frame := other.recv(2048)).startswith(b"\xff" * 6):
                    pass
                assert frame[:42] == arp_announcement(bytes.fromhex(MAC.replace(":", "")), V4)
                while b"\x88\x00" not in (frame := other.recv(2048))[54:56]:
                    pass
                assert frame[58:62] == bytes.fromhex("20000000")
                assert frame[62:78] == V6.packed
        finally:
            ip("link", "del", "kr-peer")


def test_the_end_of_a_killed_process_is_not_an_error_that_can_be_caught(world):
    world.half_made(macvlan(world))
    with world.open() as pod:
        assert link(pod).alias == ""
    assert not issubclass(KilledError, Exception)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EINVAL, Refused),
        (errno.EEXIST, Refused),
        (errno.ERANGE, Refused),
        (errno.EBUSY, Unavailable),
        (errno.ENODEV, Unavailable),
        (errno.ENOMEM, Unavailable),
    ],
)
def test_the_kernel_s_number_says_who_has_to_act_and_its_words_are_kept(code, kind):
    said = judged("setting net1", refusal(code))
    assert type(said) is kind
    assert str(said).startswith(f"setting net1: the kernel refuses: {os.strerror(code)}")


def test_a_refusal_without_a_number_can_be_tried_again():
    assert type(judged("setting net1", Unavailable("netlink: no answer"))) is Unavailable


def test_the_fake_refuses_a_world_that_no_kernel_has(world):
    for impossible in (
        lambda: world.kernel.add_link("eth1", mac=CARD_MAC),
        lambda: world.kernel.add_link("eth2", mac=CARD_MAC, mtu=70000),
        lambda: world.kernel.add_pod(POD),
        lambda: [world.add_rdma(name) for name in ("rxe0", "rxe1")],
    ):
        with pytest.raises(ValueError, match=r"already|MTU"):
            impossible()
