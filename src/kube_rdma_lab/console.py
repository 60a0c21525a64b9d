"""Reads a node's console: what its first program says of its boot, and hung tasks of its kernel."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma_lab.processes import tail

# The kernel's notices, as signs of life (watchdog.py), until the first program of user space runs:
# from then on the console is for `lab: stage`, with only errors of the kernel between.
LOUDNESS = "loglevel=6 sysctl.kernel.printk=4"
STAGE = "lab: stage "
FAILED = "lab: failed "
ENDED = re.compile(r"lab: (\S+) ended with code")
# What a kernel logs every two minutes of a task that waits inside it (kernel/hung_task.c).
BLOCKED = re.compile(r"INFO: task (\S+) blocked for more than (\d+) seconds")
# A task that the kernel reports twice most likely waits for a lock that nobody releases.
HUNG_SECONDS = 240
# A service may end once or twice before what it needs is there; one that never lives will not.
MOST_ENDS = 5


class Console:
    """A follower of a node's console log: the boot stages that it shows, and when it last grew.

    Services that end again and again, and tasks that the kernel calls hung, are noticed too.
    """

    def __init__(self, node: str, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._log = log
        self._clock = clock
        self._grew = clock()
        self._offset = 0
        self._rest = ""
        self._stages: dict[str, float] = {}
        self._ends: Counter[str] = Counter()
        self.hung = ""  # the task that its kernel reports as blocked for HUNG_SECONDS

    async def reached(self, stage: str) -> bool:
        """Read new output; return whether `stage` was reached.

        Raise as `read` does.
        """
        self.read()
        return stage in self._stages

    def read(self) -> None:
        """Read new output of the console; raise Unavailable when the boot failed.

        Raise it as well when a service has ended MOST_ENDS times.
        """
        with self._log.open("rb") as source:
            source.seek(self._offset)
            new = source.read()
        if new:
            self._grew = self._clock()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            self._take(line.strip())

    def silent_seconds(self) -> float:
        """Return the seconds since the log last grew, as far as it was read."""
        return self._clock() - self._grew

    def _take(self, line: str) -> None:
        if (start := line.find(FAILED)) >= 0:
            reason = line[start + len(FAILED) :]
            raise Unavailable(f"{self._node} did not boot: {reason}; its console is {self._log}")
        if (blocked := BLOCKED.search(line)) and int(blocked[2]) >= HUNG_SECONDS:
            self.hung = blocked[1]
        if ended := ENDED.search(line):
            self._ends[ended[1]] += 1
            if self._ends[ended[1]] == MOST_ENDS:
                words = tail(self._log)
                raise Unavailable(
                    f"{ended[1]} of {self._node} does not stay up; {self._log}:\n{words}"
                )
        if (start := line.find(STAGE)) >= 0:
            name, _, seconds = line[start + len(STAGE) :].partition(" ")
            self._stages[name] = float(seconds or 0)
