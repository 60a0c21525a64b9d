"""Remembers the turns of queues in which namespaces and owners are served one after another.

The one that was served longest ago, or never, is next (attach/rules/repair, BandwidthChecks). What
a tenant makes anew under another name or uid comes behind what others have waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

MOST = 1024  # turns that are remembered; beyond it whoever was served longest ago is forgotten

K = TypeVar("K")
V = TypeVar("V")


def served(before: Mapping[K, V], key: K, turn: V) -> dict[K, V]:
    """Return the turns with a new last turn of `key`, even if nothing of the key waits any more."""
    others = [each for each in before.items() if each[0] != key]
    return {**dict(others[1 - MOST :]), key: turn}
