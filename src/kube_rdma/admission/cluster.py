"""Reads a pod of the API server whole, to judge it."""

from __future__ import annotations

from kube_client import wire
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, FullPod
from kube_rdma.admission.documents import pod_manifest
from kube_rdma.lib.text.document import of_json
from kube_rdma.model.admission import PodTemplate


async def whole_pod(
    cluster: Cluster, namespace: str, name: str
) -> tuple[PodTemplate, FullPod] | None:
    """Return a pod as a PodTemplate and as a FullPod; None without one.

    Raise Refused for a pod that does not have a pod's form.
    """
    data = await cluster.document(FULL_POD, name, namespace)
    if data is None:
        return None
    template = pod_manifest.load(of_json(data), namespace, name)
    return template, wire.stored(FULL_POD, data)
