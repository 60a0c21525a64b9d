"""Makes phrases for people that several rules need."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kube_base.natural import natural


def listed(words: Sequence[str], most: int = 3) -> str:
    """Return the first few words, and how many more there are: ``a, b, c and 997 more``."""
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")


def ranged(names: Collection[str], most: int = 3) -> str:
    """Return names in natural order; of more the first, the last and their count: ``a … i (9)``."""
    every = sorted(names, key=natural)
    return f"{every[0]} … {every[-1]} ({len(every)})" if every[most:] else ", ".join(every)


def short_count(count: int) -> str:
    """Return a number in digits, from a billion on as ``1.8e19``."""
    return str(count) if count < 10**9 else f"{count:.1e}".replace("e+", "e")


def no_carrier(interface: str) -> str:
    """Return the sentence about an interface that is up and has no carrier."""
    return f"{interface} has no carrier: check the cable and the switch port behind it"
