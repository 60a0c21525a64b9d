"""Open MPI between two pods of the lab: NetPIPE's ping-pong and an allreduce, without a variable.

Open MPI starts its far half by ssh, whose children have none of the container's variables; so what
both know stands in files. Debian's own file turns UCX off until somebody says `pml ucx`.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

from kube_rdma_lab import cluster, paths, waiting

KEY, HOST_KEY, PORT = "~/.ssh/id_dropbear", "~/.ssh/host", "2222"
SSH = f"dbclient -y -p {PORT}"  # with that key
ALLREDUCE = "~/allreduce"  # in a pod, where /dev/shm runs no program
RECEIVE = f"base64 -d > {ALLREDUCE} && chmod 755 {ALLREDUCE}"
# What mpirun needs to know so that its own TCP goes by net1 (docs/pods.md).
BY_NAMES = (
    "--mca orte_keep_fqdn_hostnames 1 --mca btl_tcp_if_include net1 --mca oob_tcp_if_include net1",
)
LARGEST, ROUNDS = 4096, 5  # bytes of a message, ping-pongs of each size


def shell(lab, pod, script):
    """What a shell in the pod prints; the time of a slow machine is its own."""
    return waiting.run(lab, lab.kubectl("exec", pod, "--", "sh", "-c", script))


def let_in(lab, near, far):
    """Start an ssh server in the far pod that opens to the near one."""
    for pod in (near, far):
        shell(
            lab, pod, f"mkdir -p ~/.ssh && dropbearkey -t ed25519 -f {KEY} && cp {KEY} {HOST_KEY}"
        )
    public = shell(lab, near, f"dropbearkey -y -f {KEY} | grep ^ssh").strip()
    allow = f"echo '{public}' > ~/.ssh/authorized_keys && chmod 600 ~/.ssh/*"
    shell(lab, far, f"{allow} && dropbear -r {HOST_KEY} -p {PORT} -P /dev/shm/dropbear.pid")


def ping_pong(lab, near, far, *words, hosts=()):
    """Run it from the near pod; return the sizes of its messages in bytes, the largest last.

    `hosts` are names of both pods; without, they are found by their addresses on eth0.
    """
    shown = _mpirun(lab, near, far, f"NPopenmpi -u {LARGEST} -n {ROUNDS}", words, hosts)
    return [int(size) for size in re.findall(r"^\s*\d+:\s+(\d+) bytes", shown, re.MULTILINE)]


def allreduce(lab, near, far, *words):
    """Sum up over both pods; return the sizes in bytes. A wrong sum is an error."""
    program = base64.b64encode(_compiled(lab).read_bytes()).decode()
    for pod in (near, far):
        words_of_pod = lab.kubectl("exec", "-i", pod, "--", "sh", "-c", RECEIVE)
        waiting.run(lab, words_of_pod, stdin=program)
    shown = _mpirun(lab, near, far, ALLREDUCE, words)
    return [int(size) for size in re.findall(r"allreduce of (\d+) bytes over 2", shown)]


def _compiled(lab):
    """The program, for the pods' Debian; the compiler is the shim's (shim/build.py)."""
    source, program = Path(__file__).with_name("allreduce.c"), lab.home / "allreduce"
    target = f"{os.uname().machine}-linux-gnu.2.36"
    folder = str(paths.cache_root() / "zig")
    caches = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", target)
    flags = ("-std=c11", "-O2", "-s", "-Wall", "-Wextra", "-Werror")
    subprocess.run(
        [*compiler, *flags, source, "-o", program], env={**os.environ, **caches}, check=True
    )
    return program


def _mpirun(lab, near, far, program, words, names=()):
    hosts = "/dev/shm/hosts"
    names = names or [cluster.get(lab, f"pod/{pod}")["status"]["podIP"] for pod in (near, far)]
    options = f"--mca plm_rsh_agent '{SSH}' --mca pml ucx {' '.join(words)}"
    run = (
        f"cd /dev/shm && mpirun.openmpi --allow-run-as-root -np 2 --hostfile {hosts} --map-by node"
        f" {options} {program}"
    )
    lines = "\\n".join((*names, ""))
    return shell(lab, near, f"printf '{lines}' > {hosts} && {run} 2>&1")


def sent(lab, node, device):
    """Bytes that a device of Soft-RoCE has sent, of any namespace.

    `rdma statistic` shows devices of the asking namespace alone where each has its own.
    """
    shown = cluster.shell(lab, node, f"rdma statistic show link {device}/1")
    return int(re.search(r"sent_bytes (\d+)", shown)[1])
