"""A pod's further network: what was asked for, which network that is, what was attached.

api compiles annotations and NetworkAttachmentDefinitions to NetworkAsk and Network.
attach/rules/requests brings the two together (Wish), attach/rules/seats finds card and link for
each (Seat), attach/rules/plan plans Steps (Plan). The agent journals the Plans and tells the pod's
status out of Attached.
"""

from __future__ import annotations

from enum import StrEnum

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
    """How an interface comes into the pod.

    MACVLAN, IPVLAN, IPOIB: a virtual link on a card, the last one on InfiniBand. DEVICE: the card's
    or function's own link. CARD: what the mode of the granted card means (pools/rules/modes).
    OTHER: the binaries of the host's CNI folder make it (attach/rules/foreign_plugins).
    """

    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"
    DEVICE = "host-device"
    CARD = "kube-rdma"
    OTHER = "other"


class InterfaceAddress(Frozen):
    """An address of an interface in the pod, with the length and the gateway of its subnet.

    A network's document gives it, a pool, or a card that brings it along.
    """

    address: Address
    prefix: int
    gateway: Address | None = None


class NetworkRoute(Frozen):
    """A route that is wanted; without `via` the gateway of the address.

    `onlink`: the next hop, or without `via` all of the destination, is on the interface's network
    although no subnet of it says so.
    """

    to: Subnet
    via: Address | None = None
    onlink: bool = False


class CardAddresses(StrEnum):
    """What becomes of the addresses that a card's own link has on the node.

    STAY: they are the node's. MOVE: they go into the pod with a link that moves, where it has some
    and no pool has addresses for its rail. REQUIRED: always, and without them there is no network.
    """

    STAY = "stay"
    MOVE = "move"
    REQUIRED = "required"


class Network(Frozen):
    """One network as its document describes it.

    `master` is the interface of the node that virtual links sit on; None: that of the granted card.
    `resource` ties it to shares (the NAD's annotation). `rails` are those whose cards it is for;
    none: whatever card it is on has a pool. `pools` are asked for addresses, `static`
    ones are given besides, or give way to those that a pod asks for by the fields `yields_to` (ips,
    cni-args). `rdma`: the granted card's RDMA device comes along. `device` is a PCI
    address, an interface or a MAC. `function` is for a virtual function only, and what it is set to
    in the pod; `infiniband`: one of an InfiniBand card. `guid` is for a pod that asks for no other.
    `pkey` is a partition without the bit for full members, of InfiniBand alone. `isolated`: only
    where an RDMA device belongs to one namespace; `configured`: only for entries that
    ib-kubernetes has seen. `sysctls` are of the interface: ``ipv4/conf``, ``arp_notify``, ``1``.
    `accept_ra`: routers may configure the interface by their advertisements.
    `lends`: a pod may name the card, by the capability deviceID. `config` is the document itself,
    for plugins that are called; `source` its place. `ipam_plugin` is the binary that gives the
    addresses of an interface of kube-rdma's, where no pool does; `dns` is that of the document.
    """

    name: str  # namespace/name, as status tells it
    kind: NetworkKind
    source: str
    master: str | None = None
    mode: str = ""
    mtu: int | None = None
    resource: str | None = None
    rails: tuple[int, ...] = ()
    pools: tuple[PoolName, ...] = ()
    static: tuple[InterfaceAddress, ...] = ()
    yields_to: tuple[str, ...] = ()
    routes: tuple[NetworkRoute, ...] = ()
    rdma: bool = True
    device: str | None = None  # of kind DEVICE, where the document says it
    mac: str | None = None
    function: FunctionSettings | None = None  # of kind DEVICE
    infiniband: bool = False
    guid: str | None = None
    isolated: bool = False
    configured: bool = False
    pkey: int | None = None
    sysctls: tuple[tuple[str, str, str], ...] = ()
    accept_ra: bool = False
    card_addresses: CardAddresses = CardAddresses.STAY
    lends: bool = False
    config: bytes = b""
    plugin: str = ""  # the CNI type, of kind OTHER
    ipam_plugin: str = ""
    dns: Dns | None = None


class AskedAddress(Frozen):
    """An address that a pod asks for; the pool knows the length better, if there is one."""

    address: Address
    prefix: int | None = None


