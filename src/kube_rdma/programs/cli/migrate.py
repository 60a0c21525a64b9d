"""`kube-rdma migrate`: the way from another device plugin, in commands for this cluster.

With a kubeconfig or inside of a pod; it only reads. Whoever runs the commands writes.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from kube_rdma.programs.cli.options import ClusterOptions, cluster_options
from kube_rdma.programs.cli.output import TEXT_OUTPUT

if TYPE_CHECKING:
    from kube_rdma.model.migration import MigrationOptions, TakeoverPlan
    from kube_rdma.programs.cli.options import Opener


@click.group()
def migrate() -> None:
    """Go from another device plugin to kube-rdma, and back."""


@migrate.command()
@click.option(
    "--daemonset",
    metavar="NAMESPACE/NAME",
    default="",
    help="DaemonSet of the plugin to leave, where several serve RDMA cards.",
)
@click.option(
    "--image",
    metavar="REPOSITORY[:TAG]",
    default="",
    help="Image of kube-rdma, such as registry.example.com/rdma/kube-rdma:0.1.0.",
)
@click.option(
    "--values",
    metavar="FILE",
    default="",
    help="More values of the installation; named in the commands, not read.",
)
@cluster_options()
@TEXT_OUTPUT
@click.pass_obj
def plan(
    opener: Opener | None,
    daemonset: str,
    image: str,
    values: str,
    cluster: ClusterOptions,
    output: str,
) -> None:
    """Print the commands that move this cluster to kube-rdma, node by node, and the way back.

    Nothing is written to the cluster. Keep what it prints: the way back names what was there.
    Exits with 3 for a plugin that kube-rdma does not know, and where a right is missing.
    """
    from kube_rdma.model.migration import MigrationOptions
    from kube_rdma.views.migrate import plan_document, plan_text

    made = asyncio.run(_plan(opener, cluster, MigrationOptions(daemonset, image, values)))
    if output == "json":
        click.echo(json.dumps(plan_document(made), indent=2))
    else:
        click.echo(plan_text(made))


async def _plan(
    opener: Opener | None, where: ClusterOptions, options: MigrationOptions
) -> TakeoverPlan:
    from kube_rdma.programs.migration import look
    from kube_rdma.rules.migrate.plan import plan as planned

    async with where.open(opener) as cluster:
        return planned(await look(cluster, options), options)
