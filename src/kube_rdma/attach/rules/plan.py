"""Plans the Steps that put networks into a pod, in an order in which each finds what it needs.

These are the third rules of an attachment: attach/rules/placement has found card and link, IPAM has
given addresses. The plan is journalled before its first Step is run; attach/rules/undo checks it
and takes it back.

The link comes first, with RDMA devices that move along, and its sysctls before it is up. Then come
the addresses, each after a probe where its pool says so. Then come a soft RDMA device and the
interface's routes, a default route of the pod last. The wait for GIDs and the announcements end it.
Another IPAM plugin is called once the link is up, for DHCP speaks through it. `begun` plans up to
this call, and `plans` plans everything as soon as there is an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from ipaddress import ip_network

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.infiniband import awaits_port, child, partition, rebinding, taken_as
from kube_rdma.attach.rules.placement import soft_links
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.vf import after_move, before_move
from kube_rdma.model.attach import kinds, steps
from kube_rdma.model.attach.attachment import (
    AssignedAddresses,
    GidTable,
    HostNetwork,
    InterfaceAddress,
    NetworkRoute,
    Plan,
    PodNic,
    Sandbox,
    Way,
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
    nics: Sequence[PodNic],
    given: Sequence[AssignedAddresses],
    node: HostNetwork,
    called: Sequence[Plan] = (),
    *,
    alone: bool = True,
) -> tuple[Plan, ...]:
    """Return a plan of Steps for each interface, in the order of the annotation.

    `called` are the plans of interfaces that other plugins make. Without `alone` the pod may have
    further interfaces, of which nothing is known. Raise Refused when addresses or routes contradict
    each other, or a gateway cannot be reached.
    """
    leased = {each.interface: each for each in given}
    placed = [(nic, _whole(nic, leased)) for nic in nics]
    _refuse_twice(placed)
    _refuse_default_routes(placed, called)
    for nic, assigned in placed:
        _refuse_far(nic, assigned)
    crowded = not alone or len(placed) + len(called) > 1
    routes = _main_routes(placed)
    return tuple(
        _plan(
            nic,
            (
                *_link(sandbox.container, nic, node.namespace_mode),
                *_brought_up(nic, crowded, assigned),
                *_addressed(nic, assigned),
                *_talk(sandbox.container, nic, assigned, routes[assigned.interface]),
            ),
            assigned.addresses,
        )
        for nic, assigned in placed
    )


def begun(
    sandbox: Sandbox,
    nics: Sequence[PodNic],
    node: HostNetwork,
    called: Sequence[Plan] = (),
    *,
    alone: bool = True,
) -> tuple[Plan, ...]:
    """Return plans up to the call of an IPAM plugin, for interfaces that it gives addresses.

    `plans` begins with the same Steps for these interfaces.
    """
    crowded = not alone or len(nics) + len(called) > 1
    return tuple(
        _plan(
            nic, (*_link(sandbox.container, nic, node.namespace_mode), *_brought_up(nic, crowded))
        )
        for nic in nics
        if nic.ipam
    )


def _plan(
    nic: PodNic, planned: tuple[steps.Step, ...], addresses: tuple[InterfaceAddress, ...] = ()
) -> Plan:
    return Plan(
        interface=nic.interface,
        network=nic.network.name,
        card=nic.card.id if nic.card else None,
        steps=planned,
        addresses=addresses,
        held=nic.share.held if nic.share else None,
    )


def leads_pod(plan: Plan) -> bool:
    """Return whether the plan gives the pod a default route that is not through eth0."""
    routes = (one for one in plan.steps if isinstance(one, steps.AddRoute) and not one.table)
    return plan.interface != FIRST and any(is_default(one.to) for one in routes)


def plugin_calls(planned: Sequence[Plan]) -> tuple[steps.CallPlugin, ...]:
    """Return the calls of other plugins in these plans."""
    every = (step for plan in planned for step in plan.steps)
    return tuple(step for step in every if isinstance(step, steps.CallPlugin))


def gids_wanted(planned: Sequence[Plan]) -> dict[str, int]:
    """Return for each shared RDMA device how many addresses need a new GID on it."""
    counts: Counter[str] = Counter()
    for plan in planned:
        made = {step.name for step in plan.steps if isinstance(step, steps.MakeRdma)}
        if any(isinstance(step, steps.MakeLink) for step in plan.steps):
            awaited = (step.device for step in plan.steps if isinstance(step, steps.AwaitGid))
            counts.update(device for device in awaited if device not in made)
    return counts


def gid_room(table: GidTable, addresses: int) -> None:
    """Raise Refused if a device's GID table has no room for so many new addresses."""
    need, free = addresses * table.versions, table.size - table.used
    if need > free:
        raise Refused(
            f"the GID table of {table.device} is full: {table.used} of {table.size} entries are "
            f"in use, and {addresses} addresses need {need}",
            remedy="Wait until other pods on this card have ended, or give it fewer shares",
            where=table.device,
        )


