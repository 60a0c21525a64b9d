"""Remembers what a loop has logged: it logs a sentence once, and again when the trouble comes back.

Loops look again and again, and most of what they see they saw the last time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

MOST_TOPICS = 4096  # uids of others' objects are topics too; beyond it the oldest is forgotten


class Notices:
    """The last reported sentences of each topic, so that a loop logs each of them only once."""

    def __init__(self) -> None:
        self._standing: dict[Hashable, frozenset[str]] = {}

    def news(self, topic: Hashable, *sentences: str) -> tuple[str, ...]:
        """Return the `sentences` that the last report about `topic` did not have.

        All `sentences` replace that report; without any, the topic is forgotten.
        """
        before = self._standing.pop(topic, frozenset())
        if sentences:
            self._standing[topic] = frozenset(sentences)
            if len(self._standing) > MOST_TOPICS:
                del self._standing[next(iter(self._standing))]
        return tuple(sentence for sentence in dict.fromkeys(sentences) if sentence not in before)

    def warn(self, log: Any, event: str, topic: Hashable, sentence: str, **facts: object) -> None:
        """Log a sentence as a warning unless the last report about `topic` had it too."""
        for why in self.news(topic, sentence):
            log.warning(event, **facts, why=why)

    def over(self, topic: Hashable) -> bool:
        """Forget the last report about `topic`; return whether there was one."""
        return bool(self._standing.pop(topic, None))
