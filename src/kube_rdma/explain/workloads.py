"""Reads a workload of the cluster by KIND/NAME, as kubectl calls kinds, with its pods.

cli/explain and cli/why take the first pod that waits, else another one; of a workload without pods
they take its template. It needs the rights to get the kind and to list pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

import msgspec

from kube_base.errors import Refused
from kube_client.kinds import NOTHING, ObjectKind, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, status_of
from kube_rdma.lib.text.document import Document, of_json, section
from kube_rdma.model.late_binding import PodName

_KINDS = {  # of each API the kinds, with a short name of kubectl where there is one
    "apps/v1": "Deployment/deploy ReplicaSet/rs StatefulSet/sts DaemonSet/ds",
    "batch/v1": "Job CronJob/cj",
    "kubeflow.org/v2beta1": "MPIJob",
    "kubeflow.org/v1": "PyTorchJob",
    "trainer.kubeflow.org/v1alpha1": "TrainJob",
    "jobset.x-k8s.io/v1alpha2": "JobSet",
    "leaderworkerset.x-k8s.io/v1": "LeaderWorkerSet/lws",
    "ray.io/v1": "RayCluster RayJob",
}
_ORDER = "Pending Failed Running Succeeded Unknown"  # phases; the first tells most


def kinds() -> Mapping[str, ObjectKind[None, None]]:
    """Return the kinds of workloads by their singular, plural and short names."""
    found: dict[str, ObjectKind[None, None]] = {}
    for api, names in _KINDS.items():
        group, _, version = api.partition("/")
        for kind, _, short in (name.partition("/") for name in names.split()):
            word = kind.lower()
            made = ObjectKind(group, version, kind, f"{word}s", True, NOTHING, NOTHING)
            found |= dict.fromkeys(filter(None, (word, f"{word}s", short)), made)
    return found


async def read_workload(
    cluster: Cluster, kind: ObjectKind[None, None], namespace: str, name: str
) -> tuple[Document, PodName | None]:
    """Return a workload and its first pod by phase, Pending before all; None if it has no pod.

    Raise Refused where there is no such workload.
    """
    data = await cluster.document(kind, name, namespace)
    if data is None:
        remedy = f"Name one of kubectl -n {quote(namespace)} get {quote(kind.plural)}"
        raise Refused(f"there is no {kind.kind} {name} in namespace {namespace}", remedy=remedy)
    document = of_json(data, f"{kind.kind}/{name}")
    chosen = _selector_text(section(document, ("spec", "selector")).value)
    every = await cluster.list(FULL_POD, Where(namespace=namespace, labels=chosen))
    # Without a selector the owner counts, such as a Job that an MPIJob has made.
    owners = ((one, (f"{owner.name}-" for owner in one.owners)) for one in every)
    pods = [one for one, names in owners if chosen or any(n.startswith(f"{name}-") for n in names)]
    first = min(pods, key=lambda pod: (_ORDER.find(status_of(pod).phase), pod.name), default=None)
    return document, PodName(namespace, first.name) if first else None


class _Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str  # In, NotIn, Exists or DoesNotExist
    values: tuple[str, ...] = ()


class _LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Requirement, ...] = ()


def _selector_text(selector: object) -> str:
    """Return a LabelSelector of meta/v1 as the text of a query; "" if it is none.

    A kind of another project may have a field of this name and another form.
    """
    try:
        read = msgspec.convert(selector, _LabelSelector)
    except msgspec.ValidationError:
        return ""
    terms = [f"{key}={value}" for key, value in read.match_labels.items()]
    for one in read.match_expressions:
        among = f"{one.key} {one.operator.lower()} ({','.join(one.values)})"
        alone = {"Exists": one.key, "DoesNotExist": f"!{one.key}"}
        terms.append(alone.get(one.operator, among))
    return ",".join(terms)
