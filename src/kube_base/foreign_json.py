"""The one decoder for JSON that others wrote: pods, plugins, the API server, files of the host.

Each decoder of the libraries has failures of its own. Too deep is a RecursionError, bad text a
UnicodeError, a number too long a ValueError. An exception that nobody expects ends more than the
one call, so here all of them are Undecodable. tests/house forbids the libraries' decoders
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

from kube_base.errors import Refused

MOST_BYTES = 16 << 20  # of one document; what others may send is bounded closer where it comes in
MAX_DEPTH = 64  # no format here comes near; what walks through a value may recurse so deep
_CUT_DEPTH = 3 * MAX_DEPTH  # where `pruned` cuts: too deep for `decoded`, and no load for a stack
_WHOLE = range(-(2**63), 2**64)  # what Go and C read; beyond it arithmetic of others overflows
_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)

T = TypeVar("T")
Hook = Callable[[type, Any], Any]


class Undecodable(Refused, ValueError):
    """The error for JSON that cannot be read.

    `why` has a few words, `deep` means nested too deeply.
    """

    def __init__(self, why: str, *, deep: bool = False) -> None:
        self.why = why
        self.deep = deep
        super().__init__(f"it cannot be read ({why})", remedy="Correct it")


@overload
def decoded(data: bytes | str) -> Any: ...
@overload
def decoded(
    data: bytes | str, what: type[T], *, most: int = MOST_BYTES, hook: Hook | None = None
) -> T: ...
def decoded(
    data: bytes | str, what: Any = Any, *, most: int = MOST_BYTES, hook: Hook | None = None
) -> Any:
    """Return the value of a JSON text as type `what`; raise Undecodable if that fails.

    Plain values (dict, list) have at most MAX_DEPTH levels, and whole numbers of 64 bits. `most`
    is in bytes; `hook` makes what msgspec does not know by itself.
    """
    if len(data) > most:
        raise Undecodable(f"it is larger than {most >> 20} MiB")
    decode = _decoder(what, hook)
    try:
        value = decode(data)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeError:
        raise Undecodable("its text is not UTF-8") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Undecodable(str(error)) from None
    _refuse_excess(value)
    return value


def pruned(data: bytes) -> bytes:
    """Return a JSON document with null in place of what lies below 3 * MAX_DEPTH levels.

    A document that was cut is still too deep for `decoded` as a plain value. So one bad object of a
    list is found and named, while the others are read.
    """
    kept: list[bytes] = []
    depth, begin = 0, 0
    for match in _SIGN.finditer(data):
        sign = match[0]
        if sign in b"[{":
            if depth == _CUT_DEPTH:
                kept += [data[begin : match.start()], b"null"]
            depth += 1
        elif sign in b"]}":
            depth -= 1
            if depth == _CUT_DEPTH:
                begin = match.end()
    if depth <= _CUT_DEPTH:
        kept.append(data[begin:])
    return b"".join(kept)


@cache
def _decoder(what: Any, hook: Hook | None) -> Callable[[bytes | str], Any]:
    return msgspec.json.Decoder(what, dec_hook=hook).decode


def _refuse_excess(whole: object) -> None:
    """Raise Undecodable for too many nested levels or too large a number, without recursion."""
    level = [whole]
    for _ in range(MAX_DEPTH + 1):
        inside: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inside += value.values()
            elif isinstance(value, list):
                inside += value
            elif isinstance(value, int) and value not in _WHOLE:
                raise Undecodable("a whole number in it needs more than 64 bits")
        if not inside:
            return
        level = inside
    raise _too_deep()


def _too_deep() -> Undecodable:
    return Undecodable(f"it is nested deeper than {MAX_DEPTH} levels", deep=True)
