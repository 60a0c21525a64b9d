"""`kube-rdma verify`: tests this node's hardware, and measures RDMA from pod to pod.

Without --yes the self-test only shows its tests.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Coroutine, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.cli import completion, output
from kube_rdma.cli.beside import beside
from kube_rdma.cli.options import ClusterOptions, Opener, cluster_options, flag_option
from kube_rdma.cli.verify_options import PodOptions, VerifyOptions, pod_options, verify_options
from kube_rdma.lib.page import counted
from kube_rdma.model.verify import Pairing

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.model.verify import PairKey, PairOutcome, PairProof, PerftestRun
    from kube_rdma.verify.pairs import BandwidthProof, Copies, CopyRequest, PairedRun
    from kube_rdma.verify.views import PairTable

# Measures once it is clear who takes part, and shows what came of it.

_FILES_OF_MACOS = 10_240  # OPEN_MAX; setrlimit takes no more, although getrlimit names no limit


class Participants(Frozen):
    """The pods that a measurement runs between, and the unhealthy cards left out."""

    taking: Copies
    centre: str = ""  # of a star; the first pod if empty
    cards: tuple[tuple[str, str, str], ...] = ()  # unhealthy ones: node, card and reason


def check_before(options: VerifyOptions) -> None:
    """Raise errors of the files of --against and --svg, before anything is measured."""
    _earlier(options)
    if options.svg is not None:
        output.writable(options.svg)


async def measured(cluster: Cluster, who: Participants, options: VerifyOptions) -> PairProof:
    """Measure all pairs, show the result, and return it."""
    before = _earlier(options)
    is_wanted = not (options.verbose and options.output == "table")  # rows come one by one
    with output.ProgressLine("Looking at the pods.", is_wanted=is_wanted) as line:
        proof, unshown = await _measured(cluster, who, options, before, line)
    _show(proof, options, unshown)
    return proof


async def _measured(
    cluster: Cluster,
    who: Participants,
    options: VerifyOptions,
    before: Mapping[PairKey, float],
    line: output.ProgressLine,
) -> tuple[PairProof, list[str]]:
    """Measure all pairs; return the proof, and its rows that could not be printed."""
    from kube_client.pod_commands import PodCommands
    from kube_rdma.verify.claimed_cards import cards_or_why
    from kube_rdma.verify.pairs import BandwidthProof, Pacing, PairedRun, with_centre_first
    from kube_rdma.verify.rules.pods import lonely
    from kube_rdma.verify.rules.suspects import comparison
    from kube_rdma.verify.views import PairTable

    pacing = Pacing(run_seconds=options.run_seconds, probe_seconds=options.probe_seconds)
    measuring = BandwidthProof(PodCommands(cluster), options.run, pacing)
    cards, why = await cards_or_why(cluster, who.taking.pods)
    for sentence in filter(None, (why, who.taking.remark)):
        output.tell(sentence)
    pods, silent = await measuring.all_probed(who.taking.pods, who.taking.left_out, cards)
    if options.pairing is Pairing.STAR and who.centre:
        pods = list(with_centre_first(pods, who.centre, silent))
    present = {pod.title: {device.name for device in pod.devices} for pod in pods}
    absent = [
        (f"{node} {card}", why)
        for node, card, why in who.cards
        if node in present and card not in present[node]
    ]
    run = PairedRun(pods, options.pairing, both_ways=options.both_ways)
    _open_more_files()
    line.tell(f"Measuring {counted(run.due, 'pair')}.")
    progress = _Progress(options, PairTable(pods, options.run), run, line)
    measure = run.measure(measuring, progress.show, options.standard, before)
    interrupted = await _interrupted(measure, measuring)
    progress.end()
    left_out = (*silent, *absent, *lonely(pods))
    proof = measuring.proof(measuring.outcomes, options.standard, left_out, before, due=run.due)
    proof = replace(
        proof,
        excused=who.taking.excused,
        pairing=options.pairing,
        interrupted=interrupted,
        comparison=comparison(proof.rated, before),
    )
    return proof, progress.unshown


async def _interrupted(work: Coroutine[Any, Any, None], measuring: BandwidthProof) -> bool:
    """Await the measurement; return True if it was cancelled after a first result."""
    try:
        await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not measuring.outcomes:
            raise
        task.uncancel()  # what follows is awaited as usual: copies are deleted
        return True
    return False


def _open_more_files() -> None:
    """Raise this process' limit of open files, as each pair takes two connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for count in (most, _FILES_OF_MACOS):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))
            return


def _show(proof: PairProof, options: VerifyOptions, unshown: list[str]) -> None:
    """Print the result as a page or a document, and write the map of --svg."""
    from kube_rdma.verify.views import proof_document, proof_page

    if options.output == "table":
        text = output.written(proof_page(proof, *output.page_size(), verbose=options.verbose))
    else:
        text = output.document_text(proof_document(proof), "json")
    try:
        if options.svg is not None and proof.rated:
            output.keep(_drawn(proof), options.svg)
    finally:
        output.keep("\n".join([*unshown, text]))


