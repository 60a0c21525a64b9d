"""What became of the files that kube-rdma wrote into the folder of CNI configuration.

For folder.py, which keeps the folder. Both moments, that of the write and that of its undoing, are
the kernel's own (st_ctime), so it does not matter when the agent gets to look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from kube_rdma.model.cni_conf import SET_ASIDE, Undone

AT_ONCE = 1_000_000_000  # nanoseconds


class Writes:
    """The last writes of one keeper, and how they fared."""

    def __init__(self) -> None:
        self._stamps: dict[Path, int] = {}  # of what was written and not looked at since
        self.undone = Undone()

    def note(self, paths: Iterable[Path]) -> None:
        """These have just been written."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._stamps[path] = path.stat().st_ctime_ns

    def look(self, wanted: Collection[Path]) -> Undone:
        """How it stands now; `wanted` are the files that would have to be written again."""
        if not wanted:
            self._stamps.clear()
            self.undone = Undone()
        again = {path: stamp for path, stamp in self._stamps.items() if path in wanted}
        aside = tuple(path.name for path in self._stamps if _is_set_aside(path))
        if again or aside:
            quick = any(_is_quick(path, stamp) for path, stamp in again.items())
            self._stamps.clear()
            self.undone = Undone(self.undone.at_once + 1 if quick else 0, aside)
        return self.undone


def _is_set_aside(path: Path) -> bool:
    return not path.exists() and path.with_name(path.name + SET_ASIDE).exists()


def _is_quick(path: Path, written: int) -> bool:
    """Whether somebody else's text, or nothing, took its place within a second."""
    try:
        return path.stat().st_ctime_ns - written <= AT_ONCE
    except FileNotFoundError:
        return False
