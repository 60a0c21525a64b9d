"""A node that gives pods networks, whose agent can be killed after anything that it did.

Kernel, disk, addresses, late binding and the API server are the world: they outlive the agent. Its
Life (network_life.py) counts what it does to them.
"""

import json
from contextlib import contextmanager
from functools import cache
from ipaddress import IPv6Address
from itertools import count

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.cni.plugins import Plugins
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.attach.attach import AttachDependencies
from kube_rdma.attach.calls import CniRouter
from kube_rdma.attach.documents import cni_conf, network_definition
from kube_rdma.attach.documents.network_status import statuses
from kube_rdma.attach.executor import AttachmentJournal, PlanExecutor
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.rules.plan import gid_room, gids_wanted
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.model.attach.attachment import GidTable, GrantedShare, HostLink, HostNetwork
from kube_rdma.model.attach.cni import Call, CniAttachment, CniResult, Verb
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Gid,
    GidType,
    PciAddress,
    PciPosition,
    PlannedHostLink,
)
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Bind, FunctionPlace, Mode, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma_testing.cni.ipam import FakeIpam
from kube_rdma_testing.cni.plugins import FakeHost
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.ipam import FakeAddresses
from kube_rdma_testing.kernel.network_vf import seen_functions
from tests.kit.pod_networks import AS_MADE, WIDE_MADE
from tests.unit.agent.conftest import card as device
from tests.unit.attach.network_life import Addresses, Disk, Kernel, Late, Life
from tests.unit.attach.other_plugin import Veths

POD = PodName("default", "train-0")
UID = "uid-1"
RANGE = "10.9.0.0/24"
RESOURCE = "rdma/hca"
WIDE_GUID = "02:00:00:00:00:00"  # of every function, with two more octets
eth0 = InterfaceName("eth0")


def card(number, *, soft=False, virtual=False, wide=False):
    """The card whose interface is ens<number>f0: one with RDMA hardware, or with an rxe on it.

    `wide`: it is InfiniBand.
    """
    pci = PciAddress(f"0000:{0x10 + number:02x}:00.1")
    physical = PciAddress(f"0000:{0x10 + number:02x}:00.0") if virtual else None
    position = PciPosition(pci, "pci0000:00", (pci,), 0, physical)
    link_type = "infiniband" if wide else "ether"
    netdev = Netdev(f"ens{number}f0", link_type, up=True, carrier=True)
    rxe = device(number)
    port = replace(rxe.ports[0], netdev=netdev.name)
    found = replace(rxe, identity=f"{rxe.name}@{netdev.name}", ports=(port,), position=position)
    if not soft:
        guid = f"0200:0000:0000:{pci[5:7]}01" if wide else None
        found = replace(found, name=f"mlx5_{number}", identity=pci, pci=pci, node_guid=guid)
    return Card(CardId(pci), (found,), Function(position, 0x15B3, 0x1021, "mlx5_core", (netdev,)))


def share(of, mode, resource=RESOURCE, *, early=False):
    return GrantedShare("main", resource, ShareId(f"{of.id}-0"), (of,), mode, Bind.PER_CARD, early)


