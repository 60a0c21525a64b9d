"""`python -m kube_rdma.programs.ipam.client`: nodes that do nothing but ask for addresses.

For the lab and the benchmark: several nodes in one process, each with a journal, a right and
watches of its own as in the agent, against a real API server. It says ``ready`` when all nodes may
give addresses, waits for a line, lets every node add its pods one after the other, prints one JSON
document with all that was given and how long each took, and goes with the next line.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.model.ipam import (
    Ask,
    BootId,
    ContainerId,
    InterfaceName,
    Lease,
    NicAsk,
    NodeName,
    PodUid,
)
from kube_rdma.model.ipam import PoolName as Pool
from kube_rdma.programs.ipam.node import IpamDependencies, NodeAddresses

_PATIENCE = 600.0  # seconds; a starved machine took more than one minute
_TRIES = 5  # for one pod that is refused


class Load(Frozen):
    """What every node asks for, one pod after the other."""

    pool: Pool
    pods: int
    nics: int
    release: bool


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--pool", required=True)
@click.option("--pods", default=1, show_default=True, help="Of each node.")
@click.option("--nics", default=1, show_default=True, help="Of each pod.")
@click.option("--release", is_flag=True, help="Delete each pod at the end.")
@click.option("--namespace", default="default", show_default=True, help="Of the nodes' leases.")
@click.option("--journals", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE")
def main(
    nodes: tuple[str, ...],
    namespace: str,
    journals: Path,
    kubeconfig: Path | None,
    **load: Any,  # the rest is the load
) -> None:
    """Let NODES ask for addresses, all at once."""
    work = Load(Pool(load["pool"]), load["pods"], load["nics"], load["release"])
    try:
        asyncio.run(_run(nodes, work, (kubeconfig, namespace, journals)))
    except KubeError as error:
        sys.exit(str(error))


async def _run(nodes: tuple[str, ...], load: Load, places: tuple[Path | None, str, Path]) -> None:
    kubeconfig, namespace, journals = places
    async with AsyncExitStack() as stack:
        givers = []
        for node in nodes:
            cluster = await stack.enter_async_context(connect(kubeconfig))
            doors = IpamDependencies(cluster, namespace, Folder(journals / node))
            giver = NodeAddresses(NodeName(node), BootId(f"boot of {node}"), doors)
            givers.append(await stack.enter_async_context(giver))
        async with asyncio.timeout(_PATIENCE):
            for giver in givers:
                await _ready(giver)
        click.echo("ready")
        await asyncio.to_thread(sys.stdin.readline)
        begin, work = time.monotonic(), time.process_time()
        pods = await asyncio.gather(*map(_load, givers, nodes, [load] * len(nodes)))
        document = {
            "begin": begin,
            "end": time.monotonic(),
            "cpu_seconds": time.process_time() - work,
            "max_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "pods": [pod for each in pods for pod in each],
        }
        click.echo(json.dumps(document))
        await asyncio.to_thread(sys.stdin.readline)  # others may want what these nodes have left


async def _ready(giver: NodeAddresses) -> None:
    while True:
        try:
            await giver.check()
        except Unavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def _load(giver: NodeAddresses, node: str, load: Load) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = []
    for number in range(load.pods):
        container = ContainerId(f"{node}-{number}")
        nics = tuple(NicAsk(InterfaceName(f"net{n}"), load.pool) for n in range(load.nics))
        begin = time.monotonic()
        request = Ask(container, PodUid(f"uid-{container}"), nics)
        leases, refusals = await _patiently(giver, request)
        pods.append(
            {
                "container": container,
                "addresses": [str(lease.address) for lease in leases],
                "seconds": time.monotonic() - begin,
                "refusals": refusals,
            }
        )
    if load.release:
        for pod in pods:
            await giver.delete(ContainerId(pod["container"]))
    return pods


async def _patiently(giver: NodeAddresses, request: Ask) -> tuple[tuple[Lease, ...], int]:
    """Ask again when it was refused, as the runtime does; raise the last refusal."""
    refusals, end = 0, time.monotonic() + _PATIENCE
    while True:
        try:
            return (await giver.add(request)).leases, refusals
        except Refused:
            refusals += 1
            if refusals == _TRIES:
                raise
        except Unavailable:  # the API server was silent, or the node has lost its right meanwhile
            refusals += 1
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
