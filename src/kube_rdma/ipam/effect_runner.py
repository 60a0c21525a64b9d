"""Carries out the effects of operations in ipam/rules/agent and ipam/rules/gc, one at a time.

The rules rely on this: a read that fails throws Unavailable into its operation, whatever the
reason. A write never raises: everything but a plain success is None. The client closes the
connection to a server that is silent (kube_client/silence), so no answer can come later; the
outcome of such a write is unknown, which is None too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.ipam.cluster import IpamObjects
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.effects import Effect, Effects
from kube_rdma.ipam.timing import IpamTiming
from kube_rdma.model.ipam import Block, BlockKey

_SPREAD = (
    0.1  # seconds over which operations that wait for the same change go on, or all would race
)

Handler = Callable[[Any], Awaitable[object]]
T = TypeVar("T")

log = structlog.get_logger()


class EffectRunner:
    """Runs the operations of one node or controller.

    `own` are handlers of effects that are not about the API server. `refusal` is the API server's
    last refusal to write a block; None as soon as it writes one.
    """

    def __init__(
        self,
        objects: IpamObjects,
        timing: IpamTiming,
        own: Mapping[type[Effect], Handler] | None = None,
    ) -> None:
        self.refusal: Refused | None = None
        self._objects = objects
        self._timing = timing
        self._news = asyncio.Event()
        self._handlers: dict[type[Effect], Handler] = {
            effects.Clock: self._clock,
            effects.Pause: self._wait,
            effects.ReadBlock: lambda effect: self._read(self._block(effect.key)),
            effects.ReadLease: lambda effect: self._read(objects.lease(effect.node)),
            effects.ReadBorrowQueue: lambda effect: self._read(objects.borrow_queue(effect.pool)),
            effects.WriteBlock: self._write_block,
            effects.WriteLease: lambda effect: self._write(objects.write_lease(effect.lease)),
            effects.WriteBorrowQueue: lambda effect: self._write(
                objects.write_borrow_queue(effect.queue)
            ),
            effects.DropBlock: lambda effect: self._write(objects.drop_block(effect.block)),
            effects.DropLease: lambda effect: self._write(objects.drop_lease(effect.lease)),
            **(own or {}),
        }

    async def run(self, operation: Effects[T]) -> T:
        """Carry out an operation to its end; raise what it raises."""
        try:
            effect = next(operation)
            while True:
                try:
                    answer = await self._handlers[type(effect)](effect)
                except KubeError as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    def wake(self) -> None:
        """Wake the operations that pause: something changed that they may wait for."""
        self._news.set()
        self._news = asyncio.Event()

    async def _clock(self, _: effects.Clock) -> float:
        return self._timing.clock()

    async def _wait(self, effect: effects.Pause) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(effect.seconds):
                await self._news.wait()
                await asyncio.sleep(random.uniform(0, _SPREAD))  # noqa: S311  spreads load

    async def _read(self, reading: Awaitable[T]) -> T:
        try:
            return await reading
        except KubeError as error:
            raise Unavailable(str(error)) from error

    async def _block(self, key: BlockKey) -> Block | None:
        """A block; None for a garbled one too: to create it fails, so it stays uncertain.

        Raising would stop the operation for all other blocks too, until a person repairs this one.
        """
        try:
            return await self._objects.block(key)
        except (Refused, Broken) as error:
            log.debug("block not understood", why=str(error))
            return None

    async def _write(self, writing: Awaitable[T]) -> T | None:
        try:
            return await self._attempt(writing)
        except Refused as error:
            log.warning("write rejected", why=str(error))
            return None

    async def _write_block(self, effect: effects.WriteBlock) -> object:
        try:
            written = await self._attempt(self._objects.write_block(effect.block))
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