class Node:
    """What planning asks, answered out of the fake kernel. `failing` is raised by all, if set.

    `before_telling` is called before a status is written.
    """

    def __init__(self, kernel, cards, shares, networks):
        self.life, self.failing, self.told, self.pools = Life(), None, {}, {}
        self.kernel, self.cards, self.shares, self.networks = kernel, cards, shares, networks
        self.annotations, self.labels, self.host_network = {}, {}, False
        self.controlled, self.init_containers = False, ()
        self.confs = ()  # the node's files of CNI configuration
        self.gids = {}  # tables that are not empty, by device
        self.claimed_devices = ()  # what the parameters of the pod's claims ask for
        whole = [one for one in shares if one.mode in (Mode.EXCLUSIVE, Mode.SRIOV)]
        self.owned = tuple((card, one.resource) for one in whole for card in one.cards)
        self.before_telling = lambda: None

    async def pod(self, name, uid):
        self._working()
        if (name, uid) != (POD, UID):
            return None
        annotations = tuple(sorted(self.annotations.items()))
        labels = tuple(sorted(self.labels.items()))
        facts = {
            "host_network": self.host_network,
            "owner": "ReplicaSet/a" if self.controlled else "",
            "init_containers": self.init_containers,
        }
        return PodState(POD.namespace, POD.name, UID, annotations, labels, **facts)

    def has_claims(self, pod):
        return bool(self.claimed_devices)

    async def made(self, sandbox, edits, annotations, holdings):
        """Nor has one with networks."""

    async def ended(self, sandbox):
        """So nothing was told."""

    async def settle(self, sandbox, pod):
        """None of its pods has a claim and no network."""

    async def claimed(self, pod):
        self._working()
        return self.claimed_devices

    async def definition(self, namespace, name, resource=None):
        self._working()
        found = self.networks.get(f"{namespace}/{name}")
        if found is None:
            return None
        tied, text = found
        return load(f"{namespace}/{name}", (tied or resource, text))

    async def configured(self, namespace, name):
        self._working()
        text = cni_conf.text_of(self.confs, name)
        return cni_conf.load(namespace, name, text) if text else None

    async def configurations(self):
        return cni_conf.names(self.confs)

    async def has_pool(self, name):
        self._working()
        return name in self.pools

    async def holdings(self, pod):
        self._working()
        shares = [(one.container, one.resource, (one.share,)) for one in self.shares]
        return tuple(Holding(pod.namespace, pod.name, *share) for share in shares)

    def granted(self, holdings):
        return self.shares if holdings else ()

    async def host(self, wishes=None, granted=(), before=lambda: None):
        self._working()
        before()
        kernel = self.kernel
        links = tuple(
            HostLink(
                one.index,
                one.name,
                one.mtu,
                one.mac,
                one.up,
                one.pci,
                "infiniband" if one.hardware == INFINIBAND else "ether",
                addresses=tuple(one.addresses),
                virtual=place(one),
                kind=one.kind if one.pci is None else "",
            )
            for one in kernel.within(kernel.node)
        )
        mode = NamespaceMode.SHARED if kernel.shared else NamespaceMode.EXCLUSIVE
        return HostNetwork(links, mode, owned=self.owned)

    async def settings(self, functions):
        self._working()
        return seen_functions(self.kernel, functions)

    async def refuse_full(self, planned):
        self._working()
        for name, addresses in gids_wanted(planned).items():
            gid_room(self.gids.get(name, GidTable(name, 256, 0)), addresses)

    async def devices(self, names):
        self._working()
        found = [self._device(n, one) for n, one in enumerate(self.kernel.rdma)]
        return tuple(one for one in found if one.name in names), "/dev/infiniband/rdma_cm"

    def _device(self, number, one):
        gids = tuple(
            Gid(index, gid(address), GidType.ROCE_V2, netdev)
            for index, (netdev, address) in enumerate(self.kernel.gids(one))
            if address
        )
        known = device(number)
        uverbs = CharDevice(CharKind.UVERBS, f"/dev/infiniband/{one.name}", 231, number)
        port = replace(known.ports[0], netdev=one.on.name, gids=gids)
        return replace(known, name=one.name, ports=(port,), char_devices=(uverbs,))

    def rail(self, card):
        return [one.id for one in self.cards].index(card)

    async def pool(self, name):
        self._working()
        return self.pools[name]

    async def ip_pools(self):
        self._working()
        return tuple(self.pools.values())

    async def tell(self, pod, found, call):
        self._working()
        self.life.alive()
        self.before_telling()
        self.told = {key: json.loads(text) for key, text in statuses(pod, found, call)}
        self.life.act("status told")

    def _working(self):
        if self.failing:
            raise self.failing


