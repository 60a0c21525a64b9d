"""Runs perftest between pods, pair by pair, for `kube-rdma verify` and BandwidthChecks.

    pods ─► probe each ─► rounds ─► turns, all pairs of each at once ─► proof

A pair that fails is an outcome too; the others go on. Each command in a pod has a time limit here,
for it may never end by itself. verify/rules decides who meets whom, what is run and what figures
mean.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeAlias, TypeVar

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field, replace
from kube_client.pod_commands import PodCommands
from kube_client.silence import Silence
from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma.model import verify
from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.late_binding import PodName
from kube_rdma.verify.claimed_cards import claim_offers
from kube_rdma.verify.cluster import VerifyObjects
from kube_rdma.verify.rules import copies as copy_rules
from kube_rdma.verify.rules import pods as pod_rules
from kube_rdma.verify.rules.pairs import Turn, planned, retries, turns_of
from kube_rdma.verify.rules.perftest import (
    LISTENING,
    client_script,
    is_worth_a_try,
    perftest_words,
    server_script,
    table,
)
from kube_rdma.verify.rules.suspects import rate, suspects

LeftOut: TypeAlias = tuple[tuple[str, str], ...]  # who takes no part, and why
End: TypeAlias = tuple[verify.PairedPod, verify.PodDevice]  # of a pair
ClaimedCards: TypeAlias = Mapping[PodName, Sequence[PublishedCard]]
"""The cards that pods have by ResourceClaims."""

FIRST_PORT, PORTS = 18515, 1000  # perftest's own, and those behind it
TRIES = 3  # of a measurement that fails in a way that may pass
GRACE = 30.0  # seconds for what the pod itself should have ended
_PROBES = 16  # at once
_HUNG = 3  # measurements of a device that did not end; then it is measured no more
_SMALL = 4096  # characters of output that are read at once; more is read in a thread

T = TypeVar("T")


class Pacing(Frozen):
    """The time limits of a run, and the lock that it holds while pairs are measured."""

    # Ends its block after so many seconds, by TimeoutError.
    limit: Callable[[float], AbstractAsyncContextManager[object]] = field(default=Silence)
    # Is held while pairs are measured.
    turn: Callable[[], AbstractAsyncContextManager[object]] = field(default=nullcontext)
    clock: Callable[[], float] = field(default=time.monotonic)
    run_seconds: float = 86400.0  # of turns; after them no other begins
    probe_seconds: float = verify.PROBE_SECONDS  # in which a pod says which devices it has


class BandwidthProof:
    """One run of perftest over given pods; a `brief` one keeps one row of each result table."""

    def __init__(
        self,
        commands: PodCommands,
        run: verify.PerftestRun,
        pacing: Pacing | None = None,
        *,
        brief: bool = False,
    ) -> None:
        self._commands = commands
        self._run = run
        self._brief = brief
        self._pacing = pacing or Pacing()
        self.outcomes: list[verify.PairOutcome] = []
        self._spent = 0.0  # seconds of turns
        self._hung: Counter[tuple[str, str]] = Counter()  # by pod and device
        # Servers of a run that broke off may still listen, so each run begins at another port.
        begin = random.randrange(PORTS)  # noqa: S311  nobody is to be kept from guessing it
        self._ports = (FIRST_PORT + number % PORTS for number in itertools.count(begin))

    async def probed(
        self, document: dict[str, Any], cards: Sequence[PublishedCard] = ()
    ) -> verify.PairedPod:
        """Run a probe in a pod; return the pod with its devices. `cards` are those of its claims.

        Raise Refused if it has no address or no device, Unavailable if the probe fails or hangs.
        """
        pod = _name(document)
        script, asks = pod_rules.PROBE, f"{NCCL_ENV.read_text()}{pod_rules.END_OF_INPUT}"
        if pod_rules.names_devices(document):  # a shell on a busy node takes long for the rest
            script, asks = pod_rules.PORT_RATES, ""
        elif cards:
            script = f"{pod_rules.PLACES}{pod_rules.PROBE}"
        try:
            async with self._pacing.limit(self._pacing.probe_seconds + GRACE):
                shell = ("sh", "-c", script)
                answer = await self._commands.run(pod.namespace, pod.name, shell, stdin=asks)
        except TimeoutError as error:
            raise _endless(f"sh in pod {pod.name}", self._pacing.probe_seconds) from error
        return await _aside(answer, lambda text: pod_rules.paired_pod(document, text, cards))

    async def all_probed(
        self,
        documents: Sequence[dict[str, Any]],
        left_out: LeftOut = (),
        cards: ClaimedCards | None = None,
    ) -> tuple[list[verify.PairedPod], LeftOut]:
        """Return the pods that can take part, and why others cannot.

        The entries of `left_out` come first. `cards` are the cards of the pods' claims.
        """
        some_at_once = asyncio.Semaphore(_PROBES)

        async def answered(document: dict[str, Any]) -> verify.PairedPod | tuple[str, str]:
            async with some_at_once:
                try:
                    return await self.probed(document, (cards or {}).get(_name(document), ()))
                except KubeError as error:
                    return pod_rules.short_title(document), str(error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answered(document)) for document in documents]
        answers = [task.result() for task in tasks]
        silent = tuple(answer for answer in answers if isinstance(answer, tuple))
        pods = pod_rules.with_rails([pod for pod in answers if isinstance(pod, verify.PairedPod)])
        return pods, (*left_out, *silent)

    async def measure(
        self, turns: Iterable[Turn], show: Callable[[verify.PairOutcome], None] = lambda _: None
    ) -> list[verify.PairOutcome]:
        """Measure all pairs, turn by turn; `show` gets each outcome as soon as it exists.

        Pairs that the run's time did not suffice for are missing. `outcomes` has all that was
        measured so far, also after an interruption.
        """

        async def measured(client: verify.PairedPod, server: verify.PairedPod, rail: int) -> None:
            outcome = await self._outcome(client, server, rail)
            self.outcomes.append(outcome)
            show(outcome)

        for pairs in turns:
            async with self._pacing.turn():
                if self._spent >= self._pacing.run_seconds:
                    break
                began = self._pacing.clock()
                async with asyncio.TaskGroup() as group:
                    for client, server, rail in pairs:
                        group.create_task(measured(client, server, rail))
                self._spent += self._pacing.clock() - began
        return self.outcomes

    def proof(
        self,
        outcomes: Sequence[verify.PairOutcome],
        standard: verify.PairStandard,
        left_out: LeftOut = (),
        before: Mapping[verify.PairKey, float] | None = None,
        *,
        due: int = 0,
    ) -> verify.PairProof:
        """Rate the outcomes and name suspects; `before` has the figures of an earlier run.

        `due` is how many outcomes there should have been.
        """
        rated = rate(outcomes, standard, before)
        missing = max(0, due - len(outcomes))
        return verify.PairProof(self._run, rated, suspects(rated), left_out, missing)

    async def _outcome(
        self, client: verify.PairedPod, server: verify.PairedPod, rail: int
    ) -> verify.PairOutcome:
        near, far = client.by_rail[rail], server.by_rail[rail]
        lines = [device.gbps for device in (near, far) if device.gbps is not None]
        rows: tuple[verify.PerftestRow, ...] = ()
        failure = self._given_up((client.title, near.name), (server.title, far.name))
        if not failure:
            try:
                rows = await self._rows((client, near), (server, far))
            except KubeError as error:
                failure = str(error)
        outcome = verify.PairOutcome(
            client=client.title,
            server=server.title,
            rail=rail,
            devices=(near.name, far.name),
            line_gbps=min(lines) if len(lines) == 2 else None,  # soft devices have none
            rows=rows,
            failure=failure,
        )
        row = outcome.standing(latency=self._run.latency)
        return replace(outcome, rows=(row,)) if self._brief and row else outcome

    async def _rows(self, client: End, server: End) -> tuple[verify.PerftestRow, ...]:
        for number in range(1, TRIES + 1):
            try:
                return await _aside(await self._once(client, server), table)
            except KubeError as error:
                if number == TRIES or not is_worth_a_try(str(error)):
                    raise
        raise AssertionError("the last try returns or raises")

    async def _once(self, client: End, server: End) -> str:
        """Run perftest between two ends and return the client's output.

        Each run has a new port, for an earlier server may still listen.
        """
        (near, near_device), (far, far_device) = client, server
        seconds, port = self._run.seconds, next(self._ports)
        script = server_script(perftest_words(self._run, far_device, port), port, seconds)
        words = (*perftest_words(self._run, near_device, port), self._dialled(far, far_device))
        waits = far
        listening = self._commands.serving(
            far.namespace, far.name, ("sh", "-c", script), until=LISTENING
        )
        try:
            async with self._pacing.limit(seconds + GRACE), listening:
                waits = near
                here = ("sh", "-c", client_script(words, seconds))
                return await self._commands.run(near.namespace, near.name, here)
        except TimeoutError as error:
            self._hung.update(((near.title, near_device.name), (far.title, far_device.name)))
            raise _endless(f"perftest in pod {waits.name}", seconds) from error

    def _given_up(self, *ends: tuple[str, str]) -> str:
        """Return why devices are no longer measured: earlier runs hung; empty if they did not."""
        for title, device in ends:
            if self._hung[title, device] >= _HUNG:
                return f"{_HUNG} measurements over {device} of {title} did not end"
        return ""

    def _dialled(self, pod: verify.PairedPod, device: verify.PodDevice) -> str:
        """Return the server's address: with RDMA_CM the device's own, else the pod's."""
        if not self._run.rdma_cm:
            return pod.address
        if device.address is None:
            raise Refused(
                f"the address of {device.name}, which RDMA_CM needs, is not known",
                remedy="Leave --rdma-cm out, or give the pod a network of kube-rdma",
                where=f"pod/{pod.name}",
            )
        return device.address


