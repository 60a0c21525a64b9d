"""The proof that pods reach each other by RDMA, as values: what is run, with whom, and the figures.

`kube-rdma verify pods`, `verify nodes` and BandwidthChecks run perftest from pod to pod.
verify/rules makes rounds, command lines and verdicts out of these, verify/pairs runs them,
verify/views shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen

PERFTEST_IMAGE = "kube-rdma.io/perftest:dev"  # of Containerfile.perftest; no registry has it
PROBE_SECONDS = 120  # a node without a processor to spare needed more than a minute
PairKey = tuple[str, str, int]  # titles of client and server, rail: what stays from run to run


class Operation(StrEnum):
    """An RDMA operation of perftest, whose programs are `ib_<operation>_bw` and
    `ib_<operation>_lat`.
    """

    WRITE = "write"
    READ = "read"
    SEND = "send"


class Pairing(StrEnum):
    """A choice of pairs: all, neighbours of a ring, or the first one with the others."""

    ALL = "all"
    RING = "ring"
    STAR = "star"


class PerftestRun(Frozen):
    """One kind of measurement, as perftest's options have it."""

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
    """An RDMA device as a pod has it."""

    name: str
    port: int = 1
    gid_index: int | None = None  # None where programs need none (InfiniBand)
    address: str | None = None  # of its interface; None if nobody told
    gbps: float | None = None  # the line rate; None of soft devices, which have none


class PairedPod(Frozen):
    """A pod that takes part."""

    title: str  # as tables show it; it stays the same in the next run
    namespace: str
    name: str
    address: str
    devices: tuple[PodDevice, ...] = ()
    rails: tuple[int, ...] = ()  # of each device; their places if empty

    @property
    def by_rail(self) -> Mapping[int, PodDevice]:
        """Return the device on each of its rails."""
        rails = self.rails or range(len(self.devices))
        return dict(zip(rails, self.devices, strict=True))


class PerftestRow(Frozen):
    """A row of perftest's table."""

    size: int
    iterations: int
    figure: float  # the average: Gbit/s, in a table of latencies microseconds (t_avg)
    percentile_99: float | None = None  # of latencies


class PairOutcome(Frozen):
    """The measurement of one client against one server on one rail."""

    client: str  # titles of pods
    server: str
    rail: int
    devices: tuple[str, str]  # the client's and the server's
    line_gbps: float | None
    rows: tuple[PerftestRow, ...] = ()  # none: it failed
    failure: str = ""  # why

    def standing(self, *, latency: bool) -> PerftestRow | None:
        """Return the row that stands for the pair: the highest bandwidth, the lowest latency."""
        choose = min if latency else max
        return choose(self.rows, key=lambda row: row.figure, default=None)


class PairStandard(Frozen):
    """Limits of good figures, in Gbit/s, or with `latency` in microseconds."""

    latency: bool = False
    limit: float | None = None  # as asked for
    line_share: float = 0.8  # the part of the line rate that is due
    tolerance: float = 0.2  # by which a figure may be worse than its rail's median, or than before


class Rating(StrEnum):
    """A verdict on a pair's figure."""

    WELL = "ok"
    SLOW = "slow"
    FAILED = "failed"


class RatedPair(Frozen):
    """An outcome and its rating."""

    outcome: PairOutcome
    rating: Rating
    why: str = ""  # the pair is not well
    figure: float | None = None
    due: float | None = None  # the limit that its figure missed


class SuspectKind(StrEnum):
    """A kind of cause of bad pairs, in the order in which a person looks at them."""

    CARD = "card"
    NODE = "node"
    RAIL = "rail"
    PAIR = "pair"


class Suspect(Frozen):
    """A cause that bad pairs have in common."""

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
    """This run beside an earlier one, over the pairs that both have."""

    pairs: int
    before: float | None  # the median of the earlier run
    now: float | None
    missing: int  # pairs of the earlier run that this one does not have


class PairProof(Frozen):
    """A whole run: the rated pairs, whose fault bad ones are, and who took no part."""

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
        """Return how many had to take part and could not."""
        return max(len(self.left_out) - self.excused, 0)

    @property
    def holds(self) -> bool:
        """Decide whether something was measured, and all that was is well."""
        return bool(self.rated) and all(pair.rating is Rating.WELL for pair in self.rated)

    @property
    def is_well(self) -> bool:
        """Decide whether all was measured and all of it holds."""
        is_whole = not self.unmeasured and not self.interrupted
        return self.holds and is_whole and not self.unseen


# A BandwidthCheck: `kube-rdma verify` as an object, done by the controller.


class BandwidthPlan(Frozen):
    """A BandwidthCheck's spec, compiled: what to measure and what is good enough.

    It measures running pods, which `selector` chooses, or copies of the pod `template`.
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
    """The last run of a check, as far as it decides when the next one is due."""

    generation: int
    began: datetime
    ended: datetime | None  # None: it was interrupted
    hindered: bool = False  # without a measurement, for a reason that may be mended by now
    refused: bool = False  # only another generation can be better
