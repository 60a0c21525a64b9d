"""A pod's further network: what was asked for, which network that is, what was attached.

The documents of attach turn annotations and NetworkAttachmentDefinitions into NetworkAsk and
Network. Of its rules, requests.py matches the two (MatchedEntry), placement.py finds card and link
for each (PodNic), and plan.py plans Steps (Plan). The agent journals the Plans and writes the pod's
status annotations out of AttachedInterface.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from kube_base.frozen import Frozen
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.attach.steps import AddRoute, AddRule, CallPlugin, Step, VirtualKind
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import CharKind, PciAddress
from kube_rdma.model.ipam import Address, InterfaceName, PoolName, Subnet
from kube_rdma.model.late_binding import ContainerId, HeldShare, PodName
from kube_rdma.model.pools import DATA_FILES, Bind, FunctionPlace, FunctionSettings, Mode, ShareId
from kube_rdma.model.survey import NamespaceMode


class NetworkKind(StrEnum):
    """The kind of interface that a network gives a pod, and who makes it."""

    MACVLAN = "macvlan"  # a virtual link on a card
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"  # a virtual link on InfiniBand
    DEVICE = "host-device"  # the card's or function's own link
    CARD = "kube-rdma"  # the mode of the granted card decides (pools/rules/modes)
    OTHER = "other"  # binaries of the host's CNI folder (attach/rules/foreign_plugins)


class InterfaceAddress(Frozen):
    """An address of an interface in the pod, with the prefix length and gateway of its subnet."""

    address: Address
    prefix: int
    gateway: Address | None = None


class NetworkRoute(Frozen):
    """A route that an interface of a pod should get; `via` None: the gateway, unless `onlink`."""

    to: Subnet
    via: Address | None = None
    # The next hop, or without `via` all of the destination, is on the interface's network although
    # no subnet of it says so.
    onlink: bool = False


class CardAddresses(StrEnum):
    """The fate of a card's IP addresses when its link is given to a pod."""

    STAY = "stay"  # they are the node's
    MOVE = "move"  # into the pod with a link that moves, where no pool has addresses for its rail
    REQUIRED = "required"  # into the pod always, and without them there is no network


class Network(Frozen):
    """A network as its document describes it, with the fields that all kinds have."""

    kind: ClassVar[NetworkKind]

    name: str  # namespace/name, as pods name it and as their status shows it
    source: str  # the place of the document, for messages
    resource: str | None = None  # whose shares its interfaces need (the NAD's annotation)
    device: str | None = None  # interface, PCI address or MAC on the node; None: the granted card's
    lends: bool = False  # the capability deviceID: a pod may name the card
    rdma: bool = True  # the granted card's RDMA device comes along

    # The interface.
    mtu: int | None = None
    mac: str | None = None
    sysctls: tuple[tuple[str, str, str], ...] = ()  # ("ipv4/conf", "arp_notify", "1")
    accept_ra: bool = False  # routers may configure it by their advertisements

    # Its addresses.
    rails: tuple[int, ...] = ()  # only for cards of these rails; empty: for any card
    pools: tuple[PoolName, ...] = ()
    static: tuple[InterfaceAddress, ...] = ()  # given besides those of pools
    yields_to: tuple[str, ...] = ()  # fields of an ask whose addresses replace `static`
    card_addresses: CardAddresses = CardAddresses.STAY
    ipam_plugin: str = ""  # the binary of others that gives the addresses, where no pool does
    routes: tuple[NetworkRoute, ...] = ()
    dns: Dns | None = None

    # The document, for plugins that are called.
    config: bytes = b""
    plugin: str = ""  # its first CNI type


class AskedAddress(Frozen):
    """An address that a pod asks for; `prefix` counts only where no pool of addresses does."""

    address: Address
    prefix: int | None = None


class NetworkAsk(Frozen):
    """A pod's request for one network, from its annotation or its claims."""

    namespace: str
    network: str
    interface: InterfaceName
    source: str  # names the entry: networks[2]
    addresses: tuple[AskedAddress, ...] = ()
    passed_on: tuple[AskedAddress, ...] = ()  # all that a meta-plugin says of it, by any field
    mac: str | None = None
    guid: str | None = None
    default_routes: tuple[Address, ...] = ()
    routes: tuple[NetworkRoute, ...] = ()  # before those of the network
    default: bool = False  # default routes by the gateways that the interface's addresses get
    device_id: str | None = None
    argued_guid: str | None = None  # of its cni-args
    configured: bool = False  # ib-kubernetes has put it there
    arguments: bytes = b"{}"  # cni-args, as JSON
    # What only other plugins can do (portMappings, bandwidth), as JSON.
    capabilities: tuple[tuple[str, bytes], ...] = ()
    by_pod_networks: bool = False  # a block of k8s.volcengine.com/pod-networks
    held: HeldShare | None = None  # the share that it is for, where a claim asks
    mtu: int | None = None  # before that of the network; 0 is that of the card


