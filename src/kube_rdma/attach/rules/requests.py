"""What a pod asks for meets what there is: entries of its annotation and documents of networks.

First of the rules of an attachment, before cards (attach/rules/seats) and addresses are looked for:
what is refused here has cost nothing yet. A list of ``k8s.volcengine.com/pod-networks`` has a block
for each card, so blocks and shares are counted here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_interface
from typing import TypeVar

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    Attached,
    GrantedShare,
    Network,
    NetworkAsk,
    NetworkKind,
    Plan,
    Wish,
)
from kube_rdma.model.ipam import Address
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Bind

Made = TypeVar("Made", Plan, Attached)

ANNOTATION = "k8s.v1.cni.cncf.io/networks"
POD_NETWORKS = "k8s.volcengine.com/pod-networks"
POD_NETWORKS_DEFINITION = "k8s.volcengine.com/pod-networks-definition"
SHARED = "kube-system"
"""Namespace of the definitions that a pod of any namespace can name by cniConf."""

DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
RESOURCE = "vke.volcengine.com/rdma"
"""The resource that blocks are about when they say no other."""

_ANYWHERE = (NetworkKind.MACVLAN, NetworkKind.IPVLAN)

NO_GUID = "ff:ff:ff:ff:ff:ff:ff:ff"
"""What a function without a GUID is set back to, as ib-sriov-cni does."""

_GUID_OF_NO_MAC = "00:00:00:ff:fe:00:00:00"  # what mlx5 makes of an administrative MAC of zeros

_NO_EFFECT = {
    "portMappings": "ports are mapped on the cluster's network, where the pod's services are",
    "bandwidth": "RDMA bypasses the kernel's queues, so no rate set there would hold",
}


def is_asking(pod: PodState) -> bool:
    """Whether a pod asks for networks by one of the annotations, and can have some."""
    return names_networks(pod.annotations) and not pod.host_network


def names_networks(annotations: Iterable[tuple[str, str]]) -> bool:
    """Whether one of the annotations asks for networks."""
    asked = dict(annotations)
    keys = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION)
    return any(asked.get(key, "").strip() for key in keys)


def names_default(annotations: Iterable[tuple[str, str]]) -> bool:
    """Whether the pod names the network that it wants in place of the cluster's."""
    return bool(dict(annotations).get(DEFAULT_NETWORK, "").strip())


def default_refused(pod: PodState, wanted: str, cluster: str) -> Refused:
    """The refusal of a pod that wants another network than the cluster's, which it has by now."""
    return Refused(
        f"kube-rdma runs behind the cluster's network {cluster}, which has made eth0 already, and "
        f"cannot put {wanted} in its place",
        remedy=f"Remove {DEFAULT_NETWORK}, and name {wanted} in {ANNOTATION} to have it as a "
        "further interface; or install Multus, which can replace the cluster's network",
        where=f"pod {pod.namespace}/{pod.name}: {DEFAULT_NETWORK}",
    )


def refuse_host_network(
    pod: PodState, asks: Sequence[NetworkAsk], annotation: str = ANNOTATION
) -> None:
    """Raise Refused for a pod that asks for networks and has none of its own to put them into."""
    if pod.host_network and asks:
        raise Refused(
            f"the pod asks for {listed([ask.network for ask in asks])} and is on the host's "
            "network, where it sees every card of the node anyway",
            remedy=f"Remove hostNetwork: true, or the annotation {annotation}",
            where=f"pod {pod.namespace}/{pod.name}",
        )


def refuse_isolated(
    namespace: str, asks: Sequence[NetworkAsk], everybodys: Collection[str] | None
) -> None:
    """Raise Refused for entries of a pod of `namespace` that name networks of other tenants.

    `everybodys` are the namespaces whose networks pods of all others may use; None: any may.
    """
    mine = (namespace, *(everybodys or ()))
    faults = [
        Refused(
            f"the network {ask.namespace}/{ask.network} is for pods of {ask.namespace}, and this "
            f"pod is of namespace {namespace}",
            remedy=f"Name one of {listed(mine)}, or have the administrator add {ask.namespace} to "
            "--namespace-isolation",
            where=ask.source,
        )
        for ask in asks
        if everybodys is not None and ask.namespace not in mine
    ]
    if faults:
        raise Refused.all(faults)


def wishes(
    asks: Sequence[NetworkAsk],
    networks: Sequence[Network],
    *,
    holding: bool = True,
    others: Sequence[str] = (),
) -> tuple[Wish, ...]:
    """Each entry with its network; raise Refused with all entries that cannot be met.

    `others` are networks that no entry names: one of them may be meant by an entry without network.
    Not `holding`: the pod has no share, so what names no card is left to the plugin of that name.
    The reference plugins put such a link on the interface of the node's default route.
    """
    by_name = {network.name: network for network in networks}
    faults: list[Refused] = []
    matched: list[Wish] = []
    for ask in asks:
        network = by_name.get(f"{ask.namespace}/{ask.network}")
        if network is None:
            faults.append(_unknown(ask, [*by_name, *others]))
            continue
        wish = Wish(ask, _routed(network, ask))
        if ask.held is not None:
            faults.extend(_misfit(wish, ask.held[0]))
        if not holding and network.kind in _ANYWHERE and _names_no_card(wish):
            wish = replace(wish, network=replace(wish.network, kind=NetworkKind.OTHER))
        if wish.network.kind is not NetworkKind.OTHER:
            try:
                wish = _with_argued(wish)
            except Refused as fault:
                faults.append(fault)
            faults.extend(_unfit(wish))
        matched.append(wish)
    if faults:
        raise Refused.all(faults)
    return tuple(matched)


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


