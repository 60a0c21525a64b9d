"""The proof that pods reach each other by RDMA, as values: what is run, with whom, and the figures.

`kube-rdma verify pods`, `verify nodes` and BandwidthChecks run perftest from pod to pod. The rules
of verify make rounds, command lines and verdicts out of these, verify/pairs runs them, verify/views
shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from kube_base.frozen import Frozen
from kube_rdma.model.kubernetes import Condition, Sentence, StatusPart, Word
from kube_rdma.model.measures import Measure, figure_of

PROBE_SECONDS = 120  # a node without a processor to spare needed more than a minute
PairKey = tuple[str, str, int]  # titles of client and server, rail: what stays from run to run


class Operation(StrEnum):
    """An RDMA operation of perftest, in `ib_<operation>_bw` and `ib_<operation>_lat`."""

    WRITE = "write"
    READ = "read"
    SEND = "send"


class Pairing(StrEnum):
    """The choice of pairs to measure: all, neighbours in a ring, or the first with all others."""

    ALL = "all"
    RING = "ring"
    STAR = "star"


class PerftestRun(Frozen):
    """The options of one perftest measurement."""

    operation: Operation = Operation.WRITE
    latency: bool = False
    size: int | None = None  # bytes; None: perftest's own
    all_sizes: bool = False
    iterations: int | None = None  # None: perftest's own
    queue_pairs: int = 1
    rdma_cm: bool = False
    cuda: int | None = None  # the GPU whose memory is read or written
    seconds: int = 300  # how long one measurement may take before its pods end it


class PodDevice(Frozen):
    """An RDMA device as programs in a pod see it."""

    name: str
    port: int = 1
    gid_index: int | None = None  # None where programs need none (InfiniBand)
    address: str | None = None  # of its interface; None if unknown
    gbps: float | None = None  # the line rate; None of soft devices, which have none
    card: str = ""  # the physical card, by its id; "" if unknown


class PairedPod(Frozen):
    """A pod that takes part in a measurement, with its RDMA devices."""

    title: str  # as tables show it; it stays the same in the next run
    namespace: str
    name: str
    address: str
    devices: tuple[PodDevice, ...] = ()
    rails: tuple[int, ...] = ()  # of each device; their places if empty
    node: str = ""  # whose devices are the pod's own; empty: each pod counts as having others

    @property
    def by_rail(self) -> Mapping[int, PodDevice]:
        """Return the pod's device on each rail."""
        rails = self.rails or range(len(self.devices))
        return dict(zip(rails, self.devices, strict=True))

    def card(self, rail: int) -> tuple[str, str]:
        """Return the node, or else the pod, and what tells its card on a rail from its others."""
        device = self.by_rail[rail]
        return self.node or self.title, device.card or device.name


class PerftestRow(Frozen):
    """A row of the table that perftest prints."""

    size: int
    iterations: int
    figure: float  # the average: Gbit/s, in a table of latencies microseconds (t_avg)
    percentile_99: float | None = None  # of latencies


class PairOutcome(Frozen):
    """A client's measurement against a server on one rail, or the reason why it failed."""

    client: str  # titles of pods
    server: str
    rail: int
    devices: tuple[str, str]  # the client's and the server's
    line_gbps: float | None
    rows: tuple[PerftestRow, ...] = ()  # none: it failed
    failure: str = ""  # why

    def standing(self, *, latency: bool) -> PerftestRow | None:
        """Return the row with the highest bandwidth, or the lowest latency; None without rows."""
        choose = min if latency else max
        return choose(self.rows, key=lambda row: row.figure, default=None)


class PairStandard(Frozen):
    """The measure of a good figure, in Gbit/s, or with `latency` in microseconds."""

    latency: bool = False
    limit: float | None = None  # as asked for
    line_share: float = 0.8  # the part of the line rate that is due
    tolerance: float = 0.2  # by which a figure may be worse than its rail's median, or than before


class Rating(StrEnum):
    """The rating of a pair's figure: good, worse than a limit, or missing."""

    WELL = "ok"
    SLOW = "slow"
    FAILED = "failed"


class RatedPair(Frozen):
    """The result of a pair with its rating, and the limit that it missed."""

    outcome: PairOutcome
    rating: Rating
    why: str = ""  # the pair is not well
    figure: float | None = None
    due: float | None = None  # the limit that its figure missed


