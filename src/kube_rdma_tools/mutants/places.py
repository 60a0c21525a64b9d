"""Files that get faults, and the tests of a file: those of its room first, then all.

Between faults.py and run.py. The folders of tests/unit are those of src, so what tests a file is
near to its own name; the rest of the tests decide whether a fault is noticed at all.
"""

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
"""What a fault would hurt most, by the word of `--rooms`."""

ALL = ("tests/unit", "tests/model")


def files(checkout: Path, rooms: Sequence[str]) -> list[Path]:
    """Return the files of these rooms, relative to the checkout, each once and in order."""
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


def stages(checkout: Path, file: Path) -> list[list[str]]:
    """Return the tests to run for a fault in `file`, the nearest first and at last all.

    The nearest are those of the folder with its path, then those of files that import it by name.
    """
    inside = file.relative_to("src")
    if inside.parts[0] == "kube_rdma":
        inside = inside.relative_to("kube_rdma")
    room = checkout / "tests" / "unit" / inside.parent
    while not room.is_dir():
        room = room.parent
    near = [] if room.name == "unit" else [str(room.relative_to(checkout))]
    module = ".".join(file.with_suffix("").relative_to("src").parts)
    importing = [
        str(path.relative_to(checkout))
        for path in sorted((checkout / "tests" / "unit").rglob("test_*.py"))
        if module in path.read_text(encoding="utf-8") and room not in path.parents
    ]
    return [stage for stage in (near, importing, list(ALL)) if stage]
