"""Where the addresses of an interface come from: a pool, its card, or another IPAM plugin.

Between attach/rules/seats and attach/rules/plan, by turns of attach/rules/procedure. Of a pool's
routes only those are the interface's whose gateway it can reach. A card brings along the addresses
that it has on the node, where its network says so. An IPAM plugin gets the configuration that the
main plugin of its network would have had (CNI specification 1.1.0, section 4), and its answer
becomes what an IPPool would have given; it is asked when the link is up, so its call is a Step of
the plan (attach/rules/plan: `begun`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.attach.rules.foreign_plugins import call, given_to_plugins, has_default_route
from kube_rdma.attach.rules.plan import subnet_of
from kube_rdma.attach.rules.requests import argued_ips, refused
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import (
    Attachment,
    CardAddresses,
    Given,
    InterfaceAddress,
    LinkWays,
    Network,
    NetworkRoute,
    NetworkSeat,
    Plan,
    Way,
    Wish,
)
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.steps import CallPlugin, MakeLink, SetLink
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.ipam import Address, AddressAllocation, InterfaceName, IPPool, Owner, Route
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.reports import AddressPool

_OLDEST = "0.3.1"  # before 0.3.0 an answer has another form, and CNI_ARGS were all that pods had
_MAIN_TABLE = 254  # RT_TABLE_MAIN, linux/rtnetlink.h


def of_allocations(
    interface: InterfaceName, allocations: Sequence[AddressAllocation], pool: IPPool
) -> Given:
    """Addresses and routes of an interface, out of the allocations of its container."""
    own = [one for one in allocations if one.interface == interface]
    addresses = tuple(
        InterfaceAddress(one.address, one.subnet.prefixlen, one.gateway) for one in own
    )
    routes = tuple(
        NetworkRoute(one.to, one.via)
        for one in pool.routes
        if any(_reaches(allocation, one) for allocation in own)
    )
    return Given(interface, addresses, routes, pool.probe)


def unpooled(wishes: Iterable[Wish]) -> tuple[tuple[Wish, Address], ...]:
    """As procedure.Wished has them."""
    return tuple(
        (wish, address)
        for wish in wishes
        if not wish.network.pools
        for address in (
            *(one.address for one in (*wish.ask.addresses, *wish.ask.passed_on)),
            *argued_ips(wish.ask),
        )
    )


def refuse_reserved(
    asked: Iterable[tuple[Wish, Address]], namespace: str, pools: Iterable[IPPool]
) -> None:
    """Raise Refused for an address in a subnet of a pool that is for other namespaces.

    The whole subnet counts, for its gateway is nobody's to take either. An address that is mapped
    into IPv6 has the GID of the IPv4 one.
    """
    kept = [one for one in pools if one.namespaces and namespace not in one.namespaces]
    for wish, address in asked:
        for pool in kept:
            meant = getattr(address, "ipv4_mapped", None) or address
            if any(meant in one.subnet for one in pool.ranges):
                problem = (
                    f"{address} is of IPPool {pool.name}, which is for pods of "
                    f"{listed(pool.namespaces)}, and this pod is of namespace {namespace}"
                )
                remedy = "Ask for another address, or have the namespace added to the pool"
                raise refused(wish, "ips", problem, remedy)


def refuse_doubled(
    placed: Sequence[NetworkSeat], attachments: Sequence[Attachment], reserved: Mapping[str, str]
) -> None:
    """Raise Refused for what a claim gives several pods, and one of them has already.

    `attachments` are those of other sandboxes, `reserved` says by key who is about to get it.
    """
    for seat in placed:
        for key, (field, value) in sole(seat).items():
            holders = (
                f"{one.sandbox.pod} has it, on {plan.interface}"
                for one in attachments
                for plan in one.plans
                if key in _had(plan)
            )
            if holder := reserved.get(key) or next(holders, None):
                remedy = f"Wait until that pod has ended, or give each pod its own {field}"
                raise refused(seat.wish, field, f"{value} is taken, {holder}", remedy)


def sole(seat: NetworkSeat) -> dict[str, tuple[str, str]]:
    """By key the field and value of what a claim alone gives the interface, and IPAM does not.

    A pool gives each pod its own. Without one it is one interface's of a network, and of a card.
    """
    ask, network = seat.wish.ask, seat.wish.network
    if ask.held is None:
        return {}
    asked = () if network.pools or network.ipam_plugin else ask.addresses
    own = (*(one.address for one in network.static), *(one.address for one in asked))
    values = [("addresses", str(address)) for address in own]
    if mac := ask.mac or network.mac:
        values.append(("mac", mac.lower()))
    places = (network.name, *((seat.card.id,) if seat.card else ()))
    return {f"{place} {one[1]}": one for place in places for one in values}


def _had(plan: Plan) -> Iterator[str]:
    """The keys of what an interface was given, as `sole` has them."""
    macs = [
        one.mac.lower() for one in plan.steps if isinstance(one, MakeLink | SetLink) and one.mac
    ]
    for value in (*(str(one.address) for one in plan.addresses), *macs):
        yield from (f"{place} {value}" for place in (plan.network, plan.card))


def owner(pod: PodState, interface: InterfaceName) -> Owner | None:
    """By what the addresses are found again for the pod that comes next under its name.

    Only those of a StatefulSet come again.
    """
    if not any(key == "apps.kubernetes.io/pod-index" for key, _ in pod.labels):
        return None
    return Owner(f"{pod.namespace}/{pod.name}/{interface}")


def with_calls(seats: Sequence[NetworkSeat]) -> tuple[NetworkSeat, ...]:
    """The seats with the calls of the IPAM plugins that their networks name.

    Raise Refused for a document that plugins cannot read.
    """
    return tuple(
        replace(seat, ipam=_call(seat)) if seat.wish.network.ipam_plugin else seat for seat in seats
    )


def of_answer(seat: NetworkSeat, result: CniResult) -> Given:
    """What a plugin's answer comes to.

    Routes of other tables are left out: kube-rdma gives each interface one of its own. Raise
    Refused where the pod asks for an address that is not in the answer.
    """
    addresses = tuple(
        InterfaceAddress(one.address.ip, one.address.network.prefixlen, one.gateway)
        for one in result.addresses
    )
    wish, got = seat.wish, [one.address for one in addresses]
    if untaken := [str(one.address) for one in wish.ask.addresses if one.address not in got]:
        plugin = wish.network.ipam_plugin
        problem = f"{listed(untaken)} is asked for, and {plugin} gave {listed([*map(str, got)])}"
        remedy = (
            f'Write "capabilities": {{"ips": true}} into the configuration if {plugin} heeds it, '
            "or ask for no address"
        )
        raise refused(wish, "ips", problem, remedy)
    routes = tuple(
        NetworkRoute(one.to, one.via) for one in result.routes if one.table in (None, _MAIN_TABLE)
    )
    return Given(wish.ask.interface, addresses, routes)


def is_of_card(seat: NetworkSeat, pool: IPPool | None, rail: int | None) -> bool:
    """Whether the card's own addresses take the place of the pool's, which has none for its rail.

    The pool that the network rdma finds by its name may be older than the node's fifth card.
    """
    network, ranges = seat.wish.network, pool.ranges if pool else ()
    has_range = any(one.rail in (None, rail) for one in ranges)
    is_own = network.card_addresses is CardAddresses.MOVE and not seat.wish.ask.addresses
    return is_own and not has_range and next(_of_card(seat), None) is not None


def with_card_addresses(seats: Sequence[NetworkSeat], given: Sequence[Given]) -> tuple[Given, ...]:
    """What each interface gets, with the addresses that its card brings along from the node.

    Raise Refused where they are required and there are none, or the card does not move; and where
    RDMA devices would have no GID, for neither the card nor a pool nor the pod has an address.
    """
    by_interface = {one.interface: one for one in given}
    for seat in seats:
        name = seat.wish.ask.interface
        before = by_interface.get(name, Given(name))
        is_lenient = seat.wish.network.card_addresses is CardAddresses.MOVE
        if is_lenient and before.addresses:
            continue
        brought = tuple(_of_card(seat))
        if is_lenient and not brought:
            _refuse_bare(seat)
        if brought:
            addresses = (*before.addresses, *brought)
            routes = (*before.routes, *_routes_of_card(seat, brought))
            by_interface[name] = replace(before, addresses=addresses, routes=routes)
    return tuple(by_interface.values())


def with_default_routes(
    seats: Sequence[NetworkSeat], given: Sequence[Given]
) -> tuple[NetworkSeat, ...]:
    """The seats with the gateways that the default route of an entry leads to.

    Raise Refused for an entry whose addresses have none.
    """
    by_interface = {one.interface: one for one in given}
    return tuple(_routed(seat, by_interface) if seat.wish.ask.default else seat for seat in seats)


def default_routes(
    networks: Iterable[Network], pools: Iterable[IPPool | AddressPool]
) -> Iterator[Finding]:
    """Advice about networks and pools with a default route, which no pod gets unasked."""
    problem = "Its default route is not in the main table of pods, which keep that of eth0"
    remedy = "For a pod whose traffic is to leave through it, write default-route into its entry"
    routed = [f"ippool/{pool.name}" for pool in pools if pool.routed]
    routed += [f"network/{one.name}" for one in networks if has_default_route(one)]
    for about in routed:
        yield Finding.of("DefaultRoute", about, problem, remedy, Severity.ADVICE)


def _reaches(allocation: AddressAllocation, route: Route) -> bool:
    """Whether a route of the pool is one of this NIC: its gateway may be another rail's."""
    if route.via is not None:
        return route.via in allocation.subnet
    return route.to.version == allocation.address.version


