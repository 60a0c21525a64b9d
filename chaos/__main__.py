"""`python -m chaos`: run seeds on one lab of native nodes, and append what came of each to a file.

The lab stays up between seeds; behind a run that was not clean it is booted anew, so that no run
has the leftovers of another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from chaos import record, setup
from chaos.collect import collect
from chaos.run import Run, describe
from chaos.schedule import Fault, Place, Size, schedule
from chaos.seen import Seen
from kube_base.errors import KubeError, Refused
from kube_rdma_lab import lab as labs
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.printer import Printer
from kube_rdma_tools.release.version import commit_of

CHECKOUT = Path(__file__).parents[1]
TOPOLOGY = "native"
BEFORE = "chaos-before.json"  # in the lab's folder, until a run was not clean
NODES = ("node-1", "node-2")
PLACE = Place(NODES, (*setup.BY_SHARE, *setup.BY_CLAIM))
SIZE = Size()
NAME = "chaos"  # of the lab that goes
NAMES = {fault.value.replace(" ", "-").lower(): fault for fault in Fault}
CLEAN, NOT_CLEAN = 0, 1  # exit codes


class Ground:
    """The lab that runs take place on: a running one that is clean, else a fresh one."""

    def __init__(self, name: str, *, keep: bool) -> None:
        self._name = name
        self.keep = keep
        self._ready: tuple[Lab, Seen] | None = None

    def ready(self) -> tuple[Lab, Seen]:
        """The lab with everything installed, and what it shows without a load."""
        if self._ready is None:
            self._ready = self._left() or self._fresh()
        return self._ready

    def _left(self) -> tuple[Lab, Seen] | None:
        """What an earlier call left up, with what it saw first."""
        try:
            lab = labs.find(self._name)
            return lab, msgspec.json.decode((lab.home / BEFORE).read_bytes(), type=Seen)
        except (Refused, FileNotFoundError):
            return None

    def _fresh(self) -> tuple[Lab, Seen]:
        labs.down(self._name)
        with Printer() as report:
            lab = labs.up(self._name, TOPOLOGY, None, report)
        setup.install(lab)
        before = collect(lab)
        (lab.home / BEFORE).write_bytes(msgspec.json.encode(before))
        return lab, before

    def spoilt(self) -> None:
        """The next run gets a fresh lab; one that is kept is left for people to look at."""
        lab, _ = self.ready()
        (lab.home / BEFORE).unlink(missing_ok=True)
        self._ready = None


@contextmanager
def ground(name: str, *, keep: bool) -> Iterator[Ground]:
    """A lab for a while; `keep` leaves it up."""
    try:
        yield Ground(name, keep=keep)
    finally:
        if not keep:
            labs.down(name)


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first run.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Of runs.")
@click.option(
    "--fault",
    "chosen",
    multiple=True,
    type=click.Choice(list(NAMES)),
    help="A fault that runs may have; may be repeated. Default: all of them.",
)
@click.option(
    "--lab",
    "kept",
    default="",
    metavar="NAME",
    help="Run on this lab and leave it up, also where a run was not clean, which ends the row. "
    "Default: a lab that is taken down.",
)
@click.option("--show", is_flag=True, help="Print the steps of the seeds and run nothing.")
@click.option(
    "--runs",
    type=click.Path(dir_okay=False, path_type=Path),
    default=record.RUNS,
    help="File that a line for each run is appended to. Default: runs.jsonl beside this program.",
)
def main(seed: int, count: int, chosen: tuple[str, ...], kept: str, show: bool, runs: Path) -> None:
    """Let faults happen to a lab under a load of pods, and audit what is left, seed by seed.

    Exit codes: 0 every run was clean, 1 some run was not.
    """
    faults = tuple(NAMES[name] for name in chosen) or tuple(Fault)
    seeds = range(seed, seed + count)
    if show:
        for number in seeds:
            click.echo(f"seed {number}")
            for step in schedule(number, PLACE, SIZE, faults):
                click.echo(f"  {describe(step)}")
        return
    with ground(kept or NAME, keep=bool(kept)) as place:
        sys.exit(CLEAN if row(place, seeds, faults, runs) else NOT_CLEAN)


def row(place: Ground, seeds: Iterable[int], faults: tuple[Fault, ...], runs: Path) -> bool:
    """Run seeds, each on what the one before left clean; whether all were."""
    clean = True
    for seed in seeds:
        if not run(place, seed, faults, runs):
            clean = False
            place.spoilt()
            if place.keep:
                break
    return clean


def run(place: Ground, seed: int, faults: tuple[Fault, ...], runs: Path) -> bool:
    """Run one seed and write its line; whether it was clean."""
    lab, before = place.ready()
    steps = schedule(seed, PLACE, SIZE, faults)
    begin = time.monotonic()
    click.echo(f"seed {seed}")

    def say(text: str) -> None:
        click.echo(f"  {time.monotonic() - begin:6.1f} s  {text}")

    outcome = Run(lab, before, say).take(steps)
    seconds = time.monotonic() - begin
    choice = () if len(faults) == len(Fault) else tuple(fault.value for fault in faults)
    facts = record.Facts(commit_of(CHECKOUT, "-dirty"), TOPOLOGY, choice, seconds)
    with runs.open("a") as file:
        file.write(f"{record.line(seed, SIZE, steps, outcome, facts)}\n")
    for wrong in (*outcome.under_load, *outcome.at_rest, *filter(None, [outcome.stuck])):
        say(str(wrong))
    say("clean" if outcome.is_clean else "NOT CLEAN")
    return outcome.is_clean


if __name__ == "__main__":
    try:
        main()
    except KubeError as error:
        remedy = f". {error.remedy}" if isinstance(error, Refused) else ""
        sys.exit(f"{error}{remedy}")
