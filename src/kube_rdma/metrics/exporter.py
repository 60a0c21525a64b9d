"""Answers Prometheus: gathers the agent's facts, has the counters read, and writes the text.

    loop ─ looked ─► Exporter ◄─ GET ─ adapters/http_server: anybody; names of pods by option
                        ▲───── exec ── adapters/metrics/local: `kube-rdma top`, with them
    kubelet: who holds what ─┐
    kernel: counters ────────┴ metrics/rules ─► series ─► adapters/metrics/exposition

Counters are read anew for a scrape, so a series ends with its device. Whoever asks within a second
of another gets the same answer, so no client can keep a core busy. A thread of its own reads: a
card that does not answer holds up the next scrape and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, field
from kube_rdma import __version__
from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles, read_inside
from kube_rdma.adapters.metrics import local
from kube_rdma.adapters.metrics.process import read_process
from kube_rdma.metrics.rules import families, series
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach.attachment import Attachment, Sandbox
from kube_rdma.model.card import CardId
from kube_rdma.model.holdings import Holding
from kube_rdma.model.metrics import (
    CounterReadings,
    Durations,
    MetricNames,
    MetricSeries,
    PodPlaceCounters,
)
from kube_rdma.model.pools import PodDeviceUse, Pool
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rules.absence import Assessment
from kube_rdma.pools.rules.claimed_cards import ClaimedCard

if TYPE_CHECKING:
    from kube_rdma.adapters.metrics.exposition import KeptExposition

FRESH_SECONDS = 1.0  # for which an answer is given again
READING_SECONDS = 30.0  # a scrape of Prometheus gives up after 10, if nobody said otherwise
SYSFS = Path("/sys")

ReadInside = Callable[[Iterable[Sandbox]], tuple[tuple[PodPlaceCounters, ...], int]]
log = structlog.get_logger()


class MetricsSite(Frozen):
    """The address at which an agent serves its metrics, and the series that it has there."""

    address: tuple[str | None, int] | None  # host (None: every address) and port; None: nowhere
    names: tuple[MetricNames, ...] = (MetricNames.NODE_EXPORTER,)
    pods: bool = False  # also the series of pods
    socket: Path = local.SOCKET


class MetricsSources(Frozen):
    """The sources that the agent's metrics are read from."""

    kubelet: KubeletView
    attachments: Callable[[], Iterable[Attachment]] = tuple  # of the node's pods
    uses: Callable[[], Iterable[PodDeviceUse]] = tuple  # of RDMA devices by pods; in a thread
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    sysfs: Path = SYSFS
    read_inside: ReadInside = read_inside
    clock: Callable[[], float] = time.monotonic


class _Offered(Frozen):
    """The pools that the agent offers, with resources it does not offer any more."""

    pools: Mapping[str, Pool] = field(default_factory=dict)
    withdrawn: tuple[str, ...] = ()
    mode: NamespaceMode = NamespaceMode.UNKNOWN


