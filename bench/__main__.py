"""`python -m bench`: run the benchmarks that were named, or all, and print what they measured."""

from __future__ import annotations

import sys

import click

from bench import (
    admission,
    agent,
    allocate,
    attach,
    attach_vm,
    bandwidth,
    beside,
    devices,
    events,
    imports,
    ipam,
    lab,
    modes,
    nccl_env,
    operator,
    overload,
    scrape,
    shim,
    survey,
)
from bench.context import Context
from bench.figures import as_json, as_table
from kube_rdma.model.errors import KubeRdmaError

# Cheap ones first; `attach-vm` boots a machine without Kubernetes, `ipam` and `operator` a lab of
# their own, `beside` one for each of two checkouts, `lab` the one that the later ones use.
BENCHMARKS = {
    "devices": devices,
    "admission": admission,
    "imports": imports,
    "survey": survey,
    "allocate": allocate,
    "events": events,
    "scrape": scrape,
    "shim": shim,
    "nccl-env": nccl_env,
    "attach": attach,
    "overload": overload,
    "attach-vm": attach_vm,
    "ipam": ipam,
    "operator": operator,
    "beside": beside,
    "lab": lab,
    "agent": agent,
    "modes": modes,
    "bandwidth": bandwidth,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--json", "as_object", is_flag=True, help="JSON with stable keys.")
def main(names: tuple[str, ...], as_object: bool) -> None:
    """Measure NAMES (all when none is given) and print figures beside their goals."""
    results = {}
    try:
        with Context() as context:
            for name in names or BENCHMARKS:
                results[name] = BENCHMARKS[name].measure(context)
    except KubeRdmaError as error:
        sys.exit(f"bench: {error}")
    click.echo(as_json(results) if as_object else as_table(results))


main()
