"""The state of a made-up kernel: a node with cards, pods with namespaces, RDMA devices on links.

network_kernel.py is what tests make; network_pod.py runs Steps on this state, and refuses what the
kernel refuses (tests/vm/guest holds both to one contract).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface
from kube_rdma.adapters.kernel.pod.errors import ETHERNET
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma.model.attach.steps import AddRoute, AddRule
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import Address, InterfaceName
from kube_rdma.model.pools import FunctionSettings

MOST = 9216  # the largest MTU of every card here
_NODE_INODE, _FIRST_INODE = 4026531840, 4026532000
VIRTUAL = frozenset({"macvlan", "ipvlan", "veth", "dummy"})  # which end with a namespace


def refusal(code: int) -> Unavailable:
    """Return the error that netlink/codec.py raises for an errno."""
    error = Unavailable(f"the kernel refuses: {os.strerror(code)}")
    error.__cause__ = OSError(code, os.strerror(code))
    return error


class KilledError(BaseException):
    """The simulated death of a process that runs a Step, which no handler of errors catches."""


@dataclass(slots=True)
class FakeSpace:
    """A fake network namespace; `path` is None for that of the node."""

    inode: int
    path: Path | None = None
    routes: list[AddRoute] = field(default_factory=list)
    rules: list[AddRule] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class FakeLink:
    """A fake interface in the namespace where it is now.

    A physical function's link has the settings of its virtual ones by number; their driver cannot
    set the fields in `cannot`. A virtual function's link refers to its physical one.
    """

    name: str
    index: int
    mac: str
    space: FakeSpace
    mtu: int = 1500
    up: bool = False
    kind: str = ""
    parent: FakeLink | None = None
    alias: str = ""
    group: int = 0
    pci: PciAddress | None = None
    hardware: int = ETHERNET  # ARPHRD_*
    addresses: list[tuple[Address, int]] = field(default_factory=list)
    permanent_mac: str = ""
    alternative_names: set[str] = field(default_factory=set)
    functions: dict[int, FunctionSettings] = field(default_factory=dict)
    cannot: frozenset[str] = frozenset()
    physical: FakeLink | None = None
    number: int = 0

    def interface(self) -> Interface:
        """Return the link as routing netlink would show it."""
        seen = SeenLink(
            name=InterfaceName(self.name),
            index=self.index,
            mtu=self.mtu,
            mac=self.mac,
            up=self.up,
            kind=self.kind,
            parent=self.parent.index if self.parent else None,
            alias=self.alias,
            pci=self.pci,
            addresses=tuple(self.addresses),
        )
        alternatives = frozenset(self.alternative_names)
        return Interface(seen, self.hardware, self.group, self.permanent_mac, alternatives)


@dataclass(slots=True)
class FakeRdma:
    """A fake RDMA device on a link; a soft one ends when its link moves or ends."""

    name: str
    on: FakeLink
    soft: bool
    space: FakeSpace
    pci: PciAddress | None = None
    size: int = 1024  # of its GID table
    guid: str | None = None  # its node GUID
    partitions: tuple[int, ...] = ()
    managed: bool = True  # a subnet manager has activated its port


class FakeNetwork:
    """The fake network of a node; if `shared`, RDMA devices are in all namespaces.

    An `old` kernel, before Linux 6.15, makes a link in a pod only if the node has none of its name.
    """

    def __init__(self, *, shared: bool = True, old: bool = False) -> None:
        self.shared, self.old = shared, old
        self.node = FakeSpace(_NODE_INODE)
        self.links: list[FakeLink] = []
        self.rdma: list[FakeRdma] = []
        self.announced: list[tuple[str, Address]] = []
        self.neighbours: dict[Address, str] = {}  # the MAC of another host that has it
        self.bare: dict[PciAddress, FakeRdma] = {}  # of functions without a driver
        self.unplugged: set[PciAddress] = set()
        self.messages = 0
        self._spaces: dict[Path, FakeSpace] = {}
        self._made = 1  # the last index; lo has 1 in every namespace
        self._die_at: int | None = None
        self._add_loopback(self.node)

    def add_link(
        self, name: str, *, mac: str, pod: Path | None = None, **facts: object
    ) -> FakeLink:
        """Add a link to the node or a pod; raise ValueError for a taken name or an MTU above MOST.

        `facts` are fields of FakeLink. `pci` makes it a card's own.
        """
        space = self.space(pod)
        if self.named(space, name):
            raise ValueError(f"there is a link {name} already")
        link = FakeLink(name, self.next_index(), mac, space, permanent_mac=mac)
        for key, value in facts.items():
            setattr(link, key, value)
        if link.mtu > MOST:
            raise ValueError(f"no card has an MTU of {link.mtu}")
        self.links.append(link)
        return link

    def add_rdma(self, name: str, on: FakeLink, *, soft: bool = False, size: int = 1024) -> None:
        """Add an RDMA device to a link; raise ValueError if the name or the link is taken."""
        if any(device.name == name or device.on is on for device in self.rdma):
            raise ValueError(f"{name} or {on.name} has a device already")
        pci = None if soft else on.pci
        space = self.node if self.shared else on.space
        self.rdma.append(FakeRdma(name, on, soft, space, pci, size))

    def add_pod(self, path: Path) -> int:
        """Add a namespace and return its inode, never used again; raise ValueError if it exists."""
        if path in self._spaces:
            raise ValueError(f"there is a namespace at {path} already")
        self._made += 1
        self._spaces[path] = FakeSpace(_FIRST_INODE + self._made, path)
        self._add_loopback(self._spaces[path])
        return self._spaces[path].inode

    def unplug(self, pci: PciAddress) -> None:
        """Take a card or function out of the machine, with its links and RDMA devices."""
        self.unplugged.add(pci)
        for link in [link for link in self.links if link.pci == pci]:
            self.rdma = [device for device in self.rdma if device.on is not link]
            self.remove(link)

    def die_after(self, messages: int) -> None:
        """Let `message` raise KilledError once this many further messages took effect."""
        self._die_at = self.messages + messages

    # What the kernel does, for network_pod.py.

    def message(self) -> None:
        """Count a message that took effect; raise KilledError where the process has to die."""
        self.messages += 1
        if self.messages == self._die_at:
            raise KilledError

    def space(self, pod: Path | None) -> FakeSpace:
        """Return the namespace at a path, or the node's for None."""
        return self.node if pod is None else self._spaces[pod]

    def next_index(self) -> int:
        """Return an interface index that no link had before."""
        self._made += 1
        return self._made

    def named(self, space: FakeSpace, name: str) -> FakeLink | None:
        """Return the link with a name or alternative name in a namespace, None without one."""
        within = self.within(space)
        return next((one for one in within if one.interface().is_called(name)), None)

    def within(self, space: FakeSpace) -> list[FakeLink]:
        """Return the links of a namespace."""
        return [link for link in self.links if link.space is space]

    def move(self, link: FakeLink, space: FakeSpace, name: str) -> None:
        """Move a link to a namespace and rename it; it goes down and loses its addresses.

        Its routes, sysctls and soft RDMA device are lost too. Raise Unavailable as `rename` does.
        """
        self._leave(link)
        link.space, link.up, link.addresses = space, False, []
        self.rename(link, name)

    def rename(self, link: FakeLink, name: str) -> None:
        """Rename a link; raise Unavailable (EEXIST) for a taken name, also an alternative one."""
        if link.name != name:
            if self.named(link.space, name):
                raise refusal(errno.EEXIST)
            link.name = name

    def remove(self, link: FakeLink) -> None:
        """Remove a link and the links on it."""
        for child in [one for one in self.links if one.parent is link]:
            self.remove(child)
        self._leave(link)
        self.links.remove(link)

    def gids(self, device: FakeRdma) -> list[tuple[str, Address | None]]:
        """Return the GID table of a device: interface and address, or None for the GID of a MAC.

        A card's table lists the links on it too, whatever namespace they are in.
        """
        family = [one for one in self.links if one is device.on or one.parent is device.on]
        own = [(link.name, None) for link in family]
        more = [(link.name, address) for link in family for address, _ in link.addresses]
        return [*own, *more][: device.size]

    def _leave(self, link: FakeLink) -> None:
        link.space.routes = [route for route in link.space.routes if route.name != link.name]
        kept = link.space.sysctls.items()
        link.space.sysctls = {p: v for p, v in kept if f"/{link.name}/" not in p}
        self.rdma = [device for device in self.rdma if not (device.soft and device.on is link)]

    def _add_loopback(self, space: FakeSpace) -> None:
        self.links.append(FakeLink("lo", 1, "00:00:00:00:00:00", space, mtu=65536))
