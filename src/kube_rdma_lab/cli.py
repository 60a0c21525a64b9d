"""`kube-rdma lab …`: the lab's words on the command line; lab.py and demo/main.py act."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from kube_rdma_lab import lab as labs
from kube_rdma_lab import state
from kube_rdma_lab.ghost import install
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.topology import TOPOLOGIES, find

NAME = click.option(
    "--name",
    envvar="KUBE_RDMA_LAB",
    default=labs.DEFAULT_NAME,
    show_envvar=True,
    show_default=True,
    help="Which lab; several can run.",
)
TOPOLOGY = click.option(
    "--topology",
    default="two-nodes",
    show_default=True,
    metavar="NAME|FILE",
    help="A file that ends in .yaml, or a name. "
    + "; ".join(f"{each.name}: {each.summary}" for each in TOPOLOGIES.values())
    + ".",
)
NODES = click.option(
    "--nodes", type=int, metavar="N", help="How many nodes, those of the topology in turns."
)
BINARIES = click.option(
    "--bin",
    "binaries",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Ready-made Kubernetes binaries instead of building them.",
)
IMAGES = click.option(
    "--image",
    "images",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="An image of yours that the nodes shall have, as `docker save` writes it; repeatable.",
)
SERVICES = ("kubelet", "containerd", "kube-proxy", "shell", "console")
# Everything after the first word belongs to the command that is run, options included.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
def lab() -> None:
    """A real Kubernetes with RDMA cards on this machine."""


@lab.command()
@NAME
@TOPOLOGY
@NODES
@BINARIES
@IMAGES
def up(
    name: str,
    topology: str,
    nodes: int | None,
    binaries: Path | None,
    images: tuple[Path, ...],
) -> None:
    """Build what is missing, boot, wait until every node is Ready."""
    begin = time.monotonic()
    from kube_rdma_lab.topology_file import choose

    wanted = choose(topology, nodes)
    with Printer() as report:
        running = labs.up(name, wanted.reference, binaries, report, images=images)
    install.start_ghosts(running)
    click.echo(f"The lab {running.state.name!r} is up after {time.monotonic() - begin:.0f} s.")


@lab.command()
@NAME
@click.option(
    "--if-only-demo",
    is_flag=True,
    help="End it only if it holds nothing but what `lab demo` made, and say so; exit code 0.",
)
def down(name: str, *, if_only_demo: bool) -> None:
    """End a lab and everything that belongs to it."""
    if if_only_demo:
        from kube_rdma_lab.demo import inventory

        if sentence := inventory.end(name):
            click.echo(sentence)
        return
    existed = labs.down(name)
    click.echo(f"The lab {name!r} is down." if existed else f"There was no lab {name!r}.")


@lab.command()
@NAME
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def status(name: str, output: str) -> None:
    """Say whether a lab runs and whether all its parts do. Exit code 1 when they do not."""
    home = state.home(name)
    current = state.read(home)
    running = state.is_held(home)
    if output == "json":
        fields = {"name": name, "running": running, "phase": "down", "losses": []}
        if current is not None:
            fields |= {"phase": current.phase if running else "crashed"}
            fields |= {"topology": find(current.topology).name, "losses": list(current.losses)}
        click.echo(json.dumps(fields, indent=2))
    elif current is None:
        click.echo(f"There is no lab {name!r}. Start it: {labs.up_command(name)}")
    elif not running:
        click.echo(
            f"The lab {name!r} crashed while {current.phase}; nothing of it is running."
            f" Its logs are in {home}/logs; `up` and `down` clear them away."
        )
    else:
        minutes = (time.time() - current.started) / 60
        topology = find(current.topology).name
        click.echo(f"The lab {name!r} ({topology}) is {current.phase}, {minutes:.0f} min.")
        for loss in current.losses:
            click.echo(f"LOST  {loss}")
    if not running or (current is not None and current.losses):
        sys.exit(1)


@lab.command(context_settings=PASS_ON)
@NAME
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, words: tuple[str, ...]) -> None:
    """Run kubectl as the cluster's admin."""
    argv = labs.find(name).kubectl(*words)
    os.execvp(argv[0], argv)  # noqa: S606 - we become kubectl, with its exit code and terminal


@lab.command()
@NAME
def kubeconfig(name: str) -> None:
    """Print the admin's kubeconfig, for kubectl, k9s or helm on this machine."""
    click.echo(labs.find(name).kubeconfig.read_text())


@lab.command(context_settings=PASS_ON)
@NAME
@click.argument("node")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, node: str, words: tuple[str, ...]) -> None:
    """Open a root shell on a node, or run one command there."""
    argv = labs.find(name).on_node(node, *(words[1:] if words[:1] == ("--",) else words))
    os.execvp(argv[0], argv)  # noqa: S606 - as above


@lab.command()
@NAME
@click.argument("node")
@click.argument("act", type=click.Choice(["down", "up", "pull", "plug"]))
@click.argument("card")
def card(name: str, node: str, act: str, card: str) -> None:
    """Take a recorded CARD of a native node down or up, pull it out or plug it in again.

    CARD is an RDMA device; pull also takes an interface or a PCI address, plug the address that
    pull printed.
    """
    from kube_rdma_lab.native.replay import Replay

    replay = Replay(labs.find(name), node)
    address = getattr(replay, act)(card)
    if address:
        click.echo(address)


@lab.command()
@NAME
@click.argument("program", required=False)
@click.option("--node", help="A service of this node: " + ", ".join(SERVICES) + ".")
def logs(name: str, program: str | None, node: str | None) -> None:
    """Print the log of a program of the control plane, a console, or a service of a node."""
    labs.print_log(name, program, node)


@lab.command()
@NAME
def demo(name: str) -> None:
    """Boot, install kube-rdma, let two pods talk RDMA, show what came of it."""
    from kube_rdma_lab.demo import inventory
    from kube_rdma_lab.demo.main import run

    run(name)
    running = labs.find(name)
    install.start_ghosts(running)
    inventory.write(running)
