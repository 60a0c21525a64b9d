"""Raises the same error, CallFailed, however a gRPC call over a unix socket fails.

Modules of kubelet/ and runtime/cri.py call through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError
from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.exceptions import ProtocolError, StreamTerminatedError

Answer = TypeVar("Answer")


class CallFailed(Exception):
    """The error of a gRPC call that failed; `status` is the server's code, None without one."""

    def __init__(self, reason: str, status: Status | None = None) -> None:
        self.reason = reason
        self.status = status
        super().__init__(reason)


@contextmanager
def calling(socket: Path) -> Iterator[Channel]:
    """Yield a connection for the calls inside the block; raise CallFailed if one of them fails."""
    channel = Channel(path=str(socket))
    try:
        with judged():
            yield channel
    finally:
        channel.close()


async def answered(call: Awaitable[Answer]) -> Answer:
    """Await a gRPC call in a task of its own, and return its answer.

    grpclib wakes a call whose connection has ended by cancelling its task, and never takes that
    back (grpclib.utils.Wrapper). In the caller's task the cancellation would stay pending. Before
    Python 3.11.4, the next asyncio.timeout that runs out there would end the task without a word.
    """
    caller = asyncio.current_task()
    assert caller
    before, task = caller.cancelling(), asyncio.ensure_future(call)
    try:
        return await task
    except (Exception, asyncio.CancelledError) as error:
        if caller.cancelling() > before:
            raise asyncio.CancelledError from error
        if task.cancelled():  # the connection ended in the moment of the answer
            raise StreamTerminatedError("Connection lost") from error
        raise


@contextmanager
def judged() -> Iterator[None]:
    """Raise CallFailed in place of each error by which a gRPC call of the block can fail."""
    try:
        yield
    except GRPCError as error:
        raise CallFailed(error.message or error.status.name, error.status) from error
    except TimeoutError as error:
        raise CallFailed("no answer in time") from error
    except OSError as error:
        raise CallFailed(error.strerror or str(error)) from error
    except (StreamTerminatedError, ProtocolError) as error:
        raise CallFailed(str(error) or type(error).__name__) from error
    except (DecodeError, AssertionError, NotImplementedError) as error:
        raise CallFailed("the answer cannot be read") from error  # garbled, cut, compressed
