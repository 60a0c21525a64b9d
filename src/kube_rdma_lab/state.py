"""Keeps the state of each lab on disk: one folder per name, one lock, one small file.

The lock is held by the process that boots or runs the lab, and is gone with it, however it ends. So
a folder without a held lock is a leftover.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kube_base.errors import Broken, Refused
from kube_rdma_lab import paths

STOP_SECONDS = 20.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class State:
    """The content of state.json. `pid` is the host's PID of the process to signal."""

    name: str
    topology: str
    pid: int
    phase: str  # "building", "booting", "up"
    started: float  # seconds since the epoch
    binaries: str = ""  # folder of kubectl and friends, once built
    port: int = 0  # of 127.0.0.1, where the API server is relayed
    pace: float = 1.0  # how slow this machine was when the lab was booted (pace.py)
    losses: tuple[str, ...] = ()  # programs that ended by themselves, with their last output


def home(name: str) -> Path:
    """Return the folder of a lab; raise Refused when the name cannot be one."""
    if not _NAME.fullmatch(name):
        raise Refused(
            f"{name!r} is not a name for a lab",
            remedy="Use up to 32 small letters, digits and inner hyphens",
        )
    return paths.cache_root() / "labs" / name


def read(folder: Path) -> State | None:
    """Return the state of a lab, or None when there is none or an incomplete one."""
    try:
        fields = json.loads((folder / "state.json").read_text())
        return State(**{**fields, "losses": tuple(fields["losses"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(folder: Path, state: State) -> None:
    """Replace the state at once: a reader sees the old or the new, never half."""
    beside = folder / "state.json.new"
    beside.write_text(json.dumps(asdict(state), indent=1))
    beside.rename(folder / "state.json")


def update(folder: Path, **changes: object) -> None:
    """Change the given fields of a lab's state; raise Broken if there is no state to read."""
    current = read(folder)
    if current is None:
        raise Broken(f"{folder}/state.json has vanished from under a running lab")
    write(folder, replace(current, **changes))  # type: ignore[arg-type]


def add_loss(folder: Path, words: str) -> None:
    """Record in the state that a program of the lab ended unasked."""
    current = read(folder)
    if current is not None:
        write(folder, replace(current, losses=(*current.losses, words)))


def lock_file(folder: Path) -> Path:
    """Return the lock's path: beside the folder, so that clearing the folder keeps the lock."""
    return folder.with_name(f"{folder.name}.lock")


def is_held(folder: Path) -> bool:
    """Return whether some process boots or runs this lab, by its lock."""
    try:
        descriptor = os.open(lock_file(folder), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[int]:
    """Hold a lab's lock and yield its descriptor; a child that inherits it holds the lock too.

    Raise Refused when another process holds it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Refused(
            f"the lab {folder.name!r} is already {_phase(folder)}",
            remedy=f"Look with `kube-rdma lab status --name {folder.name}`, end it with `kube-rdma"
            f" lab down --name {folder.name}`, or give the new one another --name",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _phase(folder: Path) -> str:
    state = read(folder)
    return state.phase if state else "starting"


def clear(folder: Path) -> bool:
    """Remove a lab's files; return False when there were none. The lock file stays."""
    if not folder.exists():
        return False
    shutil.rmtree(folder, onerror=_unless_gone)
    return True


def _unless_gone(_: object, __: str, error: tuple[type, BaseException, object]) -> None:
    """Raise an error of removing files, unless another process has removed the file."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def end(folder: Path) -> None:
    """Stop the process that owns a lab and wait until its lock is free.

    It gets SIGTERM, and SIGKILL after STOP_SECONDS. Raise Broken if the state cannot be read, or
    the lock is held even after that.
    """
    state = read(folder)
    if state is None:
        raise Broken(f"{lock_file(folder)} is held but {folder}/state.json cannot be read")
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            if not is_held(folder):
                return
            time.sleep(0.05)
    raise Broken(f"process {state.pid} still holds {lock_file(folder)} after SIGKILL")
