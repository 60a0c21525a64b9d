"""Runs a developers' program; an error that somebody can act on is one line, with exit code 1."""

from __future__ import annotations

import sys

import click

from kube_base.errors import KubeError


def run(main: click.Command, name: str) -> None:
    """Run a command, which its help calls `name`; print a KubeError as one line and exit with 1."""
    try:
        main(prog_name=name)
    except KubeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
