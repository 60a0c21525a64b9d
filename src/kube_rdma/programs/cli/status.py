"""`kube-rdma status`: how the cluster is, what is wrong, what to do next.

With a kubeconfig or inside of a pod; it only reads.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import click

from kube_rdma.programs.cli.examples import examples
from kube_rdma.programs.cli.exit_codes import ExitCode
from kube_rdma.programs.cli.options import ClusterOptions, cluster_options
from kube_rdma.programs.cli.output import OUTPUT, page_width

if TYPE_CHECKING:
    from kube_rdma.model.reports.cluster import ClusterFacts
    from kube_rdma.programs.cli.options import Opener


@click.command(epilog=examples("kube-rdma status", "kube-rdma status -o json"))
@cluster_options()
@OUTPUT
@click.pass_obj
def status(opener: Opener | None, cluster: ClusterOptions, output: str) -> None:
    """Show the cluster's state and its problems.

    Shows where agents and controllers run, what does not work, why, and what to do next. It asks
    the API server alone and changes nothing.

    Exits with 0 when all is well, with 1 when there are problems, with 6 when too little could be
    read to tell. Advice does not count as a problem.
    """
    from kube_rdma.model.reports.cluster import ClusterHealth
    from kube_rdma.rules.reports.cluster import findings, health
    from kube_rdma.views.reports import status_document, status_text

    facts = asyncio.run(_facts(opener, cluster))
    wrong = findings(facts)
    verdict = health(facts, wrong)
    if output == "json":
        click.echo(json.dumps(status_document(facts, wrong, verdict), indent=2))
    else:
        click.echo(status_text(facts, wrong, page_width()))
    codes = {
        ClusterHealth.HEALTHY: ExitCode.OK,
        ClusterHealth.PROBLEMS: ExitCode.PROBLEM,
        ClusterHealth.UNKNOWN: ExitCode.UNKNOWN,
    }
    sys.exit(codes[verdict])


async def _facts(opener: Opener | None, options: ClusterOptions) -> ClusterFacts:
    from kube_rdma.programs.reports.cluster import take

    async with options.open(opener) as cluster:
        return await take(cluster)
