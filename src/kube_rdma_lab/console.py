"""Reading a node's console: what its first program, node/root/sbin/lab-init, says of its boot."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from kube_rdma.model.errors import Unavailable

STAGE = "lab: stage "
FAILED = "lab: failed "


class Console:
    """Follows one console log; remembers the stages that were reached and when it last grew."""

    def __init__(self, node: str, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._log = log
        self._clock = clock
        self._grew = clock()
        self._offset = 0
        self._rest = ""
        self._stages: dict[str, float] = {}

    async def reached(self, stage: str) -> bool:
        """Read what is new; True once `stage` was reached, Unavailable when the boot failed."""
        with self._log.open("rb") as source:
            source.seek(self._offset)
            new = source.read()
        if new:
            self._grew = self._clock()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            self._take(line.strip())
        return stage in self._stages

    def silent_seconds(self) -> float:
        """Return how long nothing came; what was not read yet counts as silence."""
        return self._clock() - self._grew

    def _take(self, line: str) -> None:
        if (start := line.find(FAILED)) >= 0:
            reason = line[start + len(FAILED) :]
            raise Unavailable(f"{self._node} did not boot: {reason}; its console is {self._log}")
        if (start := line.find(STAGE)) >= 0:
            name, _, seconds = line[start + len(STAGE) :].partition(" ")
            self._stages[name] = float(seconds or 0)
