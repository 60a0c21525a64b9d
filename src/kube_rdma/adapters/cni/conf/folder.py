"""Reads the folder of CNI configuration, changes it as planned, and keeps it so against rewrites.

Many network plugins write their file when they start, and drop what was chained to it. So the
folder is watched, and the plan is made again after each change. Two programs that undo each other's
writes would never end: after each time the keeper waits longer, and reports it. Where a product may
keep all others out of the folder (ConfPlan.guard), a write is reported only when it has stood a
while.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from asyncinotify import Event, Inotify, Mask

from kube_base import os_files
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.cni.conf import places as binary
from kube_rdma.adapters.cni.conf.places import CniPlaces, inside
from kube_rdma.adapters.inotify import open_inotify
from kube_rdma.model.attach.cni import SET_ASIDE, ConfFile, ConfPlan, UndoneWrites, Wiring

ENDINGS = (".conf", ".conflist", ".json")  # what a runtime looks at
LARGEST = 1 << 20  # bytes of a file; a larger one is not a configuration

_CHANGED = (
    Mask.CREATE | Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.ATTRIB
)
_GONE = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT | Mask.IGNORED

Files = tuple[ConfFile, ...]
Find = Callable[[], Awaitable[CniPlaces]]
Decide = Callable[[Files, frozenset[str]], ConfPlan]
ShutOut = Callable[[ConfPlan, UndoneWrites], Refused | None]


class FolderTiming(Frozen):
    """The intervals in which the keeper of the CNI configuration works, in seconds."""

    settle: float = 0.3  # from a change to the next check
    first: float = 1.0  # doubled for each write in a row, or each try that failed
    longest: float = 300.0  # that doubling leads to
    calm: float = 600.0  # after the last write, until a quarrel is over
    look: float = 600.0  # between two checks: no runtime announces that it looks elsewhere
    proof: float = 1.0  # for which a file has to stand where another may keep others out


class FolderRound(Frozen):
    """The outcome of one check of the host's CNI configuration: plan, error, what was written."""

    plan: ConfPlan | None = None
    error: KubeError | None = None
    installed: bool = False  # whether the binary was written: it was missing or differed
    quarrel: int = 0  # how many writes in a row came before this check


