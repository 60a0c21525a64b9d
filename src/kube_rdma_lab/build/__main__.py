"""`python -m kube_rdma_lab.build`: build the parts and show how long each took."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from kube_rdma_lab.build import BuildEvent, build, parts, product, resolution
from kube_rdma_lab.build.program import run


@click.group(invoke_without_command=True)
@click.option("--bin", "bin_dir", type=click.Path(path_type=Path), help="Ready-made binaries.")
@click.option("--update", is_flag=True, help="Take today's packages from Debian.")
@click.pass_context
def main(context: click.Context, bin_dir: Path | None, *, update: bool) -> None:
    """Build what the lab boots from."""
    if context.invoked_subcommand is not None:
        return
    started = time.monotonic()
    made = build(report=show, bin_dir=bin_dir, update=update)
    click.echo(f"{'total':<16} {time.monotonic() - started:7.1f} s")
    for path in made.folders:
        click.echo(path)


@main.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--platform", type=click.Choice(list(product.PLATFORMS)), default="linux/amd64")
@click.option("--reference", default=product.REFERENCE, help="The image's name, with its tag.")
def image(target: Path, platform: str, reference: str) -> None:
    """Write the product's image to TARGET, an OCI archive."""
    chosen = product.PLATFORMS[platform]
    with parts.open_store(show) as store:
        written = product.build(store, resolution.stamp(update=False), chosen, reference)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written.path, target)
    click.echo(f"{target}: {written.size / 1e6:.1f} MB, {written.reference}, {written.digest}")


def show(event: BuildEvent) -> None:
    """Print a line for each event of the build."""
    note = f"  {event.note}" if event.note else ""
    seconds = "" if event.state == "building" else f"{event.seconds:7.1f} s"
    click.echo(f"{event.name:<16} {event.state:<9}{seconds:>9}{note}")


if __name__ == "__main__":
    run(main, "python -m kube_rdma_lab.build")