def unknown(
    asks: Sequence[NetworkAsk], names: Sequence[str], places: Sequence[str], *, apart: bool
) -> Refused:
    """The refusal of entries whose network is nowhere.

    `names` are those of the networks on the node and of kube-rdma's own, `places` the namespaces in
    which a NetworkAttachmentDefinition was looked for. `apart`: the node's are for no pod.
    """
    available = listed(names)
    other = (
        "or have the administrator lend the node's CNI configuration of this name by a "
        "NetworkAttachmentDefinition without spec.config"
        if apart
        else "install a CNI configuration of this name on every node, or create the "
        "NetworkAttachmentDefinition"
    )
    faults = []
    for ask in asks:
        meant = get_close_matches(ask.network, names, n=1)
        guess = f"Did you mean {meant[0]}? " if meant else ""
        faults.append(
            Refused(
                f"there is no network {ask.network}: known are {available}, and no "
                f"NetworkAttachmentDefinition of this name is in namespace {' or '.join(places)}",
                remedy=f"{guess}Name one of these, {other}",
                where=f"{ask.source}.cniConf.name",
            )
        )
    return Refused.all(faults)


def in_order(wishes: Sequence[Wish], interfaces: Sequence[Made]) -> tuple[Made, ...]:
    """What belongs to interfaces, in the order of the annotation."""
    places = {wish.ask.interface: place for place, wish in enumerate(wishes)}
    return tuple(sorted(interfaces, key=lambda one: places[one.interface]))


def refused(wish: Wish, field: str, problem: str, remedy: str) -> Refused:
    """A refusal that names the entry, the network and the field of either."""
    where = f"{wish.ask.source} ({wish.network.name}): {_spelled(wish.ask, field)}"
    return Refused(problem, remedy=remedy, where=where)


def asked_guid(wish: Wish) -> tuple[str, str] | None:
    """The field that says which GUID the interface has, and the GUID; None where none does."""
    for field, guid in (
        ("infiniband-guid", wish.ask.guid),
        ("cni-args.guid", wish.ask.argued_guid),
        ("args.cni.guid", wish.network.guid),
    ):
        if guid:
            return field, guid.lower()
    return None


def wrong_guid(guid: str) -> str | None:
    """Why this is not the GUID of a port; None when it can be one.

    A GUID is an EUI-64: eight octets, here as ``02:00:00:00:00:00:00:01``.
    """
    octets = guid.split(":")
    try:
        first, *_ = numbers = [int(octet, 16) for octet in octets]
    except ValueError:
        numbers = []
    if len(numbers) != 8 or any(len(octet) != 2 for octet in octets):
        return "is not a GUID of eight octets"
    if guid.lower() in (NO_GUID, _GUID_OF_NO_MAC) or not any(numbers):
        return "stands for no GUID"
    return "is the GUID of a group, for its first octet is odd" if first & 1 else None


def _spelled(ask: NetworkAsk, field: str) -> str:
    """The field as this way of asking writes it, if the entry says it."""
    of_entry = {"ips": ask.addresses, "mac": ask.mac}
    is_said = bool(of_entry.get(field.partition("[")[0]))
    return f"deviceConf.{field}" if ask.by_pod_networks and is_said else field


def _routed(network: Network, ask: NetworkAsk) -> Network:
    """The network with the routes of the entry in place of its own to the same destinations.

    With the entry's MTU too, where it has one.
    """
    destinations = {route.to for route in ask.routes}
    others = tuple(route for route in network.routes if route.to not in destinations)
    mtu = network.mtu if ask.mtu is None else ask.mtu or None
    return replace(network, routes=(*ask.routes, *others), mtu=mtu)


def _misfit(wish: Wish, resource: str) -> Iterator[Refused]:
    """What a claim says of a network that is for other shares, or that other plugins make."""
    own, ask = wish.network.resource, wish.ask
    if own != resource:
        problem = f"the network is for shares of {own}, and the claim's device is of {resource}"
        remedy = f"Name a network of {resource}, or select devices whose resource is {own}"
        yield refused(wish, "network", problem, remedy)
    fields = {"mtu": ask.mtu is not None, "routes": bool(ask.routes), "defaultRoute": ask.default}
    for field, is_written in fields.items():
        if is_written and wish.network.kind is NetworkKind.OTHER:
            problem = f"networks of type {wish.network.plugin} are made and routed by that plugin"
            remedy = f"Remove {field} from the parameters, and write it into the configuration"
            yield refused(wish, field, problem, remedy)


