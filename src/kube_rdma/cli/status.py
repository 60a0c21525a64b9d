"""`kube-rdma status`: how the cluster is, what is wrong, what to do next.

It works with a kubeconfig or inside of a pod, and only reads.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kube_rdma.cli import options
from kube_rdma.cli import output as out

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.reports.gather import ClusterLook
    from kube_rdma.verify.views import Checks


@out.command(
    "kube-rdma status",
    "kube-rdma status --problems-only",
    "kube-rdma status --watch",
    "kube-rdma status --wait --timeout 5m",
    "kube-rdma status --wait-for agents",
    "kube-rdma status --problems-only -o name",
    "kube-rdma status -o json",
    "kube-rdma status --svg cards.svg",
    "kube-rdma status -o html > acceptance.html",
)
@options.flag_option("--problems-only", help="Show only what is not well; JSON has everything.")
@click.option(
    "--wait",
    "awaited",
    flag_value="all",
    help="Look again until all is well or the time is over.",
)
@click.option(
    "--wait-for",
    "awaited",
    type=click.Choice(["agents", "cards", "all"]),
    help="Wait as --wait does, for this alone: agents and controllers that run and report, healthy "
    "cards and shares too, or all.",
)
@options.flag_option("--watch", help="Show the page again when it changes, until Ctrl-C.")
@options.timeout_option("Longest time for --wait")
@options.path_option(
    "--svg", help="Draw the state of all cards, node by rail, and write the picture to FILE."
)
@options.cluster_options()
@out.output_option(
    (*out.LIST_FORMATS, "html"),
    f"{out.LIST_HELP} html is a report with pictures, to hand a cluster over.",
)
@click.pass_obj
def status(
    opener: options.Opener | None,
    /,
    cluster: options.ClusterOptions,
    *,
    output: str,
    problems_only: bool,
    awaited: str | None,
    watch: bool,
    seconds: float,
    svg: Path | None,
) -> None:
    """Show the cluster's state and its problems.

    Shows where agents and controllers run, what does not work, why, and what to do next. It asks
    the API server alone and changes nothing. With --wait it looks every two seconds, and shows the
    last look. With --watch it looks every five seconds.

    Exits with 0 when all is well, with 1 when there are problems, with 6 when too little could be
    read to tell. Advice does not count as a problem. With --wait and --watch the last look counts,
    with --wait-for what was waited for.
    """
    if watch and (awaited or svg or output not in ("table", "wide")):
        raise click.UsageError("--watch shows pages alone: leave --wait, --svg and other -o out.")
    if svg:
        out.writable(svg)
    show = partial(_show, output=output, problems_only=problems_only)
    if watch:
        look = _watch(opener, cluster, show)
    else:
        look = asyncio.run(look_at(opener, cluster, seconds if awaited else 0.0, awaited or "all"))
        if svg:
            _draw(look, svg)
        if output == "html":
            out.keep(_report(opener, cluster, look))
        else:
            show(look)
    leave(look)


def leave(look: ClusterLook) -> NoReturn:
    """Exit with the code for the last look at the cluster."""
    from kube_rdma.model.reports import ClusterHealth

    codes = {
        ClusterHealth.HEALTHY: out.ExitCode.OK,
        ClusterHealth.PROBLEMS: out.ExitCode.PROBLEM,
        ClusterHealth.UNKNOWN: out.ExitCode.UNKNOWN,
    }
    sys.exit(codes[look.result])


def _show(look: ClusterLook, *, output: str, problems_only: bool, before: str = "") -> None:
    from kube_rdma.reports.views import node_names, status_document, status_page

    wide = output == "wide"
    if output in out.DOCUMENTS:
        out.show_document(status_document(look.facts, look.findings, look.health), output)
    elif output == "name":
        out.show_names(node_names(look.facts, look.findings, problems_only=problems_only))
    else:
        page = status_page(look.facts, look.findings, problems_only=problems_only, wide=wide)
        out.show(page, wide=wide, before=before)


def _watch(
    opener: options.Opener | None, at: options.ClusterOptions, show: Callable[..., None]
) -> ClusterLook:
    """Show the cluster's state at each change until Ctrl-C; return the last state."""
    looks: list[ClusterLook] = []  # the last one

    def shown(look: ClusterLook) -> None:
        looks[:] = [look]
        show(look, before=out.HOME if out.is_terminal() else "")

    with suppress(KeyboardInterrupt):
        asyncio.run(look_at(opener, at, inf, shown=shown))
    if not looks:
        raise click.Abort
    return looks[0]


def _draw(look: ClusterLook, file: Path) -> None:
    """Write an SVG picture of all cards to a file."""
    from kube_rdma.reports.rules.node_report import card_grid
    from kube_rdma.reports.views import card_grid_svg

    out.keep(card_grid_svg(card_grid(look.facts), "State of the cards"), file)


def _report(opener: options.Opener | None, at: options.ClusterOptions, look: ClusterLook) -> str:
    """Return the acceptance report as HTML, with the measurements in kube-rdma's own namespaces."""
    from kube_base.errors import Refused
    from kube_base.frozen import replace
    from kube_rdma import __version__
    from kube_rdma.fabric.rules.cabling import cable_finding
    from kube_rdma.fabric.views import cables_section
    from kube_rdma.lib.html_page import html_page
    from kube_rdma.lib.part_reader import PartReader
    from kube_rdma.reports.rules.cluster import cluster_cables, node_cables
    from kube_rdma.reports.rules.node_report import card_grid
    from kube_rdma.reports.views import report_parts
    from kube_rdma.verify.cluster import listed_checks
    from kube_rdma.verify.views import measurement_sections

    reader = PartReader(hidden_by=(Refused,))
    spaces = {workload.namespace for workload in look.facts.workloads or ()}

    async def read(api: Cluster) -> tuple[str, Checks]:
        checks = await reader.asked("BandwidthCheck", partial(listed_checks, api, spaces))
        return api.server, checks or []

    server, checks = at.ask(read, opener, "Reading the measurements.")
    facts = replace(look.facts, not_seen=(*look.facts.not_seen, *reader.not_seen))
    told = [(fault, cable_finding(fault)) for fault in cluster_cables(facts)]
    head, problems, cards, *tables = report_parts(
        facts, look.findings, card_grid(facts), [status.is_well for _, status in checks]
    )
    measured = (*measurement_sections(checks), cables_section(node_cables(facts), told))
    lead = f"kube-rdma {__version__}, {facts.read_at:%Y-%m-%d %H:%M} UTC"
    sections = (problems, cards, *measured, *tables)
    return html_page(f"RDMA of the cluster {server}", lead, head, sections)


async def look_at(
    opener: options.Opener | None,
    at: options.ClusterOptions,
    seconds: float,
    what: str = "all",
    shown: Callable[[ClusterLook], None] | None = None,
) -> ClusterLook:
    """Look at a cluster until `what` is well or the time is over, and return the last look.

    With `shown`, look until cancelled.
    """
    from kube_rdma.reports.gather import take, until_well

    with out.ProgressLine("Reading the cluster.", is_wanted=shown is None) as line:
        async with at.open(opener) as cluster:
            show_progress = line.tell if line.is_shown else out.tell
            return await until_well(partial(take, cluster), seconds, show_progress, what, shown)
