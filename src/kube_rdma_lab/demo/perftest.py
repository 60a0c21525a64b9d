"""Running one of perftest's programs (ib_read_bw, ib_write_bw) between two endpoints.

perftest prints a table and has a JSON option whose output is not JSON (unquoted keys, 4.5), so the
table is read: its header names the unit, its last row the figures.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import waiting
from kube_rdma_lab.lab import Lab

STRAY_SECONDS = 900  # of the reference: what a lost run may live on in a pod
LISTENING = "listening"
TRIES = 60  # of a client by RDMA_CM, one each second
RUNS = 3  # of a test whose work requests fail
FAILED_REQUEST = "Completion with error"
# perftest's servers wait on TCP port 18515 for the exchange of queue pair numbers.
# In /proc/net/tcp: that local port in hexadecimal, any peer, state 0A (LISTEN); connections of an
# earlier run may still hang about.
LISTEN_IN_PROC = ":4853 0*:0000 0A"
MEGABYTE_BITS = 8 * 2**20  # perftest's "MB" is 2**20 bytes
_UNITS = {"MB/sec": MEGABYTE_BITS / 1e9, "Gb/sec": 1.0}
_HEADER = re.compile(r"BW average\[(?P<unit>[^]]+)\]")
_GID = re.compile(r"^ GID: (?P<gid>[0-9:]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place where perftest can run: its name, the address to dial, the way to enter it."""

    label: str
    address: str
    command: Callable[..., list[str]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run measured.

    A rate of 0 may be a slow machine; that bytes were moved is told by `iterations`.
    """

    iterations: int
    gbps: float
    gids: tuple[str, ...]  # local and remote, as perftest prints them: which identity carried it

    @property
    def addresses(self) -> frozenset[str]:
        """The IPv4 addresses that the GIDs are made of; perftest prints each byte as %02d."""
        ends = (gid.split(":")[-4:] for gid in self.gids)
        return frozenset(".".join(str(int(byte)) for byte in end) for end in ends)


@dataclass(frozen=True, slots=True)
class Series:
    """Equal runs between the same endpoints."""

    outcomes: tuple[Measurement, ...]

    @property
    def median(self) -> float:
        """Median bandwidth in Gbit/s."""
        return median(outcome.gbps for outcome in self.outcomes)

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest bandwidth in Gbit/s."""
        values = [outcome.gbps for outcome in self.outcomes]
        return min(values), max(values)


def parse(text: str) -> Measurement:
    """Read the output of a perftest client; Unavailable when it holds no result."""
    header = _HEADER.search(text)
    if header is None or header["unit"] not in _UNITS:
        raise Unavailable(f"perftest printed no result: {text.strip()[-400:]}")
    for line in text[header.end() :].splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[0].isdigit():
            gbps = float(fields[3]) * _UNITS[header["unit"]]
            return Measurement(int(fields[1]), gbps, tuple(_GID.findall(text)))
    raise Unavailable(f"perftest printed a header but no figures: {text.strip()[-400:]}")


def server_script(words: tuple[str, ...]) -> str:
    """Return a shell script that runs a perftest server and says when it can be dialled."""
    return (
        f"{shlex.join(words)} & server=$!;"
        f" until grep -qs '{LISTEN_IN_PROC}' /proc/net/tcp /proc/net/tcp6;"
        " do kill -0 $server || exit 1; sleep 0.1; done;"
        f" echo {LISTENING}; wait $server"
    )


def client_script(words: tuple[str, ...]) -> str:
    """Return a shell script that runs a perftest client by RDMA_CM until a server has answered.

    Its server listens on no port of TCP, so nothing else tells that it does.
    """
    return (
        f"for again in $(seq {TRIES}); do"
        f' if text=$({shlex.join(words)} 2>&1); then echo "$text"; exit; fi; sleep 1; done;'
        ' echo "$text" >&2; exit 1'
    )


def measure(lab: Lab, server: Endpoint, client: Endpoint, words: tuple[str, ...]) -> Measurement:
    """Run `words` as a server and, with its address, as a client; return what the client saw.

    `words` name a number of iterations, never a time: a slow machine moves nothing in 3 seconds.
    """
    bounded = _bounded(lab)
    argv = server.command(*bounded, "sh", "-c", server_script(words))

    def once() -> Measurement:
        with _serving(argv) as serving:
            _wait_until_listening(serving, server.label)
            return parse(waiting.run(lab, client.command(*bounded, *words, server.address)))

    return _retried(once)


def measure_by_cm(
    lab: Lab, server: Endpoint, client: Endpoint, words: tuple[str, ...]
) -> Measurement:
    """The same with words that connect by RDMA_CM (`-R`)."""
    bounded = _bounded(lab)
    script = client_script((*words, server.address))

    def once() -> Measurement:
        with _serving(server.command(*bounded, *words)):
            return parse(waiting.run(lab, client.command(*bounded, "sh", "-c", script)))

    return _retried(once)


def _retried(measurement: Callable[[], Measurement]) -> Measurement:
    """Measure again when a work request fails, which on a starved machine Soft-RoCE's do.

    Its responder then takes a packet that was sent again for an invalid request (status 9).
    """
    for _ in range(RUNS - 1):
        try:
            return measurement()
        except Unavailable as error:
            if FAILED_REQUEST not in str(error):
                raise
    return measurement()


def _bounded(lab: Lab) -> tuple[str, ...]:
    return ("timeout", f"{STRAY_SECONDS * max(1.0, lab.state.pace):.0f}")


@contextmanager
def _serving(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A perftest server while its client runs."""
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _wait_until_listening(serving: subprocess.Popen[str], label: str) -> None:
    assert serving.stdout is not None
    heard = []
    for line in serving.stdout:
        if line.strip() == LISTENING:
            return
        heard.append(line)
    raise Unavailable(f"perftest's server on {label} ended: {''.join(heard).strip()[-400:]}")
