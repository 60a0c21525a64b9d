"""What a scrape of the agent's metrics costs: time, CPU, bytes, and memory that stays.

Two nodes of 8 cards and 250 pods, their counters those of mlx5: one whose pods hold shares of the
cards, and one where each pod has a virtual function with counters of its own. Between two scrapes
each of these devices has traffic. The kubelet is a fake one in this process, so its work on the
answer is in the figures. The tree lies in a temporary folder: a card takes longer to say what it
counted than a file system of memory does.

The floor is a program in C that opens, reads and closes the same files. It and the second node, as
a process of each checkout (scrape_node.py), take turns; the CPU time of both counts.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from bench.checkout import Checkout, checkouts, turns
from bench.context import Context
from bench.figures import Figure, Row, attempt
from bench.survey import card, functions, virtual_device
from kube_base.errors import Unavailable
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.metrics.exporter import Exporter, MetricsSite, MetricsSources
from kube_rdma.metrics.rules import families
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import Device
from kube_rdma.model.pools import Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet

IN_TURNS = True  # the floor; what is measured in this process is of this checkout alone
HERE = Path(__file__).parent
CARDS, PODS = 8, 250
TURNS = 15
ROUNDS, LONG = 9, 200
EVERY = 15.0  # seconds between two scrapes
RESOURCE = "rdma/hca"
# mlx5 has about so many files: 22 of counters, 31 of hw_counters with a name and some without.
TRAFFIC = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets")
OTHERS = ("rx_icrc", "req_transport_retries_exceeded", "lifespan")


def measure(context: Context) -> Iterator[Row]:
    """Scrape both nodes; medians, and the memory that many scrapes leave."""
    for name, mode in (("shared", Mode.SHARED_MULTI), ("functions", Mode.SRIOV)):
        yield from attempt(name, partial(_figures, context, name, mode))
    yield from attempt("scrape_to_c", partial(_to_floor, context.times(TURNS, 2)))


def _to_floor(rounds: int) -> Iterator[Figure]:
    """Let each checkout and the floor read the same files in turns; of each the least counts."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        program = Path(name) / "floor"
        compiler = (sys.executable, "-m", "ziglang", "cc", "-O2")
        subprocess.run([*compiler, HERE / "scrape_floor.c", "-o", program], check=True)
        pairs: dict[Checkout, tuple[subprocess.Popen[str], ...]] = {}
        for number, checkout in enumerate(checkouts()):
            folder = Path(name) / str(number)
            folder.mkdir()
            words = (checkout.python, "-P", str(HERE / "scrape_node.py"), str(folder))
            node = stack.enter_context(_asked(words, checkout.environment()))
            assert node.stdout
            if not node.stdout.readline():
                raise Unavailable(f"the node of {checkout.folder} ended, see above")
            floor = stack.enter_context(_asked((str(program),), {}))
            assert floor.stdin
            floor.stdin.write("".join(f"{path}\n" for path in _files(folder / "sys")) + "\n")
            pairs[checkout] = (node, floor)
            for process in (node, floor):
                stack.callback(process.kill)
        taken: dict[Checkout, list[tuple[float, ...]]] = {one: [] for one in pairs}
        for checkout in turns(rounds):
            taken[checkout].append(tuple(map(_milliseconds, pairs[checkout])))
    for checkout, times in taken.items():
        ours, floor_ms = map(min, zip(*times, strict=True))
        note = f"CPU, {ours:.1f} ms by {floor_ms:.1f}"
        yield checkout.named(Figure("scrape_to_c", ours / floor_ms, "×", "≤ 1.5", note))


