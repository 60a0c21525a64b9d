"""`kube-rdma agent`: what the container image runs, without arguments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

CONFIG = Path("/k8s-rdma-sriov-dev-plugin/config.json")
KUBELET_DIR = Path("/var/lib/kubelet/device-plugins")


@click.command()
@click.option(
    "--role",
    type=click.Choice(["plugin"]),
    default="plugin",
    show_default=True,
    help="What to be on this node; plugin: the kubelet's device plugin.",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=CONFIG,
    show_default=True,
    help="Which pools to offer, as JSON or YAML.",
)
@click.option(
    "--kubelet-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=KUBELET_DIR,
    show_default=True,
    help="Where the kubelet looks for device plugins.",
)
def agent(role: str, config: Path, kubelet_dir: Path) -> None:
    """Serve this node's RDMA cards to the kubelet, until SIGTERM or SIGINT.

    Needs the kubelet's folder and the configuration, and no privilege.
    """
    from kube_rdma.adapters.kernel.uevents import Uevents
    from kube_rdma.programs.agent import logs
    from kube_rdma.programs.agent.plugin import Kernel, Settings, run_plugin
    from kube_rdma.programs.agent.process import until_signal
    from kube_rdma.programs.survey import take_survey

    assert role == "plugin"
    logs.configure()
    asyncio.run(
        until_signal(run_plugin(Settings(config, kubelet_dir), Kernel(take_survey, Uevents)))
    )
