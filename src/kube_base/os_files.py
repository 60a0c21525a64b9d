"""Files of the operating system: replaced whole, and errors that say which file they are about.

A reader finds the old content or the new one, never half.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kube_base.errors import Unavailable


def replace(target: Path, content: bytes, mode: int) -> None:
    """Replace `target` by a file with this content and mode in one step; raise OSError if it fails.

    The content is on disk before the file gets its name. The folder is not synced: after a power
    failure the old file may be there.
    """
    temporary = target.with_name(f".{target.name}.tmp")  # of no ending that a runtime reads
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "wb") as file:  # noqa: PTH123
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def closed_after(descriptor: int) -> Iterator[int]:
    """Close a descriptor when the block is over."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def needed(path: Path | str, verb: str, needs: str) -> Iterator[None]:
    """Raise Unavailable for an OSError of the block, as "PATH cannot be VERB (why): NEEDS".

    `verb` is a participle, such as "read"; `needs` is the condition that has to hold.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{path} cannot be {verb} ({error.strerror}): {needs}.") from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise Unavailable in place of an OSError of the block, which reads `path`."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error
