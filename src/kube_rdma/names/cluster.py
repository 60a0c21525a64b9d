"""Reads at the API server what names of pods' addresses depend on, and makes EndpointSlices.

A pod's annotation is text of its tenant: malformed entries are left out, and so are interfaces and
addresses beyond a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address

import msgspec

from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Owner, Stored, Wanted, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NodeObjectSpec, NodeStatus
from kube_rdma.adapters.cluster.kinds.own import StoredReport
from kube_rdma.adapters.cluster.kinds.pod import POD, FullPodStatus, PodSpec
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.attach.documents.network_status import OWN_ANNOTATION, own_attached
from kube_rdma.model import names as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import Address

MOST_INTERFACES, MOST_ADDRESSES, MOST_PORTS = 64, 16, 100

# Services.


class _ServicePort(model.SlicePort):
    target_port: int | str | None = None


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Service's spec on which names depend."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: dict[str, str] = {}
    publish_not_ready_addresses: bool = False
    ports: tuple[_ServicePort, ...] = ()


SERVICE = ObjectKind(
    "",
    "v1",
    "Service",
    "services",
    namespaced=True,
    spec=ObjectCodec.of(ServiceSpec, writes=False),
    status=NOTHING,
    annotations={model.PODS, model.NETWORK, model.RAIL}.__contains__,
)


def naming_service(stored: Stored[ServiceSpec, None]) -> model.NamingService | None:
    """Return a Service that asks for names; None for any other, or one that is being deleted."""
    spec = stored.spec
    if stored.annotation(model.PODS) is None or stored.deleting:
        return None
    return model.NamingService(
        stored.namespace,
        stored.name,
        stored.uid,
        stored.annotations,
        spec.cluster_ip,
        bool(spec.selector),
        spec.publish_not_ready_addresses,
        tuple(map(_slice_port, spec.ports[:MOST_PORTS])),
    )


def _slice_port(port: _ServicePort) -> model.SlicePort:
    """Return a Service's port for its slices: targetPort if that is a number, else port."""
    target = port.target_port if isinstance(port.target_port, int) else 0
    return model.SlicePort(target or port.port, port.name, port.protocol, port.app_protocol)


# Pods, claims, nodes and their reports.


class AddressedSpec(PodSpec, frozen=True, rename="camel"):
    """The fields of a Pod's spec on which names depend."""

    hostname: str = ""


class _PodIp(msgspec.Struct, frozen=True):
    ip: str = ""


class AddressedStatus(FullPodStatus, frozen=True, rename="camel"):
    """The fields of a Pod's status on which names depend."""

    pod_ips: tuple[_PodIp, ...] = msgspec.field(default=(), name="podIPs")


ADDRESSED_POD = replace(
    POD.read_as(
        ObjectCodec.of(AddressedSpec, writes=False), ObjectCodec.of(AddressedStatus, writes=False)
    ),
    annotations=OWN_ANNOTATION.__eq__,
)


def addressed_pod(stored: Stored[AddressedSpec, AddressedStatus]) -> model.AddressedPod | None:
    """Return a pod with its addresses; None if it has ended or is on the node's network."""
    status = stored.status or AddressedStatus()
    if status.is_over or stored.spec.host_network:
        return None
    interfaces = tuple(_interfaces(stored.annotation(OWN_ANNOTATION) or ""))
    return model.AddressedPod(
        stored.namespace,
        stored.name,
        stored.uid,
        dict(stored.labels) if interfaces else {},
        stored.spec.node_name,
        stored.spec.hostname,
        stored.created,
        any(one.type == "Ready" and one.status == "True" for one in status.conditions),
        stored.deleting,
        interfaces,
        tuple(_addresses(one.ip for one in status.pod_ips)),
    )


def _interfaces(text: str) -> Iterator[model.PodInterface]:
    """Yield the interfaces in a pod's annotation that have a card or an RDMA device."""
    for one in list(own_attached(text))[:MOST_INTERFACES]:
        if one.card or one.rdma_device:
            addresses = tuple(each.address for each in one.addresses[:MOST_ADDRESSES])
            yield model.PodInterface(one.network, one.card, addresses)


def _addresses(texts: Iterable[str]) -> Iterator[Address]:
    for text in texts:
        with suppress(ValueError):
            yield ip_address(text)


class _NetworkData(msgspec.Struct, frozen=True):
    ips: tuple[str, ...] | None = None


