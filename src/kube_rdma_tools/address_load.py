"""`python -m kube_rdma_tools.address_load`: nodes that do nothing but ask for addresses.

Benchmarks run it: several nodes in one process, against a real API server. Each has a journal, a
lease and watches of its own, as in the agent. It prints ``ready`` when all nodes may give addresses
and waits for a line on stdin. Then every node adds its pods, one after the other. It prints one
JSON document with all addresses, the time of each request, and the CPU time and memory of the
process. The next line ends it.
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
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.model.ipam import (
    AddressAllocation,
    AddressRequest,
    BootId,
    ContainerId,
    InterfaceName,
    NicRequest,
    NodeName,
    PodUid,
)
from kube_rdma.model.ipam import PoolName as Pool

_PATIENCE = 600.0  # seconds; a starved machine took more than one minute
_TRIES = 5  # for one pod, before Refused ends the load


class Load(Frozen):
    """The load that every node makes: it asks for addresses of one pod after the other.

    With `release` it deletes all its pods at the end.
    """

    pool: Pool
    pods: int
    nics: int
    release: bool


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--pool", required=True)
@click.option("--pods", default=1, show_default=True, help="Pods of each node.")
@click.option("--nics", default=1, show_default=True, help="NICs of each pod.")
@click.option("--release", is_flag=True, help="Delete each pod at the end.")
@click.option(
    "--namespace", default="default", show_default=True, help="Namespace of the nodes' leases."
)
@click.option("--journals", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE")
def main(
    nodes: tuple[str, ...],
    namespace: str,
    journals: Path,
    kubeconfig: Path | None,
    **load: Any,  # the rest is the load
) -> None:
    """Run a load test in which the nodes named NODES ask for addresses at once."""
    work = Load(Pool(load["pool"]), load["pods"], load["nics"], load["release"])
    try:
        asyncio.run(_run(nodes, work, (kubeconfig, namespace, journals)))
    except KubeError as error:
        sys.exit(str(error))


async def _run(nodes: tuple[str, ...], load: Load, places: tuple[Path | None, str, Path]) -> None:
    kubeconfig, namespace, journals = places
    async with AsyncExitStack() as stack:
        providers = []
        for node in nodes:
            cluster = await stack.enter_async_context(connect(kubeconfig))
            dependencies = IpamDependencies(cluster, namespace, Folder(journals / node))
            provider = NodeAddresses(NodeName(node), BootId(f"boot of {node}"), dependencies)
            providers.append(await stack.enter_async_context(provider))
        async with asyncio.timeout(_PATIENCE):
            for provider in providers:
                await _ready(provider)
        click.echo("ready")
        await asyncio.to_thread(sys.stdin.readline)
        begin, work = time.monotonic(), time.process_time()
        pods = await asyncio.gather(*map(_load, providers, nodes, [load] * len(nodes)))
        document = {
            "begin": begin,
            "end": time.monotonic(),
            "cpu_seconds": time.process_time() - work,
            "max_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "pods": [pod for each in pods for pod in each],
        }
        click.echo(json.dumps(document))
        await asyncio.to_thread(
            sys.stdin.readline
        )  # until then, nodes of other processes may ask these nodes for free addresses


async def _ready(provider: NodeAddresses) -> None:
    while True:
        try:
            await provider.check()
        except Unavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def _load(provider: NodeAddresses, node: str, load: Load) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = []
    for number in range(load.pods):
        container = ContainerId(f"{node}-{number}")
        nics = tuple(NicRequest(InterfaceName(f"net{n}"), load.pool) for n in range(load.nics))
        begin = time.monotonic()
        request = AddressRequest(container, PodUid(f"uid-{container}"), nics)
        allocations, refusals = await _patiently(provider, request)
        pods.append(
            {
                "container": container,
                "addresses": [str(allocation.address) for allocation in allocations],
                "seconds": time.monotonic() - begin,
                "refusals": refusals,
            }
        )
    if load.release:
        for pod in pods:
            await provider.delete(ContainerId(pod["container"]))
    return pods


async def _patiently(
    provider: NodeAddresses, request: AddressRequest
) -> tuple[tuple[AddressAllocation, ...], int]:
    """Ask for addresses, and again after errors as a container runtime does.

    Return the addresses with the number of errors. Raise Refused at error number `_TRIES` or later,
    and Unavailable after `_PATIENCE`.
    """
    refusals, end = 0, time.monotonic() + _PATIENCE
    while True:
        try:
            return (await provider.add(request)).allocations, refusals
        except Refused:
            refusals += 1
            if refusals >= _TRIES:
                raise
        except Unavailable:  # the API server did not answer, or the node's lease has run out
            refusals += 1
            if time.monotonic() > end:
                raise
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
