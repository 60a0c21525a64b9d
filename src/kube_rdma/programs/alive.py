"""Asks a program of ours whether it still works: `kube-rdma alive`, a pod's liveness probe.

The other end is programs/answering. A probe starts this every few seconds on every node, so it
imports next to nothing.
"""

from __future__ import annotations

import socket
from pathlib import Path

from kube_rdma.model.errors import Unavailable

# Less than the probe waits, so that our sentence stands in the pod's event; and long, for on a node
# whose processors are all taken by a job everything is late.
SECONDS = 30.0
WORD = b"alive\n"


def ask(path: Path, seconds: float = SECONDS) -> None:
    """Raise Unavailable unless somebody answers in time."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(seconds)
        try:
            door.connect(str(path))
            word = door.recv(len(WORD))
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            reason = "it hung up"
            if word == WORD:
                return
    raise Unavailable(
        f"Nobody answers on {path} ({reason}): the program hangs, has ended, or was not told by "
        "--alive or KUBE_RDMA_ALIVE to answer there."
    )
