"""`make fail-open`: breaks a driver at each step of an attach, and prints a row for each wave.

A run may be ended at any moment: what was measured until then is out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import click

from bench.context import own_lab
from bench.fail_open import hook, installation, waves
from bench.fail_open.driver import Driver
from bench.fail_open.steps import BREAKING, CLAIMS, HOOK, RESTARTS, SHARES, Fault, Way, plans
from bench.fail_open.table import Table
from bench.fail_open.waves import ProbePod
from kube_base.errors import KubeError
from kube_rdma_lab.lab import Lab
from kube_rdma_tools.fail_open.judge import sentence

NAME = "fail-open"
DRIVERS: dict[str, Driver] = {"kube-rdma": installation.KubeRdma(), "hook": hook.HookFloor()}
STEPS = list(dict.fromkeys((*SHARES.steps, *CLAIMS.steps, *HOOK.steps)))
ALL_CLOSED, FAILED_OPEN, FAILED = 0, 1, 2  # exit codes


@dataclass(frozen=True, slots=True)
class Rig:
    """What is broken, where and how, until when."""

    lab: Lab
    driver: Driver
    ways: Sequence[Way]
    faults: Sequence[Fault]
    until: float
    table: Table

    def measure(self, pods: int) -> None:
        """Have so many pods; the driver's ways are on nodes of their own, so side by side."""
        self.table.begin()
        with ThreadPoolExecutor(len(self.ways)) as pool:
            list(pool.map(partial(self._way, pods // len(self.ways)), self.ways))

    def _way(self, pods: int, way: Way) -> None:
        """All waves of a way, one after the other; none begins once the time is over."""
        probe = ProbePod(self.driver.pod(way), self.driver.expect)
        target = self.driver.target(self.lab, way)
        for number, plan in enumerate(plans(way, self.faults, pods)):
            if time.monotonic() > self.until:
                self.table.failed(plan, "the time was over")
                continue
            try:
                self.table.show(waves.run(self.lab, plan, number, probe, target))
                if plan.fault in RESTARTS:
                    self.driver.renew(self.lab, way)
            except KubeError as error:
                self.table.failed(plan, str(error))


@click.command()
@click.option(
    "--pods", type=click.IntRange(1), default=1000, show_default=True, help="How many, in all."
)
@click.option(
    "--fault",
    "faults",
    type=click.Choice([str(fault) for fault in BREAKING]),
    multiple=True,
    help="One of the faults; may be repeated. Default: all.",
)
@click.option(
    "--step",
    "steps",
    type=click.Choice(STEPS),
    multiple=True,
    help="One of the steps; may be repeated. Default: all that the driver has.",
)
@click.option(
    "--driver",
    type=click.Choice(list(DRIVERS)),
    default="kube-rdma",
    show_default=True,
    help="What is broken; `hook` is a floor that attaches in a hook of the runtime.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="After it no wave begins; those that are left have a row that says so.",
)
@click.option("--lab", default=NAME, show_default=True, help="Name of the lab; ended first.")
def main(
    pods: int,
    faults: tuple[str, ...],
    steps: tuple[str, ...],
    driver: str,
    limit: float,
    lab: str,
) -> None:
    """Break a driver while pods start, and count those that run without their NIC.

    Exit codes: 0 no pod did, 1 some did, 2 something was not measured.
    """
    until, table = time.monotonic() + limit, Table()
    broken = DRIVERS[driver]
    chosen = [fault for fault in broken.faults if not faults or fault in faults]
    ways = [way.only(steps) for way in broken.ways]
    with own_lab(lab, "native") as running, broken.on(running):
        Rig(running, broken, ways, chosen, until, table).measure(pods)
    table.sums()
    click.echo(sentence(table.total))
    if table.total.failed_open:
        sys.exit(FAILED_OPEN)
    sys.exit(FAILED if table.failures else ALL_CLOSED)


if __name__ == "__main__":
    main()
