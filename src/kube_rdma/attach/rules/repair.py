"""Decides which sandboxes lack networks, which attachments are left over, and which pods must go.

The kubelet never repeats an ADD that succeeded. If somebody rewrites the CNI configuration, a
sandbox may start without the networks that its pod asks for, and does not recover by itself. A DEL
that never comes leaves an attachment behind. attach/repair looks again and again and does what
`decide` says. Where only a new pod helps, the agent asks for that and the controller evicts the pod
(controller/evictions). Rules of time: a state goes in and the next one comes out. `now` is in
seconds: of a monotonic clock for repairs and refused ADDs, of the wall clock for evictions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.requests import is_asking
from kube_rdma.lib.turns import served
from kube_rdma.model.attach.attachment import Attachment, RestartRequest
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState, moment
from kube_rdma.model.late_binding import ContainerId, PodName, PodSandbox

GRACE = 5.0
"""Seconds for which a ready sandbox may lack its networks. containerd lists it after ADD; where a
runtime lists it before, its ADD may be on its way."""

ABSENT = 300.0
"""Seconds for which the runtime's list must lack a sandbox before its attachment is removed, while
its namespace is there. containerd lists a sandbox only when all of it is made, and may pull the
pause image between ADD and that. The kubelet gives it four minutes (twice its request timeout)."""

FIRST, LONGEST = 30.0, 300.0
"""Seconds from one try to the next, doubled from the first."""

REFUSALS, FAILURES = 2, 6
"""How often a repair is refused, or fails at all, before the pod's restart is asked for. One
refusal may be of a network that is being made."""

STATUS = "k8s.v1.cni.cncf.io/network-status"
OWN_STATUS = "kube-rdma.io/network-status"

_OVER = ("Succeeded", "Failed")

_NONE: Mapping[ContainerId, Any] = MappingProxyType({})


class RepairView(Frozen):
    """The input of one round of repair: sandboxes, pods and attachments of a node.

    Sandboxes were listed before the attachments were read.
    """

    sandboxes: tuple[PodSandbox, ...]
    pods: tuple[PodState, ...]  # of the node; none while others give pods their networks
    attachments: tuple[Attachment, ...]
    gone: Collection[ContainerId] = frozenset()  # attached, and their network namespace is no more
    foreign: Collection[ContainerId] = frozenset()  # attached by another version of kube-rdma


class FailedRepairs(Frozen):
    """The consecutive failures to repair one sandbox, and when to try again."""

    refusals: int
    failures: int  # refusals too
    due: float  # time of the next try


class RepairState(Frozen):
    """The state of repairs from the rounds before, by container."""

    lacking: Mapping[ContainerId, float] = _NONE  # since when it lacks its networks
    absent: Mapping[ContainerId, float] = _NONE  # since when the runtime does not know it
    tried: Mapping[ContainerId, FailedRepairs] = _NONE
    content: frozenset[ContainerId] = frozenset()  # their pods turned out to ask for nothing


class RepairDecision(Frozen):
    """The sandboxes that get their networks now, and the attachments to remove."""

    missing: tuple[PodSandbox, ...]
    orphans: tuple[ContainerId, ...]
    state: RepairState


def decide(seen: RepairView, before: RepairState, now: float) -> RepairDecision:
    """Return the repairs to make now, and the state for the next round."""
    lacking = {one.container: one for one in _lacking(seen) if one.container not in before.content}
    state = RepairState(
        lacking={container: before.lacking.get(container, now) for container in lacking},
        absent={container: before.absent.get(container, now) for container in _absent(seen)},
        tried={key: tried for key, tried in before.tried.items() if key in lacking},
        content=before.content & {one.container for one in seen.sandboxes},
    )
    missing = tuple(one for one in lacking.values() if _due(state, one.container) <= now)
    unknown = state.absent.items()
    orphans = tuple(key for key, since in unknown if key in seen.gone or since + ABSENT <= now)
    return RepairDecision(missing, orphans, state)


def failed(state: RepairState, container: ContainerId, now: float, *, refused: bool) -> RepairState:
    """Return the state after a failed repair."""
    last = state.tried.get(container, FailedRepairs(0, 0, 0.0))
    pause = min(LONGEST, FIRST * 2.0 ** min(last.failures, 16))
    tried = FailedRepairs(last.refusals + 1 if refused else 0, last.failures + 1, now + pause)
    return replace(state, tried={**state.tried, container: tried})


def asks_for_nothing(state: RepairState, container: ContainerId) -> RepairState:
    """Return the state after a repair that found no network to make."""
    return replace(state, content=state.content | {container})


def is_hopeless(state: RepairState, container: ContainerId, pod: PodState) -> bool:
    """Return whether to evict a running pod without networks, as its repair failed too often.

    That is after REFUSALS refused repairs in a row, or FAILURES failed ones. A Pending pod waits
    for the repair: PreStartContainer holds back its containers with shares that are bound late.
    """
    tried = state.tried.get(container)
    if tried is None or pod.phase != "Running" or pod.deleting:
        return False
    return tried.refusals >= REFUSALS or tried.failures >= FAILURES


def is_owed(sandbox: PodSandbox, pod: PodState, asking: int | None, chained: int | None) -> bool:
    """Return whether a sandbox surely started without networks that it should have had.

    Only then may a failed repair evict its pod. `asking` says since when the pod is known to ask,
    `chained` since when the runtime is known to call kube-rdma. Both are nanoseconds of the wall
    clock, None for never. A pod that was annotated while it ran, or ran before kube-rdma came, has
    missed nothing. Nor does it help to evict a static pod: only its mirror in the API goes, and the
    kubelet makes it again.
    """
    if asking is None or chained is None or pod.is_static:
        return False
    return sandbox.created >= max(asking, chained)


def due(state: RepairState, now: float) -> float:
    """Return when the next repair or removal is due; infinity for never."""
    missing = [_due(state, container) for container in state.lacking.keys() - state.content]
    orphans = [since + ABSENT for since in state.absent.values()]
    return min((when for when in (*missing, *orphans) if when > now), default=float("inf"))


def is_others(pod: PodState) -> bool:
    """Return whether another program gave the pod its networks, by its status annotations.

    Multus may have done so before kube-rdma was installed.
    """
    annotations = dict(pod.annotations)
    if OWN_STATUS in annotations:
        return False
    try:
        entries = decoded(annotations.get(STATUS, ""))
    except Undecodable:
        return False
    if not isinstance(entries, list):
        return False
    return any(isinstance(one, dict) and not one.get("default") for one in entries)


def _lacking(seen: RepairView) -> Iterable[PodSandbox]:
    """Return sandboxes without a complete attachment: the newest ready one of each asking pod.

    Pods that end or have ended, or got networks from another program or version, are left out.
    """
    pods = {
        (PodName(pod.namespace, pod.name), pod.runtime_uid)
        for pod in seen.pods
        if is_asking(pod) and not pod.deleting and pod.phase not in _OVER and not is_others(pod)
    }
    newest: dict[tuple[PodName, str], PodSandbox] = {}
    for sandbox in sorted(seen.sandboxes, key=lambda one: one.created):
        if sandbox.ready and (sandbox.pod, sandbox.uid) in pods:
            newest[sandbox.pod, sandbox.uid] = sandbox
    complete = {one.sandbox.container for one in seen.attachments if one.complete}
    return [one for one in newest.values() if one.container not in {*complete, *seen.foreign}]


def _absent(seen: RepairView) -> list[ContainerId]:
    """Return the containers with a complete attachment whose sandbox is missing or has ended.

    It has ended when it is not ready and its network namespace is gone.
    """
    sandboxes = {one.container: one for one in seen.sandboxes}
    # The agent's own pod has a sandbox: if a runtime lists none, the kubelet uses another one.
    if not sandboxes:
        return []
    containers = []
    for attachment in seen.attachments:
        container = attachment.sandbox.container
        sandbox = sandboxes.get(container)
        has_ended = sandbox is not None and not sandbox.ready and container in seen.gone
        if attachment.complete and (sandbox is None or has_ended):
            containers.append(container)
    return containers


def _due(state: RepairState, container: ContainerId) -> float:
    if tried := state.tried.get(container):
        return tried.due
    return state.lacking[container] + GRACE


# Pods that have to be made anew, and which of them the controller evicts now.

FRESH = 2 * LONGEST
"""Seconds for which a request counts; an older one is of an agent that is gone, or of a pod that is
healed."""

AT_ONCE = 2
"""Evictions in one round: what is wrong with many pods may be wrong with the network."""

AGAIN = 60.0
"""Seconds from one request to the next, as the kubelet tries several times a minute; also the first
wait of an evicted pod's successor."""

