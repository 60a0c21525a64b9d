"""Words of strangers as a person may see them: what a pod prints decides nothing about a terminal.

Pods' output, annotations and Events go through here on their way into sentences and onto screens.
"""

from __future__ import annotations

_KEPT = "\n\t"


def plain(text: str) -> str:
    """The text without control sequences: what is no printable character becomes ``?``."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in _KEPT else "?" for sign in text)
