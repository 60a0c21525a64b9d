"""`python -m kube_rdma_tools.release`: writes all files of a release into a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from kube_rdma_lab.build import product
from kube_rdma_lab.build.program import run
from kube_rdma_tools.release import named
from kube_rdma_tools.release.files import write_release
from kube_rdma_tools.release.identity import of_checkout_as

CHECKOUT = Path(__file__).resolve().parents[3]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--image",
    default="",
    help="Registry and repository of the image, for the chart. Default: whoever installs names it.",
)
@click.option(
    "--downloads",
    default="",
    help="Address of the folder where the files will lie, for krew. Default: names alone.",
)
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    type=click.Choice(list(product.PLATFORMS)),
    help="Build for this platform only. May be repeated.",
)
@click.option(
    "--of", "version", default="", help="Version to build, from the commit that CHANGELOG names."
)
def main(
    folder: Path, image: str, downloads: str, platforms: tuple[str, ...], version: str
) -> None:
    """Write a release of the commit that is checked out, or of a version, into FOLDER/VERSION."""
    if version:
        options = ["--image", image] if image else []
        options += ["--downloads", downloads] if downloads else []
        options += [word for name in platforms for word in ("--platform", name)]
        with TemporaryDirectory(prefix="kube-rdma-release-of-") as tree:
            named.clone(CHECKOUT, version, Path(tree))
            sys.exit(named.build(Path(tree), [folder.resolve(), *options]))
    identity = of_checkout_as(CHECKOUT, image, downloads)
    target = (folder / identity.version.semantic).resolve()
    kinds = [product.PLATFORMS[name] for name in platforms or product.PLATFORMS]
    for name, sha256 in write_release(CHECKOUT, target, identity, kinds).items():
        click.echo(f"{sha256[:16]}  {(target / name).stat().st_size / 1e6:7.1f} MB  {name}")
    click.echo(f"{target}: {identity.version.semantic} of {identity.commit[:12]}")


if __name__ == "__main__":
    run(main, "python -m kube_rdma_tools.release")
