"""The search for devices of a claim on a node: in the scheduler's order, the first choice wins.

Called by claims/rules/verdicts. As k8s.io/dynamic-resource-allocation v0.36.3 has it,
structured/internal/incubating/allocator_incubating.go, with the gates that Kubernetes 1.36 has on
by default. tests/lab/native/test_claim_verdicts.py holds both against each other.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.claims.rules.cel.evaluate import MOST_STEPS_TOGETHER, Selectors
from kube_rdma.claims.rules.cel.functions import EvaluationError
from kube_rdma.claims.rules.constraints import ConstraintState
from kube_rdma.claims.rules.device_state import Candidate, DeviceChoice, DeviceState
from kube_rdma.claims.rules.pools import is_for, pools_of
from kube_rdma.model.claims.claim import ClaimNode, ClaimRequest, DeviceClass
from kube_rdma.model.claims.device import SliceDevice
from kube_rdma.model.claims.verdict import Objection, Reason
from kube_rdma.model.claims.world import ClaimWorld
from kube_rdma.model.conditions import cut

MOST_RESULTS = 32  # AllocationResultsMaxSize of k8s.io/api v0.36.3, resource/v1/types.go
MOST_STEPS = 20_000
"""After so many looks at a device nobody waits longer: the scheduler ends after ten seconds."""
_MOST_SHOWN = 400  # characters of a selector, for each device that it does not take
STEPS_OF_A_LOOK = 5  # of those that judging a claim on all nodes may take


class ClaimRefused(ValueError):
    """The scheduler gives the claim up, on every node: a sentence without its stop."""


class NotJudged(ValueError):
    """It would take too long to say."""


class _TooManyDevices(Exception):
    """This way the claim would get more devices than it may have."""


class _PreparedRequest(Frozen):
    """A request with its class, and how many devices it wants: `all_of` are those of mode All."""

    request: ClaimRequest
    device_class: DeviceClass
    count: int
    all_of: tuple[Candidate, ...] | None = None


class BestAttempt(Frozen):
    """How far the search came: its choices, and the request that it found no more devices for."""

    choices: tuple[DeviceChoice, ...]
    request: int
    wanted: int


class ClaimSearch:
    """One claim on one node."""

    def __init__(self, world: ClaimWorld, node: ClaimNode, selectors: Selectors) -> None:
        self.claim, self.node = world.claim, node
        self._selectors = selectors
        self.pools = pools_of(node, world.slices)
        self.candidates = tuple(
            Candidate(id_, device, part, pool)
            for pool in self.pools
            for id_, device, part in pool.devices()
        )
        self._classes = {one.name: one for one in world.classes}
        self.state = _fresh(world)
        self._usable = tuple(
            one for one in self.candidates if not one.pool.incomplete and not one.pool.invalid
        )
        self._selected: dict[tuple[str, SliceDevice], Objection | None] = {}
        self._steps = 0
        self._asked: tuple[tuple[_PreparedRequest, ...], ...] = ()
        self.best = BestAttempt((), 0, 0)

    def search(self) -> tuple[DeviceChoice, ...] | None:
        """The devices that the claim would get, None if there is no way.

        Raise ClaimRefused, NotJudged, or NotEvaluated for a selector.
        """
        requests = self.claim.requests
        self._asked = tuple(tuple(map(self._prepared, one.choices)) for one in requests)
        least = sum(min(one.count for one in choices) for choices in self._asked)
        if least > MOST_RESULTS:
            raise ClaimRefused(f"it asks for {least} devices, and a claim gets {MOST_RESULTS}")
        self.best = BestAttempt((), -1, least)  # every place that the search comes to is deeper
        try:
            return tuple(self.state.choices) if self._request(0) else None
        except _TooManyDevices as error:
            raise ClaimRefused(f"it would get more than {MOST_RESULTS} devices") from error

    def to_best(self, world: ClaimWorld) -> None:
        """Choose again what the deepest attempt had chosen, after a search without success."""
        self.state = _fresh(world)
        for choice in self.best.choices:
            self.state.take(choice.request, choice.candidate)

    def objection(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """What is against a device beside the choices so far, the scheduler's first reason."""
        if candidate.pool.incomplete:
            text = f"pool {candidate.pool.name} is incomplete: {candidate.pool.incomplete}"
            return Objection(Reason.POOL_INCOMPLETE, text)
        if candidate.pool.invalid:
            text = f"pool {candidate.pool.name} is invalid: {candidate.pool.invalid}"
            return Objection(Reason.POOL_INVALID, text)
        return self._unfit(request, candidate) or self.state.against(request, candidate)

    def _prepared(self, request: ClaimRequest) -> _PreparedRequest:
        device_class = self._classes.get(request.device_class)
        if device_class is None:
            raise ClaimRefused(f"there is no DeviceClass {request.device_class}")
        if not request.every:
            return _PreparedRequest(request, device_class, request.count)
        for pool in self.pools:
            fault = pool.incomplete or pool.invalid
            if fault:
                text = f"request {request.name} asks for all devices, and pool {pool.name}"
                raise ClaimRefused(f"{text} cannot be used now: {fault}")
        self._look(len(self.candidates))
        devices = tuple(
            one
            for one in self.candidates
            if not (self._unselected(request, one) or self.state.short(request, one))
        )
        return _PreparedRequest(request, device_class, len(devices), devices)

    def _unfit(self, request: ClaimRequest, candidate: Candidate) -> Objection | None:
        """What is against a device before it is tried."""
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
        if candidate.part.per_device and not is_for(candidate.device.nodes, self.node):
            return Objection(Reason.NODE_SELECTOR, "it is for other nodes")
        return None

    def _takes(self, selector: str, candidate: Candidate, whose: str) -> bool:
        try:
            return self._selectors.take(selector, candidate.id.driver, candidate.device)
        except EvaluationError as error:
            text = f"a selector of {whose} has no value for device {candidate.id.name}: {error}"
            raise ClaimRefused(f"{text} ({cut(selector, _MOST_SHOWN)})") from error

    def _request(self, index: int) -> bool:
        """Find devices for this request and all behind it."""
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
        """Find the device of this number for the request, and all that come after it."""
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
        """Go on behind a device that is taken; take it back if that leads nowhere."""
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
        """Remember the search's deepest place."""
        choices = self.state.choices
        if (len(choices), index) <= (len(self.best.choices), self.best.request):
            return
        behind = sum(min(one.count for one in more) for more in self._asked[index + 1 :])
        wanted = len(choices) - number + max(asked.count, 1) + behind
        self.best = BestAttempt(tuple(choices), index, wanted)


def _fresh(world: ClaimWorld) -> DeviceState:
    return DeviceState(world.others, map(ConstraintState, world.claim.constraints))
