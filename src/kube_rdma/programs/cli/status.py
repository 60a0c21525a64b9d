"""`kube-rdma status`: how the cluster is, what is wrong, what to do next.

With a kubeconfig or inside of a pod; it only reads.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_rdma.programs.cli.ip import KUBECONFIG, OUTPUT

if TYPE_CHECKING:
    from kube_rdma.model.cluster_health import ClusterFacts
    from kube_rdma.programs.cli.ip import Opener

_PAGE_WIDTH = 100  # columns, where the output is not a terminal
_UNKNOWN = 2


@click.command()
@KUBECONFIG
@OUTPUT
@click.pass_obj
def status(opener: Opener | None, kubeconfig: Path | None, output: str) -> None:
    """Show what kube-rdma runs where, what does not, why, and what to do next.

    Exits with 0 when all is well, with 1 when there are problems, with 2 when nobody can tell: no
    API server, or no right to see what matters. Advice does not count.
    """
    from kube_rdma.model.cluster_health import ClusterHealth
    from kube_rdma.model.errors import KubeRdmaError
    from kube_rdma.rules.reports.cluster import health, problems
    from kube_rdma.views.status import status_document, status_text

    try:
        facts = asyncio.run(_facts(opener, kubeconfig))
    except KubeRdmaError as error:
        click.echo(f"kube-rdma: {error}", err=True)
        sys.exit(_UNKNOWN)
    wrong = problems(facts)
    verdict = health(facts, wrong)
    if output == "json":
        click.echo(json.dumps(status_document(facts, wrong, verdict), indent=2))
    else:
        click.echo(status_text(facts, wrong, _width()))
    codes = {ClusterHealth.HEALTHY: 0, ClusterHealth.PROBLEMS: 1, ClusterHealth.UNKNOWN: _UNKNOWN}
    sys.exit(codes[verdict])


async def _facts(opener: Opener | None, kubeconfig: Path | None) -> ClusterFacts:
    from kube_rdma.adapters.cluster.connect import connect
    from kube_rdma.programs.cluster_status import take

    async with (opener or connect)(kubeconfig) as cluster:
        return await take(cluster)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE_WIDTH
