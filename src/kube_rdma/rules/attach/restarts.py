"""Which pods have to be made anew, and which of them the controller evicts now.

Behind rules/attach/repair, by which an agent asks for the end of a pod that runs without its
networks, and behind rules/late_binding/early, which refuses a pod at every ADD because its
containers hold another device's nodes by now: a container keeps what it was given at Allocate, and
the kubelet does not ask again for a pod that it knows. Such a pod never runs, so repair sees no
sandbox of it; programs/agent/pod_networks/outdated_pods asks for its end by `refused`, a rule of
time: a state goes in and the next one comes out, `now` is of a monotonic clock. An agent that still
asks writes it again with each try, every five minutes at the latest, and
programs/controller/evictions does what `evictable` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.attach.restart import RestartRequest
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pod import PodState
from kube_rdma.rules.attach.repair import LONGEST, REFUSALS

FRESH = 2 * LONGEST
"""Seconds for which a request counts; older ones are of an agent that has gone, or was healed."""

AT_ONCE = 2
"""Evictions in one round: what is wrong with many pods may be wrong with the network."""

AGAIN = 60.0
"""Seconds from one request to the next: the kubelet tries several times a minute."""

RefusedKey = tuple[str, InterfaceName | None]
"""A pod's uid, and the interface that its ADD was about; None: all of them."""

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
