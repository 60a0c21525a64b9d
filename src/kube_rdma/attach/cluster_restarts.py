"""Requests to restart a pod: written and taken back by agents, read by the controller.

attach/repair asks, controller/evictions carries out.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kube_base.foreign_json import Undecodable, decoded
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.model.attach.restart import RESTART, RestartRequest
from kube_rdma.model.pod import PodState


class _Written(msgspec.Struct, omit_defaults=True):
    node: str
    at: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # whoever may patch the pod writes it
    why: str
    outdated: bool = False  # without it, a controller from before this field ends no more than then


class Restarts:
    """The requests of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def ask(self, pod: PodState, request: RestartRequest) -> None:
        """Ask for just this pod, or once more; Conflict when another one has its name by now.

        Needs the verb patch of pods.
        """
        written = _Written(request.node, request.at, request.why, request.outdated)
        text = msgspec.json.encode(written).decode()
        await self._patch(pod, "true", text)

    async def withdraw(self, pod: PodState) -> None:
        """Ask no more; raise as `ask`."""
        await self._patch(pod, None, None)

    async def pods(self) -> tuple[PodState, ...]:
        """Those for which somebody asks and that can be read. Needs the verb list."""
        seen = await self._cluster.see(POD, Where(labels=f"{RESTART}=true"))
        return tuple(map(pod_state, seen.objects))

    async def _patch(self, pod: PodState, label: str | None, text: str | None) -> None:
        changes = {"labels": ((RESTART, label),), "annotations": ((RESTART, text),)}
        await self._cluster.patch(POD, pod.name, pod.namespace, uid=pod.uid, **changes)


def request_of(pod: PodState) -> RestartRequest | None:
    """What stands on a pod; None for nothing, and for what nobody of kube-rdma writes."""
    try:
        read = decoded(dict(pod.annotations).get(RESTART, ""), _Written)
    except Undecodable:
        return None
    return RestartRequest(read.node, read.at, read.why, read.outdated)
