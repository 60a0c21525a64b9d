"""`python -m bench.ipam_floor`: the same requests as nodes that give addresses, without any rule.

What an address costs at least: a record on the disk, and a write of a block for every so many
records; leases, watches and processes are as in kube_rdma_tools.address_load, whose options this
program shares. No rule decides and no node shares: each has a block of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.kinds import ObjectKind
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, IpamObjects
from kube_rdma.model.ipam import (
    BLOCK_ADDRESSES,
    Bits,
    Block,
    BlockKey,
    BootId,
    Family,
    JournalId,
    NetworkName,
    NodeHolding,
    NodeLease,
    NodeName,
)

_NAMESPACE = "default"
_WATCHED: tuple[ObjectKind[Any, Any], ...] = (IP_POOL, IP_BLOCK)


@dataclass(slots=True)
class Node:
    """One node's part: where it writes."""

    name: str
    objects: IpamObjects
    block: Block
    folder: Path

    async def record(self, number: int) -> None:
        """Write one record as the journal does: a file with fsync, its name, the folder's fsync."""
        await asyncio.to_thread(self._record, number)

    async def write(self) -> None:
        """Write the block again."""
        wish = replace(self.block, edition=self.block.edition + 1)
        written = await self.objects.write_block(wish)
        if written is None:
            raise Unavailable(f"the write of {self.block.key.name} failed")
        self.block = written

    def _record(self, number: int) -> None:
        temporary, path = self.folder / "new", self.folder / str(number)
        with temporary.open("w") as file:
            file.write("x" * 300)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--pool", required=True, help="The network of the blocks.")
@click.option("--pods", type=int, required=True, help="Pods of each node.")
@click.option("--every", type=int, required=True, help="Pods for each write of a block.")
@click.option("--journals", type=click.Path(path_type=Path), required=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True)
def main(nodes: tuple[str, ...], **load: Any) -> None:
    """Let NODES send their requests, all at once."""
    asyncio.run(_run(nodes, load))


async def _run(nodes: tuple[str, ...], load: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        ready, watching = [], []
        for name in nodes:
            cluster = await stack.enter_async_context(connect(load["kubeconfig"]))
            ready.append(await _node(name, cluster, load))
            watching += [tasks.create_task(_watch(cluster, kind)) for kind in _WATCHED]
        click.echo("ready")
        await asyncio.to_thread(sys.stdin.readline)
        begin, work = time.monotonic(), time.process_time()
        every = [_load(node, load["pods"], load["every"]) for node in ready]
        pods = await asyncio.gather(*every)
        document = {
            "begin": begin,
            "end": time.monotonic(),
            "cpu_seconds": time.process_time() - work,
            "max_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "pods": [pod for part in pods for pod in part],
        }
        click.echo(json.dumps(document))
        await asyncio.to_thread(sys.stdin.readline)
        for task in watching:
            task.cancel()


async def _node(name: str, cluster: Cluster, load: dict[str, Any]) -> Node:
    objects = IpamObjects(cluster, _NAMESPACE)
    number = int(name.rpartition("-")[2])
    key = BlockKey(
        NetworkName(load["pool"]), Family.V4, int(ip_address("10.0.0.0")) + BLOCK_ADDRESSES * number
    )
    await objects.write_lease(NodeLease(NodeName(name), JournalId(name), BootId(name)))
    holding = NodeHolding(NodeName(name), Bits((1 << BLOCK_ADDRESSES) - 2))
    node = Node(name, objects, Block(key, (holding,)), load["journals"] / name)
    node.folder.mkdir()
    await node.write()
    return node


async def _watch(cluster: Cluster, kind: ObjectKind[Any, Any]) -> None:
    async with aclosing(cluster.watch(kind)) as events:
        async for _ in events:
            pass


async def _load(node: Node, pods: int, every: int) -> list[dict[str, Any]]:
    """All of a node's requests; writes go beside them, as a node's stock is claimed ahead."""
    times = []
    async with asyncio.TaskGroup() as tasks:
        writing: asyncio.Task[None] | None = None
        for number in range(pods):
            begin = time.monotonic()
            await node.record(number)
            times.append(time.monotonic() - begin)
            if number % every == 0:
                if writing:
                    await writing
                writing = tasks.create_task(node.write())
    return [
        {"addresses": [f"{node.name}/{number}"], "seconds": seconds, "refusals": 0}
        for number, seconds in enumerate(times)
    ]


if __name__ == "__main__":
    main()
