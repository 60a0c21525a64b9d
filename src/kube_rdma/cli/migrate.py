"""`kube-rdma migrate`: the way from another device plugin, or to claims, in commands.

It works with a kubeconfig or inside of a pod, and only reads. Whoever runs the commands writes.
"""

from __future__ import annotations

import click

from kube_rdma.cli import completion
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, text_option
from kube_rdma.cli.output import TEXT_OUTPUT, examples, show_result


@click.group()
def migrate() -> None:
    """Plan the move from another device plugin.

    `plan` prints its commands, `node` those of a node's move to claims. The cluster changes only
    when you run them.
    """


@migrate.command(
    epilog=examples(
        "kube-rdma migrate plan --image reg.example.com/kube-rdma:0.1.0 > plan.sh",
        "kube-rdma migrate plan --image $IMAGE --daemonset kube-system/rdma-shared-dp-ds",
    )
)
@text_option(
    "--daemonset",
    metavar="NAMESPACE/NAME",
    help="DaemonSet of the plugin to leave. Needed only when several plugins serve RDMA cards.",
)
@text_option(
    "--image",
    metavar="REPOSITORY[:TAG]",
    help="Image of kube-rdma to install. Needed, for no registry has one.",
)
@text_option(
    "--values",
    metavar="FILE",
    help="File with more values of the installation. The commands name it; it is not read.",
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
    """Print the commands of the move.

    They move this cluster from another RDMA device plugin to kube-rdma, node by node, and back
    again. Nothing is written to the cluster. Keep the output: the way back names what is there now.

    Exits with 3 when kube-rdma does not know the plugin, or when a right is missing.
    """
    if not image:
        raise click.UsageError(
            "No image of kube-rdma is named. Build it, push it to a registry of yours, and name "
            "it: --image registry.example.com/rdma/kube-rdma:0.1.0 (docs/install.md)."
        )
    from kube_rdma.migrate.node import look
    from kube_rdma.migrate.rules.plan import plan as planned
    from kube_rdma.migrate.views import plan_document, plan_page
    from kube_rdma.model.migrate import MigrationOptions

    options = MigrationOptions(daemonset, image, values)
    seen = cluster.ask(lambda api: look(api, options), opener, "Reading the cluster.")
    made = planned(seen, options)
    show_result(plan_page(made), plan_document(made), output)


@migrate.command(
    epilog=examples(
        "kube-rdma migrate node node-1 > node-1.sh", "kube-rdma migrate node node-1 -o json"
    )
)
@click.argument("node", metavar="NODE", shell_complete=completion.nodes)
@cluster_options()
@TEXT_OUTPUT
@click.pass_obj
def node(opener: Opener | None, node: str, cluster: ClusterOptions, output: str) -> None:
    """Print how a node moves to claims.

    The commands of the way back are below them. Pods go on asking for the same resource, such as
    rdma/hca. It needs Kubernetes 1.36, agents with claims.enabled and a DeviceClass for each name.
    Nothing is written to the cluster.

    Exits with 3 when the node cannot go this way, and says why.
    """
    from kube_rdma.migrate.node import look_node
    from kube_rdma.migrate.rules.node import plan_node
    from kube_rdma.migrate.views import node_plan_document, node_plan_page

    seen = cluster.ask(lambda api: look_node(api, node), opener, "Reading the cluster.")
    made = plan_node(seen)
    show_result(node_plan_page(made), node_plan_document(made), output)
