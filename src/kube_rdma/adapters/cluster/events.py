"""Writes Events of Kubernetes (events.k8s.io/v1) about objects of the API, where people look first.

`tell` returns at once, whatever the API server does. Sentences wait in a bounded table, repeats of
one share a place in it, and `run` writes them. At the API server repeats are one Event with a
series, as the API wants them. Lost Events are counted in the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from msgspec import Struct

from kube_base.backoff import full_jitter, has_happened
from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.kinds import ObjectKind, Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.model.kubernetes import micro_moment

CAPACITY = 256  # different sentences that wait, or were written and are remembered for repeats
_REPEAT = timedelta(seconds=30)  # repeats are written no more often
_SERIES = timedelta(minutes=6)  # after so much silence a repeat is news (client-go: the same)
_NOTE = 1024  # bytes, by the API's validation
_CONTROLLER = "kube-rdma.io/agent"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class About(Frozen):
    """A reference to the object that an Event is about."""

    kind: str
    name: str
    namespace: str = ""  # empty: an object of the cluster
    uid: str = ""  # empty for a pod known by its name: it is read before the Event is written
    api_version: str = "v1"

    @classmethod
    def of(cls, kind: ObjectKind[Any, Any], stored: Stored[Any, Any]) -> About:
        """Return the reference to a stored object, for Events about it."""
        return cls(kind.kind, stored.name, stored.namespace, stored.uid, kind.api_version)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Sentence(Frozen):
    about: About
    reason: str
    note: str
    warning: bool


class _SentenceCount(Struct):
    """The number of times that a sentence was passed to `tell`, and of those that are written."""

    name: str
    first: datetime
    last: datetime
    count: int = 1
    written: int = 0  # of `count`; 0 while there is no Event yet
    due: datetime = _LONG_AGO


class Events:
    """A recorder and writer of one program's Kubernetes Events. `now` and `pause` are for tests."""

    def __init__(
        self,
        cluster: Cluster,
        instance: str,  # the name of the node or of the pod
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause: Callable[[int], float] = full_jitter,
    ) -> None:
        self._cluster = cluster
        self._pods = Pods(cluster)
        self._instance = instance
        self._now = now
        self._pause = pause
        self._lines: dict[_Sentence, _SentenceCount] = {}  # least recently recorded first
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._dropped = 0
        self._why = ""  # of the last drop
        self._log = structlog.get_logger()

    @property
    def dropped(self) -> int:
        """Return how many Events were lost so far."""
        return self._dropped

    def tell(self, about: About, reason: str, note: str, *, warning: bool = False) -> None:
        """Record an Event with the text `note` about an object; never block or fail.

        `reason` is one word in CamelCase.
        """
        sentence = _Sentence(about, reason, note.encode()[:_NOTE].decode(errors="ignore"), warning)
        now = self._now()
        line = self._lines.pop(sentence, None)
        if line and line.written == line.count and now - line.last > _SERIES:
            line = None
        if line is None:
            if not self._make_room(about.namespace):
                self._drop(1, "too many wait")
                return
            line = _SentenceCount(_name(about), now, now)
        else:
            line.count += 1
            line.last = now
        self._lines[sentence] = line
        self._idle.clear()
        self._wake.set()

    def failed(self, about: About, why: str) -> bool:
        """Record an Event that kube-rdma cannot handle an object; return False."""
        self.tell(about, "NotHandled", why, warning=True)
        return False

    async def run(self) -> None:
        """Write Events until cancelled, however long the API server is away."""
        failures = 0
        while True:
            self._wake.clear()
            waiting = (pair for pair in self._lines.items() if pair[1].count > pair[1].written)
            pending = min(waiting, key=lambda pair: pair[1].due, default=None)
            if not pending:
                self._idle.set()
            if not pending or pending[1].due > self._now():
                seconds = (pending[1].due - self._now()).total_seconds() if pending else None
                await has_happened(self._wake, seconds)
                continue
            try:
                await self._write(*pending)
                failures = 0
            except Unavailable:
                await asyncio.sleep(self._pause(failures))
                failures += 1
            except Refused as error:
                line = pending[1]
                self._drop(line.count - line.written, str(error))
                line.written = line.count

    async def settle(self, seconds: float = 2.0) -> bool:
        """Wait until all sentences are written or refused; return whether `seconds` were enough.

        A program that ends calls it; `run` has to run meanwhile.
        """
        for line in self._lines.values():
            line.due = _LONG_AGO
        self._wake.set()
        await has_happened(self._idle, seconds)
        return self._idle.is_set()

    async def _write(self, sentence: _Sentence, line: _SentenceCount) -> None:
        count = line.count
        try:
            if not line.written:
                sentence = replace(sentence, about=await self._with_uid(sentence.about))
            await self._cluster.write(self._request(sentence, line))
        except Conflict as conflict:
            if conflict.lost is Lost.EXISTS:  # an answer was lost: the Event is there
                line.written = 1
                return
            if conflict.lost is not Lost.GONE:
                raise
            line.name, line.written = _name(sentence.about), 0  # Events live for an hour
            return
        line.written = count
        line.due = self._now() + _REPEAT

    async def _with_uid(self, about: About) -> About:
        """Return the reference, with a pod's uid if that can be read, for `kubectl describe`."""
        if about.uid or about.kind != POD.kind:
            return about
        with suppress(Refused):  # without the right to read pods the Event is written all the same
            if pod := await self._pods.read(about.namespace, about.name):
                return replace(about, uid=pod.uid)
        return about

    def _request(self, sentence: _Sentence, line: _SentenceCount) -> wire.ApiRequest:
        series = {"count": line.count, "lastObservedTime": micro_moment(line.last)}
        if line.written:
            body = msgspec.json.encode({"series": series})
            verb, name, content_type = "patch", line.name, wire.MERGE
        else:
            event = _event(sentence, line, self._instance)
            body = msgspec.json.encode(event | ({"series": series} if line.count > 1 else {}))
            verb, name, content_type = "create", "", wire.JSON
        return wire.ApiRequest(
            verb,
            "events.k8s.io",
            "v1",
            "events",
            _namespace(sentence.about),
            name,
            query=self._cluster.managed,
            body=body,
            content_type=content_type,
        )

    def _make_room(self, namespace: str) -> bool:
        """Return whether there is room for one more sentence, after dropping an old one if needed.

        If all still wait, the namespace with the most waiting sentences loses its newest one. There
        is no room if `namespace` would then have as many waiting itself.
        """
        if len(self._lines) < CAPACITY:
            return True
        done = (sentence for sentence, line in self._lines.items() if line.written == line.count)
        oldest = next(done, None)
        if oldest is None:
            waiting = Counter(sentence.about.namespace for sentence in self._lines)
            ((greedy, most),) = waiting.most_common(1)
            if waiting[namespace] + 1 >= most:
                return False
            of_greedy = (each for each in reversed(self._lines) if each.about.namespace == greedy)
            oldest = next(of_greedy)
            self._drop(1, "too many wait")
        del self._lines[oldest]
        return True

    def _drop(self, count: int, why: str) -> None:
        before, self._dropped = self._dropped, self._dropped + count
        # When the number of digits in binary grows: an outage fills no log.
        if self._dropped.bit_length() > before.bit_length() or why != self._why:
            self._why = why
            self._log.warning("events dropped", dropped=self._dropped, why=why)


def _name(about: About) -> str:
    return f"{about.name[:200]}.{uuid4().hex[:16]}"


def _namespace(about: About) -> str:
    return about.namespace or "default"  # where the API wants Events about the cluster's objects


def _event(sentence: _Sentence, line: _SentenceCount, instance: str) -> dict[str, object]:
    about = sentence.about
    regarding = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "namespace": about.namespace,
        "uid": about.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": line.name, "namespace": _namespace(about)},
        "eventTime": micro_moment(line.first),
        "reportingController": _CONTROLLER,
        "reportingInstance": instance[:128],
        "action": sentence.reason,
        "reason": sentence.reason,
        "note": sentence.note,
        "type": "Warning" if sentence.warning else "Normal",
        "regarding": {key: value for key, value in regarding.items() if value},
    }
