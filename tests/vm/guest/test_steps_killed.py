"""An agent that is killed after any message to the real kernel leaves nothing.

Pictures are taken over netlink, as often as they are needed; what iproute2 shows is compared once,
around all tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import traceback
from contextlib import closing, contextmanager
from itertools import count

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.cni.plugins import Plugins
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import LOCK, Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.netlink.codec import Attribute, Netlink, encode_attributes
from kube_rdma.adapters.kernel.netlink.rdma_read import NETLINK_RDMA
from kube_rdma.adapters.kernel.netlink.rdma_write import devices, netdev_of
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    link_ways,
    open_rtnl,
    seen_links,
    seen_routes,
    seen_rules,
)
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.links import PodSysctls
from kube_rdma.adapters.kernel.pod.namespaces import make_namespace, open_inside
from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.attach.executor import AttachmentJournal, PlanExecutor
from kube_rdma.attach.rules.host_links import host_network, with_ways
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.attach import attachment
from kube_rdma.pools.rules.discovery import judge
from kube_rdma.pools.rules.selection import cards
from kube_rdma_selftest.trial import SelftestScene
from kube_rdma_testing.cni.plugins import FakeHost
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.kernel.network import KilledError

from .killed_plans import PLANS, SANDBOX, planned
from .steps_contract_killed import Agent, Killed, clean, each_death
from .world import CARDS, NET, PHYSICAL_FUNCTION, before_6_15, interface, links, run, until

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

ADDRESSES = ("192.0.2.1/24", "2001:db8::1/64")
HERE, THERE = "kr-pod", "eth0"  # the ends of a pod's veth
NEWLINK, GETLINK, NEW = 16, 18, 0x600  # RTM_*, NLM_F_CREATE | NLM_F_EXCL
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg
IFNAME, LINKINFO, NET_NS_FD, INFO_KIND, INFO_DATA, PEER = 3, 18, 28, 1, 2, 1


def on_this_kernel():
    """Those of links that are made in the pod only now and then: each takes half a minute."""
    for name, wanted in PLANS.items():
        made = any(want.kind is not attachment.NetworkKind.DEVICE for want in wanted)
        yield pytest.param(wanted, id=name, marks=[pytest.mark.slow] if made else [])


class RealWorld:
    """The bare machine's kernel."""

    def __init__(self, card, function):
        self.card, self.function = card, function
        self.open = open_pod
        self._survey = take_survey()
        self._places = [place for place, _ in self.scene().functions]
        self.shown = shown()

    def scene(self):
        """The survey is an old one, as the agent's is; the links are those of now."""
        with open_rtnl() as netlink:
            links = seen_links(netlink)
            network = with_ways(host_network(self._survey, links), link_ways(netlink, links))
            places = [link.virtual for link in network.links if link.virtual]
            functions = seen_functions(netlink, places)
        return SelftestScene(cards(self._survey, judge(self._survey)), network, functions)

    def on_node(self):
        """Without what the kernel gives an interface by itself, and in its own time."""
        with open_rtnl() as netlink, Netlink(NETLINK_RDMA) as rdma:
            seen = [link for link in seen_links(netlink) if link.name != HERE]
            routes = [route for route in seen_routes(netlink, seen) if not route.to.is_link_local]
            return (
                sorted(map(lasting, seen), key=str),
                sorted(routes, key=str),
                seen_rules(netlink),
                seen_functions(netlink, self._places),
                sorted((device.name, netdev_of(device)) for device in devices(rdma)),
            )

    @contextmanager
    def pod(self):
        """Its veth goes at one moment with all that is in the namespace."""
        namespace = make_namespace()
        try:
            with open_rtnl() as netlink:
                netlink.ask(NEWLINK, veth(namespace), more=NEW)
            yield namespace
        finally:
            os.close(namespace)
            until(lambda: not (NET / HERE).exists())

    def view(self, namespace, sysctls=(), functions=()):
        """Not by the pod's namespace, which reads the 1024 GIDs of each soft device."""
        with (
            open_inside(namespace, open_rtnl) as netlink,
            open_inside(namespace, lambda: Netlink(NETLINK_RDMA)) as rdma,
            open_rtnl() as node,
            closing(PodSysctls(namespace)) as inside,
        ):
            found = seen_links(netlink)
            return attachment.PodView(
                found,
                seen_routes(netlink, found),
                seen_rules(netlink),
                tuple(
                    attachment.SeenRdma(device.name, netdev_of(device)) for device in devices(rdma)
                ),
                tuple((path, inside.read(path)) for path in sysctls),
                seen_functions(node, functions),
            )

    def dies(self, after, work):
        def end():
            raise KilledError

        try:
            with after_each_message(fate(after, end)):
                work()
        except KilledError:
            return True
        return False

    def until(self, condition):
        try:
            return until(condition)
        except AssertionError:
            return False  # the test says what is other

    @contextmanager
    def net1_is_taken(self):
        run("ip", "link", "add", "net1", "link", self.card, "type", "macvlan")
        try:
            with pytest.MonkeyPatch.context() as patch:
                before_6_15(patch)
                yield
        finally:
            run("ip", "link", "delete", "net1")


def fate(after, end):
    """For after_each_message: the end of whoever sent so many."""
    sent = count(1)

    def act():
        if next(sent) == after:
            end()

    return act


@contextmanager
def after_each_message(act):
    """Here all messages of this process leave; what the kernel refuses may have had an effect."""
    ask, write = Netlink.ask, os.write

    def asked(netlink, kind, body=b"", *, dump=False, more=0):
        try:
            return ask(netlink, kind, body, dump=dump, more=more)
        finally:
            if not dump and kind != GETLINK:
                act()

    def written(descriptor, text):
        try:
            return write(descriptor, text)
        finally:
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Netlink, "ask", asked)
        patch.setattr(os, "write", written)
        yield


