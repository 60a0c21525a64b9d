"""Lines that people type: the name of the program, and the examples that end a command's help."""

from __future__ import annotations

import sys
from pathlib import Path

HEADING = "Examples:"
_NAME, _PLUGIN = "kube-rdma", "kubectl-rdma"


def program() -> str:
    """Return how the command was started: `kubectl rdma` where it is kubectl's plugin."""
    return "kubectl rdma" if Path(sys.argv[0]).name == _PLUGIN else _NAME


def typed(line: str) -> str:
    """Return a line of kube-rdma as it is typed for this program."""
    return line.replace(f"{_NAME} ", f"{program()} ")


def examples(*lines: str) -> str:
    """Return the `epilog` of a command; its first line keeps click from joining the others."""
    return "\n".join(("\b", HEADING, *(f"  {typed(line)}" for line in lines)))
