"""Who has what of devices while a claim is being allocated: others, and the claim's choices so far.

Part of claims/rules/claim_search. As k8s.io/dynamic-resource-allocation v0.36.3 has it,
structured/internal/incubating/allocator_incubating.go, allocateDevice and checkAvailableCounters.
There counters are kept by the name of the pool alone: of two drivers whose pools have one name, the
counters of the pool that is asked first stand for both. It is so here too, for it decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.claims.rules import capacity
from kube_rdma.claims.rules.constraints import ConstraintState
from kube_rdma.claims.rules.pools import DevicePool
from kube_rdma.model.claims.claim import Claim, ClaimRequest
from kube_rdma.model.claims.device import SliceDevice
from kube_rdma.model.claims.listed import ListedDevice, ListedSlice, ListedTaint
from kube_rdma.model.claims.verdict import Objection, Reason

_KEEPING_AWAY = ("NoSchedule", "NoExecute")
_Counters = dict[str, dict[str, Fraction]]


class Candidate(Frozen):
    """A device that a node can reach, with its slice and its pool."""

    id: SliceDevice
    device: ListedDevice
    part: ListedSlice
    pool: DevicePool


class DeviceChoice(Frozen):
    """A device that is chosen for a request, and what the request takes of it."""

    request: ClaimRequest
    candidate: Candidate
    capacity: Mapping[str, Fraction]
    counted: bool  # its counters were taken


class DeviceState:
    """What is left. Choices are taken back in the opposite order."""

    def __init__(self, others: Iterable[Claim], constraints: Iterable[ConstraintState]) -> None:
        self._holders: dict[SliceDevice, str] = {}
        self._shared: dict[SliceDevice, str] = {}
        self._used: dict[SliceDevice, dict[str, Fraction]] = {}
        self._available: dict[str, _Counters] = {}
        self._consumed: dict[str, _Counters] = defaultdict(lambda: defaultdict(dict))
        self._constraints = tuple(constraints)
        self.choices: list[DeviceChoice] = []
        for claim in others:
            self._hold(claim)

    def in_use(self, request: ClaimRequest, id_: SliceDevice) -> Objection | None:
        """Whether somebody has the whole device; admin access minds only this claim's choices."""
        for choice in self.choices:
            if choice.candidate.id == id_ and not choice.candidate.device.shared:
                return Objection(Reason.IN_USE, f"it is chosen for request {choice.request.name}")
        if not request.admin and id_ in self._holders:
            return Objection(Reason.IN_USE, f"claim {self._holders[id_]} holds it")
        return None

    def short(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """What is against the device for want of capacity."""
        chosen: dict[str, Fraction] = {}
        for choice in self._shares(candidate):
            _add(chosen, choice.capacity)
        used = self._used.get(candidate.id, {})
        return capacity.objection(candidate.device.capacity, request.capacity, used, chosen)

    def take(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Choose a device that the request's selectors take, or say what is against it.

        A constraint that took it before another refused it takes it back, as one of the scheduler.
        """
        objection = self._occupied(request, candidate)
        if objection:
            return objection
        added: list[ConstraintState] = []
        for state in self._constraints:
            text = state.add(request, candidate.id.driver, candidate.device)
            if text:
                objection = Objection(Reason.CONSTRAINT, text)
                break
            added.append(state)
        objection = objection or self.short(request, candidate)
        if objection:
            _take_back(added, request)
            return objection
        counted = self._needs_counters(candidate)
        if counted:
            self._consume(candidate, 1)
        taken = (
            capacity.taken(candidate.device.capacity, request.capacity)
            if candidate.device.shared
            else {}
        )
        self.choices.append(DeviceChoice(request, candidate, taken, counted))
        return None

    def against(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """What `take` would answer; nothing changes."""
        kept = self._constraints
        self._constraints = tuple(state.copied() for state in kept)
        try:
            objection = self.take(request, candidate)
            if objection is None:
                self.give_back()
        finally:
            self._constraints = kept
        return objection

    def give_back(self) -> None:
        """Take the last choice back."""
        last = self.choices.pop()
        _take_back(self._constraints, last.request)
        if last.counted:
            self._consume(last.candidate, -1)

    def _occupied(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        objection = self.in_use(request, candidate.id)
        if objection is None and self._needs_counters(candidate):
            objection = self._counters_short(candidate)
        return objection or _tainted(request, candidate.device.taints)

    def _hold(self, claim: Claim) -> None:
        holder = f"{claim.namespace}/{claim.name}"
        for held in claim.held or ():
            if held.admin:
                continue
            if held.share is None:
                self._holders[held.device] = holder
                continue
            self._shared[held.device] = holder
            if held.capacity:
                _add(self._used.setdefault(held.device, {}), held.capacity)

    def _shares(self, candidate: Candidate) -> list[DeviceChoice]:
        """The choices of a device that may be had several times."""
        return [
            choice
            for choice in self.choices
            if choice.candidate.id == candidate.id and candidate.device.shared
        ]

    def _needs_counters(self, candidate: Candidate) -> bool:
        """A device that somebody shares already has taken its counters."""
        shared = candidate.device.shared and (
            candidate.id in self._used or bool(self._shares(candidate))
        )
        return bool(candidate.device.uses) and not shared

    def _counters_short(self, candidate: Candidate) -> Objection | None:
        name = candidate.pool.name
        if name not in self._available:
            self._available[name] = self._left(candidate.pool)
        self._consume(candidate, 1)
        try:
            for counter_set, counters in self._available[name].items():
                consumed = self._consumed[name].get(counter_set, {})
                for counter, left in counters.items():
                    want = consumed.get(counter, Fraction(0))
                    if left < want:
                        return _counter_objection(candidate, counter_set, counter, left - want)
        finally:
            self._consume(candidate, -1)
        return None

    def _left(self, pool: DevicePool) -> _Counters:
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        for part in (*pool.slices, *pool.elsewhere):
            for device in part.devices:
                id_ = SliceDevice(pool.driver, pool.name, device.name)
                if id_ in self._holders or id_ in self._shared:
                    for use in device.uses:
                        for counter, amount in use.counters.items():
                            left[use.counter_set][counter] -= amount
        return left

    def _consume(self, candidate: Candidate, sign: int) -> None:
        consumed = self._consumed[candidate.pool.name]
        for use in candidate.device.uses:
            counters = consumed[use.counter_set]
            for counter, amount in use.counters.items():
                counters[counter] = counters.get(counter, Fraction(0)) + sign * amount


def _take_back(states: Sequence[ConstraintState], request: ClaimRequest) -> None:
    for state in reversed(states):
        state.remove(request)


def _add(sums: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, Fraction(0)) + amount


def _counter_objection(candidate: Candidate, name: str, counter: str, over: Fraction) -> Objection:
    own = next(
        (use.counters.get(counter) for use in candidate.device.uses if use.counter_set == name), 0
    )
    want, left = Fraction(own or 0), Fraction(own or 0) + over
    text = f"{capacity.shown(want)} of counter {name}/{counter} is wanted"
    return Objection(Reason.COUNTER, f"{text}, {capacity.shown(max(left, Fraction(0)))} is left")


def _tainted(request: ClaimRequest, taints: Iterable[ListedTaint]) -> Objection | None:
    for taint in taints:
        if taint.effect in _KEEPING_AWAY and not _tolerated(request, taint):
            value = f"={taint.value}" if taint.value else ""
            text = f"taint {taint.key}{value}:{taint.effect} is not tolerated"
            return Objection(Reason.TAINT, text)
    return None


def _tolerated(request: ClaimRequest, taint: ListedTaint) -> bool:
    """resourceclaim/devicetoleration.go of the same module: an operator it knows not takes none."""
    for toleration in request.tolerations:
        fits = toleration.effect in ("", taint.effect) and toleration.key in ("", taint.key)
        equal = toleration.operator in ("", "Equal") and toleration.value == taint.value
        if fits and (equal or toleration.operator == "Exists"):
            return True
    return False
