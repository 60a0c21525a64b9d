"""Plans the Steps that put networks into a pod, in an order in which each finds what it needs.

Third of the rules of an attachment: attach/rules/seats has found card and link, IPAM has given
addresses. The plan is journalled before its first Step is run; attach/rules/step_table takes it
back, repairs and checks it.

The order: the link comes, with its sysctls before it is up; then addresses, each after the question
whether somebody has it where its pool says so; the RDMA device, the routes; the pod's default route
last, so that a pod whose attachment fails keeps the one it has; then the wait for GIDs and the word
to the neighbours. Another IPAM plugin is called once the link is up, for DHCP speaks through it:
`begun` plans so far, and `plans` all of it as soon as there is an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from ipaddress import ip_network

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.infiniband import awaits_port, child, partition, rebinding, taken_as
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.seats import soft_links
from kube_rdma.attach.rules.vf import after_move, before_move
from kube_rdma.model.attach.attachment import (
    GidTable,
    Given,
    HostNetwork,
    InterfaceAddress,
    NetworkRoute,
    NetworkSeat,
    Plan,
    Sandbox,
    Way,
)
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    MakeLink,
    MakeRdma,
    Mark,
    MoveRdma,
    Probe,
    SetLink,
    SetSysctl,
    Step,
    TakeLink,
    VirtualKind,
)
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.ipam import FIRST, Address, InterfaceName, Subnet, is_default
from kube_rdma.model.late_binding import ContainerId
from kube_rdma.model.survey import NamespaceMode

FIRST_TABLE = 100  # the n-th network has routing table 100 + n
RULE_PRIORITY = 20000

# Several interfaces, whose networks may be one below their subnets: each answers for its own
# addresses only, asks with its own, and takes what comes back on another one
# (Documentation/networking/ip-sysctl.rst). Of these, the kernel takes the larger of an interface's
# value and that of "all".
_SEVERAL = (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2"))

# A leaf that advertises itself as a router would give the pod an address, a default route through a
# rail and a GID for each prefix (addrconf_prefix_rcv, net/ipv6/addrconf.c; rt6_add_dflt_router).
_ACCEPT_RA = "accept_ra"

_MODES = {Way.MACVLAN: "bridge", Way.IPVLAN: "l2", Way.IPOIB: ""}


def plans(
    sandbox: Sandbox,
    seats: Sequence[NetworkSeat],
    given: Sequence[Given],
    node: HostNetwork,
    called: Sequence[Plan] = (),
    *,
    alone: bool = True,
) -> tuple[Plan, ...]:
    """The Steps of each interface, in the order of the annotation.

    `called` are those that other plugins make. Not `alone`: the pod may have more, of which nothing
    is known.

    Raise Refused when addresses or routes contradict each other.
    """
    leased = {each.interface: each for each in given}
    seated = [(seat, _whole(seat, leased)) for seat in seats]
    _refuse_twice(seated)
    _refuse_default_routes(seated, called)
    for seat, assigned in seated:
        _refuse_far(seat, assigned)
    crowded = not alone or len(seated) + len(called) > 1
    routes = _main_routes(seated)
    return tuple(
        Plan(
            interface=assigned.interface,
            network=seat.wish.network.name,
            card=seat.card.id if seat.card else None,
            steps=(
                *_link(sandbox.container, seat, node.namespace_mode),
                *_brought_up(seat, crowded, assigned),
                *_addressed(seat, assigned),
                *_talk(sandbox.container, seat, assigned, routes[assigned.interface]),
            ),
            addresses=assigned.addresses,
            held=seat.share.held if seat.share else None,
        )
        for seat, assigned in seated
    )


def begun(
    sandbox: Sandbox,
    seats: Sequence[NetworkSeat],
    node: HostNetwork,
    called: Sequence[Plan] = (),
    *,
    alone: bool = True,
) -> tuple[Plan, ...]:
    """What comes before the addresses where another IPAM plugin gives them, with its call as last.

    `plans` begins with the same Steps for these interfaces.
    """
    crowded = not alone or len(seats) + len(called) > 1
    return tuple(
        Plan(
            interface=seat.wish.ask.interface,
            network=seat.wish.network.name,
            card=seat.card.id if seat.card else None,
            steps=(
                *_link(sandbox.container, seat, node.namespace_mode),
                *_brought_up(seat, crowded),
            ),
            held=seat.share.held if seat.share else None,
        )
        for seat in seats
        if seat.ipam
    )


def leads_pod(plan: Plan) -> bool:
    """Whether the pod's default route leads through a further interface by this plan."""
    steps = (one for one in plan.steps if isinstance(one, AddRoute) and not one.table)
    return plan.interface != FIRST and any(is_default(one.to) for one in steps)


