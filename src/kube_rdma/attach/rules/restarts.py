"""Which pods have to be made anew, and which of them the controller evicts now.

Behind attach/rules/repair, by which an agent asks for the end of a pod that runs without its
networks, and behind attach/rules/late_binding/early, which refuses a pod at every ADD because its
containers hold another device's nodes by now: a container keeps what it was given at Allocate, and
the kubelet does not ask again for a pod that it knows. Such a pod never runs, so repair sees no
sandbox of it; attach/outdated_pods asks for its end by `refused`, a rule of
time: a state goes in and the next one comes out, `now` is of a monotonic clock. An agent that still
asks writes it again with each try, every five minutes at the latest, and
controller/evictions does what `evictable` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from kube_base.frozen import Frozen
from kube_rdma.attach.rules.repair import LONGEST, REFUSALS
from kube_rdma.lib.turns import served
from kube_rdma.model.attach.restart import RestartRequest
from kube_rdma.model.conditions import moment
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pod import PodState

FRESH = 2 * LONGEST
"""Seconds for which a request counts; older ones are of an agent that has gone, or was healed."""

AT_ONCE = 2
"""Evictions in one round: what is wrong with many pods may be wrong with the network."""

AGAIN = 60.0
"""Seconds from one request to the next: the kubelet tries several times a minute."""

LONGEST_WAIT = 3600.0
"""Seconds that a pod waits at most which replaces others that asked too."""

RefusedKey = tuple[str, InterfaceName | None]
"""A pod's uid, and the interface that its ADD was about; None: all of them."""

Asked = tuple[PodState, RestartRequest]


class Evicted(Frozen):
    """When pods of an owner were evicted first and last.

    `vain` were made after the first time: what they replaced had asked too.
    """

    first: float
    last: float
    vain: int = 0


class EvictionTurns(Frozen):
    """When namespaces, owners in them and their pods were tried; which owners lost pods."""

    last: Mapping[tuple[str, ...], float] = {}
    evicted: Mapping[tuple[str, ...], Evicted] = {}

    def tried(self, pod: PodState, now: float, *, evicted: bool) -> EvictionTurns:
        """The same after a try to evict a pod."""
        last, lost = self.last, self.evicted
        for line in _lines(pod):
            last = served(last, line, now)
        if evicted:
            owner = _lines(pod)[1]
            before = lost.get(owner)
            if before is None or now - before.last > 2 * LONGEST_WAIT:
                before = Evicted(now, now)
            vain = before.vain + _is_later(pod, before)
            lost = served(lost, owner, Evicted(before.first, now, vain))
        return EvictionTurns(last, lost)


def evictable(asked: Iterable[Asked], now: float, turns: EvictionTurns) -> list[Asked]:
    """Those that may go.

    The request has to be fresh, of the node that the pod runs on, and the pod one that an eviction
    ends: it runs, is not ending already, and is no static one. One that cannot start is Pending as
    a rule, and goes only if an owner makes another. Clocks of nodes may differ, so one from the
    future is judged like one from the past. A pod that replaces an evicted one waits, each time
    twice as long.
    """
    return [
        one
        for one in asked
        if _may_go(*one) and abs(now - one[1].at) <= FRESH and not _waits(one[0], now, turns)
    ]


def turn(asked: Asked, turns: EvictionTurns) -> tuple[object, ...]:
    """Who is tried next has the least: namespaces have turns, then owners, then pods."""
    pod, request = asked
    return (*(turns.last.get(line, 0.0) for line in _lines(pod)), request.at, pod.uid)


def _lines(pod: PodState) -> tuple[tuple[str, ...], ...]:
    """Namespace, owner and pod: the queues in which it stands."""
    owner = pod.owner or pod.name
    return (pod.namespace,), (pod.namespace, owner), (pod.namespace, owner, pod.uid)


def _waits(pod: PodState, now: float, turns: EvictionTurns) -> bool:
    lost = turns.evicted.get(_lines(pod)[1])
    if lost is None or not _is_later(pod, lost):
        return False
    return now - lost.last < min(LONGEST_WAIT, AGAIN * 2.0 ** min(lost.vain, 16))


def _is_later(pod: PodState, lost: Evicted) -> bool:
    """Whether a pod was made after the first eviction; the API server tells whole seconds."""
    return pod.created >= moment(datetime.fromtimestamp(lost.first, UTC))


class RefusedAdd(Frozen):
    """Refusals of a key in a row, the last one `at`; `asked`: when the pod's end was asked for."""

    times: int
    at: float
    asked: float | None = None


def refused(
    before: Mapping[RefusedKey, RefusedAdd], key: RefusedKey, now: float
) -> tuple[dict[RefusedKey, RefusedAdd], bool]:
    """The state after one more refusal, and whether to ask now; those of long ago are forgotten.

    One alone may be of a number that another device held for a moment.
    """
    kept = {each: one for each, one in before.items() if now - one.at <= LONGEST}
    last = kept.get(key, RefusedAdd(0, now))
    lasts = last.times + 1 >= REFUSALS
    asks = lasts and (last.asked is None or now - last.asked >= AGAIN)
    return {**kept, key: RefusedAdd(last.times + 1, now, now if asks else last.asked)}, asks


def is_remade(pod: PodState) -> bool:
    """Whether somebody makes another pod in place of this one: only then its end is asked for.

    Of a static pod only the mirror in the API would go, and the kubelet makes it again.
    """
    return pod.controlled and not pod.is_static


def _may_go(pod: PodState, request: RestartRequest) -> bool:
    if request.outdated:
        is_there = pod.controlled and pod.phase in ("Pending", "Running")
    else:
        is_there = pod.phase == "Running"
    ends = is_there and not pod.deleting and not pod.is_static
    return ends and bool(pod.node) and pod.node == request.node
