"""Runs work while this copy of a program leads, so that one copy does it at a time.

    ElectionLease ─ controller/leadership ─► leads ─► work ─► renewed every four seconds
                                                  └─► cancelled, and ended, when that fails too long

The work of a copy that lost the lead is cancelled before another copy may take the lead. Then the
copy stands for election again. A copy that is asked to end gives the Lease back, so that nobody
waits for it.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

import msgspec
import structlog

from kube_base.errors import KubeError
from kube_base.foreign_json import decoded
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import ObjectCodec, Stored, Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import lease_kind
from kube_rdma.model.election import ElectionRecord, ElectionTiming
from kube_rdma.model.kubernetes import micro_moment

FAREWELL_SECONDS = 2.0  # for the last write of a copy that ends

log = structlog.get_logger()

# The Lease of an election at the API server: read, and written only if nobody wrote it since.


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of coordination.k8s.io/v1 LeaseSpec that an election uses."""

    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, msgspec.Meta(lt=1 << 31)] | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


def _decode(data: bytes) -> ElectionRecord:
    spec = decoded(data, _Spec)
    return ElectionRecord(
        spec.holder_identity or "",
        float(spec.lease_duration_seconds or 0),
        spec.acquire_time or "",
        spec.renew_time or "",
        spec.lease_transitions or 0,
    )


def _encode(record: ElectionRecord) -> bytes:
    return msgspec.json.encode(
        _Spec(
            record.holder,
            math.ceil(record.duration),
            record.acquired or None,  # the API server takes no empty time
            record.renewed or None,
            record.transitions,
        )
    )


ELECTION = lease_kind(ObjectCodec(_decode, _encode))


class ElectionLease:
    """The Lease object of an election; `write` changes only the state that `read` returned."""

    def __init__(self, cluster: Cluster, name: str, namespace: str) -> None:
        self.name, self.namespace = name, namespace
        self._cluster = cluster
        self._stored: Stored[ElectionRecord, None] | None = None

    async def read(self) -> ElectionRecord | None:
        """Return the election's record in the Lease; None without the object.

        Raise KubeError if it cannot be read.
        """
        self._stored = await self._cluster.get(ELECTION, self.name, self.namespace)
        return self._stored.spec if self._stored else None

    async def write(self, record: ElectionRecord) -> bool:
        """Write the election's record; return False if another copy wrote first.

        Raise KubeError if it cannot be written for another reason.
        """
        try:
            if self._stored is None:
                wanted = Wanted(self.name, self.namespace, record)
                self._stored = await self._cluster.create(ELECTION, wanted)
            else:
                changed = replace(self._stored, spec=record)
                self._stored = await self._cluster.replace(ELECTION, changed)
        except Conflict:
            return False
        return True


# The election of one leader among several copies of a program, by a Lease that each of them reads.


class ObservedLease(Frozen):
    """A Lease's content, and when this copy first saw that content, by its own clock."""

    record: ElectionRecord | None
    since: float


def observed(
    before: ObservedLease | None, record: ElectionRecord | None, now: float
) -> ObservedLease:
    """Return the Lease with the time when its content was first seen."""
    unchanged = before is not None and before.record == record
    return before if before is not None and unchanged else ObservedLease(record, now)


def may_take(seen: ObservedLease, identity: str, now: float) -> bool:
    """Return whether this copy may write the Lease: its own, a free one, or one not renewed."""
    record = seen.record
    if record is None or record.holder in ("", identity):
        return True
    return now >= seen.since + record.duration


def leader_record(
    seen: ObservedLease, identity: str, timing: ElectionTiming, clock: str
) -> ElectionRecord:
    """Return the Lease record to write at `clock` (RFC 3339): a renewal, or a new leadership."""
    record = seen.record
    if record is not None and record.holder == identity:
        return ElectionRecord(identity, timing.duration, record.acquired, clock, record.transitions)
    transitions = 0 if record is None else record.transitions + 1
    return ElectionRecord(identity, timing.duration, clock, clock, transitions)


def released(record: ElectionRecord, clock: str) -> ElectionRecord:
    """Return the Lease record of a leader that resigns, so that no other has to wait."""
    return ElectionRecord("", 1.0, clock, clock, record.transitions)


def own_identity() -> str:
    """Return a random name of this process, for the Lease."""
    return f"{socket.gethostname()}_{uuid4()}"


class Leadership:
    """The part of this copy in the election of a leader.

    `clock` never goes back; `jitter` spreads the tries of several copies.
    """

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
        self._unread = "The Lease was not read yet."
        self._notices = Notices()

    @property
    def leads(self) -> bool:
        """Return whether this copy of the controller leads now."""
        return self._working

    def unread(self) -> tuple[str, ...]:
        """Return why this copy cannot take part in the election, as a sentence; or none."""
        return (self._unread,) if self._unread else ()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` whenever this copy leads, until cancelled; raise what `work` raises."""
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
        """Try to get the Lease; return whether this copy has it. Log a failure once."""
        try:
            record = await self._lease.read()
            self._unread, now = "", self._clock()
            self._seen = observed(self._seen, record, now)
            if not may_take(self._seen, self._identity, now):
                return False
            clock = micro_moment(datetime.now(UTC))
            mine = leader_record(self._seen, self._identity, self._timing, clock)
            if not await self._lease.write(mine):
                return False
        except KubeError as error:
            name, why = self._lease.name, str(error)
            self._unread = why
            self._notices.warn(log, "lease not written", "lease", why, lease=name)
            return False
        self._notices.over("lease")
        self._seen = observed(self._seen, mine, now)
        self._until = now + self._timing.deadline
        return True

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` and renew the Lease until renewals fail too long or another copy leads."""
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
        """Give the Lease up, if this copy has it; stop trying after FAREWELL_SECONDS."""
        if not self._is_mine:
            return
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                record = await self._lease.read()
                if record is not None and record.holder == self._identity:
                    clock = micro_moment(datetime.now(UTC))
                    await self._lease.write(released(record, clock))
