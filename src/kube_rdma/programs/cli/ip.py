"""`kube-rdma ip`: the addresses of the cluster, who holds them, what is wrong, what to do about it.

Works with a kubeconfig or inside of a pod. Only `release` and `migrate` write, and both say first
what they will do.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click

if TYPE_CHECKING:
    from kube_rdma.adapters.cluster.objects import Cluster
    from kube_rdma.model.ip import Address
    from kube_rdma.programs.ipam.snapshot import Snapshot
    from kube_rdma.views.ip import PoolState

_PAGE_WIDTH = 100  # columns, where the output is not a terminal

T = TypeVar("T")
Opener: TypeAlias = "Callable[[Path | None], AbstractAsyncContextManager[Cluster]]"

OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people or JSON for programs.",
)
KUBECONFIG = click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of the cluster; else the pod's service account, $KUBECONFIG or ~/.kube/config.",
)


@click.group()
def ip() -> None:
    """Show pools of addresses, find what is wrong with them, free one, take over from others."""


@ip.command("list")
@KUBECONFIG
@OUTPUT
@click.pass_obj
def list_(opener: Opener | None, kubeconfig: Path | None, output: str) -> None:
    """List all pools and how full they are."""
    from kube_rdma.programs.ipam.snapshot import states
    from kube_rdma.views.ip import pools_document, pools_text

    pool_states = states(_snapshot(opener, kubeconfig))
    if output == "json":
        click.echo(json.dumps(pools_document(pool_states), indent=2))
    else:
        click.echo(pools_text(pool_states, _width()))


@ip.command()
@click.argument("pool")
@KUBECONFIG
@OUTPUT
@click.pass_obj
def show(opener: Opener | None, pool: str, kubeconfig: Path | None, output: str) -> None:
    """Show POOL: its ranges, which node holds which addresses, who is short."""
    from kube_rdma.views.ip import pool_text, pools_document

    pool_state = _named(_snapshot(opener, kubeconfig), pool)
    if output == "json":
        click.echo(json.dumps(pools_document([pool_state])[0], indent=2))
    else:
        click.echo(pool_text(pool_state, _width()))


@ip.command()
@KUBECONFIG
@OUTPUT
@click.pass_obj
def check(opener: Opener | None, kubeconfig: Path | None, output: str) -> None:
    """Look for addresses with two holders, edited objects, full pools, nodes that are gone.

    Exits with 1 when there is something to do; warnings do not count.
    """
    from kube_rdma.programs.ipam.snapshot import findings
    from kube_rdma.views.ip import findings_document, findings_text

    problems = findings(_snapshot(opener, kubeconfig))
    if output == "json":
        click.echo(json.dumps(findings_document(problems), indent=2))
    else:
        click.echo(findings_text(problems, _width()))
    if any(not each.is_warning for each in problems):
        sys.exit(1)


@ip.command()
@click.argument("address")
@click.option("--network", default="default", show_default=True, help="The pools' network.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@KUBECONFIG
@OUTPUT
@click.pass_obj
def release(
    opener: Opener | None,
    address: str,
    network: str,
    yes: bool,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Take ADDRESS from the node that holds it, for a node that will never give it back."""
    from kube_rdma.programs.ipam.release import find, free

    wanted = _address(address)
    held = _run(opener, kubeconfig, lambda cluster: find(cluster, network, wanted))
    if output == "table":
        click.echo(held.risk)
    if not yes:
        click.confirm(f"Free {wanted}?", abort=True, err=True)
    _run(opener, kubeconfig, lambda cluster: free(cluster, held))
    if output == "json":
        document = {"address": str(wanted), "network": network, "from": list(held.nodes)}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(f"{wanted} is free.")


@ip.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@KUBECONFIG
@OUTPUT
@click.pass_obj
def migrate(opener: Opener | None, dry_run: bool, kubeconfig: Path | None, output: str) -> None:
    """Make pools of the ranges of whereabouts, and leave its pods the addresses that they have.

    Can be done again at any time: addresses of pods that have ended meanwhile come free. Exits
    with 1 when something could not be mapped.
    """
    from kube_rdma.programs.whereabouts.migrate import shown, take_over
    from kube_rdma.views.ip import migration_document, migration_text

    plan = _run(opener, kubeconfig, lambda cluster: take_over(cluster, is_dry=dry_run))
    migration = shown(plan)
    if output == "json":
        click.echo(json.dumps(migration_document(migration), indent=2))
    else:
        click.echo(migration_text(migration, is_done=not dry_run, width=_width()))
    if migration.unmapped:
        sys.exit(1)


def _run(
    opener: Opener | None, kubeconfig: Path | None, act: Callable[[Cluster], Awaitable[T]]
) -> T:
    """Open the door, act, close it."""

    async def inside() -> T:
        if opener is None:
            from kube_rdma.adapters.cluster.connect import connect

            async with connect(kubeconfig) as cluster:
                return await act(cluster)
        async with opener(kubeconfig) as cluster:
            return await act(cluster)

    return asyncio.run(inside())


def _snapshot(opener: Opener | None, kubeconfig: Path | None) -> Snapshot:
    from kube_rdma.programs.ipam.snapshot import take

    return _run(opener, kubeconfig, take)


def _named(snapshot: Snapshot, name: str) -> PoolState:
    from kube_rdma.model.errors import Refused
    from kube_rdma.programs.ipam.snapshot import states

    for state in states(snapshot):
        if state.pool.name == name:
            return state
    names = ", ".join(sorted(snapshot.pools)) or "none"
    raise Refused(f"there is no IPPool {name}", remedy=f"Name one that is there: {names}")


def _address(text: str) -> Address:
    from kube_rdma.api.ip_words import address

    try:
        return address(text)
    except ValueError:
        raise click.UsageError(f"{text} is not an IP address.") from None


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE_WIDTH
