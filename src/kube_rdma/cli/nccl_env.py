"""`kube-rdma nccl-env`: the variables that this container's programs need, by a script.

All of the logic is in the script (adapters/runtime/nccl_env.sh), which needs a POSIX shell and
nothing else. This command runs it here, or prints it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from kube_rdma.cli.options import choice_option, flag_option
from kube_rdma.cli.output import command


@command(
    "kube-rdma nccl-env --format json", "kube-rdma nccl-env --script > nccl_env.sh", name="nccl-env"
)
@choice_option(
    "--format",
    "form",
    of=["shell", "conf", "json"],
    default="shell",
    help="Output format: shell for export lines, conf for lines like those of nccl.conf, json for "
    "an object.",
)
@flag_option(
    "--vke", help="Do exactly what the script in VKE's documentation does, its mistakes included."
)
@click.option("--strict-seed", "vke", is_flag=True, hidden=True)  # its name before 0.2
@flag_option(
    "--vllm", help="Also print vLLM's variables, which pair each GPU with the nearest card."
)
@flag_option("--script", help="Print the script that finds the variables, to be put into an image.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder to read in place of /, such as a recorded tree.",
)
def nccl_env(form: str, *, vke: bool, vllm: bool, script: bool, root: Path | None) -> None:
    """Print variables for NCCL, UCX and NVSHMEM.

    The variables name the RDMA devices of this container and their GID index. Run it inside the
    container.

    Exits with 1 when the container has no usable device. Exits with 1 too when its devices have
    different GID indexes, which no range of addresses tells apart.
    """
    from kube_rdma.adapters.runtime.settings import NCCL_ENV

    if script:
        click.echo(NCCL_ENV.read_text(), nl=False)
        return
    if vke and vllm:
        raise click.UsageError("--vke and --vllm cannot be combined: VKE's script has no vLLM.")
    mode = "vke" if vke else "vllm" if vllm else ""
    environment = {**os.environ, "NCCL_ENV": mode}
    if root:
        environment["NCCL_ENV_ROOT"] = str(root.absolute())
    done = subprocess.run(["sh", NCCL_ENV, "--format", form], env=environment, check=False)
    sys.exit(done.returncode)
