"""`kube-rdma render`: a whole installation as plain manifests, for kubectl or for GitOps."""

from __future__ import annotations

from pathlib import Path

import click

PARTS = ("namespace", "definitions", "admission", "rights", "pools", "workloads", "metrics")


@click.command()
@click.option("--preset", metavar="NAME", help="ack, vke, scc, nvidia, nvidia-operator or ib.")
@click.option(
    "--values",
    "files",
    metavar="FILE",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Values as the Helm chart has them (JSON or YAML); later ones win.",
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="A single value, such as image.tag=0.1.0; over those of files.",
)
@click.option(
    "--part",
    type=click.Choice(PARTS),
    help="Only these objects, such as the definitions that others wait for.",
)
def render(
    preset: str | None, files: tuple[Path, ...], assignments: tuple[str, ...], part: str | None
) -> None:
    """Print what an installation consists of, as the Helm chart would install it.

    A preset has the names of a seed's document: its namespace, DaemonSet and resource. Nothing is
    sent anywhere. Comments at the top say what is left to do. Exits with 3 when a value is refused.
    """
    from kube_rdma.programs import installation
    from kube_rdma.views.manifests import manifests

    layers = [installation.read_values(path) for path in files]
    layers += [installation.assignment(text) for text in assignments]
    made = installation.objects(layers, preset or "", part or "")
    if not part:
        for note in installation.notes(layers, preset or ""):
            click.echo(f"# {note}")
    click.echo(manifests(made), nl=False)
