"""The file in which an agent leaves the neighbours of its ports, for `kube-rdma devices` beside it.

A line for each port, with tabs between its device, its number, and the switch and its port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kube_base import os_files
from kube_base.plain_text import plain

FILE = Path("/run/kube-rdma/neighbours")
_MOST = 1 << 20  # characters; 256 cards have below a tenth

PortNeighbours = Mapping[tuple[str, int], str]
"""Switch and port as a text, by name of the RDMA device and number of its port."""


def write_neighbours(neighbours: PortNeighbours, file: Path) -> None:
    """Replace the file; raise OSError."""
    lines = (f"{device}\t{port}\t{text}\n" for (device, port), text in sorted(neighbours.items()))
    os_files.replace(file, "".join(lines).encode(), 0o644)


def read_neighbours(file: Path = FILE) -> PortNeighbours:
    """Return the neighbours in the file; none without an agent, and none of a garbled line."""
    try:
        with file.open(errors="replace") as opened:
            lines = [line.split("\t") for line in opened.read(_MOST).split("\n")]
    except OSError:
        return {}
    whole = (words for words in lines if len(words) == 3 and words[1].isdecimal())
    return {(device, int(port[:4])): plain(text) for device, port, text in whole}
