"""What was said already, so that it is said once while it stands, and again when it comes back.

Loops look again and again, and most of what they find was there the last time. Who says a thing,
and how loud, is up to the loop.
"""

from __future__ import annotations

from collections.abc import Hashable


class Notices:
    """What stands now, by topic. A topic is heard of whenever somebody looked."""

    def __init__(self) -> None:
        self._standing: dict[Hashable, frozenset[str]] = {}

    def news(self, topic: Hashable, *sentences: str) -> tuple[str, ...]:
        """Those of `sentences` that did not stand before; no others stand about `topic` now."""
        before = self._standing.pop(topic, frozenset())
        if sentences:
            self._standing[topic] = frozenset(sentences)
        return tuple(sentence for sentence in dict.fromkeys(sentences) if sentence not in before)

    def over(self, topic: Hashable) -> bool:
        """Nothing stands about `topic` any more; whether something did."""
        return bool(self._standing.pop(topic, None))