def mark(container: ContainerId, interface: InterfaceName) -> steps.Mark:
    """Return the alias that marks a link as made for this attachment."""
    return steps.Mark(f"kube-rdma {container}/{interface}")


def soft_name(kind: str, container: ContainerId, interface: InterfaceName) -> str:
    """Return the name of a soft RDMA link, which no other pod of the node has.

    It has only letters, digits and one dash, as it appears in lists where , : and = have a meaning.
    """
    digest = blake2b(f"{container}/{interface}".encode(), digest_size=6).hexdigest()
    return f"{kind}-{digest[:11]}"


def subnet_of(address: InterfaceAddress) -> Subnet:
    """Return the subnet that an address lies in."""
    return ip_network((address.address, address.prefix), strict=False)


def _whole(nic: PodNic, leased: Mapping[InterfaceName, AssignedAddresses]) -> AssignedAddresses:
    """Return all addresses and routes of an interface: from pool, documents and pod."""
    network, ask = nic.network, nic.entry.ask
    given = leased.get(ask.interface, AssignedAddresses(ask.interface))
    own = () if network.pools or network.ipam_plugin else ask.addresses
    asked = [InterfaceAddress(one.address, one.prefix) for one in own if one.prefix is not None]
    routes = tuple(dict.fromkeys((*network.routes, *given.routes)))
    return replace(given, addresses=(*given.addresses, *network.static, *asked), routes=routes)


def _link(container: ContainerId, nic: PodNic, mode: NamespaceMode) -> Iterator[steps.Step]:
    """Yield the Steps that bring the link into the pod, with RDMA devices that move along."""
    alias = mark(container, nic.entry.ask.interface)
    match nic.way:
        case Way.TAKE:
            yield from _taken(nic, alias, mode)
        case Way.IPOIB:
            yield from partition(nic)
            yield replace(_made(nic, alias), pkey=kinds.partition_of(nic.network))
        case Way.MACVLAN | Way.IPVLAN:
            yield _made(nic, alias)


def _made(nic: PodNic, alias: steps.Mark) -> steps.MakeLink:
    network = nic.network
    mode = network.mode if isinstance(network, kinds.MacvlanNetwork | kinds.IpvlanNetwork) else ""
    return steps.MakeLink(
        kind=steps.VirtualKind(nic.way),
        parent=PlannedHostLink(nic.link.index, nic.link.name),
        name=nic.interface,
        mark=alias,
        mode=mode or _MODES[nic.way],
        mtu=network.mtu,
        mac=nic.entry.mac,
    )


def _taken(nic: PodNic, alias: steps.Mark, mode: NamespaceMode) -> Iterator[steps.Step]:
    """Yield the Steps that move a card's own link, and in mode exclusive its RDMA devices."""
    link, wide = nic.link, nic.link.link_type == "infiniband"
    take = steps.TakeLink(
        link=PlannedHostLink(link.index, link.name),
        name=taken_as(nic) if wide else nic.interface,
        pci=link.pci,
        mtu=link.mtu,
        mac=link.mac,
        up=link.up,
        soft=soft_links(nic.card) if nic.card else (),
        addresses=link.addresses,
        active=wide and awaits_port(nic),
        routes=link.ways.routes if link.ways else (),
        rules=link.ways.rules if link.ways else (),
    )
    moves = nic.devices if mode is NamespaceMode.EXCLUSIVE else ()
    # Of the device, not of the link: a sub-function's device has no PCI address of its own.
    pci = {device.name: device.pci for device in nic.card.devices} if nic.card else {}
    rdma: list[steps.Step] = [steps.MoveRdma(device, pci[device]) for device in moves]
    if link.virtual:
        yield from before_move(nic)
    if not wide:
        yield from (take, *rdma)
    else:
        yield from rebinding(nic)
        yield from partition(nic)
        # Moving an InfiniBand device makes its interface again, so that one is taken afterwards.
        yield from (*rdma, take)
    if link.virtual:
        yield from after_move(nic)
    if wide:
        yield from child(nic, alias)