def _name(document: Mapping[str, Any]) -> PodName:
    metadata = document["metadata"]
    return PodName(metadata["namespace"], metadata["name"])


def _endless(what: str, seconds: float) -> Unavailable:
    """Return the error of a command that was abandoned, and may still run in its pod."""
    return Unavailable(f"{what} has not ended after {seconds + GRACE:g} s, it may hang in its card")


async def _aside(text: str, read: Callable[[str], T]) -> T:
    """Parse a command's output; a long one in a thread, so that the event loop goes on."""
    return read(text) if len(text) < _SMALL else await asyncio.to_thread(read, text)


# Pairs of a run: all, a ring or a star, then those to repeat.


class PairedRun:
    """A run over pairs of given pods; `due` counts all measurements that are planned so far."""

    def __init__(
        self, pods: Sequence[verify.PairedPod], pairing: verify.Pairing, *, both_ways: bool
    ) -> None:
        self._pods, self._pairing, self._both_ways = pods, pairing, both_ways
        self.due = planned(pairing, pods, both_ways=both_ways)

    async def measure(
        self,
        measuring: BandwidthProof,
        show: Callable[[verify.PairOutcome], None],
        standard: verify.PairStandard,
        before: Mapping[verify.PairKey, float],
    ) -> None:
        """Measure all pairs of the pairing; `show` gets each outcome.

        In a ring or star suspect cards are then measured once more, if time is left.
        """
        turns = turns_of(self._pairing, self._pods, both_ways=self._both_ways)
        outcomes = await measuring.measure(turns, show)
        if self._pairing is verify.Pairing.ALL or len(outcomes) < self.due:
            return
        again = retries(rate(outcomes, standard, before), self._pods)
        self.due += sum(map(len, again))
        await measuring.measure(again, show)


