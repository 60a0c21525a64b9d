"""The hardware self-test: runs the agent's plans on real cards, and takes them back.

kube_rdma_selftest/choice says what to try. Here it is run as the agent runs it, in a new network
namespace in place of a pod's. Each plan is run twice and undone. Then it is run in a namespace that
ends: the kernel gives back what it can, and the same undo does the rest. After each of the two
rounds the node is compared with what it was.

SIGINT, SIGTERM and SIGHUP take effect between Steps.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.netlink.rtnl_read import (
    interfaces,
    link_ways,
    open_rtnl,
    read_default_routes,
    seen_links,
)
from kube_rdma.adapters.kernel.netlink.rtnl_vf import seen_functions
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, make_namespace
from kube_rdma.adapters.kernel.pod.steps import PodNetwork, open_pod
from kube_rdma.adapters.kernel.sysfs.netdev import upper_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.attach.rules.host_links import host_network, with_ways
from kube_rdma.attach.rules.undo import check, undo
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.attach.attachment import PodView
from kube_rdma.model.attach.steps import SetSysctl, Step, Undo
from kube_rdma.model.card import CardId
from kube_rdma.model.pools import SetFunction
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma_selftest.choice import differences, trials
from kube_rdma_selftest.trial import (
    SelftestRequest,
    SelftestScene,
    Trial,
    TrialResult,
    TrialStage,
    Trouble,
    UntriedCard,
)

PATIENCE = 15.0  # seconds; the kernel ends a namespace in its own time
_PAUSE = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[TrialResult | UntriedCard], None]


def run_trials(
    asked: SelftestRequest, dependencies: SelftestDependencies, tell: Tell
) -> tuple[TrialResult | UntriedCard, ...]:
    """Run one trial after the other; `tell` gets each outcome.

    Raise Refused as `trials` does. Every plan is made again right before it is run: the trial
    before may have changed interface indexes. A card that was not fully restored is not touched
    again.
    """
    outcomes: list[TrialResult | UntriedCard] = []
    spoilt: set[CardId] = set()
    for expected in trials(dependencies.look(), asked):
        if dependencies.stopped():
            break
        came: Trial | TrialResult | UntriedCard
        if isinstance(expected, UntriedCard):
            came = expected
        elif expected.card.id in spoilt:
            reason = "not everything of this card could be given back"
            came = UntriedCard(expected.card, reason, expected.kind)
        else:
            before = dependencies.look()
            came = _again(expected, before, asked)
            if isinstance(came, Trial):
                came = _TrialRun(came, before, dependencies).result()
        if isinstance(came, TrialResult) and any(trouble.left for trouble in came.troubles):
            spoilt.add(came.trial.card.id)
        outcomes.append(came)
        tell(came)
    return tuple(outcomes)


def take_scene() -> SelftestScene:
    """Read this node's cards and network; raise Unavailable if the kernel does not answer."""
    routed = read_default_routes()
    survey = take_survey()
    with open_rtnl() as netlink:
        links = seen_links(netlink)
        further = ((str(one.seen.name), one.alternative_names) for one in interfaces(netlink))
        altnames = tuple((name, tuple(sorted(others))) for name, others in further if others)
        network = with_ways(host_network(survey, links), link_ways(netlink, links))
        places = [link.virtual for link in network.links if link.virtual]
        functions = seen_functions(netlink, places)
    tree = SysfsTree(Path("/sys"))
    above = tuple((str(link.name), upper_netdevs(tree, link.name)) for link in links)
    names = tuple(device.name for device in survey.devices)
    return SelftestScene(node_cards(survey), network, functions, routed, above, names, altnames)


@contextmanager
def new_namespace() -> Iterator[Namespace]:
    """Create a network namespace that ends with the context."""
    descriptor = make_namespace()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class SelftestDependencies(Frozen):
    """The functions by which the self-test reads and changes the node, and how long it waits."""

    look: Callable[[], SelftestScene] = take_scene
    namespace: Callable[[], AbstractContextManager[Namespace]] = new_namespace
    open_pod: Callable[[Namespace | None], AbstractContextManager[PodNetwork]] = open_pod
    stopped: Callable[[], bool] = lambda: False  # somebody wants the self-test to end
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    patience: float = PATIENCE  # seconds that the kernel may take to give something back


@contextmanager
def listening() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal to stop has come; none ends the process."""
    heard: list[int] = []
    before = {
        signum: signal.signal(signum, lambda number, _: heard.append(number)) for signum in _SIGNALS
    }
    try:
        yield lambda: bool(heard)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _again(trial: Trial, scene: SelftestScene, asked: SelftestRequest) -> Trial | UntriedCard:
    """Return the trial made anew from the node's present state, or why the card is untried."""
    named = (trial.card.id,) if asked.cards else ()
    try:
        (now,) = (
            one
            for one in trials(scene, SelftestRequest(named, (trial.kind,)))
            if one.card.id == trial.card.id
        )
    except (Refused, ValueError):
        return UntriedCard(trial.card, "it is gone", trial.kind)
    return now


class _EndError(Exception):
    """The error that ends a round of a trial early, after its reason was recorded."""


