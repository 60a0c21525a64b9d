"""Work that one copy of a program does at a time: it runs while this copy leads.

    ElectionLease ─ controller/rules ─► leads ─► work ─► renewed every four seconds
                                                  └─► cancelled, and ended, when that fails too long

The work of a copy that lost the lead ends before another copy may take it; afterwards it stands for
election again. A copy that is told to end gives the Lease back, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_rdma.controller.lease import ElectionLease
from kube_rdma.controller.rules import ObservedLease, claim, may_take, observed, released
from kube_rdma.model.election import ElectionTiming

# For the last write of a copy that ends.
FAREWELL_SECONDS = 2.0

log = structlog.get_logger()


def own_identity() -> str:
    """Return a name that no other copy has, nor this one after a restart."""
    return f"{socket.gethostname()}_{uuid4()}"


class Leadership:
    """This copy's part in an election. `clock` never goes back; `jitter` is for tests."""

    def __init__(
        self,
        lease: ElectionLease,
        identity: str,
        timing: ElectionTiming | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float], float] = lambda seconds: seconds * random.uniform(0.9, 1.1),  # noqa: S311
    ) -> None:
        self._lease, self._identity = lease, identity
        self._timing = timing or ElectionTiming()
        self._clock, self._jitter = clock, jitter
        self._seen: ObservedLease | None = None
        self._until = clock()  # this copy leads until then, if it leads
        self._working = False
        self._notices = Notices()

    @property
    def leads(self) -> bool:
        """Whether this copy leads now, so that its work is done."""
        return self._working

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `work` whenever this copy leads, until cancelled; what the work raises ends it."""
        try:
            while True:
                while not await self._try():  # noqa: ASYNC110  nobody tells of the end of a time
                    await asyncio.sleep(self._jitter(self._timing.retry))
                log.info("leading", lease=self._lease.name, identity=self._identity)
                self._working = True
                try:
                    await self._lead(work)
                finally:
                    self._working = False
                log.warning("lead lost", lease=self._lease.name, identity=self._identity)
        finally:
            await self._release()

    async def _try(self) -> bool:
        """Whether this copy has the Lease after one more look; what fails is logged once."""
        try:
            record = await self._lease.read()
            now = self._clock()
            self._seen = observed(self._seen, record, now)
            if not may_take(self._seen, self._identity, now):
                return False
            mine = claim(self._seen, self._identity, self._timing, _moment())
            if not await self._lease.write(mine):
                return False
        except KubeError as error:
            self._notices.warn(
                log, "lease not written", "lease", str(error), lease=self._lease.name
            )
            return False
        self._notices.over("lease")
        self._seen = observed(self._seen, mine, now)
        self._until = now + self._timing.deadline
        return True

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work and renew until a renewal has failed for too long, or another copy has the Lease."""
        working = asyncio.ensure_future(work())
        try:
            while (left := self._until - self._clock()) > 0 and self._is_mine:
                await asyncio.wait((working,), timeout=min(left, self._timing.retry))
                if working.done():
                    return await working
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._until - self._clock())):
                        await self._try()
        finally:
            working.cancel()
            await asyncio.wait((working,))
        return None

    @property
    def _is_mine(self) -> bool:
        record = self._seen.record if self._seen else None
        return record is not None and record.holder == self._identity

    async def _release(self) -> None:
        """Give the Lease back, if this copy has it and that goes quickly."""
        if not self._is_mine:
            return
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                record = await self._lease.read()
                if record is not None and record.holder == self._identity:
                    await self._lease.write(released(record, _moment()))


def _moment() -> str:
    """Now, as the API server writes a MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
