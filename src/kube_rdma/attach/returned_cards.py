"""Looks at the pods that stand on a card which came back, and tells those that lost an interface.

    a card is good again ─► the links of each pod on it ─► Event: what is gone, delete the pod
    (device_plugin/loop)

Beside repair.py, which gives networks to a sandbox that never had them. A macvlan goes with its
card, and so does a function that was moved into a pod: the card comes back, the interface does not,
and the pod is Ready without it. Nobody else tells its owner, for the last news is that the card can
be used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager

import structlog

from kube_base.errors import KubeError
from kube_rdma.attach.repair import open_netns
from kube_rdma.model.attach.attachment import Attachment, AttachmentKey, Plan
from kube_rdma.model.card import CardId
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.pools.rules.health.absence import attached_cards

log = structlog.get_logger()


class ReturnedCards:
    """Those of one node; one task runs `run`.

    `attachments` are the journal's now. `lost` says which plans of an attachment have no interface
    in the namespace, and raises KubeError; `tell` says a sentence about a pod under a word for it.
    """

    def __init__(
        self,
        attachments: Callable[[], Mapping[AttachmentKey, Attachment]],
        lost: Callable[[AttachmentKey, int], Awaitable[tuple[Plan, ...]]],
        tell: Callable[[PodName, str, str], None],
        opened: Callable[[str], AbstractContextManager[int]] = open_netns,
    ) -> None:
        self._attachments = attachments
        self._lost = lost
        self._tell = tell
        self._opened = opened
        self._returned: set[CardId] = set()
        self._news = asyncio.Event()

    def returned(self, card: CardId) -> None:
        """A card that was bad or gone is good again."""
        self._returned.add(card)
        self._news.set()

    async def run(self) -> None:
        """Look after each return, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            cards, self._returned = frozenset(self._returned), set()
            for key, attachment in tuple(self._attachments().items()):
                if attachment.complete and not cards.isdisjoint(attached_cards((attachment,))):
                    await self._look(key, attachment)

    async def _look(self, key: AttachmentKey, attachment: Attachment) -> None:
        sandbox = attachment.sandbox
        try:
            with self._opened(sandbox.netns_path) as namespace:
                lost = await self._lost(key, namespace)
        except KubeError as error:  # it has ended meanwhile, or its next CHECK tells the same
            log.info("attachment not checked", pod=str(sandbox.pod), why=str(error))
            return
        if lost:
            names = " and ".join(f"{plan.interface} ({plan.network})" for plan in lost)
            note = f"{names} went with the card, which came back without: delete the pod."
            self._tell(sandbox.pod, "NetworksLost", note)
