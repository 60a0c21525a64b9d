"""Settings of containers on the host, for the shim to merge with what a container has itself.

Of what is bound late, a folder for each CDI device, beside the agent's socket: it holds the files
that late binding writes, and the merged ones that containers read (shim/settings.c). It goes when
the device does, and none outlives a boot. Of claims, likewise one for each container. Of what
Allocate gives, a folder for all who hold the same (Shelf), which outlives boots as the kubelet's
allocations do.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.runtime.whole_files import replace
from kube_rdma.model.late_binding import ContainerId, Nonce

NCCL_ENV = Path(__file__).with_name("nccl_env.sh")  # for containers, which may source it
SETTINGS_FOLDER = Path("/run/kube-rdma/settings")


class SettingsFolder:
    """The folder of the node; it must be the host's, at the path that the runtime sees."""

    def __init__(self, path: Path = SETTINGS_FOLDER) -> None:
        self.path = path

    def write(self, container: ContainerId, nonce: Nonce, files: Mapping[str, str]) -> Path:
        """Where these files lie now, by name, and nccl_env.sh with them.

        Raise Unavailable when they cannot be written.
        """
        folder = self._of(container, nonce)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _fill(folder, files)
        except OSError as error:
            raise _unavailable(self.path, folder, "written", error) from error
        return folder

    def remove(self, container: ContainerId, nonce: Nonce) -> None:
        """Remove those of one device, none is no error; raise Unavailable when they stay."""
        folder = self._of(container, nonce)
        try:
            _clear(folder)
            with suppress(OSError):  # others are there
                self.path.rmdir()
        except OSError as error:
            raise _unavailable(self.path, folder, "removed", error) from error

    def _of(self, container: ContainerId, nonce: Nonce) -> Path:
        return self.path / f"{container}-{nonce}"


class PodSettings:
    """A folder for each container that holds devices by claims, below one for each sandbox.

    A claim's CDI device may be in several pods, so the shim finds the container's own folder by
    what the runtime tells it (shim/settings.c); the host's, at the path that the runtime sees.
    """

    def __init__(self, path: Path = SETTINGS_FOLDER / "claims") -> None:
        self.path = path

    def write(self, sandbox: ContainerId, name: str, files: Mapping[str, str]) -> None:
        """Have these files for the container of this name, and no others; raise Unavailable."""
        folder = self.path / sandbox / name
        try:
            _clear(folder)
            if files:
                folder.mkdir(mode=0o700, parents=True)
                _fill(folder, files)
        except OSError as error:
            raise _unavailable(self.path, folder, "written", error) from error

    def remove(self, sandbox: ContainerId | None = None) -> None:
        """Remove those of a sandbox (None: of all), none is no error; raise Unavailable."""
        folder = self.path / sandbox if sandbox else self.path
        try:
            _clear(folder)
        except OSError as error:
            raise _unavailable(self.path, folder, "removed", error) from error


class ClaimFiles:
    """Files of claims that their containers see by the claim's CDI device; each is whole always."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, uid: str, files: Mapping[str, str]) -> dict[str, str]:
        """Have these files for a claim, by name; where each lies. Raise Unavailable."""
        folder = self.path / uid
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name, text in files.items():
                _keep(folder / name, text, 0o644)
        except OSError as error:
            raise _unavailable(self.path, folder, "written", error) from error
        return {name: str(folder / name) for name in files}

    def remove(self, uid: str) -> None:
        """Remove those of a claim, none is no error; raise Unavailable when they stay."""
        try:
            _clear(self.path / uid)
        except OSError as error:
            raise _unavailable(self.path, self.path / uid, "removed", error) from error


class Shelf:
    """Folders of settings by name, which stay; the host's, at the path that the runtime sees.

    `mode` is that of a folder: all may read one that is mounted into containers; in another the
    shim makes what containers read.
    """

    def __init__(self, path: Path, mode: int) -> None:
        self._path = path
        self._mode = mode

    def put(self, name: str, files: Mapping[str, str]) -> Path:
        """Where a folder with these files and nccl_env.sh lies; raise Unavailable.

        Files that are the same are left alone.
        """
        folder = self._path / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(self._mode)  # whatever the umask is
            for file, text in files.items():
                _keep(folder / file, text, 0o644)
            _keep(folder / NCCL_ENV.name, NCCL_ENV.read_text(), 0o755)
        except OSError as error:
            raise _unavailable(self._path, folder, "written", error) from error
        return folder

    def names(self) -> tuple[str, ...]:
        """The folders that are there; raise Unavailable when nobody can tell."""
        try:
            return tuple(sorted(each.name for each in self._path.iterdir() if each.is_dir()))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unavailable(self._path, self._path, "listed", error) from error

    def folder(self, name: str) -> Path:
        """Where the folder of this name lies."""
        return self._path / name


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    """Write these files, and nccl_env.sh with them."""
    for name, text in files.items():
        (folder / name).write_text(text)
    shutil.copyfile(NCCL_ENV, folder / NCCL_ENV.name)


def _clear(folder: Path) -> None:
    """Remove a folder with all that is in it; none is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _keep(target: Path, text: str, mode: int) -> None:
    """Have a file say this; one that does is left alone."""
    with suppress(FileNotFoundError):
        if target.read_text() == text:
            return
    replace(target, text.encode(), mode)


def _unavailable(root: Path, folder: Path, verb: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"{folder} cannot be {verb} ({error.strerror}): {root} has to be the host's "
        "folder, writable and with room."
    )