def with_centre_first(
    pods: Sequence[verify.PairedPod], title: str, left_out: LeftOut = ()
) -> Sequence[verify.PairedPod]:
    """Return a star's pods with its centre first; raise Refused if the centre takes no part."""
    centre = [pod for pod in pods if title in (pod.title, pod.name)]
    if pods and not centre:
        why = dict(left_out).get(title, "no pod or node has that name").rstrip(".")
        raise Refused(
            f"the centre of the star takes no part: {why}",
            remedy="Name another one first, or measure a ring",
            where=title,
        )
    return [*centre, *(pod for pod in pods if pod not in centre)]


# Copies of a pod, one on each node while they measure; they are deleted after an error too.

_LOOK_SECONDS = 1.0


class CopyRequest(Frozen):
    """A request to copy a pod: its manifest, the nodes, and the seconds for copies to start."""

    manifest: Mapping[str, Any]
    where: str  # the file or object with the manifest
    namespace: str
    nodes: tuple[str, ...] = ()  # all that fit if none
    seconds: float = 300  # in which the copies become Ready
    owner: tuple[str, str, str, str] | None = None  # apiVersion, kind, name, uid
    # Gets the number of copies before one is made, and may raise.
    admit: Callable[[int], None] = field(default=lambda _: None)
    # Manifests of single nodes, which ask for the same resources; others take no part.
    by_node: Mapping[str, Mapping[str, Any]] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)  # node: why it is not in by_node

    def manifest_for(self, node: str) -> Mapping[str, Any]:
        """Return the manifest of the copy for a node."""
        return self.manifest if self.by_node is None else self.by_node[node]

    def hindered(self, node: str) -> str:
        """Return why a node that offers the resources gets no copy; empty if it gets one."""
        if self.by_node is None or node in self.by_node:
            return ""
        return self.absent.get(node, "it has no NodeReport that can be read")


