"""One act on a pod's network, as a value: planned, journalled, run, recognised as done, undone.

attach/rules/plan makes a tuple of Steps for each interface. attach/executor runs them, by
adapters/kernel/pod/steps or, for CallPlugin, adapters/cni/plugins. A Step names what it found by
what stays, if there is such a thing: interface indexes, PCI addresses. Every one but CallPlugin may
be run again after it was done, and every one may be undone although it was never run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciAddress, PlannedHostLink
from kube_rdma.model.ipam import Address, InterfaceName, Subnet
from kube_rdma.model.pools import RebindFunction, ResetFunction, SetFunction

Mark = NewType("Mark", str)
"""The alias of a link that kube-rdma made (IFLA_IFALIAS): ``kube-rdma <attachment>``."""


class VirtualKind(StrEnum):
    """The kind of a virtual link on a card, as the kernel names it (IFLA_INFO_KIND)."""

    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"


class MakeLink(Frozen):
    """Make a virtual link inside the pod.

    `mode` is the kind's own word (bridge, private, vepa, passthru; l2, l3, l3s). `pkey` is for
    IPoIB. The parent is on the node, or `inside`: taken into the pod under the name that `parent`
    has. It is done when a link of this name and mark is in the pod, and undone by removing that
    link.
    """

    kind: VirtualKind
    parent: PlannedHostLink
    name: InterfaceName
    mark: Mark
    mode: str = ""
    mtu: int | None = None  # None: the parent's
    mac: str | None = None  # None: the kernel chooses
    pkey: int | None = None
    inside: bool = False


class TakeLink(Frozen):
    """Move a card's own link into the pod and rename it.

    Undoing restores the state in which it was found: name, MTU, MAC, up or down, and the
    `addresses` that somebody gave it, with their length. It also restores the `routes` of the node
    over it, in whatever table, and the `rules` for packets from its addresses. `pci` finds the link
    again on either side, also when the pod's namespace went and the kernel gave it back under
    another name. Of a link without a function two of index, MAC and name have to agree. `soft` are
    the soft RDMA links that stand on it, name and kind: the kernel removes them with the move.

    With `active` the link of an InfiniBand function is taken only when its port is ACTIVE; the wait
    for that has a limit. The Step is refused when neither the card nor the subnet manager brings
    the port up.
    """

    link: PlannedHostLink
    name: InterfaceName
    pci: PciAddress | None
    mtu: int
    mac: str
    up: bool
    soft: tuple[tuple[str, str], ...] = ()
    addresses: tuple[tuple[Address, int], ...] = ()
    active: bool = False
    routes: tuple[AddRoute, ...] = ()
    rules: tuple[AddRule, ...] = ()


class SetLink(Frozen):
    """Set MTU and MAC (None: leave) of a link in the pod, then bring it up."""

    name: InterfaceName
    mtu: int | None = None
    mac: str | None = None


class Probe(Frozen):
    """Ask the network of an Ethernet link whether somebody has an address that the pod will get.

    It comes before AddAddress and is not undone. It is refused with the MAC that answers, and fails
    without a carrier; silence for 300 ms is consent.
    """

    name: InterfaceName
    address: Address


class AddAddress(Frozen):
    """Give an address to a link in the pod, without duplicate address detection."""

    name: InterfaceName
    address: Address
    prefix: int


class AddRoute(Frozen):
    """Add a route in the pod; `table` None is the main one, `via` None means on-link.

    `onlink`: `via` is reached through the link although it is in no subnet of it. `metric` 0 is the
    one that the kernel chooses. In TakeLink, GiveBackLink and LinkWays it is a route of the node.

    It replaces a route of the same destination, table and metric, whoever made that. So a pod's
    default route is taken from the cluster's interface when the pod asks for that.
    """

    name: InterfaceName
    to: Subnet
    via: Address | None = None
    source: Address | None = None
    table: int | None = None
    onlink: bool = False
    metric: int = 0


class AddRule(Frozen):
    """Send packets from a source address to a routing table of their own."""

    source: Address
    table: int
    priority: int


class SetSysctl(Frozen):
    """Write a network sysctl of the pod: ``net/ipv4/conf/net1/arp_ignore``.

    `optional`: a kernel without it, such as one without IPv6, has nothing to be set.
    """

    path: str
    value: str
    optional: bool = False


class MakeRdma(Frozen):
    """Make a soft RDMA link on a link in the pod; its name is unique on the node.

    It is done when a device of this name is there, and undone by removing that. The device goes
    with its interface.
    """

    name: str
    kind: str  # rxe, siw
    on: InterfaceName


class MoveRdma(Frozen):
    """Move an RDMA device into the pod's namespace (RDMA namespace mode exclusive)."""

    device: str
    pci: PciAddress | None


