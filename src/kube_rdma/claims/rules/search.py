"""Searches devices for a claim on a node: in the scheduler's order, the first choice wins.

claims/rules/verdicts calls it. The rules are those of k8s.io/dynamic-resource-allocation v0.36.3,
structured/internal/incubating/allocator_incubating.go, with the gates that Kubernetes 1.36 has on
by default. tests/lab/native/test_claim_verdicts.py compares both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.claims.rules.cel.evaluate import MOST_STEPS_TOGETHER, Selectors
from kube_rdma.claims.rules.cel.functions import EvaluationError
from kube_rdma.claims.rules.pools import DevicePool, is_for, pools_of
from kube_rdma.model.claims import devices as model
from kube_rdma.model.claims.claim import (
    ClaimConstraint,
    ClaimNode,
    ClaimRequest,
    ClaimWorld,
    Objection,
    Reason,
    ResourceClaim,
)
from kube_rdma.model.kubernetes import cut

# Constraints: attributes in which the devices of a claim agree or differ, while they are chosen.


class ConstraintState:
    """A constraint of a claim, with the attribute values of the chosen devices."""

    def __init__(self, constraint: ClaimConstraint) -> None:
        self.constraint = constraint
        self._values: dict[
            str, model.DeviceAttribute
        ] = {}  # by request; for matchAttribute one value, under ""
        self._count = 0

    def add(self, request: ClaimRequest, driver: str, device: model.ListedDevice) -> str:
        """Add a chosen device and return "", or return why the constraint forbids the device."""
        if not self._concerns(request):
            return ""
        name = self.constraint.attribute
        value = _attribute(driver, device, name)
        if value is None or value.value is None:
            return f"it has no attribute {name}"
        others = self._values.values() if self._count else ()
        if self.constraint.distinct:
            if value in others:
                return f"{name} is {_shown_value(value)}, as of a device chosen before"
            self._values[_main(request)] = value
        else:
            other = next((one for one in others if one != value), None)
            if other is not None:
                shown_other = _shown_value(other)
                return f"{name} is {_shown_value(value)}, of the device chosen before {shown_other}"
            if not self._count:
                self._values[""] = value
        self._count += 1
        return ""

    def remove(self, request: ClaimRequest) -> None:
        """Remove the request's last device from the constraint."""
        if not self._concerns(request):
            return
        self._count -= 1
        if self.constraint.distinct:
            self._values.pop(_main(request), None)

    def copied(self) -> ConstraintState:
        """Return a copy with the same chosen devices."""
        other = ConstraintState(self.constraint)
        other._values, other._count = dict(self._values), self._count
        return other

    def _concerns(self, request: ClaimRequest) -> bool:
        names = self.constraint.requests
        return not names or request.name in names or _main(request) in names


def _attribute(driver: str, device: model.ListedDevice, name: str) -> model.DeviceAttribute | None:
    """Return a device's attribute by its full name; None without it.

    Slices may leave out the domain of a driver's own attributes.
    """
    if name in device.attributes:
        return device.attributes[name]
    domain, slash, bare = name.partition("/")
    return device.attributes.get(bare) if slash and domain == driver else None


def _main(request: ClaimRequest) -> str:
    return request.name.partition("/")[0]


def _shown_value(attribute: model.DeviceAttribute) -> str:
    return str(attribute.value).lower() if attribute.truth is not None else str(attribute.value)


# Capacities: how much of a device's capacities a request takes, and whether that much is left.

