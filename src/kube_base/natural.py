"""Orders names as people do: node-2 stands before node-10."""

from __future__ import annotations

import re

# Longer numbers are compared in parts: Python refuses to read those of thousands of digits.
_NUMBER = re.compile(r"(\d{1,18})", re.ASCII)


def natural(name: str) -> tuple[str | int, ...]:
    """Return a sort key for names by which numbers in them count as numbers: eth2 before eth10."""
    return tuple(int(part) if n % 2 else part for n, part in enumerate(_NUMBER.split(name)))
