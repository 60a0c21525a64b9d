"""What a doctor sees of a pod by the API server, and in the pod's network namespace.

Beside doctor/evidence, which sees the node, and doctor/containers, which sees
what the pod's containers have.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FullPod, FullPodStatus, status_of
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.admission.cluster import whole_pod
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents import network_status
from kube_rdma.doctor.kernel import node_indexes, observed_links, observed_routes
from kube_rdma.model.admission.pod_template import ContainerRole, ContainerTemplate, PodTemplate
from kube_rdma.model.doctor import ObservedContainer, ObservedPod
from kube_rdma.model.survey import Survey
from kube_rdma.reports import cluster as reports

OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]

_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})


async def pod_by_api(cluster: Cluster, namespace: str, name: str) -> tuple[ObservedPod, FullPod]:
    """The pod as the API server has it; raise Refused when there is none."""
    template, whole = await read_pod(cluster, namespace, name)
    return await with_reason(cluster, observed_pod(template, whole), whole), whole


async def read_pod(cluster: Cluster, namespace: str, name: str) -> tuple[PodTemplate, FullPod]:
    """Both parts of a Pod object; raise Refused when there is none."""
    return present(await whole_pod(cluster, namespace, name), namespace, name)


def present(
    read: tuple[PodTemplate, FullPod] | None, namespace: str, name: str
) -> tuple[PodTemplate, FullPod]:
    """The parts of a pod that is there; raise Refused when there is none."""
    if read is None:
        raise Refused(
            f"there is no pod {name} in namespace {namespace}",
            remedy="Name one of kubectl get pods, with its namespace: pod/NAMESPACE/NAME",
        )
    return read


async def with_reason(cluster: Cluster, seen: ObservedPod, whole: FullPod) -> ObservedPod:
    """The same with what a pod that does not run waits for."""
    if seen.phase in ("Running", "Succeeded"):
        return seen
    why = _why(status_of(whole)) or await _event(cluster, seen.namespace, seen.name)
    return replace(seen, why=why)


def observed_pod(template: PodTemplate, whole: FullPod) -> ObservedPod:
    """What both say of it, without its processes."""
    status = whole.annotation(network_status.ANNOTATION) or ""
    title = f"{template.namespace}/{template.name}"
    asks = [*template.networks, *(template.blocks or ())]
    main = [one for one in template.containers if one.role is not ContainerRole.INIT]
    return ObservedPod(
        namespace=template.namespace,
        name=template.name,
        node=whole.spec.node_name,
        phase=status_of(whole).phase,
        host_network=template.host_network,
        networks=tuple(f"{one.namespace}/{one.network}" for one in asks),
        attached=tuple(network_status.address_uses(title, status)),
        findings=findings(template),
        containers=tuple(_container(one, claims=bool(whole.spec.resource_claims)) for one in main),
    )


def with_namespace(seen: ObservedPod, namespace: Path) -> ObservedPod:
    """The same with what its network namespace shows; raise Unavailable or Refused."""
    return replace(
        seen,
        links=open_inside(namespace, partial(observed_links, node_indexes())),
        routes=open_inside(namespace, observed_routes),
        survey=_survey(namespace),
    )


def _survey(namespace: Path) -> Survey | None:
    try:
        with sysfs_inside(namespace) as root:
            return read_survey(root)
    except OSError:
        return None


def _container(template: ContainerTemplate, *, claims: bool) -> ObservedContainer:
    """`claims`: the pod has claims of dynamic resource allocation, which this one may be given."""
    return ObservedContainer(
        template.name,
        tuple((ask.resource, ask.count) for ask in template.asks),
        asked_lock=template.privileged or bool(_LOCK & set(template.added)),
        granted=template.privileged or claims or bool(template.asks),
    )


def _why(status: FullPodStatus) -> str:
    """Why the pod was ended, or what a container waits for, else why a condition does not hold."""
    if status.message:
        return f"{status.reason}: {status.message}" if status.reason else status.message
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting and waiting.message:
            return f"{waiting.reason}: {waiting.message}"
    if status.container_statuses:
        return ""
    return next((c.message for c in status.conditions if c.status == "False" and c.message), "")


async def _event(cluster: Cluster, namespace: str, name: str) -> str:
    """The last word of scheduler, kubelet or agent about the pod; "" without the right to read."""
    about = ("Pod", namespace, name)
    try:
        every = await reports.events(cluster)
    except Refused:
        return ""
    events = [one for one in every if (one.kind, one.namespace, one.name) == about]
    last = max(events, key=lambda one: one.last, default=None)
    return f"{last.reason}: {last.note}" if last else ""
