"""Decides which addresses an interface gets: of a pool, of its card, or by another IPAM plugin.

attach/rules/procedure calls it between placement and plan. An interface gets the routes of a pool
that it can use. A card brings along addresses that it has on the node, where its network says so.
An IPAM plugin gets the configuration that the main plugin of its network would have had (CNI
specification 1.1.0, section 4). Its answer becomes what an IPPool would have given. It is asked
when the link is up, so its call is a Step of the plan (plan.begun).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.attach.rules.foreign_plugins import call, given_to_plugins, has_default_route
from kube_rdma.attach.rules.plan import subnet_of
from kube_rdma.attach.rules.requests import argued_ips, refused
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import (
    AssignedAddresses,
    Attachment,
    CardAddresses,
    InterfaceAddress,
    LinkWays,
    MatchedEntry,
    Network,
    NetworkRoute,
    Plan,
    PodNic,
    Way,
)
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.steps import CallPlugin, MakeLink, SetLink
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.ipam import Address, AddressAllocation, InterfaceName, IPPool, Owner, Route
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.reports import AddressPool

_OLDEST = "0.3.1"  # before 0.3.0 an answer has another form
_MAIN_TABLE = 254  # RT_TABLE_MAIN, linux/rtnetlink.h


def of_allocations(
    interface: InterfaceName, allocations: Sequence[AddressAllocation], pool: IPPool
) -> AssignedAddresses:
    """Return an interface's addresses and routes from allocations and their pool."""
    own = [one for one in allocations if one.interface == interface]
    addresses = (InterfaceAddress(one.address, one.subnet.prefixlen, one.gateway) for one in own)
    routes = tuple(
        NetworkRoute(one.to, one.via)
        for one in pool.routes
        if any(_reaches(allocation, one) for allocation in own)
    )
    return AssignedAddresses(interface, tuple(addresses), routes, pool.probe)


def unpooled(entries: Iterable[MatchedEntry]) -> tuple[tuple[MatchedEntry, Address], ...]:
    """Return the addresses asked for in networks without a pool, each with its entry."""
    return tuple(
        (entry, address)
        for entry in entries
        if not entry.network.pools
        for address in (
            *(one.address for one in (*entry.ask.addresses, *entry.ask.passed_on)),
            *argued_ips(entry.ask),
        )
    )


def refuse_reserved(
    asked: Iterable[tuple[MatchedEntry, Address]], namespace: str, pools: Iterable[IPPool]
) -> None:
    """Raise Refused for an address in a subnet of a pool that is for other namespaces.

    The whole subnet counts, for its gateway is nobody's to take either. An IPv4 address that is
    mapped into IPv6 counts too, for both have one GID.
    """
    kept = [one for one in pools if one.namespaces and namespace not in one.namespaces]
    for entry, address in asked:
        for pool in kept:
            meant = getattr(address, "ipv4_mapped", None) or address
            if any(meant in one.subnet for one in pool.ranges):
                problem = (
                    f"{address} is of IPPool {pool.name}, which is for pods of "
                    f"{listed(pool.namespaces)}, and this pod is of namespace {namespace}"
                )
                remedy = "Ask for another address, or have the namespace added to the pool"
                raise refused(entry, "ips", problem, remedy)


def refuse_doubled(
    placed: Sequence[PodNic], attachments: Sequence[Attachment], reserved: Mapping[str, str]
) -> None:
    """Raise Refused for a MAC or address of a claim's interface that another pod has already.

    `attachments` are all others of this node. `reserved` says, for keys of `sole`, who is about
    to get the value.
    """
    for nic in placed:
        for key, (field, value) in sole(nic).items():
            plans = ((one.sandbox.pod, plan) for one in attachments for plan in one.plans)
            holders = (
                f"{pod} has it, on {plan.interface}" for pod, plan in plans if key in _had(plan)
            )
            if holder := reserved.get(key) or next(holders, None):
                remedy = f"Wait until that pod has ended, or give each pod its own {field}"
                raise refused(nic.entry, field, f"{value} is taken, {holder}", remedy)


def sole(nic: PodNic) -> dict[str, tuple[str, str]]:
    """Return a claim's MAC and fixed addresses, each with its field, by keys that show conflicts.

    No two interfaces of one network, or on one card, may have the same MAC or address. Addresses of
    pools and IPAM plugins are left out. Return nothing for entries without a claim.
    """
    ask, network = nic.entry.ask, nic.network
    if ask.held is None:
        return {}
    asked = () if network.pools or network.ipam_plugin else ask.addresses
    own = (*(one.address for one in network.static), *(one.address for one in asked))
    values = [("addresses", str(address)) for address in own]
    if mac := nic.entry.mac:
        values.append(("mac", mac.lower()))
    places = (network.name, *((nic.card.id,) if nic.card else ()))
    return {f"{place} {one[1]}": one for place in places for one in values}


