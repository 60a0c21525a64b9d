"""Decides which new nodes are measured, with which good ones, and what follows from the figures.

A node is new while it has the taint BURN_IN. A round is one BandwidthCheck of new nodes and good
ones, their partners. Check and nodes hold all that a round needs, so that any leader goes on with
it. Without partners, as in a new cluster, new nodes measure each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from kube_base.frozen import Frozen
from kube_base.plain_text import plain
from kube_rdma.lib.phrases import listed
from kube_rdma.model import repair as model
from kube_rdma.model.kubernetes import cut, moment
from kube_rdma.model.reports import BurnInReceipt, NodeReportStatus
from kube_rdma.model.verify import SuspectEntry

_PARTNERS = 2  # the fewest by which one bad node among them is known
_AGAIN = timedelta(days=1)  # after which a node that failed is measured again
_PATIENCE = timedelta(minutes=4)  # for a check that blames nobody, before others take part


class BurnInWorld(Frozen):
    """All facts by which the new nodes of a policy are judged."""

    policy: model.RepairSpec
    burn_in: model.BurnInSpec  # that of the policy
    nodes: Mapping[str, model.RepairNode]  # that the policy selects
    reports: Mapping[str, NodeReportStatus]  # that are new enough
    spec: Mapping[str, Any]  # of a round's check, without nodes; empty: there is none to copy
    current: model.BurnInRound | None
    now: datetime
    reporting: frozenset[str]  # nodes with cards, whatever the age of their reports
    slow: Mapping[str, str] = {}  # suspects of other measurements, which are no partners
    aside: Mapping[str, str] = {}  # nodes that take no part for a while: why

    @property
    def acts(self) -> bool:
        """Return whether the policy may measure and remove taints."""
        return self.policy.enforce and not self.policy.paused

    @property
    def soak(self) -> timedelta:
        """Return for how long all pairs have to be good."""
        return timedelta(seconds=self.burn_in.soak_seconds)


class BurnInStep(Frozen):
    """The changes that follow from one look at a policy's new nodes."""

    begin: tuple[str, ...] = ()  # the nodes of a new round
    partners: tuple[str, ...] = ()  # which of them are not new
    ends: bool = False  # the round's check is deleted
    passed: Mapping[str, BurnInReceipt] = {}
    failed: Mapping[str, str] = {}  # why, by node
    aside: Mapping[str, str] = {}  # others take part in the next rounds: why
    said: str = ""  # why nothing is known of the nodes


_NOTHING = BurnInStep()
_WAITS = "it waits for its turn, or for another node to measure with"
_ALONE = "No other node was there to measure it with."
_AMONG_THEM = "No good node was there: new nodes measured each other."


def step(world: BurnInWorld) -> BurnInStep:
    """Return what is to be done now."""
    if not world.acts or not world.spec:
        return BurnInStep(ends=world.current is not None)
    return _judged(world, world.current) if world.current else _begun(world)


def entries(world: BurnInWorld) -> Iterator[model.RepairEntry]:
    """Yield the new nodes of a policy for its status."""
    measured = world.current.nodes if world.current else ()
    for name, node in sorted(world.nodes.items()):
        if node.is_new:
            why = "it is being measured" if name in measured else _hindrance(world, name)
            state: model.EntryState = "BurnIn" if world.acts else "WouldBurnIn"
            if _has_failed(node, world.now):
                state, why = "BurnInFailed", node.failed
            yield model.RepairEntry(name, state, cut(plain(why or _WAITS)))


def _begun(world: BurnInWorld) -> BurnInStep:
    """Choose the nodes of a new round, the first ones by name."""
    every = sorted(world.nodes.items())
    new = [name for name, node in every if node.is_new and not _hindrance(world, name)]
    if not new:
        return _NOTHING
    old = (name for name, node in every if not (node.is_new or node.taint or name in world.slow))
    partners = [*islice((name for name in old if not _hindrance(world, name)), _PARTNERS)]
    chosen = new[: world.burn_in.at_once if partners else max(world.burn_in.at_once, 2)]
    if len(chosen) + len(partners) > 1:
        return BurnInStep((*chosen, *partners), tuple(partners))
    age = world.now - datetime.fromisoformat(world.nodes[chosen[0]].created)
    # It waits for one of the others, or for a while that others come.
    if len(world.reporting.intersection(world.nodes)) > 1 or age < world.soak:
        return _NOTHING
    words = (moment(world.now), "Nothing was measured.", _ALONE, ())
    return BurnInStep(passed={name: _receipt(world, name, *words) for name in chosen})


