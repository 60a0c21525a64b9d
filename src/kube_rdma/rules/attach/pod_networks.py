"""What a pod that asks by ``k8s.volcengine.com/pod-networks`` can have, and what follows from it.

Beside rules/attach/requests and rules/attach/seats. The list has a block for each card, so blocks
and shares are counted before anything is looked for. What a block means but does not say is filled
in as soon as it is known: the addresses that a card brings along, once its link is found, and the
gateways of a default route, once there are addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from kube_base.errors import Refused
from kube_rdma.model.attach.attachment import (
    CardAddresses,
    Given,
    GrantedShare,
    InterfaceAddress,
    NetworkAsk,
    NetworkKind,
    NetworkSeat,
    Way,
    Wish,
)
from kube_rdma.model.ipam import Address, InterfaceName
from kube_rdma.model.pools.pool import Bind
from kube_rdma.rules.attach.plan import subnet_of
from kube_rdma.rules.attach.requests import POD_NETWORKS, refused
from kube_rdma.rules.phrases import listed

RESOURCE = "vke.volcengine.com/rdma"
"""The resource that blocks are about when they say no other."""


def refuse_traffic(wishes: Sequence[Wish]) -> None:
    """Raise Refused for routes of entries whose interface other plugins make, and route."""
    faults = [
        refused(
            wish,
            "traffic",
            f"networks of type {wish.network.plugin} are made and routed by that plugin",
            "Remove traffic from this entry, and write the routes into the configuration",
        )
        for wish in wishes
        if wish.network.kind is NetworkKind.OTHER and (wish.ask.routes or wish.ask.default)
    ]
    if faults:
        raise Refused.all(faults)


def refuse_count(wishes: Sequence[Wish], granted: Sequence[GrantedShare]) -> None:
    """Raise Refused where a resource has not as many blocks as the pod holds shares of it.

    A share of a pool (mode hca) is not one card, so there the two may differ. What is held of
    RESOURCE is held for blocks, also where none names it.
    """
    faults = []
    held = [one.resource for one in granted if one.resource == RESOURCE]
    for resource in dict.fromkeys((*(wish.network.resource for wish in wishes), *held)):
        shares = [one for one in granted if one.resource == resource]
        pooled = any(one.bind is Bind.POOL for one in shares)
        asking = [wish for wish in wishes if wish.network.resource == resource]
        if len(shares) > len(asking) and resource == RESOURCE:
            asking += [wish for wish in wishes if _takes_any(wish)][: len(shares) - len(asking)]
        if resource is None or pooled or len(asking) == len(shares):
            continue
        faults.append(_miscounted(resource, asking, len(shares)))
    if faults:
        raise Refused.all(faults)


def unknown(asks: Sequence[NetworkAsk], names: Sequence[str], places: Sequence[str]) -> Refused:
    """The refusal of entries whose network is nowhere.

    `names` are those of the networks on the node and of kube-rdma's own, `places` the namespaces in
    which a NetworkAttachmentDefinition was looked for.
    """
    available = listed(names)
    faults = []
    for ask in asks:
        meant = get_close_matches(ask.network, names, n=1)
        guess = f"Did you mean {meant[0]}? " if meant else ""
        faults.append(
            Refused(
                f"there is no network {ask.network}: known are {available}, and no "
                f"NetworkAttachmentDefinition of this name is in namespace {' or '.join(places)}",
                remedy=f"{guess}Name one of these, install a CNI configuration of this name on "
                "every node, or create the NetworkAttachmentDefinition",
                where=f"{ask.source}.cniConf.name",
            )
        )
    return Refused.all(faults)


def with_card_addresses(seats: Sequence[NetworkSeat], given: Sequence[Given]) -> tuple[Given, ...]:
    """What each interface gets, with the addresses that its card brings along from the node.

    Raise Refused where they are required and there are none, or the card does not move; and where
    RDMA devices would have no GID, for neither the card nor a pool nor the pod has an address.
    """
    by_interface = {one.interface: one for one in given}
    for seat in seats:
        name = seat.wish.ask.interface
        brought = tuple(_of_card(seat))
        if seat.wish.network.card_addresses is CardAddresses.MOVE and not brought:
            _refuse_bare(seat)
        if brought:
            before = by_interface.get(name, Given(name))
            by_interface[name] = replace(before, addresses=(*before.addresses, *brought))
    return tuple(by_interface.values())


def with_default_routes(
    seats: Sequence[NetworkSeat], given: Sequence[Given]
) -> tuple[NetworkSeat, ...]:
    """The seats with the gateways that the default route of an entry leads to.

    Raise Refused for an entry whose addresses have none.
    """
    by_interface = {one.interface: one for one in given}
    return tuple(_routed(seat, by_interface) if seat.wish.ask.default else seat for seat in seats)


def _takes_any(wish: Wish) -> bool:
    """Whether kube-rdma's interface may be on a share although its network names no resource."""
    return wish.network.resource is None and wish.network.kind is not NetworkKind.OTHER


def _miscounted(resource: str, asking: Sequence[Wish], shares: int) -> Refused:
    block = f'{{"cniConf": {{"name": "{asking[0].ask.network if asking else "rdma"}"}}}}'
    blocks = "block" if len(asking) == 1 else "blocks"
    times = "once" if shares == 1 else f"{shares} times"
    more = f"write {block} {times}" if shares else "remove them"
    less = f"Ask for {resource}: {len(asking)}" if asking else f"Ask for no {resource}"
    return Refused(
        f"the annotation has {len(asking)} {blocks} for {resource}, and the containers of the pod "
        f"hold {shares} of it",
        remedy=f"{less}, or {more}",
        where=POD_NETWORKS,
    )


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
        yield InterfaceAddress(address, prefix, _gateway(InterfaceAddress(address, prefix)))


def _gateway(address: InterfaceAddress) -> Address | None:
    """The first address of the subnet, unless that is the card's own or there is no room for it."""
    subnet = subnet_of(address)
    if subnet.num_addresses <= 2:
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
