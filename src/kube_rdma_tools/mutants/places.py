"""Files that get faults, by the rooms of the option --rooms; run.py draws from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kube_base.errors import Refused

ROOMS = {
    "rules": ("src/kube_rdma/*/rules", "src/kube_rdma/*/rules.py"),
    "agent": (
        *("src/kube_rdma/agent", "src/kube_rdma/attach/*.py", "src/kube_rdma/attach/late_binding"),
        *("src/kube_rdma/claims/*.py", "src/kube_rdma/pools/*.py", "src/kube_rdma/lib/records.py"),
    ),
    "journal": ("src/kube_rdma/adapters/journal",),
    "documents": ("src/kube_rdma/*/documents", "src/kube_rdma/lib/text", "src/kube_rdma/ipam/*.py"),
    "operator": ("src/kube_rdma/operator",),
    "doctor": ("src/kube_rdma/doctor",),
}
"""The paths of the source where a fault would hurt most, by the words of `--rooms`."""


def files(checkout: Path, rooms: Sequence[str]) -> list[Path]:
    """Return the Python files of these rooms in order; raise Refused for a room not in `ROOMS`."""
    chosen: set[Path] = set()
    for room in rooms:
        if room not in ROOMS:
            raise Refused(
                f"--rooms {room}: there is no such room", remedy=f"allowed are {', '.join(ROOMS)}"
            )
        for place in ROOMS[room]:
            chosen.update(*map(_python, checkout.glob(place)))
    return sorted(path.relative_to(checkout) for path in chosen)


def _python(place: Path) -> Iterator[Path]:
    yield from place.rglob("*.py") if place.is_dir() else [place]
