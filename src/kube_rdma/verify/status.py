"""The status of a BandwidthCheck: what the last run has measured, and whether it is well.

The controller that leads writes it, by server-side apply of the whole
(verify/bandwidth_checks). Lists have an end, and what is worst stands first in them.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.model.conditions import (
    Condition,
    Sentence,
    StatusPart,
    Word,
    condition,
    cut,
    moment,
    observed,
)
from kube_rdma.model.measures import Measure, figure_of, figure_text
from kube_rdma.model.verify.bandwidth import (
    PairKey,
    PairProof,
    RatedPair,
    Rating,
    Suspect,
    SuspectKind,
)
from kube_rdma.model.verify.bandwidth_check import BandwidthHistory

MOST_PAIRS = 500  # 32 nodes of one card; some 100 kB
MOST_NAMES = 64
REFUSED = "Refused"  # the reason of a check that nobody can do as it is
_WORST_FIRST = (Rating.FAILED, Rating.SLOW, Rating.WELL)

State = Literal["Measuring", "Well", "NotWell", "NotMeasured"]


class PairEntry(StatusPart, kw_only=True):
    """What a client measured against a server."""

    client: Word
    """client is the pod that starts the measurement: its node if it is a copy, else namespace/name.
    """
    server: Word
    """server is the pod that answers: its node if it is a copy, else namespace/name."""
    rail: int
    """rail is the place of the measured devices among the devices of each pod, counted from 0."""
    devices: Annotated[tuple[Word, ...], Meta(max_length=2)] = ()
    """devices are the RDMA devices of client and server, in this order. Example: [mlx5_0, mlx5_1].
    """
    measured: Measure | None = None
    """measured is the average of the measurement: a quantity of bit/s, with latency: true a
    duration. If several sizes were measured, the best one counts. Left out: the pair failed.
    Examples: 94.215G, 2.13us.
    """
    figure: float | None = None
    """figure is the old form of measured, in Gbit/s or microseconds; it goes with the next release.
    Controllers of the release before write it.
    """
    rating: Rating
    """rating is ok, slow (measured misses a limit) or failed (nothing was measured)."""
    why: Sentence = ""
    """why is the limit that the pair missed, or the reason of its failure. Empty: the pair is good.
    """


class SuspectEntry(StatusPart, kw_only=True):
    """What bad pairs have in common: a card, a node, a rail, or the two that they are between."""

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
    """medianMeasured is the median of what its bad pairs measured: a quantity of bit/s, with
    latency: true a duration. Left out: at least half of them failed. Example: 12.4G.
    """
    median_due: Measure | None = None
    """medianDue is the median of the limits that its bad pairs missed, in the form of
    medianMeasured. Left out: at least half of them failed. Example: 80G.
    """
    median: float | None = None
    """median is the old form of medianMeasured, in Gbit/s or microseconds; it goes with the next
    release.
    """
    due: float | None = None
    """due is the old form of medianDue, in Gbit/s or microseconds; it goes with the next release.
    """
    why: Sentence = ""
    """why is the most frequent failure of its bad pairs, if at least half of them failed. With a
    single bad pair it is the reason of that one. Otherwise it is empty.
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
    """completionTime is when the last run ended, in RFC 3339. Left out: it is under way."""
    pairs_measured: int = 0
    """pairsMeasured is how many pairs the last run with figures measured, failed ones included.
    Each client, server and rail is one pair.
    """
    pairs_slow: int = 0
    """pairsSlow is how many of these pairs missed a limit."""
    pairs_failed: int = 0
    """pairsFailed is how many of these pairs have no figure."""
    pairs_unmeasured: int = 0
    """pairsUnmeasured is how many further pairs were not measured, as the time of that run was
    over.
    """
    lowest_measured: Measure | None = None
    """lowestMeasured is the lowest that any pair measured: a quantity of bit/s, with latency: true
    a duration. Left out: all pairs failed. Examples: 94.2G, 2.13us.
    """
    highest_measured: Measure | None = None
    """highestMeasured is the highest that any pair measured, in the form of lowestMeasured. Left
    out: all pairs failed. Examples: 97.66G, 3.4us.
    """
    lowest: float | None = None
    """lowest is the old form of lowestMeasured, in Gbit/s or microseconds; it goes with the next
    release.
    """
    highest: float | None = None
    """highest is the old form of highestMeasured, in Gbit/s or microseconds; it goes with the next
    release.
    """
    suspects: Annotated[tuple[SuspectEntry, ...], Meta(max_length=MOST_NAMES)] = ()
    """suspects are the probable causes of bad pairs: first cards, then nodes, rails and pairs.
    Empty: no pair is bad, or all are.
    """
    left_out: Annotated[tuple[LeftOutEntry, ...], Meta(max_length=MOST_NAMES)] = ()
    """leftOut is a list of the nodes and pods that took no part, with the reason."""
    pairs: Annotated[tuple[PairEntry, ...], Meta(max_length=MOST_PAIRS)] = ()
    """pairs are the results pair by pair: failed ones first, then slow ones, then good ones. Only
    the first 500 are listed.
    """
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16)] = ()
    """conditions are Complete and Well. Complete is True while no run is under way. Well is True if
    the last run measured all that it had to and each pair is good.
    """

    @property
    def history(self) -> BandwidthHistory | None:
        """What the next run has to know of this one; None when that cannot be read."""
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
        """What pairs measured, as far as it is told; nothing where that was another spec."""
        if self.figures_generation != generation:
            return {}
        pairs = (
            (pair, figure_of(pair.measured) if pair.measured else pair.figure)
            for pair in self.pairs
        )
        return {(p.client, p.server, p.rail): value for p, value in pairs if value is not None}

    @property
    def figures_generation(self) -> int | None:
        """A controller of the release before tells it only while its last run is the one seen."""
        if self.measured_generation is None and self.state in ("Well", "NotWell"):
            return self.observed_generation
        return self.measured_generation


