"""The status of a BandwidthCheck: what the last run has measured, and whether it is well.

The controller that leads writes it, by server-side apply of the whole (programs/bandwidth_checks).
Lists have an end, and what is worst stands first in them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from kube_rdma.api.conditions import Condition, StatusPart, condition, moment
from kube_rdma.api.dialect import Many
from kube_rdma.api.node_report import Sentence, Word, cut
from kube_rdma.model.bandwidth import PairKey, PairProof, RatedPair, Rating, Suspect
from kube_rdma.model.bandwidth_check import BandwidthHistory

MOST_PAIRS = 500  # 32 nodes of one card; some 100 kB
MOST_NAMES = 64
REFUSED = "Refused"  # the reason of a check that nobody can do as it is
_WORST_FIRST = (Rating.FAILED, Rating.SLOW, Rating.WELL)

State = Literal["Measuring", "Well", "NotWell", "NotMeasured"]


class PairEntry(StatusPart):
    """What a client measured against a server. `figure` is in Gbit/s, of latencies in µs."""

    client: Word
    server: Word
    rail: int
    devices: Annotated[Many[Word], Field(max_length=2)] = ()
    figure: float | None = None
    rating: Literal["ok", "slow", "failed"]
    why: Sentence = ""


class SuspectEntry(StatusPart):
    """What bad pairs have in common: a card, a node, a rail, or the two that they are between.

    `pairs` of its `of` pairs are bad; `median` and `due` are in Gbit/s, of latencies in µs.
    """

    kind: Literal["card", "node", "rail", "pair"]
    node: Word | None = None
    device: Word | None = None
    rail: int | None = None
    peer: Word | None = None
    pairs: int
    of: int
    median: float | None = None
    due: float | None = None
    why: Sentence = ""


class LeftOutEntry(StatusPart):
    """A node or a pod that took no part, and why."""

    name: Word
    why: Sentence


class BandwidthCheckStatus(StatusPart):
    """The whole. `lowest` and `highest` are in Gbit/s, of latencies in microseconds."""

    observed_generation: int
    state: State
    result: Sentence = ""
    start_time: str | None = None
    completion_time: str | None = None
    pairs_measured: int = 0
    pairs_slow: int = 0
    pairs_failed: int = 0
    pairs_unmeasured: int = 0
    lowest: float | None = None
    highest: float | None = None
    suspects: Annotated[Many[SuspectEntry], Field(max_length=MOST_NAMES)] = ()
    left_out: Annotated[Many[LeftOutEntry], Field(max_length=MOST_NAMES)] = ()
    pairs: Annotated[Many[PairEntry], Field(max_length=MOST_PAIRS)] = ()
    conditions: Annotated[Many[Condition], Field(max_length=16)] = ()

    @field_validator("suspects", mode="before")
    @classmethod
    def _of_now(cls, suspects: Any) -> Any:
        """Before they had fields they were names; the next run says them anew."""
        if not isinstance(suspects, list | tuple):
            return suspects
        return [each for each in suspects if not isinstance(each, str)]

    @property
    def history(self) -> BandwidthHistory | None:
        """What the next run has to know of this one; None when that cannot be read."""
        try:
            began = datetime.fromisoformat(self.start_time or "")
            ended = datetime.fromisoformat(self.completion_time) if self.completion_time else None
        except ValueError:
            return None
        refused = any((each.type, each.reason) == ("Well", REFUSED) for each in self.conditions)
        hindered = self.state == "NotMeasured" and not refused
        return BandwidthHistory(self.observed_generation, began, ended, hindered, refused)

    @property
    def figures(self) -> dict[PairKey, float]:
        """What pairs measured, as far as it is told."""
        pairs = ((pair, pair.figure) for pair in self.pairs)
        return {(p.client, p.server, p.rail): figure for p, figure in pairs if figure is not None}


def begun(old: BandwidthCheckStatus | None, generation: int, now: datetime) -> BandwidthCheckStatus:
    """A run begins; until it ends the figures of the last one stay."""
    kept = old or BandwidthCheckStatus(observed_generation=generation, state="Measuring")
    words = ("Measuring", "the pairs are being measured")
    before = kept.conditions
    return kept.model_copy(
        update={
            "observed_generation": generation,
            "state": "Measuring",
            "result": "",
            "start_time": moment(now),
            "completion_time": None,
            "conditions": (
                condition(before, moment(now), "Complete", False, words),
                *(each for each in before if each.type == "Well"),
            ),
        }
    )


def measured(
    running: BandwidthCheckStatus, proof: PairProof, result: str, now: datetime
) -> BandwidthCheckStatus:
    """A run has ended with figures; `result` says them in one sentence."""
    rows = [pair.outcome.standing(latency=proof.run.latency) for pair in proof.rated]
    figures = [row.figure for row in rows if row is not None]
    worst = sorted(proof.rated, key=lambda pair: _WORST_FIRST.index(pair.rating))
    ratings = [pair.rating for pair in proof.rated]
    state: State = "Well" if proof.is_well else "NotWell"
    return BandwidthCheckStatus(
        observed_generation=running.observed_generation,
        state=state,
        result=cut(result),
        start_time=running.start_time,
        completion_time=moment(now),
        pairs_measured=len(ratings),
        pairs_slow=ratings.count(Rating.SLOW),
        pairs_failed=ratings.count(Rating.FAILED),
        lowest=min(figures, default=None),
        highest=max(figures, default=None),
        pairs_unmeasured=proof.unmeasured,
        suspects=tuple(map(_suspect, proof.suspects[:MOST_NAMES])),
        left_out=tuple(
            LeftOutEntry(name=name, why=cut(why)) for name, why in proof.left_out[:MOST_NAMES]
        ),
        pairs=tuple(_entry(pair, latency=proof.run.latency) for pair in worst[:MOST_PAIRS]),
        conditions=_ended(running, now, (state, cut(result)), well=proof.is_well),
    )


def not_measured(
    running: BandwidthCheckStatus, why: str, now: datetime, *, refused: bool = False
) -> BandwidthCheckStatus:
    """A run has ended without figures: `refused` when only another spec can be better."""
    reason = REFUSED if refused else "NotMeasured"
    return running.model_copy(
        update={
            "state": "NotMeasured",
            "result": cut(why),
            "completion_time": moment(now),
            "conditions": _ended(running, now, (reason, cut(why)), well=False),
        }
    )


def decode(data: bytes) -> BandwidthCheckStatus:
    """Read a status; ValueError for another shape."""
    return BandwidthCheckStatus.model_validate_json(data)


def encode(status: BandwidthCheckStatus) -> bytes:
    """Write a status; what is not there is left out."""
    return status.model_dump_json(by_alias=True, exclude_none=True).encode()


def _ended(
    running: BandwidthCheckStatus, now: datetime, words: tuple[str, str], *, well: bool
) -> tuple[Condition, ...]:
    before, at = running.conditions, moment(now)
    return (
        condition(before, at, "Complete", True, ("Ended", "the run has ended")),
        condition(before, at, "Well", well, words),
    )


def _suspect(suspect: Suspect) -> SuspectEntry:
    return SuspectEntry(
        kind=suspect.kind.value,
        node=suspect.node or None,
        device=suspect.device or None,
        rail=suspect.rail,
        peer=suspect.peer or None,
        pairs=suspect.pairs,
        of=suspect.of,
        median=suspect.median,
        due=suspect.due,
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
        figure=None if row is None else row.figure,
        rating=pair.rating.value,
        why=cut(pair.why),
    )
