"""Commands of a page, run one after the other in one shell, as by a person who copies them.

The last step. The shell starts in the checkout's root with .venv/bin on its PATH; what a command
exports is there for the next ones. What a page shows of the output is compared: `…` stands for what
varies, a line of it alone for any number of lines, and any space for any other.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Self

from kube_rdma_lab.cluster import MOST_WAITS, NO_CONDITIONS

from .pages import ROOT, Command

ANYTHING = "…"
# Pages bound their waits themselves. This ends what hangs beyond any of them, on any machine.
LIMIT = 3600.0


class Failed(AssertionError):
    """A command did not end well, or printed something else than its page shows."""


class Shell:
    """One bash for the commands of a page. Its input is ours alone: commands read /dev/null."""

    def __init__(self, variables: Mapping[str, str] | None = None, *more: str) -> None:
        """Start it with `variables` set, and with folders of `more` programs at the end of PATH."""
        path = ":".join([str(Path(sys.executable).parent), os.environ["PATH"], *more])
        self._bash = subprocess.Popen(
            ["bash", "--norc", "-o", "pipefail"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PATH": path} | dict(variables or {}),
            start_new_session=True,  # so that it can be ended with all that it started
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End the shell and what is left of its commands."""
        self._kill()
        self._bash.communicate()

    def _kill(self) -> None:
        if self._bash.poll() is None:
            os.killpg(self._bash.pid, signal.SIGKILL)

    def walk(self, commands: Iterable[Command]) -> None:
        """Run commands to their end; Failed names the first that is not as its page says."""
        for command in commands:
            place = f"{command.page}:{command.line}: "
            printed = self.check(command.text, place)
            if command.shown is not None and not shows(command.shown, printed):
                what = f"{place}`{command.text}` is shown with\n{command.shown}"
                raise Failed(f"{what}\nand printed\n{printed}")

    def check(self, text: str, place: str = "") -> str:
        """Run a command and return what it printed; Failed unless it ended well."""
        code, printed = self.run(text)
        for _ in range(MOST_WAITS):
            if not (code and NO_CONDITIONS in printed):
                break
            code, printed = self.run(text)
        if code:
            raise Failed(f"{place}`{text}` ended with {code}:\n{printed}")
        return printed

    def run(self, text: str) -> tuple[int, str]:
        """Run a command; return its exit code and all that it printed."""
        end = f"end-{secrets.token_hex(8)}"
        # By eval an error of syntax is the command's own, and swallows nothing that follows.
        line = f"eval {shlex.quote(text)} </dev/null; printf '\\n%s %d\\n' {end} $?\n"
        printed = []
        limit = Timer(LIMIT, self._kill)
        limit.start()
        try:
            self._bash.stdin.write(line)
            self._bash.stdin.flush()
            for shown in self._bash.stdout:
                if shown.startswith(end):
                    return int(shown.split()[1]), "".join(printed).removesuffix("\n")
                printed.append(shown)
        finally:
            limit.cancel()
        raise Failed(f"`{text}` ended the shell:\n{''.join(printed)}")


def shows(page: str, printed: str) -> bool:
    """Whether a command printed what its page shows."""
    pattern = "".join(_pattern(line.strip()) for line in page.splitlines())
    text = "".join(f"{line.strip()}\n" for line in printed.splitlines())
    return re.fullmatch(pattern, text) is not None


def _pattern(line: str) -> str:
    """Return a line of a page as a regular expression."""
    if line == ANYTHING:
        return r"(?:.*\n)*?"
    special = {ANYTHING: ".*?"}
    return (
        "".join(
            special.get(part) or (r"[^\S\n]+" if part.isspace() else re.escape(part))
            for part in re.split(rf"({ANYTHING}|\s+)", line)
        )
        + r"\n"
    )
