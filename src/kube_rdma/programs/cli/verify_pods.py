"""`kube-rdma verify pods` and `verify nodes`: RDMA from pod to pod, measured by perftest.

Through the pods' own networks, with the rights of whoever asks. A Ctrl-C ends the measurements, and
what was made for them goes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_rdma.model.foreign_json import Undecodable, decoded
from kube_rdma.programs.cli.verify_options import VerifyOptions, verify_options

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kube_rdma.adapters.cluster.objects import Cluster
    from kube_rdma.model.bandwidth import PairKey, PairOutcome, PairProof
    from kube_rdma.programs.cli.ip import Opener

_PAGE_WIDTH = 100  # columns, where the output is not a terminal


@click.command("pods")
@click.argument("pods", metavar="POD...", nargs=-1)
@click.option("-n", "--namespace", help="Of the pods.")
@click.option("-l", "--selector", help="All pods with these labels instead of names.")
@verify_options
@click.pass_obj
def verify_pods(
    opener: Opener | None,
    options: VerifyOptions,
    pods: tuple[str, ...],
    namespace: str | None,
    selector: str | None,
) -> None:
    """Measure between running pods, each two of them, over their own RDMA devices.

    Their image needs perftest. Exits with 1 when a pair is slow or fails, with 3 when there is
    nothing to measure.
    """
    if bool(pods) == bool(selector):
        raise click.UsageError("Name pods, or say --selector: one of the two.")
    from kube_rdma.adapters.cluster.verify_objects import VerifyObjects

    async def run() -> PairProof:
        async with _opened(opener, options) as cluster:
            documents = await VerifyObjects(cluster).pods(
                namespace or cluster.namespace, names=pods, selector=selector or ""
            )
            return await _measured(cluster, documents, (), options)

    _run(run())


@click.command("nodes")
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option(
    "-f",
    "--filename",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="A pod as your jobs have it: its image, networks and shares.",
)
@click.option("-n", "--namespace", help="Where the copies run.")
@click.option(
    "--start-seconds",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="How long the copies may take to run.",
)
@verify_options
@click.pass_obj
def verify_nodes(
    opener: Opener | None,
    options: VerifyOptions,
    nodes: tuple[str, ...],
    filename: Path,
    namespace: str | None,
    start_seconds: int,
) -> None:
    """Measure between nodes: start a copy of a pod on each, measure each two, delete them.

    Without names, on all nodes that offer what the pod asks for. Exits as `verify pods` does.
    """
    import yaml

    from kube_rdma.adapters.cluster.verify_objects import VerifyObjects
    from kube_rdma.programs.verify_copies import CopyRequest, copies

    manifest = _manifest(yaml, filename)

    async def run() -> PairProof:
        async with _opened(opener, options) as cluster:
            where = namespace or manifest.get("metadata", {}).get("namespace") or cluster.namespace
            request = CopyRequest(manifest, str(filename), where, nodes, start_seconds)
            click.echo(f"Starting a copy of {filename} on each node …", err=True)
            async with copies(VerifyObjects(cluster), request) as made:
                return await _measured(cluster, made.pods, made.left_out, options)

    _run(run())


def _manifest(yaml: Any, file: Path) -> dict[str, Any]:
    from kube_rdma.model.errors import Refused

    try:
        documents = [entry for entry in yaml.safe_load_all(file.read_text()) if entry]
    except (yaml.YAMLError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise Refused(f"it cannot be read: {reason}", remedy="Mend it", where=str(file)) from error
    pods = [one for one in documents if isinstance(one, dict) and one.get("kind") == "Pod"]
    if len(pods) != 1:
        raise Refused(
            f"it holds {len(pods)} pods, and exactly 1 is needed",
            remedy="Give the manifest of one pod, as your jobs have it",
            where=str(file),
        )
    return pods[0]


def _opened(opener: Opener | None, options: VerifyOptions) -> AbstractAsyncContextManager[Cluster]:
    from kube_rdma.adapters.cluster.connect import connect

    if opener is not None:
        return opener(options.kubeconfig)
    return connect(options.kubeconfig, context=options.context)


async def _measured(
    cluster: Cluster,
    documents: Sequence[dict[str, Any]],
    left_out: Sequence[tuple[str, str]],
    options: VerifyOptions,
) -> PairProof:
    """Measure, and show it; in JSON all at the end."""
    from kube_rdma.adapters.cluster.pod_commands import PodCommands
    from kube_rdma.programs.bandwidth import BandwidthProof
    from kube_rdma.views.bandwidth import PairTable, proof_document, proof_text

    before = _earlier(options)
    measuring = BandwidthProof(PodCommands(cluster), options.run)
    pods, silent = await measuring.all_probed(documents, tuple(left_out))
    shown = options.output == "table"
    lines = PairTable(pods, options.run)
    if shown and len(pods) > 1:
        click.echo(lines.head)

    def show(outcome: PairOutcome) -> None:
        if shown:
            click.echo(lines.row(outcome))

    outcomes = await measuring.measure(pods, show, both_ways=options.both_ways)
    proof = measuring.proof(outcomes, options.standard, silent, before)
    if shown:
        click.echo(("\n" if proof.rated else "") + proof_text(proof, _width()))
    else:
        click.echo(json.dumps(proof_document(proof), indent=2))
    if options.svg is not None and proof.rated:
        _draw(proof, options.svg)
    return proof


def _earlier(options: VerifyOptions) -> Mapping[PairKey, float]:
    """The figures of the run that this one is held against."""
    from kube_rdma.views.bandwidth import earlier_figures

    if options.against is None:
        return {}
    try:
        document = decoded(options.against.read_bytes())
    except Undecodable:
        document = None
    return earlier_figures(document, options.run, str(options.against))


def _draw(proof: PairProof, file: Path) -> None:
    from kube_rdma.views.bandwidth import perftest_name, unit
    from kube_rdma.views.heat_map import heat_map_svg

    title = f"{perftest_name(proof.run)} from pod to pod, {unit(proof.run)}"
    file.write_text(heat_map_svg(proof.rated, title, latency=proof.run.latency))


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PAGE_WIDTH


def _run(work: Any) -> None:
    """Do it to its end, or until somebody asks it to end; then exit as the verdict says."""

    async def until_asked() -> PairProof:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        done: PairProof = await work
        return done

    try:
        proof = asyncio.run(until_asked())
    except asyncio.CancelledError:
        click.echo("Interrupted.", err=True)
        sys.exit(130)
    if not proof.rated:
        sys.exit(3)
    if not proof.is_well:
        sys.exit(1)
