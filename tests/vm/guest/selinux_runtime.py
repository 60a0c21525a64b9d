"""A container runtime or a kubelet as SELinux sees it: a program that stays in its domain.

selinux_node.py starts it while nothing is enforced, as a node's boot would; from then on the policy
decides about all that it does. It serves its caller over a socket: a pipe would have the label of
the test that made it, and the policy lets no domain read that. Each line is an order in JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kube_rdma_testing.kubelet.kubelet import FakeKubelet

from .world import PATIENCE

NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS
KEPT = {}  # sockets and programs, as long as this one runs


def listen(path):
    """Make a socket at this path, as the runtime's own and the kubelet's."""
    with suppress(FileNotFoundError):
        Path(path).unlink()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    KEPT[path] = server


def make_folder(path):
    """Make a folder of the host that a container is to have and that is missing."""
    Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)


def _entering(root, label):
    """What a process does before it becomes a container's program; without new privileges, as in
    the manifests."""

    def enter():
        os.chroot(root)
        os.chdir("/")
        Path("/proc/self/attr/exec").write_text(label)
        ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)

    return enter


def run(words, text="", environment=None, **container):
    """Run a program to its end, in a container where one is named; its status and what it wrote."""
    done = subprocess.run(
        words, input=text, env=environment, capture_output=True, text=True, check=False,
        timeout=PATIENCE, preexec_fn=_entering(**container) if container else None,
    )  # fmt: skip
    return [done.returncode, done.stdout, done.stderr]


def start(words, name, log, **container):
    """Start a program of a container, which `stop` ends."""
    with Path(log).open("wb") as output:
        KEPT[name] = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=_entering(**container),  # noqa: PLW1509  no threads here
        )  # fmt: skip


def stop(name):
    """End a program that was started."""
    process = KEPT.pop(name)
    process.terminate()
    process.wait(PATIENCE)


def allocate(folder, resource, shares):
    """Be a kubelet until a plugin has offered so many shares; the device nodes of one of them."""

    async def ask():
        async with FakeKubelet(Path(folder)) as kubelet:
            await kubelet.until(lambda: kubelet.healthy(resource) == shares, PATIENCE)
            answer = await kubelet.allocate(resource, 1)
        return [spec.host_path for spec in answer.devices]

    return asyncio.run(ask())


ORDERS = {order.__name__: order for order in (listen, make_folder, run, start, stop, allocate)}


def main():
    """Serve the caller of the socket that is named, until it hangs up."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen()
        caller, _ = server.accept()
    with caller, caller.makefile("rw") as lines:
        for line in lines:
            order, options = json.loads(line)
            try:
                answer = {"answer": ORDERS[order](**options)}
            except Exception as error:  # noqa: BLE001  told to the test
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=lines, flush=True)


if __name__ == "__main__":
    main()
