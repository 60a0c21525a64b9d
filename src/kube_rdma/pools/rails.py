"""Keeps the rail numbers of the node's cards while the agent restarts or a card is gone.

agent/loop passes it the cards of every survey, and pools/rules/rails decides the numbers. The
number of a card decides which addresses its pod gets from a pool that is divided by rail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.lib.records import Records, in_the_log
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools import RailRecord
from kube_rdma.pools.rules.rails import numbers, recorded, without_cards

_RECORD = "rails"

log = structlog.get_logger()


class NodeRails:
    """The rail numbers of one node's cards, recorded on its disk where there is a journal."""

    def __init__(
        self,
        journal: Callable[[], Journal[RailRecord]] | None = None,
        tell: Callable[[str], None] = in_the_log,
        boot: str = "",
    ) -> None:
        self._open = journal  # raises KubeError; None: numbers are forgotten with the process
        self._tell = tell  # called with a sentence for a record that cannot be read
        self._boot = boot  # identifies this start of the node
        self._records: Records[RailRecord] | None = None
        self._record = RailRecord()
        self._numbers: Mapping[CardId, int] | None = None
        self._notices = Notices()
        self.without_cards: str | None = None
        """A sentence about rails whose cards the node does not have; None: it has all, or the
        configuration lists the cards."""

    def number(self, card: CardId) -> int | None:
        """Return the rail of a card, None without one; raise Unavailable until rails are known."""
        if self._numbers is None:
            problem = "The rails of this node are not known yet: the agent has just started."
            raise Unavailable(problem)
        return self._numbers.get(card)

    @property
    def numbers(self) -> Mapping[CardId, int]:
        """Return the rails of the node's cards; none until they are known."""
        return self._numbers or {}

    async def see(
        self, offered: Sequence[Card], node: Sequence[Card], listed: Sequence[str], *, idle: bool
    ) -> None:
        """Number the cards by `recorded` of pools/rules/rails.

        A changed record is written to the disk before the numbers are used; a failure is only
        logged.
        """
        if opened := self._open:
            self._open = None
            try:
                self._records = await asyncio.to_thread(lambda: Records(opened(), self._tell))
                self._record = self._records.get(_RECORD) or RailRecord()
            except Unavailable as error:
                log.warning("rails not saved", why=str(error))
        record = recorded(self._record, offered, node, listed, idle=idle, boot=self._boot)
        if record != self._record and self._records:
            try:
                await self._records.put(_RECORD, record)
                self._notices.over(_RECORD)
            except Unavailable as error:
                self._notices.warn(log, "rails not written", _RECORD, str(error))
        self._record = record
        self.without_cards = None if listed else without_cards(record, node)
        rails = numbers(record, node, listed)
        if rails != self._numbers:
            shown = ",".join(f"{card}={rail}" for card, rail in sorted(rails.items()))
            log.info("rails numbered", rails=shown, listed=bool(listed))
        self._numbers = rails
