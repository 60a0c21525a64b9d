"""Text from outside as one printable line, for pages, errors and logs.

Pods' output, annotations, images, versions, conditions and Events go through here before a person's
terminal or shell sees them.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """Return the text as one line: ends of lines and tabs become blanks.

    Every other character that is not printable, as an escape sequence or a bidirectional
    override, becomes ``?``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "?" for c in text)


def ended(text: str) -> str:
    """Return a sentence with its stop, of which a question has another."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
