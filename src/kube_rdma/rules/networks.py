"""What a pod asks for meets what there is: entries of its annotation and documents of networks.

First of the rules of an attachment, before cards (rules/attach_cards) and addresses are looked for:
what is refused here has cost nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from kube_rdma.model.attachment import Attached, Network, NetworkAsk, NetworkKind, Plan, Wish
from kube_rdma.model.errors import Refused
from kube_rdma.model.pod import PodState
from kube_rdma.rules import guids
from kube_rdma.rules.sentences import listed

Made = TypeVar("Made", Plan, Attached)

ANNOTATION = "k8s.v1.cni.cncf.io/networks"
POD_NETWORKS = "k8s.volcengine.com/pod-networks"
POD_NETWORKS_DEFINITION = "k8s.volcengine.com/pod-networks-definition"

_NO_EFFECT = {
    "portMappings": "ports are mapped on the cluster's network, where the pod's services are",
    "bandwidth": "RDMA bypasses the kernel's queues, so no rate set there would hold",
}


def is_asking(pod: PodState) -> bool:
    """Whether a pod asks for networks by one of the annotations, and can have some."""
    asked = dict(pod.annotations)
    keys = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION)
    named = any(asked.get(key, "").strip() for key in keys)
    return named and not pod.host_network


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


def wishes(asks: Sequence[NetworkAsk], networks: Sequence[Network]) -> tuple[Wish, ...]:
    """Each entry with its network; raise Refused with all entries that cannot be met."""
    known = {network.name: network for network in networks}
    faults: list[Refused] = []
    found: list[Wish] = []
    for ask in asks:
        network = known.get(f"{ask.namespace}/{ask.network}")
        if network is None:
            faults.append(_unknown(ask, list(known)))
            continue
        wish = Wish(ask, _routed(network, ask))
        found.append(wish)
        if network.kind is not NetworkKind.OTHER:
            faults.extend(_unfit(wish))
    if faults:
        raise Refused.all(faults)
    return tuple(found)


def in_order(wishes: Sequence[Wish], found: Sequence[Made]) -> tuple[Made, ...]:
    """What belongs to interfaces, in the order of the annotation."""
    places = {wish.ask.interface: place for place, wish in enumerate(wishes)}
    return tuple(sorted(found, key=lambda one: places[one.interface]))


def refused(wish: Wish, field: str, problem: str, remedy: str) -> Refused:
    """A refusal that names the entry, the network and the field of either."""
    where = f"{wish.ask.source} ({wish.network.name}): {field}"
    return Refused(problem, remedy=remedy, where=where)


def _routed(network: Network, ask: NetworkAsk) -> Network:
    """The network with the routes of the entry in place of its own to the same destinations."""
    said = {route.to for route in ask.routes}
    others = tuple(route for route in network.routes if route.to not in said)
    return replace(network, routes=(*ask.routes, *others))


def _unknown(ask: NetworkAsk, known: Sequence[str]) -> Refused:
    name = f"{ask.namespace}/{ask.network}"
    meant = get_close_matches(name, known, n=1)
    guess = f"Did you mean {meant[0]}? " if meant else ""
    return Refused(
        f"there is no network {name}",
        remedy=f"{guess}Create the NetworkAttachmentDefinition {ask.network} in namespace "
        f"{ask.namespace}, or name another one",
        where=ask.source,
    )


def _unfit(wish: Wish) -> Iterator[Refused]:
    """What the entry asks for and an interface of ours cannot have."""
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
    if not wish.network.pools:
        yield from _unplaced(wish)


def _unfit_infiniband(wish: Wish) -> Iterator[Refused]:
    kind = wish.network.kind
    if said := guids.asked(wish):
        field, guid = said
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
        problem = "0 is the number of no partition"
        yield refused(wish, "pkey", problem, "Write that of a partition of the fabric, like 0x8001")


def _unplaced(wish: Wish) -> Iterator[Refused]:
    """Addresses without a length on a network without a pool that would know it."""
    for index, asked in enumerate(wish.ask.addresses):
        if asked.prefix is None:
            remedy = f'Write it with its length, like "{asked.address}/24"'
            problem = f"{asked.address} has no length, and the network has no pool that knows it"
            yield refused(wish, f"ips[{index}]", problem, remedy)
