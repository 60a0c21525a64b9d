"""Decides which addresses of pods a Service names, which are ready, and in which slices they stand.

names/publisher calls it. An endpoint keeps its slice for as long as it is wanted. An endpoint is
listed only once its condition `ready` holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv6Address
from itertools import chain, count

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.label_selector import LabelTerm, label_terms
from kube_rdma.model import names as model
from kube_rdma.model.ipam import BLOCK_ADDRESSES, Address, BlockKey, Family

MOST_ENDPOINTS = 20_000  # of a Service: 10,000 pods with an address of each family
SLICE_ENDPOINTS = 100  # of a slice: --max-endpoints-per-slice of Kubernetes' own controller
MOST_SELECTOR = 1024  # characters

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NETWORK = re.compile(r"(?:[a-z0-9][-a-z0-9]{0,62}/)?[a-z0-9][-.a-z0-9]{0,252}")
_RAIL = re.compile(r"[0-9]{1,3}")

EndpointKey = tuple[str, str]
"""The uid of a pod and one of its addresses, which together identify an endpoint."""


class NamesRequest(Frozen):
    """The addresses that a Service asks for: of which pods, on which network or rail."""

    selector: tuple[LabelTerm, ...]
    network: str = ""  # namespace/name; empty: any
    rail: int | None = None  # None: any

    def selects(self, pod: model.AddressedPod) -> bool:
        """Return whether a pod has RDMA interfaces and labels that match the selector."""
        return bool(pod.interfaces) and all(one.holds(pod.labels) for one in self.selector)

    def wants(self, interface: model.PodInterface, cards: model.NodeCards) -> bool:
        """Return whether an interface is asked for; `cards` tells the rail of its card."""
        if self.network:
            return interface.network == self.network
        on = cards.rails.get(interface.card) if interface.card else None
        return self.rail is None or on == self.rail


def names_request(service: model.NamingService) -> NamesRequest:
    """Return what a Service asks for; raise Refused if its spec or an annotation rules it out."""
    asks = dict(service.annotations)
    pods, network, rail = (asks.get(key, "") for key in (model.PODS, model.NETWORK, model.RAIL))
    selector = label_terms(pods) if len(pods) <= MOST_SELECTOR else ()
    is_network, is_rail = _NETWORK.fullmatch(network), _RAIL.fullmatch(rail)
    for is_wrong, problem, remedy in (
        (service.selects, _SELECTS, f"Remove spec.selector: {model.PODS} chooses the pods"),
        (service.cluster_ip != "None", _NOT_HEADLESS, "Create it again with clusterIP: None"),
        (network and rail, f"{model.NETWORK} and {model.RAIL} exclude each other", _ONE),
        (network and not is_network, f"{model.NETWORK} names no network", _NETWORKS),
        (rail and not is_rail, f"{model.RAIL} is no number from 0 to 999", _RAILS),
        (not selector, _NO_SELECTOR, _SELECTORS),
    ):
        if is_wrong:
            raise Refused(problem, remedy=remedy, where=f"Service {service}")
    named = network if "/" in network or not network else f"{service.namespace}/{network}"
    return NamesRequest(selector, named, int(rail) if rail else None)


_SELECTS = "Kubernetes publishes the addresses on eth0 of the pods that spec.selector selects"
_NOT_HEADLESS = "names of single addresses need a headless Service, and this one has a cluster IP"
_ONE, _NETWORKS = "Remove one of the two", "Write its name or namespace/name"
_RAILS = 'Write the number of a rail, such as "0"'
_NO_SELECTOR = f"{model.PODS} is no label selector of at most {MOST_SELECTOR} characters"
_SELECTORS = "Write it as for kubectl -l, such as app=trainer or tier in (a, b)"


class NamedAddresses(Frozen):
    """The endpoints that a Service is to have, and why other addresses are left out."""

    endpoints: Mapping[EndpointKey, model.SliceEndpoint]
    doubts: Mapping[str, str] = {}  # why an address has no name, by the pod's namespace/name
    left_out: int = 0  # endpoints beyond MOST_ENDPOINTS
    is_found: bool = True  # a selected pod has an interface that is asked for


def named_addresses(
    service: model.NamingService,
    request: NamesRequest,
    world: model.NamesWorld,
    listed: Collection[EndpointKey],
) -> NamedAddresses:
    """Return the endpoints of a Service; `listed` are those that its slices have now."""
    endpoints: dict[EndpointKey, model.SliceEndpoint] = {}
    doubts: dict[str, str] = {}
    is_found = False
    pods = filter(request.selects, world.of_namespace.get(service.namespace, ()))
    for pod in sorted(pods, key=_age):
        cards = world.cards.get(pod.node, model.NodeCards())
        for interface in pod.interfaces:
            if not request.wants(interface, cards):
                continue
            is_found = True
            well = interface.card not in cards.ill
            conditions = _conditions(service, pod, well=well)
            for address in interface.addresses:
                key = (pod.uid, str(address))
                if not (conditions.ready or key in listed):
                    continue
                doubt = _doubt(pod, address, world)
                if doubt and not (world.unread and key in listed):
                    doubts[pod.title] = doubt
                    continue
                endpoints[key] = _endpoint(pod, key[1], conditions)
    kept = sorted(endpoints, key=lambda key: key not in listed)[:MOST_ENDPOINTS]
    chosen = endpoints if len(kept) == len(endpoints) else {key: endpoints[key] for key in kept}
    return NamedAddresses(chosen, doubts, len(endpoints) - len(kept), is_found)


def _age(pod: model.AddressedPod) -> tuple[bool, str, str]:
    """Return a sort key: older pods come first, and pods that are being deleted last."""
    return pod.deleting, pod.created, pod.uid


def _conditions(
    service: model.NamingService, pod: model.AddressedPod, *, well: bool
) -> model.EndpointConditions:
    """Return the conditions of a pod's endpoint (EndpointConditions of discovery/v1).

    `well` is whether its card is healthy: if not, the endpoint is unready, whatever
    publishNotReadyAddresses says.
    """
    serving = pod.ready and well
    ready = (well and service.not_ready) or (serving and not pod.deleting)
    return model.EndpointConditions(ready, serving, pod.deleting)


def _endpoint(
    pod: model.AddressedPod, address: str, conditions: model.EndpointConditions
) -> model.SliceEndpoint:
    hostname = pod.hostname or (pod.name if _LABEL.fullmatch(pod.name) else None)
    reference = model.PodReference(pod.name, pod.namespace, pod.uid)
    return model.SliceEndpoint((address,), conditions, hostname, pod.node or None, reference)


def _doubt(pod: model.AddressedPod, address: Address, world: model.NamesWorld) -> str:
    """Return why a name must not lead to an address of a pod; "" if it is the pod's own."""
    if not spaces(pod, address, world):
        return f"nothing but the pod's annotation says that {address} is its own address"
    names = {*world.holders.get(address, ())}
    if names <= {pod.title}:
        return ""
    taken: set[str] = set()
    for holder in sorted((world.pods[name] for name in names if name in world.pods), key=_age):
        free = spaces(holder, address, world) - taken
        if free and holder.uid == pod.uid:
            return ""
        taken |= set(sorted(free)[:1])
    return f"an older pod has its address {address} too"


