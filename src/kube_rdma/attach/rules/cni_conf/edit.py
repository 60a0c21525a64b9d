"""Puts a plugin into the text of a list and takes it out, and leaves every other byte as it is.

For conflist. The file is somebody else's: whoever wrote it compares it by bytes at times, or keeps
numbers and orders of keys in it that a JSON library would not give back. So only where the entry
begins and ends is looked for, with the decoder's own scanner.
"""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in typeshed

_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"

Span = tuple[int, int]


def appended(text: str, entry: str) -> str:
    """The list with one more plugin behind the last one, on a line of its own if that is on one."""
    spans = _plugins(text)
    begin, end = spans[-1]
    before = len(text[:begin].rstrip(_SPACE))
    return f"{text[:end]},{text[before:begin]}{entry}{text[end:]}"


def removed(text: str, place: int) -> str:
    """The list without its plugin at a place that is not the first."""
    spans = _plugins(text)
    return text[: spans[place - 1][1]] + text[spans[place][1] :]


def _plugins(text: str) -> list[Span]:
    """Where the elements of the member "plugins" of the outermost object begin and end.

    The text is such a list; of several members of that name the last one counts, as in Go.
    """
    spans: list[Span] = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] == '"':
        key, at = scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)
        if key == "plugins":
            spans = _elements(text, at)
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return spans


def _elements(text: str, at: int) -> list[Span]:
    """Those of the array that begins here; none of anything else."""
    spans: list[Span] = []
    while text[at] in "[,":
        at = _skip(text, at + 1)
        if text[at] == "]":
            break
        end = _end(text, at)
        spans.append((at, end))
        at = _skip(text, end)
    return spans


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at