class MatchedEntry(Frozen):
    """A pod's request for a network, with the network that it names."""

    ask: NetworkAsk
    network: Network

    @property
    def mac(self) -> str | None:
        """Return the MAC that the pod's request sets, else the network's.

        None means the card's own, or one that the kernel chooses.
        """
        return self.ask.mac or self.network.mac


class LinkWays(Frozen):
    """The node's routes over a link, and its routing rules for packets from the link's addresses.

    Routes that the kernel or router advertisements make, or that have several next hops, are left
    out.
    """

    name: str
    routes: tuple[AddRoute, ...] = ()
    rules: tuple[AddRule, ...] = ()

    @property
    def own(self) -> tuple[AddRoute, ...]:
        """Return the routes in the main table and in tables of the link's own rules."""
        tables = {rule.table for rule in self.rules}
        return tuple(r for r in self.routes if r.table is None or r.table in tables)


class HostLink(Frozen):
    """A network interface of the node, as it is now."""

    index: int
    name: str
    mtu: int
    mac: str
    up: bool  # administratively
    pci: PciAddress | None
    link_type: str  # as Netdev.link_type
    default_route: bool = False  # the node itself is reached through it
    addresses: tuple[tuple[Address, int], ...] = ()  # with their length; without the kernel's own
    virtual: FunctionPlace | None = None  # its place, if its physical function has a link here too
    settings: FunctionSettings | None = None  # as the physical function reports, where that counts
    master: str | None = None  # what it is enslaved to
    bonded: bool = False  # the master is a bond, on which virtual interfaces stand
    kind: str = ""  # the kernel's of a virtual link (veth, vlan, bond); empty for a card's own
    ways: LinkWays | None = None  # asked for where the link may go into a pod


class HostNetwork(Frozen):
    """The node's interfaces and cards, as planning of a pod's networks needs them."""

    links: tuple[HostLink, ...]
    namespace_mode: NamespaceMode
    soft: str | None = None  # kind of RDMA link to make on cards without a device: rxe, siw
    guids: tuple[tuple[str, PciAddress | None, str], ...] = ()  # of RDMA devices here, by name
    owned: tuple[tuple[Card, str], ...] = ()  # cards of whoever holds their share, with resource
    shared: tuple[tuple[Card, str], ...] = ()  # cards of several pods at once, with resource
    inside: tuple[tuple[str, PciAddress | None, str], ...] = ()  # links in pods, with the pod
    rails: tuple[tuple[CardId, int], ...] = ()  # of cards; none where nobody asked


class GrantedShare(Frozen):
    """A share that a container of the pod holds, with its cards."""

    container: str
    resource: str
    share: ShareId
    cards: tuple[Card, ...]
    mode: Mode
    bind: Bind
    early: bool = False  # the container got its device nodes before the pod had a network
    char_paths: tuple[str, ...] = ()  # these nodes
    slots: int = 1  # a claim may take several shares of a card at once
    device_files: tuple[CharKind, ...] = DATA_FILES

    @property
    def held(self) -> HeldShare:
        """Return the resource and the name of the share, by which promises are looked up."""
        return self.resource, self.share


class Way(StrEnum):
    """The ways to give a pod an interface: the card's link moves, or a virtual link is made."""

    TAKE = "take"
    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"


class PodNic(Frozen):
    """An interface that a pod will have, with its card and link on the node, without addresses."""

    entry: MatchedEntry
    number: int  # place in the annotation, from 1
    way: Way
    link: HostLink
    card: Card | None = None  # None: the pod holds no share of it, so no RDMA device comes along
    share: GrantedShare | None = None
    soft: str | None = None  # kind of the soft RDMA link to make
    devices: tuple[str, ...] = ()  # RDMA devices of the card itself that the pod will use
    roce: bool = False  # they have a GID for each address of the interface
    ipam: CallPlugin | None = None  # asks another plugin for addresses
    mtu: int | None = None  # None: it stays as it is

    @property
    def interface(self) -> InterfaceName:
        """Return the name of the interface in the pod."""
        return self.entry.ask.interface

    @property
    def network(self) -> Network:
        """Return the network that the interface belongs to."""
        return self.entry.network


class Sandbox(Frozen):
    """A pod's sandbox and its network namespace, in which networks are attached."""

    container: ContainerId
    pod: PodName
    uid: str
    netns_path: str
    netns_inode: int  # distinguishes it from a later one at this path


