"""Which pods the controller evicts now, of those whose agents ask for a restart.

Behind rules/attach/repair, by which an agent asks; programs/controller/evictions does what is said
here. An agent that still asks writes it again with each try, every five minutes at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_rdma.model.attach.restart import RestartRequest
from kube_rdma.model.pod import PodState
from kube_rdma.rules.attach.repair import LONGEST

FRESH = 2 * LONGEST
"""Seconds for which a request counts; older ones are of an agent that has gone, or was healed."""

AT_ONCE = 2
"""Evictions in one round: what is wrong with many pods may be wrong with the network."""

Asked = tuple[PodState, RestartRequest]


def evictable(asked: Iterable[Asked], now: float, tried: Mapping[str, float]) -> list[Asked]:
    """Those that may go, whoever was tried least recently first; `tried` is by uid.

    The request has to be fresh, of the node that the pod runs on, and the pod one that an eviction
    ends: it runs, is not ending already, and is no static one. One that cannot start is Pending as
    a rule, and goes only if an owner makes another. Clocks of nodes may differ, so one from the
    future is judged like one from the past.
    """
    may = [one for one in asked if _may_go(*one) and abs(now - one[1].at) <= FRESH]
    return sorted(may, key=lambda one: (tried.get(one[0].uid, 0.0), one[1].at, one[0].uid))


def _may_go(pod: PodState, request: RestartRequest) -> bool:
    if request.outdated:
        is_there = pod.controlled and pod.phase in ("Pending", "Running")
    else:
        is_there = pod.phase == "Running"
    ends = is_there and not pod.deleting and not pod.is_static
    return ends and bool(pod.node) and pod.node == request.node
