"""`python -m kube_rdma_tools.site`: builds the site of this checkout into a folder."""

from __future__ import annotations

from pathlib import Path

import click

from kube_rdma_lab.build.program import run
from kube_rdma_tools.release.version import of_checkout
from kube_rdma_tools.site import build, versions

CHECKOUT = Path(__file__).resolve().parents[3]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--files",
    default="",
    help="Address of the folder where files are that the site does not have. Default: no links to "
    "them.",
)
def main(folder: Path, files: str) -> None:
    """Write the site of this checkout into FOLDER/VERSION."""
    name = versions.folder_name(of_checkout(CHECKOUT))
    target = folder.resolve() / name
    build.site(CHECKOUT, target, files)
    versions.write_index(target.parent)
    click.echo(f"{folder / 'index.html'}: {name}, {build.count(target)} pages")


if __name__ == "__main__":
    run(main, "python -m kube_rdma_tools.site")
