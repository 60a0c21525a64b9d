"""Reads a node or a cluster part by part, so that one missing right hides one part.

doctor, explain, resources, reports, migrate and install look with it. A part that fails is None,
and its reason is kept; the rules pass over what was not seen, and the views say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen, field
from kube_rdma.model.finding import NotSeen

T = TypeVar("T")


class PartReader(Frozen, kw_only=True):
    """A reader of the parts of a node or a cluster; it keeps which could not be read, and why.

    Errors of the types in `hidden_by` hide a part; all others are raised.
    """

    hidden_by: tuple[type[Exception], ...] = (KubeError, OSError, ValueError)
    worded: Callable[[Exception], str] = str  # makes a reason of an error
    patience: float | None = None  # seconds that an answer may take
    not_seen: list[NotSeen] = field(default_factory=list)

    def part(self, name: str, read: Callable[[], T]) -> T | None:
        """Return the result of `read`; if it raises, keep the error in `not_seen`, return None."""
        with self._keeping(name):
            return read()
        return None

    async def asked(self, name: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return the awaited result of `ask`; None if it raises or is late.

        The error is then kept in `not_seen`.
        """
        with self._keeping(name):
            if self.patience is None:
                return await ask()
            try:
                async with asyncio.timeout(self.patience):
                    return await ask()
            except TimeoutError:
                raise Unavailable(f"no answer within {self.patience:g} s") from None
        return None

    def keep(self, name: str, error: Exception) -> None:
        """Keep in `not_seen` that a part was not seen because of this error."""
        self.not_seen.append(NotSeen(name, self.worded(error)))

    @contextmanager
    def _keeping(self, name: str) -> Iterator[None]:
        try:
            yield
        except self.hidden_by as error:
            self.keep(name, error)


def first_sentence(error: Exception) -> str:
    """Return an error's first line without its full stop; of an OSError the file and reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error).partition("\n")[0].rstrip(".")
