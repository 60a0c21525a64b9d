"""The proof that pods reach each other by RDMA, as values: what is run, with whom, what came of it.

`kube-rdma verify pods` and `verify nodes` run perftest from pod to pod. verify/rules makes rounds,
command lines and verdicts out of these, verify/pairs runs them, verify/views
shows them.
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
    """What perftest posts: its programs are `ib_<operation>_bw` and `ib_<operation>_lat`."""

    WRITE = "write"
    READ = "read"
    SEND = "send"


class Pairing(StrEnum):
    """Who measures with whom: everybody, the next ones of a ring, or the first with the others."""

    ALL = "all"
    RING = "ring"
    STAR = "star"


class PerftestRun(Frozen):
    """What is measured. Without `size` (bytes) and `iterations` perftest's own are taken.

    `seconds` is how long one measurement may take before its pods end it.
    """

    operation: Operation = Operation.WRITE
    latency: bool = False
    size: int | None = None
    all_sizes: bool = False
    iterations: int | None = None
    queue_pairs: int = 1
    rdma_cm: bool = False
    cuda: int | None = None  # the GPU whose memory is read or written
    seconds: int = 300


class PodDevice(Frozen):
    """An RDMA device as a pod has it.

    `gid_index` is None where programs need none (InfiniBand), `address` that of its interface, None
    if nobody told. `gbps` is the line rate, None of soft devices, which have none.
    """

    name: str
    port: int = 1
    gid_index: int | None = None
    address: str | None = None
    gbps: float | None = None


class PairedPod(Frozen):
    """A pod that takes part; `rails` has the rail of each of its `devices`, their places if empty.

    `title` is what tables call it, and what stays the same in the next run.
    """

    title: str
    namespace: str
    name: str
    address: str
    devices: tuple[PodDevice, ...] = ()
    rails: tuple[int, ...] = ()

    @property
    def by_rail(self) -> Mapping[int, PodDevice]:
        """The device on each of its rails."""
        rails = self.rails or range(len(self.devices))
        return dict(zip(rails, self.devices, strict=True))


class PerftestRow(Frozen):
    """A row of perftest's table.

    `figure` is the average: Gbit/s, in a table of latencies microseconds (t_avg), which also has
    the 99 % percentile.
    """

    size: int
    iterations: int
    figure: float
    percentile_99: float | None = None


class PairOutcome(Frozen):
    """What one client measured against one server, rail by rail.

    Without `rows` it failed, for the reason in `failure`.
    """

    client: str  # titles of pods
    server: str
    rail: int
    devices: tuple[str, str]  # the client's and the server's
    line_gbps: float | None
    rows: tuple[PerftestRow, ...] = ()
    failure: str = ""

    def standing(self, *, latency: bool) -> PerftestRow | None:
        """The row that stands for the pair: the highest bandwidth, the lowest latency."""
        choose = min if latency else max
        return choose(self.rows, key=lambda row: row.figure, default=None)


class PairStandard(Frozen):
    """What a pair's figure has to hold; in Gbit/s, or with `latency` in microseconds.

    `limit` was asked for. `line_share` is the part of the line rate that is due, `tolerance` the
    part by which a figure may be worse than the median of its rail, and than an earlier run's.
    """

    latency: bool = False
    limit: float | None = None
    line_share: float = 0.8
    tolerance: float = 0.2


class Rating(StrEnum):
    """What a pair's figure is worth."""

    WELL = "ok"
    SLOW = "slow"
    FAILED = "failed"


class RatedPair(Frozen):
    """An outcome, its rating, and why it is not well: its figure, and the limit that it missed."""

    outcome: PairOutcome
    rating: Rating
    why: str = ""
    figure: float | None = None
    due: float | None = None


class SuspectKind(StrEnum):
    """What bad pairs have in common, in the order in which a person looks at it."""

    CARD = "card"
    NODE = "node"
    RAIL = "rail"
    PAIR = "pair"


class Suspect(Frozen):
    """A cause that bad pairs have in common; `pairs` are bad, `of` so many that it has.

    `node` is the title of a pod, or the node of its copy. A card has a `device`, a rail the name
    that most of its devices have, a pair also its other end. `median` and `due` are those of the
    bad pairs, in the unit of the run; where most of them failed there is `why` instead.
    """

    kind: SuspectKind
    node: str = ""
    device: str = ""
    rail: int | None = None
    peer: str = ""
    peer_device: str = ""
    pairs: int = 0
    of: int = 0
    median: float | None = None
    due: float | None = None
    why: str = ""


class RunComparison(Frozen):
    """This run beside an earlier one: pairs that both have, the median of each over these pairs.

    `missing` counts pairs of the earlier run that this one does not have.
    """

    pairs: int
    before: float | None
    now: float | None
    missing: int


class PairProof(Frozen):
    """A whole run: what was measured, what it is worth, and who took no part, with the reason.

    `unmeasured` counts the pairs for which the run had no time, `excused` those of `left_out` that
    nobody asked for: nodes that are cordoned or offer nothing. An `interrupted` run has what was
    measured before somebody ended it. `remark` is a sentence on what was not known.
    """

    run: PerftestRun
    rated: tuple[RatedPair, ...]
    suspects: tuple[Suspect, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    unmeasured: int = 0
    excused: int = 0
    pairing: Pairing = Pairing.ALL
    interrupted: bool = False
    comparison: RunComparison | None = None
    remark: str = ""

    @property
    def unseen(self) -> int:
        """How many had to take part and could not."""
        return max(len(self.left_out) - self.excused, 0)

    @property
    def holds(self) -> bool:
        """Whether something was measured, and all that was is well."""
        return bool(self.rated) and all(pair.rating is Rating.WELL for pair in self.rated)

    @property
    def is_well(self) -> bool:
        """Whether all was measured and all of it holds."""
        is_whole = not self.unmeasured and not self.interrupted
        return self.holds and is_whole and not self.unseen


# What a BandwidthCheck asks for: `kube-rdma verify` as an object, done by the controller.


class BandwidthPlan(Frozen):
    """What to measure and what is good enough.

    Either between running pods, which `selector` (``a=b,c=d``) chooses, or between copies of the
    pod `template`, one on each of `nodes` (all that offer its shares, if none), which may take
    `start_seconds` to become Ready. `against_last`: a pair may not be worse than it was the last
    time. `every` is in seconds between the begin of two runs; None: once. More than `most_pairs`
    are refused, and after `run_seconds` of measuring the run ends with what it has.
    """

    run: PerftestRun
    standard: PairStandard
    selector: str = ""
    template: Mapping[str, Any] | None = None
    nodes: tuple[str, ...] = ()
    start_seconds: int = 300
    pairing: Pairing = Pairing.ALL
    both_ways: bool = False
    against_last: bool = False
    every: int | None = None
    most_pairs: int = 20_000
    run_seconds: int = 21_600


class BandwidthHistory(Frozen):
    """What became of a check before: of which generation, when the last run began and ended.

    Without `ended` it was interrupted. `hindered`: it ended without a measurement, for a reason
    that somebody may have mended since; `refused`: only another generation can be better.
    """

    generation: int
    began: datetime
    ended: datetime | None
    hindered: bool = False
    refused: bool = False
