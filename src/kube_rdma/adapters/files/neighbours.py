"""The file in which an agent leaves the neighbours of its ports, for `kube-rdma devices` beside it.

It is a JSON object: the switch and its port, by ``mlx5_0/1``, the RDMA device and its port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kube_base import os_files
from kube_base.foreign_json import Undecodable, decoded

FILE = Path("/run/kube-rdma/neighbours")


def write_neighbours(neighbours: Mapping[str, str], file: Path) -> None:
    """Replace the file; raise OSError."""
    os_files.replace(file, msgspec.json.encode(neighbours, order="sorted"), 0o644)


def read_neighbours(file: Path = FILE) -> Mapping[str, str]:
    """Return the neighbours in the file; none without an agent, and none of a garbled file."""
    try:
        return decoded(file.read_bytes(), dict[str, str])
    except (OSError, Undecodable):
        return {}
