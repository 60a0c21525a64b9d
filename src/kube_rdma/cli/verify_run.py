"""What `kube-rdma verify pods` and `verify nodes` do once it is clear who takes part.

    probe ─► measure, with a row or a count for each pair ─► proof ─► page or JSON, exit code

A run that somebody ends, by Ctrl-C or SIGTERM, shows what it has. Nothing is measured again because
its output was not taken (output.keep).
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.cli.exit_codes import ExitCode
from kube_rdma.cli.output import (
    document_text,
    for_people,
    keep,
    page_size,
    tell,
    writable,
    written,
)
from kube_rdma.cli.progress import ProgressLine
from kube_rdma.cli.verify_options import VerifyOptions
from kube_rdma.lib.finding_lines import counted
from kube_rdma.model.verify.bandwidth import Pairing

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.model.verify.bandwidth import PairKey, PairOutcome, PairProof, PerftestRun
    from kube_rdma.verify.copies import Copies
    from kube_rdma.verify.paired_run import PairedRun
    from kube_rdma.verify.pairs import BandwidthProof, ClaimedCards
    from kube_rdma.verify.views.bandwidth import PairTable


_FILES_OF_MACOS = 10_240  # OPEN_MAX; setrlimit takes no more, although no limit is told


class Participants(Frozen):
    """Who takes part: pods and why others do not, the centre of a star (the first if empty).

    `cards` are unhealthy ones, as node, card and reason: no pod may have them.
    """

    taking: Copies
    centre: str = ""
    cards: tuple[tuple[str, str, str], ...] = ()


def check_before(options: VerifyOptions) -> None:
    """What would be wrong at the end is said before anything is measured."""
    _earlier(options)
    if options.svg is not None:
        writable(options.svg)


async def measured(cluster: Cluster, who: Participants, options: VerifyOptions) -> PairProof:
    """Measure, and show it; in JSON all at the end."""
    before = _earlier(options)
    is_wanted = not (options.verbose and options.output == "table")  # rows come one by one
    with ProgressLine("Looking at the pods.", is_wanted=is_wanted) as line:
        proof, unshown = await _measured(cluster, who, options, before, line)
    _show(proof, options, unshown)
    return proof


async def _measured(
    cluster: Cluster,
    who: Participants,
    options: VerifyOptions,
    before: Mapping[PairKey, float],
    line: ProgressLine,
) -> tuple[PairProof, list[str]]:
    """The proof, and rows of it that the output did not take."""
    from kube_client.pod_commands import PodCommands
    from kube_rdma.verify.paired_run import PairedRun, with_centre_first
    from kube_rdma.verify.pairs import BandwidthProof, Pacing
    from kube_rdma.verify.rules.comparison import comparison
    from kube_rdma.verify.rules.rails import lonely
    from kube_rdma.verify.views.bandwidth import PairTable

    pacing = Pacing(run_seconds=options.run_seconds, probe_seconds=options.probe_seconds)
    measuring = BandwidthProof(PodCommands(cluster), options.run, pacing)
    cards = await _claimed(cluster, who)
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
    outcomes = measuring.outcomes
    proof = measuring.proof(outcomes, options.standard, left_out, before, due=run.due)
    proof = replace(
        proof,
        excused=who.taking.excused,
        pairing=options.pairing,
        interrupted=interrupted,
        comparison=comparison(proof.rated, before),
    )
    return proof, progress.unshown


async def _claimed(cluster: Cluster, who: Participants) -> ClaimedCards:
    """The cards of the pods' claims; where they may not be read, pods are asked as any others."""
    from kube_rdma.verify.claimed_cards import cards_or_why

    cards, why = await cards_or_why(cluster, who.taking.pods)
    if why:
        tell(why)
    return cards


async def _interrupted(work: Coroutine[Any, Any, None], measuring: BandwidthProof) -> bool:
    """Whether somebody ended it; what had a figure by then is shown as any other run."""
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
    """As many as the system lets: a pair takes two connections, and rounds may be large."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for count in (most, _FILES_OF_MACOS):
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))
            return


def _show(proof: PairProof, options: VerifyOptions, unshown: list[str]) -> None:
    """The page or the document, and the map."""
    from kube_rdma.verify.views.bandwidth import proof_document, proof_page

    if options.output == "table":
        text = written(proof_page(proof, *page_size(), verbose=options.verbose))
    else:
        text = document_text(proof_document(proof), "json")
    try:
        if options.svg is not None and proof.rated:
            keep(_drawn(proof), options.svg)
    finally:
        keep("\n".join([*unshown, text]))


class _Progress:
    """What is shown while pairs are measured: their rows, or in the line of progress their count.

    `unshown` has the rows that a full disk did not take, to be kept with the result: it ends no
    run. A reader that has gone does.
    """

    def __init__(
        self, options: VerifyOptions, table: PairTable, run: PairedRun, line: ProgressLine
    ) -> None:
        self._rows = options.verbose and options.output == "table"
        self._table, self._run, self._line = table, run, line
        self._done = self._failed = 0
        self.unshown: list[str] = []
        if self._rows and run.due:
            self._row(written(table.head))

    def show(self, outcome: PairOutcome) -> None:
        """One more."""
        self._done += 1
        self._failed += not outcome.rows
        if self._rows:
            self._row(written(self._table.row(outcome)))
        else:
            pairs = f"{self._done} of {self._run.due} pairs are measured"
            self._line.tell(f"{pairs}, {self._failed} failed.")

    def end(self) -> None:
        """What is behind its rows begins on a line of its own."""
        if self._rows and self._done:
            self._row("")

    def _row(self, text: str) -> None:
        """Behind one that was not taken none is, so that all of them are in one place."""
        if not self.unshown:
            try:
                click.echo(text, color=for_people() or None)
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
    data, where = options.against.read_bytes(), str(options.against)
    return earlier(data, options.run, where, options.pairing)


def earlier(
    data: bytes, run: PerftestRun, where: str, pairing: Pairing | None = None
) -> Mapping[PairKey, float]:
    """The figures of a file that an earlier run has written; raise Refused for another file."""
    from kube_rdma.verify.views.bandwidth import earlier_figures

    try:
        document = decoded(data)
    except Undecodable:
        document = None
    return earlier_figures(document, run, where, pairing)


def _drawn(proof: PairProof) -> str:
    from kube_rdma.verify.views.bandwidth import perftest_name, unit
    from kube_rdma.verify.views.heat_map import heat_map_svg, rails_of
    from kube_rdma.verify.views.rail_maps import rail_maps_svg

    draw = rail_maps_svg if len(rails_of(proof.rated)) > 1 else heat_map_svg
    title = f"{perftest_name(proof.run)} from pod to pod, {unit(proof.run)}"
    return draw(proof.rated, title, latency=proof.run.latency)


def run_to_end(work: Coroutine[Any, Any, PairProof]) -> None:
    """Do it to its end, or until somebody asks it to end; then exit as the verdict says."""

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
        sys.exit(ExitCode.INTERRUPTED)
    if proof.interrupted:
        sys.exit(ExitCode.INTERRUPTED)
    if not proof.rated:
        sys.exit(ExitCode.REFUSED)
    if not proof.is_well:
        sys.exit(ExitCode.UNKNOWN if proof.holds else ExitCode.PROBLEM)
