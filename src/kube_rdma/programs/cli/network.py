"""`kube-rdma network`: what a person does to a node's pod networks from outside of the agent.

Only their end for now. The agent installs itself and keeps what it installed (adapters/cni_conf);
when it ends it leaves all of it behind, since most ends are updates. `retire` ends all agents of a
cluster, `uninstall` is the last act on each of its nodes.
"""

from __future__ import annotations

import socket
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from kube_rdma.programs.cli.options import ClusterOptions, program_options

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = PurePosixPath("/run/kube-rdma/agent.sock")
STATE = PurePosixPath("/var/lib/kube-rdma")


@click.group()
def network() -> None:
    """Take pod networks out of service, on a node or in the cluster."""


@network.command()
@click.option(
    "--host",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("/host"),
    show_default=True,
    help="The host's root, as it is mounted here.",
)
@click.option("--records", is_flag=True, help="Also remove what agents kept about the node.")
@click.option("--stay", is_flag=True, help="Wait for SIGTERM then, as the pod of a DaemonSet does.")
def uninstall(host: Path, *, records: bool, stay: bool) -> None:
    """Take kube-rdma out of the node's CNI configuration and remove its binaries.

    The last act on a node, after the agent's DaemonSet was deleted: an agent that runs would put
    both back. Says what it did; can be repeated. Records of pods whose networks were never taken
    back stay, with all others.
    """
    import asyncio

    from kube_rdma.programs.process import until_signal

    click.echo("\n".join(_uninstalled(host, records=records)))
    if stay:
        asyncio.run(until_signal(asyncio.sleep(float("inf"))))


def _uninstalled(host: Path, *, records: bool) -> list[str]:
    """Do it; a sentence for each thing that was done or left."""
    import asyncio

    from kube_rdma.adapters.cni.conf import binary
    from kube_rdma.adapters.cni.conf.folder import ConfFolder
    from kube_rdma.adapters.cni.conf.places import inside
    from kube_rdma.adapters.runtime.cri import find_socket
    from kube_rdma.programs.agent.pod_networks.host_places import HostPlaces
    from kube_rdma.rules.cni_conf.conflist import unplan

    _refuse_agent(inside(host, AGENT))
    places = asyncio.run(HostPlaces(host, find_socket()).find())
    folder, binaries = ConfFolder(inside(host, places.conf)), inside(host, places.binaries)
    while True:  # until nobody else wrote a file meanwhile
        seen = folder.read()
        plan = unplan(seen)
        if folder.apply(plan, seen):
            break
    installed = [name for name in binary.NAMES if (binaries / name).exists()]
    binary.uninstall(binaries)
    done = [
        *(f"{places.conf / file.name}: kube-rdma is no longer called" for file in plan.writes),
        *(f"{places.conf / name}: removed" for name in plan.removes),
        *(f"{places.conf}: {note}" for note in plan.notes),
        *(f"{places.binaries / name}: removed" for name in installed),
    ]
    done = done or [f"Nothing of kube-rdma is in {places.conf} any more."]
    return [*done, *_forgotten(host)] if records else done


def _forgotten(host: Path) -> Iterator[str]:
    """Remove the agent's records; a sentence for each folder."""
    from kube_rdma.adapters.cni.conf.places import inside
    from kube_rdma.adapters.journal.removal import needed, remove

    if left := needed(inside(host, STATE)):
        yield f"{STATE}: stays, {len(left)} records of networks are left in it, such as {left[0]}"
        return
    for folder in (STATE, AGENT.parent):
        if remove(inside(host, folder)):
            yield f"{folder}: records removed"


@network.command()
@click.argument("daemonset")
@program_options()
@click.option("--force", is_flag=True, help="Also while pods have networks of kube-rdma.")
def retire(daemonset: str, cluster: ClusterOptions, *, force: bool) -> None:
    """End the agents of DAEMONSET and wait for them, before anybody takes their rights.

    The first act of an uninstall, which Helm does itself. Exits with 3 while pods have networks.
    """
    import asyncio

    from kube_rdma.programs.retirement import Retirement

    async def run() -> None:
        async with cluster.open() as opened:
            await Retirement(opened, cluster.namespace, daemonset).run(force=force)

    asyncio.run(run())
    click.echo(f"The agents of {cluster.namespace}/{daemonset} have ended.")


@network.command()
@program_options()
def retire_drivers(cluster: ClusterOptions) -> None:
    """Say whether an operator of NicClusterPolicies may be removed.

    Exits with 3 while drivers of a policy run, which would all be unloaded at once.
    """
    import asyncio

    from kube_rdma.programs import retirement

    async def run() -> None:
        async with cluster.open() as opened:
            await retirement.retire_drivers(opened, cluster.namespace)

    asyncio.run(run())
    click.echo(f"No driver of a NicClusterPolicy runs in {cluster.namespace}.")


@network.command()
@click.argument("daemonset")
@program_options()
def left(daemonset: str, cluster: ClusterOptions) -> None:
    """Wait until all pods of DAEMONSET are available: those that uninstall on each node.

    Inside of a pod, where Helm runs it.
    """
    import asyncio

    from kube_rdma.programs.retirement import available

    async def run() -> None:
        async with cluster.open() as opened:
            await available(opened, cluster.namespace, daemonset)

    asyncio.run(run())
    click.echo(f"{cluster.namespace}/{daemonset} has left every node.")


def _refuse_agent(path: Path) -> None:
    """Raise Refused while an agent answers there: it would undo everything at once."""
    from kube_rdma.model.errors import Refused

    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(str(path))
        except OSError:
            return
    raise Refused(
        "the agent of this node runs, and would install everything again",
        remedy="Delete its DaemonSet first",
        where=str(path),
    )