class NetworkAsk(Frozen):
    """One entry of a pod's annotation; `source` names the entry, ``networks[2]``.

    `capabilities` are what only other plugins can do (``portMappings``, ``bandwidth``), as JSON.
    `routes` come before those of the network. `default`: the pod's default routes lead to the
    gateways of this interface's addresses, whichever those turn out to be. `argued_guid` is the
    GUID of its cni-args, `configured`: ib-kubernetes has put it there. `by_pod_networks`: it is a
    block of ``k8s.volcengine.com/pod-networks``, which calls some fields otherwise. `held` is the
    share that it is for, where a claim asks; `mtu` counts before that of the network, and 0 is that
    of the card.
    """

    namespace: str
    network: str
    interface: InterfaceName
    source: str
    addresses: tuple[AskedAddress, ...] = ()
    passed_on: tuple[AskedAddress, ...] = ()  # all that a meta-plugin says of it, by any field
    mac: str | None = None
    guid: str | None = None
    default_routes: tuple[Address, ...] = ()
    routes: tuple[NetworkRoute, ...] = ()
    default: bool = False
    device_id: str | None = None
    argued_guid: str | None = None
    configured: bool = False
    arguments: bytes = b"{}"  # cni-args, as JSON
    capabilities: tuple[tuple[str, bytes], ...] = ()
    by_pod_networks: bool = False
    held: HeldShare | None = None
    mtu: int | None = None


class Wish(Frozen):
    """An entry with the network that it means."""

    ask: NetworkAsk
    network: Network


class LinkWays(Frozen):
    """How the node uses a link: its routes over it, the rules for what comes from its addresses.

    Without what the kernel or router advertisements make again by themselves.
    """

    name: str
    routes: tuple[AddRoute, ...] = ()
    rules: tuple[AddRule, ...] = ()

    @property
    def own(self) -> tuple[AddRoute, ...]:
        """The routes that its addresses use: of the main table, and of tables of its rules."""
        tables = {rule.table for rule in self.rules}
        return tuple(r for r in self.routes if r.table is None or r.table in tables)


class HostLink(Frozen):
    """An interface of the node now. `default_route`: the node itself is reached through it.

    `addresses` are those that somebody gave it, with their length; what the kernel makes itself
    (fe80::/64) is left out. `virtual` is the place of a virtual function whose physical one has an
    interface on the node too, `settings` what that one tells of it, asked for only where it counts.
    `master` is what it is enslaved to; when `bonded`, a bond, on which virtual interfaces stand.
    `kind` is the kernel's of a virtual link (``veth``, ``vlan``, ``bond``), empty for a card's own.
    `ways` are the node's routes over it, asked for where the link may go into a pod.
    """

    index: int
    name: str
    mtu: int
    mac: str
    up: bool  # administratively
    pci: PciAddress | None
    link_type: str  # as Netdev.link_type
    default_route: bool = False
    addresses: tuple[tuple[Address, int], ...] = ()
    virtual: FunctionPlace | None = None
    settings: FunctionSettings | None = None
    master: str | None = None
    bonded: bool = False
    kind: str = ""
    ways: LinkWays | None = None


class HostNetwork(Frozen):
    """The node as planning needs it.

    `soft` is the kind of RDMA link to make on cards without an RDMA device of their own (rxe, siw);
    None: none is made. `guids` are those of the RDMA devices that the node can see, with their name
    and function. `owned` are the cards that belong to whoever holds their share, with its resource;
    `inside` the links that are in a pod: their name and function on the node, and the pod. `rails`
    are those of cards, none where nobody asked.
    """

    links: tuple[HostLink, ...]
    namespace_mode: NamespaceMode
    soft: str | None = None
    guids: tuple[tuple[str, PciAddress | None, str], ...] = ()
    owned: tuple[tuple[Card, str], ...] = ()
    inside: tuple[tuple[str, PciAddress | None, str], ...] = ()
    rails: tuple[tuple[CardId, int], ...] = ()


