"""Runs one of perftest's programs (ib_read_bw, ib_write_bw) between two endpoints.

Its scripts and its table are the product's own (verify/rules/perftest); the lab waits longer, and
reads the GIDs that perftest prints.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median

from kube_base.errors import Unavailable
from kube_rdma.verify.rules.perftest import (
    LISTENING,
    client_script,
    is_worth_a_try,
    server_script,
    table,
)
from kube_rdma_lab import waiting
from kube_rdma_lab.lab import Lab

STRAY_SECONDS = 900  # of the reference: how long a lost run may go on in a pod
END_SECONDS = 30  # of the reference, until a server that has no stdin any more is gone
TCP_PORT = 18515  # perftest's own
RUNS = 5  # of a test that may pass when it is done again
_GID = re.compile(r"^ GID: (?P<gid>[0-9:]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place to run perftest in: its name, the address to dial, and its command prefix.

    Its commands read the stdin of the local process, which a server needs.
    """

    label: str
    address: str
    command: Callable[..., list[str]]


def in_pod(lab: Lab, pod: str, address: str, *words: str, namespace: str = "default") -> Endpoint:
    """Return a pod as a place to run perftest in, through `kubectl exec` with these words."""
    enter = ("-n", namespace, "exec", "-i", pod, "--", *words)
    return Endpoint(pod, address, lambda *more: lab.kubectl(*enter, *more))


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one perftest run.

    A rate of 0 may mean a slow machine; `iterations` shows that bytes were moved.
    """

    iterations: int
    gbps: float
    gids: tuple[str, ...]  # local and remote, as perftest prints them

    @property
    def addresses(self) -> frozenset[str]:
        """Return the IPv4 addresses in the GIDs, whose bytes perftest prints as %02d."""
        ends = (gid.split(":")[-4:] for gid in self.gids)
        return frozenset(".".join(str(int(byte)) for byte in end) for end in ends)


@dataclass(frozen=True, slots=True)
class Series:
    """The results of repeated perftest runs between the same endpoints."""

    outcomes: tuple[Measurement, ...]

    @property
    def median(self) -> float:
        """Return the median bandwidth in Gbit/s."""
        return median(outcome.gbps for outcome in self.outcomes)

    @property
    def spread(self) -> tuple[float, float]:
        """Return the lowest and the highest bandwidth in Gbit/s."""
        values = [outcome.gbps for outcome in self.outcomes]
        return min(values), max(values)


def parse(text: str) -> Measurement:
    """Parse the output of a perftest client; raise Unavailable when it holds no result."""
    row = table(text)[0]
    return Measurement(row.iterations, row.figure, tuple(_GID.findall(text)))


def measure(
    lab: Lab,
    server: Endpoint,
    client: Endpoint,
    words: tuple[str, ...],
    *,
    stray: int = STRAY_SECONDS,
) -> Measurement:
    """Run `words` as a perftest server and, with its address, as a client; return the result.

    `words` set a number of iterations, not a time, in which a slow machine may move nothing. After
    `stray` seconds at the reference's pace (pace.py) either end is given up. Raise Unavailable if
    perftest fails; a failure that may pass has to come RUNS times.
    """
    seconds = round(stray * max(1.0, lab.state.pace))
    serving = server.command("sh", "-c", server_script(words, TCP_PORT, seconds))
    asking = client.command("sh", "-c", client_script((*words, server.address), seconds))

    def once() -> Measurement:
        with _serving(lab, serving, server.label):
            return parse(waiting.run(lab, asking))

    return _retried(once)


def _retried(measurement: Callable[[], Measurement]) -> Measurement:
    """Repeat a measurement that failed for a reason that may pass on a busy machine.

    There Soft-RoCE may take a repeated packet for an invalid request (status 9). perftest compares
    two clocks that differ while other programs have the cores. A server may wait for a client that
    is gone (verify/rules/perftest.py, client_script).
    """
    for _ in range(RUNS - 1):
        try:
            return measurement()
        except Unavailable as error:
            if not is_worth_a_try(str(error)) and waiting.STILL not in str(error):
                raise
    return measurement()


@contextmanager
def _serving(lab: Lab, argv: list[str], label: str) -> Iterator[None]:
    """Run a perftest server inside the `with`, whose body begins when it listens.

    The server ends with its stdin. Its local process then has END_SECONDS before SIGTERM: it may be
    an ssh whose connection other commands share, and they would end, too.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            _wait_until_listening(process, label)
            yield
        finally:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_SECONDS * max(1.0, lab.state.pace))
            process.terminate()


def _wait_until_listening(serving: subprocess.Popen[str], label: str) -> None:
    assert serving.stdout is not None
    heard = []
    for line in serving.stdout:
        if line.strip() == LISTENING:
            return
        heard.append(line)
    raise Unavailable(f"perftest's server on {label} ended: {''.join(heard).strip()[-400:]}")