LONGEST_WAIT = 3600.0
"""The longest time in seconds that a pod waits for its eviction if it replaces an evicted one."""

RefusedKey = tuple[str, InterfaceName | None]
"""A pod's uid, and the interface that its ADD was about; None: all of them."""

RestartCandidate = tuple[PodState, RestartRequest]


class OwnerEvictions(Frozen):
    """The times of the first and last eviction among an owner's pods."""

    first: float
    last: float
    vain: int = 0  # pods that were made after the first one, and had to go too


class EvictionTurns(Frozen):
    """The last tries to evict, by namespace, owner and pod, and the evictions of owners' pods."""

    last: Mapping[tuple[str, ...], float] = {}
    evicted: Mapping[tuple[str, ...], OwnerEvictions] = {}

    def tried(self, pod: PodState, now: float, *, evicted: bool) -> EvictionTurns:
        """Return the turns after an attempt to evict a pod."""
        last, lost = self.last, self.evicted
        for line in _lines(pod):
            last = served(last, line, now)
        if evicted:
            owner = _lines(pod)[1]
            before = lost.get(owner)
            if before is None or now - before.last > 2 * LONGEST_WAIT:
                before = OwnerEvictions(now, now)
            vain = before.vain + _is_later(pod, before)
            lost = served(lost, owner, OwnerEvictions(before.first, now, vain))
        return EvictionTurns(last, lost)