class AttachmentKey(Frozen):
    """The name of an attachment: the container and interface of the CNI ADD that made it."""

    container: ContainerId
    interface: InterfaceName | None = None  # of the call; None: all networks of the pod in one


class GidTable(Frozen):
    """The number of entries in the GID table of a device, and how many of these are used."""

    device: str
    size: int
    used: int
    versions: int = 2  # of RoCE: an address takes an entry of each


class AssignedAddresses(Frozen):
    """The addresses that IPAM gave to one interface, with the routes of their pool."""

    interface: InterfaceName
    addresses: tuple[InterfaceAddress, ...] = ()
    routes: tuple[NetworkRoute, ...] = ()
    probe: bool = False  # ask the network first whether somebody has them


class Plan(Frozen):
    """All Steps of one interface, in order: the journal holds them before the first one is run."""

    interface: InterfaceName
    network: str
    card: CardId | None
    steps: tuple[Step, ...]
    addresses: tuple[InterfaceAddress, ...] = ()
    held: HeldShare | None = None  # the share that it belongs to, and with it the container


class PluginResult(Frozen):
    """The results of other CNI plugins for an interface, which CHECK and DEL need."""

    interface: InterfaceName
    document: bytes  # JSON
    dns: Dns | None = None


class Attachment(Frozen):
    """The interfaces of kube-rdma in a sandbox that one CNI ADD asked for (AttachmentKey)."""

    sandbox: Sandbox
    plans: tuple[Plan, ...]
    complete: bool = False  # every step was run and ADD answered
    results: tuple[PluginResult, ...] = ()


class AttachedInterface(Frozen):
    """An interface in a pod as it was attached, for the status annotations."""

    network: str
    interface: InterfaceName
    mac: str
    mtu: int
    addresses: tuple[InterfaceAddress, ...]
    rdma_device: str | None = None
    gid: str | None = None
    gid_index: int | None = None
    card: CardId | None = None
    pci: PciAddress | None = None  # of the card's function
    physical: PciAddress | None = None  # of its physical one, if it is a virtual function
    default_routes: tuple[Address, ...] = ()  # gateways of the pod's default routes through it
    dns: Dns | None = None  # of the network's ipam, or what other plugins answered


# A pod's network namespace at one moment, to be compared with a Plan.

_VIRTUAL = frozenset(kind.value for kind in VirtualKind)


class SeenLink(Frozen):
    """A network interface seen in a network namespace."""

    name: InterfaceName
    index: int
    mtu: int
    mac: str
    up: bool  # administratively
    kind: str = ""  # the kernel's (IFLA_INFO_KIND), empty for a card's own link
    parent: int | None = None  # index of the link below (IFLA_LINK), which is or was the node's
    alias: str = ""
    pci: PciAddress | None = None
    addresses: tuple[tuple[Address, int], ...] = ()  # with their length

    @property
    def virtual(self) -> bool:
        """Return whether the link sits on another one.

        Of IPoIB the kernel says the kind for a card's own interface too (ipoib_add_port,
        drivers/infiniband/ulp/ipoib/ipoib_main.c), and only a child has a parent.
        """
        return self.kind in _VIRTUAL and (self.kind != VirtualKind.IPOIB or bool(self.parent))


class SeenRdma(Frozen):
    """An RDMA device that can be used in a network namespace."""

    name: str
    netdev: InterfaceName | None = None  # of its port, if that is one of the pod's
    pci: PciAddress | None = None
    # Addresses of its GID table with their interface, if an interface of the pod's has the address:
    # the table of a shared card holds those of other pods, whose interfaces have the same names.
    gids: tuple[tuple[InterfaceName, Address], ...] = ()
    guid: str | None = None  # of its node, as FunctionSettings has it


class PodView(Frozen):
    """The contents of a network namespace: links, routes, rules, RDMA devices and sysctls."""

    links: tuple[SeenLink, ...] = ()
    routes: tuple[AddRoute, ...] = ()
    rules: tuple[AddRule, ...] = ()
    rdma: tuple[SeenRdma, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()  # path and value of those that were asked about
    functions: tuple[tuple[FunctionPlace, FunctionSettings], ...] = ()  # likewise, on the node


# A request for a new pod: this one lacks its networks, or cannot start.

RESTART = "kube-rdma.io/needs-restart"
"""The key of a label with the value "true", and of an annotation with the request."""


class RestartRequest(Frozen):
    """An agent's request to replace a pod by a new one, with the reason."""

    node: str
    at: int  # seconds of the Unix epoch, the last time
    why: str
    outdated: bool = False  # it cannot start: its containers hold another device's nodes
