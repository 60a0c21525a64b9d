"""`make conformance`: runs the checks against a cluster and writes the files of evidence.

The cluster is that of KUBECONFIG, else the running lab, whose own kubectl is used then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from kube_rdma import __version__
from kube_rdma_lab import lab as labs
from kube_rdma_lab.build.images import VERBS
from kube_rdma_lab.build.program import run
from kube_rdma_tools.conformance.checks import items
from kube_rdma_tools.conformance.evidence import CheckVerdict, CommandOutcome, Runner
from kube_rdma_tools.conformance.page import ConformanceScene, files, summary
from kube_rdma_tools.conformance.pods import ConformanceOptions

_LONGEST = 1800  # seconds of one command; verify and waits have their own end before


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--resource", required=True, help="Resource of the cards. Example: rdma/nic.")
@click.option(
    "--network",
    "networks",
    required=True,
    multiple=True,
    help="Network of the pods, as in their annotation. May be repeated. Example: team/rail-0.",
)
@click.option(
    "--image", default=VERBS, show_default=True, help="Image with perftest and ucx_perftest."
)
@click.option("--namespace", default="default", show_default=True, help="Namespace of the pods.")
@click.option(
    "--device-class", default="rdma", show_default=True, help="DeviceClass of the claim's card."
)
@click.option(
    "--seconds",
    type=click.IntRange(1),
    default=600,
    show_default=True,
    help="Longest time until pods are Ready, in seconds.",
)
def main(folder: Path, networks: tuple[str, ...], **values: str | int) -> None:
    """Write evidence of AI conformance items 10 and 41 into FOLDER.

    It starts pods in the namespace and removes them. Exits with 1 when a check is not met.
    """
    options = ConformanceOptions(networks=networks, **values)  # type: ignore[arg-type]  # of click
    run = runner(environment())
    scene = ConformanceScene(datetime.now(UTC).date().isoformat(), versions(run))
    made = tuple(items(options, run))
    folder.mkdir(parents=True, exist_ok=True)
    written = files(made, scene)
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
    click.echo(summary(made))
    click.echo(f"{folder}: {', '.join(written)}")
    if any(one.verdict is CheckVerdict.NOT_MET for item in made for one in item.checks):
        sys.exit(1)


def environment() -> Mapping[str, str]:
    """Return the environment of all commands: the cluster, and a PATH to kubectl and kube-rdma."""
    programs = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if os.environ.get("KUBECONFIG"):
        return {**os.environ, "PATH": f"{programs}:{path}"}
    running = labs.find(os.environ.get("KUBE_RDMA_LAB", labs.DEFAULT_NAME))
    return {
        **os.environ,
        "KUBECONFIG": str(running.kubeconfig),
        "PATH": f"{programs}:{running.state.binaries}:{path}",
    }


def runner(variables: Mapping[str, str]) -> Runner:
    """Return a function that runs commands with these environment variables."""

    def run(words: Sequence[str], stdin: str) -> CommandOutcome:
        try:
            done = subprocess.run(
                ["env", *words],  # which looks in the PATH of the variables, not in ours
                env=variables,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandOutcome(124, f"no end within {_LONGEST} s")
        return CommandOutcome(done.returncode, done.stdout, done.stderr)

    return run


def versions(run: Runner) -> tuple[tuple[str, str], ...]:
    """Return the versions of kube-rdma, of Kubernetes, and of each node's programs."""
    columns = "NODE:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion"
    columns += ",KERNEL:.status.nodeInfo.kernelVersion"
    columns += ",RUNTIME:.status.nodeInfo.containerRuntimeVersion"
    listed = run(("kubectl", "get", "nodes", "--no-headers", "-o", f"custom-columns={columns}"), "")
    nodes = [line.split() for line in listed.text.splitlines()] if not listed.code else []
    version = run(("kubectl", "version"), "")
    server = [line for line in version.text.splitlines() if line.startswith("Server Version")]
    return (
        ("kube-rdma", __version__),
        ("Kubernetes", server[0].partition(": ")[2] if server else "not known"),
        *((words[0], ", ".join(words[1:])) for words in nodes if words),
    )


if __name__ == "__main__":
    run(main, "make conformance")