class _Progress:
    """A display of pairs while they are measured: a row for each, or a count."""

    def __init__(
        self, options: VerifyOptions, table: PairTable, run: PairedRun, line: output.ProgressLine
    ) -> None:
        self._rows = options.verbose and options.output == "table"
        self._table, self._run, self._line = table, run, line
        self._done = self._failed = 0
        # Rows that a full disk did not take, to be kept with the result: it ends no run, but a
        # reader that has gone does.
        self.unshown: list[str] = []
        if self._rows and run.due:
            self._row(output.written(table.head))

    def show(self, outcome: PairOutcome) -> None:
        """Show one measured pair."""
        self._done += 1
        self._failed += not outcome.rows
        if self._rows:
            self._row(output.written(self._table.row(outcome)))
        else:
            pairs = f"{self._done} of {self._run.due} pairs are measured"
            self._line.tell(f"{pairs}, {self._failed} failed.")

    def end(self) -> None:
        """Print an empty line behind the rows."""
        if self._rows and self._done:
            self._row("")

    def _row(self, text: str) -> None:
        """Print a row; after one that failed keep all further rows in `unshown`."""
        if not self.unshown:
            try:
                click.echo(text, color=output.for_people() or None)
            except BrokenPipeError:
                raise
            except OSError:
                pass
            else:
                return
        self.unshown.append(text)


def _earlier(options: VerifyOptions) -> Mapping[PairKey, float]:
    """Return the figures of the earlier run that --against names; none without it."""
    if options.against is None:
        return {}
    data, where = options.against.read_bytes(), str(options.against)
    return earlier(data, options.run, where, options.pairing)


def earlier(
    data: bytes, run: PerftestRun, where: str, pairing: Pairing | None = None
) -> Mapping[PairKey, float]:
    """Return the figures of an earlier run from its file; raise Refused for another file."""
    from kube_rdma.verify.views import earlier_figures

    try:
        document = decoded(data)
    except Undecodable:
        document = None
    return earlier_figures(document, run, where, pairing)


def _drawn(proof: PairProof) -> str:
    from kube_rdma.verify.views import pairs_svg, perftest_name, unit

    return pairs_svg(proof, f"{perftest_name(proof.run)} from pod to pod, {unit(proof.run)}")


def run_to_end(work: Coroutine[Any, Any, PairProof]) -> None:
    """Run a measurement until its end or a signal; exit with the code of its verdict."""

    async def until_asked() -> PairProof:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        proof = asyncio.run(until_asked())
    except asyncio.CancelledError:
        click.echo("Interrupted.", err=True)
        sys.exit(output.ExitCode.INTERRUPTED)
    if proof.interrupted:
        sys.exit(output.ExitCode.INTERRUPTED)
    if not proof.rated:
        sys.exit(output.ExitCode.REFUSED)
    if not proof.is_well:
        sys.exit(output.ExitCode.UNKNOWN if proof.holds else output.ExitCode.PROBLEM)


# `kube-rdma verify pods` and `verify nodes`.


