"""Completes what the kubelet tells, after its start, by what it wrote down before.

Behind pools/kubelet_view; pools/rules/untold decides. The API server is
asked only while the record has pods that the kubelet does not name: after a kubelet's start, and
once for a pod that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.pod import PodState
from kube_rdma.model.pools.holding import Holding, NodeHoldings, RecordedGrant
from kube_rdma.pools.rules.untold import completed, running, untold

log = structlog.get_logger()


class KubeletRecord:
    """`read` reads the record, blocks and raises Unavailable; `pods` are those of this node."""

    def __init__(
        self,
        read: Callable[[], tuple[RecordedGrant, ...]],
        pods: Callable[[], Awaitable[Sequence[PodState]]],
    ) -> None:
        self._read = read
        self._pods = pods
        self._named: dict[str, PodName] = {}  # of the pods in the record, by uid
        self._ended: frozenset[str] = frozenset()  # by uid: no pod comes back
        self._notices = Notices()

    async def read(self) -> tuple[RecordedGrant, ...]:
        """What was given, to pods that have ended too; nothing while the record cannot be read."""
        try:
            recorded = await asyncio.to_thread(self._read)
        except Unavailable as error:
            self._notices.warn(log, "kubelet's record not read", "record", str(error))
            return ()
        self._notices.over("record")
        uids = {grant.uid for grant in recorded}
        self._named = {uid: name for uid, name in self._named.items() if uid in uids}
        self._ended &= uids
        return recorded

    async def complete(
        self, recorded: Sequence[RecordedGrant], answer: NodeHoldings
    ) -> tuple[Holding, ...]:
        """What the kubelet tells, and what it told before its start of pods that still run.

        The record has to be older than the answer. Raise KubeError when nobody tells who runs.
        """
        if not answer.pods:  # it has just started: the mirror of a static pod may have come late
            self._ended = frozenset()
        lasting = [grant for grant in recorded if grant.uid not in self._ended]
        lacking = untold(lasting, answer, self._named)
        if not lacking:
            self._notices.over("untold")
            return answer.shares
        named = running(await self._pods())
        uids = {grant.uid for grant in lacking}
        self._named |= {uid: name for uid, name in named.items() if uid in uids}
        self._ended |= uids - named.keys()
        whole = completed(answer, lacking, named)
        pods = sorted({f"{one.namespace}/{one.pod}" for one in whole[len(answer.shares) :]})
        for pod in self._notices.news("untold", *pods):
            log.info("pod not told by the kubelet", pod=pod)
        return whole