def gids_wanted(planned: Sequence[Plan]) -> dict[str, int]:
    """How many addresses more are to have a GID of a device that other pods have GIDs of too."""
    counts: dict[str, int] = {}
    for plan in planned:
        made = {step.name for step in plan.steps if isinstance(step, MakeRdma)}
        if any(isinstance(step, MakeLink) for step in plan.steps):
            for step in plan.steps:
                if isinstance(step, AwaitGid) and step.device not in made:
                    counts[step.device] = counts.get(step.device, 0) + 1
    return counts


def gid_room(table: GidTable, addresses: int) -> None:
    """Raise Refused when a device has too few GIDs left for so many addresses more."""
    need, free = addresses * table.versions, table.size - table.used
    if need > free:
        raise Refused(
            f"the GID table of {table.device} is full: {table.used} of {table.size} entries are "
            f"in use, and {addresses} addresses need {need}",
            remedy="Wait until other pods on this card have ended, or give it fewer shares",
            where=table.device,
        )


def mark(container: ContainerId, interface: InterfaceName) -> Mark:
    """What a link of this attachment carries as its alias; the kernel has room for 255 bytes."""
    return Mark(f"kube-rdma {container}/{interface}")


def soft_name(kind: str, container: ContainerId, interface: InterfaceName) -> str:
    """The name of a soft RDMA link: one node shows those of all pods, so it follows from both.

    Letters, digits and one dash: it appears in lists that have a meaning for , : and =.
    """
    digest = blake2b(f"{container}/{interface}".encode(), digest_size=6).hexdigest()
    return f"{kind}-{digest[:11]}"


def subnet_of(address: InterfaceAddress) -> Subnet:
    """The subnet that an address lies in."""
    return ip_network((address.address, address.prefix), strict=False)


def _whole(seat: NetworkSeat, leased: Mapping[InterfaceName, Given]) -> Given:
    """All addresses and routes of the interface: of the pool, of the documents, of the pod."""
    network, ask = seat.wish.network, seat.wish.ask
    given = leased.get(ask.interface, Given(ask.interface))
    asked = [
        InterfaceAddress(one.address, one.prefix)
        for one in ask.addresses
        if one.prefix is not None and not network.pools and not network.ipam_plugin
    ]
    routes = tuple(dict.fromkeys((*network.routes, *given.routes)))
    return replace(given, addresses=(*given.addresses, *network.static, *asked), routes=routes)


def _link(container: ContainerId, seat: NetworkSeat, mode: NamespaceMode) -> Iterator[Step]:
    """The link comes into the pod; with it, where the kernel does that, its RDMA device."""
    link, network, ask = seat.link, seat.wish.network, seat.wish.ask
    if seat.way is not Way.TAKE:
        yield from partition(seat)
        yield MakeLink(
            kind=VirtualKind(seat.way),
            parent=PlannedHostLink(link.index, link.name),
            name=ask.interface,
            mark=mark(container, ask.interface),
            mode=network.mode or _MODES[seat.way],
            mtu=network.mtu,
            mac=ask.mac or network.mac,
            pkey=network.pkey,
        )
        return
    host_link = PlannedHostLink(link.index, link.name)
    soft = soft_links(seat.card) if seat.card else ()
    state = (link.mtu, link.mac, link.up)
    waits = awaits_port(seat)
    take = TakeLink(host_link, taken_as(seat), link.pci, *state, soft, link.addresses, waits)
    if link.ways:
        take = replace(take, routes=link.ways.routes, rules=link.ways.rules)
    moves = seat.devices if mode is NamespaceMode.EXCLUSIVE else ()
    # Of the device, not of the link: a sub-function's device has no PCI address of its own.
    pci = {device.name: device.pci for device in seat.card.devices} if seat.card else {}
    steps: list[Step] = [MoveRdma(device, pci[device]) for device in moves]
    yield from before_move(seat)
    yield from rebinding(seat)
    yield from partition(seat)
    # Moving an InfiniBand device makes its interface again, so that one is taken afterwards.
    yield from (*steps, take) if link.link_type == "infiniband" else (take, *steps)
    yield from after_move(seat)
    yield from child(seat, mark(container, ask.interface))


