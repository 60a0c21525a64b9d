"""What `kube-rdma verify pods` and `verify nodes` can be told, gathered into one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kube_rdma.model.bandwidth import Operation, PairStandard, PerftestRun
from kube_rdma.model.frozen import Frozen
from kube_rdma.programs.cli.output import OUTPUT

_LATENCY_LIMIT = "--max-us"


class VerifyOptions(Frozen):
    """What both commands take."""

    run: PerftestRun
    standard: PairStandard
    both_ways: bool
    run_seconds: int
    against: Path | None
    svg: Path | None
    verbose: bool
    output: str


_OPTIONS = (
    click.option(
        "--test",
        "operation",
        type=click.Choice([operation.value for operation in Operation]),
        default=Operation.WRITE.value,
        show_default=True,
        help="What perftest posts.",
    ),
    click.option("--latency", is_flag=True, help="Measure latencies instead of bandwidths."),
    click.option("-s", "--size", type=click.IntRange(1), metavar="BYTES", help="Of a message."),
    click.option("-a", "--all-sizes", is_flag=True, help="All sizes from 2 bytes to 8 MiB."),
    click.option("--iterations", type=click.IntRange(5), help="Of each size."),
    click.option("-q", "--qps", type=click.IntRange(1), default=1, help="Queue pairs."),
    click.option("-R", "--rdma-cm", is_flag=True, help="Connect by RDMA_CM."),
    click.option("--cuda", type=click.IntRange(0), metavar="GPU", help="Use this GPU's memory."),
    click.option("--both-ways", is_flag=True, help="Each two measure in both directions."),
    click.option("--min-gbps", "low", type=click.FloatRange(0), help="What each pair must reach."),
    click.option(_LATENCY_LIMIT, "high", type=click.FloatRange(0), help="What it may last."),
    click.option(
        "--line-share",
        type=click.IntRange(0, 100),
        default=80,
        show_default=True,
        metavar="PERCENT",
        help="Of the line rate that is due; soft devices have none.",
    ),
    click.option(
        "--tolerance",
        type=click.IntRange(0, 100),
        default=20,
        show_default=True,
        metavar="PERCENT",
        help="By which a pair may be worse than the median, and than --against.",
    ),
    click.option(
        "--against",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="What an earlier run has written with `-o json`.",
    ),
    click.option(
        "--seconds",
        type=click.IntRange(1),
        default=300,
        show_default=True,
        help="How long one measurement may take.",
    ),
    click.option(
        "--run-seconds",
        type=click.IntRange(1),
        default=21_600,
        show_default=True,
        help="How long all of them may take; then the run ends with what it has.",
    ),
    click.option(
        "-v", "--verbose", is_flag=True, help="A row for each pair, the whole map, all that is bad."
    ),
    click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Draw the map."),
    OUTPUT,
)


def verify_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both commands, as one value `options`."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        names = {name for option in _OPTIONS for name in _names(option)}
        chosen = {name: given.pop(name) for name in names}
        command(options=_options(chosen), **given)

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_options)


def _names(option: Callable[..., Any]) -> list[str]:
    """The parameters that an option fills."""
    return [each.name for each in option(click.command()(lambda: None)).params if each.name]


def _options(chosen: dict[str, Any]) -> VerifyOptions:
    latency = chosen["latency"]
    if chosen["size"] is not None and chosen["all_sizes"]:
        raise click.UsageError("--size and --all-sizes exclude each other: leave one out.")
    if latency and chosen["low"] is not None:
        raise click.UsageError(f"--min-gbps is no latency: with --latency say {_LATENCY_LIMIT}.")
    if not latency and chosen["high"] is not None:
        raise click.UsageError(f"{_LATENCY_LIMIT} is for latencies: say --latency, or --min-gbps.")
    return VerifyOptions(
        run=PerftestRun(
            operation=Operation(chosen["operation"]),
            latency=latency,
            size=chosen["size"],
            all_sizes=chosen["all_sizes"],
            iterations=chosen["iterations"],
            queue_pairs=chosen["qps"],
            rdma_cm=chosen["rdma_cm"],
            cuda=chosen["cuda"],
            seconds=chosen["seconds"],
        ),
        standard=PairStandard(
            latency=latency,
            limit=chosen["high"] if latency else chosen["low"],
            line_share=chosen["line_share"] / 100,
            tolerance=chosen["tolerance"] / 100,
        ),
        both_ways=chosen["both_ways"],
        run_seconds=chosen["run_seconds"],
        against=chosen["against"],
        svg=chosen["svg"],
        verbose=chosen["verbose"],
        output=chosen["output"],
    )
