"""What the program on the host costs: its size, its start, and a call that is answered at once.

It starts beside /bin/true and macvlan, a CNI plugin of Go; both are asked for their VERSION, for
which neither does anything. Then what its hooks add to a container's start (shim_hooks).
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

from bench.checkout import Checkout, checkouts, turns
from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.programs import built
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.model.attach.cni import Call, CniResult

IN_TURNS = True
ROUNDS, TURNS = 300, 10
MACHINES = ("x86_64", "aarch64")
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


def compiled(checkout: Checkout, machine: str, output: Path, *words: str) -> Path:
    """A shim of a checkout's sources."""
    output.parent.mkdir(exist_ok=True)
    build = checkout.folder / "shim" / "build.py"
    command = [checkout.python, str(build), machine, str(output), *words]
    subprocess.run(command, check=True, env=checkout.environment())
    return output


def hooks_ms(checkout: Checkout, shim: Path, folder: Path, rounds: int) -> list[float]:
    """What the hooks of a container take, again and again."""
    hooks = ("-m", "bench.shim_hooks", str(shim), str(folder))
    command = ["unshare", "-m", checkout.python, *hooks]
    done = subprocess.run(
        [*command, str(rounds)],
        cwd=checkout.folder,
        env=checkout.environment(),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    times: list[float] = json.loads(done.stdout)
    return times


def measure(context: Context) -> Iterator[Row]:
    """Build the shims, start them, call them as the runtime does, run their hooks."""
    rounds = context.times(ROUNDS, 20)
    with tempfile.TemporaryDirectory(prefix="shim-") as folder:
        root = Path(folder)
        shims, of_test = {}, {}
        for each in checkouts():
            place = root / f"{each.prefix}shims"
            for machine in MACHINES:
                size = compiled(each, machine, place / machine).stat().st_size / 1024
                yield each.named(Figure(f"{machine}_kib", size, "KiB", "≤ 64"))
            shims[each] = place / platform.machine()
            of_test[each] = compiled(each, platform.machine(), place / "kube-rdma", "--test")
        yield from attempt("start", partial(_starts, root, shims, rounds))
        yield from attempt("call", partial(_calls, root, of_test, rounds))
        yield from attempt("hooks", partial(_hooks, root, of_test, rounds))


def _starts(root: Path, shims: Mapping[Checkout, Path], rounds: int) -> Iterator[Figure]:
    config, version = root / "config", {"CNI_COMMAND": "VERSION"}
    config.write_bytes(CONFIG)
    go = str(built("plugins") / "macvlan")
    ours: dict[Checkout, list[float]] = {each: [] for each in shims}
    bare, plugin = [], []
    for each in turns(rounds):
        ours[each].append(milliseconds(str(shims[each]), version, config))
        bare.append(milliseconds("/bin/true", {}, config))
        plugin.append(milliseconds(go, version, config))
    beside = f"{median(plugin):.1f} ms of macvlan, a plugin of Go; /bin/true {median(bare):.2f} ms"
    for each, times in ours.items():
        yield each.named(Figure("start_ms", median(times), "ms", "", beside))
        ratio = median(times) / median(plugin)
        yield each.named(Figure("start_by_go", ratio, "×", "", "VERSION of both"))


def _calls(root: Path, shims: Mapping[Checkout, Path], rounds: int) -> Iterator[Figure]:
    """Run all in turns; the agent is a process with the real one's socket."""
    config = root / "config"
    config.write_bytes(CONFIG)
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    agent = fork.Process(target=answer, args=(root / "run/kube-rdma/agent.sock", ready))
    agent.start()
    ours: dict[Checkout, list[float]] = {each: [] for each in shims}
    floor = []
    try:
        ready.wait()
        environment = {**CALL, "KUBE_RDMA_ROOT": str(root)}
        for each in turns(rounds):
            ours[each].append(milliseconds(str(shims[each]), environment, config))
            floor.append(milliseconds("/bin/true", {}, config))
    finally:
        agent.terminate()
        agent.join()
    for each, times in ours.items():
        note = f"ADD and answer, {median(times) / median(floor):.1f} × /bin/true"
        yield each.named(Figure("call_ms", median(times), "ms", "≤ 0.5", note))
        yield each.named(Figure("call_p95_ms", quantiles(times, n=20)[-1], "ms"))


def _hooks(root: Path, shims: Mapping[Checkout, Path], rounds: int) -> Iterator[Figure]:
    ours: dict[Checkout, list[float]] = {each: [] for each in shims}
    for number, each in enumerate(turns(TURNS)):
        place = root / f"hooks-{number}"
        place.mkdir()
        ours[each] += hooks_ms(each, shims[each], place, rounds // TURNS)
    for each, times in ours.items():
        note = "memlock and settings of a container"
        yield each.named(Figure("hooks_ms", median(times), "ms", "≤ 3", note))
        yield each.named(Figure("hooks_p95_ms", quantiles(times, n=20)[-1], "ms"))
