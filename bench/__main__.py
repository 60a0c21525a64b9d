"""`python -m bench`: run the benchmarks that were named, or the quick ones, and print figures."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from bench.checkout import by_itself, checkouts
from bench.context import Context
from bench.figures import Row, json_lines, table
from bench.results import recording
from bench.run import Run

# What a run without names measures, in minutes: it needs no lab.
QUICK = (
    *("devices", "imports", "survey", "allocate", "events", "hostile", "scrape", "shim"),
    *("nccl-env", "claims", "overload"),
)
# `rest` lets agents rest for minutes; `attach-vm` boots a machine without Kubernetes; `attach`,
# `ipam`, `operator`, `scheduling` and both of `scale` have control planes of their own,
# `claim-start` and `doctor` native nodes, `lab` machines, `beside` those of each checkout; `tests`
# runs all tests.
LONG = (
    *("rest", "attach", "attach-vm", "ipam", "operator", "scheduling", "scale", "scale-addresses"),
    *("claim-start", "doctor", "lab", "beside", "tests"),
)


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


def of_all_checkouts(word: str, context: Context) -> Iterator[Row]:
    """What a word measures of this checkout, then of the other."""
    module = importlib.import_module(f"bench.{word.replace('-', '_')}")
    yield from module.measure(context)
    if not hasattr(module, "IN_TURNS"):
        for other in checkouts()[1:]:
            yield from by_itself(other, word, short=context.short)


HELP = f"""
Measure NAMES and print figures beside their goals, as they come.

Without NAMES that is, in some ten minutes: {", ".join(QUICK)}. The others boot labs or control
planes, which takes longer: they are measured when they are named.

Where KUBE_RDMA_BESIDE names another checkout with a .venv, its figures come beside these.

Exit codes: 0 all measured, 1 something failed and has a row that says why, 130 interrupted.
"""


@click.command(help=HELP)
@click.argument("names", nargs=-1, type=click.Choice([*QUICK, *LONG]))
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
    """Measure all that were named; see HELP."""
    if record and short:
        raise click.UsageError("--record: figures of --short say nothing; leave one of the two out")
    chosen = {name: partial(of_all_checkouts, name) for name in names or QUICK}
    show = json_lines() if as_json else table()
    context = Context(short, **counts)
    sys.exit(Run(context, recording(show) if record else show, limit).all(chosen))


if __name__ == "__main__":
    main()
