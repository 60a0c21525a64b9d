"""Scrapes a node of 250 functions in a process of a checkout, which bench/scrape.py asks.

    python scrape_node.py FOLDER     at each line of its input there is traffic and then a scrape,
                                     of which it prints the milliseconds of CPU

It has no product of its own: what it uses are names of the checkout's bench/scrape.py, for packages
have moved between commits.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

own: Any = import_module("bench.scrape")


async def main(folder: Path) -> None:
    """Answer until the input ends."""
    sysfs = folder / "sys"
    held = own._write(sysfs, own.Mode.SRIOV)  # noqa: SLF001
    pool = own._pool(own.Mode.SRIOV, held)  # noqa: SLF001
    (folder / "k").mkdir()
    async with own.FakeKubelet.at(folder / "k") as kubelet:
        for number in range(own.PODS):
            place = own.ContainerPlace(f"train-{number}", "worker")
            kubelet.store.holdings[place, own.RESOURCE] = (pool.shares[number].id,)
        view = own.KubeletView(own.PodResources(folder / "k/pod-resources/kubelet.sock"))
        clock = partial(next, count(0.0, own.EVERY))
        sources = own.MetricsSources(view, sysfs=sysfs, clock=clock)
        has_choice = "pods" in own.MetricsSite.__struct_fields__  # older ones show them always
        site = own.MetricsSite((None, 0), pods=True) if has_choice else own.MetricsSite(None, 0)
        exporter = own.Exporter(site, sources)
        exporter.looked({own.RESOURCE: pool}, (), own.NamespaceMode.SHARED)
        with view.connected():
            await exporter.answer()
            print("ready", flush=True)
            for number, _ in enumerate(iter(sys.stdin.readline, "")):
                own._count_traffic(sysfs, held, number)  # noqa: SLF001
                begin = time.process_time()
                text = await exporter.answer()
                print((time.process_time() - begin) * 1000, flush=True)
                assert f'pod="train-{own.PODS - 1}"'.encode() in text


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