def spaces(pod: model.AddressedPod, address: Address, world: model.NamesWorld) -> frozenset[str]:
    """Return the networks of IPPools in which an address is a pod's own; "" stands for no pool.

    Equal addresses of two networks are two addresses. The set is empty if the address gets no name.
    """
    if _is_special(address) or pod.uid not in world.claimed.get(address, (pod.uid,)):
        return frozenset()
    version, number = address.version, int(address)
    networks = {
        network
        for network, of, first, last in world.spans
        if first <= number <= last and of == version
    }
    if networks:
        offset = number % BLOCK_ADDRESSES
        keys = [BlockKey(network, Family(version), number - offset) for network in networks]
        blocks = (world.blocks[key] for key in keys if key in world.blocks)
        return frozenset(
            block.key.network
            for block in blocks
            for holding in block.holdings
            if holding.node == pod.node and holding.bits >> offset & 1
        )
    is_others = address in world.node_addresses or set(world.pod_ips.get(address, ())) - {pod.title}
    return frozenset() if is_others else frozenset(("",))


def _is_special(address: Address) -> bool:
    """Return whether the API server refuses an address in a slice, or no pod can have it alone.

    The API server's check is ValidateEndpointIP in pkg/apis/core/validation.
    """
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address.scope_id):
        return True
    return (
        address.is_unspecified
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
    )


Slices = Mapping[str, model.EndpointSliceSpec]
"""The slices of a Service by name."""


def keys_of(spec: model.EndpointSliceSpec) -> Iterator[EndpointKey]:
    """Yield the keys of a slice's endpoints, in their order."""
    for each in spec.endpoints or ():
        uid = each.target_ref.uid if each.target_ref else ""
        yield uid, each.addresses[0] if each.addresses else ""


def sliced(
    service: model.NamingService,
    wanted: Mapping[EndpointKey, model.SliceEndpoint],
    before: Slices,
    taken: Collection[str] = (),
) -> Slices:
    """Return the slices for the endpoints that a Service is to have; an endpoint keeps its slice.

    New endpoints fill the slices that change anyway, then the fullest others, then new slices,
    whose names are not `taken`.
    """
    left = dict(wanted)
    kept = {
        name: [left.pop(key) for key in keys_of(spec) if key in left]
        for name, spec in sorted(before.items())
    }
    after: dict[str, model.EndpointSliceSpec] = {}
    for family in (Family.V4, Family.V6):
        new = [each for key, each in left.items() if (":" in key[1]) == (family is Family.V6)]
        own = [name for name, spec in before.items() if spec.address_type == family.title]
        own.sort(key=lambda name: (tuple(kept[name]) == before[name].endpoints, -len(kept[name])))
        prefix = f"{service.name}-rdma-{service.uid[:8]}-{family.title.lower()}"
        free = (f"{prefix}-{n}" for n in count())
        for name in chain(own, (one for one in free if one not in before and one not in taken)):
            room = max(0, SLICE_ENDPOINTS - len(kept.get(name, ())))
            endpoints, new = (*kept.get(name, ()), *new[:room]), new[room:]
            if endpoints:
                after[name] = model.EndpointSliceSpec(family.title, endpoints, service.ports)
            elif name not in before:
                break
    return after
