"""What a reader of foreign bytes promises, and what counts as a defect of it.

First of `make fuzz`: the tables (kernel.py, kubelet.py, records.py, others.py) name the readers,
table.py joins them, engine.py feeds them bytes and __main__.py shows what came out. A reader takes
bytes and may raise the product's own errors alone, each a sentence that a person can act on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kube_base.errors import KubeError

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 4096
"""Of an input, unless the target says otherwise."""

SLOW_SECONDS = 2.0
"""Of the processor, for one input. Readers take some milliseconds for the largest without counting
of what they reach, which makes them some ten times slower."""

Reader = Callable[[bytes], object]


@dataclass(frozen=True)
class FuzzTarget:
    """One reader: its samples, which it takes, and the errors that it may raise.

    `most` bounds an input in bytes.
    """

    name: str
    read: Reader
    samples: tuple[bytes, ...]
    allowed: tuple[type[BaseException], ...] = (KubeError,)
    most: int = MOST_BYTES

    @property
    def file(self) -> str:
        """The name of the file of its corpus."""
        words = "".join(sign if sign.isalnum() else " " for sign in self.name.lower()).split()
        return "-".join(words) + ".jsonl"


@dataclass(frozen=True)
class ReaderDefect:
    """What a reader did to an input that it may not do.

    `kind` is the exception's type or `slow` or `no sentence`, `place` file and line of the product.
    """

    kind: str
    place: str
    words: str
    data: bytes


def each(*readers: Reader) -> Reader:
    """A reader by several; what one says of the bytes keeps them from none of the others."""

    def read(data: bytes) -> None:
        for one in readers:
            with suppress(KubeError):
                one(data)

    return read


def tried(target: FuzzTarget, data: bytes, *, seconds: float = SLOW_SECONDS) -> ReaderDefect | None:
    """What is wrong with how the target reads these bytes; None where nothing is."""
    begin = time.thread_time()
    try:
        target.read(data)
    except target.allowed as error:
        if not str(error).strip() or "Traceback" in str(error):
            return ReaderDefect("no sentence", _place(error.__traceback__), repr(error), data)
    except Exception as error:  # noqa: BLE001  that there is none is what is asked
        kind = type(error).__name__
        return ReaderDefect(kind, _place(error.__traceback__), str(error)[:200], data)
    if (took := time.thread_time() - begin) > seconds:
        return ReaderDefect("slow", target.name, f"{took:.1f} s of the processor", data)
    return None


def _place(traceback: TracebackType | None) -> str:
    """The innermost line of the product, which is where the mending begins."""
    place = ""
    while traceback:
        file = traceback.tb_frame.f_code.co_filename
        if file.startswith(f"{ROOT}/src/") or not place:
            place = f"{file.removeprefix(f'{ROOT}/')}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
