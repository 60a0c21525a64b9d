"""Decides which networks a pod asks for, by either of two annotations and by its claims.

The agent (attach/calls) and `kube-rdma explain` (explain/networks) use it, and look networks up in
different places. In k8s.v1.cni.cncf.io/networks a name is that of a NetworkAttachmentDefinition. In
k8s.volcengine.com/pod-networks a name stands for a CNI configuration of the node, else for a
definition in the pod's namespace or in kube-system. Else it may be `rdma`, the network that is
built into kube-rdma. Where agents keep networks to their namespaces, pods reach a configuration of
the node only through a definition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_client.errors import NotInstalled
from kube_rdma.attach.rules.claim_networks import ask_of, own_network
from kube_rdma.attach.rules.requests import POD_NETWORKS, SHARED, refuse_isolated, unknown
from kube_rdma.model.attach.attachment import NetworkAsk
from kube_rdma.model.claims.claim import ClaimDevice
from kube_rdma.model.ipam import PoolName
from kube_rdma.model.kubernetes import PodState

if TYPE_CHECKING:
    from kube_rdma.attach.documents.network_definition import NetworkDefinition
    from kube_rdma.attach.documents.networks import AnnotationAsks

T = TypeVar("T")

log = structlog.get_logger()


@lru_cache(32)  # many pods ask for the same
def _load(text: str, namespace: str) -> AnnotationAsks:
    from kube_rdma.attach.documents import networks

    return networks.load(text, namespace)


class NamedNetworks(Protocol):
    """An interface to look networks up by their names, such as the agent's NodeView."""

    async def definition(
        self, namespace: str, name: str, resource: str | None = None
    ) -> NetworkDefinition | None:
        """Return a NetworkAttachmentDefinition, if it exists; raise Refused for its faults.

        `resource` is the network's resource where the document names none. Raise NotInstalled if
        the API server does not have the kind.
        """

    async def configured(self, namespace: str, name: str) -> NetworkDefinition | None:
        """Return the network in the node's CNI configuration of this name; None without one."""

    async def configurations(self) -> tuple[str, ...]:
        """Return the names of the node's CNI configurations that pods may name."""

    async def has_pool(self, name: PoolName) -> bool:
        """Return whether an IPPool of this name exists."""


class AnnotatedNetworks(Frozen):
    """The networks that a pod's annotation names."""

    annotation: str  # its key
    asks: tuple[NetworkAsk, ...]
    namespace: str  # of the pod


def asking(pod: PodState, cluster: str) -> AnnotatedNetworks:
    """Return the networks that a pod's annotations ask for; log warnings.

    `cluster` is the name of the cluster's CNI configuration. Raise Refused for faults and for both
    annotations at once, Unavailable while the writer of the pod's annotation has not finished.
    """
    from kube_rdma.attach.documents import networks, pod_networks

    annotations = dict(pod.annotations)
    text = annotations.get(networks.ANNOTATION, "")
    other = annotations.get(pod_networks.ANNOTATION, "")
    definition = annotations.get(pod_networks.DEFINITION, "")
    if not other.strip() and not definition.strip():
        request = _load(text, pod.namespace)
        _warn(pod, request.warnings)
        return AnnotatedNetworks(networks.ANNOTATION, request.asks, pod.namespace)
    if text.strip():
        raise Refused(
            f"the pod has the annotations {networks.ANNOTATION} and {pod_networks.ANNOTATION}, and "
            "each would name and number its interfaces",
            remedy="Keep one of the two and name every network in it",
            where=f"pod {pod.namespace}/{pod.name}",
        )
    request = pod_networks.load(other, definition, pod.namespace, cluster)
    _warn(pod, request.warnings)
    return AnnotatedNetworks(pod_networks.ANNOTATION, request.asks, pod.namespace)


def _warn(pod: PodState, warnings: Iterable[str]) -> None:
    for warning in warnings:
        log.warning("pod annotation warning", pod=f"{pod.namespace}/{pod.name}", warning=warning)