class AwaitPartition(Frozen):
    """Wait for a while until the RDMA device of a function is in an InfiniBand partition.

    `pkey` is without the bit for full members. The Step is not undone. It is refused when the
    subnet manager has not made the device a member in time.
    """

    pci: PciAddress
    pkey: int


class AwaitGid(Frozen):
    """Wait for a while until a device lists a GID for an address, which verbs need to use it.

    The Step is not undone. It is refused if the device's table is full, and fails if no GID comes.
    """

    device: str
    on: InterfaceName
    address: Address


class Announce(Frozen):
    """Tell the neighbours who has the address now: gratuitous ARP, unsolicited advertisement.

    The Step is not undone, and never refused: whoever missed it asks.
    """

    name: InterfaceName
    address: Address


class PluginConf(Frozen):
    """One plugin of the host's CNI folder, with all of its configuration but the previous result.

    `type` is the name of its binary, `config` the JSON that it is given.
    """

    type: str
    config: bytes


class CallPlugin(Frozen):
    """Have other CNI plugins make an interface of the pod: ADD of each, in this order.

    It is done when the pod has a link of this name, and undone by DEL of each, in reverse. Only
    then may it be run again, for nobody knows what the plugins do with a second ADD. `version` is
    that of their configuration, `check`: it does not forbid CHECK (disableCheck). `addresses`: it
    is one IPAM plugin, which gives addresses to a link that kube-rdma has made.
    """

    name: InterfaceName
    plugins: tuple[PluginConf, ...]
    version: str
    check: bool = True
    addresses: bool = False


_LinkStep = MakeLink | TakeLink | SetFunction | RebindFunction | SetLink | CallPlugin
_AddressStep = Probe | AddAddress | AddRoute | AddRule | SetSysctl | Announce
Step = _LinkStep | _AddressStep | MakeRdma | MoveRdma | AwaitPartition | AwaitGid


class RemoveLink(Frozen):
    """Remove a link of this name from the pod if it has `mark`."""

    name: InterfaceName
    mark: Mark


class RemoveLinks(Frozen):
    """Remove several links of the pod, each as RemoveLink says.

    They go in one message where that removes no others, which is faster.
    """

    links: tuple[RemoveLink, ...]


class GiveBackLink(Frozen):
    """Bring a card's link back to the node with the name, MTU, MAC and state it was found in.

    `name` is what it is called in the pod, `link` what it was on the node. It may be on the node
    already, under another name: the kernel brings it back when a namespace ends. The move itself
    drops its addresses, routes and sysctls (__dev_change_net_namespace, net/core/dev.c). It gets
    the `addresses`, `routes` and `rules` back that it had on the node. A route that a link cannot
    have while it is down is left out then.
    """

    link: PlannedHostLink
    name: InterfaceName
    pci: PciAddress | None
    mtu: int
    mac: str
    up: bool
    addresses: tuple[tuple[Address, int], ...] = ()
    routes: tuple[AddRoute, ...] = ()
    rules: tuple[AddRule, ...] = ()


class RestoreRdma(Frozen):
    """Make a soft RDMA link again that stood on a link of the node before it was taken.

    It runs after GiveBackLink: `link` is the node's, by its name then. It changes nothing if the
    soft link is there.
    """

    name: str
    kind: str  # rxe, siw
    link: PlannedHostLink


class RemoveRule(Frozen):
    """Remove what AddRule added: rules do not go with a link."""

    source: Address
    table: int
    priority: int


class RemoveRdma(Frozen):
    """Remove a soft RDMA link by its name."""

    name: str


class GiveBackRdma(Frozen):
    """Bring an RDMA device back to the node's namespace; `pci` finds it after a renaming, too."""

    device: str
    pci: PciAddress | None


class EndPlugin(Frozen):
    """Have other CNI plugins take back what they made: DEL of each, the last one first."""

    call: CallPlugin


_LinkUndo = RemoveLink | RemoveLinks | GiveBackLink | ResetFunction | RebindFunction | EndPlugin
Undo = _LinkUndo | RemoveRule | RestoreRdma | RemoveRdma | GiveBackRdma
"""What takes a Step back; done again, or for a Step that was never run, it changes nothing."""
