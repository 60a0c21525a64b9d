"""How long Allocate takes of one of 1000 shares, asked in Go as the kubelet asks.

The agent is a process of a checkout with everything real but the kernel (standin.py). The floor is
a device plugin of Go that decides nothing; both are asked in turns, so whatever else the machine
does hits both. Before that the agent is left alone, to see what so many shares cost a node with
nothing to do: with one card and with eight, 1000 shares each.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.checkout import HERE, Checkout, in_turns
from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.standin import RESOURCE, TREE, Cost, card, write_config, write_node
from kube_base.errors import Unavailable
from kube_rdma.adapters.kubelet.folders import DEVICE_PLUGINS
from kube_rdma_lab.build.go import build_module
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import cache_root
from kube_rdma_testing.kubelet.kubelet import FakeKubelet

OURS = Checkout(HERE)
MODULES = Path(__file__).with_name("go")
LOG = "log"
IN_TURNS = True
CALLS, SHARES, IDLE_SECONDS, ROUNDS = 5000, 1000, 10, 3
# How much longer an answer may take than one of the bare plugin.
GOALS = {"one_card": 2.5, "eight_cards": 3}
# What the node offers: cards, and the pool over them.
Offered = tuple[int, dict[str, object]]
ONE: Offered = (1, {"mode": "hca", "shares": SHARES})
EIGHT: Offered = (8, {"mode": "shared-multi", "shares": SHARES})


@dataclass(frozen=True, slots=True)
class Load:
    """What is done on a node: calls by the program of Go, after some idle seconds."""

    program: Path
    calls: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What the program of Go measured at one plugin."""

    shares: int
    first_list_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Node:
    """What was measured on one node."""

    idle: Cost  # of idle_seconds
    idle_seconds: float
    ours: Asked
    floor: Asked
    resident_mib: float  # after all calls


def measure(context: Context) -> Iterator[Row]:
    """Ask the agent on a node with one card, then on one with eight."""
    # A store of its own: the lab's parts are counted and pruned without it.
    with Store(cache_root() / "bench") as store:
        program = build_module(store, "allocate", MODULES) / "allocate"
        for name, offered in (("one_card", ONE), ("eight_cards", EIGHT)):
            yield from attempt(name, partial(_figures, context, program, name, offered))


def _figures(context: Context, program: Path, name: str, offered: Offered) -> list[Figure]:
    load = Load(program, context.times(CALLS, 100), context.times(IDLE_SECONDS))

    def measured(checkout: Checkout) -> list[Figure]:
        taken = asyncio.run(node(load, *offered, checkout))
        return figures(name, taken, goals=offered is ONE)

    return [*in_turns(measured, context.times(ROUNDS, 1))]


def figures(name: str, node: Node, *, goals: bool) -> list[Figure]:
    """Return the figures of one node; those of many shares of one card have most of the goals."""
    ours, floor, idle = node.ours, node.floor, node.idle

    def call(key: str, goal: str) -> Figure:
        mine, bare = getattr(ours, key), getattr(floor, key)
        note = f"{mine / bare:.1f} × a bare plugin in Go ({bare:.3f} ms); {ours.shares} shares"
        return Figure(f"{name}_{key}", mine, "ms", goal if goals else "", note)

    wakes = f"in {node.idle_seconds:g} s"
    ratio = ours.p50_ms / floor.p50_ms
    note = f"p50, {ours.p50_ms:.3f} ms by {floor.p50_ms:.3f}"
    return [
        Figure(f"allocate_{name}_to_go", ratio, "×", f"≤ {GOALS[name]:g}", note),
        call("p50_ms", "≤ 0.6"),
        call("p99_ms", "≤ 2"),
        call("max_ms", ""),
        call("first_list_ms", "≤ 50"),
        Figure(f"{name}_idle_wakeups", idle.wakes, "", "0", wakes),
        Figure(f"{name}_idle_cpu_ms", idle.cpu_seconds * 1000, "ms", "the same for both", wakes),
        Figure(f"{name}_resident_mib", idle.resident_mib, "MiB", "≤ 70", "before the calls"),
        Figure(f"{name}_resident_after_mib", node.resident_mib, "MiB", "≤ 70"),
    ]


async def node(load: Load, cards: int, pool: dict[str, object], checkout: Checkout = OURS) -> Node:
    """Start the agent on a node with `cards` and the bare plugin, and measure both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_node(folder / TREE, [card(number) for number in range(cards)])
        write_config(folder, pool)
        async with FakeKubelet.at(folder) as kubelet, agent(folder, checkout) as process:
            await started(kubelet, cards * SHARES, folder / LOG)
            await asyncio.sleep(2)  # what follows a registration is over
            before = await ask_cost(process)
            await asyncio.sleep(load.idle_seconds)
            after = await ask_cost(process)
            ours, floor = await compare(load, folder)
            # The question wakes the agent once itself.
            idle = Cost(
                after.wakes - before.wakes - 1,
                after.cpu_seconds - before.cpu_seconds,
                after.resident_mib,
            )
            resident = (await ask_cost(process)).resident_mib
            return Node(idle, load.idle_seconds, ours, floor, resident)


async def started(kubelet: FakeKubelet, shares: int, log: Path) -> None:
    """Wait until the agent has offered all shares; raise Unavailable with what it logged."""
    try:
        await kubelet.until(lambda: kubelet.healthy(RESOURCE) == shares)
    except TimeoutError:
        raise Unavailable(f"the agent offers no such shares, its log ends: {last(log)}") from None


def last(log: Path) -> str:
    """Return the last line of a log."""
    return (log.read_text().splitlines() or ["nothing"])[-1]


@asynccontextmanager
async def agent(folder: Path, checkout: Checkout = OURS) -> AsyncIterator[Process]:
    """The agent as a process of a checkout, its log in a file as a container's is."""
    with (folder / LOG).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            checkout.python,
            "-m",
            "bench.standin",
            str(folder),
            cwd=checkout.folder,
            env=checkout.environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def ask_cost(process: Process) -> Cost:
    """Ask the agent what it has cost so far."""
    process.send_signal(signal.SIGUSR1)
    assert process.stdout
    wakes, seconds, resident = (await process.stdout.readline()).split()
    return Cost(int(wakes), float(seconds), float(resident))


async def compare(load: Load, folder: Path) -> list[Asked]:
    """Return what Go measured at the agent and at the bare plugin."""
    ours = folder / DEVICE_PLUGINS / f"kube-rdma-{RESOURCE.replace('/', '_')}.sock"
    bare = folder / "bare.sock"
    words = ("serve", "-shares", str(SHARES), str(bare))
    floor = await asyncio.create_subprocess_exec(load.program, *words, stdout=subprocess.PIPE)
    try:
        assert floor.stdout
        await floor.stdout.readline()  # it listens
        asking = await asyncio.create_subprocess_exec(
            load.program,
            "measure",
            "-calls",
            str(load.calls),
            ours,
            bare,
            stdout=subprocess.PIPE,
        )
        answer, _ = await asking.communicate()
        if asking.returncode:
            raise Unavailable("the program that measures Allocate has failed, see above")
    finally:
        floor.terminate()
        await floor.wait()
    return [Asked(**each) for each in json.loads(answer)]
