"""`kube-rdma lab …`: the lab's subcommands, which parse options, call other modules and print."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from kube_rdma.cli.output import examples
from kube_rdma_lab import lab as labs
from kube_rdma_lab import state
from kube_rdma_lab.ghost import install
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.topology import LLDP_SECONDS, TOPOLOGIES, find

NAME = click.option(
    "--name",
    envvar="KUBE_RDMA_LAB",
    default=labs.DEFAULT_NAME,
    show_envvar=True,
    show_default=True,
    help="Name of the lab; several can run at once.",
)
TOPOLOGY = click.option(
    "--topology",
    default="two-nodes",
    show_default=True,
    metavar="NAME|FILE",
    help="Topology of the lab: a name of the list below, or a file that ends in .yaml.",
)
NODES = click.option(
    "--nodes",
    type=int,
    metavar="N",
    help="Number of nodes; the nodes of the topology repeat in turns. Default: those of the "
    "topology.",
)
LLDP = click.option(
    "--lldp-seconds",
    type=click.IntRange(1, 3600),
    default=LLDP_SECONDS,
    show_default=True,
    metavar="N",
    help="Seconds between two LLDP frames of a leaf switch, if the topology has any.",
)
BINARIES = click.option(
    "--bin",
    "binaries",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of ready-made Kubernetes binaries, to be used instead of building them.",
)
IMAGES = click.option(
    "--image",
    "images",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Image for the nodes, in a file as `docker save` writes it. May be repeated.",
)
SERVICES = ("kubelet", "containerd", "kube-proxy", "shell", "console")
LISTED = [f"{each.name}: {each.summary}." for each in TOPOLOGIES.values()]
# Everything after the first word belongs to the command that is run, options included.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group()
def lab() -> None:
    """Run a test cluster with RDMA cards.

    A lab is a real Kubernetes on this machine. Its nodes have RDMA devices; the machine needs no
    RDMA hardware, no KVM and no container engine.
    """


@lab.command(
    epilog="\n\n".join(
        (
            examples("kube-rdma lab up", "kube-rdma lab up --topology native --nodes 4"),
            "Topologies:",
            *LISTED,
        )
    )
)
@NAME
@TOPOLOGY
@NODES
@LLDP
@BINARIES
@IMAGES
def up(
    name: str,
    topology: str,
    nodes: int | None,
    lldp_seconds: int,
    binaries: Path | None,
    images: tuple[Path, ...],
) -> None:
    """Build what is missing and start a lab.

    Returns when every node is Ready.
    """
    begin = time.monotonic()
    from kube_rdma_lab.topology_file import choose

    wanted = choose(topology, nodes, lldp_seconds)
    with Printer() as report:
        running = labs.up(name, wanted.reference, binaries, report, images=images)
    install.start_ghosts(running)
    click.echo(f"The lab {running.state.name!r} is up after {time.monotonic() - begin:.0f} s.")


@lab.command(epilog=examples("kube-rdma lab down", "kube-rdma lab down --name second"))
@NAME
@click.option(
    "--if-only-demo",
    is_flag=True,
    help="End the lab only if it has nothing but what `lab demo` made. A sentence says which; the "
    "exit code is 0 in both cases.",
)
def down(name: str, *, if_only_demo: bool) -> None:
    """End a lab and all that belongs to it.

    Ends its processes and removes its files; what was built stays for the next lab.
    """
    if if_only_demo:
        from kube_rdma_lab.demo import inventory

        if sentence := inventory.end(name):
            click.echo(sentence)
        return
    existed = labs.down(name)
    click.echo(f"The lab {name!r} is down." if existed else f"There was no lab {name!r}.")


@lab.command(epilog=examples("kube-rdma lab status", "kube-rdma lab status -o json"))
@NAME
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format: table for people, json for programs.",
)
def status(name: str, output: str) -> None:
    """Show whether a lab and all its parts run.

    Exits with 1 when the lab does not run, or when a part of it is lost.
    """
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


@lab.command(context_settings=PASS_ON, epilog=examples("kube-rdma lab kubectl get nodes"))
@NAME
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def kubectl(name: str, words: tuple[str, ...]) -> None:
    """Run kubectl as the cluster's admin.

    WORDS are the arguments of kubectl.
    """
    argv = labs.find(name).kubectl(*words)
    os.execvp(argv[0], argv)  # noqa: S606 - we become kubectl, with its exit code and terminal


@lab.command(epilog=examples("kube-rdma lab kubeconfig > lab.kubeconfig"))
@NAME
def kubeconfig(name: str) -> None:
    """Print the admin's kubeconfig.

    It is for kubectl, k9s or helm on this machine.
    """
    click.echo(labs.find(name).kubeconfig.read_text())


@lab.command(
    context_settings=PASS_ON,
    epilog=examples("kube-rdma lab shell node-1", "kube-rdma lab shell node-1 rdma link"),
)
@NAME
@click.argument("node")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def shell(name: str, node: str, words: tuple[str, ...]) -> None:
    """Run a root shell or a command on a node.

    WORDS are a command and its arguments. Without them, a shell opens.
    """
    argv = labs.find(name).on_node(node, *(words[1:] if words[:1] == ("--",) else words))
    os.execvp(argv[0], argv)  # noqa: S606 - as above


@lab.command(
    epilog=examples(
        "kube-rdma lab card node-1 down mlx5_0",
        "kube-rdma lab card node-1 pull mlx5_5",
        "kube-rdma lab card node-1 plug 0000:86:00.0",
    )
)
@NAME
@click.argument("node")
@click.argument("act", type=click.Choice(["down", "up", "pull", "plug"]))
@click.argument("card")
def card(name: str, node: str, act: str, card: str) -> None:
    """Change a card of a native node.

    `down` and `up` change the state of its ports, `pull` takes the card out, `plug` puts it back.
    CARD is an RDMA device; for `pull` also an interface or a PCI address, for `plug` the address
    that `pull` printed.
    """
    from kube_rdma_lab.native.replay import Replay

    replay = Replay(labs.find(name), node)
    address = getattr(replay, act)(card)
    if address:
        click.echo(address)


@lab.command(
    epilog=examples(
        "kube-rdma lab cable",
        "kube-rdma lab cable node-1 ens2f0 leaf-b/3",
        "kube-rdma lab cable node-1 ens2f0 out",
    )
)
@NAME
@click.argument("words", nargs=-1, metavar="[NODE CARD TO]")
def cable(name: str, words: tuple[str, ...]) -> None:
    """Plug a card's cable into another port of a leaf switch.

    TO is LEAF/PORT, LEAF for its first free port, or `out`. A cable that is in that port changes
    places with the card's. Without words, all cables of the lab are listed.
    """
    from kube_rdma_lab import cables
    from kube_rdma_lab.demo.table import columns

    if words and len(words) != 3:
        raise click.UsageError("Name a node, its card and where the cable goes, or nothing.")
    running = labs.find(name)
    listed = cables.move(running, *words) if words else cables.read(running.home)
    table = columns([cables.HEAD, *(each.cells for each in listed)])
    click.echo(table if listed else f"The topology of lab {name!r} has no leaf switches.")


@lab.command(
    epilog=examples(
        "kube-rdma lab logs kube-apiserver",
        "kube-rdma lab logs --node node-1 kubelet",
    )
)
@NAME
@click.argument("program", required=False)
@click.option(
    "--node",
    metavar="NODE",
    help=f"Node whose log is printed; PROGRAM is then one of {', '.join(SERVICES)}.",
)
def logs(name: str, program: str | None, node: str | None) -> None:
    """Print a log of the lab.

    PROGRAM is a program outside of the nodes, or with --node a service of that node.
    """
    from kube_rdma_lab.logs import print_log

    print_log(name, program, node)


@lab.command(epilog=examples("kube-rdma lab demo"))
@NAME
def demo(name: str) -> None:
    """Run a demo: RDMA between two pods.

    Starts a lab unless it runs, installs kube-rdma, lets two pods send data by RDMA, and prints
    what was measured.
    """
    from kube_rdma_lab.demo import inventory
    from kube_rdma_lab.demo.main import run

    run(name)
    running = labs.find(name)
    install.start_ghosts(running)
    inventory.write(running)