def lasting(link):
    """What comes home with a link: not its index, nor the address that it has by its MAC."""
    kept = tuple(one for one in link.addresses if not one[0].is_link_local)
    return replace(link, index=0, addresses=kept)


def state(name):
    """Of an interface; it follows the carrier, a moment later."""
    return (NET / name / "operstate").read_text().strip()


def veth(namespace):
    """The request for one from the node to a namespace."""

    def end(name, *more):
        named = Attribute(IFNAME, name.encode() + b"\0")
        return LINK.pack(0, 0, 0, 0, 0) + encode_attributes([named, *more])

    other = end(THERE, Attribute(NET_NS_FD, struct.pack("=I", namespace)))
    peer = encode_attributes([Attribute(PEER, other)])
    info = [Attribute(INFO_KIND, b"veth"), Attribute(INFO_DATA, peer)]
    return end(HERE, Attribute(LINKINFO, encode_attributes(info)))


def shown():
    """The node as its own tools show it."""
    found = json.loads(run("ip", "-json", "-details", "address", "show"))
    for link in found:
        del link["ifindex"]
        given = [one for one in link["addr_info"] if one.get("scope") == "global"]
        link["addr_info"] = [(one["local"], one["prefixlen"]) for one in given]
    functions = run("ip", "link", "show", interface(PHYSICAL_FUNCTION))
    rdma = [(one["ifname"], one["netdev"]) for one in json.loads(run("rdma", "-j", "link"))]
    return sorted(found, key=str), functions, sorted(rdma)


@pytest.fixture(scope="module")
def world():
    """One for all tests, for each of them leaves it as it was."""
    physical, card = interface(PHYSICAL_FUNCTION), interface(CARDS[0])
    folder = NET / physical / "device"
    run("ip", "link", "set", physical, "up")
    until(lambda: (NET / physical / "carrier").read_text() == "1\n")  # it takes no rates before
    (folder / "sriov_numvfs").write_text("1")
    until(lambda: any(folder.glob("virtfn0/net/*")))
    (function,) = (path.name for path in folder.glob("virtfn0/net/*"))
    for name in (function, card):
        run("ip", "link", "set", name, "up")
    # Then the physical function tells the MAC that the function's driver has asked for.
    until(lambda: all(state(name) == "up" for name in (physical, function, card)))
    for address in ADDRESSES:
        run("ip", "address", "add", address, "dev", card)
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", card)
    yield RealWorld(card, function)
    (folder / "sriov_numvfs").write_text("0")
    for name in links():
        run("rdma", "link", "delete", name)
    run("ip", "address", "flush", "dev", card, "scope", "global")
    until(lambda: not links())


class TestKilled(Killed):
    """On this kernel; in `make test` of the cards that leave the node, of all plans on the fake."""

    @pytest.fixture(params=on_this_kernel())
    def agent(self, request, world):
        """One that knows the plans of a pod."""
        return Agent(world, planned(world, request.param))


def test_a_process_that_was_killed_is_followed_by_one_that_reads_its_journal(world, tmp_path):
    """SIGKILL ends it anywhere in the life of a pod, from before ADD until after DEL."""
    plans = planned(world, PLANS["a whole card with rxe"])

    def act(after, _):
        with world.pod() as pod:
            path = f"/proc/{os.getpid()}/fd/{pod}"
            sandbox = replace(SANDBOX, netns_path=path, netns_inode=os.fstat(pod).st_ino)
            wanted = attachment.Attachment(sandbox, plans)
            died = process_dies(after, lambda: asyncio.run(life(tmp_path, wanted, pod)))
            asyncio.run(recovery(tmp_path))
            clean(world, pod)
        assert {path.name for path in tmp_path.iterdir()} == {LOCK}
        return died

    assert each_death(world, act) >= 2 * 8


@contextmanager
def attaching(folder):
    """The agent's own, over a journal on this disk."""
    journal = Journal(Folder(folder), ATTACHMENTS)
    records = AttachmentJournal(journal, Journal(FakeDisk(), ATTACHMENTS))
    yield PlanExecutor(records, open_pod, Plugins(FakeHost({}, lambda _: None)))
    journal.close()


async def life(folder, wanted, namespace):
    """ADD and DEL."""
    key = attachment.AttachmentKey(wanted.sandbox.container)
    with attaching(folder) as agent:
        agent.begin(key, wanted.sandbox)
        await agent.attach(key, wanted, namespace)
        await agent.journal.complete(key)
        await agent.detach(key)
        await agent.forget(key)


async def recovery(folder):
    """What the journal still has is ended."""
    with attaching(folder) as agent:
        for key in agent.by_key:
            await agent.detach(key)
            await agent.forget(key)


def process_dies(after, work):
    """Whether so many messages and writes killed the process that did the work."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with after_each_message(fate(after, lambda: os.kill(os.getpid(), signal.SIGKILL))):
                work()
            code = 0
        except BaseException:  # noqa: BLE001  it must not go on with the tests
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "what it said was captured"
    return False


def test_the_node_s_own_tools_see_no_difference_after_all_of_these_tests(world):
    # A function's carrier may be away for a while: igbvf resets one whose mailbox was slow.
    world.until(lambda: shown() == world.shown)
    (now, *others), (before, *others_before) = shown(), world.shown
    assert [link for link in now if link not in before] == []
    assert len(now) == len(before)
    assert others == others_before
