"""Reads a pod for the doctor and for explain at the API server, and why it does not run.

    status ─► Events of the pod ─► of its volumes' claims ─► containers, conditions ─► a sentence

It has the rights of whoever asks; an agent may read no Events, so the doctor of a laptop reads them
itself. rules/waiting chooses among the Events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FullPod, FullPodStatus, status_of
from kube_rdma.admission.cluster import whole_pod
from kube_rdma.admission.rules.findings import findings
from kube_rdma.admission.rules.shares import with_shares
from kube_rdma.attach.documents import network_status
from kube_rdma.doctor.cluster import present
from kube_rdma.doctor.rules.waiting import telling, text_of
from kube_rdma.model import doctor as model
from kube_rdma.model.admission import USUAL, ContainerRole, PodTemplate
from kube_rdma.model.late_binding import PodName
from kube_rdma.reports.cluster import events_of

_LOCK = frozenset({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"})
_MOST = 200  # Events of one pod, or of all objects of a kind in its namespace
_UNBOUND = "unbound immediate PersistentVolumeClaims"


async def pod_by_api(
    cluster: Cluster, pod: PodName, resources: Iterable[str] = ()
) -> tuple[model.ObservedPod, FullPod]:
    """Read a pod from the API server; return what the doctor sees of it, and the whole object.

    `resources` are those of the pools of its node. Raise NoSuchPod (a Refused) where the API server
    has no such pod.
    """
    template, whole = present(await whole_pod(cluster, pod.namespace, pod.name), pod)
    return await observed_pod(cluster, template, whole, resources), whole


async def observed_pod(
    cluster: Cluster, template: PodTemplate, whole: FullPod, resources: Iterable[str] = ()
) -> model.ObservedPod:
    """Return what a Pod object tells the doctor, and why the pod does not run if it does not."""
    pod = PodName(template.namespace, template.name)
    phase = status_of(whole).phase
    status = whole.annotation(network_status.ANNOTATION) or ""
    asks = [*template.networks, *(template.blocks or ())]
    has_claims = bool(whole.spec.resource_claims)  # any container may be given their devices
    return model.ObservedPod(
        namespace=pod.namespace,
        name=pod.name,
        node=whole.spec.node_name,
        phase=phase,
        why=await reason_of(cluster, template, whole),
        host_network=template.host_network,
        networks=tuple(f"{one.namespace}/{one.network}" for one in asks),
        attached=tuple(network_status.address_uses(str(pod), status)),
        findings=findings(template, settings=with_shares(USUAL, resources)),
        containers=tuple(
            model.ObservedContainer(
                one.name,
                tuple((ask.resource, ask.count) for ask in one.asks),
                asked_lock=one.privileged or bool(_LOCK & set(one.added)),
                granted=one.privileged or has_claims or bool(one.asks),
            )
            for one in template.containers
            if one.role is not ContainerRole.INIT
        ),
    )


async def reason_of(cluster: Cluster, template: PodTemplate, whole: FullPod) -> str:
    """Return why a pod does not run, as `REASON: message` or a message alone.

    Return "" for a pod that runs or has succeeded, and where neither status nor Events say why.
    """
    status = status_of(whole)
    if status.phase in ("Running", "Succeeded"):
        return ""
    if status.message:
        return f"{status.reason}: {status.message}" if status.reason else status.message
    about = f"involvedObject.kind=Pod,involvedObject.name={template.name}"
    about += f",involvedObject.uid={whole.uid}" if whole.uid else ""
    reason = await event_reason(cluster, template.namespace, about)
    claims = {one.claim for one in template.volumes if one.claim}
    if claims and _UNBOUND in reason:
        about = "involvedObject.kind=PersistentVolumeClaim"
        of_claims = await event_reason(cluster, template.namespace, about, claims.__contains__)
        reason = of_claims or reason
    return reason or _silent(status)


async def event_reason(
    cluster: Cluster,
    namespace: str,
    choice: str,
    of: Callable[[str], bool] = bool,
) -> str:
    """Return the text of the Event that best says what failed, among Events that `choice` selects.

    `of` decides by the name of an Event's object whether the Event counts. Return "" without such
    an Event, and where Events may not be read.
    """
    with suppress(Refused):
        every = await events_of(cluster, choice, namespace, _MOST)
        if event := telling(one for one in every if of(one.name)):
            return text_of(event)
    return ""


def _silent(status: FullPodStatus) -> str:
    """Return why a pod without Events waits: a waiting container's reason and message.

    Before containers have a status it is the message of an unmet condition. Return "" without any.
    """
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting and waiting.message:
            return f"{waiting.reason}: {waiting.message}"
    if status.container_statuses:
        return ""
    return next((c.message for c in status.conditions if c.status == "False" and c.message), "")