def _brought_up(seat: NetworkSeat, crowded: bool, given: Given | None = None) -> Iterator[Step]:
    """Sysctls, then up; what other IPAM plugins give is not known yet, and changes nothing here."""
    network, ask, name = seat.wish.network, seat.wish.ask, seat.wish.ask.interface
    ignored = {} if network.accept_ra else {f"net/ipv6/conf/{name}/{_ACCEPT_RA}": "0"}
    asked = {f"net/{tree}/{name}/{key}": value for tree, key, value in network.sysctls}
    wanted = ignored | asked
    if crowded:
        wanted |= {f"net/ipv4/conf/{name}/{key}": value for key, value in _SEVERAL}
    if given and not seat.ipam:
        wanted |= _with_ipv6(given)
    for path, value in wanted.items():
        yield SetSysctl(path, value, optional=path in ignored and path not in asked)
    yield SetLink(name, seat.mtu, ask.mac or network.mac)
    if seat.ipam:
        yield seat.ipam


def _with_ipv6(given: Given) -> dict[str, str]:
    """Runtimes switch IPv6 off in pods whose cluster network has none."""
    if any(address.address.version == 6 for address in given.addresses):
        return {f"net/ipv6/conf/{given.interface}/disable_ipv6": "0"}
    return {}


def _addressed(seat: NetworkSeat, given: Given) -> Iterator[Step]:
    name = given.interface
    if seat.ipam:
        yield from (SetSysctl(path, value) for path, value in _with_ipv6(given).items())
    for address in given.addresses:
        if given.probe and _can_ask(seat):
            yield Probe(name, address.address)
        yield AddAddress(name, address.address, address.prefix)


def _can_ask(seat: NetworkSeat) -> bool:
    """Whether an answer could be heard before the address is there.

    InfiniBand has other frames; ipvlan hands an ARP answer to the link that has its target address,
    and sends none in mode l3 (drivers/net/ipvlan/ipvlan_core.c).
    """
    return seat.way is not Way.IPVLAN and seat.link.link_type != "infiniband"


def _talk(
    container: ContainerId, seat: NetworkSeat, given: Given, routes: Sequence[AddRoute]
) -> Iterator[Step]:
    """RDMA, routes, and what it takes until peers can be reached."""
    name, devices = given.interface, seat.devices
    if seat.soft:
        devices = (soft_name(seat.soft, container, name),)
        yield MakeRdma(devices[0], seat.soft, name)
    yield from _own_table(given, FIRST_TABLE + seat.number)
    yield from routes
    if seat.roce:
        for device in devices:
            yield from (AwaitGid(device, name, one.address) for one in given.addresses)
    yield from (Announce(name, one.address) for one in given.addresses)


def _main_routes(
    seated: Sequence[tuple[NetworkSeat, Given]],
) -> dict[InterfaceName, tuple[AddRoute, ...]]:
    """What each interface adds to the pod's main table, where a destination has one route.

    Of equal destinations the first in the annotation has it. A default route among them stays out,
    for an entry asks for it otherwise; eth0 has it, where a meta-plugin has kube-rdma make that.
    """
    taken: set[Subnet] = set()
    routes = {}
    for seat, given in seated:
        name = given.interface
        steps = []
        for route in given.routes:
            stays = is_default(route.to) and name != FIRST
            if not stays and route.to not in taken:
                taken.add(route.to)
                beyond = _is_beyond(route.via, given)
                steps.append(AddRoute(name, route.to, _via(route, given), onlink=beyond))
        steps += [
            AddRoute(name, _everywhere(hop), hop, onlink=_is_beyond(hop, given))
            for hop in seat.wish.ask.default_routes
        ]
        routes[name] = tuple(steps)
    return routes


