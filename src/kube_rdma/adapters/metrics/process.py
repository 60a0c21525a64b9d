"""Reads the usual figures of this process for Prometheus: CPU, memory, open files.

The names are those of Prometheus' client libraries, so that usual dashboards show them.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from kube_base.frozen import Frozen

_START, _UTIME, _STIME, _VSIZE, _RSS = 19, 11, 12, 20, 21  # behind the name, proc_pid_stat(5)
PROC = Path("/proc")


class ProcessFigures(Frozen):
    """The figures of a process in seconds, bytes and counts; `started` is in Unix time."""

    cpu: float
    resident: int
    virtual: int
    started: float
    open_files: int
    most_files: int


def read_process(proc: Path = PROC) -> ProcessFigures | None:
    """Return the figures of this process now; None where /proc does not have them."""
    try:
        stat = (proc / "self/stat").read_bytes().rpartition(b")")[2].split()
        lines = (proc / "stat").read_bytes().splitlines()
        boot = next(int(line.split()[1]) for line in lines if line.startswith(b"btime "))
        open_files = sum(1 for _ in (proc / "self/fd").iterdir())
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        return ProcessFigures(
            cpu=(int(stat[_UTIME]) + int(stat[_STIME])) / ticks,
            resident=int(stat[_RSS]) * page,
            virtual=int(stat[_VSIZE]),
            started=boot + int(stat[_START]) / ticks,
            open_files=open_files,
            most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return None
