"""Names of RDMA addresses: Services that ask for them, pods with addresses, EndpointSlices.

names/rules decides over these values. Values of EndpointSlices have the shape of the wire
(discovery.k8s.io/v1), so names/cluster decodes and writes them as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Literal

from kube_base.frozen import Frozen
from kube_rdma.model.card import CardId
from kube_rdma.model.ipam import Address, Block, BlockKey, FamilyName, IPPool, NetworkName
from kube_rdma.model.kubernetes import NamespacedName, StatusPart

PODS, NETWORK, RAIL = "kube-rdma.io/pods", "kube-rdma.io/network", "kube-rdma.io/rail"
"""The annotations of a Service: which pods have names, on which network or rail."""

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = ("endpointslice.kubernetes.io/managed-by", "kube-rdma.io")
HEADLESS = ("service.kubernetes.io/headless", "")
"""The label by which kube-proxy leaves a slice alone."""


class SlicePort(StatusPart):
    """A port of all endpoints in a slice, for SRV records."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None


class NamingService(NamespacedName):
    """A Service with the annotation kube-rdma.io/pods."""

    uid: str
    annotations: tuple[tuple[str, str], ...] = ()
    cluster_ip: str = "None"
    selects: bool = False  # Kubernetes' own controller publishes the pods that it selects
    not_ready: bool = False  # pods have names before they are Ready
    ports: tuple[SlicePort, ...] = ()


class PodInterface(Frozen):
    """An interface of a pod with a card or an RDMA device, read from the pod's annotation."""

    network: str  # namespace/name
    card: CardId | None
    addresses: tuple[Address, ...]


class AddressedPod(NamespacedName):
    """A pod, as far as names of its addresses depend on it."""

    uid: str
    labels: Mapping[str, str] = {}
    node: str = ""
    hostname: str = ""  # as its spec says
    created: str = ""  # RFC 3339
    ready: bool = False
    deleting: bool = False
    interfaces: tuple[PodInterface, ...] = ()
    ips: tuple[Address, ...] = ()  # of the cluster's network


class NodeCards(Frozen):
    """The facts of a NodeReport that names depend on."""

    ill: frozenset[CardId] = frozenset()
    rails: Mapping[CardId, int] = {}
    addresses: frozenset[Address] = frozenset()  # of the node, on its cards


class NamesWorld(Frozen, dict=True):
    """The facts of a cluster by which a pod's address is known to be its own, and ready."""

    pods: Mapping[str, AddressedPod] = {}  # by namespace/name, as all that follows by pod
    of_namespace: Mapping[str, Sequence[AddressedPod]] = {}  # those with interfaces
    holders: Mapping[Address, Collection[str]] = {}  # pods whose annotations have an address
    pod_ips: Mapping[Address, Collection[str]] = {}  # pods that have it on the cluster's network
    cards: Mapping[str, NodeCards] = {}  # by node
    node_addresses: frozenset[Address] = frozenset()
    pools: tuple[IPPool, ...] = ()
    blocks: Mapping[BlockKey, Block] = {}
    claimed: Mapping[Address, Collection[str]] = {}  # uids of pods for which a claim has it
    unread: bool = False  # there are blocks that nobody can read: what is named stays so

    @cached_property
    def spans(self) -> tuple[tuple[NetworkName, int, int, int], ...]:
        """Return the ranges of all pools: network, version of IP, first and last address."""
        return tuple(
            (pool.network, one.subnet.version, int(one.span.first), int(one.span.last))
            for pool in self.pools
            for one in pool.ranges
        )


# The parts of an EndpointSlice.


class EndpointConditions(StatusPart):
    """The state of an endpoint; DNS has the addresses of ready endpoints."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class PodReference(StatusPart):
    """The pod of an endpoint."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    kind: str = "Pod"


class SliceEndpoint(StatusPart):
    """One address of a pod, and the name that it has below its Service."""

    addresses: tuple[str, ...]
    conditions: EndpointConditions = EndpointConditions()
    hostname: str | None = None
    node_name: str | None = None
    target_ref: PodReference | None = None


class EndpointSliceSpec(StatusPart):
    """The content of an EndpointSlice; the API server sends null for an empty list."""

    address_type: FamilyName | Literal["FQDN"]
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None


class PublishedName(Frozen):
    """A name that an EndpointSlice of kube-rdma gives to an address of a pod."""

    namespace: str
    service: str
    pod: str
    address: str
    ready: bool
    hostname: str = ""

    @property
    def dns(self) -> str:
        """Return the name as pods of the cluster look it up: HOSTNAME.SERVICE.NAMESPACE.svc."""
        return ".".join(filter(None, (self.hostname, self.service, self.namespace, "svc")))
