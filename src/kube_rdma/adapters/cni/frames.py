"""What travels between the shim and the agent's socket; shim/agent.c is the other half.

    request   "krq1" zero, length of environment, length of input; environment; input
    answer    "kra1" exit code, length of output; output

Numbers have 32 bits and are big-endian. The pod's network namespace comes as a descriptor beside
the first byte. The shim never closes its half before it has the answer.
"""

from __future__ import annotations

import struct

from kube_base.frozen import Frozen

MAX_INPUT = 2 << 20  # a pod's annotations are in it, up to 256 KiB with much to escape
MAX_ENVIRONMENT = 1 << 16
MAX_ANSWER = 1 << 20

_REQUEST = struct.Struct(">4sIII")
_ANSWER = struct.Struct(">4sII")
REQUEST_HEADER = _REQUEST.size
ANSWER_HEADER = _ANSWER.size


class RequestHead(Frozen):
    """What a request announces of itself; lengths in bytes."""

    environment: int
    input: int


def request(environment: bytes, input_: bytes) -> bytes:
    """The bytes of a request."""
    head = _REQUEST.pack(b"krq1", 0, len(environment), len(input_))
    return head + environment + input_


def request_head(head: bytes) -> RequestHead | None:
    """What the first REQUEST_HEADER bytes say; None when no shim sends such."""
    magic, zero, environment, input_ = _REQUEST.unpack(head)
    if magic != b"krq1" or zero:
        return None
    if environment > MAX_ENVIRONMENT or input_ > MAX_INPUT:
        return None
    return RequestHead(environment, input_)


def answer(exit_code: int, output: bytes) -> bytes:
    """The bytes of an answer."""
    return _ANSWER.pack(b"kra1", exit_code, len(output)) + output


def answer_head(head: bytes) -> tuple[int, int] | None:
    """Exit code and length of the output; None when no agent answers so."""
    magic, exit_code, length = _ANSWER.unpack(head)
    if magic != b"kra1" or exit_code > 255 or length > MAX_ANSWER:
        return None
    return exit_code, length
