"""`kube-rdma alive`: the liveness probe of the agent and the controller."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("file", envvar="KUBE_RDMA_ALIVE", type=click.Path(path_type=Path))
def alive(file: Path) -> None:
    """Ask the program that was started with --alive FILE whether it still works.

    Ends with 0 when it answers within 30 s, else with 4 and the reason. FILE is KUBE_RDMA_ALIVE of
    the environment, as for the program, if it is not given: in a pod both see the same.
    """
    from kube_rdma.programs.alive import ask

    ask(file)