def _had(plan: Plan) -> Iterator[str]:
    """Yield the keys of a plan's MACs and addresses, as `sole` makes them."""
    links = (one for one in plan.steps if isinstance(one, MakeLink | SetLink))
    macs = [one.mac.lower() for one in links if one.mac]
    for value in (*(str(one.address) for one in plan.addresses), *macs):
        yield from (f"{place} {value}" for place in (plan.network, plan.card))


def owner(pod: PodState, interface: InterfaceName) -> Owner | None:
    """Return the key that lets a StatefulSet's next pod of this name get the same addresses.

    Return None for other pods.
    """
    if not any(key == "apps.kubernetes.io/pod-index" for key, _ in pod.labels):
        return None
    return Owner(f"{pod.namespace}/{pod.name}/{interface}")


def with_calls(nics: Sequence[PodNic]) -> tuple[PodNic, ...]:
    """Return the NICs, each with the call of the IPAM plugin that its network names.

    Raise Refused for a document that plugins cannot read.
    """
    return tuple(replace(nic, ipam=_call(nic)) if nic.network.ipam_plugin else nic for nic in nics)


def of_answer(nic: PodNic, result: CniResult) -> AssignedAddresses:
    """Return the addresses and routes in an IPAM plugin's answer.

    Routes of other tables are left out: kube-rdma gives each interface one of its own. Raise
    Refused where the pod asks for an address that is not in the answer.
    """
    pairs = ((one.address, one.gateway) for one in result.addresses)
    addresses = tuple(InterfaceAddress(at.ip, at.network.prefixlen, via) for at, via in pairs)
    entry, got = nic.entry, [one.address for one in addresses]
    if untaken := [str(one.address) for one in entry.ask.addresses if one.address not in got]:
        plugin = entry.network.ipam_plugin
        problem = f"{listed(untaken)} is asked for, and {plugin} gave {listed([*map(str, got)])}"
        remedy = (
            f'Write "capabilities": {{"ips": true}} into the configuration if {plugin} heeds it, '
            "or ask for no address"
        )
        raise refused(entry, "ips", problem, remedy)
    led = (one for one in result.routes if one.table in (None, _MAIN_TABLE))
    routes = tuple(NetworkRoute(one.to, one.via) for one in led)
    return AssignedAddresses(entry.ask.interface, addresses, routes)


def is_of_card(nic: PodNic, pool: IPPool | None, rail: int | None) -> bool:
    """Return whether the card's own addresses are used, as the pool has no range for its rail.

    The IPPool named rdma may have been written before the node got another card.
    """
    network, ranges = nic.network, pool.ranges if pool else ()
    has_range = any(one.rail in (None, rail) for one in ranges)
    is_own = network.card_addresses is CardAddresses.MOVE and not nic.entry.ask.addresses
    return is_own and not has_range and next(_of_card(nic), None) is not None


def with_card_addresses(
    nics: Sequence[PodNic], given: Sequence[AssignedAddresses]
) -> tuple[AssignedAddresses, ...]:
    """Return all interfaces' addresses, with those that their cards bring from the node.

    Raise Refused where such addresses are required and there are none, or the card does not move.
    Raise it too where RoCE of the built-in network would have no address, so no GID.
    """
    by_interface = {one.interface: one for one in given}
    for nic in nics:
        name = nic.interface
        before = by_interface.get(name, AssignedAddresses(name))
        is_lenient = nic.network.card_addresses is CardAddresses.MOVE
        if is_lenient and before.addresses:
            continue
        brought = tuple(_of_card(nic))
        if is_lenient and not brought:
            _refuse_bare(nic)
        if brought:
            addresses = (*before.addresses, *brought)
            routes = (*before.routes, *_routes_of_card(nic, brought))
            by_interface[name] = replace(before, addresses=addresses, routes=routes)
    return tuple(by_interface.values())


def with_default_routes(
    nics: Sequence[PodNic], given: Sequence[AssignedAddresses]
) -> tuple[PodNic, ...]:
    """Return the NICs with the gateways for the default routes that entries ask for.

    Raise Refused for an entry whose addresses have no gateway.
    """
    by_interface = {one.interface: one for one in given}
    return tuple(_routed(nic, by_interface) if nic.entry.ask.default else nic for nic in nics)


