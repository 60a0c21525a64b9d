"""Encodes and decodes netlink messages and attributes; sends requests and returns their answers.

The modules beside it speak through it; it knows no family of its own. Encoding, decoding and
judging an answer are pure functions over bytes, the socket at the end only carries them. Layout and
numbers are in include/uapi/linux/netlink.h and Documentation/userspace-api/netlink/intro.rst.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum, IntFlag
from typing import Self

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NUMBER = struct.Struct("=I")  # most attributes
_ERROR = struct.Struct("=i")  # 0 or a negative errno
_TYPE_MASK = 0x3FFF  # the two upper bits say "nested" and "big endian"
_EXT_MESSAGE = 1  # NLMSGERR_ATTR_MSG: the kernel's own sentence

_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _STRICT = 270, 10, 11, 12
_BUFFER = 1 << 16  # a dump never sends more than 32 KiB at once
_PATIENCE = 2.0  # seconds; the kernel answers while sendmsg() runs, so this is a safety net
_TRIES = 3
_MOST_ERRNO = 4095  # MAX_ERRNO, include/linux/err.h


class Control(IntEnum):
    """Message types below NLMSG_MIN_TYPE, the same in every family."""

    NOOP = 1
    ERROR = 2
    DONE = 3
    OVERRUN = 4


class Flag(IntFlag):
    """Flags of a message header; the upper byte depends on the kind of message."""

    REQUEST = 0x1
    MULTI = 0x2
    ACK = 0x4
    DUMP_INTR = 0x10
    CAPPED = 0x100
    ACK_TLVS = 0x200
    DUMP = 0x300


# Plain numbers: to join flags of an enum takes longer than the kernel takes for a message.
_ASKING, _DUMPING = int(Flag.REQUEST | Flag.ACK), int(Flag.REQUEST | Flag.DUMP)
_INTERRUPTED = int(Flag.DUMP_INTR)
_ENDS = frozenset(map(int, (Control.ERROR, Control.DONE)))


class Message(Frozen):
    """A netlink message; `payload` excludes the header and the padding."""

    type: int
    flags: int
    sequence: int
    payload: bytes = b""


class Attribute(Frozen):
    """A netlink attribute; `type` excludes the flag bits."""

    type: int
    value: bytes


class ChangedMeanwhileError(Exception):
    """The error for a dump during which the kernel's tables changed: ask again.

    The answer has the flag NLM_F_DUMP_INTR, or a message NLMSG_OVERRUN.
    """


def encode(message: Message) -> bytes:
    """Return the bytes of a message, with port 0 as its sender, which the kernel fills in."""
    length = _HEADER.size + len(message.payload)
    header = _HEADER.pack(length, message.type, message.flags, message.sequence, 0)
    return _padded(header + message.payload)


def decode(datagram: bytes) -> tuple[Message, ...]:
    """Return the messages of one datagram; raise Unavailable if it is cut short or malformed."""
    messages, at = [], 0
    while at < len(datagram):
        if len(datagram) - at < _HEADER.size:
            raise Unavailable(f"netlink: {len(datagram) - at} bytes left where a header belongs")
        length, kind, flags, sequence, _ = _HEADER.unpack_from(datagram, at)
        if not _HEADER.size <= length <= len(datagram) - at:
            raise Unavailable(f"netlink: a message has a wrong length, {length} bytes")
        payload = datagram[at + _HEADER.size : at + length]
        messages.append(Message(kind, flags, sequence, payload))
        at += _aligned(length)
    return tuple(messages)


def encode_attributes(attributes: Iterable[Attribute]) -> bytes:
    """Return attributes one after the other, each padded to four bytes."""
    return b"".join(
        _padded(_ATTRIBUTE.pack(_ATTRIBUTE.size + len(a.value), a.type) + a.value)
        for a in attributes
    )


def decode_attributes(payload: bytes) -> tuple[Attribute, ...]:
    """Return the attributes of a payload; raise Unavailable if one of them is cut short."""
    return tuple(Attribute(kind, value) for kind, value in _values(payload))


def values_by_type(payload: bytes) -> dict[int, bytes]:
    """Return the attributes of a payload by type; of repeated ones the last."""
    return dict(_values(payload))


def split(form: struct.Struct, payload: bytes) -> tuple[tuple[int, ...], dict[int, bytes]]:
    """Return an answer's family header and attributes; raise Unavailable if it is cut short."""
    if len(payload) < form.size:
        raise Unavailable(f"netlink: {len(payload)} bytes where {form.size} belong")
    return form.unpack_from(payload), values_by_type(payload[form.size :])


def number(
    attributes: Mapping[int, bytes], which: int, form: struct.Struct = _NUMBER
) -> int | None:
    """Return the number in an attribute, None without one; raise Unavailable for another size."""
    value = attributes.get(which)
    if value is None:
        return None
    if len(value) != form.size:
        raise Unavailable(f"netlink: attribute {which} has {len(value)} bytes, not {form.size}")
    return int(form.unpack(value)[0])


def text(attributes: Mapping[int, bytes], which: int) -> str:
    """Return the text in an attribute, "" without one."""
    return attributes.get(which, b"").rstrip(b"\0").decode(errors="replace")