Amounts = Mapping[str, Fraction]
_NOTHING: Amounts = {}
_UNITS = (
    *((suffix, 1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")),
    *((f"{suffix}i", 1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")),
)


def taken_capacity(
    capacities: Mapping[str, model.DeviceCapacity], asked: Amounts
) -> dict[str, Fraction]:
    """Return how much of each capacity of a device a request takes."""
    return {name: _taken(asked.get(name), one) for name, one in capacities.items()}


def objection(
    capacities: Mapping[str, model.DeviceCapacity],
    asked: Amounts,
    used: Amounts = _NOTHING,
    chosen: Amounts = _NOTHING,
) -> Objection | None:
    """Return the objection to a device whose capacities do not allow what a request asks.

    Return None without one. `used` is what other claims hold, `chosen` what this claim has already.
    """
    missing = sorted(set(asked) - set(capacities))
    if missing:
        return Objection(Reason.CAPACITY_UNKNOWN, f"it has no capacity {missing[0]}")
    for name, capacity in sorted(capacities.items()):
        amount = _taken(asked.get(name), capacity)
        if _breaks(amount, capacity.request_policy):
            text = f"{shown(amount)} of {name} is not among the amounts that it allows"
            return Objection(Reason.CAPACITY, text)
        left = capacity.value - used.get(name, 0) - chosen.get(name, 0)
        if amount > left:
            text = f"{shown(amount)} of {name} is wanted, {shown(left)} is left"
            return Objection(Reason.CAPACITY, f"{text} of {shown(capacity.value)}")
    return None


def shown(amount: Fraction) -> str:
    """Return an amount in its shortest form: 400G, 16, 40Gi."""
    plain = str(amount) if amount.denominator == 1 else f"{float(amount):g}"
    texts = (f"{amount // unit}{suffix}" for suffix, unit in _UNITS if amount % unit == 0)
    return min((plain, *texts), key=len) if amount else plain


def _taken(asked: Fraction | None, capacity: model.DeviceCapacity) -> Fraction:
    policy = capacity.request_policy
    if asked is None:
        default = policy.default if policy else None
        return capacity.value if default is None else default
    if policy is None:
        return asked
    span = policy.valid_range
    if span is None or span.min is None:
        return min((one for one in policy.valid_values if asked <= one), default=asked)
    if asked < span.min or span.step is None:
        return max(asked, span.min)
    step, start = math.ceil(span.step), math.ceil(span.min)
    return Fraction(start - (start - math.ceil(asked)) // step * step)


def _breaks(amount: Fraction, policy: model.CapacityPolicy | None) -> bool:
    """Return whether a capacity's policy forbids an amount; its default is always allowed."""
    if policy is None or amount == policy.default:
        return False
    span = policy.valid_range
    if span is None:
        return bool(policy.valid_values) and amount not in policy.valid_values
    if span.max is not None and amount > span.max:
        return True
    if span.step is None:
        return False
    return (math.ceil(amount) - math.ceil(span.min or 0)) % math.ceil(span.step) != 0


# Devices while a claim is being allocated: what others hold, and what the claim has chosen so far.

_Counters = dict[str, dict[str, Fraction]]


class Candidate(Frozen):
    """A device in the slices that a node reaches, with its slice and pool."""

    id: model.SliceDevice
    device: model.ListedDevice
    part: model.ResourceSlice
    pool: DevicePool


class DeviceChoice(Frozen):
    """A device that the search has chosen for a request, with its capacity."""

    request: ClaimRequest
    candidate: Candidate
    capacity: Mapping[str, Fraction]  # that the request takes
    counted: bool  # its counters were taken


class DeviceState:
    """A record of what other claims hold, and of the devices that the search has chosen so far.

    Choices are undone in the opposite order.
    """

    def __init__(
        self, others: Iterable[ResourceClaim], constraints: Iterable[ConstraintState]
    ) -> None:
        self._holders: dict[model.SliceDevice, str] = {}
        self._shared: set[model.SliceDevice] = set()
        self._used: dict[model.SliceDevice, dict[str, Fraction]] = {}
        self._available: dict[str, _Counters] = {}
        self._consumed: dict[str, _Counters] = defaultdict(lambda: defaultdict(dict))
        self._constraints = tuple(constraints)
        self.choices: list[DeviceChoice] = []
        for claim in others:
            for held in claim.devices:
                if held.admin:
                    continue
                if held.share is None:
                    self._holders[held.id] = str(claim.claim)
                    continue
                self._shared.add(held.id)
                if held.capacity:
                    _add(self._used.setdefault(held.id, {}), held.capacity)

    def in_use(self, request: ClaimRequest, id_: model.SliceDevice) -> Objection | None:
        """Return an objection if the whole device is taken.

        For a request with adminAccess only this claim's own choices count.
        """
        for choice in self.choices:
            if choice.candidate.id == id_ and not choice.candidate.device.shared:
                return Objection(Reason.IN_USE, f"it is chosen for request {choice.request.name}")
        if not request.admin and id_ in self._holders:
            return Objection(Reason.IN_USE, f"claim {self._holders[id_]} holds it")
        return None

    def short(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Return an objection if the device lacks capacity for the request."""
        chosen: dict[str, Fraction] = {}
        for choice in self._shares(candidate):
            _add(chosen, choice.capacity)
        used = self._used.get(candidate.id, {})
        return objection(candidate.device.capacity, request.capacity, used, chosen)

    def take(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Choose a device for a request, or return the objection to it.

        Constraints that had accepted a device before it was refused remove it again.
        """
        objection = self.in_use(request, candidate.id)
        if objection is None and self._needs_counters(candidate):
            objection = self._counters_short(candidate)
        objection = objection or _tainted(request, candidate.device.taints)
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
        device, taken = candidate.device, {}
        if device.shared:
            taken = taken_capacity(device.capacity, request.capacity)
        self.choices.append(DeviceChoice(request, candidate, taken, counted))
        return None

    def against(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Return the objection that `take` would return, without choosing the device."""
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
        """Undo the last choice."""
        last = self.choices.pop()
        _take_back(self._constraints, last.request)
        if last.counted:
            self._consume(last.candidate, -1)

    def _shares(self, candidate: Candidate) -> list[DeviceChoice]:
        """Return the choices of a device so far; none for a device that cannot be shared."""
        if not candidate.device.shared:
            return []
        return [choice for choice in self.choices if choice.candidate.id == candidate.id]

    def _needs_counters(self, candidate: Candidate) -> bool:
        """Return whether a device takes counters; a shared one in use has taken them already."""
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
        """Return how much of each counter of a pool is free beside other claims' devices."""
        left = {
            name: {counter: one.value for counter, one in counters.counters.items()}
            for name, counters in pool.counter_sets.items()
        }
        for device in (d for part in (*pool.slices, *pool.elsewhere) for d in part.spec.devices):
            id_ = model.SliceDevice(pool.driver, pool.name, device.name)
            if id_ in self._holders or id_ in self._shared:
                for use in device.uses:
                    for counter, one in use.counters.items():
                        left[use.counter_set][counter] -= one.value
        return left

    def _consume(self, candidate: Candidate, sign: int) -> None:
        consumed = self._consumed[candidate.pool.name]
        for use in candidate.device.uses:
            counters = consumed[use.counter_set]
            for counter, one in use.counters.items():
                counters[counter] = counters.get(counter, Fraction(0)) + sign * one.value


def _take_back(states: Sequence[ConstraintState], request: ClaimRequest) -> None:
    for state in reversed(states):
        state.remove(request)


def _add(sums: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, Fraction(0)) + amount


def _counter_objection(candidate: Candidate, name: str, counter: str, over: Fraction) -> Objection:
    uses = (use.counters.get(counter) for use in candidate.device.uses if use.counter_set == name)
    own = next(uses, None)
    want = own.value if own else Fraction(0)
    text = f"{shown(want)} of counter {name}/{counter} is wanted"
    return Objection(Reason.COUNTER, f"{text}, {shown(max(want + over, Fraction(0)))} is left")


def _tainted(request: ClaimRequest, taints: Iterable[model.DeviceTaint]) -> Objection | None:
    for taint in taints:
        keeps_away = taint.effect in (model.TaintEffect.NO_SCHEDULE, model.TaintEffect.NO_EXECUTE)
        place = (taint.key, taint.value, taint.effect)
        if keeps_away and not any(each.covers(*place) for each in request.tolerations):
            shown = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
            if not isinstance(taint, model.RuleTaint):
                return Objection(Reason.TAINT, f"taint {shown} is not tolerated")
            text = f"taint {shown} of DeviceTaintRule {taint.rule} is not tolerated: tolerate it in"
            text = f"{text} the request, or have the rule deleted"
            return Objection(Reason.TAINT, text, f"DeviceTaintRule {taint.rule} ({shown})")
    return None


# The search through requests and devices.

MOST_RESULTS = 32  # AllocationResultsMaxSize of k8s.io/api v0.36.3, resource/v1/types.go
MOST_STEPS = 20_000
"""The most looks at a device for one node: the scheduler ends after ten seconds."""
_MOST_SHOWN = 400  # characters of a selector, for each device that it does not take
STEPS_OF_A_LOOK = 5  # steps of evaluation that a look at a device counts as


class ClaimRefused(ValueError):
    """The error for a claim that the scheduler gives up on every node.

    The text is a sentence without its stop.
    """


class NotJudged(ValueError):
    """The error for a search that would take too long."""


class _TooManyDevices(Exception):
    """The error for a claim that would get more devices than is allowed."""


class _PreparedRequest(Frozen):
    """A request of a claim with the number of devices that it wants."""

    request: ClaimRequest
    count: int
    all_of: tuple[Candidate, ...] | None = None  # the devices of a request of mode All


class BestAttempt(Frozen):
    """The furthest point of the search, with its choices and the request that it failed at."""

    choices: tuple[DeviceChoice, ...]
    request: int  # the number of the request that it failed at
    wanted: int


class ClaimSearch:
    """The search for the devices of one claim on one node, as the scheduler does it."""

    def __init__(self, world: ClaimWorld, node: ClaimNode, selectors: Selectors) -> None:
        self.claim, self.node = world.claim, node
        self._selectors = selectors
        self.pools = pools_of(node, world.slices)
        reached = [(pool, *one) for pool in self.pools for one in pool.devices()]
        self.candidates = tuple(Candidate(id_, one, part, pool) for pool, id_, one, part in reached)
        self._classes = {one.name: one for one in world.classes}
        self.state = _fresh(world)
        self._usable = tuple(one for one in self.candidates if not one.pool.fault)
        self._selected: dict[tuple[str, model.SliceDevice], Objection | None] = {}
        self._steps = 0
        self._asked: tuple[tuple[_PreparedRequest, ...], ...] = ()
        self.best = BestAttempt((), 0, 0)

    def search(self) -> tuple[DeviceChoice, ...] | None:
        """Return the devices that the claim would get on this node; None if it cannot be met.

        Raise ClaimRefused if the scheduler gives the claim up, NotJudged if the search would take
        too long, NotEvaluated for a selector that kube-rdma cannot evaluate.
        """
        self._asked = tuple(tuple(map(self._prepared, one.choices)) for one in self.claim.requests)
        least = sum(min(one.count for one in choices) for choices in self._asked)
        if least > MOST_RESULTS:
            raise ClaimRefused(f"it asks for {least} devices, and a claim gets {MOST_RESULTS}")
        self.best = BestAttempt((), -1, least)  # every place that the search comes to is deeper
        try:
            return tuple(self.state.choices) if self._request(0) else None
        except _TooManyDevices as error:
            raise ClaimRefused(f"it would get more than {MOST_RESULTS} devices") from error

    def to_best(self, world: ClaimWorld) -> None:
        """Make the choices of the best attempt again, after a search without success."""
        self.state = _fresh(world)
        for choice in self.best.choices:
            self.state.take(choice.request, choice.candidate)

    def objection(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Return the scheduler's objection to a device beside the present choices, or None.

        Raise ClaimRefused or NotEvaluated for selectors as `search` does.
        """
        if candidate.pool.incomplete:
            text = f"pool {candidate.pool.name} is incomplete: {candidate.pool.incomplete}"
            return Objection(Reason.POOL_INCOMPLETE, text)
        if candidate.pool.invalid:
            text = f"pool {candidate.pool.name} is invalid: {candidate.pool.invalid}"
            return Objection(Reason.POOL_INVALID, text)
        return self._unfit(request, candidate) or self.state.against(request, candidate)

    def _prepared(self, request: ClaimRequest) -> _PreparedRequest:
        if request.device_class not in self._classes:
            raise ClaimRefused(f"there is no DeviceClass {request.device_class}")
        if not request.every:
            return _PreparedRequest(request, request.count)
        for pool in self.pools:
            if pool.fault:
                text = f"request {request.name} asks for all devices, and pool {pool.name}"
                raise ClaimRefused(f"{text} cannot be used now: {pool.fault}")
        self._look(len(self.candidates))
        selected = (one for one in self.candidates if not self._unselected(request, one))
        devices = tuple(one for one in selected if not self.state.short(request, one))
        return _PreparedRequest(request, len(devices), devices)

    def _unfit(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """Return an objection to a device by itself: in use, not selected, or short of capacity."""
        return (
            self.state.in_use(request, candidate.id)
            or self._unselected(request, candidate)
            or self.state.short(request, candidate)
        )

    def _unselected(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        key = (request.name, candidate.id)
        if key not in self._selected:
            self._selected[key] = self._judged(request, candidate)
        return self._selected[key]

    def _judged(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        device_class = self._classes[request.device_class]
        for selector in device_class.selectors:
            if not self._takes(selector, candidate, f"class {device_class.name}"):
                text = f"class {device_class.name} does not select it: {cut(selector, _MOST_SHOWN)}"
                return Objection(Reason.CLASS_SELECTOR, text)
        for selector in request.selectors:
            if not self._takes(selector, candidate, f"request {request.name}"):
                text = f"the selector does not take it: {cut(selector, _MOST_SHOWN)}"
                return Objection(Reason.SELECTOR, text)
        if candidate.part.spec.per_device and not is_for(candidate.device, self.node):
            return Objection(Reason.NODE_SELECTOR, "it is for other nodes")
        return None

    def _takes(self, selector: str, candidate: Candidate, whose: str) -> bool:
        try:
            return self._selectors.take(selector, candidate.id.driver, candidate.device)
        except EvaluationError as error:
            text = f"a selector of {whose} has no value for device {candidate.id.name}: {error}"
            raise ClaimRefused(f"{text} ({cut(selector, _MOST_SHOWN)})") from error

    def _request(self, index: int) -> bool:
        """Find devices for this request and all later ones; return whether that succeeded."""
        if index == len(self._asked):
            return True
        exceeded = True
        for choice in self._asked[index]:
            try:
                done = self._fill(index, choice, 0, 0)
            except _TooManyDevices:
                continue
            exceeded = False
            if done:
                return True
        if exceeded:
            raise _TooManyDevices
        return False

    def _fill(self, index: int, asked: _PreparedRequest, number: int, start: int) -> bool:
        """Find this request's device number `number` and all later devices; return success."""
        self._look()
        self._note(index, asked, number)
        if asked.all_of == ():
            return False
        if number >= asked.count:
            return self._request(index + 1)
        if len(self.state.choices) + asked.count - number > MOST_RESULTS:
            raise _TooManyDevices
        if asked.all_of is not None:
            return self._all_of(index, asked, number, asked.all_of[number])
        for place in range(start, len(self._usable)):
            self._look()
            candidate = self._usable[place]
            if self._unfit(asked.request, candidate) or self.state.take(asked.request, candidate):
                continue
            if self._behind(index, asked, number, place + 1):
                return True
        return False

    def _all_of(
        self, index: int, asked: _PreparedRequest, number: int, candidate: Candidate
    ) -> bool:
        objection = self.state.take(asked.request, candidate)
        if objection and objection.reason == Reason.CONSTRAINT:
            what = f"request {asked.request.name} asks for all devices"
            raise ClaimRefused(f"{what}, and of {candidate.id.name} {objection.text}")
        return objection is None and self._behind(index, asked, number, 0)

    def _behind(self, index: int, asked: _PreparedRequest, number: int, start: int) -> bool:
        """Continue the search after a choice; undo the choice if the search fails."""
        done = False
        try:
            done = self._fill(index, asked, number + 1, start)
        finally:
            if not done:
                self.state.give_back()
        return done

    def _look(self, devices: int = 1) -> None:
        self._steps += devices
        self._selectors.steps += devices * STEPS_OF_A_LOOK
        if self._steps > MOST_STEPS or self._selectors.steps > MOST_STEPS_TOGETHER:
            raise NotJudged(f"after {self._steps} looks at a device there is no answer")

    def _note(self, index: int, asked: _PreparedRequest, number: int) -> None:
        """Record the present choices if they are the furthest point of the search."""
        choices = self.state.choices
        if (len(choices), index) <= (len(self.best.choices), self.best.request):
            return
        behind = sum(min(one.count for one in more) for more in self._asked[index + 1 :])
        wanted = len(choices) - number + max(asked.count, 1) + behind
        self.best = BestAttempt(tuple(choices), index, wanted)


def _fresh(world: ClaimWorld) -> DeviceState:
    return DeviceState(world.others, map(ConstraintState, world.claim.constraints))
