"""Ends the agents of a cluster, unless pods need them, and waits until they are gone.

    pods ─► install/rules/release ─► DaemonSet deleted ─► its pods are gone

An agent that ends removes a condition of its node, and needs its rights for that. So this runs
before the rights are deleted: in a hook of Helm, or for a person who then deletes manifests. An
operator's end is refused while its drivers run, which it alone unloads node by node. Webhook
configurations that an upgrade without Helm leaves behind are deleted, too.
"""

from __future__ import annotations

from contextlib import aclosing

import msgspec
import structlog

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_base.frozen import Frozen
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted, Synced
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET, FULL_POD, POD, pod_state
from kube_rdma.attach.documents.network_status import OWN_ANNOTATION
from kube_rdma.install.rules.release import drivers_run, still_needed
from kube_rdma.model.operator import ComponentName
from kube_rdma.operator.cluster import progress_of
from kube_rdma.operator.rules.daemon_sets import COMPONENT_LABEL

FORMER_WEBHOOK = "pods.kube-rdma.io"

log = structlog.get_logger()


class WebhookService(msgspec.Struct, frozen=True):
    """The Service that a webhook names; a webhook with a URL names none."""

    namespace: str = ""
    name: str = ""


class _ClientConfig(msgspec.Struct, frozen=True):
    service: WebhookService | None = None


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook in an admission webhook configuration."""

    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)


WEBHOOK_CONFIGURATIONS: tuple[ObjectKind[tuple[Webhook, ...], None], ...] = tuple(
    ObjectKind(
        "admissionregistration.k8s.io",
        "v1",
        f"{kind}WebhookConfiguration",
        f"{kind.lower()}webhookconfigurations",
        namespaced=False,
        spec=ObjectCodec(lambda data: () if data == b"{}" else decoded(data, tuple[Webhook, ...])),
        status=NOTHING,
        content="webhooks",
    )
    for kind in ("Validating", "Mutating")
)


class Retirement(Frozen):
    """The removal of one DaemonSet.

    It needs the verbs get and delete of DaemonSets, list and watch of pods.
    """

    cluster: Cluster
    namespace: str
    daemon_set: str

    async def run(self, *, force: bool = False) -> None:
        """Delete the DaemonSet and wait until its pods are gone; do nothing if there is none.

        Raise Refused while pods of the cluster need the agents, unless `force`.
        """
        stored = await self.cluster.get(DAEMON_SET, self.daemon_set, self.namespace)
        if stored is None:
            return
        refusal = still_needed(map(pod_state, await self.cluster.list(POD)), OWN_ANNOTATION)
        if refusal and not force:
            raise refusal
        await self.cluster.delete(DAEMON_SET, stored, unchanged=False)
        labels = stored.spec["selector"]["matchLabels"]
        await self._gone(",".join(f"{key}={value}" for key, value in labels.items()))

    async def _gone(self, labels: str) -> None:
        """Wait until no pod with these labels exists."""
        uids: set[str] = set()
        synced = False
        where = Where(namespace=self.namespace, labels=labels)
        async with aclosing(self.cluster.watch(POD, where)) as events:
            async for event in events:
                match event:
                    case Changed(pod):
                        uids.add(pod.uid)
                    case Deleted(uid=uid):
                        uids.discard(uid)
                    case Synced():
                        synced = True
                if synced and not uids:
                    return


async def retire_drivers(cluster: Cluster, namespace: str) -> None:
    """Raise Refused while drivers of a policy run in the namespace.

    It needs the verb list of DaemonSets and pods.
    """
    names = f"{ComponentName.DRIVER},{ComponentName.PEER_DRIVER}"
    where = Where(namespace=namespace, labels=f"{COMPONENT_LABEL} in ({names})")
    daemon_sets = await cluster.list(DAEMON_SET, where)
    pods = await cluster.list(FULL_POD, where)
    nodes = (pod.spec.node_name for pod in pods if pod.spec.node_name)
    if refusal := drivers_run(nodes, (each.name for each in daemon_sets)):
        raise refusal


async def retire_webhook(cluster: Cluster, namespace: str, fullname: str = "") -> None:
    """Delete the webhook configurations that an earlier version of this installation left.

    One configuration owns the webhook's Secret, so Kubernetes deletes that too. The verbs get and
    delete of both configurations are needed; where an older chart's roles lack them, the log says
    so. Configurations of another installation with the same name stay.
    """
    name = f"{fullname}.{FORMER_WEBHOOK}" if fullname else FORMER_WEBHOOK
    ours = WebhookService(namespace, f"{fullname or 'kube-rdma'}-admission")
    for kind in WEBHOOK_CONFIGURATIONS:
        try:
            stored = await cluster.get(kind, name)
            if stored and {each.client_config.service for each in stored.spec} == {ours}:
                await cluster.delete(kind, stored, unchanged=False)
        except Refused as error:
            log.warning("former webhook not looked for", kind=kind.kind, why=str(error))


async def available(cluster: Cluster, namespace: str, daemon_set: str) -> None:
    """Wait until all pods that a DaemonSet wants are available, even if it wants none."""
    where = Where(namespace=namespace, fields=f"metadata.name={daemon_set}")
    async with aclosing(cluster.watch(DAEMON_SET, where)) as events:
        async for event in events:
            match event:
                case Changed(stored) if stored.status is not None:
                    progress = progress_of(stored)
                    if progress.current and progress.available == progress.desired:
                        return
