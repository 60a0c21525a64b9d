"""`kube-rdma preflight`: what init containers of a pod with a preflight run, and their lines."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from kube_rdma.cli.options import choice_option
from kube_rdma.cli.output import command, document_text
from kube_rdma.model.preflight import FOLDER, PAIRINGS

_SECONDS = 600


@command(
    "kube-rdma preflight lines --image registry.example.com/rdma/kube-rdma:0.2.0",
    "kube-rdma preflight measure",
    "kube-rdma preflight verdict",
)
@click.argument("step", type=click.Choice(["lines", "measure", "verdict"]))
@click.option("--image", metavar="IMAGE", help="Image of the init containers, for lines.")
@choice_option("--pairs", of=PAIRINGS, default=PAIRINGS[0], help="Pairs to measure, for lines.")
@click.option(
    "--wait",
    type=click.IntRange(1, 86_400),
    default=_SECONDS,
    show_default=True,
    envvar="KUBE_RDMA_PREFLIGHT_WAIT",
    help="Seconds to wait for the plan, or for the verdict.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Folder with the files plan and verdict.",
)
@click.option(
    "--message",
    type=click.Path(path_type=Path, dir_okay=False),
    default="/dev/termination-log",
    show_default=True,
    help="File for the termination message.",
)
def preflight(
    step: str, image: str | None, pairs: str, wait: int, folder: Path, message: Path
) -> None:
    """Measure the rails of a gang before its pods start; init containers run it.

    With measure it runs perftest with the peers of the file plan. With verdict it waits for the
    file verdict. With lines it prints what a pod needs before Kubernetes 1.36; give both
    containers the resources and the securityContext of the container that uses the cards.

    Exits with 42 when the verdict is bad, and with 1 when the file does not come in time.
    """
    if step == "lines":
        _print(image, pairs)
        return
    from kube_rdma.preflight.container import ROUND, Files, judged, measure

    files = Files(folder)
    # Other pods of the gang may still measure when this one has ended.
    doing = measure(files, wait) if step == "measure" else judged(files, wait + ROUND)
    ended = asyncio.run(doing)
    click.echo(ended.message)
    message.write_text(ended.message)
    sys.exit(ended.code)


def _print(image: str | None, pairs: str) -> None:
    """Print the lines of a pod as YAML."""
    from kube_rdma.preflight.views import lines

    if not image:
        raise click.UsageError("No image is named. Give --image with that of your installation.")
    click.echo(document_text(lines(pairs, image), "yaml"), nl=False)
