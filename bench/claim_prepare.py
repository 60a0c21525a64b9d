"""How long the kubelet waits for a claim to be prepared, asked in Go as the kubelet asks.

The driver is a process of its own: socket, rules, journal and CDI files are real. The journal is on
a disk and the CDI files are in memory, as on a node, whose /run is a tmpfs. The API server that has
the claims is in memory. Two floors are the helper of Go drivers around a driver that keeps nothing,
and one that stores a record with one fsync; both have the claims in memory too. All are asked in
turns. What the disk alone takes for the record is a figure of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.checkout import Checkout
from bench.claim_spread import NODE, offered_pool
from bench.figures import Figure
from kube_base.errors import Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.adapters.journal.codec import CLAIMS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kubelet.claim_plugin import ClaimHandlers, ClaimPlugin
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.cri import read_sandboxes
from kube_rdma.claims.cluster import allocated, claims_of_pod
from kube_rdma.claims.prepared_claims import ClaimDependencies, PreparedClaims
from kube_rdma.claims.rules.shape import claim_offer
from kube_rdma.lib import logs
from kube_rdma.lib.logs import until_signal
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_testing.cluster.server import FakeServer

CALLS = 1000
UIDS, LOG = "uids.json", "log"
SLOTS = 16
MEMORY = Path("/dev/shm")  # noqa: S108  a tmpfs, in which the folder is made by mkdtemp


@dataclass(frozen=True, slots=True)
class Answers:
    """What the program of Go measured at a driver."""

    prepare_p50_ms: float
    prepare_p99_ms: float
    unprepare_p50_ms: float
    unprepare_p99_ms: float


def measure(program: Path, disk: Path, calls: int, checkout: Checkout) -> Iterator[Figure]:
    """Prepare and give back so many claims in a checkout; folders are made on `disk`."""
    with tempfile.TemporaryDirectory(dir=disk, prefix="b") as name:
        folder = Path(name)
        with (
            _driver(checkout, folder, calls),
            _started(program, "serve", str(folder / UIDS), name, log=folder / "floor"),
            _started(program, "record", str(folder / UIDS), name, log=folder / "record"),
        ):
            sockets = (folder / f"{DRIVER}.sock", folder / "floor.sock", folder / "record.sock")
            words: list[str | Path] = [program, "measure", folder / UIDS, *sockets]
            asked = subprocess.run(words, stdout=subprocess.PIPE, check=False)
        if asked.returncode:
            raise Unavailable("the program that measures claims has failed, see above")
        bare = statistics.median(_write(folder) for _ in range(calls)) * 1000
    ours, floor, record = (Answers(**one) for one in json.loads(asked.stdout))
    ratio = ours.prepare_p50_ms / record.prepare_p50_ms
    note = f"p50, {ours.prepare_p50_ms:.2f} ms by {record.prepare_p50_ms:.2f}"
    yield Figure("prepare_to_record_with_fsync", ratio, "×", "≤ 1.3", note)
    for key, goal in (("prepare_p50_ms", "≤ 3"), ("prepare_p99_ms", "≤ 10")):
        yield _beside(key, goal, ours, floor)
    yield Figure("disk_p50_ms", bare, "ms", "", "the record alone, with two fsyncs")
    for key in ("unprepare_p50_ms", "unprepare_p99_ms"):
        yield _beside(key, "", ours, floor)


def _beside(key: str, goal: str, ours: Answers, floor: Answers) -> Figure:
    mine, bare = getattr(ours, key), getattr(floor, key)
    note = f"{mine / bare:.1f} × a driver of kubeletplugin that keeps nothing ({bare:.2f} ms)"
    return Figure(key, mine, "ms", goal, note)


def _write(folder: Path) -> float:
    """What a prepared claim is on the disk, without any rule: the seconds that it takes."""
    begin = time.perf_counter()
    new = folder / "new"
    with new.open("wb") as file:
        file.write(b"x" * 400)
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / "bare")
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return time.perf_counter() - begin


def _driver(checkout: Checkout, folder: Path, calls: int) -> AbstractContextManager[None]:
    words = (checkout.python, "-m", "bench.claim_prepare", str(folder), str(calls))
    return _started(*words, log=folder / LOG, cwd=checkout.folder, env=checkout.environment())


@contextmanager
def _started(
    *words: str | Path,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """A process that says when it is ready."""
    with (
        log.open("wb") as file,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, cwd=cwd, env=env) as process,
    ):
        try:
            assert process.stdout
            if not process.stdout.readline():
                raise Unavailable(f"{words[0]} ended, its log says: {log.read_text()[-300:]}")
            yield
        finally:
            process.terminate()


def claim(number: int) -> dict[str, Any]:
    """A claim that has a share."""
    device = claim_offer([offered_pool(SLOTS)]).cards[0].name
    result = {
        "request": "card",
        "driver": DRIVER,
        "pool": NODE,
        "device": f"{device}-s0",
        "shareID": f"00000000-0000-4000-8000-{number:012}",
        "consumedCapacity": {"slots": "1"},
    }
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


async def serve(folder: Path, calls: int) -> None:
    """The driver with so many claims, until a signal."""
    server = FakeServer((RESOURCE_CLAIM,))
    for number in range(calls):
        server.put(RESOURCE_CLAIM, claim(number))
    metas = [document["metadata"] for document in server.documents("resourceclaims")]
    (folder / UIDS).write_text(json.dumps({meta["name"]: meta["uid"] for meta in metas}))
    cluster = Cluster(server.line())
    with (
        Journal(Folder(folder / "journal"), CLAIMS) as journal,
        tempfile.TemporaryDirectory(dir=MEMORY) as cdi,
    ):
        to = ClaimDependencies(
            journal,
            CdiFolder(Path(cdi)),
            partial(allocated, cluster),
            partial(claims_of_pod, cluster),
            partial(read_sandboxes, folder / "runtime.sock"),
            NODE,
            "boot",
        )
        claims = PreparedClaims(to)
        pool = offered_pool(SLOTS)
        claims.offered({pool.spec.resource: pool})
        answers = ClaimHandlers(claims.prepare, claims.unprepare)
        plugin = asyncio.create_task(ClaimPlugin(folder, DRIVER, answers).run())
        while not (folder / f"{DRIVER}.sock").exists():  # noqa: ASYNC110  at the start alone
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        await plugin


if __name__ == "__main__":
    logs.configure()
    asyncio.run(until_signal(serve(Path(sys.argv[1]), int(sys.argv[2]))))