def _names_no_card(wish: Wish) -> bool:
    network = wish.network
    return not (wish.ask.device_id or network.device or network.master or network.resource)


def _with_argued(wish: Wish) -> Wish:
    """With the addresses of its cni-args, where the entry has no others; raise Refused."""
    if wish.ask.addresses:
        return _in_place(wish, "ips")
    ips = decoded(wish.ask.arguments).get("ips")
    if not ips:
        return wish
    try:
        addresses = tuple(map(_asked, ips if isinstance(ips, list) else [ips]))
    except ValueError:
        problem = f"{json.dumps(ips)} is not a list of IP addresses"
        remedy = 'Write it like ["10.0.0.10/24"]'
        raise refused(wish, "cni-args.ips", problem, remedy) from None
    return _in_place(replace(wish, ask=replace(wish.ask, addresses=addresses)), "cni-args")


def argued_ips(ask: NetworkAsk) -> Iterator[Address]:
    """The addresses of its cni-args, which other plugins are told as they are.

    To a plugin in Go `IPs` is the same key (encoding/json folds case).
    """
    for key, ips in decoded(ask.arguments).items():
        for ip in ips if isinstance(ips, list) else [ips]:
            if key.casefold() == "ips":
                with suppress(ValueError):  # no plugin can set it either
                    yield _asked(ip).address


def _in_place(wish: Wish, field: str) -> Wish:
    """Without the network's own addresses, where those that the pod asks for replace them."""
    if field not in wish.network.yields_to:
        return wish
    return replace(wish, network=replace(wish.network, static=()))


def _asked(entry: object) -> AskedAddress:
    """ValueError for what is not an address, and for one with a zone (fe80::1%eth0)."""
    if not isinstance(entry, str) or "%" in entry:
        raise ValueError(entry)
    parsed = ip_interface(entry)
    return AskedAddress(parsed.ip, parsed.network.prefixlen if "/" in entry else None)


def _unknown(ask: NetworkAsk, names: Sequence[str]) -> Refused:
    name = f"{ask.namespace}/{ask.network}"
    elsewhere = sorted(one for one in names if one.partition("/")[2] == ask.network)
    meant = elsewhere or get_close_matches(name, names, n=1)
    guess = f"Did you mean {meant[0]}? " if meant else ""
    return Refused(
        f"there is no network {name}",
        remedy=f"{guess}Create the NetworkAttachmentDefinition {ask.network} in namespace "
        f"{ask.namespace}, or name another one",
        where=ask.source,
    )


def _unfit(wish: Wish) -> Iterator[Refused]:
    """What the entry asks for and an interface of kube-rdma cannot have."""
    kind = wish.network.kind
    for name, _ in wish.ask.capabilities:
        problem = f"{name} has no effect on an RDMA network: {_NO_EFFECT[name]}"
        yield refused(wish, name, problem, f"Remove {name} from this entry")
    yield from _unfit_infiniband(wish)
    mac = wish.ask.mac or wish.network.mac
    if mac is not None and kind in (NetworkKind.IPVLAN, NetworkKind.IPOIB):
        problem = f"{kind} links have the address of the card below them, not {mac}"
        yield refused(wish, "mac", problem, "Remove mac, or use a network of type macvlan")
    if kind is NetworkKind.IPVLAN and wish.network.mode not in ("", "l2"):
        problem = (
            f"ipvlan in mode {wish.network.mode} answers no neighbour, so RDMA peers cannot find it"
        )
        yield refused(wish, "mode", problem, 'Write "mode": "l2", or use macvlan')
    if not wish.network.pools and not wish.network.ipam_plugin:
        yield from _unplaced(wish)


def _unfit_infiniband(wish: Wish) -> Iterator[Refused]:
    kind = wish.network.kind
    if request := asked_guid(wish):
        field, guid = request
        if why := wrong_guid(guid):
            remedy = 'Write that of one port, like "02:00:0a:00:00:00:00:01"'
            yield refused(wish, field, f"{guid} {why}", remedy)
        elif kind in (NetworkKind.MACVLAN, NetworkKind.IPVLAN, NetworkKind.IPOIB):
            problem = f"{kind} links have no GUID of their own, but that of the card below them"
            yield refused(wish, field, problem, f"Remove {field}, or use type ib-sriov")
    if wish.network.configured and not wish.ask.configured:
        problem = "the network waits for ib-kubernetes, which has not configured this entry"
        remedy = "See why in the log of ib-kubernetes, or remove ibKubernetesEnabled"
        yield refused(wish, "cni-args", problem, remedy)
    if wish.network.pkey == 0:
        problem = "0 is not the number of a partition"
        yield refused(wish, "pkey", problem, "Write that of a partition of the fabric, like 0x8001")


def _unplaced(wish: Wish) -> Iterator[Refused]:
    """Addresses without a length on a network without a pool that would know it."""
    for index, asked in enumerate(wish.ask.addresses):
        if asked.prefix is None:
            remedy = f'Write it with its length, like "{asked.address}/24"'
            problem = f"{asked.address} has no length, and the network has no pool that knows it"
            yield refused(wish, f"ips[{index}]", problem, remedy)


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
