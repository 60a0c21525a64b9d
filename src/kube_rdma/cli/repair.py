"""`kube-rdma repair`: what RepairPolicies did to nodes, would do, and why not.

It has the rights of the user who asks. Only `pause` and `resume` write: an annotation of policies.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import output as out
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, text_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kube_client.objects import Cluster
    from kube_rdma.model.repair import SeenRepair

_POLICIES = click.argument("names", metavar="[POLICY]...", nargs=-1)


@click.group()
def repair() -> None:
    """Show which nodes are tainted for their cards.

    The controller does it as RepairPolicies say, with the value controller.repair.
    """


@repair.command(epilog=out.examples("kube-rdma repair show"))
@_POLICIES
@cluster_options()
@out.OUTPUT
@click.pass_obj
def show(
    opener: Opener | None, names: tuple[str, ...], cluster: ClusterOptions, output: str
) -> None:
    """Show bad nodes, and what was done.

    For each policy it shows the nodes that are bad or have its taint, and the evidence.
    """
    from kube_rdma.repair.views import policies_document, policies_page

    found = _chosen(cluster, opener, names)
    out.show_result(policies_page(found), policies_document(found), output)


@repair.command(epilog=out.examples("kube-rdma repair history"))
@_POLICIES
@cluster_options()
@out.OUTPUT
@click.pass_obj
def history(
    opener: Opener | None, names: tuple[str, ...], cluster: ClusterOptions, output: str
) -> None:
    """Show the last taints that were written and removed.

    The newest is first. A policy keeps its last 32.
    """
    from kube_rdma.repair.views import history_page, policies_document

    found = _chosen(cluster, opener, names)
    out.show_result(history_page(found), policies_document(found), output)


@repair.command(epilog=out.examples("kube-rdma repair pause --why 'switch upgrade'"))
@_POLICIES
@text_option("--why", default="", help="Reason, for others who ask.")
@cluster_options()
@click.pass_obj
def pause(opener: Opener | None, names: tuple[str, ...], why: str, cluster: ClusterOptions) -> None:
    """Keep policies from writing and removing taints.

    Without POLICY all policies are paused. Taints stay as they are.
    """
    _set_paused(cluster, opener, names, why)


@repair.command(epilog=out.examples("kube-rdma repair resume"))
@_POLICIES
@cluster_options()
@click.pass_obj
def resume(opener: Opener | None, names: tuple[str, ...], cluster: ClusterOptions) -> None:
    """Let paused policies go on.

    Without POLICY all policies go on.
    """
    _set_paused(cluster, opener, names, None)


def _chosen(
    cluster: ClusterOptions, opener: Opener | None, names: tuple[str, ...]
) -> Sequence[SeenRepair]:
    """Return the policies of these names, or all; raise Refused for a name that is none."""
    from kube_base.errors import Refused
    from kube_rdma.repair.cluster import policies

    every = {one.name: one for one in cluster.ask(policies, opener)}
    for name in names:
        if name not in every:
            known = ", ".join(sorted(every)) or "none"
            raise Refused(
                f"there is no RepairPolicy {name}",
                remedy=f"Name one of these: {known}" if every else "docs/repair.md has an example",
                where="repair",
            )
    return [every[name] for name in names or sorted(every)]


def _set_paused(
    cluster: ClusterOptions, opener: Opener | None, names: tuple[str, ...], why: str | None
) -> None:
    from kube_rdma.repair.cluster import pause as set_paused

    chosen = [one.name for one in _chosen(cluster, opener, names)]

    async def each(api: Cluster) -> None:
        await asyncio.gather(*(set_paused(api, name, why) for name in chosen))

    cluster.ask(each, opener)
    state = "goes on" if why is None else "is paused"
    for name in chosen:
        out.show_sentence(f"RepairPolicy {name} {state}.")
    if not chosen:
        out.show_sentence("There is no RepairPolicy.")