def begun(old: BandwidthCheckStatus | None, generation: int, now: datetime) -> BandwidthCheckStatus:
    """A run begins; until it ends the figures of the last one stay."""
    kept = old or BandwidthCheckStatus(observed_generation=generation, state="Measuring")
    words = ("Measuring", "the pairs are being measured")
    before = kept.conditions
    return replace(
        kept,
        observed_generation=generation,
        measured_generation=kept.figures_generation,
        state="Measuring",
        result="",
        start_time=moment(now),
        completion_time=None,
        conditions=(
            *observed((condition(before, moment(now), "Complete", False, words),), generation),
            *(each for each in before if each.type == "Well"),
        ),
    )


def measured(
    running: BandwidthCheckStatus, proof: PairProof, result: str, now: datetime
) -> BandwidthCheckStatus:
    """A run has ended with figures; `result` says them in one sentence."""
    rows = [pair.outcome.standing(latency=proof.run.latency) for pair in proof.rated]
    figures = [row.figure for row in rows if row is not None and math.isfinite(row.figure)]
    latency = proof.run.latency
    worst = sorted(proof.rated, key=lambda pair: _WORST_FIRST.index(pair.rating))
    ratings = [pair.rating for pair in proof.rated]
    state: State = "Well" if proof.is_well else "NotWell"
    return BandwidthCheckStatus(
        observed_generation=running.observed_generation,
        measured_generation=running.observed_generation,
        state=state,
        result=cut(result),
        start_time=running.start_time,
        completion_time=moment(now),
        pairs_measured=len(ratings),
        pairs_slow=ratings.count(Rating.SLOW),
        pairs_failed=ratings.count(Rating.FAILED),
        lowest_measured=figure_text(min(figures, default=None), latency=latency),
        highest_measured=figure_text(max(figures, default=None), latency=latency),
        pairs_unmeasured=proof.unmeasured,
        suspects=tuple(_suspect(each, latency=latency) for each in proof.suspects[:MOST_NAMES]),
        left_out=tuple(
            LeftOutEntry(name=name, why=cut(why)) for name, why in proof.left_out[:MOST_NAMES]
        ),
        pairs=tuple(_entry(pair, latency=latency) for pair in worst[:MOST_PAIRS]),
        conditions=_ended(running, now, (state, cut(result)), well=proof.is_well),
    )


def not_measured(
    running: BandwidthCheckStatus, why: str, now: datetime, *, refused: bool = False
) -> BandwidthCheckStatus:
    """A run has ended without figures: `refused` when only another spec can be better."""
    reason = REFUSED if refused else "NotMeasured"
    return replace(
        running,
        state="NotMeasured",
        result=cut(why),
        completion_time=moment(now),
        conditions=_ended(running, now, (reason, cut(why)), well=False),
    )


def decode(data: bytes) -> BandwidthCheckStatus:
    """Read a status; ValueError for another shape."""
    document = decoded(data)
    if isinstance(document, dict) and isinstance(suspects := document.get("suspects"), list):
        # Before they had fields they were names; the next run says them anew.
        document["suspects"] = [each for each in suspects if not isinstance(each, str)]
    return decoded(msgspec.json.encode(document), BandwidthCheckStatus)


def encode(status: BandwidthCheckStatus) -> bytes:
    """Write a status; what is not there is left out."""
    return msgspec.json.encode(_without_nulls(msgspec.to_builtins(status)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


def _ended(
    running: BandwidthCheckStatus, now: datetime, words: tuple[str, str], *, well: bool
) -> tuple[Condition, ...]:
    before, at = running.conditions, moment(now)
    ended = (
        condition(before, at, "Complete", True, ("Ended", "the run has ended")),
        condition(before, at, "Well", well, words),
    )
    return observed(ended, running.observed_generation)


def _suspect(suspect: Suspect, *, latency: bool) -> SuspectEntry:
    return SuspectEntry(
        kind=suspect.kind,
        node=suspect.node or None,
        device=suspect.device or None,
        rail=suspect.rail,
        peer=suspect.peer or None,
        pairs=suspect.pairs,
        of=suspect.of,
        median_measured=figure_text(suspect.median, latency=latency),
        median_due=figure_text(suspect.due, latency=latency),
        why=cut(suspect.why),
    )


def _entry(pair: RatedPair, *, latency: bool) -> PairEntry:
    outcome = pair.outcome
    row = outcome.standing(latency=latency)
    return PairEntry(
        client=outcome.client,
        server=outcome.server,
        rail=outcome.rail,
        devices=outcome.devices,
        measured=None if row is None else figure_text(row.figure, latency=latency),
        rating=pair.rating,
        why=cut(pair.why),
    )
