"""Runs perftest between pods, pair by pair: `kube-rdma verify`, and the BandwidthChecks.

    pods ─► probe each ─► rounds ─► turns, all pairs of each at once ─► proof

A pair that fails is an outcome too; the others go on. Whatever runs in a pod has an end here, for
the pod's own may never come. Nothing is decided here: who meets whom, what is run and what figures
mean is verify/rules.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeAlias, TypeVar

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field, replace
from kube_client.silence import Silence
from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma.model.claims.device import PublishedCard
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.verify.bandwidth import (
    PROBE_SECONDS,
    PairedPod,
    PairKey,
    PairOutcome,
    PairProof,
    PairStandard,
    PerftestRow,
    PerftestRun,
    PodDevice,
)
from kube_rdma.verify.rules.perftest import (
    LISTENING,
    client_script,
    is_worth_a_try,
    perftest_words,
    server_script,
    table,
)
from kube_rdma.verify.rules.pods import (
    END_OF_INPUT,
    PLACES,
    PORT_RATES,
    PROBE,
    names_devices,
    paired_pod,
    short_title,
)
from kube_rdma.verify.rules.rails import with_rails
from kube_rdma.verify.rules.rounds import Turn
from kube_rdma.verify.rules.suspects import suspects
from kube_rdma.verify.rules.verdicts import rate

LeftOut: TypeAlias = tuple[tuple[str, str], ...]  # who takes no part, and why
ClaimedCards: TypeAlias = Mapping[PodName, Sequence[PublishedCard]]
"""The cards that pods have by ResourceClaims."""

FIRST_PORT, PORTS = 18515, 1000  # perftest's own, and those behind it
TRIES = 3  # of a measurement whose work requests fail
GRACE = 30.0  # seconds for what the pod itself should have ended
_PROBES = 16  # at once
_HUNG = 3  # measurements of a device that did not end; then it is measured no more
_SMALL = 4096  # characters of output that are read at once; more is read in a thread

T = TypeVar("T")


class PodShell(Protocol):
    """kube_client/pod_commands, as far as this needs it."""

    async def run(self, namespace: str, pod: str, argv: Sequence[str], *, stdin: str = "") -> str:
        """What a command prints; Unavailable when it fails."""

    def serving(
        self, namespace: str, pod: str, argv: Sequence[str], *, until: str
    ) -> AbstractAsyncContextManager[None]:
        """A context in which a command runs that has printed a line `until`."""


class Pacing(Frozen):
    """How long things may take, and whose turn it is.

    `limit` makes the end of something after so many seconds (TimeoutError), `turn` what is held
    while pairs are measured, `clock` is in seconds. After `run_seconds` of turns no other begins.
    A pod has `probe_seconds` to say which devices it has.
    """

    limit: Callable[[float], AbstractAsyncContextManager[object]] = field(default=Silence)
    turn: Callable[[], AbstractAsyncContextManager[object]] = field(default=nullcontext)
    clock: Callable[[], float] = field(default=time.monotonic)
    run_seconds: float = 86400.0
    probe_seconds: float = PROBE_SECONDS


class BandwidthProof:
    """One run over given pods; a `brief` one keeps of each table the row that stands for it."""

    def __init__(
        self,
        commands: PodShell,
        run: PerftestRun,
        pacing: Pacing | None = None,
        *,
        brief: bool = False,
    ) -> None:
        self._commands = commands
        self._run = run
        self._brief = brief
        self._pacing = pacing or Pacing()
        self.outcomes: list[PairOutcome] = []
        self._spent = 0.0  # seconds of turns
        self._hung: Counter[tuple[str, str]] = Counter()  # by pod and device
        # Servers of a run that broke off may still listen: another run begins elsewhere.
        begin = random.randrange(PORTS)  # noqa: S311  nobody is to be kept from guessing it
        self._ports = (FIRST_PORT + number % PORTS for number in itertools.count(begin))

    async def probed(
        self, document: dict[str, Any], cards: Sequence[PublishedCard] = ()
    ) -> PairedPod:
        """A pod with what it measures with; Refused or Unavailable when it can not.

        `cards` are those of its ResourceClaims.
        """
        metadata = document["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        script, asks = PROBE, f"{NCCL_ENV.read_text()}{END_OF_INPUT}"
        if names_devices(document):  # a shell on a busy node takes long for the rest
            script, asks = PORT_RATES, ""
        elif cards:
            script = f"{PLACES}{PROBE}"
        try:
            async with self._pacing.limit(self._pacing.probe_seconds + GRACE):
                answer = await self._commands.run(namespace, name, ("sh", "-c", script), stdin=asks)
        except TimeoutError as error:
            raise _endless(f"sh in pod {name}", self._pacing.probe_seconds) from error
        return await _aside(answer, lambda text: paired_pod(document, text, cards))

    async def all_probed(
        self,
        documents: Sequence[dict[str, Any]],
        left_out: LeftOut = (),
        cards: ClaimedCards | None = None,
    ) -> tuple[list[PairedPod], LeftOut]:
        """The pods that can take part, and why others cannot, after those that are `left_out`.

        `cards` are those of the pods' claims.
        """
        some_at_once = asyncio.Semaphore(_PROBES)

        async def answered(document: dict[str, Any]) -> PairedPod | tuple[str, str]:
            async with some_at_once:
                try:
                    return await self.probed(document, (cards or {}).get(_name(document), ()))
                except KubeError as error:
                    return short_title(document), str(error)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answered(document)) for document in documents]
        answers = [task.result() for task in tasks]
        silent = tuple(answer for answer in answers if isinstance(answer, tuple))
        pods = with_rails([pod for pod in answers if isinstance(pod, PairedPod)])
        return pods, (*left_out, *silent)

    async def measure(
        self, turns: Iterable[Turn], show: Callable[[PairOutcome], None] = lambda _: None
    ) -> list[PairOutcome]:
        """All pairs, turn by turn; `show` gets each outcome when it is there.

        What is missing at the end of the run's time was not measured. `outcomes` has all that was
        measured by now, also after an interruption.
        """

        async def measured(client: PairedPod, server: PairedPod, rail: int) -> None:
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
        outcomes: Sequence[PairOutcome],
        standard: PairStandard,
        left_out: LeftOut = (),
        before: Mapping[PairKey, float] | None = None,
        *,
        due: int = 0,
    ) -> PairProof:
        """What the outcomes are worth, also beside the figures of an earlier run.

        `due` is how many there had to be.
        """
        rated = rate(outcomes, standard, before)
        missing = max(0, due - len(outcomes))
        return PairProof(self._run, rated, suspects(rated), left_out, missing)

    async def _outcome(self, client: PairedPod, server: PairedPod, rail: int) -> PairOutcome:
        near, far = client.by_rail[rail], server.by_rail[rail]
        lines = [device.gbps for device in (near, far) if device.gbps is not None]
        rows: tuple[PerftestRow, ...] = ()
        failure = self._given_up((client.title, near.name), (server.title, far.name))
        if not failure:
            try:
                rows = await self._rows((client, near), (server, far))
            except KubeError as error:
                failure = str(error)
        outcome = PairOutcome(
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

    async def _rows(
        self, client: tuple[PairedPod, PodDevice], server: tuple[PairedPod, PodDevice]
    ) -> tuple[PerftestRow, ...]:
        for last in _tries():
            try:
                return await _aside(await self._once(client, server), table)
            except KubeError as error:
                if last or not is_worth_a_try(str(error)):
                    raise
        raise AssertionError("the last try returns or raises")

    async def _once(
        self, client: tuple[PairedPod, PodDevice], server: tuple[PairedPod, PodDevice]
    ) -> str:
        """What a client prints. A port is not used again soon: an older server may still listen."""
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
        """Why a device is measured no more: a card that hangs would hold up all others."""
        for title, device in ends:
            if self._hung[title, device] >= _HUNG:
                return f"{_HUNG} measurements over {device} of {title} did not end"
        return ""

    def _dialled(self, pod: PairedPod, device: PodDevice) -> str:
        """By RDMA_CM an address says which device is meant; else any address of the pod does."""
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


def _tries() -> Iterator[bool]:
    """Whether it is the last one."""
    return (number == TRIES for number in range(1, TRIES + 1))


def _endless(what: str, seconds: float) -> Unavailable:
    """What was given up; only its connection is closed, for nothing else ends it from here."""
    return Unavailable(f"{what} has not ended after {seconds + GRACE:g} s, it may hang in its card")


async def _aside(text: str, read: Callable[[str], T]) -> T:
    """Read an output, a big one in a thread, so that others have their turns meanwhile."""
    return read(text) if len(text) < _SMALL else await asyncio.to_thread(read, text)
