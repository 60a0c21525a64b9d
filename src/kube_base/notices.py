"""Sentences that stand, so that a loop logs each one once, and again when it comes back.

Loops look again and again, and most of what they see they saw the last time. Adapters and programs
use it, like backoff.py beside it; they choose how to log a sentence.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

MOST_TOPICS = 4096  # topics are uids of others' objects too; those of the longest silence are over


class Notices:
    """The sentences that stand now, by topic. The loop reports a topic each time it looked."""

    def __init__(self) -> None:
        self._standing: dict[Hashable, frozenset[str]] = {}

    def news(self, topic: Hashable, *sentences: str) -> tuple[str, ...]:
        """Return the new ones of `sentences`, which now stand about `topic`, and no others."""
        before = self._standing.pop(topic, frozenset())
        if sentences:
            self._standing[topic] = frozenset(sentences)
            if len(self._standing) > MOST_TOPICS:
                del self._standing[next(iter(self._standing))]
        return tuple(sentence for sentence in dict.fromkeys(sentences) if sentence not in before)

    def warn(self, log: Any, event: str, topic: Hashable, sentence: str, **facts: object) -> None:
        """Log the one sentence that stands about `topic` as a warning, with facts, if it is new."""
        for why in self.news(topic, sentence):
            log.warning(event, **facts, why=why)

    def over(self, topic: Hashable) -> bool:
        """End all sentences about `topic`; return whether any stood."""
        return bool(self._standing.pop(topic, None))
