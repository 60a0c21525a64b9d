"""`kube-rdma bundle`: what a doctor sees of all nodes, in one file for a look elsewhere."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from kube_rdma.cli.doctor import AGENT_NAMESPACE, every_node
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options
from kube_rdma.cli.output import ExitCode, command, show_sentence


@command(
    "kube-rdma bundle cluster.tar.gz",
    "kube-rdma bundle cluster.tar.gz --agent-namespace kube-system",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@cluster_options()
@AGENT_NAMESPACE
@click.pass_obj
def bundle(
    opener: Opener | None, /, file: Path, cluster: ClusterOptions, agent_namespace: str
) -> None:
    """Collect what the doctor sees of all nodes.

    Writes a new tar file with a bundle of each node that has an agent. `kube-rdma doctor
    --all-nodes --bundle FILE` judges it on any machine. Needs the same rights as the doctor.

    Exits with 6 when a node did not answer; the file says which, and why.
    """
    from kube_rdma.adapters.files import bundle as cluster_bundle

    answers = asyncio.run(every_node(cluster, agent_namespace, opener))
    cluster_bundle.write_cluster_bundle(answers, file)
    silent = [one.node for one in answers if one.seen is None]
    show_sentence(f"{file}: {len(answers) - len(silent)} of {len(answers)} nodes answered.")
    if silent:
        sys.exit(ExitCode.UNKNOWN)
