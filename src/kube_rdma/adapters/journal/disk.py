"""Does the few acts of the journal on a folder; a test can let each fail or end the process.

FakeDisk (kube_rdma_testing/disk.py) replaces it, and forgets on a crash what was not synced. The
order of the steps, which makes a record durable, is decided in journal.py alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from kube_base import os_files
from kube_base.errors import Refused, Unavailable

LOCK = ".lock"


class Folder:
    """A folder of the host with one writing process, made if missing.

    It has mode 0700, its files 0600. Each method that touches the disk may raise OSError.
    """

    def __init__(self, path: Path) -> None:
        """Open and lock the folder.

        Raise Refused while another process writes there, Unavailable if it cannot be opened.
        """
        self._path = path
        needs = "the journal needs a folder of the host that stays over restarts and that kube-rdma"
        with os_files.needed(path, "opened", f"{needs} may write"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            self._folder = os.open(path, os.O_RDONLY)  # a folder: made above
        try:
            self._lock = self._locked()
        except BaseException:
            os.close(self._folder)
            raise

    def _locked(self) -> int:
        try:
            lock = self._open(LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise Unavailable(
                f"{self._path}/{LOCK} cannot be opened ({error.strerror})."
            ) from error
        try:
            # Held by the open file, so it ends with the process, however that ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        except BlockingIOError as error:
            holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise Refused(
                f"process {holder} writes this journal already",
                remedy="Run one kube-rdma agent per node, or give this one a folder of its own",
                where=self.path,
            ) from error
        except OSError as error:
            os.close(lock)
            raise Unavailable(
                f"{self._path}/{LOCK} cannot be locked ({error.strerror})."
            ) from error
        return lock

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self._folder)

    @property
    def path(self) -> str:
        """Return the folder's path, for messages."""
        return str(self._path)

    def names(self) -> tuple[str, ...]:
        """Return the names of all files in the folder, sorted."""
        return tuple(sorted(os.listdir(self._folder)))  # noqa: PTH208  of a descriptor

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        with open(self._open(name, os.O_RDONLY), "rb") as file:  # noqa: PTH123  of a descriptor
            return file.read()

    def create(self, name: str) -> int:
        """Open a file for writing, emptied if it exists, and return its descriptor."""
        return self._open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, handle: int, content: bytes) -> None:
        """Append all of `content` to an open file."""
        while content:
            content = content[os.write(handle, content) :]

    def fsync(self, handle: int) -> None:
        """Flush the content of a file to the disk."""
        os.fsync(handle)

    def close(self, handle: int) -> None:
        """Close a descriptor that `create` returned."""
        os.close(handle)

    def rename(self, old: str, new: str) -> None:
        """Rename a file in one step, over an existing one."""
        os.rename(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=self._folder)

    def fsync_folder(self) -> None:
        """Flush the folder's names to the disk."""
        os.fsync(self._folder)

    def release(self) -> None:
        """Close the folder, so that another process may write to it."""
        os.close(self._lock)
        os.close(self._folder)


# Removal of a node's records: of the folders that agents keep, once no pod needs them.

NEEDED = ("attachments", "delegated")  # folders of the state with a file for each attachment


def needed(state: Path) -> tuple[str, ...]:
    """Return the names of attachments' records in the agent's state folder, sorted."""
    paths = (path for folder in NEEDED for path in (state / folder).glob("[!.]*"))
    return tuple(sorted(f"{path.parent.name}/{path.name}" for path in paths))


def remove(folder: Path) -> bool:
    """Remove a folder with all that is in it; return whether there was anything.

    A folder that is mounted here stays, and is empty.
    """
    if not folder.is_dir():
        return False
    inside = sorted(folder.rglob("*"), reverse=True)  # what is in a folder comes before it
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
    return bool(inside)
