"""One run: the steps of a seed on a lab, an audit under the load that is left, and one at rest.

Where there are verbs, pods write to each other meanwhile (traffic.py).

A step that needs the API server is tried until it is taken. When every fault has ended, the run
waits for as long as what is wrong changes, then says what is left.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable

from chaos import load, sites, traffic
from chaos.audit import ENDED, audit
from chaos.collect import collect
from chaos.faults import Faults, kubectl
from chaos.finding import Discrepancy
from chaos.schedule import LASTING, Begin, Create, Delete, End, Pause, Step
from chaos.seen import Seen, SeenPod
from chaos.traffic import Talker
from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.patience import Patience

CHAOS = f"{load.LABEL}=yes"
# Between two audits: each asks all nodes and the API server, and an emulated node does little else
# meanwhile. So a look that took long is followed by as long a pause, within these.
LOOK_SECONDS, LONGEST_SECONDS = 1.0, 8.0
# Of a machine of the usual pace. A node that was cut is retried after 40; a promise that nobody
# holds is forgotten 90 to 120 after its sandbox (GRACE and SWEEP_SECONDS of late binding).
QUIET_SECONDS = 130.0
Say = Callable[[str], None]


class Outcome(Frozen):
    """What came of a run: what is wrong with pods there and without them, pods that were refused.

    `stuck` says what was waited for in vain, where a run did not come to its audits. Where there
    are verbs, `talks` says how many transfers moved bytes, while faults lasted and after them.
    """

    under_load: tuple[Discrepancy, ...] = ()
    at_rest: tuple[Discrepancy, ...] = ()
    ready: int = 0
    refused: tuple[str, ...] = ()
    stuck: str = ""
    talks: str = ""

    @property
    def is_clean(self) -> bool:
        """Nothing leaked, doubled or lost, and every pod works or says why."""
        return not (self.under_load or self.at_rest or self.stuck)


class Run:
    """Takes the steps of one schedule; `before` is what the lab showed before any load."""

    def __init__(self, lab: Lab, before: Seen, say: Say) -> None:
        self._lab = lab
        self._before = before
        self._say = say
        self._faults = Faults(lab)
        self._has_verbs = sites.of(lab).has_verbs

    def take(self, steps: tuple[Step, ...]) -> Outcome:
        """Take all steps, then audit twice; faults that a failure left open are ended."""
        open_faults: list[Begin] = []
        try:
            if left := self._leftovers():
                return Outcome(at_rest=left)
            talks = self._steps(steps, open_faults)
            self._say("audit under load")
            seen, under_load = self._audited()
            if self._has_verbs:
                seen = replace(seen, transfers=traffic.transfers(self._lab, seen))
                under_load = audit(seen, self._before)
                moved = sum(not each.why for each in seen.transfers)
                talks += f", {moved} of {len(seen.transfers)} after them"
        except Unavailable as error:
            return Outcome(stuck=str(error))
        finally:
            for begun in open_faults:
                self._faults.end(begun.fault, begun.target)
        ready = sum(pod.is_ready for pod in seen.pods)
        refused = tuple(
            f"{pod.name}: {' '.join(pod.notes)}" for pod in seen.pods if pod.phase in ENDED
        )
        try:
            at_rest = self.rest()
        except Unavailable as error:
            return Outcome(under_load, (), ready, refused, str(error), talks)
        return Outcome(under_load, at_rest, ready, refused, "", talks)

    def _steps(self, steps: tuple[Step, ...], open_faults: list[Begin]) -> str:
        """Take all steps, where there are verbs under traffic; what came of that."""
        with contextlib.ExitStack() as stack:
            talker = Talker(self._lab, self._say)
            if self._has_verbs:
                self._writers(open_faults)
                stack.enter_context(talker)
            for step in steps:
                self._say(describe(step))
                self._step(step, open_faults)
        return f"{talker.moved} of {talker.tried} under faults" if self._has_verbs else ""

    def _writers(self, open_faults: list[Begin]) -> None:
        """Make the pods that write from the first step on: a seed's own may be late for a fault."""
        for writer in traffic.WRITERS:
            self._say(describe(writer))
            self._step(writer, open_faults)
        cluster.ready(self._lab, *(writer.name for writer in traffic.WRITERS))

    def _leftovers(self) -> tuple[Discrepancy, ...]:
        """What an earlier run that was interrupted left, and what is wrong without its pods."""
        words = ("get", "pods", "-A", "-l", CHAOS, "-o", "name")
        return self.rest() if cluster.kubectl(self._lab, *words) else ()

    def rest(self) -> tuple[Discrepancy, ...]:
        """Delete all that is left of the load; what is wrong then."""
        self._say("audit at rest")
        for kind in ("pods", "resourceclaimtemplates"):
            kubectl(self._lab, "delete", kind, "-l", CHAOS, "--wait=false")
        _, wrong = self._audited(is_empty=True)
        return wrong

    def _step(self, step: Step, open_faults: list[Begin]) -> None:
        match step:
            case Create():
                items = load.documents(step, has_verbs=self._has_verbs)
                text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
                words = ("--server-side", "--validate=false", "-f", "-")
                kubectl(self._lab, "apply", *words, stdin=text)
            case Delete():
                force = ("--grace-period=0", "--force") if step.force else ()
                words = ("pod", step.name, "--ignore-not-found", "--wait=false")
                kubectl(self._lab, "delete", *words, *force)
            case Pause():
                time.sleep(step.milliseconds / 1000)
            case Begin():
                self._faults.begin(step.fault, step.target)
                if step.fault in LASTING:
                    open_faults.append(step)
            case End():
                open_faults.remove(Begin(step.fault, step.target))
                self._faults.end(step.fault, step.target)

    def _audited(self, *, is_empty: bool = False) -> tuple[Seen, tuple[Discrepancy, ...]]:
        """Look until nothing is wrong and nothing is under way, or nothing moves any more."""
        patience = Patience(self._lab.state.pace, QUIET_SECONDS)
        answers, shown = 0, ""
        while True:
            self._faults.keep_control_plane()
            begin = time.monotonic()
            try:
                seen = collect(self._lab)
                took = time.monotonic() - begin
                wrong = audit(seen, self._before)
                late = [pod for pod in seen.pods if is_empty or not _is_settled(pod)]
                if not (wrong or late):
                    return seen, wrong
                answers += 1
                if (words := _still(wrong, late)) != shown:
                    self._say(shown := words)
                time.sleep(min(max(LOOK_SECONDS, took), LONGEST_SECONDS))
                facts = (*map(str, wrong), *(f"{pod.uid} {pod.phase} {pod.notes}" for pod in late))
            except Unavailable as error:
                if patience.lost((str(error),)):
                    raise
                continue
            if patience.lost(facts) and answers > 1:
                names = (f"{pod.name} is {pod.phase}: {' '.join(pod.notes)}" for pod in late)
                if not wrong:
                    raise Unavailable("pods do not settle: " + "; ".join(names))
                return seen, wrong


def _still(wrong: tuple[Discrepancy, ...], late: list[SeenPod]) -> str:
    """What an audit waits for, in short."""
    names = ", ".join(pod.name for pod in late)
    return "; ".join(filter(None, [f"waiting for {names}" if names else "", *map(str, wrong)]))


def _is_settled(pod: SeenPod) -> bool:
    return pod.is_ready or pod.phase in ENDED


def describe(step: Step) -> str:
    """A step as people read it."""
    match step:
        case Create():
            return f"{step.name} on {step.node} by {step.way.value}, {step.interfaces} interfaces"
        case Delete():
            return f"{step.name} deleted" + (" by force" if step.force else "")
        case Pause():
            return f"{step.milliseconds} ms"
        case Begin():
            return f"FAULT {step.fault.value} {step.target}".rstrip()
        case End():
            return f"ENDED {step.fault.value} {step.target}".rstrip()
