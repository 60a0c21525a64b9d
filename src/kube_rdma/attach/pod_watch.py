"""The pods of this node that ask for networks, as the API server's watch shows them.

    watch ─► those that ask ─► rounds (attach/repair), list for the shim, since
    when
          └► those that ask and are on the host's network ─► Event

Part of attach/node_networks. No runtime calls the agent for a pod on the
host's network, so what it cannot have is said here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted, Synced
from kube_rdma.adapters.bulkhead import contained, object_failed
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni.state import AskingPods, Mark
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.context import NodeContext
from kube_rdma.attach.rules.repair import is_owed
from kube_rdma.attach.rules.requests import is_asking, names_networks, refuse_host_network
from kube_rdma.model.attach.restart import RESTART
from kube_rdma.model.cni_conf import Wiring
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.late_binding.runtime import PodSandbox
from kube_rdma.model.pod import PodState


class PodWatchDependencies(Frozen):
    """Whom the watch of the pods needs. `state` is the agent's folder on the host's disk. `tell`
    says something about a pod: a word for it, a sentence, and whether it is a warning."""

    cluster: Cluster
    node: str
    state: Path
    context: NodeContext
    tell: Callable[[PodState, str, str, bool], None]


class NodePodWatch:
    """``await NodePodWatch(...).follow(wake)``; `wired` when it is known who calls the agent."""

    def __init__(self, dependencies: PodWatchDependencies) -> None:
        self._needs = dependencies
        self._asking: dict[tuple[str, str], PodState] = {}
        self._on_host: dict[tuple[str, str], PodState] = {}
        self._notices = Notices()  # to those on the host's network, by their uid
        self._list = AskingPods(dependencies.state / "asking")
        self._chained = Mark(dependencies.state / "chained")
        self._is_chained = False

    @property
    def asking(self) -> tuple[PodState, ...]:
        """Those that ask for networks and can have some, by the last news."""
        return tuple(self._asking.values())

    def wired(self, wiring: Wiring) -> None:
        """Take note of who calls the agent for pods now; raise Unavailable if it cannot be kept.

        While nobody does because the node has no network, nothing starts: what was so stays so.
        """
        self._is_chained = wiring is Wiring.CHAIN
        if wiring is Wiring.CHAIN:
            self._chained.set()
        elif wiring is Wiring.DELEGATE:
            self._chained.clear()
        self._refuse()

    def unwired(self) -> None:
        """Nobody calls the agent: its configuration is refused or not installed; raise so."""
        self._is_chained = False
        self._chained.clear()

    def owed(self, sandbox: PodSandbox, pod: PodState) -> bool:
        """Whether a sandbox should have had networks when it was made; reads the disk."""
        since = self._list.since(PodName(pod.namespace, pod.name)), self._chained.since()
        return is_owed(sandbox, pod, *since)

    async def follow(self, wake: Callable[[], None]) -> None:
        """Watch until cancelled; `wake` hears when a pod that asks began to run.

        The list on the disk is changed only when all pods are listed: until then that of an earlier
        life is truer.
        """
        self._asking.clear()  # of an earlier watch: some may be gone
        self._on_host.clear()
        kept: frozenset[PodName] | None = None
        synced = False
        where = Where(fields=f"spec.nodeName={self._needs.node}")
        async with aclosing(self._needs.cluster.watch(POD, where)) as events:
            async for event in events:
                match event:
                    case Changed(document):
                        with contained("pods of the node"):  # of one pod, whatever is in it
                            self._note(pod_state(document), wake)
                    case Deleted(name, namespace, uid):
                        self._forget(namespace, name)
                        self._notices.over(uid)
                    case Synced():
                        synced = True
                names = frozenset(PodName(*key) for key in self._asking)
                if synced and names != kept:
                    await asyncio.to_thread(self._list.keep, names)
                    kept = names

    def _note(self, pod: PodState, wake: Callable[[], None]) -> None:
        # Labels have no end but that of an object, 1.5 MiB, and all pods of the node are kept.
        pod = replace(pod, labels=tuple(label for label in pod.labels if label[0] == RESTART))
        key = (pod.namespace, pod.name)
        before = self._asking.get(key)
        self._forget(*key)
        if is_asking(pod):
            self._asking[key] = pod
            # Its sandbox is there now. A round finds out whether its networks are too.
            if pod.phase == "Running" and (before is None or before.phase != "Running"):
                wake()
        elif names_networks(pod.annotations) and not pod.is_over:
            self._on_host[key] = pod
            self._refuse()

    def _forget(self, namespace: str, name: str) -> None:
        self._asking.pop((namespace, name), None)
        self._on_host.pop((namespace, name), None)

    def _refuse(self) -> None:
        """Tell each pod on the host's network once. Behind a meta-plugin that one has the word."""
        for pod in self._on_host.values() if self._is_chained else ():
            try:
                asked = asking(pod, self._needs.context.network)
                refuse_host_network(pod, asked.asks, asked.annotation)
            except Refused as error:
                for why in self._notices.news(pod.uid, str(error)):
                    self._needs.tell(pod, "NetworksRefused", why, True)
            except Unavailable:
                continue  # its annotation is being written; that is news too
            except Exception as error:  # noqa: BLE001  of one pod
                why = object_failed(POD.kind, f"{pod.namespace}/{pod.name}", error)
                self._needs.tell(pod, "NetworksRefused", why, True)
