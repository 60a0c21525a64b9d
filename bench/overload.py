"""A node that cannot keep up: many pods at once, and an agent with a tenth of a processor.

The node is that of `attach`: real links, journal and IPAM, called by the shim's process. First all
pods come at once and the runtime waits. Then the same pods come again, and the runtime gives each
call up, deletes its sandbox and tries with another one, as the kubelet does, after half of the time
that all took. What counts are ratios of this one run: how much fewer pods a minute come up so, and
which part of what the agent did in the kernel was for nobody.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from bench.attach import Driver, node
from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable

PODS, TRIES = 48, 12
SHARE = 0.1  # of one processor
PATIENCE = 0.5  # of the time that all pods took
MOST_SECONDS = 900.0
_PERIOD = 100_000  # microseconds, the kernel's own


@dataclass
class Burst:
    """What became of the pods of one burst."""

    seconds: float = 0.0
    started: int = 0
    given_up: int = 0
    attempts: list[str] = field(default_factory=list)  # the pods' names, of every try

    @property
    def pods_per_minute(self) -> float:
        """How fast they came up."""
        return 60 * self.started / self.seconds


class BurstRuntime:
    """Calls the shim for sandboxes, and gives up when its patience is over."""

    def __init__(self, driver: Driver, pods: int, patience: float) -> None:
        self._driver = driver
        self._pods = pods
        self._patience = patience
        self._lock = Lock()
        self._end = time.monotonic() + MOST_SECONDS

    def burst(self, sandboxes: list[dict[str, Any]]) -> Burst:
        """All pods at once, each with as many tries as there are sandboxes for it."""
        burst = Burst()
        begin = time.monotonic()
        with ThreadPoolExecutor(self._pods) as threads:
            tries = [sandboxes[first :: self._pods] for first in range(self._pods)]
            list(threads.map(lambda each: self._pod(each, burst), tries))
        burst.seconds = time.monotonic() - begin
        return burst

    def _pod(self, sandboxes: list[dict[str, Any]], burst: Burst) -> None:
        for sandbox in sandboxes:
            with self._lock:
                burst.attempts.append(sandbox["pod"])
            if self._driver.call("ADD", sandbox, self._patience):
                with self._lock:
                    burst.started += 1
                return
            with self._lock:
                burst.given_up += 1
            self._driver.call("DEL", sandbox, MOST_SECONDS)
            if time.monotonic() > self._end:
                return


def measure(context: Context) -> Iterator[Figure]:
    """One burst with a patient runtime, one with an impatient one."""
    pods = context.times(PODS, 6)
    with tempfile.TemporaryDirectory(prefix="overload-") as name, node(Path(name)) as driver:
        driver.shims(1, 2)  # what the first pod loads is not the burst's
        calm = _burst(driver, pods, tries=1, patience=MOST_SECONDS)
        if calm.started < pods:
            raise Unavailable(f"only {calm.started} of {pods} started within {MOST_SECONDS:g} s")
        note = f"{pods} at once, {SHARE:.0%} of a core"
        yield Figure("pods_per_minute", calm.pods_per_minute, "/min", "", note)
        hasty = _burst(driver, pods, tries=TRIES, patience=calm.seconds * PATIENCE)
        attached = _attached(Path(name) / "log")
    done = len(attached & set(hasty.attempts))
    wasted = (done - hasty.started) / max(done, 1)
    rate = hasty.pods_per_minute
    yield Figure("pods_per_minute_impatient", rate, "/min", "", "half of that time for each")
    ratio = rate / calm.pods_per_minute
    yield Figure("pods_per_minute_by_patient", ratio, "", "≥ 0.7", "by those of a patient runtime")
    note = f"of {done} attachments of impatient callers"
    yield Figure("thrown_away", wasted, "", "≤ 0.3", note)
    note = f"{hasty.started} started"
    yield Figure("calls_given_up_per_pod", hasty.given_up / pods, "", "", note)


def _burst(driver: Driver, pods: int, *, tries: int, patience: float) -> Burst:
    """The sandboxes are made by the runtime, so before the agent is held."""
    sandboxes = driver.ask("open", nics=1, pods=pods * tries)["sandboxes"]
    with held(driver.pid):
        burst = BurstRuntime(driver, pods, patience).burst(sandboxes)
    driver.ask("end")
    return burst


def _attached(log: Path) -> set[str]:
    """The pods whose attachments were made to the end, by the agent's log."""
    return set(re.findall(r"event=attached pod=default/(\S+)", log.read_text()))


@contextmanager
def held(pid: int) -> Iterator[None]:
    """Give a process SHARE of one processor while the scope is open (cgroups of either version)."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    root = Path("/sys/fs/cgroup" if unified else "/sys/fs/cgroup/cpu")
    group = root / f"kube-rdma-overload-{os.getpid()}"
    quota = int(_PERIOD * SHARE)
    try:
        if unified:
            (root / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
        if unified:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise Unavailable(
            f"{root} cannot be written ({error.strerror}); run it as root."
        ) from error
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            (root / "cgroup.procs").write_text(str(pid))
        with suppress(OSError):
            group.rmdir()