def _brought_up(
    nic: PodNic, crowded: bool, given: AssignedAddresses | None = None
) -> Iterator[steps.Step]:
    """Yield the Steps that set sysctls, bring the link up and call an IPAM plugin, if any."""
    network, name = nic.network, nic.interface
    ignored = {} if network.accept_ra else {f"net/ipv6/conf/{name}/{_ACCEPT_RA}": "0"}
    asked = {f"net/{tree}/{name}/{key}": value for tree, key, value in network.sysctls}
    wanted = ignored | asked
    if crowded:
        wanted |= {f"net/ipv4/conf/{name}/{key}": value for key, value in _SEVERAL}
    if given and not nic.ipam:
        wanted |= _with_ipv6(given)
    for path, value in wanted.items():
        yield steps.SetSysctl(path, value, optional=path in ignored and path not in asked)
    yield steps.SetLink(name, nic.mtu, nic.entry.mac)
    if nic.ipam:
        yield nic.ipam


def _with_ipv6(given: AssignedAddresses) -> dict[str, str]:
    """Return the sysctl that enables IPv6 on the interface, if it gets such an address."""
    if any(address.address.version == 6 for address in given.addresses):
        return {f"net/ipv6/conf/{given.interface}/disable_ipv6": "0"}
    return {}


def _addressed(nic: PodNic, given: AssignedAddresses) -> Iterator[steps.Step]:
    name = given.interface
    if nic.ipam:
        yield from (steps.SetSysctl(path, value) for path, value in _with_ipv6(given).items())
    # InfiniBand has other frames; ipvlan hands an ARP answer to the link that has its target
    # address, and sends none in mode l3 (drivers/net/ipvlan/ipvlan_core.c).
    can_probe = given.probe and nic.way is not Way.IPVLAN and nic.link.link_type != "infiniband"
    for address in given.addresses:
        if can_probe:
            yield steps.Probe(name, address.address)
        yield steps.AddAddress(name, address.address, address.prefix)


def _talk(
    container: ContainerId, nic: PodNic, given: AssignedAddresses, routes: Sequence[steps.AddRoute]
) -> Iterator[steps.Step]:
    """Yield the Steps for RDMA, rules and routes, then those that wait for GIDs and announce."""
    name, devices = given.interface, nic.devices
    if nic.soft:
        devices = (soft_name(nic.soft, container, name),)
        yield steps.MakeRdma(devices[0], nic.soft, name)
    yield from _own_table(given, FIRST_TABLE + nic.number)
    yield from routes
    if nic.roce:
        for device in devices:
            yield from (steps.AwaitGid(device, name, one.address) for one in given.addresses)
    yield from (steps.Announce(name, one.address) for one in given.addresses)


def _main_routes(
    placed: Sequence[tuple[PodNic, AssignedAddresses]],
) -> dict[InterfaceName, tuple[steps.AddRoute, ...]]:
    """Return each interface's routes in the pod's main table, one for each destination.

    Of equal destinations the first in the annotation has the route. A default route is left out
    unless the entry asks for one, or the interface is eth0.
    """
    taken: set[Subnet] = set()
    routes = {}
    for nic, given in placed:
        name = given.interface
        own = []
        for route in given.routes:
            stays = is_default(route.to) and name != FIRST
            if not stays and route.to not in taken:
                taken.add(route.to)
                beyond = _is_beyond(route.via, given)
                own.append(steps.AddRoute(name, route.to, _via(route, given), onlink=beyond))
        own += [
            steps.AddRoute(name, everywhere(hop), hop, onlink=_is_beyond(hop, given))
            for hop in nic.entry.ask.default_routes
        ]
        routes[name] = tuple(own)
    return routes


