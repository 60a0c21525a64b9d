"""Replaces files that others read at any moment: a reader finds the old or the new one, never half.

The runtime reads the files of cdi.py, containers and the shim those of settings.py.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace(target: Path, content: bytes, mode: int) -> None:
    """Write `target` with this content, in one step and for good; may raise OSError."""
    temporary = target.with_name(f".{target.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with open(os.open(temporary, flags, mode), "wb") as file:  # noqa: PTH123
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)  # whatever the umask is
        temporary.rename(target)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
