"""`kube-rdma verify pods` and `verify nodes`: RDMA from pod to pod, measured by perftest.

Through the pods' own networks, with the rights of whoever asks. A Ctrl-C ends the measurements;
what was measured is shown, and what was made for it goes (cli/verify_run).
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.frozen import replace
from kube_rdma.cli import completion
from kube_rdma.cli.examples import examples
from kube_rdma.cli.options import ClusterOptions, cluster_options
from kube_rdma.cli.progress import ProgressLine
from kube_rdma.cli.verify_options import (
    PodOptions,
    VerifyOptions,
    pod_options,
    verify_options,
)
from kube_rdma.cli.verify_run import Participants, check_before, measured, run_to_end
from kube_rdma.model.verify.bandwidth import PERFTEST_IMAGE, Pairing

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.cli.options import Opener
    from kube_rdma.model.verify.bandwidth import PairProof
    from kube_rdma.verify.copies import CopyRequest


@click.command(
    "pods",
    epilog=examples(
        "kube-rdma verify pods w-0 w-1 w-2 -n train",
        "kube-rdma verify pods -l app=train -n train --test read -q 30",
        "kube-rdma verify pods -l app=train --latency --max-us 5",
    ),
)
@click.argument("pods", metavar="POD...", nargs=-1, shell_complete=completion.pods)
@click.option(
    "-l",
    "--selector",
    metavar="LABELS",
    help="Labels of the pods to measure, in place of names, such as app=train.",
)
@verify_options
@cluster_options(namespace=True)
@click.pass_obj
def verify_pods(
    opener: Opener | None,
    options: VerifyOptions,
    cluster: ClusterOptions,
    pods: tuple[str, ...],
    selector: str | None,
) -> None:
    """Measure RDMA between running pods.

    Runs perftest between each pair of the pods, over their own RDMA devices. Name pods, or choose
    them with --selector. Their image needs perftest.

    Exits with 1 when a pair is slow or fails, with 3 when there is nothing to measure. Exits with 6
    when all measured pairs are well, but some could not be measured.
    """
    if bool(pods) == bool(selector):
        raise click.UsageError("Name pods, or say --selector: one of the two.")
    from kube_rdma.verify.cluster import VerifyObjects
    from kube_rdma.verify.copies import Copies

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            with ProgressLine("Asking the cluster for the pods."):
                space = cluster.namespace or api.namespace
                of_space = VerifyObjects(api).pods(space, names=pods, selector=selector or "")
                documents = await of_space
            centre = pods[0] if pods else ""
            who = Participants(Copies(tuple(documents)), centre)
            return await measured(api, who, options)

    check_before(options)
    run_to_end(run())


@click.command(
    "nodes",
    epilog=examples(
        "kube-rdma verify nodes --pairs ring",
        "kube-rdma verify nodes node-17 --pairs star",
        "kube-rdma verify nodes -f pod.yaml -o json > today.json",
        "kube-rdma verify nodes -f pod.yaml --against today.json --svg map.svg",
    ),
)
@click.argument("nodes", metavar="[NODE]...", nargs=-1, shell_complete=completion.nodes)
@pod_options
@verify_options
@cluster_options(namespace=True)
@click.pass_obj
def verify_nodes(
    opener: Opener | None,
    options: VerifyOptions,
    nodes: tuple[str, ...],
    pod: PodOptions,
    cluster: ClusterOptions,
) -> None:
    """Measure RDMA between nodes.

    Starts a pod on each NODE, measures and deletes the pods. Without names it takes all nodes that
    offer what the pod asks for. The pods are in the namespace of -n, else in that of the file, else
    in that of the context.

    Exits with the codes of `verify pods`.
    """
    from kube_rdma.verify.cluster import VerifyObjects
    from kube_rdma.verify.copies import CopyRequest, copies

    file = pod.filename
    manifest = _manifest(file) if file else None
    is_star = options.pairing is Pairing.STAR
    names = () if is_star and len(nodes) == 1 else nodes
    centre = nodes[0] if nodes else ""

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            with ProgressLine("Asking the cluster for the nodes."):
                if manifest is None:
                    request, cards = await _own(api, pod)
                else:
                    request, cards = CopyRequest(manifest, str(file), _namespace(manifest)), ()
            space = cluster.namespace or request.namespace or api.namespace
            request = replace(request, namespace=space, nodes=names, seconds=pod.start_seconds)
            with ExitStack() as lines:
                lines.enter_context(_starting())
                async with copies(VerifyObjects(api), request) as made:
                    lines.close()
                    proof = await measured(api, Participants(made, centre, cards), options)
                    lines.enter_context(ProgressLine("Deleting the pods of the measurement."))
            return proof

    check_before(options)
    run_to_end(run())


def _starting() -> ProgressLine:
    """What is said of the longest wait; without a line of progress it is said for good."""
    line = ProgressLine("Starting a pod on each node.")
    if not line.is_shown:
        click.echo("Starting a pod on each node …", err=True)
    return line


async def _own(
    cluster: Cluster, options: PodOptions
) -> tuple[CopyRequest, tuple[tuple[str, str, str], ...]]:
    """What is started without a manifest, and the cards that are unhealthy."""
    from kube_rdma.reports.cluster import reports
    from kube_rdma.verify.copies import CopyRequest
    from kube_rdma.verify.rules.own_pod import own_pod, own_pods

    image = options.image or PERFTEST_IMAGE
    pods = own_pods(await reports(cluster), options.resource, image)
    request = CopyRequest(
        own_pod(pods.resource, 1, image),
        "the pod of kube-rdma verify",
        "",
        by_node=pods.by_node,
        absent=pods.left_out,
    )
    return request, pods.cards


def _namespace(manifest: dict[str, Any]) -> str:
    return str(manifest.get("metadata", {}).get("namespace") or "")


def _manifest(file: Path) -> dict[str, Any]:
    """The pod of a file; raise Refused."""
    from kube_base.errors import Refused
    from kube_rdma.lib.text import document, reader

    where, remedy = str(file), "Give the manifest of one pod, as your jobs have it"
    try:
        parts = reader.read_all(file.read_bytes(), where)
    except OSError as error:
        raise document.unreadable(where, error) from error
    pods: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Refused):
            raise part
        if isinstance(part.value, dict) and part.value.get("kind") == "Pod":
            pods.append(part.value)
    if len(pods) != 1:
        problem = f"it holds {len(pods)} pods, and exactly 1 is needed"
        raise Refused(problem, remedy=remedy, where=where)
    if field := _misshapen(pods[0]):
        raise Refused(f"{field} has not the form of a pod's", remedy=remedy, where=where)
    return pods[0]


def _misshapen(pod: dict[str, Any]) -> str:
    """The first field that is read of a pod and holds another kind of value; "" where none does."""
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return "spec" if isinstance(metadata, dict) else "metadata"
    containers = spec.get("containers") or []
    maps = {
        "metadata.labels": metadata.get("labels"),
        "spec.nodeSelector": spec.get("nodeSelector"),
    }
    if not isinstance(containers, list):
        return "spec.containers"
    for number, container in enumerate(containers):
        place = f"spec.containers[{number}]"
        if not isinstance(container, dict):
            return place
        resources = container.get("resources") or {}
        maps[f"{place}.resources"] = resources
        if isinstance(resources, dict):
            maps[f"{place}.resources.limits"] = resources.get("limits")
    return next((name for name, value in maps.items() if not isinstance(value, dict | None)), "")
