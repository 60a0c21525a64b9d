"""`kube-rdma top`: who moves how much over RDMA now, from a laptop with a kubeconfig.

agents' containers ─ exec `top scrape` ─► cli/top ─► a page every few seconds
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_base.plain_text import plain
from kube_client.objects import Cluster
from kube_rdma.adapters.metrics.local import SOCKET, ask, samples
from kube_rdma.cli import output as out
from kube_rdma.cli.doctor import AGENT_NAMESPACE, agent_namespaces
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, flag_option
from kube_rdma.doctor.agents import Agents, find_agents
from kube_rdma.metrics.rules.throughput import rates, totals
from kube_rdma.model.metrics import AgentScrape, TrafficRate

if TYPE_CHECKING:
    from kube_rdma.lib.page import Page

_FEW = 20  # rows, unless all are asked for: a page of a small screen
_INTERVAL = click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two pages; rates are averages of this time.",
)
_ONCE = flag_option("--once", help="Show one page and end.")
_ALL = flag_option("--all", "every", help=f"Show all rows, not only the busiest {_FEW}.")


@click.group()
def top() -> None:
    """Show RDMA traffic by node or by pod.

    Shows a new page every few seconds until Ctrl-C. It runs a command in the agents' containers,
    for which Role kube-rdma-doctor has the rights.

    Exits with 3 when no agent is found.
    """


class TopPage(Frozen):
    """The choices of one `top` command, such as rows, page and output format."""

    chosen: Callable[[TrafficRate], bool]
    made: Callable[[Sequence[TrafficRate], Mapping[str, str]], Page]
    output: str
    interval: float
    once: bool


@top.command(epilog=out.examples("kube-rdma top nodes", "kube-rdma top nodes --once -o json"))
@_ALL
@_INTERVAL
@_ONCE
@cluster_options()
@AGENT_NAMESPACE
@out.LIST_OUTPUT
@click.pass_obj
def nodes(
    opener: Opener | None, /, cluster: ClusterOptions, agent_namespace: str, **options: Any
) -> None:
    """Show the traffic of the nodes' ports.

    Has a line for each of the busiest ports of the nodes' RDMA devices. A sentence below counts
    the ports without a line, those that are down, and those with errors.
    """
    from kube_rdma.metrics.views import nodes_page

    made = partial(nodes_page, most=None if options.pop("every") else _FEW)
    page = TopPage(lambda row: not row.key.pod, made, **options)
    _follow(opener, cluster, agent_namespace, page)


@top.command(epilog=out.examples("kube-rdma top pods -A", "kube-rdma top pods -n train --all"))
@_ALL
@_INTERVAL
@_ONCE
@cluster_options(namespace=True, every=True)
@AGENT_NAMESPACE
@out.LIST_OUTPUT
@click.pass_obj
def pods(
    opener: Opener | None, /, cluster: ClusterOptions, agent_namespace: str, **options: Any
) -> None:
    """Show the traffic of the pods' devices.

    Has a line for each of the busiest RDMA devices of containers.
    """
    from kube_rdma.metrics.views import pods_page

    most = None if options.pop("every") else _FEW
    page = TopPage(lambda row: bool(row.key.pod), partial(pods_page, most=most), **options)
    _follow(opener, cluster, agent_namespace, page)


@top.command(epilog=out.examples("kube-rdma top scrape"))
def scrape() -> None:
    """Print the metrics of this container's agent.

    `top` runs it in the containers of agents. It prints the series of pods too, whatever the agent
    serves over the network, below a line with the time of the node's clock.
    """
    click.echo(asyncio.run(ask(SOCKET)), nl=False)


def _follow(opener: Opener | None, cluster: ClusterOptions, agents: str, page: TopPage) -> None:
    with suppress(KeyboardInterrupt):
        asyncio.run(_show(opener, cluster, agents, page))


def _print(page: TopPage, rows: Sequence[TrafficRate], silent: Mapping[str, str]) -> None:
    """Print one look at the traffic in the output format of the command."""
    from kube_rdma.metrics.views import names, top_document

    if page.output == "json":
        click.echo(json.dumps(top_document(rows, silent)))
    elif page.output == "yaml":
        click.echo(f"---\n{out.document_text(top_document(rows, silent), page.output)}", nl=False)
    elif page.output == "name":
        out.show_names(names(rows))
    else:
        home = out.HOME if out.is_terminal() and not page.once else ""
        out.show(page.made(rows, silent), wide=page.output == "wide", before=home)


async def _show(opener: Opener | None, options: ClusterOptions, agents: str, page: TopPage) -> None:
    from kube_rdma.metrics.rules.throughput import busiest

    async with (
        options.open(opener) as cluster,
        AsyncExitStack() as until_first,
        aclosing(watch_traffic(cluster, agent_namespaces(agents), page.interval)) as looks,
    ):
        line = out.ProgressLine("Reading counters, and once more for their rates.")
        until_first.enter_context(line)
        async for traffic in looks:
            await until_first.aclose()
            space = None if options.every_namespace else options.namespace or cluster.namespace
            of_space = (
                r for r in traffic.rows if not r.key.pod or space in (None, r.key.namespace)
            )
            _print(page, busiest(filter(page.chosen, of_space)), traffic.silent)
            if page.once:
                return


# Scrapes all agents side by side, again and again: what `kube-rdma top` shows.

_SCRAPE = ("kube-rdma", "top", "scrape")


class ClusterTraffic(Frozen):
    """The traffic of a cluster at one moment: rows by device, and silent nodes with the reason."""

    rows: tuple[TrafficRate, ...]
    silent: Mapping[str, str]


async def watch_traffic(
    cluster: Cluster, namespaces: Sequence[str], interval: float
) -> AsyncGenerator[ClusterTraffic, None]:
    """Yield the traffic after each pause of `interval` seconds; raise Refused without an agent."""
    before = await _scrapes(cluster, namespaces)
    while True:
        await asyncio.sleep(interval)
        now = await _scrapes(cluster, namespaces)
        yield ClusterTraffic(
            tuple(row for node, scrape in now.items() for row in rates(before.get(node), scrape)),
            {scrape.node: scrape.problem for scrape in now.values() if scrape.problem},
        )
        # A node that was silent once is compared with its last scrape.
        before = {node: before.get(node, one) if one.problem else one for node, one in now.items()}


async def _scrapes(cluster: Cluster, namespaces: Sequence[str]) -> Mapping[str, AgentScrape]:
    """Return the metrics of all agents now, by node."""
    agents = await find_agents(cluster, namespaces)
    return {one.node: one for one in await agents.ask_all(partial(_scrape, agents))}


async def _scrape(agents: Agents, node: str) -> AgentScrape:
    try:
        when, series = samples(await agents.output(node, _SCRAPE))
    except KubeError as error:
        return AgentScrape(node, 0.0, problem=plain(str(error)))
    return AgentScrape(node, when, totals(series))
