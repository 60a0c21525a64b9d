"""The pods of `kube-rdma verify nodes` without a manifest: made from the nodes' NodeReports.

    NodeReports ─► one resource ─► for each node a pod with as many shares as open all its cards

They are on the node's own network, host to host: a report tells of cards and shares, and nothing
of the networks that jobs have. So a pool whose cards have no address on the node is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.model.pools.pool import Bind
from kube_rdma.model.reports.node_report import NodeReport, ReportedPool
from kube_rdma.pools.rules.modes import MODES, ModeRow, Takes

_FUNCTIONS = (
    "its pool gives virtual functions, which have no address on the node; give a pod with their "
    "network by -f"
)


class OwnPods(Frozen):
    """A pod for each node that can take part, and why others cannot.

    `cards` are cards of these nodes that are unhealthy: node, card and reason of each.
    """

    resource: str
    by_node: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str]
    cards: tuple[tuple[str, str, str], ...] = ()


def own_pods(reports: Mapping[str, NodeReport], resource: str, image: str) -> OwnPods:
    """The pods of a resource; without one it is the only one that nodes have. Raise Refused."""
    chosen = _chosen(reports, resource)
    by_node: dict[str, Mapping[str, Any]] = {}
    left_out: dict[str, str] = {}
    cards: list[tuple[str, str, str]] = []
    for node, report in sorted(reports.items()):
        pool = next((pool for pool in report.pools if pool.resource == chosen), None)
        why = f"its NodeReport has no pool {chosen}" if pool is None else _hindered(pool)
        if pool is None or why:
            left_out[node] = why
            continue
        by_node[node] = own_pod(chosen, _shares(pool, report), image)
        cards += [(node, name, why) for name, why in _unhealthy(report, chosen)]
    return OwnPods(chosen, by_node, left_out, tuple(cards))


def own_pod(resource: str, shares: int, image: str) -> dict[str, Any]:
    """A pod on the node's own network, which may lock memory as verbs need it.

    It tolerates taints that keep pods from being placed: nodes with cards often have one.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
            "containers": [
                {
                    "name": "verify",
                    "image": image,
                    "resources": {"limits": {resource: shares}},
                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                }
            ],
        },
    }


def _chosen(reports: Mapping[str, NodeReport], wanted: str) -> str:
    names = sorted({pool.resource for report in reports.values() for pool in report.pools})
    if not names:
        raise Refused(
            "no NodeReport has a pool of cards",
            remedy="See `kube-rdma status`, or give the manifest of a pod with -f",
            where="verify nodes",
        )
    listed = ", ".join(names)
    if wanted and wanted not in names:
        raise Refused(
            f"no NodeReport has a pool {wanted}",
            remedy=f"Choose one of {listed}",
            where="--resource",
        )
    if not wanted and len(names) > 1:
        raise Refused(
            f"the nodes have {len(names)} resources",
            remedy=f"Choose one with --resource: {listed}",
            where="verify nodes",
        )
    return wanted or names[0]


def _hindered(pool: ReportedPool) -> str:
    """Why a pool gives a pod on the node's network nothing to measure with; empty if it does."""
    row = _row(pool)
    if row is not None and row.takes is Takes.FUNCTION:
        return _FUNCTIONS
    return "" if pool.healthy else f"no share of {pool.resource} is healthy"


def _row(pool: ReportedPool) -> ModeRow | None:
    """What its mode means; None for one of a later release."""
    return next((row for mode, row in MODES.items() if mode == pool.mode), None)


def _shares(pool: ReportedPool, report: NodeReport) -> int:
    """One where it opens all cards of the pool, else one for each healthy card."""
    row = _row(pool)
    if row is None or row.bind is Bind.POOL:
        return 1
    cards = [card for card in report.cards if pool.resource in card.resources]
    healthy = sum(not card.reasons and not card.gone for card in cards)
    return max(1, min(healthy or pool.cards, pool.healthy))


def _unhealthy(report: NodeReport, resource: str) -> Iterator[tuple[str, str]]:
    for card in report.cards:
        if resource not in card.resources:
            continue
        if card.gone:
            yield card.name, "the node no longer has this card"
        elif card.reasons:
            yield card.name, card.reasons[0]