class Exporter:
    """The collector of one agent's metrics; its `parts` are the tasks that serve them."""

    def __init__(self, site: MetricsSite, sources: MetricsSources) -> None:
        self._site, self._sources = site, sources
        self._files = CounterFiles(sources.sysfs)
        self._lines: dict[bool, KeptExposition] = {}
        self._look = _Offered()
        self._health: series.HealthCounts = {}
        self._turn = asyncio.Lock()
        # The last answers with pods and without, and when each was read.
        self._kept: dict[bool, tuple[float, bytes]] = {}
        self._thread = ThreadPoolExecutor(1, "metrics")
        self.port = 0  # where it answers, once it does
        self.problem = ""  # why it does not answer, as when another program has the port
        self.changed: Callable[[], None] = lambda: None  # called when the problem is another one

    @property
    def parts(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the tasks that serve metrics beside the agent's loop, by name."""
        for_top = {"metrics of top": partial(local.serve, self._site.socket, self._whole)}
        return for_top | ({"metrics": self.run} if self._site.address else {})

    def looked(
        self, pools: Mapping[str, Pool], withdrawn: Sequence[str], mode: NamespaceMode
    ) -> None:
        """Remember what the agent offers now, and the withdrawn resources that pods may hold."""
        self._look = _Offered(dict(pools), tuple(withdrawn), mode)

    def judged(self, assessment: Assessment, before: Collection[CardId]) -> None:
        """Count changes of the cards' health; `before` are the cards that were known before."""
        self._health = series.health_counts(
            self._health, assessment.changes, before, assessment.health
        )

    async def run(self) -> None:
        """Serve metrics over HTTP until cancelled; raise Refused if the address cannot be used."""
        from kube_rdma.adapters.http_server import HttpServer
        from kube_rdma.adapters.metrics.exposition import CONTENT_TYPE

        assert self._site.address
        host, port = self._site.address
        server = HttpServer({"/metrics": self.answer}, "--metrics-address", CONTENT_TYPE)
        before = self.problem
        try:
            await server.listen(host, port)
            self.problem = ""
        except Refused as error:
            self.problem = error.problem
            raise
        finally:
            if self.problem != before:
                self.changed()
        self.port = server.port
        log.info("metrics served", address=host or "*", port=self.port, pods=self._site.pods)
        try:
            await asyncio.Event().wait()
        finally:
            await server.close()

    async def answer(self) -> bytes:
        """Return the text for a scrape over the network.

        Raise Unavailable if the counters are not read within READING_SECONDS.
        """
        return (await self._scraped(pods=self._site.pods))[1]

    async def _whole(self) -> tuple[float, bytes]:
        return await self._scraped(pods=True)

    async def _scraped(self, *, pods: bool) -> tuple[float, bytes]:
        """Return when the counters were read, and the text of the metrics."""
        try:
            async with asyncio.timeout(READING_SECONDS), self._turn:
                kept = self._kept.get(pods)
                if kept is None or self._sources.clock() - kept[0] >= FRESH_SECONDS:
                    held = await self._sources.kubelet.all_held()
                    cards = self._sources.kubelet.claimed_cards(held) if held else ()
                    holdings = held.shares if held else None
                    look, attachments = self._look, tuple(self._sources.attachments())
                    scrape = _Scrape(look, holdings, attachments, self._site.names, cards)
                    loop = asyncio.get_running_loop()
                    read = partial(self._text, scrape, pods=pods)
                    kept = self._kept[pods] = await loop.run_in_executor(self._thread, read)
                return kept
        except TimeoutError:
            raise Unavailable(
                f"the counters were not read within {READING_SECONDS:.0f} s: does a card hang?"
            ) from None

    def _text(self, scrape: _Scrape, *, pods: bool) -> tuple[float, bytes]:
        """Read all counters, in a thread; return their time and the text of the metrics."""
        from kube_rdma.adapters.metrics.exposition import KeptExposition

        begin = time.perf_counter()
        node = self._files.read()
        sandboxes = series.away(scrape.attachments, scrape.look.mode)
        inside, failures = self._sources.read_inside(sandboxes)
        when = self._sources.clock()
        read = list(scrape.values(series.SeenDevices(node, inside), node))
        values: list[MetricSeries | Durations] = [*read, *series.health_series(self._health)]
        values += series.limit_series(self._sources.uses())
        values += self._sources.stopwatch.durations
        unread = node.unread + sum(place.readings.unread for place in inside)
        values += _own(scrape, unread, failures, time.perf_counter() - begin)
        lines = self._lines.setdefault(pods, KeptExposition())
        return when, lines.text(values if pods else series.without_pods(values))


class _Scrape(Frozen):
    """The agent's facts at the beginning of a scrape."""

    look: _Offered
    holdings: tuple[Holding, ...] | None
    attachments: tuple[Attachment, ...]
    names: tuple[MetricNames, ...]
    cards: tuple[ClaimedCard, ...] = ()

    def values(self, devices: series.SeenDevices, node: CounterReadings) -> Iterator[MetricSeries]:
        """Yield the series of devices, resources, pods and claims; the exporter adds all others."""
        look, holdings = self.look, self.holdings
        yield from series.device_series(node.devices, self.names)
        yield from series.resource_series(look.pools, holdings)
        if holdings is not None:
            shares = series.held_devices(holdings, look.pools, self.attachments, look.mode)
            held = series.with_claims(shares, self.cards, node.devices)
            resources = (*look.pools, *look.withdrawn)
            yield from series.pod_series(holdings, resources, held, devices)


def _own(scrape: _Scrape, unread: int, failures: int, seconds: float) -> Iterator[MetricSeries]:
    """Yield the series about the agent itself."""
    yield MetricSeries(families.BUILD, (__version__,), 1)
    yield MetricSeries(families.SCRAPE_SECONDS, (), seconds)
    yield MetricSeries(families.UNREAD, (), unread)
    yield MetricSeries(families.UNENTERED, (), failures)
    yield MetricSeries(families.HOLDERS_KNOWN, (), scrape.holdings is not None)
    for part, count in sorted(bulkhead.failures.items()):
        yield MetricSeries(families.PART_FAILURES, (part,), count)
    for kind, count in sorted(bulkhead.object_failures.items()):
        yield MetricSeries(families.OBJECT_FAILURES, (kind,), count)
    figures = read_process()
    if figures is None:
        return
    yield MetricSeries(families.CPU, (), figures.cpu)
    yield MetricSeries(families.MEMORY, (), figures.resident)
    yield MetricSeries(families.VIRTUAL, (), figures.virtual)
    yield MetricSeries(families.START, (), figures.started)
    yield MetricSeries(families.OPEN_FILES, (), figures.open_files)
    yield MetricSeries(families.MOST_FILES, (), figures.most_files)