class SuspectKind(StrEnum):
    """The possible causes of bad pairs, in the order in which a person looks at them."""

    CARD = "card"
    NODE = "node"
    RAIL = "rail"
    PAIR = "pair"


class Suspect(Frozen):
    """A probable cause that bad pairs have in common."""

    kind: SuspectKind
    node: str | None = None  # title of a pod, or the node of its copy
    device: str | None = None  # of a card; of a rail the name that most of its devices have
    rail: int | None = None
    peer: str | None = None  # the other end of a pair
    peer_device: str | None = None
    pairs: int = 0  # bad ones
    of: int = 0  # all that it has
    median: float | None = None  # of its bad pairs, in the unit of the run
    due: float | None = None
    why: str | None = None  # where most of its bad pairs failed


class RunComparison(Frozen):
    """The change from an earlier run to this one, over the pairs that both have."""

    pairs: int
    before: float | None  # the median of the earlier run
    now: float | None
    missing: int  # pairs of the earlier run that this one does not have


class PairProof(Frozen):
    """The result of a whole run: rated pairs, probable causes, and who took no part."""

    run: PerftestRun
    rated: tuple[RatedPair, ...]
    suspects: tuple[Suspect, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()  # who took no part, and why
    unmeasured: int = 0  # pairs for which the run had no time
    excused: int = 0  # of left_out: nodes that nobody asked for, cordoned or offering nothing
    pairing: Pairing = Pairing.ALL
    interrupted: bool = False  # somebody ended it; it has what was measured before
    comparison: RunComparison | None = None
    remark: str = ""  # a sentence on what was not known

    @property
    def unseen(self) -> int:
        """Return how many nodes or pods should have taken part and did not."""
        return max(len(self.left_out) - self.excused, 0)

    @property
    def holds(self) -> bool:
        """Return whether some pairs were measured, and all of these are good."""
        return bool(self.rated) and all(pair.rating is Rating.WELL for pair in self.rated)

    @property
    def is_well(self) -> bool:
        """Return whether nobody is missing, all pairs were measured and all figures are good."""
        is_whole = not self.unmeasured and not self.interrupted
        return self.holds and is_whole and not self.unseen


# A BandwidthCheck: `kube-rdma verify` as an object, done by the controller.


class BandwidthPlan(Frozen):
    """The measurements of a BandwidthCheck, and what is good enough.

    The check measures running pods, which `selector` chooses, or copies of the pod `template`.
    """

    run: PerftestRun
    standard: PairStandard
    selector: str = ""  # a=b,c=d
    template: Mapping[str, Any] | None = None
    nodes: tuple[str, ...] = ()  # which get a copy; all that offer its shares, if none
    start_seconds: int = 300  # in which copies become Ready
    pairing: Pairing = Pairing.ALL
    both_ways: bool = False
    against_last: bool = False  # a pair may not be worse than it was the last time
    every: int | None = None  # seconds between the begin of two runs; None: once
    most_pairs: int = 20_000  # more are refused
    run_seconds: int = 21_600  # of measuring; then the run ends with what it has


class BandwidthHistory(Frozen):
    """The facts about a check's last run that decide when the next one is due."""

    generation: int
    began: datetime
    ended: datetime | None  # None: it was interrupted
    hindered: bool = False  # without a measurement, for a reason that may be mended by now
    refused: bool = False  # only another generation can be better


Suspects = Mapping[frozenset[str], str]
"""Reasons for a suspicion, by one node, or by two that are slow with each other."""


RECENT = timedelta(hours=24)
"""The time for which the suspects of a measurement count."""


class LastMeasurement(Frozen):
    """The last run of a BandwidthCheck that has figures."""

    namespace: str
    at: datetime
    suspects: Suspects
    cards: Mapping[str, Mapping[str, str]] = {}  # why cards are suspects: by node, RDMA device


# The status of a BandwidthCheck: lists have an end, and texts stand for figures.

MOST_PAIRS = 500  # 32 nodes of one card; some 100 kB
MOST_NAMES = 64
REFUSED = "Refused"  # the reason of a check that nobody can do as it is

State = Literal["Measuring", "Well", "NotWell", "NotMeasured"]


class PairEntry(StatusPart, kw_only=True):
    """The result of a client that measured against a server."""

    client: Word
    """client is the pod that starts the measurement: its node if it is a copy, else namespace/name.
    """
    server: Word
    """server is the pod that answers: its node if it is a copy, else namespace/name."""
    rail: int
    """rail is the rail of the measured devices, counted from 0."""
    devices: Annotated[tuple[Word, ...], Meta(max_length=2)] = ()
    """devices are the RDMA devices of client and server, in this order. Example: [mlx5_0, mlx5_1].
    """
    measured: Measure | None = None
    """measured is the average of the measurement: a quantity of bit/s, with latency: true a
    duration. If several sizes were measured, the best one counts. Left out: the pair failed.
    Examples: 94.215G, 2.13us.
    """
    figure: float | None = None
    """figure is the old form of measured, in Gbit/s or microseconds; it is removed in the next
    release. Controllers of the previous release write it.
    """
    rating: Rating
    """rating is ok, slow (measured misses a limit) or failed (nothing was measured)."""
    why: Sentence = ""
    """why is the limit that the pair missed, or the reason of its failure. Empty: the pair is good.
    """


class SuspectEntry(StatusPart, kw_only=True):
    """A probable cause of bad pairs: a card, a node, a rail, or the way from one end to another."""

    kind: SuspectKind
    """kind is what the bad pairs have in common: card, node, rail, or pair (the same two ends)."""
    node: Word | None = None
    """node is the node of the suspect, or namespace/name of its pod; of a pair it is one end. Left
    out: the suspect is a rail.
    """
    device: Word | None = None
    """device is the RDMA device of the suspect; of a rail it is the most frequent name of its
    devices. Left out: the suspect is a node, or a pair that is bad on several rails.
    """
    rail: int | None = None
    """rail is the number of the suspected rail, counted from 0. Left out: the suspect is no rail.
    """
    peer: Word | None = None
    """peer is the other end of a suspected pair: its node, or namespace/name of its pod. Left out:
    the suspect is no pair.
    """
    pairs: int
    """pairs is how many pairs of the suspect are slow or failed."""
    of: int
    """of is how many pairs the suspect has, good ones included. Pairs that another suspect explains
    do not count.
    """
    median_measured: Measure | None = None
    """medianMeasured is the median of what the bad pairs of the suspect measured: a quantity of
    bit/s, with latency: true a duration. Left out: at least half of these pairs failed. Example:
    12.4G.
    """
    median_due: Measure | None = None
    """medianDue is the median of the limits that the bad pairs of the suspect missed, in the form
    of medianMeasured. Left out: at least half of these pairs failed. Example: 80G.
    """
    median: float | None = None
    """median is the old form of medianMeasured, in Gbit/s or microseconds; it is removed in the
    next release.
    """
    due: float | None = None
    """due is the old form of medianDue, in Gbit/s or microseconds; it is removed in the next
    release.
    """
    why: Sentence = ""
    """why is the most frequent failure of the suspect's bad pairs, if at least half of these
    failed. With a single bad pair, why is the reason of that pair. Otherwise why is empty.
    """


class LeftOutEntry(StatusPart):
    """A node or a pod that took no part, and why."""

    name: Word
    """name is the node or the pod that took no part."""
    why: Sentence
    """why is the reason. Example: it is cordoned."""


class BandwidthCheckStatus(StatusPart, kw_only=True):
    """The last run with figures, and the state of the run after it, if there is one."""

    observed_generation: int
    """observedGeneration is the metadata.generation of the check that the last run measured, or the
    current run measures.
    """
    measured_generation: int | None = None
    """measuredGeneration is the metadata.generation of the check whose figures are here: that of
    the last run with figures. againstLast compares only with figures of the same generation. Left
    out: no run had figures.
    """
    state: State
    """state is Measuring, Well, NotWell or NotMeasured. Measuring: a run is under way. NotWell: a
    pair is slow or failed, or something was not measured. NotMeasured: the run ended without
    figures.
    """
    result: Sentence = ""
    """result is what the last run found, or why it has no figures, in one sentence. Empty: a run is
    under way.
    """
    start_time: Word | None = None
    """startTime is when the last run began, in RFC 3339. Example: 2026-11-22T12:00:00Z."""
    completion_time: Word | None = None
    """completionTime is when the last run ended, in RFC 3339. Left out: a run is under way."""
    pairs_measured: int = 0
    """pairsMeasured is how many pairs the last run with figures measured, failed ones included.
    Each client, server and rail is one pair.
    """
    pairs_slow: int = 0
    """pairsSlow is how many of these pairs missed a limit."""
    pairs_failed: int = 0
    """pairsFailed is how many of these pairs have no figure."""
    pairs_unmeasured: int = 0
    """pairsUnmeasured is how many further pairs were not measured, because the time of that run was
    over.
    """
    lowest_measured: Measure | None = None
    """lowestMeasured is the lowest that any pair measured: a quantity of bit/s, with latency: true
    a duration. Left out: no pair has a figure. Examples: 94.2G, 2.13us.
    """
    highest_measured: Measure | None = None
    """highestMeasured is the highest that any pair measured, in the form of lowestMeasured. Left
    out: no pair has a figure. Examples: 97.66G, 3.4us.
    """
    lowest: float | None = None
    """lowest is the old form of lowestMeasured, in Gbit/s or microseconds; it is removed in the
    next release.
    """
    highest: float | None = None
    """highest is the old form of highestMeasured, in Gbit/s or microseconds; it is removed in the
    next release.
    """
    suspects: Annotated[tuple[SuspectEntry, ...], Meta(max_length=MOST_NAMES)] = ()
    """suspects are the probable causes of bad pairs: first cards, then nodes, rails and pairs.
    Empty: no pair is bad, or all are.
    """
    left_out: Annotated[tuple[LeftOutEntry, ...], Meta(max_length=MOST_NAMES)] = ()
    """leftOut is a list of the first 64 nodes and pods that took no part, with the reason."""
    pairs: Annotated[tuple[PairEntry, ...], Meta(max_length=MOST_PAIRS)] = ()
    """pairs are the results pair by pair: failed ones first, then slow ones, then good ones. Only
    the first 500 are listed.
    """
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16)] = ()
    """conditions are Complete and Well. Complete is True when a run has ended. Well is True if the
    last run measured everything and each pair is good.
    """

    @property
    def is_well(self) -> bool:
        """Return whether the last run has ended, measured everything, and each pair is good."""
        return any((each.type, each.status) == ("Well", "True") for each in self.conditions)

    @property
    def listed(self) -> PairProof:
        """Return the last run with figures, as far as the status lists its pairs and suspects.

        Pairs whose figure has the old form, without a unit, are left out.
        """
        pairs = [one for one in self.pairs if one.measured or one.rating is Rating.FAILED]
        rated = (
            RatedPair(
                PairOutcome(one.client, one.server, one.rail, (near, far), None),
                *(one.rating, one.why, _figure(one.measured)),
            )
            for one in pairs
            for near, far, *_ in [(*one.devices, "", "")]
        )
        suspects = (
            Suspect(
                *(one.kind, one.node, one.device, one.rail, one.peer, None, one.pairs, one.of),
                *(_figure(one.median_measured), _figure(one.median_due), one.why),
            )
            for one in self.suspects
        )
        run = PerftestRun(latency=(self.highest_measured or "").endswith("s"))
        absent = ((one.name, one.why) for one in self.left_out)
        return PairProof(run, tuple(rated), tuple(suspects), tuple(absent))

    @property
    def history(self) -> BandwidthHistory | None:
        """Return the facts that decide when the next run is due; None without readable times."""
        try:
            began = datetime.fromisoformat(self.start_time or "")
            ended = datetime.fromisoformat(self.completion_time) if self.completion_time else None
        except ValueError:
            return None
        if any(at and at.tzinfo is None for at in (began, ended)):
            return None
        refused = any((each.type, each.reason) == ("Well", REFUSED) for each in self.conditions)
        hindered = self.state == "NotMeasured" and not refused
        return BandwidthHistory(self.observed_generation, began, ended, hindered, refused)

    def figures_of(self, generation: int) -> dict[PairKey, float]:
        """Return figures by client, server and rail; {} if they are of another generation."""
        if self.figures_generation != generation:
            return {}
        pairs = (
            (pair, figure_of(pair.measured) if pair.measured else pair.figure)
            for pair in self.pairs
        )
        return {(p.client, p.server, p.rail): value for p, value in pairs if value is not None}

    @property
    def figures_generation(self) -> int | None:
        """Return the generation of the spec that was measured last, None if unknown.

        A status of the previous release has no measuredGeneration: then it is known only if the
        last run has figures.
        """
        if self.measured_generation is None and self.state in ("Well", "NotWell"):
            return self.observed_generation
        return self.measured_generation


def _figure(measured: str | None) -> float | None:
    return figure_of(measured) if measured else None