class _DeviceStatus(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    network_data: _NetworkData | None = None


class _User(msgspec.Struct, frozen=True):
    uid: str = ""


class AddressedClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a ResourceClaim's status on which names depend."""

    devices: tuple[_DeviceStatus, ...] = ()
    reserved_for: tuple[_User, ...] = ()


ADDRESSED_CLAIM = RESOURCE_CLAIM.read_as(
    NOTHING, ObjectCodec.of(AddressedClaimStatus, writes=False)
)
ClaimAddresses = tuple[frozenset[Address], frozenset[str]]
"""The addresses in a claim's status, and the uids of the pods for which it is reserved."""


def claim_addresses(stored: Stored[None, AddressedClaimStatus]) -> ClaimAddresses | None:
    """Return a claim's addresses by kube-rdma's driver, and its pods; None if one is missing."""
    status = stored.status or AddressedClaimStatus()
    own = (one.network_data for one in status.devices if one.driver == DRIVER)
    texts = [text for data in own if data for text in data.ips or ()]
    interfaces = _addresses(text.partition("/")[0] for text in texts)
    users = frozenset(one.uid for one in status.reserved_for)
    return (frozenset(interfaces), users) if texts and users else None


def node_cards(stored: StoredReport) -> model.NodeCards:
    """Return the ill cards of a NodeReport, the rails of its cards, and their addresses."""
    report = stored.status
    if report is None:
        return model.NodeCards()
    ill = (*report.ill, *report.rejected)
    return model.NodeCards(
        frozenset(card.id for card in ill),
        {card.id: card.rail for card in report.cards if card.rail is not None},
        frozenset(_addresses(text for card in report.cards for text in card.addresses)),
    )


def node_addresses(stored: Stored[NodeObjectSpec, NodeStatus]) -> frozenset[Address]:
    """Return the IP addresses of a Node object."""
    status = stored.status or NodeStatus()
    return frozenset(_addresses(one.address for one in status.addresses))


# EndpointSlices.

_SLICE = ObjectCodec.of(model.EndpointSliceSpec)
_NAMES = ("EndpointSlice", "endpointslices")
ENDPOINT_SLICE = ObjectKind(
    "discovery.k8s.io", "v1", *_NAMES, namespaced=True, spec=_SLICE, status=NOTHING, content=""
)
StoredSlice = Stored[model.EndpointSliceSpec, None]
OWN_SLICES = "=".join(model.MANAGED_BY)


def with_lists(stored: StoredSlice) -> StoredSlice:
    """Return an EndpointSlice with empty lists in place of absent ones."""
    spec = stored.spec
    lists = replace(spec, endpoints=spec.endpoints or (), ports=spec.ports or ())
    return replace(stored, spec=lists)


def service_of(stored: StoredSlice) -> str:
    """Return the Service of a slice as namespace/name."""
    return f"{stored.namespace}/{stored.label(model.SERVICE_NAME) or ''}"


def wanted_slice(
    service: model.NamingService, name: str, spec: model.EndpointSliceSpec
) -> Wanted[model.EndpointSliceSpec]:
    """Return the EndpointSlice to create for a Service, which owns it.

    The owner reference does not set blockOwnerDeletion: for that, some clusters demand a right to
    finalizers of Services.
    """
    labels = ((model.SERVICE_NAME, service.name), model.MANAGED_BY, model.HEADLESS)
    owner = Owner(SERVICE.api_version, SERVICE.kind, service.name, service.uid, controller=True)
    return Wanted(name, service.namespace, spec, labels, owners=(owner,))


async def published_names(cluster: Cluster, namespace: str) -> tuple[model.PublishedName, ...]:
    """Return the names that kube-rdma gives to addresses of a namespace's pods, sorted.

    Raise Refused without the right to list EndpointSlices.
    """
    where = Where(namespace=namespace, labels=OWN_SLICES)
    try:
        slices = await cluster.list(ENDPOINT_SLICE, where)
    except NotInstalled:
        return ()
    names = [
        model.PublishedName(
            namespace,
            stored.label(model.SERVICE_NAME) or "",
            each.target_ref.name,
            each.addresses[0],
            bool(each.conditions.ready),
            each.hostname or "",
        )
        for stored in slices
        for each in stored.spec.endpoints or ()
        if each.target_ref and each.addresses
    ]
    return tuple(sorted(names, key=lambda one: (one.service, one.dns, one.address)))