def evictable(
    asked: Iterable[RestartCandidate], now: float, turns: EvictionTurns
) -> list[RestartCandidate]:
    """Return the candidates that may be evicted now.

    The request has to be fresh, and of the node that the pod runs on. The pod has to run; it must
    be neither static nor ending already. A pod with outdated device nodes may be Pending too, but
    needs an owner that makes another. Clocks of nodes may differ, so a request from the future is
    judged like one from the past. A pod that replaces an evicted one waits, each time twice as
    long.
    """
    fresh = (one for one in asked if _may_go(*one) and abs(now - one[1].at) <= FRESH)
    return [one for one in fresh if not _waits(one[0], now, turns)]


def turn(asked: RestartCandidate, turns: EvictionTurns) -> tuple[object, ...]:
    """Return the sort key for evictions: who waited longest, by namespace, owner and pod."""
    pod, request = asked
    return (*(turns.last.get(line, 0.0) for line in _lines(pod)), request.at, pod.uid)


def _lines(pod: PodState) -> tuple[tuple[str, ...], ...]:
    """Return the keys of a pod's namespace, owner and itself, for turns."""
    owner = pod.owner or pod.name
    return (pod.namespace,), (pod.namespace, owner), (pod.namespace, owner, pod.uid)


def _waits(pod: PodState, now: float, turns: EvictionTurns) -> bool:
    lost = turns.evicted.get(_lines(pod)[1])
    if lost is None or not _is_later(pod, lost):
        return False
    return now - lost.last < min(LONGEST_WAIT, AGAIN * 2.0 ** min(lost.vain, 16))


def _is_later(pod: PodState, lost: OwnerEvictions) -> bool:
    """Return whether a pod was created in the second of its owner's first eviction or later."""
    return pod.created >= moment(datetime.fromtimestamp(lost.first, UTC))


class RefusedAdd(Frozen):
    """The number of times in a row that an ADD was refused, and when."""

    times: int
    at: float  # the last one
    asked: float | None = None  # when the pod's end was asked for


def refused(
    before: Mapping[RefusedKey, RefusedAdd], key: RefusedKey, now: float
) -> tuple[dict[RefusedKey, RefusedAdd], bool]:
    """Return the state after one more refused ADD, and whether to ask for an eviction now.

    One refusal alone is not enough: another device may have had the number of a device node for a
    moment. Refusals older than LONGEST are forgotten.
    """
    kept = {each: one for each, one in before.items() if now - one.at <= LONGEST}
    last = kept.get(key, RefusedAdd(0, now))
    lasts = last.times + 1 >= REFUSALS
    asks = lasts and (last.asked is None or now - last.asked >= AGAIN)
    return {**kept, key: RefusedAdd(last.times + 1, now, now if asks else last.asked)}, asks


def is_remade(pod: PodState) -> bool:
    """Return whether a controller will make another pod if this one is deleted.

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