def _call(seat: NetworkSeat) -> CallPlugin:
    """Of all plugins of the network the first one's part, for it has the ipam block."""
    whole = call(seat.wish, given_to_plugins(seat.share, seat.card), _OLDEST)
    conf = replace(whole.plugins[0], type=seat.wish.network.ipam_plugin)
    return replace(whole, plugins=(conf,), addresses=True)


def _refuse_bare(seat: NetworkSeat) -> None:
    """The built-in network without its pool; on InfiniBand GIDs come from the fabric."""
    if not seat.roce or seat.wish.ask.addresses:
        return
    _, _, pool = seat.wish.network.name.rpartition("/")
    problem = f"no IPPool {pool} is there to give {seat.wish.ask.interface} an address"
    remedy = f"Create the IPPool {pool} with the subnets of the cards; docs/ip.md has an example"
    raise refused(seat.wish, "cniConf.name", problem, remedy)


def _of_card(seat: NetworkSeat) -> Iterator[InterfaceAddress]:
    """The first address of each family, as Cello takes them; the gateway is that of host-local."""
    wanted = seat.wish.network.card_addresses
    if wanted is CardAddresses.STAY:
        return
    if seat.way is not Way.TAKE:
        if wanted is CardAddresses.REQUIRED:
            problem = f"{seat.link.name} stays on the node with its addresses: its card is shared"
            remedy = "Use a pool of mode exclusive, or write ipam in place of ipRangesSource"
            raise refused(seat.wish, "meta.ipRangesSource", problem, remedy)
        return
    first: dict[int, tuple[Address, int]] = {}
    for address, prefix in seat.link.addresses:
        first.setdefault(address.version, (address, prefix))
    if not first and wanted is CardAddresses.REQUIRED:
        problem = f"{seat.link.name} has no address on the node that could go into the pod"
        remedy = "Give the card an address on the node, or write ipam in place of ipRangesSource"
        raise refused(seat.wish, "meta.ipRangesSource", problem, remedy)
    for address, prefix in first.values():
        gateway = _gateway(InterfaceAddress(address, prefix), seat.link.ways)
        yield InterfaceAddress(address, prefix, gateway)


