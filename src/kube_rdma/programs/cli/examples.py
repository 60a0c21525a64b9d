"""The lines that end a command's help: what people type, ready to be copied."""

from __future__ import annotations

HEADING = "Examples:"


def examples(*lines: str) -> str:
    """The `epilog` of a command; its first line keeps click from joining the others."""
    return "\n".join(("\b", HEADING, *(f"  {line}" for line in lines)))
