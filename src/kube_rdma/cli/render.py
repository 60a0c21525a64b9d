"""`kube-rdma render`: a whole installation as plain manifests, for kubectl or for GitOps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kube_base.frozen import Frozen
from kube_rdma.cli import completion
from kube_rdma.cli.options import taking, text_option
from kube_rdma.cli.output import command
from kube_rdma.install.rules import parts

if TYPE_CHECKING:
    from kube_rdma.lib.text.document import Document

PARTS = tuple(part for part in parts.PARTS if part != "retirement")  # which Helm alone applies


_VALUES = (
    click.option(
        "--preset",
        default="",
        metavar="NAME",
        shell_complete=completion.presets,
        help="Preset to install: default, rails, rdma-ib, efa, ack, vke, scc, nvidia, "
        "nvidia-operator or ib; docs/install.md describes them. Default: the preset that the "
        "values name, else default.",
    ),
    text_option(
        "--image",
        metavar="REPOSITORY[:TAG]",
        help="Image of kube-rdma, which is yours. It wins over files of values. Default: that of "
        "the values.",
    ),
    click.option(
        "--values",
        "files",
        metavar="FILE",
        type=click.Path(path_type=Path),
        multiple=True,
        help="File of values as the Helm chart takes them, JSON or YAML. May be repeated; a later "
        "file wins over an earlier one.",
    ),
    click.option(
        "--set",
        "assignments",
        metavar="PATH=VALUE",
        multiple=True,
        help="Single value as Helm writes it, such as image.tag=0.1.0 or "
        "controller.tolerations[0].operator=Exists. A comma in a value has a backslash before it. "
        "May be repeated; it wins over files.",
    ),
    text_option(
        "-n",
        "--namespace",
        help="Namespace of all objects that have one, which has to exist. It wins over the preset "
        "and over the values namespace. Default: the value namespace.name, else that of the "
        "preset.",
    ),
)


class InstallationOptions(Frozen):
    """The options that say what to install."""

    preset: str
    image: str
    files: tuple[Path, ...]
    assignments: tuple[str, ...]
    namespace: str

    def layers(self) -> list[Document]:
        """Return the values that the options give, later ones over earlier ones."""
        from kube_rdma.install import installation

        return installation.layers(self.files, self.assignments, self.namespace, self.image)


installation_options = taking("chosen", InstallationOptions, _VALUES)


@command(
    "kube-rdma render --set image.repository=reg.example.com/kube-rdma | kubectl apply -f -",
    "kube-rdma render --values values.yaml --set image.tag=0.1.0",
    "kube-rdma render --preset vke --part definitions",
)
@installation_options
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
def render(chosen: InstallationOptions, version: str | None, part: str | None) -> None:
    """Print an installation as plain manifests.

    Prints the objects that the Helm chart would install, for kubectl, kustomize or GitOps, and asks
    no cluster. Comments at the top say what is left to do, and standard error says it too. There
    it also says what the version of Kubernetes does not have.

    The image is yours: name it by --image or in the values.

    Exits with 3 when a value is refused, or no image is named.
    """
    from kube_rdma.install import installation
    from kube_rdma.install.views import manifests

    layers, preset = chosen.layers(), chosen.preset
    if version:
        layers.append(
            installation.assignment(f'kubernetesVersion="{version}"', "--kubernetes-version")
        )
    made = installation.objects(layers, preset, part or "")
    for note in () if part else installation.notes(layers, preset):
        click.echo(f"# {note}")
        click.echo(note, err=True)  # neither a pipe to kubectl nor a file shows the comments
    for sentence in installation.left_out(layers, preset):
        click.echo(sentence, err=True)
    click.echo(manifests(made), nl=False)
