"""What happened when: parts of one act as spans on a timeline, taken from outside of the program.

A Timeline stands around objects that the program calls: each call of a method that has a text here
is a span. The program itself knows nothing of it, so what it does is what it always does.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

from kube_base.frozen import Frozen

T = TypeVar("T")
SpanText: TypeAlias = str | Callable[..., str]
"""The text of a call's span, or what makes it of the call's arguments."""


class TimelineSpan(Frozen):
    """A part: who worked (`lane`), at what, and from when to when in ms."""

    lane: str
    text: str
    begin: float
    end: float


class Timeline:
    """Spans since `start`; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._zero = clock()
        self._spans: list[TimelineSpan] = []

    def start(self) -> None:
        """Forget all; now is 0."""
        self._spans.clear()
        self._zero = self._clock()

    @property
    def spans(self) -> tuple[TimelineSpan, ...]:
        """In the order in which they began."""
        return tuple(sorted(self._spans, key=lambda span: span.begin))

    @contextmanager
    def part(self, lane: str, text: str) -> Iterator[None]:
        """The block is a span."""
        begin = self._clock()
        try:
            yield
        finally:
            moments = [(one - self._zero) * 1000 for one in (begin, self._clock())]
            self._spans.append(TimelineSpan(lane, text, *moments))

    def around(self, target: T, lane: str, texts: Mapping[str, SpanText]) -> T:
        """The object, of whose methods those with a text are spans; all else is as it is."""
        return cast(T, _Watched(self, target, lane, texts))


class _Watched:
    """Stands for an object; only what is called is looked at."""

    def __init__(self, timeline: Timeline, target: Any, lane: str, texts: Mapping[str, SpanText]):
        self._timeline, self._target = timeline, target
        self._lane, self._texts = lane, texts

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name not in self._texts:
            return value
        text, timeline, lane = self._texts[name], self._timeline, self._lane

        def of(words: tuple[Any, ...]) -> str:
            return text if isinstance(text, str) else text(*words)

        if inspect.iscoroutinefunction(value):

            @functools.wraps(value)
            async def awaited(*words: Any, **more: Any) -> Any:
                with timeline.part(lane, of(words)):
                    return await value(*words, **more)

            return awaited

        @functools.wraps(value)
        def called(*words: Any, **more: Any) -> Any:
            with timeline.part(lane, of(words)):
                return value(*words, **more)

        return called
