"""Writes settings of containers on the host, for the shim to merge with what a container has.

A CDI device that is bound late has a folder (SettingsFolder). The folder holds the files that late
binding writes, and the merged ones that containers read (shim/settings.c). It goes with the device,
and outlives no boot. With claims each container has a folder (PodSettings), and each claim one with
the files that its CDI device mounts (ClaimFiles). For what Allocate gives, containers with the same
settings have one folder (Shelf), which outlives boots as the kubelet's allocations do. All folders
are the host's, at the path that the runtime sees.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from kube_base import os_files
from kube_rdma.model.late_binding import ContainerId, Nonce

NCCL_ENV = Path(__file__).with_name("nccl_env.sh")  # for containers, which may source it
SETTINGS_FOLDER = Path("/run/kube-rdma/settings")


class SettingsFolder:
    """The folder with settings files of CDI devices that are bound late, a subfolder for each."""

    def __init__(self, path: Path = SETTINGS_FOLDER) -> None:
        self.path = path

    def write(self, container: ContainerId, nonce: Nonce, files: Mapping[str, str]) -> Path:
        """Write settings files by name, and nccl_env.sh; return their folder.

        Raise Unavailable when they cannot be written.
        """
        folder = self._of(container, nonce)
        with _needed(self.path, folder, "written"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _fill(folder, files)
        return folder

    def remove(self, container: ContainerId, nonce: Nonce) -> None:
        """Remove the folder of one device; a missing one is no error.

        Raise Unavailable when it stays.
        """
        folder = self._of(container, nonce)
        with _needed(self.path, folder, "removed"):
            _clear(folder)
            with suppress(OSError):  # others are there
                self.path.rmdir()

    def _of(self, container: ContainerId, nonce: Nonce) -> Path:
        return self.path / f"{container}-{nonce}"


class PodSettings:
    """The folder of settings files for containers that hold devices by claims.

    It has a subfolder for each container, below one for each sandbox. A claim's CDI device may be
    in several pods, so the shim finds the container's own folder by what the runtime passes to it
    (shim/settings.c).
    """

    def __init__(self, path: Path = SETTINGS_FOLDER / "claims") -> None:
        self.path = path

    def write(self, sandbox: ContainerId, name: str, files: Mapping[str, str]) -> None:
        """Write these settings files for a container, and remove its others.

        Without files there is no folder. Raise Unavailable when they cannot be written.
        """
        folder = self.path / sandbox / name
        with _needed(self.path, folder, "written"):
            _clear(folder)
            if files:
                folder.mkdir(mode=0o700, parents=True)
                _fill(folder, files)

    def remove(self, sandbox: ContainerId | None = None) -> None:
        """Remove the settings files of a sandbox (None: of all), if any.

        Raise Unavailable when they stay.
        """
        folder = self.path / sandbox if sandbox else self.path
        with _needed(self.path, folder, "removed"):
            _clear(folder)


class ClaimFiles:
    """The folder of files that containers see through a claim's CDI device, written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, uid: str, files: Mapping[str, str]) -> dict[str, str]:
        """Write these files for a claim, by name; return the path of each.

        Raise Unavailable when they cannot be written.
        """
        folder = self.path / uid
        with _needed(self.path, folder, "written"):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name, text in files.items():
                _keep(folder / name, text, 0o644)
        return {name: str(folder / name) for name in files}

    def remove(self, uid: str) -> None:
        """Remove the files of a claim; missing ones are no error.

        Raise Unavailable when they stay.
        """
        with _needed(self.path, self.path / uid, "removed"):
            _clear(self.path / uid)


class Shelf:
    """A folder with subfolders of settings files, by name; it never removes one."""

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        # All may read a folder that is mounted into containers; of any other, the shim makes the
        # files that containers read.
        self._mode = mode

    def put(self, name: str, files: Mapping[str, str]) -> Path:
        """Write settings files and nccl_env.sh into a folder, if they differ; return the folder.

        Raise Unavailable when it cannot be written.
        """
        folder = self._path / name
        with _needed(self._path, folder, "written"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(self._mode)  # whatever the umask is
            for file, text in files.items():
                _keep(folder / file, text, 0o644)
            _keep(folder / NCCL_ENV.name, NCCL_ENV.read_text(), 0o755)
        return folder

    def names(self) -> tuple[str, ...]:
        """Return the names of all subfolders; raise Unavailable when they cannot be listed."""
        with _needed(self._path, self._path, "listed"), suppress(FileNotFoundError):
            return tuple(sorted(each.name for each in self._path.iterdir() if each.is_dir()))
        return ()

    def folder(self, name: str) -> Path:
        """Return the path of the subfolder of this name."""
        return self._path / name


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    """Write settings files into a folder, and nccl_env.sh."""
    for name, text in files.items():
        (folder / name).write_text(text)
    shutil.copyfile(NCCL_ENV, folder / NCCL_ENV.name)


def _clear(folder: Path) -> None:
    """Remove a folder with all that is in it; a missing one is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _keep(target: Path, text: str, mode: int) -> None:
    """Write a text into a file, unless the file has it already."""
    with suppress(FileNotFoundError):
        if target.read_text() == text:
            return
    os_files.replace(target, text.encode(), mode)


def _needed(root: Path, folder: Path, verb: str) -> AbstractContextManager[None]:
    """Return a context that raises Unavailable for an OSError of its block."""
    needs = f"{root} has to be the host's folder, writable and with room"
    return os_files.needed(folder, verb, needs)
