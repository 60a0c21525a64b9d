"""`kube-rdma discover`: an installation that fits the hardware of a cluster's nodes.

It has the rights of the user who asks, and only reads.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import output as out
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options
from kube_rdma.cli.recorded import sysfs_option

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot
    from kube_rdma.model.discover import Installed, RecordedPolicy, SeenNode

    _Nodes = tuple[tuple[SeenNode, ...], tuple[str, ...]]  # and the names of those without a report

_CLUSTER = "cluster"  # the word of --against for what is installed there


@out.command(
    "kube-rdma discover",
    "kube-rdma discover --part values > values.yaml",
    "kube-rdma discover --part policies > policies.yaml",
    "kube-rdma discover --against cluster --against values.yaml",
    "kube-rdma discover --sysfs dgx-like --sysfs xe9680-like",
)
@sysfs_option("Node to look at instead of the cluster's. May be repeated.", multiple=True)
@click.option(
    "--part",
    type=click.Choice(["values", "policies"]),
    help="Print only this part: the values for the chart and `kube-rdma render`, or the "
    "NodePolicies for kubectl.",
)
@click.option(
    "--against",
    metavar="FILE|cluster",
    multiple=True,
    help="Print only what differs from an installation: a file of values or NodePolicies, or "
    "cluster for the NodePolicies there. May be repeated.",
)
@cluster_options()
@out.output_option(("yaml", "json"), "Output format: yaml to install it, json for programs.")
@click.pass_obj
def discover(
    opener: Opener | None,
    cluster: ClusterOptions,
    sysfs: tuple[SysfsRoot, ...],
    part: str | None,
    against: tuple[str, ...],
    output: str,
) -> None:
    """Propose an installation for the hardware of the nodes.

    Groups the nodes by their cards, as the agents report them, and prints values and NodePolicies
    that offer these cards to pods. Comments say which cards are left out, which nodes deviate from
    their group, and what is left to fill in. It changes nothing.

    With --against it prints a line for each difference, and exits with 1 if there is one.
    """
    from kube_base.errors import Refused
    from kube_rdma.discover import views
    from kube_rdma.discover.rules import differences, proposal
    from kube_rdma.lib.json_values import json_list

    if part and (against or output == "json"):
        raise click.UsageError("--part is a part of the YAML: leave --against and -o json out.")
    nodes, unreported, installed = _read(opener, cluster, sysfs, against)
    if not nodes:
        raise Refused(
            "no node has a NodeReport",
            remedy="Install agents first, with agent.config empty if they are to offer nothing, or "
            "name a recorded node by --sysfs (docs/install.md)",
        )
    proposed = proposal(nodes, unreported)
    if installed is None:
        if output == "json":
            out.show_document(views.proposal_document(proposed), output)
        else:
            click.echo(views.proposal_text(proposed, part or ""), nl=False)
        return
    found = differences(nodes, proposed, installed)
    document = {"differences": json_list(found)}
    out.show_result(views.differences_page(found), document, output)
    sys.exit(out.ExitCode.PROBLEM if found else out.ExitCode.OK)


def _read(
    opener: Opener | None,
    cluster: ClusterOptions,
    sysfs: tuple[SysfsRoot, ...],
    against: tuple[str, ...],
) -> tuple[tuple[SeenNode, ...], tuple[str, ...], Installed | None]:
    """Return the nodes, those without a report, and the installation to compare them with."""
    from kube_base.frozen import replace
    from kube_rdma.cli.config import read_documents
    from kube_rdma.discover import cluster as objects
    from kube_rdma.discover.written import recorded_node, written_installation

    async def asked(api: Cluster) -> tuple[_Nodes, tuple[RecordedPolicy, ...]]:
        nodes = recorded if sysfs else await objects.seen_nodes(api)
        return nodes, await objects.recorded_policies(api) if _CLUSTER in against else ()

    files = [name for name in against if name != _CLUSTER]
    installed = written_installation([one for name in files for one in read_documents(name)])
    recorded: _Nodes = tuple(map(recorded_node, sysfs)), ()
    if sysfs and _CLUSTER not in against:
        return *recorded, installed if against else None
    nodes, policies = cluster.ask(asked, opener, "Reading the cluster.")
    installed = replace(installed, policies=(*installed.policies, *policies))
    return *nodes, installed if against else None