async def meant(
    asked: AnnotatedNetworks, node: NamedNetworks, global_namespaces: Collection[str] | None
) -> tuple[tuple[NetworkAsk, ...], dict[str, NetworkDefinition]]:
    """Return the entries with their network's namespace, and the networks by namespace/name.

    Any pod may name networks of `global_namespaces`; None: of all namespaces. Raise Refused for
    networks that the pod may not name, faults of the documents, and blocks of pod-networks whose
    network is nowhere. NetworkAttachmentDefinitions that do not exist are left out.
    """
    if asked.annotation == POD_NETWORKS:
        asks, by_name = await _by_name(asked.asks, node, apart=global_namespaces is not None)
        refuse_isolated(asked.namespace, asks, global_namespaces)
        return asks, by_name
    refuse_isolated(asked.namespace, asked.asks, global_namespaces)
    names = dict.fromkeys((ask.namespace, ask.network) for ask in asked.asks)
    named = zip(names, await all_of(node.definition(*name) for name in names), strict=True)
    return asked.asks, {"/".join(name): one for name, one in named if one}


async def claimed_definitions(
    devices: Iterable[ClaimDevice], node: NamedNetworks
) -> dict[str, NetworkDefinition]:
    """Return the existing networks of a pod's claims, by namespace/name.

    A network whose document names no resource gets the device's. Raise Refused for faults
    of the documents.
    """
    definitions = await all_of(_of_claim(device, node) for device in devices)
    return {one.network.name: one for one in definitions if one}


async def _of_claim(device: ClaimDevice, node: NamedNetworks) -> NetworkDefinition | None:
    from kube_rdma.attach.documents.network_definition import NetworkDefinition
    from kube_rdma.ipam.ip_conf import IpamConf

    if network := own_network(device):
        pools = tuple((None, pool) for pool in network.pools)
        return NetworkDefinition(network, IpamConf(pools=pools))
    ask = ask_of(device)
    return await node.definition(ask.namespace, ask.network, device.share.resource)


async def all_of(questions: Iterable[Awaitable[T]]) -> tuple[T, ...]:
    """Await all of these at once and return their results; raise the first error."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    if errors := [one for one in answers if isinstance(one, BaseException)]:
        raise errors[0]
    return tuple(one for one in answers if not isinstance(one, BaseException))


async def _by_name(
    asks: Sequence[NetworkAsk], node: NamedNetworks, *, apart: bool
) -> tuple[tuple[NetworkAsk, ...], dict[str, NetworkDefinition]]:
    """Return the entries with their network's namespace, and the networks, each looked up once.

    Raise Refused for entries whose network is nowhere. `apart`: pods may not name the node's own
    CNI configurations.
    """
    from kube_rdma.attach.documents.cni_conf import DEFAULT_NETWORK

    names = {ask.network: ask.namespace for ask in asks}
    definitions = {
        name: await _named(space, name, node, apart=apart) for name, space in names.items()
    }
    if missing := [ask for ask in asks if definitions[ask.network] is None]:
        names_here = () if apart else await node.configurations()
        names_here = tuple(dict.fromkeys((*names_here, DEFAULT_NETWORK)))
        raise unknown(missing, tuple(names_here), _places(missing[0].namespace), apart=apart)
    by_name = {name: one for name, one in definitions.items() if one}
    spaces = {name: one.network.name.partition("/")[0] for name, one in by_name.items()}
    placed = tuple(replace(ask, namespace=spaces[ask.network]) for ask in asks)
    return placed, {one.network.name: one for one in by_name.values()}


async def _named(
    namespace: str, name: str, node: NamedNetworks, *, apart: bool
) -> NetworkDefinition | None:
    """Return the network of this name, or None.

    Without `apart` the node's CNI configuration comes first. Then come definitions in the pod's
    namespace and in kube-system, and last `rdma`, the network that is built into kube-rdma.
    """
    from kube_rdma.attach.documents.cni_conf import DEFAULT_NETWORK, built_in

    if not apart and (definition := await node.configured(namespace, name)):
        return definition
    for place in _places(namespace):
        try:
            definition = await node.definition(place, name)
        except NotInstalled:
            break  # this annotation works without the kind NetworkAttachmentDefinition
        if definition:
            return definition
    if name != DEFAULT_NETWORK:
        return None
    return built_in(namespace, pool=await node.has_pool(PoolName(name)))


def _places(namespace: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((namespace, SHARED)))
