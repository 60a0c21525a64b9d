"""Writes and reads the file with the neighbours of an agent's ports, for `kube-rdma devices`.

The file is a JSON object: switch and switch port, by RDMA device and port, such as ``mlx5_0/1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kube_base import os_files
from kube_base.foreign_json import Undecodable, decoded

FILE = Path("/run/kube-rdma/neighbours")


def write_neighbours(neighbours: Mapping[str, str], file: Path) -> None:
    """Replace the file; raise OSError if that fails."""
    os_files.replace(file, msgspec.json.encode(neighbours, order="sorted"), 0o644)


def read_neighbours(file: Path = FILE) -> Mapping[str, str]:
    """Return the neighbours in the file; none without a file that can be read."""
    try:
        return decoded(file.read_bytes(), dict[str, str])
    except (OSError, Undecodable):
        return {}