def _values(payload: bytes) -> Iterator[tuple[int, bytes]]:
    at, end, header = 0, len(payload), _ATTRIBUTE.size
    while at < end:
        if end - at < header:
            raise Unavailable(f"netlink: {end - at} bytes left where an attribute belongs")
        length, kind = _ATTRIBUTE.unpack_from(payload, at)
        if not header <= length <= end - at:
            raise Unavailable(f"netlink: an attribute says it has {length} bytes and does not")
        yield kind & _TYPE_MASK, payload[at + header : at + length]
        at += (length + 3) & ~3  # _aligned, without a call for each


def answer(datagrams: Iterable[bytes], sequence: int) -> tuple[bytes, ...]:
    """Return the payloads that answer request `sequence`, up to its acknowledgement or end of dump.

    Messages of other requests are passed over. Raise Unavailable, with the sentence of the kernel,
    when it refuses; also when the answer is malformed, or `datagrams` end too soon. Raise
    ChangedMeanwhileError when the answer is not of one state of the tables.
    """
    payloads: list[bytes] = []
    interrupted = False
    for datagram in datagrams:
        for message in decode(datagram):
            if message.sequence != sequence or message.type == Control.NOOP:
                continue
            interrupted |= bool(message.flags & _INTERRUPTED)
            if message.type == Control.OVERRUN:
                raise ChangedMeanwhileError
            if message.type in _ENDS:
                _raise_refusal(message)
                if interrupted:
                    raise ChangedMeanwhileError
                return tuple(payloads)
            payloads.append(message.payload)
    raise Unavailable("netlink: the answer ended too soon")


def _raise_refusal(message: Message) -> None:
    """Raise the refusal that an answer carries; do nothing for a plain acknowledgement."""
    if message.type == Control.DONE and not message.payload:
        return
    if len(message.payload) < _ERROR.size:
        raise Unavailable("netlink: an acknowledgement without a result")
    code = -_ERROR.unpack_from(message.payload)[0]
    if code == 0:
        return
    if not 0 < code <= _MOST_ERRNO:
        raise Unavailable("netlink: an acknowledgement whose result is no error number")
    cause = OSError(code, os.strerror(code))
    sentence = _kernel_sentence(message)
    words = f"{sentence} ({cause.strerror})" if sentence else cause.strerror
    raise Unavailable(f"the kernel refuses: {words}") from cause


def _kernel_sentence(message: Message) -> str:
    """Return the text of the extended acknowledgement, empty without one.

    In an ERROR it follows the request that is quoted: its header alone when capped, else all of it.
    """
    if not message.flags & Flag.ACK_TLVS:
        return ""
    at = _ERROR.size
    if message.type == Control.ERROR:
        quoted = message.payload[at : at + _HEADER.size]
        if len(quoted) < _HEADER.size:
            raise Unavailable("netlink: a refusal that does not quote its request")
        capped = message.flags & Flag.CAPPED
        at += _HEADER.size if capped else _aligned(_HEADER.unpack(quoted)[0])
    return text(values_by_type(message.payload[at:]), _EXT_MESSAGE)


class Netlink:
    """A socket of one netlink family, in the network namespace in which it was opened."""

    def __init__(self, family: int) -> None:
        """Open the socket; raise OSError when the kernel has no such family (EPROTONOSUPPORT)."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, family)
        self._socket.settimeout(_PATIENCE)
        # Quote only the header of what was refused, and say why in words.
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0

    def be_strict(self) -> None:
        """Have the kernel filter dumps by the index in the request, as it can since Linux 4.20.

        Before that it dumps everything, as it does for a socket that is not strict.
        """
        with suppress(OSError):
            self._socket.setsockopt(_SOL_NETLINK, _STRICT, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(
        self, kind: int, body: bytes = b"", *, dump: bool = False, more: int = 0
    ) -> tuple[bytes, ...]:
        """Send one netlink request and return the payloads of its answer.

        `body` is what follows the header: attributes, behind the family's own header if it has one.
        `more` are flags that mean something to this kind of request (NLM_F_CREATE and its like).
        Raise Unavailable when the kernel refuses, does not answer, answers nonsense, or its tables
        change at each try.
        """
        flags = (_DUMPING if dump else _ASKING) | more
        for _ in range(_TRIES):
            self._sequence += 1
            try:
                self._socket.send(encode(Message(kind, flags, self._sequence, body)))
                return answer(self._datagrams(), self._sequence)
            except ChangedMeanwhileError:
                continue
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise Unavailable(f"netlink: {error.strerror or 'no answer'}") from error
        raise Unavailable(f"netlink: the answer changed while it was read, {_TRIES} times in a row")

    def _datagrams(self) -> Iterator[bytes]:
        while True:
            data, _, flags, (sender, _) = self._socket.recvmsg(_BUFFER)
            if flags & socket.MSG_TRUNC:
                raise Unavailable(f"netlink: a datagram of more than {_BUFFER} bytes was cut")
            if sender == 0:  # anybody may write to this port; only the kernel writes from port 0
                yield data


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))
