"""`kube-rdma devices`: what RDMA this node has, and what is wrong with the rest.

The shortest way through the house: take a survey, judge it, show it. Kept free of heavy imports,
for it is the command that people type first and most often.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click

from kube_rdma.programs.survey import take_survey
from kube_rdma.rules.discovery import judge, notes
from kube_rdma.views.devices import document, table

_PAGE_WIDTH = 100  # columns, where the output is not a terminal


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people or a JSON document for programs.",
)
@click.option(
    "--sysfs",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Read a recorded tree (DIR holds class/infiniband, class/net, bus/pci) instead of /sys.",
)
def devices(output: str, sysfs: Path | None) -> None:
    """Show the RDMA devices of this node, whether pods can use them, and why not.

    Exits with 1 when not a single device is usable.
    """
    survey = take_survey(sysfs)
    verdicts = judge(survey)
    if output == "json":
        click.echo(json.dumps(document(verdicts, survey, notes(survey)), indent=2))
    else:
        terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if terminal else _PAGE_WIDTH
        click.echo(table(verdicts, survey, notes(survey), width))
    if not any(verdict.usable for verdict in verdicts):
        sys.exit(1)
