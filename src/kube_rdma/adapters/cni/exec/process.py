"""One run of a binary: bytes in, bytes out, within bounds of time and size.

Where the host's root is seen below a folder, coreutils' chroot goes there first: a child that
Python prepares itself between fork and exec is not safe in a process with threads.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import IO

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MOST = 1 << 20  # bytes of output
PATIENCE = 60.0  # seconds
CHROOT_FAILED, CANNOT_RUN, NOT_FOUND = 125, 126, 127  # of chroot(1); 126 and 127 of shells too

_PIECE = 1 << 16


class ProcessOutcome(Frozen):
    """How a run ended; a `code` below 0 is the signal that ended it."""

    code: int
    out: bytes = b""
    errors: bytes = b""


def command(root: Path, program: Path) -> tuple[str, ...]:
    """What to run, so that `program` sees the host's root; raise Unavailable without chroot."""
    if root == Path("/"):
        return (str(program),)
    chroot = shutil.which("chroot", path=PATH)
    if chroot is None:
        raise Unavailable(f"There is no chroot in {PATH}, which CNI plugins below {root} need.")
    return (chroot, str(root), str(program))


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    text: bytes,
    *,
    patience: float = PATIENCE,
    most: int = MOST,
) -> ProcessOutcome:
    """Run it to its end with `text` as input.

    It gets this environment and no more. After `patience` seconds, or with more output than `most`
    bytes, it is killed with all that it started. Raise Unavailable then, OSError when it cannot be
    started.
    """
    with (
        open(os.memfd_create("cni"), "w+b") as given,  # noqa: PTH123  it is never full, as a pipe is
        subprocess.Popen(
            words,
            stdin=_filled(given, text),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        ) as process,
    ):
        try:
            return _read(process, patience, most)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def late(seconds: float) -> Unavailable:
    """It did not end in time."""
    return Unavailable(f"it did not end within {seconds:g} s and was killed")


def flood(most: int) -> Unavailable:
    """It said too much."""
    return Unavailable(f"it wrote more than {most} bytes and was killed")


def _filled(file: IO[bytes], text: bytes) -> IO[bytes]:
    file.write(text)
    file.flush()
    file.seek(0)
    return file


def _read(process: subprocess.Popen[bytes], patience: float, most: int) -> ProcessOutcome:
    """Until the process itself has ended: what it leaves running may hold its output open."""
    assert process.stdout is not None
    assert process.stderr is not None
    buffers: dict[int, bytearray] = {}
    end = monotonic() + patience
    with selectors.DefaultSelector() as selector, closing(_Ended(process.pid)) as ended:
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            buffers[pipe.fileno()] = bytearray()
            selector.register(pipe.fileno(), selectors.EVENT_READ)
        selector.register(ended.fileno, selectors.EVENT_READ)
        over = False
        while not over:
            ready = [key.fd for key, _ in selector.select(max(0.0, end - monotonic()))]
            if not ready:
                raise late(patience)
            over = ended.fileno in ready
            for fd in tuple(buffers) if over else [fd for fd in ready if fd in buffers]:
                if _take(fd, buffers[fd], most) and not over:
                    selector.unregister(fd)
    out, errors = buffers.values()
    return ProcessOutcome(process.wait(), bytes(out), bytes(errors))


def _take(pipe: int, into: bytearray, most: int) -> bool:
    """Read what is there; whether that was its end."""
    with suppress(BlockingIOError):
        while piece := os.read(pipe, _PIECE):
            into += piece
            if len(into) > most:
                raise flood(most)
        return True
    return False


class _Ended:
    """A descriptor that can be read once a process has ended (pidfd_open(2), Linux 5.3)."""

    def __init__(self, pid: int) -> None:
        self.fileno = os.pidfd_open(pid)

    def close(self) -> None:
        os.close(self.fileno)