def _own_table(given: Given, table: int) -> Iterator[Step]:
    """What comes from the interface's addresses goes out through it, whatever else the pod has."""
    name = given.interface
    routes: dict[Subnet, AddRoute] = {}
    for address in given.addresses:
        subnet = subnet_of(address)
        if address.prefix < address.address.max_prefixlen:
            routes.setdefault(subnet, AddRoute(name, subnet, None, address.address, table))
    for address in given.addresses:
        if address.gateway:
            everywhere = _everywhere(address.gateway)
            beyond = _is_beyond(address.gateway, given)
            leads = AddRoute(name, everywhere, address.gateway, None, table, beyond)
            routes.setdefault(everywhere, leads)
    for route in given.routes:
        if any(address.address.version == route.to.version for address in given.addresses):
            hop, beyond = _via(route, given), _is_beyond(route.via, given)
            routes.setdefault(route.to, AddRoute(name, route.to, hop, None, table, beyond))
    yield from routes.values()
    yield from (AddRule(address.address, table, RULE_PRIORITY) for address in given.addresses)


def _via(route: NetworkRoute, given: Given) -> Address | None:
    """The next hop: as written, else the gateway of the family; None: on-link."""
    if route.via is not None or route.onlink:
        return route.via
    gateways = (one.gateway for one in given.addresses if one.gateway)
    return next((gw for gw in gateways if gw.version == route.to.version), None)


def _is_beyond(gateway: Address | None, given: Given) -> bool:
    """Whether a next hop is in no subnet of the interface."""
    subnets = map(subnet_of, given.addresses)
    return gateway is not None and not any(gateway in subnet for subnet in subnets)


def _everywhere(gateway: Address) -> Subnet:
    return ip_network("0.0.0.0/0" if gateway.version == 4 else "::/0")


def _refuse_twice(seated: Sequence[tuple[NetworkSeat, Given]]) -> None:
    """An address on two interfaces of one pod, or twice on one."""
    first: dict[Address, NetworkSeat] = {}
    for seat, given in seated:
        for address in given.addresses:
            if other := first.get(address.address):
                problem = (
                    f"{address.address} is taken twice, {other.wish.ask.source} has it already"
                )
                raise refused(seat.wish, "ips", problem, "Write another address for one of them")
            first[address.address] = seat


def _refuse_default_routes(
    seated: Sequence[tuple[NetworkSeat, Given]], called: Sequence[Plan]
) -> None:
    """A pod has one default route of each family."""
    first = {step.to.version: str(step.name) for step in _default_steps(called)}
    for seat, _ in seated:
        for index, gateway in enumerate(seat.wish.ask.default_routes):
            if other := first.get(gateway.version):
                problem = f"{other} has a default route of IPv{gateway.version} already"
                raise refused(seat.wish, _default(index), problem, "Keep one of the two")
            first[gateway.version] = seat.wish.ask.source


def _default_steps(called: Sequence[Plan]) -> Iterator[AddRoute]:
    """The default routes that entries ask for through interfaces of other plugins."""
    steps = (step for plan in called for step in plan.steps if isinstance(step, AddRoute))
    return (step for step in steps if not step.to.prefixlen)


def _refuse_far(seat: NetworkSeat, given: Given) -> None:
    """Gateways that the interface cannot reach; the kernel would refuse their routes."""
    own = {one.gateway for one in given.addresses}  # whoever gave them knows the way there
    asked = enumerate(seat.wish.ask.default_routes)
    hops = [(_default(at), via) for at, via in asked if via not in own]
    families = {one.address.version for one in given.addresses}
    hops += [
        (f"route to {route.to}", route.via)
        for route in given.routes
        if route.via and not (route.onlink and route.via.version in families)
    ]
    for field, gateway in hops:
        if _is_beyond(gateway, given):
            problem = f"the gateway {gateway} is in no subnet of {given.interface}"
            subnets = ", ".join(str(subnet_of(one)) for one in given.addresses)
            remedy = f"Write one inside of {subnets}" if subnets else "Give the network addresses"
            raise refused(seat.wish, field, problem, remedy)


def _default(index: int) -> str:
    return f"default-route[{index}]"
