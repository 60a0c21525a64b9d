"""Reads Nodes and Pods as model values; changes Nodes, such as their labels, and evicts Pods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from kube_base.frozen import asdict, replace
from kube_client import wire
from kube_client.calls import make
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Stored, Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced
from kube_rdma.adapters.cluster.kinds.node import (
    CARDS_HEALTHY,
    NODE,
    TAINTED_NODE,
    NodeObjectSpec,
    NodeStatus,
    node_state,
)
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.model.kubernetes import (
    LabelChange,
    NodeCondition,
    NodeState,
    PodState,
    Taint,
    moment,
)

Taints = Sequence[Mapping[str, object]]
"""Taints of a node with all of their fields."""


class Nodes:
    """A client for the Node objects of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, name: str) -> NodeState | None:
        """Return a node by a consistent read; None if it does not exist."""
        node = await self._cluster.get(NODE, name)
        return node_state(node) if node else None

    async def watch(
        self, name: str
    ) -> AsyncGenerator[NodeState | Deleted | Muddled | Synced | Cut, None]:
        """Yield a node now and whenever it changes, and other events of kube_client/watching."""
        async with aclosing(self._cluster.watch(NODE, Where(name=name))) as events:
            async for event in events:
                yield node_state(event.object) if isinstance(event, Changed) else event

    async def remove_taint(self, name: str, key: str, effect: str) -> bool:
        """Take the taint of this key and effect off a node; return False when it does not have it.

        All other taints stay as they are. Raise Conflict when somebody wrote or deleted the node
        since it was read. This needs the verbs get and patch of nodes.
        """

        def decide(taints: Taints) -> Taints:
            return [t for t in taints if (t.get("key"), t.get("effect")) != (key, effect)]

        return bool(await self._retaint(name, decide))

    async def set_taint(
        self, name: str, key: str, taint: Taint | None, mark: str | None
    ) -> Stored[NodeObjectSpec, NodeStatus] | None:
        """Make `taint` the only one of its key, or remove all of that key.

        Return the node as written, or None if nothing differed. The annotation of this key becomes
        `mark` in the same write. Taints with other keys stay as they are. Raise Conflict when
        somebody wrote or deleted the node since it was read. This needs the verbs get and patch of
        nodes.
        """
        made = asdict(taint) if taint else {}

        def decide(taints: Taints) -> Taints:
            # It stays at its place, for others may have come behind it.
            is_so = [bool(made) and made.items() <= one.items() for one in taints]
            kept = [t for t, so in zip(taints, is_so, strict=True) if so or t.get("key") != key]
            return kept if any(is_so) or not made else [*kept, made]

        return await self._retaint(name, decide, {key: mark})

    async def _retaint(
        self,
        name: str,
        decide: Callable[[Taints], Taints],
        annotations: Mapping[str, str | None] | None = None,
    ) -> Stored[NodeObjectSpec, NodeStatus] | None:
        """Write the taints that `decide` makes of the present ones, unless they are so."""
        node = await self._cluster.get(TAINTED_NODE, name)
        if node is None or (taints := decide(node.spec.taints)) == [*node.spec.taints]:
            return None
        # The API has no merge key for taints, so the list goes as a whole, under its version.
        meta = {"uid": node.uid, "resourceVersion": node.version}
        noted = {"annotations": annotations} if annotations else {}
        patch = {"metadata": {**meta, **noted}, "spec": {"taints": taints}}
        return wire.stored(NODE, await self._merge(name, patch))

    async def relabel(
        self, name: str, decide: Callable[[NodeState], LabelChange | None]
    ) -> LabelChange | None:
        """Write the labels and annotations that `decide` wants changed; return what it wanted.

        Nothing is written where it wants nothing, or the node is gone. Raise Conflict when somebody
        wrote or deleted the node since it was read. This needs the verbs get and patch of nodes.
        """
        node = await self._cluster.get(NODE, name)
        change = decide(node_state(node)) if node else None
        if node is None or change is None:
            return None
        meta = {
            "uid": node.uid,
            "resourceVersion": node.version,
            "labels": change.labels,
            "annotations": change.annotations,
        }
        await self._merge(name, {"metadata": meta})
        return change

    async def close(self, name: str, mark: str, why: str) -> None:
        """Make a node unschedulable and note why in the annotation `mark`.

        Without `why` the node takes pods again, and the annotation is removed. This needs the verb
        patch of nodes. Raise Conflict(GONE) without the node.
        """
        meta = {"annotations": {mark: why or None}}
        await self._merge(name, {"metadata": meta, "spec": {"unschedulable": bool(why) or None}})

    async def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Write labels of a node that nobody else writes; None removes one.

        Raise Conflict(GONE) without the node.
        """
        await self._merge(name, {"metadata": {"labels": labels}})

    async def _merge(self, name: str, patch: Mapping[str, object]) -> bytes:
        request = replace(make("patch", NODE, name, ""), query=self._cluster.managed)
        body = msgspec.json.encode(patch)
        return await self._cluster.write(replace(request, body=body, content_type=wire.MERGE))

    async def set_cards(self, node: NodeState, condition: NodeCondition | None) -> None:
        """Write the condition CARDS_HEALTHY of a node; `None` removes it.

        Other conditions stay as they are. Raise Conflict(GONE) without the node. This needs the
        verb patch of nodes/status.
        """
        body = msgspec.json.encode({"status": {"conditions": [_written(node.cards, condition)]}})
        request = replace(
            make("patch", NODE, node.name, ""), subresource="status", query=self._cluster.managed
        )
        await self._cluster.write(replace(request, body=body, content_type=wire.STRATEGIC))


def _written(before: NodeCondition | None, after: NodeCondition | None) -> dict[str, str]:
    """Return the entry of the condition in a strategic merge patch; `after` of None deletes it.

    lastTransitionTime is set only where the status changed, or there was no condition.
    """
    entry = {"type": CARDS_HEALTHY}
    if after is None:
        return entry | {"$patch": "delete"}
    now = moment(datetime.now(UTC))
    entry |= {"status": after.status, "reason": after.reason, "message": after.message}
    entry["lastHeartbeatTime"] = now
    if before is None or before.status != after.status:
        entry["lastTransitionTime"] = now
    return entry


class Pods:
    """A client for the Pod objects of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, namespace: str, name: str) -> PodState | None:
        """Return a pod, None if it does not exist; a later pod of the same name has another uid."""
        pod = await self._cluster.get(POD, name, namespace)
        return pod_state(pod) if pod else None

    async def on_node(self, node: str) -> tuple[PodState, ...]:
        """Return the pods that are scheduled to a node, sorted by namespace and name."""
        pods = await self._cluster.list(POD, Where(fields=f"spec.nodeName={node}"))
        return tuple(map(pod_state, pods))

    async def evict(self, pod: PodState) -> None:
        """Evict this pod by the eviction API; do nothing if it is gone.

        This needs the verb create of pods/eviction. Raise Unavailable while a PodDisruptionBudget
        does not allow it (429).
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        request = make("create", POD, pod.name, pod.namespace)
        body = msgspec.json.encode(eviction)
        try:
            await self._cluster.write(replace(request, subresource="eviction", body=body))
        except Conflict as conflict:
            if conflict.lost is Lost.EXISTS:
                raise
