"""The corpora: inputs that reach different parts of a reader, few and small, in the repository.

A file for each target beside this one, in corpus/: a line is one input as a JSON string, a
character for each byte (latin-1). Tests replay all of them; engine.py begins with them, and
`make fuzz ARGS=--keep` writes what is worth keeping of a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.target import ROOT, FuzzTarget, tried

FOLDER = Path(__file__).parent / "corpus"
MOST_KEPT = 2048
"""Bytes of all inputs of one target."""

_SOURCE = f"{ROOT}/src/"
Edge = tuple[str, int, int]


def read(target: FuzzTarget, folder: Path = FOLDER) -> tuple[bytes, ...]:
    """The inputs that are kept of a target; none where there is no file yet."""
    file = folder / target.file
    if not file.exists():
        return ()
    lines = file.read_text(encoding="ascii").splitlines()
    return tuple(json.loads(line).encode("latin-1") for line in lines)


def write(target: FuzzTarget, inputs: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Keep these inputs instead of those that were kept, the shortest first."""
    folder.mkdir(exist_ok=True)
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    text = "".join(f"{json.dumps(data.decode('latin-1'))}\n" for data in ordered)
    (folder / target.file).write_text(text, encoding="ascii")


def chosen(target: FuzzTarget, inputs: Iterable[bytes], most: int = MOST_KEPT) -> tuple[bytes, ...]:
    """Few of these inputs that reach all that the samples do not, as far as `most` bytes allow.

    The shortest are tried first, so a long one is kept only for what nothing shorter reaches.
    """
    reached: set[Edge] = set()
    for sample in target.samples:
        reached |= edges(target, sample)
    kept: list[bytes] = []
    size = 0
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        new = edges(target, data) - reached
        if new and size + len(data) <= most:
            reached |= new
            kept.append(data)
            size += len(data)
    return tuple(kept)


def edges(target: FuzzTarget, data: bytes) -> set[Edge]:
    """The steps from line to line of the product that a reader takes for an input."""
    with _following() as steps:
        tried(target, data)
    return steps


@contextmanager
def _following() -> Iterator[set[Edge]]:
    steps: set[Edge] = set()

    def call(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_SOURCE):
            return None
        before = frame.f_lineno

        def line(inner: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            steps.add((name, before, inner.f_lineno))
            before = inner.f_lineno
            return line

        return line

    sys.settrace(call)
    try:
        yield steps
    finally:
        sys.settrace(None)