def _routes_of_card(
    seat: NetworkSeat, addresses: Sequence[InterfaceAddress]
) -> Iterator[NetworkRoute]:
    """The node's routes that these addresses use, but for default routes: those are gateways.

    A next hop that no subnet shows is on the link, as the node's own route to it says.
    """
    subnets = {subnet_of(one) for one in addresses}
    versions = {one.address.version for one in addresses}
    for route in seat.link.ways.own if seat.link.ways else ():
        if route.to.prefixlen and route.to not in subnets and route.to.version in versions:
            is_seen = any(route.via in subnet for subnet in subnets if route.via)
            yield NetworkRoute(route.to, route.via, onlink=not is_seen)


def _gateway(address: InterfaceAddress, ways: LinkWays | None) -> Address | None:
    """The router of a card's address, as the node's routes over the card have it.

    Of these that of the widest destination. Without any it is the other address of a /31 (RFC
    3021), else the first of the subnet, unless that is the card's own or there is no room for it.
    """
    version = address.address.version
    hops = [r for r in (ways.own if ways else ()) if r.via and r.via.version == version]
    if hops:
        return min(hops, key=lambda route: route.to.prefixlen).via
    subnet = subnet_of(address)
    if subnet.num_addresses == 2:
        return next(one for one in subnet if one != address.address)
    if subnet.num_addresses < 2:
        return None
    gateway = subnet.network_address + 1
    return None if gateway == address.address else gateway


def _routed(seat: NetworkSeat, given: Mapping[InterfaceName, Given]) -> NetworkSeat:
    wish = seat.wish
    addresses = given[wish.ask.interface].addresses if wish.ask.interface in given else ()
    gateways: dict[int, Address] = {}
    candidates = [one.gateway for one in addresses] + [one.gateway for one in wish.network.static]
    for gateway in candidates:
        if gateway is not None:
            gateways.setdefault(gateway.version, gateway)
    if not gateways:
        problem = f"no address of {wish.ask.interface} has a gateway, so it leads nowhere"
        remedy = "Remove default, or give the network a pool whose range has a gateway"
        raise refused(wish, "traffic.routes.default", problem, remedy)
    ask = replace(wish.ask, default_routes=tuple(gateways.values()))
    return replace(seat, wish=replace(wish, ask=ask))
