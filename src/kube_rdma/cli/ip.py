"""`kube-rdma ip`: the addresses of the cluster, who holds them, what is wrong, what to do about it.

It works with a kubeconfig or inside of a pod. Only `release` and `migrate` write: `release` asks
first, `migrate --dry-run` shows what would be written.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import output as out
from kube_rdma.cli.beside import beside
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, flag_option, text_option

if TYPE_CHECKING:
    from kube_rdma.ipam.gc import Snapshot
    from kube_rdma.ipam.views import PoolState
    from kube_rdma.model.ipam import Address


@click.group()
def ip() -> None:
    """Show and check pools of IP addresses.

    Only `release` and `migrate` change something in the cluster.
    """


@ip.command("list", epilog=out.examples("kube-rdma ip list", "kube-rdma ip list -o json"))
@cluster_options()
@out.OUTPUT
@click.pass_obj
def list_(opener: Opener | None, cluster: ClusterOptions, output: str) -> None:
    """List the pools and how full they are.

    Shows for each IPPool how many addresses it has, and how many of them nodes hold.
    """
    from kube_rdma.ipam.gc import states
    from kube_rdma.ipam.views import pools_document, pools_page

    pool_states = states(_snapshot(opener, cluster))
    out.show_result(pools_page(pool_states), pools_document(pool_states), output)


@ip.command(epilog=out.examples("kube-rdma ip show rdma"))
@click.argument("pool")
@cluster_options()
@out.OUTPUT
@click.pass_obj
def show(opener: Opener | None, pool: str, cluster: ClusterOptions, output: str) -> None:
    """Show a pool and who holds its addresses.

    POOL is the name of an IPPool. Shows its ranges, which node holds which addresses, and which
    nodes are short of addresses.
    """
    from kube_rdma.ipam.views import pool_page, pools_document

    pool_state = _named(_snapshot(opener, cluster), pool)
    out.show_result(pool_page(pool_state), pools_document([pool_state])[0], output)


@ip.command(epilog=out.examples("kube-rdma ip check"))
@cluster_options()
@out.OUTPUT
@click.pass_obj
def check(opener: Opener | None, cluster: ClusterOptions, output: str) -> None:
    """Check the pools for faults.

    Finds addresses that two nodes hold or no pool has, objects edited by hand, nearly full or
    overlapping pools, and nodes that are gone.

    Exits with 1 when there is something to do; warnings do not count.
    """
    from kube_rdma.ipam.gc import findings
    from kube_rdma.ipam.views import findings_document, findings_page

    problems = findings(_snapshot(opener, cluster))
    out.show_result(findings_page(problems), findings_document(problems), output)
    if any(each.is_error for each in problems):
        sys.exit(out.ExitCode.PROBLEM)


@ip.command(epilog=out.examples("kube-rdma ip release 10.10.0.7"))
@click.argument("address")
@text_option(
    "--network",
    default="default",
    help="Address space of the pool: the field network of its IPPool.",
)
@flag_option("--yes", help="Free the address without asking first.")
@cluster_options()
@out.OUTPUT
@click.pass_obj
def release(
    opener: Opener | None,
    address: str,
    network: str,
    yes: bool,
    cluster: ClusterOptions,
    output: str,
) -> None:
    """Free an address by hand.

    Takes ADDRESS from the node that holds it. Use it only for a node that never gives it back, such
    as a machine that was thrown away. It says what the risk is and asks before it frees.
    """
    from kube_rdma.ipam.gc import find_holders, free

    wanted = _address(address)
    held = cluster.ask(lambda api: find_holders(api, network, wanted), opener)
    if output == "table":
        out.show_sentence(held.risk)
    if not yes:
        click.confirm(f"Free {wanted}?", abort=True, err=True)
    cluster.ask(lambda api: free(api, held), opener)
    if output == "json":
        document = {"address": str(wanted), "network": network, "from": list(held.nodes)}
        out.show_document(document, "json")
    else:
        out.show_sentence(f"{wanted} is free.")


@ip.command(epilog=out.examples("kube-rdma ip migrate --dry-run", "kube-rdma ip migrate"))
@flag_option("--dry-run", help="Only show what would be written.")
@cluster_options()
@out.OUTPUT
@click.pass_obj
def migrate(opener: Opener | None, dry_run: bool, cluster: ClusterOptions, output: str) -> None:
    """Take over pools from whereabouts.

    Makes an IPPool for each configuration of whereabouts. Its running pods keep their addresses,
    and no other pod gets them. Run it again at any time: addresses of pods that have ended come
    free.

    Exits with 1 when something could not be mapped.
    """
    from kube_rdma.ipam.views import migration_document, migration_page

    whereabouts = beside("kube_rdma_whereabouts.take_over", "way from whereabouts", "ip migrate")
    plan = cluster.ask(lambda api: whereabouts.take_over(api, is_dry=dry_run), opener)
    migration = whereabouts.shown(plan)
    page = migration_page(migration, is_done=not dry_run)
    out.show_result(page, migration_document(migration), output)
    if migration.unmapped:
        sys.exit(out.ExitCode.PROBLEM)


@ip.command(epilog=out.examples("kube-rdma ip translate cidrpools.yaml > ippools.yaml"))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def translate(files: tuple[str, ...]) -> None:
    """Print IPPools for CIDRPools and IPPools of nv-ipam.

    FILE is JSON or YAML with these; - is stdin. Other documents are left out. What an IPPool
    cannot say stands in a note on stderr. It reads no cluster and writes nothing.
    """
    from kube_base.errors import Refused
    from kube_rdma.admission.documents import manifests as objects
    from kube_rdma.cli.config import read_parts
    from kube_rdma.install.views import manifests
    from kube_rdma.ipam import ip_pool

    parts = [part for name in files for part in read_parts(name)]
    if unread := [part for part in parts if isinstance(part, Refused)]:
        raise Refused.all(unread)
    documents = [part for part in parts if not isinstance(part, Refused)]
    read = [manifest for document in documents for manifest in objects.manifests(document)]
    kinds = {"CIDRPool": ip_pool.translate_cidr_pool, "IPPool": ip_pool.translate_nv_ip_pool}
    theirs = [one for one in read if one.group == ip_pool.NV_IPAM and one.kind in kinds]
    pools = [kinds[one.kind](one.document) for one in theirs]
    for kind in {one.kind for one in read if one.group == ip_pool.NV_IPAM}.difference(kinds):
        out.tell(f"{kind} of {ip_pool.NV_IPAM} is not translated.")
    if not pools:
        remedy = (
            "Name files that kubectl get cidrpools.nv-ipam.nvidia.com,ippools.nv-ipam.nvidia.com "
            "-A -o yaml wrote, or the manifests"
        )
        raise Refused("there is no CIDRPool or IPPool of nv-ipam in what was read", remedy=remedy)
    for entry in pools:
        for note in entry.notes:
            out.tell(f"{entry.pool.name}: {note}.")
    click.echo(manifests(ip_pool.manifest(entry.pool) for entry in pools), nl=False)


def _snapshot(opener: Opener | None, cluster: ClusterOptions) -> Snapshot:
    from kube_rdma.ipam.gc import take_snapshot

    return cluster.ask(take_snapshot, opener)


def _named(snapshot: Snapshot, name: str) -> PoolState:
    from kube_base.errors import Refused
    from kube_rdma.ipam.gc import states

    for state in states(snapshot):
        if state.pool.name == name:
            return state
    names = ", ".join(sorted(snapshot.pools)) or "none"
    raise Refused(f"there is no IPPool {name}", remedy=f"Name one that is there: {names}")


def _address(text: str) -> Address:
    from kube_rdma.lib.text.words import address

    try:
        return address(text)
    except ValueError:
        raise click.UsageError(f"{text} is not an IP address.") from None
