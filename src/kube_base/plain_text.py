"""Text from outside as one printable line, for pages, errors and logs.

A terminal would obey control characters in pods' output, annotations or Events.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """Return the text as one line: newlines and tabs become blanks.

    Every other character that is not printable, such as ESC or a bidirectional override, becomes
    ``?``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "?" for c in text)


def ended(text: str) -> str:
    """Return a sentence; add a full stop unless it ends in a sign such as a question mark."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def cell_width(text: str) -> int:
    """Return how many columns a text takes on a terminal: wide characters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(not combining(one) and 1 + (east_asian_width(one) in "WF") for one in text)


def clipped(text: str, room: int) -> str:
    """Return the longest beginning of a text that is at most `room` columns wide."""
    return next(text[:end] for end in range(len(text), -1, -1) if cell_width(text[:end]) <= room)
