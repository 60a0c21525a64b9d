"""What `kube-rdma doctor` reads of the API server: one pod whole, and addresses everywhere.

Each function is one kind and needs the verb get or list. Of other pods only the status annotation
is looked at.
"""

from __future__ import annotations

import msgspec

from kube_base.errors import Refused
from kube_client import wire
from kube_client.calls import make
from kube_client.errors import Conflict, Lost
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import ipam_objects
from kube_rdma.adapters.cluster.networks import DEFINITION, RESOURCE
from kube_rdma.adapters.cluster.pods import POD
from kube_rdma.api.admission import pod_manifest
from kube_rdma.api.attach import network_definition, network_status
from kube_rdma.api.text.object_document import of_json
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.doctor import AddressRange, AddressUse


class _WaitingReason(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _WholeState(msgspec.Struct, frozen=True):
    waiting: _WaitingReason | None = None


class WholeContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What runs, or waits, by the name of a container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: _WholeState = _WholeState()


class _WholeCondition(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""


class WholeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of status that is read."""

    phase: str = ""
    reason: str = ""  # why the kubelet or a controller ended it
    message: str = ""
    conditions: tuple[_WholeCondition, ...] = ()
    container_statuses: tuple[WholeContainerStatus, ...] = ()


class _WholeMeta(msgspec.Struct, frozen=True):
    uid: str = ""
    annotations: dict[str, str] = {}


class _WholeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    resource_claims: tuple[msgspec.Raw, ...] = ()


class WholePod(msgspec.Struct, frozen=True):
    """The parts of a Pod object that its template has not."""

    metadata: _WholeMeta = _WholeMeta()
    spec: _WholeSpec = _WholeSpec()
    status: WholeStatus = WholeStatus()


async def whole_pod(
    cluster: Cluster, namespace: str, name: str
) -> tuple[PodTemplate, WholePod] | None:
    """The pod, None where there is none; Refused where it has not the form of a pod."""
    try:
        data = await cluster.write(make("get", POD, name, namespace))
    except Conflict as missing:
        if missing.lost is not Lost.GONE:
            raise
        return None
    template = pod_manifest.load(of_json(data), namespace, name)
    return template, wire.parse(data, WholePod)


async def address_uses(cluster: Cluster) -> tuple[AddressUse, ...]:
    """The addresses of all pods that run, on networks besides the cluster's own."""
    pods = [one for one in await cluster.list(POD) if not one.deleting]
    return tuple(
        use
        for pod in pods
        if pod.status is None or pod.status.phase not in ("Succeeded", "Failed")
        for use in network_status.address_uses(
            f"{pod.namespace}/{pod.name}", pod.annotation(network_status.ANNOTATION) or ""
        )
    )


async def address_ranges(cluster: Cluster) -> tuple[AddressRange, ...]:
    """By network the subnets of its IPPools, of networks whose addresses come from pools alone."""
    pools = await ipam_objects.see(cluster, ipam_objects.IP_POOL)
    subnets = {
        one.name: tuple(str(part.subnet) for part in one.spec.ranges) for one in pools.objects
    }
    ranges = []
    for definition in await cluster.list(DEFINITION):
        try:
            network = network_definition.load(
                definition.namespace,
                definition.name,
                definition.spec.config.encode(),
                definition.annotation(RESOURCE),
            ).network
        except Refused:
            continue  # nobody attaches it
        known_pools = [subnets[name] for name in network.pools if name in subnets]
        if known_pools and len(known_pools) == len(network.pools) and not network.static:
            ranges.append(
                AddressRange(network.name, tuple(s for some in known_pools for s in some))
            )
    return tuple(ranges)
