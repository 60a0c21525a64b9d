"""`python -m chaos`: run seeds on one lab of two nodes, and append what came of each to a file.

The lab stays up between seeds; behind a run that was not clean it is booted anew, so that no run
has the leftovers of another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from chaos import record, setup, sites
from chaos.collect import collect
from chaos.run import Run, describe
from chaos.schedule import Fault, schedule
from chaos.seen import Seen
from chaos.sites import Site
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_rdma_lab import lab as labs
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.printer import Printer
from kube_rdma_tools.release.version import commit_of

CHECKOUT = Path(__file__).parents[1]
BEFORE = "chaos-before.json"  # in the lab's folder, until a run was not clean
# Kinds of nodes, by the option that chooses them; labs that go are called by it.
NATIVE = "native"
KINDS = {NATIVE: sites.NATIVE, "machines": sites.MACHINES, "user-mode": sites.USER_MODE}
NAMES = {fault.value.replace(" ", "-").lower(): fault for fault in Fault}
CLEAN, NOT_CLEAN = 0, 1  # exit codes


class Wish(Frozen):
    """What the command line asks for; `kept` is the name of a lab that stays up."""

    seed: int
    count: int
    nodes: str | None
    chosen: tuple[str, ...]
    kept: str
    show: bool
    runs: Path


class Ground:
    """The lab that runs take place on: a running one that is clean, else a fresh one."""

    def __init__(self, name: str, site: Site, *, keep: bool) -> None:
        self._name = name
        self.site = site
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
            if sites.of(lab) is not self.site:
                return None
            return lab, msgspec.json.decode((lab.home / BEFORE).read_bytes(), type=Seen)
        except (Refused, FileNotFoundError):
            return None

    def _fresh(self) -> tuple[Lab, Seen]:
        labs.down(self._name)
        with Printer() as report:
            lab = labs.up(self._name, self.site.topology, None, report)
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
def ground(name: str, site: Site, *, keep: bool) -> Iterator[Ground]:
    """A lab for a while; `keep` leaves it up."""
    try:
        yield Ground(name, site, keep=keep)
    finally:
        if not keep:
            labs.down(name)


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first run.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Of runs.")
@click.option(
    "--machines",
    "nodes",
    flag_value="machines",
    help="Run on nodes with kernels and verbs of their own. Default: native nodes.",
)
@click.option(
    "--user-mode",
    "nodes",
    flag_value="user-mode",
    help="The same, on kernels that are programs of this machine instead of QEMU's.",
)
@click.option(
    "--fault",
    "chosen",
    multiple=True,
    type=click.Choice(list(NAMES)),
    help="A fault that runs may have; may be repeated. Default: all that such nodes can have.",
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
def main(**options: Any) -> None:
    """Let faults happen to a lab under a load of pods, and audit what is left, seed by seed.

    Exit codes: 0 every run was clean, 1 some run was not.
    """
    wish = Wish(**options)
    kind = wish.nodes or NATIVE
    site = KINDS[kind]
    faults = faults_of(site, wish.chosen)
    seeds = range(wish.seed, wish.seed + wish.count)
    if wish.show:
        for number in seeds:
            click.echo(f"seed {number}")
            for step in schedule(number, site.place, site.size, faults):
                click.echo(f"  {describe(step)}")
        return
    name = wish.kept or f"chaos-{kind}"
    with ground(name, site, keep=bool(wish.kept)) as place:
        sys.exit(CLEAN if row(place, seeds, faults, wish.runs) else NOT_CLEAN)


def faults_of(site: Site, chosen: Iterable[str]) -> tuple[Fault, ...]:
    """The faults of these names, else all of a site; Refused for one that its nodes cannot have."""
    faults = tuple(NAMES[name] for name in chosen) or site.faults
    for fault in faults:
        if fault not in site.faults:
            raise Refused(
                f"a node of the topology {site.topology} cannot have the fault {fault.value!r}",
                remedy="Add --machines or --user-mode",
            )
    return faults


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
    site = place.site
    steps = schedule(seed, site.place, site.size, faults)
    begin = time.monotonic()
    click.echo(f"seed {seed}")

    def say(text: str) -> None:
        click.echo(f"  {time.monotonic() - begin:6.1f} s  {text}")

    outcome = Run(lab, before, say).take(steps)
    seconds = time.monotonic() - begin
    choice = () if faults == site.faults else tuple(fault.value for fault in faults)
    facts = record.Facts(commit_of(CHECKOUT, "-dirty"), site.topology, choice, seconds)
    with runs.open("a") as file:
        file.write(f"{record.line(seed, site.size, steps, outcome, facts)}\n")
    for wrong in (*outcome.under_load, *outcome.at_rest, *filter(None, [outcome.stuck])):
        say(str(wrong))
    say("clean" if outcome.is_clean else "NOT CLEAN")
    return outcome.is_clean


if __name__ == "__main__":
    try:
        main()
    except KubeError as error:
        sys.exit(str(error))
