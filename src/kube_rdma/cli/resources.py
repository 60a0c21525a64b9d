"""`kube-rdma resources`: what there is for pods of a namespace, and the lines to write for it.

It has the rights of the user who asks, and only reads.
"""

from __future__ import annotations

import sys

import click

from kube_rdma.cli import output as out
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options


@out.command("kube-rdma resources", "kube-rdma resources -n train", "kube-rdma resources -o json")
@cluster_options(namespace=True)
@out.LIST_OUTPUT
@click.pass_obj
def resources(opener: Opener | None, cluster: ClusterOptions, output: str) -> None:
    """Show what pods of a namespace can ask for.

    Shows resources, classes of claims and networks, how much is free, and the lines to write into
    a pod. Rights for one namespace are enough to run it; it names what they do not show. It asks
    the API server alone and changes nothing.

    Exits with 6 when nothing was seen and a right is missing.
    """
    from kube_rdma.resources.reader import read
    from kube_rdma.resources.rules import resource_list
    from kube_rdma.resources.views import resources_document, resources_page

    namespace = cluster.usual_namespace(opener)
    facts = cluster.ask(lambda api: read(api, namespace), opener, "Reading the cluster.")
    listed = resource_list(facts)
    if output in out.DOCUMENTS:
        out.show_document(resources_document(listed), output)
    elif output == "name":
        out.show_names([resource.name for resource in listed.resources])
    else:
        out.show(resources_page(listed), wide=output == "wide")
    if listed.not_seen and not (listed.resources or listed.classes or listed.networks):
        sys.exit(out.ExitCode.UNKNOWN)
