"""`kube-rdma network`: removes kube-rdma from nodes, from outside of the agent.

The agent installs itself and keeps what it installed (adapters/cni/conf); when it ends it leaves
all of it behind for the next agent. `retire` ends the agents of a DaemonSet, `uninstall` is the
last act on each of their nodes.
"""

from __future__ import annotations

import socket
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from kube_rdma.cli.options import ClusterOptions, flag_option, program_options
from kube_rdma.cli.output import examples, show_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube_rdma.adapters.cni.conf.places import CniPlaces

AGENT = PurePosixPath("/run/kube-rdma/agent.sock")
STATE = PurePosixPath("/var/lib/kube-rdma")


@click.group()
def network() -> None:
    """Clean up nodes; Helm's uninstall runs it.

    `helm uninstall` runs all but `clear-vke` in pods. Run them yourself only where kube-rdma was
    installed without Helm: first `retire`, then `uninstall` on each node.
    """


host_option = click.option(
    "--host",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("/host"),
    show_default=True,
    help="Folder in which the host's root is mounted.",
)


@network.command(epilog=examples("kube-rdma network uninstall --host /host --records"))
@host_option
@flag_option(
    "--records",
    help="Also remove the agent's records. All of them stay while one is of a pod network that was "
    "not removed.",
)
@flag_option("--stay", help="Wait for SIGTERM afterwards, as the pod of a DaemonSet has to.")
def uninstall(host: Path, *, records: bool, stay: bool) -> None:
    """Remove kube-rdma from this node.

    Takes kube-rdma out of the node's CNI configuration and removes its CNI binaries. Run it in a
    pod that mounts the node's folders, after the agent's DaemonSet was deleted: while the agent
    runs, the command refuses. It says what it did and can be repeated.
    """
    import asyncio

    from kube_rdma.lib.logs import until_signal

    show_sentence("\n".join(_uninstalled(host, records=records)))
    if stay:
        asyncio.run(until_signal(asyncio.sleep(float("inf"))))


def _uninstalled(host: Path, *, records: bool) -> list[str]:
    """Uninstall the CNI plugin, with `records` the state too; return a sentence for each step."""
    from kube_rdma.adapters.cni.conf import places as binary
    from kube_rdma.adapters.cni.conf.folder import ConfFolder
    from kube_rdma.adapters.cni.conf.places import inside
    from kube_rdma.attach.rules.conflist import unplan

    _refuse_agent(inside(host, AGENT))
    places = _places(host)
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


def _places(host: Path) -> CniPlaces:
    """Return the folders in which this node's runtime looks for CNI plugins and configuration."""
    import asyncio

    from kube_rdma.adapters.runtime.cri import find_socket
    from kube_rdma.attach.node_networks import HostPlaces

    return asyncio.run(HostPlaces(host, find_socket()).find())


@network.command(epilog=examples("kube-rdma network clear-vke --host /host"))
@host_option
@flag_option("--undo", help="Put back what an earlier call has set aside.")
def clear_vke(host: Path, *, undo: bool) -> None:
    """Set aside what VKE's component left.

    Renames the CNI configuration `rdma` of type `cello-rdma`, so that Cello calls kube-rdma for
    pods that name `rdma`. Drain the node first: what `cello-rdma` gave a pod, it takes back only
    while the file is there.
    """
    from kube_rdma.adapters.cni.conf.folder import ConfFolder
    from kube_rdma.adapters.cni.conf.places import inside
    from kube_rdma.attach.rules.conflist import SAVED, left_by_vke

    conf = _places(host).conf
    folder = ConfFolder(inside(host, conf))
    if undo:
        done = [f"{conf / name}: put back" for name in folder.put_back(SAVED)]
    else:
        names = left_by_vke(folder.read())
        folder.set_aside(names, SAVED)
        done = [f"{conf / name}: set aside as {name}{SAVED}" for name in names]
    nothing = f"Nothing to do: {conf} has no such file of VKE's component."
    show_sentence("\n".join(done or [nothing]))


def _forgotten(host: Path) -> Iterator[str]:
    """Remove the agent's state folders, unless records of networks are left; yield sentences."""
    from kube_rdma.adapters.cni.conf.places import inside
    from kube_rdma.adapters.journal.disk import needed, remove

    if left := needed(inside(host, STATE)):
        yield f"{STATE}: stays, {len(left)} records of networks are left in it, such as {left[0]}"
        return
    for folder in (STATE, AGENT.parent):
        if remove(inside(host, folder)):
            yield f"{folder}: records removed"


@network.command(
    epilog=examples("kube-rdma network retire rdma-device-plugin --namespace kube-rdma-vke")
)
@click.argument("daemonset")
@program_options()
@flag_option("--force", help="End the agents even while pods have networks of kube-rdma.")
def retire(daemonset: str, cluster: ClusterOptions, *, force: bool) -> None:
    """Delete the agents' DaemonSet and wait.

    Deletes DAEMONSET and waits until its pods are gone. This is the first step of an uninstall:
    agents need their rights to end, so delete roles and accounts only afterwards.

    Exits with 3 while pods have networks of kube-rdma.
    """
    from kube_rdma.controller.retirement import Retirement

    cluster.ask(
        lambda api: Retirement(api, cluster.namespace, daemonset).run(force=force),
        None,
        "Waiting until the agents have ended.",
    )
    show_sentence(f"The agents of {cluster.namespace}/{daemonset} have ended.")


@network.command(
    epilog=examples("kube-rdma network retire-drivers --namespace mlnx-network-operator")
)
@program_options()
def retire_drivers(cluster: ClusterOptions) -> None:
    """Check that no driver of a policy runs.

    Run it before you remove the operator of NicClusterPolicies.

    Exits with 3 while drivers of a policy run: without the operator, all of them would be unloaded
    at once.
    """
    from kube_rdma.controller import retirement

    namespace = cluster.namespace
    cluster.ask(lambda api: retirement.retire_drivers(api, namespace), None, "Reading the cluster.")
    show_sentence(f"No driver of a NicClusterPolicy runs in {cluster.namespace}.")


@network.command()
@click.argument("daemonset")
@program_options()
def left(daemonset: str, cluster: ClusterOptions) -> None:
    """Wait until all nodes are cleaned up.

    Waits until all pods of DAEMONSET are available; each of them runs `uninstall` on its node.
    Helm runs this command in a pod.
    """
    from kube_rdma.controller.retirement import available

    cluster.ask(
        lambda api: available(api, cluster.namespace, daemonset),
        None,
        "Waiting until all nodes are cleaned up.",
    )
    show_sentence(f"{cluster.namespace}/{daemonset} has left every node.")


def _refuse_agent(path: Path) -> None:
    """Raise Refused while an agent answers at its socket, as it would install everything again."""
    from kube_base.errors import Refused

    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return
    raise Refused(
        "the agent of this node runs, and would install everything again",
        remedy="Delete its DaemonSet first",
        where=str(path),
    )