class GrantedShare(Frozen):
    """One share that a container of the pod holds, and what it stands for.

    `early`: its device nodes were given to the container before the pod had a network, and stay;
    `char_paths` are those. `slots`: a claim may take several shares of a card at once.
    """

    container: str
    resource: str
    share: ShareId
    cards: tuple[Card, ...]
    mode: Mode
    bind: Bind
    early: bool = False
    char_paths: tuple[str, ...] = ()
    slots: int = 1
    device_files: tuple[CharKind, ...] = DATA_FILES

    @property
    def held(self) -> HeldShare:
        """Its key among promises."""
        return self.resource, self.share


class Way(StrEnum):
    """What is done to the link of a card."""

    TAKE = "take"
    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"


class NetworkSeat(Frozen):
    """A wish with its place on the node, before it has addresses.

    `number` is its place in the annotation, from 1. `card` and `share` are None where the pod holds
    no share of the card: then no RDMA device comes along. `ipam` asks another plugin for addresses.
    `mtu` is what the interface is set to; None: it stays as it is.
    """

    wish: Wish
    number: int
    way: Way
    link: HostLink
    card: Card | None = None
    share: GrantedShare | None = None
    soft: str | None = None  # kind of the soft RDMA link to make
    devices: tuple[str, ...] = ()  # RDMA devices of the card itself that the pod will use
    roce: bool = False  # they have a GID for each address of the interface
    ipam: CallPlugin | None = None
    mtu: int | None = None


class Sandbox(Frozen):
    """Where an attachment goes; the inode tells one namespace from a later one at its path."""

    container: ContainerId
    pod: PodName
    uid: str
    netns_path: str
    netns_inode: int


class AttachmentKey(Frozen):
    """What one ADD made, and what its DEL ends.

    `interface` is the one that the caller asked for; None: all networks of the pod, in one call.
    """

    container: ContainerId
    interface: InterfaceName | None = None


class GidTable(Frozen):
    """How full a device's table is. An address takes an entry of each RoCE version it speaks."""

    device: str
    size: int
    used: int
    versions: int = 2


class Given(Frozen):
    """What IPAM gave to one interface; routes and `probe` are those of its pool."""

    interface: InterfaceName
    addresses: tuple[InterfaceAddress, ...] = ()
    routes: tuple[NetworkRoute, ...] = ()
    probe: bool = False


class Plan(Frozen):
    """All Steps of one interface, in order: what the journal holds before the first one is run.

    `held` is the share that this interface belongs to, and with it the container.
    """

    interface: InterfaceName
    network: str
    card: CardId | None
    steps: tuple[Step, ...]
    addresses: tuple[InterfaceAddress, ...] = ()
    held: HeldShare | None = None


class PluginResult(Frozen):
    """What other plugins answered to the ADD of an interface, as JSON: CHECK and DEL need it."""

    interface: InterfaceName
    document: bytes
    dns: Dns | None = None


class Attachment(Frozen):
    """All of kube-rdma in one sandbox. `complete` once every step was run and ADD answered."""

    sandbox: Sandbox
    plans: tuple[Plan, ...]
    complete: bool = False
    results: tuple[PluginResult, ...] = ()


class Attached(Frozen):
    """One interface as it is in the pod, for the status annotations.

    `pci` is the card's function, `physical` the physical one of a virtual function.
    """

    network: str
    interface: InterfaceName
    mac: str
    mtu: int
    addresses: tuple[InterfaceAddress, ...]
    rdma_device: str | None = None
    gid: str | None = None
    gid_index: int | None = None
    card: CardId | None = None
    pci: PciAddress | None = None
    physical: PciAddress | None = None
    default_routes: tuple[Address, ...] = ()  # gateways of the pod's default routes through it
    dns: Dns | None = None  # of the network's ipam, or what other plugins answered


# What a pod's network namespace holds at one moment: a fresh look, to be compared with a Plan.

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


# What an agent asks for when only a new pod helps: it lacks its networks, or cannot start.

RESTART = "kube-rdma.io/needs-restart"
"""Label (with the value "true") and annotation."""


class RestartRequest(Frozen):
    """Which node's agent asks, when it did so last in seconds of the Unix epoch, and why.

    `outdated`: the pod does not lack its networks while it runs, it cannot start at all, for its
    containers hold another device's nodes.
    """

    node: str
    at: int
    why: str
    outdated: bool = False
