"""The folder of CNI configuration: read, changed as planned, and kept so when others rewrite it.

Every network plugin writes its file when it starts, and forgets whoever was chained to it. So the
folder is watched and the plan made anew. Two who keep undoing each other would never end: after
each time the keeper waits longer, and says so.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from asyncinotify import Event, Inotify, Mask

from kube_rdma.adapters.cni_conf import binary
from kube_rdma.adapters.inotify import open_inotify
from kube_rdma.model.cni_conf import ConfFile, ConfPlan, Wiring
from kube_rdma.model.errors import KubeRdmaError, Unavailable

ENDINGS = (".conf", ".conflist", ".json")  # what a runtime looks at
LARGEST = 1 << 20  # bytes of a file; a larger one is no configuration

_CHANGED = (
    Mask.CREATE | Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.ATTRIB
)
_GONE = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT | Mask.IGNORED

Files = tuple[ConfFile, ...]
Decide = Callable[[Files], ConfPlan]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: after a change until we look, between rounds of a quarrel, and until it is over."""

    settle: float = 0.3
    first: float = 1.0
    longest: float = 300.0
    calm: float = 600.0


@dataclass(frozen=True, slots=True)
class Kept:
    """What a round came to. `quarrel` counts how often others undid what we wrote, in a row."""

    plan: ConfPlan | None = None
    error: KubeRdmaError | None = None
    installed: bool = False  # the binary was missing, or another one
    quarrel: int = 0


class ConfFolder:
    """The folder as we reach it, which may be under a prefix; it is made if it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Files:
        """Every file that a runtime may look at, by name; raise Unavailable if that fails."""
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            paths = sorted(path for path in self.path.iterdir() if path.suffix in ENDINGS)
        except OSError as error:
            raise self._unavailable(error) from error
        return tuple(file for path in paths if (file := self._read(path)))

    def apply(self, plan: ConfPlan, seen: Files) -> bool:
        """Do what is planned for the files `seen`; False when one was changed meanwhile.

        Raise Unavailable when the folder cannot be changed.
        """
        known = {file.name: file for file in seen}
        try:
            for file in plan.writes:
                target = self.path / file.name
                if self._read(target) != known.get(file.name):
                    return False
                binary.replace(target, file.text.encode(), _mode(target))
            for name in plan.removes:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable(error) from error
        return True

    def _read(self, path: Path) -> ConfFile | None:
        """None for what is no text, no file, or gone: a runtime passes over it too."""
        with suppress(FileNotFoundError, UnicodeDecodeError):
            found = path.stat()
            if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                return ConfFile(path.name, path.read_text(encoding="utf-8"))
        return None

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"{self.path} cannot be used ({error.strerror}): the folder of the CNI configuration "
            "has to be the host's, writable and with room."
        )


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps one host wired: the binary first, then the configuration that names it.

    `decide` is rules/conflist, `tell` hears of the first round and of every one that changed
    something or found another wiring, and once of what hinders it, and when that is over.
    """

    folder: ConfFolder
    binaries: Path
    shim: bytes
    decide: Decide
    tell: Callable[[Kept], None]
    pace: Pace = Pace()

    async def run(self) -> None:
        """Run until cancelled; raise Unavailable when a folder is removed or cannot be watched."""
        clock = asyncio.get_running_loop().time
        wrote, quarrel, failures, told = 0.0, 0, 0, ""
        wiring: Wiring | None = None
        self._make_folders()
        with _watching(self.folder.path, self.binaries) as changes:
            while True:
                if wrote and clock() - wrote > self.pace.calm:
                    quarrel = 0
                kept = self._round(quarrel)
                changed = kept.plan is not None and kept.plan.changes
                said, told = told, str(kept.error or "")
                turned = kept.plan is not None and kept.plan.wiring is not wiring
                if kept.installed or changed or turned or said != told:
                    self.tell(kept)
                if kept.plan:
                    wiring = kept.plan.wiring
                if changed:
                    wrote, quarrel = clock(), quarrel + 1
                # What is refused stays so until a file changes; what is down may come back.
                failures = failures + 1 if isinstance(kept.error, Unavailable) else 0
                await changes.wait(self._wait(failures) if failures else None)
                # The first time anybody may rewrite a file; then we begin to wait.
                await asyncio.sleep(self._wait(quarrel) if quarrel > 1 else self.pace.settle)

    def _make_folders(self) -> None:
        for folder in (self.folder.path, self.binaries):
            with suppress(OSError):  # said by who watches it
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    def _round(self, quarrel: int) -> Kept:
        try:
            installed = binary.install(self.shim, self.binaries)
            while True:
                seen = self.folder.read()
                plan = self.decide(seen)
                if self.folder.apply(plan, seen):
                    return Kept(plan, installed=installed, quarrel=quarrel)
        except KubeRdmaError as error:
            return Kept(error=error, quarrel=quarrel)

    def _wait(self, times: int) -> float:
        return min(self.pace.longest, self.pace.first * float(2 ** min(times, 16)))


def remove(folder: ConfFolder, binaries: Path, decide: Decide) -> None:
    """Undo it all, the configuration first; raise Unavailable when that is not possible."""
    while True:
        seen = folder.read()
        if folder.apply(decide(seen), seen):
            break
    binary.uninstall(binaries)


class _Changes:
    def __init__(self, inotify: Inotify, folders: tuple[Path, ...]) -> None:
        self._inotify = inotify
        self._folders = folders

    async def wait(self, seconds: float | None) -> None:
        """Return after a change that may concern us, or when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._concerns(await self._inotify.get()):
                    pass

    def _concerns(self, event: Event) -> bool:
        if event.mask & _GONE:
            raise Unavailable(
                f"One of {' and '.join(map(str, self._folders))} was removed or moved; kube-rdma "
                "has to start again to see the new one."
            )
        # Without a name the kernel dropped events: anything may have changed.
        if event.name is None:
            return True
        return event.name.suffix in ENDINGS or str(event.name) in binary.NAMES


@contextmanager
def _watching(*folders: Path) -> Iterator[_Changes]:
    with open_inotify() as inotify:
        for folder in folders:
            try:
                inotify.add_watch(folder, _CHANGED | _GONE | Mask.ONLYDIR)
            except OSError as error:
                raise Unavailable(
                    f"{folder} cannot be watched ({error.strerror}): it has to be a folder of the "
                    "host."
                ) from error
        yield _Changes(inotify, folders)


def _mode(target: Path) -> int:
    """A file keeps its rights: whoever wrote it may read it as another user."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o600