@output.command(
    "kube-rdma verify pods w-0 w-1 w-2 -n train",
    "kube-rdma verify pods -l app=train -n train --test read -q 30",
    "kube-rdma verify pods -l app=train --latency --max-us 5",
    name="pods",
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
    from kube_rdma.verify.pairs import Copies

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            with output.ProgressLine("Asking the cluster for the pods."):
                space = cluster.namespace or api.namespace
                of_space = VerifyObjects(api).pods(space, names=pods, selector=selector or "")
                documents = await of_space
            centre = pods[0] if pods else ""
            who = Participants(Copies(tuple(documents)), centre)
            return await measured(api, who, options)

    check_before(options)
    run_to_end(run())


@output.command(
    "kube-rdma verify nodes --pairs ring --image reg.example.com/perftest:1",
    "kube-rdma verify nodes node-17 --pairs star --image $IMAGE",
    "kube-rdma verify nodes -f pod.yaml -o json > today.json",
    "kube-rdma verify nodes -f pod.yaml --against today.json --svg map.svg",
    name="nodes",
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
    from kube_rdma.verify.pairs import CopyRequest, copies

    file = pod.filename
    manifest = _manifest(file) if file else None
    is_star = options.pairing is Pairing.STAR
    names = () if is_star and len(nodes) == 1 else nodes
    centre = nodes[0] if nodes else ""

    async def run() -> PairProof:
        async with cluster.open(opener) as api:
            with output.ProgressLine("Asking the cluster for the nodes."):
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
                    lines.enter_context(
                        output.ProgressLine("Deleting the pods of the measurement.")
                    )
            return proof

    check_before(options)
    run_to_end(run())


def _starting() -> output.ProgressLine:
    """Return a line of progress for starting pods; print the sentence where none is shown."""
    line = output.ProgressLine("Starting a pod on each node.")
    if not line.is_shown:
        click.echo("Starting a pod on each node …", err=True)
    return line


async def _own(
    cluster: Cluster, options: PodOptions
) -> tuple[CopyRequest, tuple[tuple[str, str, str], ...]]:
    """Return the request for pods without a manifest, and the unhealthy cards."""
    from kube_rdma.reports.cluster import reports
    from kube_rdma.verify.pairs import CopyRequest
    from kube_rdma.verify.rules.pods import own_pod, own_pods

    pods = own_pods(await reports(cluster), options.resource, options.image)
    pod, where = own_pod(pods.resource, 1, options.image), "the pod of kube-rdma verify"
    return CopyRequest(pod, where, "", by_node=pods.by_node, absent=pods.left_out), pods.cards


def _namespace(manifest: dict[str, Any]) -> str:
    return str(manifest.get("metadata", {}).get("namespace") or "")


def _manifest(file: Path) -> dict[str, Any]:
    """Return the pod in a manifest file; raise Refused for a bad one."""
    from kube_base.errors import Refused
    from kube_rdma.cli.config import read_documents

    where, remedy = str(file), "Give the manifest of one pod, as your jobs have it"
    values = [document.value for document in read_documents(where)]
    pods = [each for each in values if isinstance(each, dict) and each.get("kind") == "Pod"]
    if len(pods) != 1:
        problem = f"it holds {len(pods)} pods, and exactly 1 is needed"
        raise Refused(problem, remedy=remedy, where=where)
    if field := _misshapen(pods[0]):
        raise Refused(f"{field} has not the form of a pod's", remedy=remedy, where=where)
    return pods[0]


def _misshapen(pod: dict[str, Any]) -> str:
    """Return a field that should be a map or list and is not, of those looked into; "" if none."""
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return "spec" if isinstance(metadata, dict) else "metadata"
    maps = {
        "metadata.labels": metadata.get("labels"),
        "spec.nodeSelector": spec.get("nodeSelector"),
    }
    for name in ("containers", "resourceClaims"):
        parts = spec.get(name)
        if not isinstance(parts, list | None):
            return f"spec.{name}"
        for number, part in enumerate(parts or ()):
            if not isinstance(part, dict):
                return f"spec.{name}[{number}]"
            place, resources = f"spec.{name}[{number}].resources", part.get("resources")
            maps[place] = resources
            if isinstance(resources, dict):
                maps[f"{place}.limits"] = resources.get("limits")
    return next((name for name, value in maps.items() if not isinstance(value, dict | None)), "")


SELFTEST = "kube_rdma_selftest.command"
# What a trial of the self-test makes of a card (kube_rdma_selftest/trial.py).
KINDS = "macvlan", "ipvlan", "ipoib", "take", "function"


@click.group(
    invoke_without_command=True,
    epilog=output.examples(
        "kube-rdma verify pods -l app=train -n train",
        "kube-rdma verify --hardware-selftest",
        "kube-rdma verify --hardware-selftest --yes --card mlx5_0 --kind macvlan",
    ),
)
@flag_option(
    "--hardware-selftest",
    "hardware",
    help="Test this node's cards: put interfaces of theirs into a network namespace and back, as "
    "the agent does for pods. Without --yes it only shows the tests.",
)
@click.option(
    "--card",
    "cards",
    metavar="NAME|PCI",
    multiple=True,
    help="Card to test, by its RDMA device, interface or PCI address. May be repeated. Default: "
    "all RDMA cards and virtual functions.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Test to run. macvlan, ipvlan and ipoib make an interface on the card. take moves the "
    "card's own interface. function moves a virtual function that its physical function sets up. "
    "May be repeated. Default: the tests that fit the card.",
)
@flag_option("--yes", help="Run the tests. Needs root. Without it, they are only shown.")
@click.pass_context
def verify(
    context: click.Context,
    hardware: bool,
    cards: tuple[str, ...],
    kinds: tuple[str, ...],
    yes: bool,
) -> None:
    """Measure RDMA between pods, or test cards.

    `pods` and `nodes` measure from pod to pod. --hardware-selftest tries on this node's cards what
    the agent does for pods, and takes it back. It never touches cards that the node is reached
    through. A card's own interface moves only when --card names it; an idle virtual function moves
    without that.

    Exits with 1 when a test did not pass, with 3 when there is nothing to test.
    """
    if context.invoked_subcommand is not None:
        if hardware:
            raise click.UsageError("--hardware-selftest stands alone: leave out the rest.")
        return
    if not hardware:
        raise click.UsageError("Say what to verify: pods, nodes or --hardware-selftest.")
    beside(SELFTEST, "self-test of hardware", "--hardware-selftest").selftest(cards, kinds, yes=yes)


verify.add_command(verify_pods)
verify.add_command(verify_nodes)