class _TrialRun:
    """One run of a trial, which collects its troubles."""

    def __init__(
        self, trial: Trial, before: SelftestScene, dependencies: SelftestDependencies
    ) -> None:
        self._trial, self._before, self._dependencies = trial, before, dependencies
        self._acts = undo(trial.plan)
        self._troubles: list[Trouble] = []
        self._milliseconds: float | None = None
        self._stopped = False

    def result(self) -> TrialResult:
        """Run both rounds and return their result; a trouble or a stop leaves the second out."""
        self._taken_back()
        if not self._troubles and not self._stopped:
            self._ended()
        milliseconds = self._milliseconds
        return TrialResult(self._trial, milliseconds, tuple(self._troubles), self._stopped)

    def _taken_back(self) -> None:
        """Run the first round: attach, attach again, undo, and compare the node with before."""
        with self._dependencies.namespace() as namespace:
            try:
                with suppress(_EndError), self._opened(namespace) as pod:
                    empty = pod.look()
                    begin = self._dependencies.clock()
                    self._attach(pod, TrialStage.ATTACH)
                    self._milliseconds = (self._dependencies.clock() - begin) * 1000
                    self._check(pod, TrialStage.ATTACH)
                    self._attach(pod, TrialStage.REPEAT)
                    self._check(pod, TrialStage.REPEAT)
            finally:
                self._give_back(namespace, TrialStage.UNDO)
            if not self._troubles:
                with suppress(_EndError), self._opened(namespace) as pod:
                    self._check_empty(empty, pod.look())
        self._compare(TrialStage.UNDO)

    def _ended(self) -> None:
        """Run the second round: attach, end the namespace, undo, and compare with before."""
        try:
            with (
                self._dependencies.namespace() as namespace,
                suppress(_EndError),
                self._opened(namespace) as pod,
            ):
                self._attach(pod, TrialStage.ATTACH)
        finally:
            self._give_back(None, TrialStage.END)
        self._compare(TrialStage.END)

    @contextmanager
    def _opened(self, namespace: Namespace) -> Iterator[PodNetwork]:
        """Open the namespace for the block; record an error as a Trouble, then raise _EndError."""
        try:
            with self._dependencies.open_pod(namespace) as pod:
                yield pod
        except _EndError:
            raise
        except Exception as error:
            self._troubles.append(Trouble(TrialStage.ATTACH, _describe_error(error)))
            raise _EndError from error

    def _attach(self, pod: PodNetwork, stage: TrialStage) -> None:
        for step in self._trial.plan.steps:
            if self._dependencies.stopped():
                self._stopped = True
                raise _EndError
            self._run(pod, step, stage)

    def _run(self, pod: PodNetwork, step: Step, stage: TrialStage) -> None:
        try:
            pod.run(step)
        except Exception as error:
            self._troubles.append(Trouble(stage, _describe_error(error), step))
            raise _EndError from error

    def _check(self, pod: PodNetwork, stage: TrialStage) -> None:
        steps = self._trial.plan.steps
        paths = tuple(step.path for step in steps if isinstance(step, SetSysctl))
        functions = tuple(step.place for step in steps if isinstance(step, SetFunction))
        wrong = check(self._trial.plan, pod.look(paths, functions))
        self._troubles += [Trouble(stage, line) for line in wrong]

    def _check_empty(self, before: PodView, after: PodView) -> None:
        """Record a Trouble for each interface, route and rule left in the namespace by undoing."""
        initial_links = {link.name for link in before.links}
        left = [f"the interface {one.name}" for one in after.links if one.name not in initial_links]
        left += [f"the route to {one.to}" for one in after.routes if one not in before.routes]
        left += [f"the rule for {one.source}" for one in after.rules if one not in before.rules]
        sentences = (f"{what} was left in the namespace" for what in left)
        self._troubles += [Trouble(TrialStage.UNDO, line) for line in sentences]

    def _give_back(self, namespace: Namespace | None, stage: TrialStage) -> None:
        """Undo all steps of the plan; go on with the others where one fails."""
        with ExitStack() as stack:
            pod: PodNetwork | None = None
            if namespace is not None:
                with suppress(KubeError, OSError):
                    pod = stack.enter_context(self._dependencies.open_pod(namespace))
            if pod is None:
                pod = stack.enter_context(self._dependencies.open_pod(None))
            for act in self._acts:
                self._undo(pod, act, stage)

    def _undo(self, pod: PodNetwork, act: Undo, stage: TrialStage) -> None:
        deadline = self._dependencies.clock() + self._dependencies.patience
        while True:
            late = self._dependencies.clock() >= deadline
            try:
                pod.undo(act)
            except Exception as error:  # noqa: BLE001  # the other acts come all the same
                if late or not isinstance(error, Unavailable):
                    self._troubles.append(Trouble(stage, _describe_error(error), act, left=True))
                    return
            else:
                return
            self._dependencies.wait(_PAUSE)

    def _compare(self, stage: TrialStage) -> None:
        """Record how the node differs from before, after giving the kernel time to restore it."""
        deadline = self._dependencies.clock() + self._dependencies.patience
        while True:
            try:
                problems = differences(self._trial, self._before, self._dependencies.look())
            except KubeError as error:
                problems = (_describe_error(error),)
            if not problems or self._dependencies.clock() >= deadline:
                break
            self._dependencies.wait(_PAUSE)
        self._troubles += [Trouble(stage, line, left=True) for line in problems]


def _describe_error(error: Exception) -> str:
    """Return the text of an error, with its type if it is not a KubeError."""
    return str(error) if isinstance(error, KubeError) else f"{type(error).__name__}: {error}"
