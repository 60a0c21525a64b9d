"""`kube-rdma nccl-env`: what this container's programs have to be told; a script for any container.

The script (adapters/runtime/nccl_env.sh) needs a POSIX shell and nothing else, so it is what there
is: this command runs it here, or prints it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click


@click.command("nccl-env")
@click.option(
    "--format",
    "form",
    type=click.Choice(["shell", "conf", "json"]),
    default="shell",
    show_default=True,
    help="Exports for a shell, lines as in nccl.conf, or an object.",
)
@click.option("--strict-seed", is_flag=True, help="As the script of seed S1, its slips included.")
@click.option("--vllm", is_flag=True, help="For vLLM too: a card for each GPU.")
@click.option("--script", is_flag=True, help="Print the script itself, for an image.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder that stands for /, such as a recorded tree.",
)
def nccl_env(form: str, *, strict_seed: bool, vllm: bool, script: bool, root: Path | None) -> None:
    """Print the variables by which NCCL, UCX and NVSHMEM use the RDMA devices of this container.

    Exits with 1 where no device is this container's, or where nothing tells their GIDs apart.
    """
    from kube_rdma.adapters.runtime.settings import NCCL_ENV

    if script:
        click.echo(NCCL_ENV.read_text(), nl=False)
        return
    if strict_seed and vllm:
        raise click.UsageError("--strict-seed and --vllm cannot be combined: the seed has no vLLM.")
    mode = "strict-seed" if strict_seed else "vllm" if vllm else ""
    environment = {**os.environ, "NCCL_ENV": mode}
    if root:
        environment["NCCL_ENV_ROOT"] = str(root.absolute())
    done = subprocess.run(["sh", NCCL_ENV, "--format", form], env=environment, check=False)
    sys.exit(done.returncode)