class World:
    """`networks` are the cluster's: by name the resource that the annotation says, and spec.config.

    `infos` is the folder in which callers are told of devices; it counts at the next start.

    `folder` holds a file for each namespace, whose inode stands for that of the namespace.
    """

    infos = None

    def __init__(self, folder, cards, shares, networks, *, exclusive_rdma=False):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.bound, self.held = folder, {}, {}
        self.disk, self.delegated = FakeDisk(), FakeDisk()
        self.context = NodeContext()
        self.kernel = Kernel(shared=not exclusive_rdma)
        self._put(cards)
        self.node = Node(self.kernel, cards, tuple(shares), networks)
        pool = load("default/any", config("macvlan")).ipam.pool
        self.giver = FakeAddresses([replace(pool, cooldown=0.0)])
        self.node.pools[pool.name] = pool
        self.veths = Veths(self.kernel)
        plugins = dict.fromkeys(("bridge", "whereabouts"), self.veths.call)
        self.site = FakeIpam(self._is_up, self._acted)
        self.host = FakeHost({**plugins, "site-ipam": self._site}, self._inode)
        self.global_namespaces = None  # namespaces of networks for all pods
        self.outdated = None  # who hears of pods that only a new one helps
        self.limits = None  # who has the kernel hold pods to their shares
        self._numbers = count(1)
        self._files = {}
        self.before = self.on_node()
        self.start()

    def _put(self, cards):
        for each in cards:
            (netdev,) = each.function.netdevs
            mac = f"02:00:00:00:00:{each.pci[5:7]}"
            wide = netdev.link_type == "infiniband"
            facts = self._virtual(each, wide) if each.position.physical_function else {}
            if wide:
                mac = f"00:00:00:01:fe:80:00:00:00:00:00:00:{WIDE_GUID}:{each.pci[5:7]}:01"
                facts |= {"hardware": INFINIBAND, "kind": "ipoib"}
            on = self.kernel.add_link(
                netdev.name, mac=mac, pci=each.pci, mtu=9000, up=True, **facts
            )
            for one in each.devices:
                self.kernel.add_rdma(one.name, on, soft=one.pci is None)
                if wide:
                    self.kernel.rdma[-1].guid = f"{WIDE_GUID}:{each.pci[5:7]}:01"
                    self.kernel.rdma[-1].partitions = (0xFFFF, 0x8012)

    def _virtual(self, of, wide):
        """The physical function of a card, and what its virtual one is made with."""
        name, pci = f"pf{of.pci[5:7]}", of.position.physical_function
        mac = f"02:00:00:00:01:{of.pci[5:7]}"
        above = self.kernel.add_link(name, mac=mac, pci=pci, mtu=9000, up=True)
        above.functions = {0: AS_MADE}
        if wide:
            guid = f"{WIDE_GUID}:{of.pci[5:7]}:01"
            above.functions = {0: replace(WIDE_MADE, node_guid=guid, port_guid=guid)}
            above.hardware, above.kind = INFINIBAND, "ipoib"
        return {"physical": above, "number": 0}

    def start(self, at=None, error=None):
        """The agent starts; after act number `at` it is killed, or gets an error (None: never)."""
        self.life = life = Life(at, error)
        self.kernel.life = self.node.life = life
        folders = (Disk(disk, life) for disk in (self.disk, self.delegated))
        journal = AttachmentJournal(*(Journal(one, ATTACHMENTS) for one in folders))
        self.attachments = PlanExecutor(journal, self._open, Plugins(self.host))
        to = AttachDependencies(
            node=self.node,
            giver=self.addresses(life),
            late=LateBindingChoice(self.late(life)),
            attachments=self.attachments,
            inode=lambda fd: self._files[fd].stat().st_ino,
            global_namespaces=self.global_namespaces,
            outdated=self.outdated,
            limits=self.limits,
            infos=self.infos,
        )
        self.calls = CniRouter(to, self.context)
        self.networks = self.calls.pods

    def addresses(self, life):
        return Addresses(self.giver, self.held, life)

    def late(self, life):
        return Late(self.bound, life)

    def _acted(self, what):
        self.life.act(what)

    def _site(self, environment, text):
        """The IPAM plugin that is not ours; the dead call nobody."""
        self.life.alive()
        return self.site.call(environment, text)

    def _is_up(self, path, name):
        paths = [one for one in self._files.values() if str(one) == path and one.exists()]
        link = self.kernel.named(self.kernel.space(paths[0]), name) if paths else None
        return link is not None and link.up

    def _inode(self, path):
        here = [one for one in self._files.values() if str(one) == path and one.exists()]
        return here[0].stat().st_ino if here else None

    @contextmanager
    def _open(self, namespace):
        self.life.alive()
        path = self._files[namespace] if isinstance(namespace, int) else namespace
        with self.kernel.open_pod(path) as pod:
            yield pod

    def ask(self, text):
        self.node.annotations[ANNOTATION] = text

    def sandbox(self, path=None):
        """A new one of the pod, with the cluster's interface in it; its number."""
        number = next(self._numbers)
        path = self._files[number] = path or self.folder / f"netns-{number}"
        path.touch()
        self.kernel.add_pod(path)
        self.kernel.space(path).inode = path.stat().st_ino
        self.kernel.add_link("eth0", mac=f"06:aa:00:00:00:{number:02x}", pod=path, kind="veth")
        return number

    def end(self, number):
        """The sandbox's namespace goes; its file is kept, or its inode could come again.

        Returns the path where it was.
        """
        path = self._files[number]
        self.kernel.end(path)
        path.rename(self.folder / f"gone-{number}")
        return path

    def call(self, verb, number, **facts):
        path = self._files[number]
        there = {"netns": number, "netns_path": str(path)} if path.exists() else {}
        facts = {"pod": POD, "uid": UID, **there, **facts}
        return Call(verb, "1.1.0", "cluster", b"{}", container(number), eth0, **facts)

    async def add(self, number, **facts):
        return await self.networks.answer(self.call(Verb.ADD, number, **facts))

    async def delete(self, number):
        return await self.networks.answer(self.call(Verb.DEL, number))

    async def check(self, number):
        return await self.networks.answer(self.call(Verb.CHECK, number))

    async def gc(self, *numbers):
        valid = tuple(CniAttachment(container(number), eth0) for number in numbers)
        call = Call(Verb.GC, "1.1.0", "cluster", b"{}", ContainerId(""), eth0, valid=valid)
        assert await self.networks.answer(call) == CniResult()

    def inside(self, number):
        space = self.kernel.space(self._files[number])
        links = {
            one.name: (one.mac, one.mtu, one.up, one.kind, tuple(one.addresses))
            for one in self.kernel.within(space)
        }
        devices = {one.name for one in self.kernel.rdma if space in (one.space, one.on.space)}
        return links, devices, tuple(space.routes), tuple(space.rules), dict(space.sysctls)

    def on_node(self):
        kernel = self.kernel
        # The first octets of an IPoIB interface's address change whenever it is made.
        links = {
            one.name: (one.mac[-23:], one.mtu, one.up, one.pci, tuple(one.addresses))
            for one in kernel.within(kernel.node)
        }
        devices = {
            (one.name if one.guid is None else one.guid, one.on.name, one.soft)
            for one in kernel.rdma
            if one.space is kernel.node and one.on.space is kernel.node
        }
        functions = {one.name: dict(one.functions) for one in kernel.within(kernel.node)}
        return links, devices, tuple(kernel.node.routes), tuple(kernel.node.rules), functions

    async def refuses(self, number, words, error=Refused):
        """Assert that an ADD is refused with these words, and leaves no trace."""
        with pytest.raises(error, match=words):
            await self.add(number)
        self.nothing_left(number)

    async def goes(self, number):
        """Assert that a DEL takes all of it back."""
        await self.delete(number)
        self.nothing_left(number)

    async def holds_and_goes(self, number):
        """Assert that CHECK finds nothing wrong, and that a DEL takes all of it back."""
        await self.check(number)
        await self.goes(number)

    def nothing_left(self, number=None):
        """Assert that no trace of an attachment is anywhere, sandbox `number` included."""
        assert self.on_node() == self.before
        assert len(self.kernel.rdma) == len(self.before[1])
        assert (self.held, self.bound, self.veths.records) == ({}, {}, set())
        assert self.site.leases == {}
        assert self.disk.names() == self.delegated.names() == ()
        if number and self._files[number].exists():
            links, devices, *others = self.inside(number)
            assert set(links) == {"lo", "eth0"}
            assert (devices, others) == (set(), [(), (), {}])


def place(link):
    """Where a virtual function is set up; None of any other link."""
    above = link.physical
    return (
        FunctionPlace(PlannedHostLink(above.index, above.name), above.pci, link.number)
        if above
        else None
    )


def container(number):
    return ContainerId(f"{number:064x}")


def config(kind, **fields):
    """A network of RESOURCE with addresses out of RANGE."""
    ipam = {"type": "whereabouts", "range": RANGE}
    return RESOURCE, json.dumps({"cniVersion": "1.0.0", "type": kind, "ipam": ipam, **fields})


def site_ipam(**fields):
    """The ipam block of a plugin that is not kube-rdma's."""
    return {"type": "site-ipam", "subnet": "10.6.0.0/24", **fields}


def gid(address):
    """The RoCE v2 GID of an IPv4 address as sysfs prints it (ipv6_addr_set_v4mapped)."""
    return IPv6Address(0xFFFF << 32 | int(address)).exploded


@cache
def load(name, network):
    resource, text = network
    return network_definition.load(*name.split("/"), text.encode(), resource)
