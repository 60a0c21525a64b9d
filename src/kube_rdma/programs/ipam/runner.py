"""Carries out what the rules of IPAM say, act by act: rules/ipam/agent and rules/ipam/gc speak, the
API server and the journal are spoken to.

Here stands what the rules rely on. A read that fails throws Unavailable into its talk, whatever the
reason. A write never raises: everything but a plain success is None. The client gives up a server
that is silent (kube_client/silence) and hangs up, so no answer can come later; for a write the
outcome is then unknown, which is None too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.adapters.cluster.ipam import IpamObjects
from kube_rdma.model.ipam import Block, Cell
from kube_rdma.programs.ipam.pace import IpamTiming
from kube_rdma.rules.ipam import effects
from kube_rdma.rules.ipam.effects import Act, Talk

_SPREAD = 0.1  # seconds over which those who wait for the same news look, or all would race

Handler = Callable[[Any], Awaitable[object]]
T = TypeVar("T")

log = structlog.get_logger()


class Runner:
    """The acts of one desk or post; `own` are those that are not about the API server.

    `refusal` is what the API server said when it last refused to write a block: None as soon as it
    writes one.
    """

    def __init__(
        self, door: IpamObjects, pace: IpamTiming, own: Mapping[type[Act], Handler] | None = None
    ) -> None:
        self.refusal: Refused | None = None
        self._door = door
        self._pace = pace
        self._news = asyncio.Event()
        self._acts: dict[type[Act], Handler] = {
            effects.Clock: self._clock,
            effects.Pause: self._wait,
            effects.ReadBlock: lambda act: self._read(self._block(act.cell)),
            effects.ReadLease: lambda act: self._read(door.lease(act.node)),
            effects.ReadBoard: lambda act: self._read(door.board(act.pool)),
            effects.WriteBlock: self._write_block,
            effects.WriteLease: lambda act: self._write(door.write_lease(act.lease)),
            effects.WriteBoard: lambda act: self._write(door.write_board(act.board)),
            effects.DropBlock: lambda act: self._write(door.drop_block(act.block)),
            effects.DropLease: lambda act: self._write(door.drop_lease(act.lease)),
            **(own or {}),
        }

    async def run(self, operation: Talk[T]) -> T:
        """Carry out a talk to its end; raise what it raises."""
        try:
            act = next(operation)
            while True:
                try:
                    answer = await self._acts[type(act)](act)
                except KubeError as error:
                    act = operation.throw(error)
                else:
                    act = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    def wake(self) -> None:
        """Something changed that a talk may be waiting for."""
        self._news.set()
        self._news = asyncio.Event()

    async def _clock(self, _: effects.Clock) -> float:
        return self._pace.clock()

    async def _wait(self, act: effects.Pause) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(act.seconds):
                await self._news.wait()
                await asyncio.sleep(random.uniform(0, _SPREAD))  # noqa: S311  spreads load

    async def _read(self, reading: Awaitable[T]) -> T:
        try:
            return await reading
        except KubeError as error:
            raise Unavailable(str(error)) from error

    async def _block(self, cell: Cell) -> Block | None:
        """A garbled block is as good as none: to create it fails, so its cell stays in doubt.

        Raised, it would hold up all other cells too, for as long as nobody repairs it.
        """
        try:
            return await self._door.block(cell)
        except (Refused, Broken) as error:
            log.debug("block not understood", why=str(error))
            return None

    async def _write(self, writing: Awaitable[T]) -> T | None:
        try:
            return await self._attempt(writing)
        except Refused as error:
            log.warning("write rejected", why=str(error))
            return None

    async def _write_block(self, act: effects.WriteBlock) -> object:
        try:
            written = await self._attempt(self._door.write_block(act.block))
        except Refused as error:
            self.refusal = error
            return None
        if written:
            self.refusal = None
        return written

    async def _attempt(self, writing: Awaitable[T]) -> T | None:
        """The result of a write, None when it is unknown; raise Refused alone."""
        try:
            return await writing
        except Refused:
            raise
        except KubeError:
            return None
