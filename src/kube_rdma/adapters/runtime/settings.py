"""Settings of containers on the host, for the shim to merge with what a container has itself.

A folder for each bound CDI device, beside the agent's socket: it holds the files that late binding
writes, and the merged ones that containers read (shim/settings.c). It goes when the device does,
and none outlives a boot.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kube_rdma.model.binding import ContainerId, Nonce
from kube_rdma.model.errors import Unavailable

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
            for name, text in files.items():
                (folder / name).write_text(text)
            shutil.copyfile(NCCL_ENV, folder / NCCL_ENV.name)
        except OSError as error:
            raise self._unavailable(folder, "written", error) from error
        return folder

    def remove(self, container: ContainerId, nonce: Nonce) -> None:
        """Remove those of one device, none is no error; raise Unavailable when they stay."""
        folder = self._of(container, nonce)
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
            with suppress(OSError):  # others are there
                self.path.rmdir()
        except OSError as error:
            raise self._unavailable(folder, "removed", error) from error

    def _of(self, container: ContainerId, nonce: Nonce) -> Path:
        return self.path / f"{container}-{nonce}"

    def _unavailable(self, folder: Path, verb: str, error: OSError) -> Unavailable:
        return Unavailable(
            f"{folder} cannot be {verb} ({error.strerror}): {self.path} has to be the host's "
            "folder, writable and with room."
        )