class ConfFolder:
    """The host's folder of CNI configurations, below the agent's mount of the host.

    `read` makes it if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Files:
        """Return every file that a runtime may read; raise Unavailable for an unreadable folder.

        Names of files in a subfolder begin with its name: a subfolder has the plugins of a list.
        Files that cannot be read, are too large or no text are left out.
        """
        with self._used():
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            paths = sorted(path for path in self.path.iterdir() if path.suffix in ENDINGS)
            parts = sorted(self.path.glob("*/*.conf"), key=lambda one: one.parent.is_symlink())
            # By a link, a folder would be here twice, and what is written into it removed again.
            paths += {one.parent.resolve() / one.name: one for one in parts}.values()
        return tuple(file for path in paths if (file := self._read(path)))

    def apply(self, plan: ConfPlan, seen: Files) -> bool:
        """Write and remove the files of a plan.

        Return False when a file to write is no longer as in `seen`; writes before it stay. Raise
        Unavailable when the folder cannot be changed.
        """
        files_by_name = {file.name: file for file in seen}
        with self._used():
            for file in plan.writes:
                target = self.path / file.name
                if self._read(target) != files_by_name.get(file.name):
                    return False
                os_files.replace(target, file.text.encode(), _mode(target))
            for name in plan.removes:
                (self.path / name).unlink(missing_ok=True)
            if any("/" in name for name in (*plan.removes, *(one.name for one in plan.writes))):
                # Runtimes watch this folder and none below it (containerd's cni_conf_syncer.go,
                # which passes over what is created; ocicni), so something goes here.
                sign = self.path / ".kube-rdma-changed"
                sign.touch()
                sign.unlink()
        return True

    def set_aside(self, names: Iterable[str], ending: str) -> None:
        """Rename files so that no runtime reads them; raise Unavailable when that fails."""
        with self._used():
            for name in names:
                (self.path / name).replace(self.path / f"{name}{ending}")

    def put_back(self, ending: str) -> tuple[str, ...]:
        """Take back `set_aside` and return the names.

        A file that was written anew meanwhile stays. Raise Unavailable when the folder cannot be
        changed.
        """
        with self._used():
            saved = sorted(path for path in self.path.iterdir() if path.name.endswith(ending))
            for path in saved:
                target = path.with_name(path.name.removesuffix(ending))
                if target.exists():
                    path.unlink()
                else:
                    path.rename(target)
        return tuple(path.name.removesuffix(ending) for path in saved)

    def _read(self, path: Path) -> ConfFile | None:
        """Return a file of the folder; None if it is missing, too large, or no text."""
        with suppress(OSError, UnicodeDecodeError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                name = path.relative_to(self.path).as_posix()
                return ConfFile(name, path.read_text(encoding="utf-8"))
        return None

    def _used(self) -> AbstractContextManager[None]:
        """Return a context that raises Unavailable for an OSError of its block."""
        needs = "the folder of the CNI configuration has to be the host's, writable and with room"
        return os_files.needed(self.path, "used", needs)


class Keeper(Frozen):
    """A loop that keeps kube-rdma's binary and its CNI configuration on one host."""

    host: Path  # the host's root as the agent sees it
    find: Find  # where its runtime looks, which may change while it runs; raises KubeError
    shim: bytes
    decide: Decide  # plans for the files and the names of binaries (attach/rules/conflist)
    # Reports the first round, every one that changed something or found another Wiring, and once
    # what hinders it and when that is over.
    tell: Callable[[FolderRound], None]
    pace: FolderTiming = FolderTiming()
    # Returns why it is no use to write once more (attach/rules/conflist); it is tried all the same,
    # more slowly each time.
    shut_out: ShutOut = lambda _plan, _undone: None

    async def run(self) -> None:
        """Check and write until cancelled.

        Raise Unavailable when a folder is removed or not watchable.
        """
        course = _Course(self.pace, self.tell)
        places = await self._find_places()
        while True:
            folders = self._folders(places)
            with _watching(folders) as changes:
                while True:
                    course.note(self._round(places, course))
                    await changes.wait(course.patience)
                    await asyncio.sleep(course.settle)
                    places = await self._find_places()
                    if self._folders(places) != folders:
                        break
                    changes.raise_gone()

    async def _find_places(self) -> CniPlaces | KubeError:
        try:
            return await self.find()
        except KubeError as error:
            return error

    def _folders(self, places: CniPlaces | KubeError) -> tuple[Path, ...]:
        """Return the folders to watch, made if missing; one that cannot be made is left out."""
        if isinstance(places, KubeError):
            return ()
        folders = [inside(self.host, path) for path in (places.conf, places.binaries)]
        for folder in folders:
            with suppress(OSError):
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return tuple(folder for folder in folders if folder.is_dir())

    def _round(self, places: CniPlaces | KubeError, course: _Course) -> FolderRound:
        quarrel = course.quarrel
        try:
            if isinstance(places, KubeError):
                raise places
            folder, binaries = (inside(self.host, one) for one in (places.conf, places.binaries))
            binary_names = binary.names(
                [binaries, *(inside(self.host, one) for one in places.more)]
            )
            while True:
                seen = ConfFolder(folder).read()
                plan, error = None, None
                try:
                    plan = self.decide(seen, binary_names)
                except KubeError as refusal:
                    error = refusal
                if plan and plan.missing:
                    installed, error = False, _elsewhere(plan, places, self.host)
                else:  # also for what is refused, and may name kube-rdma from earlier
                    installed = binary.install(self.shim, binaries)
                wanted = [folder / file.name for file in plan.writes] if plan else []
                undone = course.writes.look(wanted)
                if plan and (kept_out := self.shut_out(plan, undone)) and not course.may_try:
                    return FolderRound(error=kept_out, installed=installed, quarrel=quarrel)
                if plan is None or ConfFolder(folder).apply(plan, seen):
                    course.writes.note(wanted)
                    return FolderRound(plan, error, installed=installed, quarrel=quarrel)
        except KubeError as error:
            return FolderRound(error=error, quarrel=quarrel)


class _Course:
    """The state between two checks of the configuration: what was reported, how long to wait."""

    def __init__(self, pace: FolderTiming, tell: Callable[[FolderRound], None]) -> None:
        self._pace = pace
        self._tell = tell
        self._clock = asyncio.get_running_loop().time
        self._wrote, self._undone, self._failures = 0.0, 0, 0
        self._held = False  # whether the last write has to stand a while before it is reported
        self._notices = Notices()
        self._wiring: Wiring | None = None
        self.writes = Writes()

    def note(self, kept: FolderRound) -> None:
        """Report a finished check that has news.

        A write that has yet to prove that it lasts (`guard`) is not reported until then.
        """
        plan = kept.plan
        changed = plan is not None and plan.changes
        if changed:
            self._undone, self._wrote = self.quarrel + 1, self._clock()
        was_held, self._held = self._held, changed and plan is not None and bool(plan.guard)
        if self._held:
            return
        stands = was_held and not kept.error
        turned = plan is not None and plan.wiring is not self._wiring
        error = str(kept.error or "")
        news = self._notices.news("round", error) if error else self._notices.over("round")
        if kept.installed or changed or turned or news or stands:
            self._tell(kept)
        if plan:
            self._wiring = plan.wiring
        # What is refused stays so until a file changes; what is down or missing may come back.
        waits = isinstance(kept.error, Unavailable) or (plan is not None and bool(plan.missing))
        self._failures = self._failures + 1 if waits else 0

    @property
    def quarrel(self) -> int:
        """Return how many writes were made in a row; 0 after `calm` seconds without one."""
        return 0 if self._clock() - self._wrote > self._pace.calm else self._undone

    @property
    def may_try(self) -> bool:
        """Return whether enough seconds have passed since the last write to write again.

        The wait doubles with each write in a row, up to `longest`.
        """
        return self._clock() - self._wrote >= self._wait(self._undone)

    @property
    def patience(self) -> float:
        """Return the seconds until the next check when no file changes."""
        look = self._pace.look
        return min(look, self._wait(self._failures)) if self._failures else look

    @property
    def settle(self) -> float:
        """Return the seconds to wait after a change of a file before the next check.

        They are `proof` after a write that has yet to show that it lasts, and grow when others undo
        writes.
        """
        if self._held:
            return self._pace.proof
        return self._wait(self.quarrel) if self.quarrel > 1 else self._pace.settle

    def _wait(self, times: int) -> float:
        return min(self._pace.longest, self._pace.first * float(2 ** min(times, 16)))


