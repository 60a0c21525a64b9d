"""Running the builders' programs: output to the artifact's log, nothing left behind.

Everything in this folder that starts a program does it through `Shell`, or through `ask` if it
wants a short answer. As root each program of a Shell runs in its own PID and mount namespaces,
which end with the builder, even if that is killed. So no half-finished installer can go on writing
to a folder that the next builder owns.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube_base.errors import Refused, Unavailable

TAIL_LINES = 15
TAIL_WIDTH = 240  # a command line of a compiler fills pages
_CONTAINED = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
)

PACKAGES = {
    "mkfs.ext4": "e2fsprogs",
    "depmod": "kmod",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}


def need(program: str) -> str:
    """Return the path of a host program; raise Refused, with its Debian package, if missing."""
    # mkfs and depmod live in sbin folders, which a user's PATH may lack.
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    if executable := shutil.which(program, path=path):
        return executable
    package = PACKAGES.get(program, program)
    raise Refused(
        f"the lab's builder needs `{program}`, which is not installed",
        remedy=f"Run `apt-get install {package}`, or tools/bootstrap, which installs all it needs",
    )


def need_root() -> None:
    """Raise Refused unless root runs this, as Debian trees, mounts and networks need it."""
    if os.geteuid() != 0:
        raise Refused("building the lab needs root", remedy="Run the command with sudo")


class Running:
    """The running programs of all builders, which any thread can end at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    @contextlib.contextmanager
    def start(self, words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Start a program and yield it; kill it when the context closes, or `end` is called.

        Raise Unavailable after `end`.
        """
        with self._lock:
            if self._ended:
                raise Unavailable("the build was stopped")
            program = subprocess.Popen(words, **options)
            self._programs.add(program)
        try:
            yield program
        finally:
            program.kill()
            program.wait()
            with self._lock:
                self._programs.discard(program)

    def end(self) -> None:
        """Kill all running programs, and refuse to start others."""
        with self._lock:
            self._ended = True
            for program in self._programs:
                program.kill()


@dataclass(frozen=True, slots=True)
class Shell:
    """A runner of programs for one artifact; their output goes to the file `log`."""

    log: Path
    running: Running = field(default_factory=Running)

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Run a program to its end; raise Unavailable with its last lines if it fails.

        `env` adds variables to ours. Raise Refused if the program is not installed.
        """
        words = [need(str(argv[0])), *map(str, argv[1:])]
        contained = _CONTAINED if os.geteuid() == 0 else ()
        with self.log.open("ab") as sink:
            sink.write(f"\n$ {' '.join(words)}\n".encode())
            sink.flush()
            start = self.running.start(
                [*contained, *words],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                cwd=cwd,
            )
            with start as program:
                code = program.wait()
        if code:
            name = Path(words[0]).name
            raise Unavailable(f"{name} failed with code {code}; {self.log} ends:\n{self._end()}")

    def _end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join(f"    {line[:TAIL_WIDTH]}" for line in lines)


def ask(argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> str:
    """Run a short program and return its output; raise Unavailable when it fails.

    `env` adds variables to ours. Raise Refused if the program is not installed.
    """
    words = [need(str(argv[0])), *map(str, argv[1:])]
    environment = {**os.environ, **(env or {})}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise Unavailable(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout
