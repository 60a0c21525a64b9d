"""`kube-rdma claim`: a claim template for what a pod needs, to be applied or copied."""

from __future__ import annotations

import click

from kube_rdma.cli.options import flag_option, text_option
from kube_rdma.cli.output import command

_COUNT = click.IntRange(1, 32)


@command(
    "kube-rdma claim | kubectl apply -f -",
    "kube-rdma claim --gpus 2 --near",
    "kube-rdma claim --rails 8 --network team-a/rdma-net",
    "kube-rdma claim --shared --bandwidth 100G",
    "kube-rdma claim --gpus 1 --near --within root --kubernetes-version 1.34",
)
@click.option(
    "--cards",
    type=_COUNT,
    metavar="N",
    help="Number of cards. Default: one; with --near one for each GPU.",
)
@click.option(
    "--rails",
    type=_COUNT,
    metavar="N",
    help="Number of cards, all on different rails. Needs Kubernetes 1.36.",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, 32),
    default=0,
    show_default=True,
    metavar="N",
    help="Number of GPUs in the same claim.",
)
@flag_option(
    "--near",
    help="Take for each GPU a card at the same PCIe root, else of the same NUMA node, else any.",
)
@click.option(
    "--within",
    type=click.Choice(["root", "numa-node", "any"]),
    help="Farthest card that --near takes: one at the PCIe root of the GPU, one of its NUMA node, "
    "or any. Default: any.",
)
@flag_option(
    "--shared",
    help="Take a share of each card, of class rdma-shared. Without it, whole cards of class rdma.",
)
@text_option(
    "--bandwidth",
    metavar="RATE",
    help="Least rate of each card in bit/s, such as 400G. With --shared, the rate that is counted "
    "for the share; nothing enforces it, and it needs Kubernetes 1.36.",
)
@text_option(
    "--network",
    metavar="[NAMESPACE/]NAME",
    help="NetworkAttachmentDefinition that the interfaces belong to. Default: none.",
)
@text_option(
    "--class",
    "card_class",
    help="DeviceClass of the cards. Default: rdma, or rdma-shared with --shared.",
)
@text_option("--gpu-class", default="gpu.nvidia.com", help="DeviceClass of the GPUs.")
@text_option("--name", default="rdma", help="Name of the template, and of the claim in the pod.")
@text_option(
    "--kubernetes-version",
    "version",
    metavar="VERSION",
    help="Version of Kubernetes to write for, such as 1.34. Default: the newest version.",
)
def claim(**options: object) -> None:
    """Write a claim template for pods.

    Prints a ResourceClaimTemplate, and a pod that uses it, as YAML. It asks no cluster. Cards are
    those that the claim driver of kube-rdma offers, so the cluster needs Kubernetes 1.34.

    A card is chosen near a GPU by what both drivers publish: the PCIe root and the NUMA node of
    each device.

    Exits with 3 when a version of Kubernetes cannot say what is asked for.
    """
    from kube_rdma.claims.templates import parse_options, templates_text

    click.echo(templates_text(parse_options(options)), nl=False)
