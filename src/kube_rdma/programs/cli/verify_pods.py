"""`kube-rdma verify pods` and `verify nodes`: RDMA from pod to pod, measured by perftest.

Through the pods' own networks, with the rights of whoever asks. A Ctrl-C ends the measurements, and
what was made for them goes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import replace
from kube_rdma.programs.cli.examples import examples
from kube_rdma.programs.cli.exit_codes import ExitCode
from kube_rdma.programs.cli.options import ClusterOptions, cluster_options
from kube_rdma.programs.cli.output import keep, page_size, writable
from kube_rdma.programs.cli.verify_options import VerifyOptions, verify_options

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.model.verify.bandwidth import PairKey, PairOutcome, PairProof, PerftestRun
    from kube_rdma.programs.cli.options import Opener
    from kube_rdma.programs.verify.copies import Copies
    from kube_rdma.views.verify.bandwidth import PairTable


@click.command(
    "pods",
    epilog=examples(
        "kube-rdma verify pods w-0 w-1 w-2 -n train",
        "kube-rdma verify pods -l app=train -n train --test read -q 30",
        "kube-rdma verify pods -l app=train --latency --max-us 5",
    ),
)
@click.argument("pods", metavar="POD...", nargs=-1)
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
    from kube_rdma.adapters.cluster.verify import VerifyObjects
    from kube_rdma.programs.verify.copies import Copies

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            space = cluster.namespace or api.namespace
            documents = await VerifyObjects(api).pods(space, names=pods, selector=selector or "")
            return await _measured(api, Copies(tuple(documents)), options)

    _before(options)
    _run(run())


@click.command(
    "nodes",
    epilog=examples(
        "kube-rdma verify nodes -f pod.yaml -o json > today.json",
        "kube-rdma verify nodes node-1 node-2 -f pod.yaml",
        "kube-rdma verify nodes -f pod.yaml --against today.json --svg map.svg",
    ),
)
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option(
    "-f",
    "--filename",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Manifest of a pod as your jobs have it, with its image, networks and shares.",
)
@click.option(
    "--start-seconds",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Longest time until the copies are Ready, in seconds.",
)
@verify_options
@cluster_options(namespace=True)
@click.pass_obj
def verify_nodes(
    opener: Opener | None,
    options: VerifyOptions,
    nodes: tuple[str, ...],
    filename: Path,
    cluster: ClusterOptions,
    start_seconds: int,
) -> None:
    """Measure RDMA between nodes.

    Starts a copy of a pod on each NODE, measures each pair and deletes the copies. Without names
    it takes all nodes that offer what the pod asks for. The copies are in the namespace of -n,
    else in that of the file, else in that of the context.

    Exits with the codes of `verify pods`.
    """
    import yaml

    from kube_rdma.adapters.cluster.verify import VerifyObjects
    from kube_rdma.programs.verify.copies import CopyRequest, copies

    manifest = _manifest(yaml, filename)

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            space = manifest.get("metadata", {}).get("namespace")
            where = cluster.namespace or space or api.namespace
            request = CopyRequest(manifest, str(filename), where, nodes, start_seconds)
            click.echo(f"Starting a copy of {filename} on each node …", err=True)
            async with copies(VerifyObjects(api), request) as made:
                return await _measured(api, made, options)

    _before(options)
    _run(run())


def _manifest(yaml: Any, file: Path) -> dict[str, Any]:
    from kube_base.errors import Refused

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


def _before(options: VerifyOptions) -> None:
    """What would be wrong at the end is said before anything is measured."""
    _earlier(options)
    if options.svg is not None:
        writable(options.svg)


async def _measured(
    cluster: Cluster,
    taking: Copies,
    options: VerifyOptions,
) -> PairProof:
    """Measure, and show it; in JSON all at the end."""
    from kube_client.pod_commands import PodCommands
    from kube_rdma.programs.verify.pairs import BandwidthProof, Pacing
    from kube_rdma.rules.verify.rounds import measurements
    from kube_rdma.views.verify.bandwidth import PairTable, proof_document, proof_text

    before = _earlier(options)
    pacing = Pacing(run_seconds=options.run_seconds)
    measuring = BandwidthProof(PodCommands(cluster), options.run, pacing)
    pods, silent = await measuring.all_probed(taking.pods, taking.left_out)
    due = measurements(pods, both_ways=options.both_ways)
    progress = _Progress(options, PairTable(pods, options.run), due)
    outcomes = await measuring.measure(pods, progress.show, both_ways=options.both_ways)
    progress.end()
    proof = measuring.proof(outcomes, options.standard, silent, before, due=due)
    proof = replace(proof, excused=taking.excused)
    if options.output == "table":
        text = proof_text(proof, *page_size(), verbose=options.verbose)
    else:
        text = json.dumps(proof_document(proof), indent=2)
    try:
        if options.svg is not None and proof.rated:
            keep(_drawn(proof), options.svg)
    finally:
        keep("\n".join([*progress.unshown, text]))
    return proof


class _Progress:
    """What is shown while pairs are measured: their rows, or on a terminal a line that counts.

    `unshown` has the rows that a full disk did not take, to be kept with the result: it ends no
    run. A reader that has gone does.
    """

    def __init__(self, options: VerifyOptions, table: PairTable, due: int) -> None:
        self._rows = options.verbose and options.output == "table"
        self._counts = not self._rows and sys.stderr is not None and sys.stderr.isatty()
        self._table, self._due = table, due
        self._done = self._failed = 0
        self.unshown: list[str] = []
        if self._rows and due:
            self._row(table.head)

    def show(self, outcome: PairOutcome) -> None:
        """One more."""
        self._done += 1
        self._failed += not outcome.rows
        if self._rows:
            self._row(self._table.row(outcome))
        elif self._counts:
            click.echo(
                f"\r{self._done} of {self._due} pairs, {self._failed} failed ", nl=False, err=True
            )

    def end(self) -> None:
        """What is behind it begins on a line of its own."""
        if self._rows and self._done:
            self._row("")
        elif self._counts:
            click.echo("\r\x1b[K", nl=False, err=True)

    def _row(self, text: str) -> None:
        """Behind one that was not taken none is, so that all of them are in one place."""
        if not self.unshown:
            try:
                click.echo(text)
            except BrokenPipeError:
                raise
            except OSError:
                pass
            else:
                return
        self.unshown.append(text)


def _earlier(options: VerifyOptions) -> Mapping[PairKey, float]:
    """The figures of the run that this one is held against."""
    if options.against is None:
        return {}
    return earlier(options.against.read_bytes(), options.run, str(options.against))


def earlier(data: bytes, run: PerftestRun, where: str) -> Mapping[PairKey, float]:
    """The figures of a file that an earlier run has written; raise Refused for another file."""
    from kube_rdma.views.verify.bandwidth import earlier_figures

    try:
        document = decoded(data)
    except Undecodable:
        document = None
    return earlier_figures(document, run, where)


def _drawn(proof: PairProof) -> str:
    from kube_rdma.views.verify.bandwidth import perftest_name, unit
    from kube_rdma.views.verify.heat_map import heat_map_svg

    title = f"{perftest_name(proof.run)} from pod to pod, {unit(proof.run)}"
    return heat_map_svg(proof.rated, title, latency=proof.run.latency)


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
        sys.exit(ExitCode.INTERRUPTED)
    if not proof.rated:
        sys.exit(ExitCode.REFUSED)
    if not proof.is_well:
        sys.exit(ExitCode.UNKNOWN if proof.holds else ExitCode.PROBLEM)
