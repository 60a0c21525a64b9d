"""What a pod's network namespace holds at one moment: a fresh look, to be compared with a Plan.

adapters/kernel takes it, attach/rules/undo says which Steps are still done in it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.attach.steps import VirtualKind
from kube_rdma.model.device import PciAddress
from kube_rdma.model.functions.step import FunctionPlace, FunctionSettings
from kube_rdma.model.ipam import Address, InterfaceName, Subnet

_VIRTUAL = frozenset(kind.value for kind in VirtualKind)


class SeenLink(Frozen):
    """An interface. `kind` is the kernel's (IFLA_INFO_KIND), "" for a card's own link.

    `parent` is the index of the link that it sits on (IFLA_LINK), which is one of the node, or one
    that was taken from there.
    """

    name: InterfaceName
    index: int
    mtu: int
    mac: str
    up: bool  # administratively
    kind: str = ""
    parent: int | None = None
    alias: str = ""
    pci: PciAddress | None = None
    addresses: tuple[tuple[Address, int], ...] = ()  # with their length

    @property
    def virtual(self) -> bool:
        """Whether it sits on another one.

        Of IPoIB the kernel says the kind for a card's own interface too (ipoib_add_port,
        drivers/infiniband/ulp/ipoib/ipoib_main.c), and only a child has a parent.
        """
        return self.kind in _VIRTUAL and (self.kind != VirtualKind.IPOIB or bool(self.parent))


class SeenRoute(Frozen):
    """A unicast route; `table` None is the main one, `via` None means on-link."""

    name: InterfaceName
    to: Subnet
    via: Address | None = None
    table: int | None = None


class SeenRule(Frozen):
    """A rule that sends what comes from an address to a table."""

    source: Address
    table: int
    priority: int


class SeenRdma(Frozen):
    """An RDMA device that can be used there.

    `netdev` is the interface of its port, if that is one of the pod's. `gids` are the addresses of
    its GID table with their interface; those of an interface of the pod's that has the address, for
    the table of a shared card holds those of other pods, whose interfaces have the same names.
    """

    name: str
    netdev: InterfaceName | None = None
    pci: PciAddress | None = None
    gids: tuple[tuple[InterfaceName, Address], ...] = ()
    guid: str | None = None  # of its node, as FunctionSettings has it


class PodView(Frozen):
    """The namespace; `sysctls` holds those that were asked about, path and value.

    So does `functions`, of virtual functions; their settings are the node's, wherever their
    interface is.
    """

    links: tuple[SeenLink, ...] = ()
    routes: tuple[SeenRoute, ...] = ()
    rules: tuple[SeenRule, ...] = ()
    rdma: tuple[SeenRdma, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    functions: tuple[tuple[FunctionPlace, FunctionSettings], ...] = ()
