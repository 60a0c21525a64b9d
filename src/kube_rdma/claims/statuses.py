"""Writes what became of the devices of claims into their status, beside all that matters.

    prepare, CNI ADD, CNI DEL ─► claims/rules/status ─► newest wish of each claim ─► API server

People and controllers read it; no pod waits for it. So what is told here is kept, the newest of
each claim alone, and written by a loop of its own: what cannot be written is told once, and tried
again where that may help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Unavailable
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.model.claims.prepared import ClaimName
from kube_rdma.model.claims.status import DeviceStatus

Statuses = tuple[DeviceStatus, ...]
WriteStatuses = Callable[[ClaimName, Sequence[DeviceStatus]], Awaitable[None]]

log = structlog.get_logger()


class ClaimStatuses:
    """One per agent; `write` raises KubeError, Conflict for a claim that is gone."""

    def __init__(self, write: WriteStatuses) -> None:
        self._write = write
        self._wanted: dict[ClaimName, Statuses] = {}
        self._written: dict[ClaimName, Statuses] = {}
        self._news = asyncio.Event()
        self._notices = Notices()

    def tell(self, claim: ClaimName, statuses: Statuses) -> None:
        """From now on this is what the claim should say; returns at once."""
        self._wanted[claim] = statuses
        self._news.set()

    def forget(self, claim: ClaimName) -> None:
        """The claim was given back: what it says last stays."""
        self._wanted.pop(claim, None)
        self._written.pop(claim, None)

    async def run(self) -> None:
        """Write, until cancelled."""
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            await self.write()
            if self._wanted:
                await asyncio.sleep(full_jitter(failures))
                failures += 1
                self._news.set()
            else:
                failures = 0

    async def write(self) -> None:
        """Write each once; what the API server did not answer stays wanted."""
        for claim, statuses in tuple(self._wanted.items()):
            if self._written.get(claim) != statuses and not await self._try(claim, statuses):
                continue
            if self._wanted.get(claim) == statuses:  # nobody has told anything newer
                del self._wanted[claim]

    async def _try(self, claim: ClaimName, statuses: Statuses) -> bool:
        """Whether there is nothing more to do about it."""
        try:
            await self._write(claim, statuses)
        except Conflict:
            return True  # gone, or another one by now
        except KubeError as error:
            # One sentence stands for all claims: a right that is missing is missing for each.
            for _ in self._notices.news("status", type(error).__name__):
                log.warning("status of claim not written", claim=str(claim), why=str(error))
            return not isinstance(error, Unavailable)
        except Exception as error:  # noqa: BLE001  of one claim
            object_failed("ResourceClaim", claim, error)
            return True
        self._written[claim] = statuses
        self._notices.over("status")
        return True
