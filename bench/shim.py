"""How long the shim takes for a call that an agent answers at once, beside /bin/true.

And what its hooks add to the start of a container that holds a share (shim_hooks).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.model.attach.cni import Call, CniResult

ROUNDS = 300
BUILD = Path(__file__).parents[1] / "shim" / "build.py"
CONFIG = json.dumps(
    {
        "cniVersion": "1.0.0",
        "name": "pods",
        "type": "kube-rdma",
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "sandbox": "/run/netns/a"}],
            "ips": [{"address": "10.0.0.7/24", "interface": 0}],
        },
    }
).encode()
CALL = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c0ffee",
    "CNI_IFNAME": "eth0",
    "CNI_NETNS": "/proc/self/ns/net",
}


def milliseconds(
    program: str, environment: dict[str, str], config: Path, words: tuple[str, ...] = ()
) -> float:
    """Return the wall time of one process, from its start to its end."""
    with config.open("rb") as stdin:
        actions = [
            (os.POSIX_SPAWN_DUP2, stdin.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ]
        begin = time.perf_counter()
        pid = os.posix_spawn(program, [program, *words], environment, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        took = time.perf_counter() - begin
    assert status == 0, f"{program} failed"
    return took * 1000


def answer(socket: Path, ready: Event) -> None:
    """Be an agent that gives every pod what it had."""

    async def handler(call: Call) -> CniResult:
        del call
        return CniResult()

    async def serve() -> None:
        async with CniSocket(socket, handler) as server:
            ready.set()
            await server.serve()

    asyncio.run(serve())


def hooks_ms(shim: str, folder: Path, rounds: int) -> list[float]:
    """What the hooks of a container take, again and again."""
    command = ["unshare", "-m", sys.executable, "-m", "bench.shim_hooks", shim, str(folder)]
    done = subprocess.run(
        [*command, str(rounds)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    times: list[float] = json.loads(done.stdout)
    return times


def measure(context: Context) -> Iterator[Row]:
    """Build both shims, call one as the runtime does, run its hooks."""
    rounds = context.times(ROUNDS, 20)
    with tempfile.TemporaryDirectory(prefix="shim-") as folder:
        root = Path(folder)
        yield from attempt("sizes", partial(_sizes, root))
        build = [sys.executable, str(BUILD), platform.machine(), str(root / "kube-rdma"), "--test"]
        subprocess.run(build, check=True)
        yield from attempt("call", partial(_calls, root, rounds))
        yield from attempt("hooks", partial(_hooks, root, rounds))


def _sizes(root: Path) -> Iterator[Figure]:
    for machine in ("x86_64", "aarch64"):
        subprocess.run([sys.executable, BUILD, machine, root / machine], check=True)
        size = (root / machine).stat().st_size / 1024
        yield Figure(f"{machine}_kib", size, "KiB", "≤ 64")


def _calls(root: Path, rounds: int) -> Iterator[Figure]:
    """Run both in turns; the agent is a process with the real one's socket."""
    config = root / "config"
    config.write_bytes(CONFIG)
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    agent = fork.Process(target=answer, args=(root / "run/kube-rdma/agent.sock", ready))
    agent.start()
    try:
        ready.wait()
        environment = {**CALL, "KUBE_RDMA_ROOT": str(root)}
        shim = str(root / "kube-rdma")
        pairs = [
            (milliseconds(shim, environment, config), milliseconds("/bin/true", {}, config))
            for _ in range(rounds)
        ]
    finally:
        agent.terminate()
        agent.join()
    ours, floor = zip(*pairs, strict=True)
    ratio = median(ours) / median(floor)
    yield Figure("call_ms", median(ours), "ms", "0.5", f"ADD and answer, {ratio:.1f} × /bin/true")
    yield Figure("call_p95_ms", quantiles(ours, n=20)[-1], "ms")
    yield Figure("bin_true_ms", median(floor), "ms")


def _hooks(root: Path, rounds: int) -> Iterator[Figure]:
    hooks = hooks_ms(str(root / "kube-rdma"), root, rounds)
    yield Figure("hooks_ms", median(hooks), "ms", "≤ 3", "memlock and settings of a container")
    yield Figure("hooks_p95_ms", quantiles(hooks, n=20)[-1], "ms")
