"""`kube-rdma install`: an installation on a cluster without Helm, which Helm can take over.

It reads what the cluster has before it writes anything.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from kube_rdma.cli import options
from kube_rdma.cli import output as out
from kube_rdma.cli.render import InstallationOptions, installation_options
from kube_rdma.cli.status import leave, look_at

if TYPE_CHECKING:
    from kube_rdma.model.install import InstallPlan, Json


@out.command(
    "kube-rdma install --preset rails --image reg.example.com/kube-rdma:0.2.0 --dry-run",
    "kube-rdma install --values values.yaml --dry-run --try-image",
    "kube-rdma install --values values.yaml --set agent.startupTaint=true",
)
@installation_options
@options.flag_option(
    "--dry-run", help="Change nothing, and show what the cluster has, lacks and would get."
)
@options.flag_option(
    "--try-image",
    help="Start one pod with the image first, also with --dry-run, and delete it. It takes two "
    "minutes at most.",
)
@options.timeout_option("Longest time to wait for the agents")
@options.cluster_options()
@click.pass_obj
def install(
    opener: options.Opener | None,
    /,
    cluster: options.ClusterOptions,
    chosen: InstallationOptions,
    *,
    dry_run: bool,
    try_image: bool,
    seconds: float,
) -> None:
    """Install kube-rdma on a cluster.

    Applies the objects of the Helm chart as `helm install` does, and waits until the agents run.
    `helm upgrade --install` can take over. If the cluster has one of the objects from somebody
    else, nothing is written. It deletes nothing. The same command again changes what differs.

    Exits with 3 when something is in the way or no image is named, else with --dry-run with 0, and
    without it as `kube-rdma status` does.
    """
    from kube_base.errors import Refused, refuse_all
    from kube_rdma.install import apply, installation
    from kube_rdma.install.rules.plan import install_plan
    from kube_rdma.install.views import plan_page
    from kube_rdma.migrate.node import neighbours
    from kube_rdma.reports.views import status_page

    layers, preset = chosen.layers(), chosen.preset
    installation.objects(layers, preset)  # wrong values are refused without a cluster
    sight = partial(apply.look, layers=layers, preset=preset, neighbours=neighbours)
    plan = install_plan(cluster.ask(sight, opener, "Reading the cluster."))
    faults = [one for one in plan.findings if one.is_error]
    if dry_run:
        out.show(plan_page(plan))
    else:
        refuse_all(Refused(one.problem, remedy=one.remedy, where=one.subject) for one in faults)
    if try_image:
        trial = partial(apply.try_image, release=plan.sight.release)
        node = cluster.ask(trial, opener, "Waiting for a pod with the image.")
        out.tell(f"The image runs on node {node}.")
    if dry_run:
        following = "mend what has a ✗" if faults else "the same command without --dry-run"
        out.show_sentence(f"Next: {following}.", before="\n")
        sys.exit(out.ExitCode.REFUSED if faults else out.ExitCode.OK)
    _write(cluster, opener, plan)
    out.show(plan_page(plan, is_done=True))
    look = asyncio.run(look_at(opener, cluster, seconds, "agents"))
    out.show(status_page(look.facts, look.findings)[:2], before="\n")
    out.show_sentence("Next: kube-rdma status, and write a pod (docs/pods.md).", before="\n")
    leave(look)


def _write(
    cluster: options.ClusterOptions, opener: options.Opener | None, plan: InstallPlan
) -> None:
    """Write what the plan makes and changes; if that breaks off, say how far it came."""
    from kube_rdma.install import apply
    from kube_rdma.install.rules.plan import title

    written: list[Json] = []
    try:
        cluster.ask(
            lambda api: apply.write(api, plan, written.append), opener, "Writing the objects."
        )
    finally:
        if rest := plan.wanted[len(written) :]:
            out.tell(
                f"{len(written)} of {len(plan.wanted)} objects are written, {len(rest)} are not, "
                f"from {title(rest[0])} on. The same command again goes on."
            )
