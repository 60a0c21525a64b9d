"""`kube-rdma network`: what a person does to a node's pod networks from outside of the agent.

Only their end for now. The agent installs itself and keeps what it installed (adapters/cni_conf);
when it ends it leaves all of it behind, since most ends are updates. `retire` ends all agents of a
cluster, `uninstall` is the last act on each of its nodes.
"""

from __future__ import annotations

import socket
from pathlib import Path, PurePosixPath

import click

AGENT = PurePosixPath("/run/kube-rdma/agent.sock")


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
def uninstall(host: Path) -> None:
    """Take kube-rdma out of the node's CNI configuration and remove its binaries.

    The last act on a node, after the agent's DaemonSet was deleted: an agent that runs would put
    both back. Says what it did; can be repeated.
    """
    from kube_rdma.adapters.cni.conf import binary
    from kube_rdma.adapters.cni.conf.folder import ConfFolder
    from kube_rdma.adapters.cni.conf.places import find, inside
    from kube_rdma.rules.cni_conf.conflist import unplan

    _refuse_agent(inside(host, AGENT))
    places = find(host)
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
    click.echo("\n".join(done or [f"Nothing of kube-rdma is in {places.conf} any more."]))


@network.command()
@click.argument("daemonset")
@click.option(
    "--namespace",
    envvar="POD_NAMESPACE",
    required=True,
    help="That of the DaemonSet.  [env: POD_NAMESPACE]",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Access to the API server outside of a pod.",
)
@click.option("--force", is_flag=True, help="Also while pods have networks of kube-rdma.")
def retire(daemonset: str, namespace: str, kubeconfig: Path | None, *, force: bool) -> None:
    """End the agents of DAEMONSET and wait for them, before anybody takes their rights.

    The first act of an uninstall, which Helm does itself. Exits with 3 while pods have networks.
    """
    import asyncio

    from kube_rdma.adapters.cluster.connect import connect
    from kube_rdma.programs.retirement import Retirement

    async def run() -> None:
        async with connect(kubeconfig) as cluster:
            await Retirement(cluster, namespace, daemonset).run(force=force)

    asyncio.run(run())
    click.echo(f"The agents of {namespace}/{daemonset} have ended.")


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
