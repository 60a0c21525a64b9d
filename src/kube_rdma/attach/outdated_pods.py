"""Asks for the end of pods that hold the device nodes of another device, and tells them why.

Beside attach/attach, which meets them: each of their ADDs is refused.

    ADD refused ─ attach/rules/restarts ─► Event, label and annotation ─► the controller's eviction
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from kube_base.errors import KubeError
from kube_rdma.attach.rules.restarts import RefusedAdd, RefusedKey, is_remade, refused
from kube_rdma.model.attach.restart import RESTART
from kube_rdma.model.errors import Outdated
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pod import PodState

EVICTED = (
    "kube-rdma's controller evicts the pod, and its owner makes another; without a controller, "
    "delete it."
)
ALONE = "No controller owns the pod: delete it and create it again."

log = structlog.get_logger()


class OutdatedPods:
    """Those of one node. `restart` asks for the end of a pod, or (None) no more, and raises
    KubeError; `tell` says something about a pod: a word for it, a sentence, whether it is a
    warning; `clock` is monotonic.
    """

    def __init__(
        self,
        restart: Callable[[PodState, str | None], Awaitable[None]],
        tell: Callable[[PodState, str, str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._restart = restart
        self._tell = tell
        self._clock = clock
        self._refusals: Mapping[RefusedKey, RefusedAdd] = {}

    async def refused(
        self, pod: PodState, interface: InterfaceName | None, error: Outdated
    ) -> None:
        """Take note of one more refused ADD; ask and tell when it is time to."""
        if pod.deleting:
            return
        self._refusals, asks = refused(self._refusals, (pod.uid, interface), self._clock())
        if not asks:
            return
        why = f"{str(error).rstrip('.')}."
        remade = is_remade(pod)
        if remade:
            await self._ask(pod, why)
        self._tell(pod, "DeviceNodesOutdated", f"{why} {EVICTED if remade else ALONE}", True)

    async def attached(self, pod: PodState, interface: InterfaceName | None) -> None:
        """Forget what was refused before; with the last of it a request is taken back."""
        key = (pod.uid, interface)
        self._refusals = {each: one for each, one in self._refusals.items() if each != key}
        others = any(uid == pod.uid for uid, _ in self._refusals)
        if RESTART in dict(pod.labels) and not others:
            await self._ask(pod, None)

    async def _ask(self, pod: PodState, why: str | None) -> None:
        """What cannot be written now the next refusal writes; what stays ends by its age."""
        try:
            await self._restart(pod, why)
        except KubeError as error:
            name = f"{pod.namespace}/{pod.name}"
            log.warning("restart request not written", pod=name, why=str(error))
