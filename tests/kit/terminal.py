"""What a program shows on a terminal: it runs on the other side of a pseudo-terminal."""

import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Shown(NamedTuple):
    """What stood on the terminal, lines ended as a file ends them, and the exit code."""

    text: str
    code: int


def shown(argv: Sequence[str], env: Mapping[str, str], columns: int = 80) -> Shown:
    """Run a program on a terminal of so many columns; stderr is the terminal too."""
    reader, terminal = pty.openpty()
    parts = []
    try:
        termios.tcsetwinsize(terminal, (24, columns))
        with open(reader, "rb", buffering=0, closefd=False) as screen:
            process = subprocess.Popen(argv, stdout=terminal, stderr=terminal, env=env)
            os.close(terminal)
            try:
                while data := screen.read(1 << 16):
                    parts.append(data)
            except OSError:  # EIO: the other side is closed, tty_ioctl(4)
                pass
            code = process.wait()
    finally:
        os.close(reader)
    text = b"".join(parts).decode().replace("\r\n", "\n").rstrip("\n") + "\n"
    return Shown(text, code)