def _own_table(given: AssignedAddresses, table: int) -> Iterator[steps.Step]:
    """Yield a table's routes and the rules that send traffic of an interface's addresses there."""
    name = given.interface
    routes: dict[Subnet, steps.AddRoute] = {}
    for address in given.addresses:
        subnet = subnet_of(address)
        if address.prefix < address.address.max_prefixlen:
            routes.setdefault(subnet, steps.AddRoute(name, subnet, None, address.address, table))
    for address in given.addresses:
        if address.gateway:
            default = everywhere(address.gateway)
            beyond = _is_beyond(address.gateway, given)
            leads = steps.AddRoute(name, default, address.gateway, None, table, beyond)
            routes.setdefault(default, leads)
    for route in given.routes:
        if any(address.address.version == route.to.version for address in given.addresses):
            hop, beyond = _via(route, given), _is_beyond(route.via, given)
            routes.setdefault(route.to, steps.AddRoute(name, route.to, hop, None, table, beyond))
    yield from routes.values()
    yield from (steps.AddRule(address.address, table, RULE_PRIORITY) for address in given.addresses)


def _via(route: NetworkRoute, given: AssignedAddresses) -> Address | None:
    """Return a route's next hop: as written, else the family's gateway; None without one."""
    if route.via is not None or route.onlink:
        return route.via
    gateways = (one.gateway for one in given.addresses if one.gateway)
    return next((gw for gw in gateways if gw.version == route.to.version), None)


def _is_beyond(gateway: Address | None, given: AssignedAddresses) -> bool:
    """Return whether a gateway is outside of all subnets of the interface."""
    subnets = map(subnet_of, given.addresses)
    return gateway is not None and not any(gateway in subnet for subnet in subnets)


def everywhere(gateway: Address) -> Subnet:
    """Return the destination of a default route, 0.0.0.0/0 or ::/0, for this gateway."""
    return ip_network("0.0.0.0/0" if gateway.version == 4 else "::/0")


def _refuse_twice(placed: Sequence[tuple[PodNic, AssignedAddresses]]) -> None:
    """Raise Refused for an address that a pod would have twice."""
    first: dict[Address, PodNic] = {}
    for nic, given in placed:
        for address in given.addresses:
            if other := first.get(address.address):
                source = other.entry.ask.source
                problem = f"{address.address} is taken twice, {source} has it already"
                raise refused(nic.entry, "ips", problem, "Write another address for one of them")
            first[address.address] = nic


def _refuse_default_routes(
    placed: Sequence[tuple[PodNic, AssignedAddresses]], called: Sequence[Plan]
) -> None:
    """Raise Refused for a second default route of one address family."""
    routes = (one for plan in called for one in plan.steps if isinstance(one, steps.AddRoute))
    first = {one.to.version: str(one.name) for one in routes if is_default(one.to)}
    for nic, _ in placed:
        for index, gateway in enumerate(nic.entry.ask.default_routes):
            if other := first.get(gateway.version):
                problem = f"{other} has a default route of IPv{gateway.version} already"
                raise refused(nic.entry, _default(index), problem, "Keep one of the two")
            first[gateway.version] = nic.entry.ask.source


def _refuse_far(nic: PodNic, given: AssignedAddresses) -> None:
    """Raise Refused for gateways that the interface cannot reach."""
    own = {one.gateway for one in given.addresses}  # whoever gave them knows the way there
    asked = enumerate(nic.entry.ask.default_routes)
    hops = [(_default(at), via) for at, via in asked if via not in own]
    families = {one.address.version for one in given.addresses}
    led = (r for r in given.routes if r.via and not (r.onlink and r.via.version in families))
    hops += [(f"route to {route.to}", route.via) for route in led if route.via]
    for field, gateway in hops:
        if _is_beyond(gateway, given):
            problem = f"the gateway {gateway} is in no subnet of {given.interface}"
            subnets = ", ".join(str(subnet_of(one)) for one in given.addresses)
            remedy = f"Write one inside of {subnets}" if subnets else "Give the network addresses"
            raise refused(nic.entry, field, problem, remedy)


def _default(index: int) -> str:
    return f"default-route[{index}]"
