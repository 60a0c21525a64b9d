"""`python -m bench`: run the benchmarks that were named, or all, and print what they measure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from bench import (
    agent,
    allocate,
    attach,
    attach_vm,
    bandwidth,
    beside,
    claim_start,
    claims,
    devices,
    doctor,
    events,
    hostile,
    imports,
    ipam,
    lab,
    modes,
    nccl_env,
    operator,
    overload,
    rest,
    scale,
    scale_addresses,
    scheduling,
    scrape,
    shim,
    survey,
)
from bench.checkout import by_itself, checkouts
from bench.context import Context
from bench.figures import Row, json_lines, table
from bench.results import recording
from bench.run import Measure, Run

# Cheap ones first; `attach-vm` boots a machine without Kubernetes, `ipam`, `operator`,
# `scheduling` and both of `scale` control planes of their own, `claim-start` and `doctor` native
# nodes, `beside` a lab for each of two checkouts, `lab` the one that the later ones use.
BENCHMARKS = {
    "devices": devices,
    "imports": imports,
    "rest": rest,
    "survey": survey,
    "allocate": allocate,
    "events": events,
    "hostile": hostile,
    "scrape": scrape,
    "shim": shim,
    "nccl-env": nccl_env,
    "attach": attach,
    "claims": claims,
    "overload": overload,
    "attach-vm": attach_vm,
    "ipam": ipam,
    "operator": operator,
    "scheduling": scheduling,
    "scale": scale,
    "scale-addresses": scale_addresses,
    "claim-start": claim_start,
    "doctor": doctor,
    "beside": beside,
    "lab": lab,
    "agent": agent,
    "modes": modes,
    "bandwidth": bandwidth,
}


class IntList(click.ParamType[tuple[int, ...]]):
    """Numbers with commas between them, each at least 2."""

    name = "numbers"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return them in the order given."""
        parts = [part for part in value.split(",") if part.strip()]
        if not all(part.strip().isdecimal() and int(part) >= 2 for part in parts):
            self.fail(f"{value!r} is not a list of numbers from 2 on, such as 10,100", param, ctx)
        return tuple(map(int, parts))


def of_all_checkouts(word: str) -> Measure:
    """What a word measures of this checkout, then of the other."""
    module = BENCHMARKS[word]
    ours: Measure = module.measure
    if hasattr(module, "IN_TURNS"):
        return ours

    def measure(context: Context) -> Iterator[Row]:
        yield from ours(context)
        for other in checkouts()[1:]:
            yield from by_itself(other, word, short=context.short)

    return measure


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--json", "as_json", is_flag=True, help="An object a line, with stable keys.")
@click.option("--record", is_flag=True, help="Append figures to bench/results/DAY.jsonl.")
@click.option("--short", is_flag=True, help="As little as shows that each works; it says no more.")
@click.option(
    "--pods",
    type=click.IntRange(min=10, max=2000),
    metavar="COUNT",
    help="Of each kind, in `scheduling` and `claim-start`.  [default: 1000 and 30]",
)
@click.option(
    "--agents",
    type=IntList(),
    default="",
    metavar="COUNT,...",
    help="Numbers of agents for `scale`, one after the other, such as 10,100,1000.  [default: "
    "10,50]",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    default=1800,
    show_default=True,
    metavar="SECONDS",
    help="For each benchmark; one that takes longer is ended.",
)
def main(
    names: tuple[str, ...],
    as_json: bool,
    record: bool,
    short: bool,
    limit: float,
    **counts: Any,
) -> None:
    """Measure NAMES (all when none is given) and print figures beside their goals, as they come.

    Exit codes: 0 all measured, 1 something failed and has a row that says why, 130 interrupted.
    """
    if record and short:
        raise click.UsageError("--record: figures of --short say nothing; leave one of the two out")
    chosen = {name: of_all_checkouts(name) for name in names or BENCHMARKS}
    show = json_lines() if as_json else table()
    with Context(short=short, **counts) as context:
        sys.exit(Run(context, recording(show) if record else show, limit).all(chosen))


if __name__ == "__main__":
    main()
