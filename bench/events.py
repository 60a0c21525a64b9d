"""How soon the kubelet knows what happened: a card comes or goes, a link falls, itself restarts.

The agent, with everything real but the kernel (standin.py), and a fake kubelet share this process,
so a figure includes the kubelet's own work on the list. It counts from the announcement, or, where
nothing is announced, from the change. Cards come one after the other, lose their links and go: none
returns, for a card that does is held back on purpose (pools/rules/absence). What the real
kernel takes to announce is not in here; a figure of the lab's nodes would stand beside these.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.figures import Figure, Row, attempt, streamed
from bench.standin import RESOURCE, Standin, card, write_config, write_node
from kube_rdma.adapters.kernel.netlink.events import News, RtnlEvent, Uevent
from kube_rdma.agent.loop import FABRIC_SECONDS, run_plugin
from kube_rdma.lib.debounce import SETTLE
from kube_rdma.model.device import Device, LinkLayer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.recording import recorded

ROUNDS = 10  # as many as there are cards, each with so many shares:
SHARES = 1000 // ROUNDS
POOL: dict[str, object] = {"mode": "hca", "bind": "per-card", "shares": SHARES}

Announce = Callable[[int], None]


class Scene:
    """An agent and its kubelet, and how long the one takes to tell the other."""

    def __init__(self, folder: Path, cards: int) -> None:
        self.cards = cards
        self.kubelet = FakeKubelet.at(folder)
        self.standin = Standin(folder)
        self._folder = folder
        self._trees = 0
        self.show(())

    def show(self, cards: Sequence[Device]) -> None:
        """Let the kernel show these cards; nothing is announced."""
        self._trees += 1
        tree = self._folder / f"tree-{self._trees}"
        write_node(tree, cards)
        self.standin.tree = tree

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        """Run the agent, and the kubelet once the agent waits for it."""
        write_config(self._folder, POOL)
        task = asyncio.create_task(run_plugin(self.standin.dependencies(self._folder)))
        try:
            async with self.kubelet:
                await self.kubelet.until(lambda: RESOURCE in self.kubelet.devices)
                yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def has(self, shares: int) -> None:
        """Wait until the kubelet has so many healthy shares."""
        await self.kubelet.until(lambda: self.kubelet.healthy(RESOURCE) == shares)

    async def registered(self, times: int) -> None:
        """Wait until the agent has registered so often."""
        await self.kubelet.until(lambda: len(self.kubelet.registrations) == times)

    async def series(
        self, nodes: Iterable[Sequence[Device]], shares: Callable[[int], int], announce: Announce
    ) -> list[float]:
        """Show one node after the other; the seconds until `shares` of the round are healthy."""
        clock = asyncio.get_running_loop().time
        times = []
        for number, cards in enumerate(nodes):
            await settled(number)
            # Nothing of the agent runs between the change and its announcement.
            self.show(cards)
            begin = clock()
            announce(number)
            await self.has(shares(number))
            times.append(clock() - begin)
        return times

    async def restarts(self) -> tuple[list[float], list[float]]:
        """Restart the kubelet; the seconds until it is registered with, and has all shares."""
        clock = asyncio.get_running_loop().time
        registered, restored = [], []
        for number in range(self.cards):
            await settled(number)
            count = len(self.kubelet.registrations)
            await self.kubelet.stop()
            begin = clock()
            await self.kubelet.start()
            await self.registered(count + 1)
            registered.append(clock() - begin)
            await self.has(self.cards * SHARES)
            restored.append(clock() - begin)
        return registered, restored


async def settled(number: int) -> None:
    """Wait until the agent is idle; a little longer each time, so that no timer keeps step."""
    await asyncio.sleep(1.5 * SETTLE + FABRIC_SECONDS * number / ROUNDS)


def measure(context: Context) -> Iterator[Row]:
    """Let everything happen some times, to RoCE cards, then to InfiniBand ones."""
    cards = context.times(ROUNDS)
    for name, scene in (("roce", on_roce), ("infiniband", on_infiniband)):
        yield from attempt(name, partial(_scene, scene, cards))


def _scene(scene: Callable[[Scene], AsyncIterator[Figure]], cards: int) -> Iterator[Figure]:
    with recorded(), tempfile.TemporaryDirectory() as folder:
        yield from streamed(scene(Scene(Path(folder), cards)))


async def on_roce(scene: Scene) -> AsyncIterator[Figure]:
    """Everything that the kernel announces, and restarts of the kubelet."""
    cards = scene.cards

    def uevent(action: str) -> Announce:
        return lambda number: scene.standin.uevents.push(
            Uevent(action, "infiniband", f"/devices/infiniband/mlx5_{number:02}")
        )

    def link(number: int) -> None:
        scene.standin.links.push(RtnlEvent(News.LINK, number + 2))

    every = [card(number) for number in range(cards)]
    down = [card(number, up=False) for number in range(cards)]
    async with scene.agent():
        grown = [every[: n + 1] for n in range(cards)]
        appear = await scene.series(grown, lambda n: (n + 1) * SHARES, uevent("add"))
        for figure in figures("card_appears", appear, "≤ 500", "others: 60 s, or not at all"):
            yield figure
        registered, restored = await scene.restarts()
        note = "from the kubelet's socket; others poll for 5 s"
        for figure in figures("register", registered, "≤ 1000", note):
            yield figure
        note = f"until all {cards * SHARES} shares are back"
        for figure in figures("restart", restored, "", note):
            yield figure
        # Half of the cards fall, the others go: each one is healthy until its turn.
        half = cards // 2
        fallen = [[*down[: n + 1], *every[n + 1 :]] for n in range(half)]
        falls = await scene.series(fallen, lambda n: (cards - n - 1) * SHARES, link)
        for figure in figures("link_down", falls, "≤ 1000", ""):
            yield figure
        left = [[*down[:half], *every[half + n + 1 :]] for n in range(half)]
        vanish = await scene.series(left, lambda n: (half - n - 1) * SHARES, uevent("remove"))
        for figure in figures("card_vanishes", vanish, "≤ 500", "others: 60 s, or not at all"):
            yield figure


async def on_infiniband(scene: Scene) -> AsyncIterator[Figure]:
    """A port goes down, of which the kernel announces nothing."""
    cards, fabric = scene.cards, LinkLayer.INFINIBAND
    every = [card(number, fabric) for number in range(cards)]
    down = [card(number, fabric, up=False) for number in range(cards)]
    scene.show(every)
    async with scene.agent():
        fallen = [[*down[: n + 1], *every[n + 1 :]] for n in range(cards)]
        falls = await scene.series(fallen, lambda n: (cards - n - 1) * SHARES, lambda _: None)
    for figure in figures("infiniband_down", falls, "≤ 2000", "seen by a timer only"):
        yield figure


def figures(name: str, seconds: Sequence[float], goal: str, note: str) -> list[Figure]:
    """Return the median and the worst of some times; the goal is for the worst."""
    times = f"{len(seconds)} times" + (f"; {note}" if note else "")
    return [
        Figure(f"{name}_p50_ms", median(seconds) * 1000, "ms", "", times),
        Figure(f"{name}_max_ms", max(seconds) * 1000, "ms", goal),
    ]
