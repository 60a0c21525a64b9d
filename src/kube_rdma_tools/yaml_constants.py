"""Constants as people write them in YAML: unquoted where no parser reads something else.

Parsers of YAML 1.1 and 1.2 read these templates and values. A text that one of them could take for
another type, or for syntax of YAML, is quoted as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

WIDTH = 100
_STEP = 2
# A letter or a slash first, perhaps as an option; single blanks, and colons inside of a word.
_PLAIN = re.compile(r"(--?)?[A-Za-z/](?:[\w./$()=+-]|:(?=[\w/])|(?<=\S) (?=\S))*", re.ASCII)
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"))
_BLANK = re.compile(r"(?<=\S) (?=\S)")


def scalar(value: Any) -> str:
    """Return a value as one line of YAML; objects and lists as JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)


def assigned(head: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the YAML lines of a constant after a field's name or dash; fold long texts."""
    line = f"{head} {scalar(value)}"
    if not isinstance(value, str) or value != value.strip(" ") or "\t" in value:
        yield line
    elif _is_block(value):
        yield f"{head} |"
        texts = value.removesuffix("\n").split("\n")
        yield from (f"{' ' * (indent + _STEP)}{text}" if text else "" for text in texts)
    elif len(line) > WIDTH and "\n" not in value and value.isprintable():
        yield f"{head} >-"
        yield from (f"{' ' * (indent + _STEP)}{text}" for text in _folded(value, indent + _STEP))
    else:
        yield line


def _is_block(text: str) -> bool:
    """Decide whether a text has several lines that a YAML block scalar can hold unchanged.

    A block scalar has no escapes, so a text with unprintable characters is quoted.
    """
    lines = text.split("\n")
    is_whole = text == text.strip() + "\n" and len(lines) > 2
    return is_whole and all(line.isprintable() for line in lines)


def in_line(values: Sequence[Any], room: int) -> str:
    """Return a list as one line of YAML, ``[get, list]``.

    Return "" if it is longer than `room`, or has an object, a list or a colon.
    """
    if any(isinstance(value, dict | list) for value in values):
        return ""
    texts = [scalar(value) for value in values]
    line = f"[{', '.join(texts)}]"
    # Older parsers take a colon in such a list for that of an object.
    return line if len(line) <= room and not any(":" in text for text in texts) else ""


def _folded(text: str, indent: int) -> Iterator[str]:
    """Yield the lines of a folded text, which YAML joins with blanks."""
    line = ""
    for word in _BLANK.split(text):
        if line and len(line) + 1 + len(word) > WIDTH - indent:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