def _judged(world: BurnInWorld, current: model.BurnInRound) -> BurnInStep:
    """Judge a round by its nodes, which have to stay as they were, then by its figures."""
    new = [
        name
        for name, node in world.nodes.items()
        if name in current.nodes and name not in current.partners and node.is_new
        if not _has_failed(node, world.now)
    ]
    failed = {
        name: why for name in new if (report := world.reports.get(name)) and (why := _ill(report))
    }
    is_same = all(
        name in world.nodes
        and world.nodes[name].created <= current.created
        and not _hindrance(world, name)
        for name in current.nodes
    )
    if not new or failed or not is_same or current.spec != world.spec:
        return BurnInStep(ends=True, failed=failed)
    status = current.status
    well = next((one for one in status.conditions if one.type == "Well"), None) if status else None
    history = status.history if status else None
    if not (status and well and history) or well.observed_generation != current.generation:
        return _NOTHING
    # By the condition: where a run ends another may begin at once, which keeps the last figures.
    since = datetime.fromisoformat(well.last_transition_time)
    if well.status == "True":
        until = history.ended or history.began
        remark = "" if current.partners else _AMONG_THEM
        words = (moment(until), cut(well.message), remark, current.nodes)
        passed = {name: _receipt(world, name, *words) for name in new}
        return BurnInStep(passed=passed) if until - since >= world.soak else _NOTHING
    aside = dict[str, str]()
    if well.reason == "NotWell":
        for one in status.suspects:
            ends = {*filter(None, (one.node, one.peer))}.intersection(current.nodes)
            guilty = ends.intersection(new)
            (failed if guilty else aside).update(dict.fromkeys(guilty or ends, _evidence(one)))
        aside |= {one.name: one.why for one in status.left_out if one.name in current.nodes}
    if failed or aside:
        return BurnInStep(ends=True, failed=failed, aside=aside)
    # All pairs are bad, or nothing was measured: perhaps because of the partners.
    is_over = world.now - since >= _PATIENCE
    others = dict.fromkeys(current.partners, cut(well.message)) if is_over else {}
    return BurnInStep(ends=is_over, aside=others, said=cut(well.message))


def _hindrance(world: BurnInWorld, name: str) -> str:
    """Return why a node cannot be measured now; "" if it can."""
    node, report = world.nodes[name], world.reports.get(name)
    if _has_failed(node, world.now):
        return node.failed
    if node.cordoned:
        return "it is cordoned"
    if report is None:
        return "its NodeReport is missing or old"
    if not any(pool.healthy for pool in report.pools):
        return "its agent offers no share"
    return _ill(report) or world.aside.get(name, "")


def _has_failed(node: model.RepairNode, now: datetime) -> bool:
    """Decide whether a node failed within the last day, by its annotation."""
    with suppress(ValueError, TypeError):  # what is no time, or one without a zone
        at = datetime.fromisoformat(node.failed.partition(" ")[0])
        return timedelta(0) <= now - at < _AGAIN
    return False


def _ill(report: NodeReportStatus) -> str:
    """Return which cards of a node are unhealthy or degraded, and why; "" if none is."""
    bad = ((card.name, *card.reasons, card.degraded) for card in report.pooled)
    return listed([f"{name}: {why[0]}" for name, *why in bad if any(why)], 2)


def _evidence(suspect: SuspectEntry) -> str:
    whose = f" of {suspect.device}" if suspect.device else ""
    why = f": {suspect.why}" if suspect.why else ""
    if suspect.median_measured and suspect.median_due:
        why = f": {suspect.median_measured} where {suspect.median_due} is due"
    return cut(plain(f"{suspect.pairs} of {suspect.of} pairs{whose} are bad{why}"))


def _receipt(
    world: BurnInWorld, name: str, at: str, result: str, remark: str, nodes: tuple[str, ...]
) -> BurnInReceipt:
    peers = tuple(one for one in nodes if one != name)
    cards = world.reports[name].pooled
    firmware = tuple(f"{card.name} {card.firmware}" for card in cards if card.firmware)
    return BurnInReceipt(at, world.policy.name, result, peers[:16], firmware[:64], remark)
