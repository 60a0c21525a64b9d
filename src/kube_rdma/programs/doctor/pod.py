"""What a doctor sees of a pod and of the cluster: API server first, then the pod's processes.

Beside programs/doctor/evidence, which sees the node. Containers are seen by /proc, so only on the
pod's node and in the host's process namespace; elsewhere these parts stay unseen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import doctor, reports
from kube_rdma.adapters.cluster.kinds.pod import FullPod, FullPodStatus, status_of
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.api.attach import network_status
from kube_rdma.model.admission.pod_template import ContainerRole, ContainerTemplate, PodTemplate
from kube_rdma.model.doctor import ObservedContainer, ObservedPod
from kube_rdma.model.pod import MIRROR
from kube_rdma.model.survey import Survey
from kube_rdma.programs.doctor.kernel import node_indexes, observed_links, observed_routes
from kube_rdma.rules.admission.findings import findings

OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]

# The variables that steer RDMA; what may be secret is in none of them.
_STEERING = re.compile(r"(NCCL|UCX|NVSHMEM|FI|OMPI_MCA)_[A-Z0-9_a-z]+|PCIDEVICE_[A-Z0-9_]+")
_SECRET = re.compile(r"SECRET|TOKEN|PASS|KEY|CRED|AUTH", re.IGNORECASE)
_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})


async def pod_by_api(cluster: Cluster, namespace: str, name: str) -> tuple[ObservedPod, FullPod]:
    """The pod as the API server has it; raise Refused when there is none."""
    template, whole = await read_pod(cluster, namespace, name)
    return await with_reason(cluster, observed_pod(template, whole), whole), whole


async def read_pod(cluster: Cluster, namespace: str, name: str) -> tuple[PodTemplate, FullPod]:
    """Both parts of a Pod object; raise Refused when there is none."""
    return present(await doctor.whole_pod(cluster, namespace, name), namespace, name)


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


def with_processes(seen: ObservedPod, whole: FullPod) -> ObservedPod:
    """The same with what its processes and its network namespace show.

    Raise Unavailable where no process of it is to be seen.
    """
    pids = proc.processes_of(whole.annotation(MIRROR) or whole.uid)
    if not pids:
        raise Unavailable(
            "no process of the pod is to be seen: run the doctor as root on the pod's node, "
            "outside of a container or with hostPID"
        )
    by_name = {
        one.name: pids[identity]
        for one in status_of(whole).container_statuses
        if (identity := one.container_id.rpartition("//")[2]) in pids
    }
    containers = tuple(
        _with_process(one, by_name[one.name]) if one.name in by_name else one
        for one in seen.containers or ()
    )
    namespace = Path(f"/proc/{next(iter(pids.values()))}/ns/net")
    return with_namespace(replace(seen, containers=containers), namespace)


def with_namespace(seen: ObservedPod, namespace: Path) -> ObservedPod:
    """The same with what its network namespace shows; raise Unavailable or Refused."""
    return replace(
        seen,
        links=open_inside(namespace, partial(observed_links, node_indexes())),
        routes=open_inside(namespace, observed_routes),
        survey=_survey(namespace),
    )


def steering(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The variables that a bundle may hold: those that steer RDMA, by their names."""
    kept = ((n, v) for n, v in pairs if _STEERING.fullmatch(n) and not _SECRET.search(n))
    return tuple(sorted(kept))


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


def _with_process(container: ObservedContainer, pid: int) -> ObservedContainer:
    user, locks = proc.user_and_lock(pid)
    folder = Path(f"/proc/{pid}/root/dev/infiniband")
    try:
        nodes = tuple(sorted(f"/dev/infiniband/{path.name}" for path in folder.iterdir()))
    except FileNotFoundError:
        nodes = ()
    return replace(
        container,
        user=user,
        locks=locks,
        memlock=proc.memlock(pid),
        nodes=nodes,
        variables=steering(proc.variables(pid)),
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