def default_routes(
    networks: Iterable[Network], pools: Iterable[IPPool | AddressPool]
) -> Iterator[Finding]:
    """Yield advice on networks and pools whose default route a pod has to ask for."""
    problem = "Its default route is not in the main table of pods, which keep that of eth0"
    remedy = "For a pod whose traffic is to leave through it, write default-route into its entry"
    routed = [f"ippool/{pool.name}" for pool in pools if pool.routed]
    routed += [f"network/{one.name}" for one in networks if has_default_route(one)]
    for about in routed:
        yield Finding.of("DefaultRoute", about, problem, remedy, Severity.ADVICE)


def _reaches(allocation: AddressAllocation, route: Route) -> bool:
    """Return whether a pool's route is usable from an address.

    Its gateway has to be in the subnet of the address; without one, the families have to be equal.
    """
    if route.via is not None:
        return route.via in allocation.subnet
    return route.to.version == allocation.address.version


def _call(nic: PodNic) -> CallPlugin:
    """Return the call of the IPAM plugin with the configuration of a network's first plugin."""
    whole = call(nic.entry, given_to_plugins(nic.share, nic.card), _OLDEST)
    conf = replace(whole.plugins[0], type=nic.network.ipam_plugin)
    return replace(whole, plugins=(conf,), addresses=True)


def _refuse_bare(nic: PodNic) -> None:
    """Raise Refused where an interface for RoCE has no pool and no address, so no GID."""
    if not nic.roce or nic.entry.ask.addresses:
        return
    _, _, pool = nic.network.name.rpartition("/")
    problem = f"no IPPool {pool} is there to give {nic.interface} an address"
    remedy = f"Create the IPPool {pool} with the subnets of the cards; docs/ip.md has an example"
    raise refused(nic.entry, "cniConf.name", problem, remedy)


def _of_card(nic: PodNic) -> Iterator[InterfaceAddress]:
    """Yield a card's first IPv4 and IPv6 address, where it brings them into the pod."""
    wanted = nic.network.card_addresses
    if wanted is CardAddresses.STAY:
        return
    if nic.way is not Way.TAKE:
        if wanted is CardAddresses.REQUIRED:
            problem = f"{nic.link.name} stays on the node with its addresses: its card is shared"
            remedy = "Use a pool of mode exclusive, or write ipam in place of ipRangesSource"
            raise refused(nic.entry, "meta.ipRangesSource", problem, remedy)
        return
    first: dict[int, tuple[Address, int]] = {}
    for address, prefix in nic.link.addresses:
        first.setdefault(address.version, (address, prefix))
    if not first and wanted is CardAddresses.REQUIRED:
        problem = f"{nic.link.name} has no address on the node that could go into the pod"
        remedy = "Give the card an address on the node, or write ipam in place of ipRangesSource"
        raise refused(nic.entry, "meta.ipRangesSource", problem, remedy)
    for address, prefix in first.values():
        gateway = _gateway(InterfaceAddress(address, prefix), nic.link.ways)
        yield InterfaceAddress(address, prefix, gateway)


def _routes_of_card(nic: PodNic, addresses: Sequence[InterfaceAddress]) -> Iterator[NetworkRoute]:
    """Yield the node's routes over a card, except default routes and those to its own subnets.

    A next hop outside of all these subnets is reached on the link.
    """
    subnets = {subnet_of(one) for one in addresses}
    versions = {one.address.version for one in addresses}
    for route in nic.link.ways.own if nic.link.ways else ():
        if route.to.prefixlen and route.to not in subnets and route.to.version in versions:
            is_seen = any(route.via in subnet for subnet in subnets if route.via)
            yield NetworkRoute(route.to, route.via, onlink=not is_seen)


def _gateway(address: InterfaceAddress, ways: LinkWays | None) -> Address | None:
    """Return the gateway for a card's address, by the node's routes over the card; or a guess.

    Of several routes the one to the widest destination counts. The guess is the other address of a
    subnet of two, else the subnet's first one. It is None if that is the card's own, or does not
    exist.
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


def _routed(nic: PodNic, given: Mapping[InterfaceName, AssignedAddresses]) -> PodNic:
    entry = nic.entry
    addresses = given[entry.ask.interface].addresses if entry.ask.interface in given else ()
    gateways: dict[int, Address] = {}
    candidates = [one.gateway for one in addresses] + [one.gateway for one in entry.network.static]
    for gateway in candidates:
        if gateway is not None:
            gateways.setdefault(gateway.version, gateway)
    if not gateways:
        problem = f"no address of {entry.ask.interface} has a gateway, so it leads nowhere"
        remedy = "Remove default, or give the network a pool whose range has a gateway"
        raise refused(entry, "traffic.routes.default", problem, remedy)
    ask = replace(entry.ask, default_routes=tuple(gateways.values()))
    return replace(nic, entry=replace(entry, ask=ask))
