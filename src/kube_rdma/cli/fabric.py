"""`kube-rdma fabric`: which switch each card is plugged into, and whether it should be there.

It has the rights of the user who asks. Only `accept` writes: the cables that NodeReports expect.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import completion
from kube_rdma.cli import output as out
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, flag_option, path_option

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.model.fabric import NodeCables

_NODES = click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=completion.nodes)


@click.group()
def fabric() -> None:
    """Show cables between cards and switches.

    Agents hear by LLDP which switch port each card of a pool is plugged into.
    """


@fabric.command(epilog=out.examples("kube-rdma fabric show", "kube-rdma fabric show node-1"))
@_NODES
@path_option("--svg", help="Draw nodes, leaves and cables, and write the picture to FILE.")
@cluster_options()
@out.OUTPUT
@click.pass_obj
def show(
    opener: Opener | None,
    names: tuple[str, ...],
    svg: Path | None,
    cluster: ClusterOptions,
    output: str,
) -> None:
    """Show the leaves of nodes, and wrong cables.

    With NODE it shows each port of these nodes. Cables are compared with those that were accepted;
    without, cards of a node that share a leaf are compared with those of other nodes.

    Exits with 1 when a cable is on the wrong leaf or lost; advice does not count.
    """
    from kube_rdma.fabric.cluster import cables
    from kube_rdma.fabric.rules.cabling import cable_faults, cable_finding
    from kube_rdma.fabric.views import fabric_document, fabric_page, fabric_svg

    if svg:
        out.writable(svg)
    every = cluster.ask(cables, opener, "Reading the reports of nodes.")
    nodes = _chosen(every, names)
    faults = [
        one
        for one in cable_faults(every.values())
        if not {*names}.isdisjoint(one.nodes) or not names
    ]
    told = sorted(
        ((one, cable_finding(one)) for one in faults), key=lambda pair: not pair[1].is_error
    )
    if svg:
        out.keep(fabric_svg(nodes, told, "Cables of the cluster"), svg)
    page = fabric_page(nodes, told, ports=bool(names))
    out.show_result(page, fabric_document(nodes, told), output)
    if any(finding.is_error for _, finding in told):
        sys.exit(out.ExitCode.PROBLEM)


@fabric.command(epilog=out.examples("kube-rdma fabric accept --dry-run"))
@_NODES
@flag_option("--dry-run", "dry", help="Only show what would be accepted.")
@flag_option("--force", help="Replace expectations that somebody else wrote.")
@cluster_options()
@out.OUTPUT
@click.pass_obj
def accept(
    opener: Opener | None,
    /,
    names: tuple[str, ...],
    cluster: ClusterOptions,
    output: str,
    **how: bool,
) -> None:
    """Accept the cables of nodes as they are.

    Writes the cables that are seen now into spec.cabling of the nodes' NodeReports: of NODE, or of
    all nodes. Nothing is expected of a port that hears no switch. Nodes that hear none are left out
    unless you name them.
    """
    from kube_base.frozen import replace
    from kube_rdma.fabric.cluster import cables, expect
    from kube_rdma.fabric.rules.cabling import accepted_cables
    from kube_rdma.fabric.views import accepted_page, fabric_document

    async def accepted(api: Cluster) -> list[NodeCables]:
        chosen = [one for one in _chosen(await cables(api), names) if one.heard or names]
        for node in () if how["dry"] else chosen:
            await expect(api, node.node, accepted_cables(node), force=how["force"])
        return [replace(one, expected=accepted_cables(one)) for one in chosen]

    nodes = cluster.ask(accepted, opener, "Accepting the cables of nodes.")
    out.show_result(accepted_page(nodes, dry=how["dry"]), fabric_document(nodes, ()), output)


def _chosen(every: Mapping[str, NodeCables], names: tuple[str, ...]) -> list[NodeCables]:
    """Return the cables of the named nodes, or of all; raise Refused for a node without report."""
    from kube_base.errors import Refused
    from kube_base.natural import natural

    for name in names:
        if name not in every:
            remedy = "Name one of kubectl get nodereports; agents of role node write them"
            raise Refused(f"node {name} has no NodeReport that can be read", remedy=remedy)
    return [every[name] for name in sorted(names or every, key=natural)]
