"""What the kubelet's own configuration says of topology, and which sockets plugins have.

For `kube-rdma doctor`. The kubelet has no API for its configuration but its /configz, which takes
a right that nobody should need; the file is the one of kubeadm, ``<root>/config.yaml``.
"""

from __future__ import annotations

import re
from pathlib import Path

from kube_base.errors import Unavailable

_POLICY = re.compile(r"^topologyManagerPolicy:\s*[\"']?([a-z-]+)", re.MULTILINE)
_DEFAULT = "none"
_LONGEST = 1 << 20


def topology_policy(roots: tuple[Path, ...]) -> str:
    """The policy of the first of these roots that has a config.yaml; "" without any."""
    for root in roots:
        try:
            with (root / "config.yaml").open("rb") as file:
                text = file.read(_LONGEST).decode(errors="replace")
        except OSError:
            continue
        match = _POLICY.search(text)
        return match[1] if match else _DEFAULT
    return ""


def sockets(folder: Path) -> tuple[str, ...]:
    """The names of sockets in the folder device-plugins; raise Unavailable."""
    try:
        return tuple(sorted(path.name for path in folder.iterdir() if path.is_socket()))
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror or error}") from error
