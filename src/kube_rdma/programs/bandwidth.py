"""Runs perftest between pods, pair by pair: `kube-rdma verify`, and the BandwidthChecks.

    pods ─► probe each ─► rounds ─► all pairs of a round at once ─► outcomes ─► proof

A pair that fails is an outcome too; the others go on. Nothing is decided here: who meets whom, what
is run and what figures mean is rules/verify.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma.model.bandwidth import (
    PairedPod,
    PairKey,
    PairOutcome,
    PairProof,
    PairStandard,
    PerftestRow,
    PerftestRun,
    PodDevice,
)
from kube_rdma.model.errors import KubeRdmaError, Refused
from kube_rdma.rules.verify.perftest import (
    LISTENING,
    client_script,
    perftest_words,
    server_script,
    table,
)
from kube_rdma.rules.verify.pods import END_OF_INPUT, PROBE, paired_pod
from kube_rdma.rules.verify.rounds import rounds
from kube_rdma.rules.verify.verdicts import rate, suspects

LeftOut: TypeAlias = tuple[tuple[str, str], ...]  # who takes no part, and why

FIRST_PORT, PORTS = 18515, 1000  # perftest's own, and those behind it
TRIES = 3  # of a measurement whose work requests fail
FAILED_REQUEST = "Completion with error"  # perftest, where a packet was lost too often


class PodShell(Protocol):
    """adapters/cluster/pod_commands, as far as this needs it."""

    async def run(self, namespace: str, pod: str, argv: Sequence[str], *, stdin: str = "") -> str:
        """What a command prints; Unavailable when it fails."""

    def serving(
        self, namespace: str, pod: str, argv: Sequence[str], *, until: str
    ) -> AbstractAsyncContextManager[None]:
        """A context in which a command runs that has printed a line `until`."""


class BandwidthProof:
    """One run over given pods."""

    def __init__(self, commands: PodShell, run: PerftestRun) -> None:
        self._commands = commands
        self._run = run
        # Servers of a run that broke off may still listen: another run begins elsewhere.
        begin = random.randrange(PORTS)  # noqa: S311  nobody is to be kept from guessing it
        self._ports = (FIRST_PORT + number % PORTS for number in itertools.count(begin))

    async def probed(self, document: dict[str, Any]) -> PairedPod:
        """A pod with what it measures with; Refused or Unavailable when it can not."""
        metadata = document["metadata"]
        argv, asks = ("sh", "-c", PROBE), f"{NCCL_ENV.read_text()}{END_OF_INPUT}"
        answer = await self._commands.run(metadata["namespace"], metadata["name"], argv, stdin=asks)
        return paired_pod(document, answer)

    async def all_probed(
        self, documents: Sequence[dict[str, Any]], left_out: LeftOut = ()
    ) -> tuple[list[PairedPod], LeftOut]:
        """The pods that can take part, and why others cannot, after those that are `left_out`."""
        pods, silent = [], list(left_out)
        for document in documents:
            try:
                pods.append(await self.probed(document))
            except KubeRdmaError as error:
                silent.append((document["metadata"]["name"], str(error)))
        return pods, tuple(silent)

    async def measure(
        self,
        pods: Sequence[PairedPod],
        show: Callable[[PairOutcome], None] = lambda _: None,
        *,
        both_ways: bool = False,
    ) -> list[PairOutcome]:
        """Every two pods, rail by rail; `show` gets each outcome when it is there."""
        outcomes: list[PairOutcome] = []

        async def pair(client: PairedPod, server: PairedPod) -> None:
            for rail in range(min(len(client.devices), len(server.devices))):
                outcome = await self._outcome(client, server, rail)
                outcomes.append(outcome)
                show(outcome)

        for pairs in rounds(pods, both_ways=both_ways):
            async with asyncio.TaskGroup() as group:
                for client, server in pairs:
                    group.create_task(pair(client, server))
        return outcomes

    def proof(
        self,
        outcomes: Sequence[PairOutcome],
        standard: PairStandard,
        left_out: LeftOut = (),
        before: Mapping[PairKey, float] | None = None,
    ) -> PairProof:
        """What the outcomes are worth, also beside the figures of an earlier run."""
        rated = rate(outcomes, standard, before)
        return PairProof(self._run, rated, suspects(rated), left_out)

    async def _outcome(self, client: PairedPod, server: PairedPod, rail: int) -> PairOutcome:
        near, far = client.devices[rail], server.devices[rail]
        lines = [device.gbps for device in (near, far) if device.gbps is not None]
        rows: tuple[PerftestRow, ...] = ()
        failure = ""
        try:
            rows = await self._rows((client, near), (server, far))
        except KubeRdmaError as error:
            failure = str(error)
        return PairOutcome(
            client=client.title,
            server=server.title,
            rail=rail,
            devices=(near.name, far.name),
            line_gbps=min(lines) if len(lines) == 2 else None,  # soft devices have none
            rows=rows,
            failure=failure,
        )

    async def _rows(
        self, client: tuple[PairedPod, PodDevice], server: tuple[PairedPod, PodDevice]
    ) -> tuple[PerftestRow, ...]:
        for last in _tries():
            try:
                return table(await self._once(client, server))
            except KubeRdmaError as error:
                if last or FAILED_REQUEST not in str(error):
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
        listening = self._commands.serving(
            far.namespace, far.name, ("sh", "-c", script), until=LISTENING
        )
        async with listening:
            here = ("sh", "-c", client_script(words, seconds))
            return await self._commands.run(near.namespace, near.name, here)

    def _dialled(self, pod: PairedPod, device: PodDevice) -> str:
        """By RDMA_CM an address says which device is meant; else any address of the pod does."""
        if not self._run.rdma_cm:
            return pod.address
        if device.address is None:
            raise Refused(
                f"nobody told the address of {device.name}, which RDMA_CM needs",
                remedy="Leave --rdma-cm out, or give the pod a network of kube-rdma",
                where=f"pod/{pod.name}",
            )
        return device.address


def _tries() -> Iterator[bool]:
    """Whether it is the last one."""
    return (number == TRIES for number in range(1, TRIES + 1))
