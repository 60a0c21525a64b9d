"""`kube-rdma render`: a whole installation as plain manifests, for kubectl or for GitOps."""

from __future__ import annotations

from pathlib import Path

import click

from kube_rdma.cli import completion
from kube_rdma.cli.output import command
from kube_rdma.install.rules import parts

PARTS = tuple(part for part in parts.PARTS if part != "retirement")  # which Helm alone applies


@command(
    "kube-rdma render --set image.repository=reg.example.com/kube-rdma | kubectl apply -f -",
    "kube-rdma render --values values.yaml --set image.tag=0.1.0",
    "kube-rdma render --preset vke --part definitions",
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=completion.presets,
    help="Preset to install: default, rails, rdma-ib, efa, ack, vke, scc, nvidia, nvidia-operator "
    "or ib; docs/install.md describes them. Default: the preset that the values name, else "
    "default.",
)
@click.option(
    "--values",
    "files",
    metavar="FILE",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File of values as the Helm chart takes them, JSON or YAML. May be repeated; a later file "
    "wins over an earlier one.",
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Single value as Helm writes it, such as image.tag=0.1.0 or "
    "controller.tolerations[0].operator=Exists. A comma in a value has a backslash before it. May "
    "be repeated; it wins over files.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of all objects that have one, which has to exist. It wins over the preset and "
    "over the values namespace. Default: the value namespace.name, else that of the preset.",
)
@click.option(
    "--kubernetes-version",
    "version",
    metavar="VERSION",
    help="Version of Kubernetes to write for, such as 1.28; what it does not have is left out. "
    "Default: the value kubernetesVersion, else the newest version.",
)
@click.option(
    "--part",
    type=click.Choice(PARTS),
    metavar="PART",
    help="Print only this part: namespace, definitions, admission, rights, pools, networks, "
    "claims, workloads or metrics. Definitions have to be applied first.",
)
def render(
    preset: str | None,
    files: tuple[Path, ...],
    assignments: tuple[str, ...],
    *,
    namespace: str | None,
    version: str | None,
    part: str | None,
) -> None:
    """Print an installation as plain manifests.

    Prints the objects that the Helm chart would install, for kubectl, kustomize or GitOps, and asks
    no cluster. Comments at the top say what is left to do, and standard error says it too. There
    it also says what the version of Kubernetes does not have.

    The image is yours: name its repository in the values or by --set image.repository.

    Exits with 3 when a value is refused, or no image is named.
    """
    from kube_rdma.install import installation
    from kube_rdma.install.views import manifests

    layers = [installation.read_values(path) for path in files]
    layers.append(installation.assigned(assignments, layers))
    if namespace:
        names = (f'namespace.name="{namespace}"', "namespace.create=false")
        layers += [installation.assignment(text, "--namespace") for text in names]
    if version:
        layers.append(
            installation.assignment(f'kubernetesVersion="{version}"', "--kubernetes-version")
        )
    made = installation.objects(layers, preset or "", part or "")
    for note in () if part else installation.notes(layers, preset or ""):
        click.echo(f"# {note}")
        click.echo(note, err=True)  # neither a pipe to kubectl nor a file shows the comments
    for sentence in installation.left_out(layers, preset or ""):
        click.echo(sentence, err=True)
    click.echo(manifests(made), nl=False)
