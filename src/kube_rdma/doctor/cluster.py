"""Reads what the API server has for `kube-rdma doctor`: addresses, VKE's plugin, pods of agents.

Each function that reads needs the verb get or list of its kinds. Of pods that run no agent only the
annotation network-status counts, and whether they are over or being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kube_base.errors import Refused
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, DefinitionSpec
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, FULL_POD, POD, FullPod, status_of
from kube_rdma.attach.cluster import network_of
from kube_rdma.attach.documents import network_status
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.doctor import AddressRange, AddressUse, AgentPod
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.reports import ProgramTemplate

IsAgent = Callable[[ProgramTemplate], bool]

_CELLO = "cello"


async def vpc_cni_version(cluster: Cluster) -> str:
    """Return the version of VKE's network plugin, the tag of its image; "" if none is there.

    volcengine/cello chart/templates/daemonset.yaml has the names.
    """
    where = Where(namespace="kube-system", fields=f"metadata.name={_CELLO}")
    tags = (
        tag
        for stored in await cluster.list(DAEMON_SETS, where)
        for container in stored.spec.template.spec.containers
        for name, _, tag in [container.image.rpartition("/")[2].partition(":")]
        if name == _CELLO
    )
    return next(tags, "")


async def address_uses(cluster: Cluster) -> tuple[AddressUse, ...]:
    """Return the addresses of pods on networks other than the cluster's own.

    Pods that are over or being deleted are left out.
    """
    pods = [one for one in await cluster.list(POD) if not one.deleting]
    return tuple(
        use
        for pod in pods
        if pod.status is None or not pod.status.is_over
        for use in network_status.address_uses(
            f"{pod.namespace}/{pod.name}", pod.annotation(network_status.ANNOTATION) or ""
        )
    )


async def address_ranges(
    cluster: Cluster, uses: Sequence[AddressUse] | None = None
) -> tuple[AddressRange, ...]:
    """Return the subnets of each network whose addresses come only from IPPools.

    Where networks may not be listed, as by an agent, the networks of `uses` are read one by one.
    """
    pools = await cluster.see(IP_POOL)
    subnets = {
        one.name: tuple(str(part.subnet) for part in one.spec.ranges) for one in pools.objects
    }
    ranges = []
    for definition in await _definitions(cluster, uses):
        if (network := network_of(definition)) is None:
            continue
        known_pools = [subnets[name] for name in network.pools if name in subnets]
        if known_pools and len(known_pools) == len(network.pools) and not network.static:
            ranges.append(
                AddressRange(network.name, tuple(s for some in known_pools for s in some))
            )
    return tuple(ranges)


async def _definitions(
    cluster: Cluster, uses: Sequence[AddressUse] | None
) -> tuple[Stored[DefinitionSpec, None], ...]:
    try:
        return await cluster.list(DEFINITION)
    except Refused:
        if uses is None:
            raise
    names = sorted({use.network for use in uses if "/" in use.network})
    read = []
    for namespace, _, name in (network.partition("/") for network in names):
        read.append(await cluster.get(DEFINITION, name, namespace))
    return tuple(one for one in read if one is not None)


class NoSuchPod(Refused):
    """The error for a pod that the API server does not have."""


def present(read: tuple[PodTemplate, FullPod] | None, pod: PodName) -> tuple[PodTemplate, FullPod]:
    """Return `read`, the template and the whole object of a pod; raise NoSuchPod if it is None."""
    if read is None:
        raise NoSuchPod(
            f"there is no pod {pod.name} in namespace {pod.namespace}",
            remedy="Name one of kubectl get pods, with its namespace: pod/NAMESPACE/NAME",
        )
    return read


async def agent_pods(cluster: Cluster, namespace: str, is_agent: IsAgent) -> tuple[AgentPod, ...]:
    """Return the agents of a namespace that are on a node; raise Refused if listing is refused."""
    pods = await cluster.list(FULL_POD, Where(namespace=namespace))
    return tuple(agent for pod in pods if (agent := _agent(pod, is_agent)))


def _agent(pod: FullPod, is_agent: IsAgent) -> AgentPod | None:
    """Return the agent that a pod runs, on its node; None for a pod without an agent or a node."""
    for container in pod.spec.containers:
        argv = (*container.command, *container.args)
        if is_agent(ProgramTemplate(pod.name, container.image, argv)):
            break
    else:
        return None
    if not pod.spec.node_name:
        return None
    status = status_of(pod)
    states = [one for one in status.container_statuses if one.name == container.name]
    running = any(not one.state.waiting and not one.state.terminated for one in states)
    waiting = next((one.state.waiting for one in states if one.state.waiting), None)
    ready = running and status.phase == "Running" and not pod.deleting
    why = "Terminating" if pod.deleting else waiting.reason if waiting else status.phase
    why = "" if ready else why
    return AgentPod(pod.namespace, pod.name, pod.spec.node_name, container.name, ready, why, argv)