def _elsewhere(plan: ConfPlan, places: CniPlaces, host: Path) -> Refused:
    """Return the refusal for plugins that are missing in the folder that the agent sees."""
    plugins = ", ".join(plan.missing)
    folders = " or ".join(map(str, (places.binaries, *places.more)))
    return Refused(
        f"it calls {plugins}, not to be found in {folders} as the agent sees it below {host}; "
        "the runtime would not find kube-rdma there either, so kube-rdma stays out of it",
        remedy=f"Mount the host's {places.binaries} at {host}{places.binaries}, which "
        f"{places.source} named; if the runtime looks elsewhere, that folder (docs/agent.md has it "
        "for each distribution)",
        where=f"{places.conf / plan.default}",
    )


def remove(folder: ConfFolder, binaries: Path, decide: Callable[[Files], ConfPlan]) -> None:
    """Remove kube-rdma's CNI configuration, then its binaries; raise Unavailable if that fails."""
    while True:
        seen = folder.read()
        if folder.apply(decide(seen), seen):
            break
    binary.uninstall(binaries)


class _Changes:
    def __init__(self, inotify: Inotify, folders: tuple[Path, ...]) -> None:
        self._inotify = inotify
        self._folders = folders
        self._gone = False

    async def wait(self, seconds: float) -> None:
        """Wait for a change of a file that concerns kube-rdma, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._concerns(await self._inotify.get()):
                    pass

    def raise_gone(self) -> None:
        """Raise Unavailable when a watched folder was removed or moved."""
        if self._gone:
            raise Unavailable(
                f"One of {' and '.join(map(str, self._folders))} was removed or moved; kube-rdma "
                "has to start again to see the new one."
            )

    def _concerns(self, event: Event) -> bool:
        if event.mask & _GONE:
            self._gone = True
            return True
        # Without a name the kernel dropped events: anything may have changed.
        if event.name is None:
            return True
        return event.name.suffix in ENDINGS or str(event.name) in binary.NAMES


@contextmanager
def _watching(folders: tuple[Path, ...]) -> Iterator[_Changes]:
    with open_inotify() as inotify:
        for folder in folders:
            with os_files.needed(folder, "watched", "it has to be a folder of the host"):
                inotify.add_watch(folder, _CHANGED | _GONE | Mask.ONLYDIR)
        yield _Changes(inotify, folders)


def _mode(target: Path) -> int:
    """Return the permission bits of a file; 0600 where there is none."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o600


AT_ONCE = 1_000_000_000  # nanoseconds


class Writes:
    """The times of one keeper's last writes, and which of them others undid.

    Both times, of the write and of its undoing, are the kernel's own (st_ctime).
    """

    def __init__(self) -> None:
        self._stamps: dict[Path, int] = {}  # of what was written and not looked at since
        self.undone = UndoneWrites()

    def note(self, paths: Iterable[Path]) -> None:
        """Remember the change times of files that have just been written."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._stamps[path] = path.stat().st_ctime_ns

    def look(self, wanted: Collection[Path]) -> UndoneWrites:
        """Return which writes were undone; `wanted` are the files that have to be written again."""
        if not wanted:
            self._stamps.clear()
            self.undone = UndoneWrites()
        again = {path: stamp for path, stamp in self._stamps.items() if path in wanted}
        aside = tuple(
            path.name
            for path in self._stamps
            if not path.exists() and path.with_name(path.name + SET_ASIDE).exists()
        )
        if again or aside:
            quick = any(_is_quick(path, stamp) for path, stamp in again.items())
            self._stamps.clear()
            self.undone = UndoneWrites(self.undone.at_once + 1 if quick else 0, aside)
        return self.undone


def _is_quick(path: Path, written: int) -> bool:
    """Return whether a file was replaced within a second after the write.

    Return False for a removed file: products that guard the folder rename what they take out.
    """
    try:
        return path.stat().st_ctime_ns - written <= AT_ONCE
    except FileNotFoundError:
        return False
