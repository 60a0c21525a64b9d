"""The options of `kube-rdma verify pods` and `verify nodes`, gathered into values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kube_base.frozen import Frozen
from kube_rdma.cli.options import (
    choice_option,
    flag_option,
    number_option,
    path_option,
    percent_option,
    seconds_option,
    text_option,
)
from kube_rdma.cli.output import OUTPUT
from kube_rdma.model import verify

T = TypeVar("T", bound=Frozen)

_LATENCY_LIMIT = "--max-us"


class VerifyOptions(Frozen):
    """The options that `verify pods` and `verify nodes` have in common."""

    run: verify.PerftestRun
    standard: verify.PairStandard
    pairing: verify.Pairing
    both_ways: bool
    run_seconds: int
    probe_seconds: int
    against: Path | None
    svg: Path | None
    verbose: bool
    output: str


class PodOptions(Frozen):
    """The options for the pod that `verify nodes` starts: a manifest, or resource and image."""

    filename: Path | None
    resource: str
    image: str
    start_seconds: int


_POD_OPTIONS = (
    click.option(
        "-f",
        "--filename",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Manifest of a pod as your jobs have it, with its image, networks and shares. "
        "Default: a pod on the node's own network, made from the NodeReports.",
    ),
    text_option(
        "--resource",
        help="Resource whose cards are measured, without -f. Default: the only one of the "
        "NodeReports.",
    ),
    text_option(
        "--image",
        metavar="IMAGE",
        help="Image with perftest and a shell, such as kube-rdma's own. Needed without -f.",
    ),
    seconds_option(
        "--start-seconds", default=300, help="Longest time until the pods are Ready, in seconds."
    ),
)
_OPTIONS = (
    choice_option(
        "--pairs",
        "pairing",
        of=verify.Pairing,
        default=verify.Pairing.ALL.value,
        help="Pairs to measure. all: each pair, one rail at a time. ring: each card with two "
        "neighbours, all rails at once, in two or three rounds. star: the first one named with "
        "the others, or with all if only one node is named. ring and star measure each suspect "
        "once more, with a good card.",
    ),
    choice_option(
        "--test",
        "operation",
        of=verify.Operation,
        default=verify.Operation.WRITE.value,
        help="RDMA operation that perftest measures.",
    ),
    flag_option("--latency", help="Measure latency instead of bandwidth."),
    number_option(
        "-s",
        "--size",
        metavar="BYTES",
        least=1,
        help="Message size in bytes. Default: that of perftest, 65536 for bandwidth and 2 for "
        "latency.",
    ),
    flag_option("-a", "--all-sizes", help="Measure all message sizes from 2 bytes to 8 MiB."),
    number_option(
        "--iterations",
        metavar="COUNT",
        least=5,
        help="Number of messages of each size. Default: that of perftest.",
    ),
    number_option(
        "-q",
        "--qps",
        "queue_pairs",
        metavar="COUNT",
        least=1,
        default=1,
        help="Number of queue pairs, for bandwidth. One alone may not fill a fast card.",
    ),
    flag_option("-R", "--rdma-cm", help="Connect the queue pairs by RDMA_CM."),
    number_option(
        "--cuda",
        metavar="GPU",
        least=0,
        help="Number of the GPU whose memory is used instead of the host's, such as 0.",
    ),
    flag_option("--both-ways", help="Measure each pair in both directions."),
    click.option(
        "--min-gbps",
        "low",
        type=click.FloatRange(0),
        metavar="GBPS",
        help="Report pairs with a lower bandwidth as slow, in Gbit/s.",
    ),
    click.option(
        _LATENCY_LIMIT,
        "high",
        type=click.FloatRange(0),
        metavar="MICROSECONDS",
        help="Report pairs with a higher latency as slow, in microseconds. Needs --latency.",
    ),
    percent_option(
        "--line-share",
        default=80,
        help="Report pairs as slow below this percentage of the slower card's line rate. Soft "
        "devices have no line rate, and latencies are not compared with it.",
    ),
    percent_option(
        "--tolerance",
        default=20,
        help="Report pairs as slow that are this many percent worse than the median of their "
        "rail, or than in the run of --against.",
    ),
    click.option(
        "--against",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="File that an earlier run wrote with -o json; pairs are compared with it.",
    ),
    seconds_option("--seconds", default=300, help="Longest time of one measurement, in seconds."),
    seconds_option(
        "--run-seconds",
        default=21_600,
        help="Longest time of all measurements, in seconds; then the run ends with the results so "
        "far.",
    ),
    seconds_option(
        "--probe-seconds",
        default=verify.PROBE_SECONDS,
        envvar="KUBE_RDMA_PROBE_SECONDS",
        show_envvar=True,
        help="Longest time in which a pod says which devices it has, in seconds. A pod that takes "
        "longer takes no part.",
    ),
    flag_option(
        "-v", "--verbose", help="Show a row for each pair, the whole map and all bad pairs."
    ),
    path_option("--svg", help="Draw the map of all pairs into this SVG file."),
    OUTPUT,
)


def pod_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `verify nodes` alone, as one value `pod`."""

    @functools.wraps(command)
    def with_options(*words: Any, **given: Any) -> None:
        pod = _taken(PodOptions, given)
        if pod.filename and (pod.resource or pod.image):
            raise click.UsageError("--resource and --image are for a run without -f: leave it out.")
        if not (pod.filename or pod.image):
            raise click.UsageError(
                "No image with perftest is named. kube-rdma's own has it: give --image with the "
                "image of your installation, or give -f."
            )
        command(*words, pod=pod, **given)

    return functools.reduce(lambda made, option: option(made), reversed(_POD_OPTIONS), with_options)


def verify_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of VerifyOptions, as one value `options`."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        run = _taken(verify.PerftestRun, given)
        low, high = given.pop("low"), given.pop("high")
        if run.size is not None and run.all_sizes:
            raise click.UsageError("--size and --all-sizes exclude each other: leave one out.")
        if run.latency and low is not None:
            problem = f"--min-gbps is not a latency: with --latency say {_LATENCY_LIMIT}."
            raise click.UsageError(problem)
        if not run.latency and high is not None:
            problem = f"{_LATENCY_LIMIT} is for latencies: say --latency, or --min-gbps."
            raise click.UsageError(problem)
        standard = verify.PairStandard(
            latency=run.latency,
            limit=high if run.latency else low,
            line_share=given.pop("line_share") / 100,
            tolerance=given.pop("tolerance") / 100,
        )
        options = _taken(VerifyOptions, given, run=run, standard=standard)
        command(options=options, **given)

    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), with_options)


def _taken(kind: type[T], given: dict[str, Any], **more: Any) -> T:
    """Return an object with the options that its fields name, and take these from `given`."""
    return kind(
        **{name: given.pop(name) for name in kind.__struct_fields__ if name in given}, **more
    )
