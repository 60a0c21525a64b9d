"""What a pod asks for meets what there is: entries of its annotation and documents of networks.

First of the rules of an attachment, before cards (rules/attach/seats) and addresses are looked for:
what is refused here has cost nothing yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from ipaddress import ip_interface
from typing import TypeVar

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    Attached,
    Network,
    NetworkAsk,
    NetworkKind,
    Plan,
    Wish,
)
from kube_rdma.model.pod import PodState
from kube_rdma.rules.attach import guids
from kube_rdma.rules.phrases import listed

Made = TypeVar("Made", Plan, Attached)

ANNOTATION = "k8s.v1.cni.cncf.io/networks"
POD_NETWORKS = "k8s.volcengine.com/pod-networks"
POD_NETWORKS_DEFINITION = "k8s.volcengine.com/pod-networks-definition"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"

_ANYWHERE = (NetworkKind.MACVLAN, NetworkKind.IPVLAN)

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


def isolated(
    asks: Sequence[NetworkAsk], namespace: str, everybodys: Collection[str] | None
) -> tuple[NetworkAsk, ...]:
    """The entries of a pod of `namespace` that name a network which is not for it.

    `everybodys` are the namespaces whose networks pods of all others may use; None: any may.
    """
    if everybodys is None:
        return ()
    return tuple(ask for ask in asks if ask.namespace not in (namespace, *everybodys))


def refuse_isolated(
    pod: PodState, asks: Sequence[NetworkAsk], everybodys: Collection[str] | None
) -> None:
    """Raise Refused for entries that name networks of other tenants."""
    faults = [
        Refused(
            f"the network {ask.namespace}/{ask.network} is for pods of {ask.namespace}, and this "
            f"pod is of namespace {pod.namespace}",
            remedy=f"Name one of {listed([pod.namespace, *(everybodys or ())])}, or have the "
            f"administrator add {ask.namespace} to --namespace-isolation",
            where=ask.source,
        )
        for ask in isolated(asks, pod.namespace, everybodys)
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


def in_order(wishes: Sequence[Wish], interfaces: Sequence[Made]) -> tuple[Made, ...]:
    """What belongs to interfaces, in the order of the annotation."""
    places = {wish.ask.interface: place for place, wish in enumerate(wishes)}
    return tuple(sorted(interfaces, key=lambda one: places[one.interface]))


def refused(wish: Wish, field: str, problem: str, remedy: str) -> Refused:
    """A refusal that names the entry, the network and the field of either."""
    where = f"{wish.ask.source} ({wish.network.name}): {_spelled(wish.ask, field)}"
    return Refused(problem, remedy=remedy, where=where)


def _spelled(ask: NetworkAsk, field: str) -> str:
    """The field as this way of asking writes it, if the entry says it."""
    of_entry = {"ips": ask.addresses, "mac": ask.mac}
    is_block = ask.source.startswith(POD_NETWORKS.partition("/")[2])
    return f"deviceConf.{field}" if is_block and of_entry.get(field.partition("[")[0]) else field


def _routed(network: Network, ask: NetworkAsk) -> Network:
    """The network with the routes of the entry in place of its own to the same destinations."""
    destinations = {route.to for route in ask.routes}
    others = tuple(route for route in network.routes if route.to not in destinations)
    return replace(network, routes=(*ask.routes, *others))


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
    if request := guids.asked(wish):
        field, guid = request
        if why := guids.wrong(guid):
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