def _asked(words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that answers each line with one; it ends with its input."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True)


def _milliseconds(process: subprocess.Popen[str]) -> float:
    assert process.stdin
    assert process.stdout
    process.stdin.write("again\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _files(sysfs: Path) -> Iterator[Path]:
    """What a scrape reads of devices and ports, folder by folder; tables of GIDs are left out."""
    for device in sorted((sysfs / "class/infiniband").iterdir()):
        port = device / "ports/1"
        named = [device / file for file in ("board_id", "fw_ver", "hca_type")]
        named += [port / file for file in ("state", "phys_state", "rate")]
        yield from (file for file in named if file.exists())
        for folder in ("counters", "hw_counters"):
            yield from sorted((port / folder).iterdir())


def _figures(context: Context, name: str, mode: Mode) -> Iterator[Figure]:
    more = context.times(LONG if mode is Mode.SHARED_MULTI else LONG // 10)
    with tempfile.TemporaryDirectory() as folder:
        taken = asyncio.run(_scraped(Path(folder), mode, context.times(ROUNDS), more))
    note = f"{taken['series']:.0f} series, {taken['bytes'] / 1024:.0f} KiB"
    yield Figure(f"{name}_ms", taken["wall"] * 1000, "ms", "≤ 50", note)
    core = taken["cpu"] / EVERY * 100
    yield Figure(f"{name}_core", core, "%", "≤ 1", f"CPU, every {EVERY:.0f} s")
    yield Figure(f"{name}_growth", taken["growth"] / 1024, "KiB", "", f"after {more} scrapes more")


async def _scraped(folder: Path, mode: Mode, rounds: int, more: int) -> Mapping[str, float]:
    held = _write(folder / "sys", mode)
    pool = _pool(mode, held)
    (folder / "k").mkdir()
    async with FakeKubelet.at(folder / "k") as kubelet:
        for number in range(PODS):
            place = ContainerPlace(f"train-{number}", "worker")
            kubelet.store.holdings[place, RESOURCE] = (pool.shares[number].id,)
        view = KubeletView(PodResources(folder / "k/pod-resources/kubelet.sock"))
        # A quarter of a minute lies between two scrapes, so none gets the answer of another.
        clock = partial(next, count(0.0, EVERY))
        sources = MetricsSources(view, sysfs=folder / "sys", clock=clock)
        exporter = Exporter(MetricsSite((None, 0), pods=True), sources)
        exporter.looked({RESOURCE: pool}, (), NamespaceMode.SHARED)
        with view.connected():
            text = await exporter.answer()
            walls, cpus = [], []
            for number in range(rounds):
                _count_traffic(folder / "sys", held, number)
                begin, cpu = time.perf_counter(), time.process_time()
                text = await exporter.answer()
                walls.append(time.perf_counter() - begin)
                cpus.append(time.process_time() - cpu)
            before = _resident()
            for _ in range(more):
                await exporter.answer()
            growth = _resident() - before
    assert f'pod="train-{PODS - 1}"'.encode() in text
    return {
        "wall": median(walls),
        "cpu": median(cpus),
        "bytes": len(text),
        "series": sum(not line.startswith(b"#") for line in text.splitlines()),
        "growth": growth,
    }


def _write(root: Path, mode: Mode) -> Sequence[Device]:
    """Write the node's cards, with functions where pods get them; return what pods can hold."""
    cards = [card(number) for number in range(CARDS)]
    parts = [part for one in cards for part in functions(one)]
    below = [part for part in parts if part.vf_index is not None][:: len(parts) // PODS - 1][:PODS]
    virtual = [virtual_device(n, part) for n, part in enumerate(below)]
    held = virtual if mode is Mode.SRIOV else cards
    shown = [*cards, *virtual] if mode is Mode.SRIOV else cards
    write_tree(root, sorted(shown, key=lambda one: one.name))
    for device in shown:
        for number, file in enumerate((*families.OF_NODE, *OTHERS)):
            hardware = file in families.HARDWARE or file in OTHERS
            if families.OF_NODE.get(file, families.INFO).name.count("legacy"):
                continue
            where = "hw_counters" if hardware else "counters"
            write_counters(root, f"{device.name}/ports/1", where, {file: 10**9 + number})
    return held


def _count_traffic(root: Path, devices: Sequence[Device], number: int) -> None:
    """Let what pods hold send and receive; counters of errors stay as they are."""
    for device in devices:
        traffic = dict.fromkeys(TRAFFIC, 10**12 + number)
        write_counters(root, f"{device.name}/ports/1", "counters", traffic)


def _pool(mode: Mode, devices: Sequence[Device]) -> Pool:
    cards = tuple(Card(CardId(device.identity), (device,), None) for device in devices)
    if mode is Mode.SRIOV:
        shares = tuple(Share(ShareId(one.id), True, (), one.id) for one in cards)
    else:
        shares = tuple(
            Share(ShareId(f"{one.id}-{slot}"), True, (), one.id)
            for slot in range(PODS // CARDS + 1)
            for one in cards
        )
    return Pool(PoolSpec(RESOURCE, mode, "bench"), shares, cards)


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
