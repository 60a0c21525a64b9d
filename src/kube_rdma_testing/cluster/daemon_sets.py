"""The controller of DaemonSets and the kubelets, as far as a test of an operator needs them.

Pods are made where a DaemonSet's nodeSelector holds and deleted where it does not, as
pkg/controller/daemon/daemon_controller.go does. A new template leaves running pods alone, as with
OnDelete. Nothing happens between two calls of `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kube_client.kinds import ObjectKind
from kube_rdma_testing.cluster.fields import Document
from kube_rdma_testing.cluster.server import FakeServer


class FakeDaemonSets:
    """A fake of DaemonSets' controller and kubelets; no pod becomes ready on nodes in `fails`.

    `unpulled` has the kubelet's reason on nodes that cannot pull an image. Nodes in `away` start no
    pods, and end one only when its DaemonSet is deleted. `ended` has node and DaemonSet of each
    ended pod.
    """

    def __init__(
        self, server: FakeServer, pod: ObjectKind[Any, Any], daemon_set: ObjectKind[Any, Any]
    ) -> None:
        self._server, self._pod, self._daemon_set = server, pod, daemon_set
        self.fails: set[str] = set()
        self.unpulled: dict[str, str] = {}
        self.away: set[str] = set()
        self.ended: list[tuple[str, str]] = []
        self._running: dict[str, tuple[str, str]] = {}  # by uid

    def step(self) -> bool:
        """Let controller and kubelets act once. Return True, so that a condition can call it."""
        self._note()
        nodes = {one["metadata"]["name"]: one for one in self._server.documents("nodes")}
        for document in self._server.documents("daemonsets"):
            self._sync(document, nodes)
        kept = {one["metadata"]["name"] for one in self._server.documents("daemonsets")}
        for pod in self._pods(lambda owner: owner not in kept):
            self._end(pod)
        self._note()
        return True

    def pods(self, name: str) -> dict[str, Document]:
        """Return the pods of a DaemonSet by node."""
        return {pod["spec"]["nodeName"]: pod for pod in self._pods(lambda owner: owner == name)}

    def _sync(self, document: Document, nodes: dict[str, Document]) -> None:
        name, template = document["metadata"]["name"], document["spec"]["template"]
        selector = template["spec"].get("nodeSelector", {}).items()
        right = {n for n, one in nodes.items() if selector <= one["metadata"]["labels"].items()}
        pods = self.pods(name)
        for node, pod in pods.items():
            if node not in right and node not in self.away:
                self._end(pod)
        for node in sorted(right - self.away):
            self._run(document, node, pods.get(node))
        ready = right - self.fails - self.away
        counts = {
            "desiredNumberScheduled": len(right),
            "updatedNumberScheduled": len(ready),
            "numberAvailable": len(ready),
            "observedGeneration": document["metadata"].get("generation", 0),
        }
        if document.get("status") != counts:
            self._server.put(self._daemon_set, {**document, "status": counts})

    def _run(self, document: Document, node: str, pod: Document | None) -> None:
        meta, template = document["metadata"], document["spec"]["template"]
        state = "False" if node in self.fails else "True"
        status: Document = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": state}],
        }
        if node in self.unpulled:
            waiting = {"reason": self.unpulled[node], "message": "not found"}
            name = template["spec"]["containers"][0]["name"]
            status["containerStatuses"] = [{"name": name, "state": {"waiting": waiting}}]
        if pod is None:
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": "0", "controller": True}
            pod = {
                "metadata": {
                    **template["metadata"],
                    "name": f"{meta['name']}-{node}",
                    "namespace": meta["namespace"],
                    "ownerReferences": [{**owner, "name": meta["name"]}],
                },
                "spec": {**template["spec"], "nodeName": node},
            }
        if pod.get("status") != status:
            self._server.put(self._pod, {**pod, "status": status})

    def _note(self) -> None:
        """Record the running pods, and those that ended since the last call."""
        running = {
            pod["metadata"]["uid"]: (pod["spec"]["nodeName"], _owner(pod))
            for pod in self._pods(lambda _: True)
        }
        self.ended += [self._running[uid] for uid in self._running.keys() - running]
        self._running = running

    def _end(self, pod: Document) -> None:
        meta = pod["metadata"]
        self._server.remove(self._pod, meta["name"], meta["namespace"])

    def _pods(self, owned: Callable[[str], bool]) -> list[Document]:
        """Return the pods of the DaemonSets whose names `owned` accepts."""
        pods = self._server.documents("pods")
        return [pod for pod in pods if (owner := _owner(pod)) and owned(owner)]


def _owner(pod: Document) -> str:
    """Return the name of the DaemonSet that owns a pod with labels, "" for any other pod."""
    meta = pod["metadata"]
    owners = meta.get("ownerReferences", ()) if meta.get("labels") else ()
    return next((owner["name"] for owner in owners if owner["kind"] == "DaemonSet"), "")
