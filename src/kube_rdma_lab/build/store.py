"""The store of built parts: made once per set of inputs, renamed into place, never changed.

Every builder of this folder asks the store for its artifact and hands over the inputs that
decide its content. Running labs hold what they use, so pruning cannot pull it from under them.

    ROOT/NAME/KEY/…            the artifact, with inputs.json that shows why it has this key
    ROOT/NAME/.KEY.new         being made or removed; a process that was killed leaves it behind
    ROOT/NAME/.lock            one builder of NAME at a time
    ROOT/NAME/.first-seconds   how long the first build took
    ROOT/logs/NAME.log         what the last builder's programs printed
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from kube_base.errors import Unavailable
from kube_rdma_lab.build.shell import Running, Shell
from kube_rdma_lab.paths import cache_root

KEY_LENGTH = 16  # hex digits: 64 bits, far more than one machine's artifacts need
INPUTS = "inputs.json"
FIRST = ".first-seconds"


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """A line of progress: an artifact is being built, was built, or came from the cache."""

    name: str
    state: Literal["building", "built", "cached"]
    seconds: float = 0.0
    note: str = ""


Report = Callable[[BuildEvent], None]
Make = Callable[[Path, Shell], None]


def silent(_: BuildEvent) -> None:
    """Ignore an event of the build."""


def default_root() -> Path:
    """Return the folder of this user's artifact store."""
    return cache_root() / "store"


def build_seconds(root: Path | None = None) -> dict[str, float]:
    """Return by artifact the seconds of its first build in this cache.

    Some are built at the same time, so the sum can exceed the time of the whole build.
    """
    files = sorted((root or default_root()).glob(f"*/{FIRST}"))
    return {path.parent.name: float(path.read_text()) for path in files}


def key_of(inputs: Mapping[str, str]) -> str:
    """Return a key for a set of inputs, independent of their order."""
    canonical = json.dumps(dict(inputs), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:KEY_LENGTH]


class Store:
    """A store of artifacts below `root`, each in a folder that never changes.

    While it is open, artifacts it returned are not pruned by anybody. Closing it also ends programs
    of builders in other threads.
    """

    def __init__(self, root: Path, report: Report = silent) -> None:
        self.root = root
        self._report = report
        self._holds = contextlib.ExitStack()
        self._running = Running()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.end()
        self._holds.close()

    def shell(self, name: str) -> Shell:
        """Return the Shell of one builder, with a new log file."""
        log = self.root / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        return Shell(log, self._running)

    def get(self, name: str, inputs: Mapping[str, str], make: Make, note: str = "") -> Path:
        """Return the folder of the artifact; `make` fills it if it does not exist.

        `inputs` must hold everything that decides the content. `make` gets an empty folder and a
        shell. If it raises, nothing remains. Others that would build `name` meanwhile wait.
        """
        while True:
            path = self._get_or_make(name, inputs, make, note)
            with contextlib.suppress(Unavailable):  # pruned in this very moment: once more
                return self._holds.enter_context(self.hold(path))

    def _get_or_make(self, name: str, inputs: Mapping[str, str], make: Make, note: str) -> Path:
        key = key_of(inputs)
        shelf = self.root / name
        final = shelf / key
        started = time.monotonic()
        if not final.exists():
            shelf.mkdir(parents=True, exist_ok=True)
            with _locked(shelf / ".lock", fcntl.LOCK_EX):
                if not final.exists():
                    self._report(BuildEvent(name, "building", note=note))
                    with _fresh(shelf / f".{key}.new", final) as work:
                        make(work, self.shell(name))
                        text = json.dumps(dict(inputs), indent=2, sort_keys=True)
                        (work / INPUTS).write_text(text + "\n")
                    seconds = time.monotonic() - started
                    _record_first(shelf / FIRST, seconds)
                    self._report(BuildEvent(name, "built", seconds, note))
                    return final
        _mark_used(final)
        self._report(BuildEvent(name, "cached", time.monotonic() - started, note))
        return final

    def has(self, name: str, inputs: Mapping[str, str]) -> bool:
        """Decide whether the artifact is built already, so that `get` returns at once."""
        return (self.root / name / key_of(inputs)).exists()

    @contextlib.contextmanager
    def hold(self, path: Path) -> Iterator[Path]:
        """Protect the artifact that `path` lies in from pruning while the context is open.

        Raises Unavailable if it was pruned before.
        """
        folder = self._artifact_of(path)
        gone = Unavailable(f"{folder} was removed a moment ago; run the command again")
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            raise gone from None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if not _is_same(handle, folder):
                raise gone
            yield path
        finally:
            os.close(handle)

    def prune(self, keep: int = 2) -> list[Path]:
        """Remove all but the `keep` last used versions of each artifact; return the removed paths.

        Versions that a running lab holds stay, whatever their age; so does what is being built.
        Remains of killed builders are removed too.
        """
        removed: list[Path] = []
        for shelf in sorted(p for p in self.root.glob("*/") if (p / ".lock").exists()):
            with contextlib.suppress(BlockingIOError), _locked(shelf / ".lock", _EX_NOW):
                for leftover in shelf.glob(".*.new"):
                    shutil.rmtree(leftover)
                versions = sorted(shelf.glob("[!.]*/"), key=_last_used, reverse=True)
                removed += [path for path in versions[keep:] if _remove_unless_held(path)]
        return removed

    def _artifact_of(self, path: Path) -> Path:
        relative = path.relative_to(self.root)
        return self.root.joinpath(*relative.parts[:2])


_EX_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


@contextlib.contextmanager
def _fresh(work: Path, final: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `final` at the end, or is removed on an error."""
    if work.exists():  # its builder was killed: we hold the lock that it held
        shutil.rmtree(work)
    work.mkdir()
    try:
        yield work
        work.rename(final)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _record_first(path: Path, seconds: float) -> None:
    if not path.exists():
        path.write_text(f"{seconds:.1f}\n")


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, how)
        yield


def _remove_unless_held(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, _EX_NOW)
        # Out of sight in one step, so that nobody sees half an artifact.
        doomed = path.with_name(f".{path.name}.new")
        path.rename(doomed)
        shutil.rmtree(doomed)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _mark_used(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)


def _last_used(path: Path) -> float:
    return path.stat().st_mtime