class Copies(Frozen):
    """The pods to measure, such as copies that became Ready, and why others are left out."""

    pods: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    excused: int = 0  # of left_out: nodes that nobody asked for
    remark: str = ""  # that of the ClaimOffers


@asynccontextmanager
async def copies(objects: VerifyObjects, request: CopyRequest) -> AsyncIterator[Copies]:
    """Copy a pod to nodes, wait for the copies; delete them when the context ends.

    Raise Refused for a node that does not exist, for a pod that names a claim itself, and for a
    manifest without a container.
    """
    run, namespace = secrets.token_hex(3), request.namespace
    nodes = await objects.nodes()
    names = {node["metadata"]["name"] for node in nodes}
    unknown = sorted(set(request.nodes) - names)
    if unknown:
        raise Refused(
            f"the cluster has no node {unknown[0]!r}",
            remedy="See `kubectl get nodes`",
            where="NODE",
        )
    templates = copy_rules.claim_templates(request.manifest, request.where)
    named = [each for each in nodes if each["metadata"]["name"] in (request.nodes or names)]
    claims = await claim_offers(objects, named, request.manifest, templates, namespace)
    amounts = copy_rules.amounts(request.manifest)
    chosen = dict(copy_rules.fitting(nodes, request.nodes, amounts, claims))
    left_out = {node: why for node, why in chosen.items() if why}
    excused = 0 if request.nodes else len(left_out)
    request.admit(len(chosen) - len(left_out))
    silent = copy_rules.away(nodes)
    for node in chosen.keys() - left_out.keys():
        if why := silent.get(node) or request.hindered(node):
            left_out[node] = why
    made: list[str] = []
    selector = f"{copy_rules.LABEL}={run}"
    try:
        for node in chosen.keys() - left_out.keys():
            document = copy_rules.pod_for(request.manifest_for(node), node, run, request.where)
            document["metadata"]["namespace"] = namespace
            if request.owner:
                copy_rules.owned(document, request.owner)
            try:
                await objects.create(namespace, document)
                made.append(node)
            except KubeError as error:  # a quota, or an admission
                left_out[node] = str(error)
        pods, late = await _ready(objects, (namespace, selector), len(made), request.seconds)
        absent = tuple(sorted((left_out | late).items()))
        yield Copies(tuple(pods), absent, excused, claims.remark)
    finally:
        await objects.delete(namespace, selector)


async def _ready(
    objects: VerifyObjects, place: tuple[str, str], count: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Wait for `count` copies; return those that became Ready and, by node, why others did not."""
    namespace, selector = place
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        pods = await objects.pods(namespace, selector=selector)
        reasons = {pod["metadata"]["name"]: copy_rules.not_started(pod) for pod in pods}
        failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
        settled = failed + sum(not why for why in reasons.values())
        if pods and all(map(copy_rules.without_image, pods)):  # none can pull it: its name is wrong
            settled = count
        if settled >= count or asyncio.get_running_loop().time() > deadline:
            ready = [pod for pod in pods if not reasons[pod["metadata"]["name"]]]
            late = {_node(p): why for p in pods if (why := reasons[p["metadata"]["name"]])}
            return sorted(ready, key=_node), late
        await asyncio.sleep(_LOOK_SECONDS)


def _node(pod: Mapping[str, Any]) -> str:
    """Return the node that a copy was made for, also before it is scheduled."""
    required = pod["spec"]["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
