"""`kube-rdma top`: who moves how much over RDMA now, from a laptop with a kubeconfig.

agents' /metrics ─ API server's proxy ─► programs/throughput ─► rules ─► a page every few seconds
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_rdma.model.frozen import Frozen
from kube_rdma.model.throughput import TrafficRate
from kube_rdma.programs.cli.ip import KUBECONFIG, OUTPUT

if TYPE_CHECKING:
    from kube_rdma.programs.cli.ip import Opener

_PAGE_WIDTH = 100  # columns, where the output is not a terminal
_FEW = 20  # pods, unless all are asked for
_HOME = "\x1b[H\x1b[J"  # to the top left, and clear what is below
_INTERVAL = click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two scrapes.",
)
_ONCE = click.option("--once", is_flag=True, help="Show one interval and end.")


@click.group()
def top() -> None:
    """Show what moves over RDMA devices now, by node or by pod.

    The agents have to answer Prometheus (metrics.port of the chart). Exits with 3 where none does.
    """


class TopPage(Frozen):
    """What is shown of each look: which rows, as a page or as a document, how often."""

    chosen: Callable[[TrafficRate], bool]
    text: Callable[[Sequence[TrafficRate], Mapping[str, str], int], str]
    output: str
    interval: float
    once: bool


@top.command()
@_INTERVAL
@_ONCE
@KUBECONFIG
@OUTPUT
@click.pass_obj
def nodes(opener: Opener | None, /, kubeconfig: Path | None, **options: Any) -> None:
    """Show each port of the nodes' devices, the busiest first."""
    from kube_rdma.views.throughput import top_nodes

    _follow(opener, kubeconfig, TopPage(lambda row: not row.key.pod, top_nodes, **options))


@top.command()
@click.option("-n", "--namespace", help="Pods of this namespace alone.")
@click.option("--all", "every", is_flag=True, help=f"All of them, not the busiest {_FEW}.")
@_INTERVAL
@_ONCE
@KUBECONFIG
@OUTPUT
@click.pass_obj
def pods(opener: Opener | None, /, kubeconfig: Path | None, **options: Any) -> None:
    """Show each device of the pods' containers, the busiest first."""
    from kube_rdma.views.throughput import top_pods

    namespace, most = options.pop("namespace"), None if options.pop("every") else _FEW

    def chosen(row: TrafficRate) -> bool:
        return bool(row.key.pod) and namespace in (None, row.key.namespace)

    _follow(opener, kubeconfig, TopPage(chosen, partial(top_pods, most=most), **options))


def _follow(opener: Opener | None, kubeconfig: Path | None, page: TopPage) -> None:
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_show(opener, kubeconfig, page))
    except BrokenPipeError:  # the reader has gone (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _show(opener: Opener | None, kubeconfig: Path | None, page: TopPage) -> None:
    from kube_rdma.adapters.cluster.connect import connect
    from kube_rdma.programs.throughput import watch_traffic
    from kube_rdma.rules.throughput import busiest
    from kube_rdma.views.throughput import top_document

    async with (
        (opener or connect)(kubeconfig) as cluster,
        aclosing(watch_traffic(cluster, page.interval)) as looks,
    ):
        async for traffic in looks:
            rows = busiest(filter(page.chosen, traffic.rows))
            if page.output == "json":
                click.echo(json.dumps(top_document(rows, traffic.silent)))
            else:
                home = _HOME if sys.stdout.isatty() and not page.once else ""
                click.echo(home + page.text(rows, traffic.silent, _width()))
            if page.once:
                return


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE_WIDTH
