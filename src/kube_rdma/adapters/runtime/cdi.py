"""Writes CDI files: they tell the container runtime what it adds to a container for a device.

containerd and CRI-O read `*.json` and `*.yaml` of /var/run/cdi whenever something changes there.
Both look CDI devices up when they create a container (CDI SPEC.md, library v1.1.1). A live
file of a binding is never rewritten, for a runtime may still know its old content. Only kube-rdma's
files are ever touched.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from kube_base import os_files
from kube_base.errors import Broken, Refused
from kube_rdma.model.late_binding import Binding, CdiFile, ContainerId, Edits, Nonce

CDI_FOLDER = Path("/var/run/cdi")

VERSION = "0.5.0"  # the first whose device names may begin with a digit, as PCI addresses do

_PREFIX, _ENDING = "kube-rdma-", ".json"
_SHARED = "kube-rdma_"  # of files that belong to no binding, which `remove` and `present` pass by
_CLAIM = f"{_SHARED}claim-"
_FILE = re.compile(rf"{_PREFIX}(?P<container>.+)-(?P<nonce>[a-z0-9]+)\.json")
# CNI_CONTAINERID as the CNI specification allows it; the length keeps file names below 255.
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NONCE = re.compile(r"[a-z0-9]{1,64}")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")

Identity = tuple[str, int, int]


class CdiFolder:
    """The CDI folder of the node; it must be the host's, at the path that the runtime reads."""

    def __init__(
        self, path: Path = CDI_FOLDER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._clock = clock
        # When a file was first seen: its own time is on a clock that steps.
        self._seen: dict[Identity, float] = {}

    def write(self, binding: Binding, edits: Edits) -> None:
        """Write the CDI file of a binding, unless it exists with this content.

        Raise Refused for a name that no file can have, Broken when it is there with other content,
        Unavailable when the folder cannot be written.
        """
        target = self.path / file_name(binding.container, binding.nonce)
        content = document((binding.cdi, edits))
        before = self._content(target)
        if before is not None:
            if before != content:
                raise Broken(
                    f"{target} is there with other content: a container may use it, so it is "
                    "not rewritten; create the pod again."
                )
            return
        self._put(target, content)
        self.present()

    def share(self, cdi: str, edits: Edits) -> bool:
        """Write the CDI file of a device that many containers get; return whether it changed.

        Changed content replaces the old file, unlike that of a binding. The file stays until
        the next boot. Raise Unavailable when it cannot be written.
        """
        target = self.path / f"{_SHARED}{cdi.partition('=')[2]}{_ENDING}"
        return self._renew(target, document((cdi, edits)))

    def write_claim(self, uid: str, devices: Sequence[tuple[str, Edits]]) -> bool:
        """Write the CDI file of a claim with all its devices; return whether it changed.

        Without a device there is no file. A runtime may know an earlier file for a moment. Raise
        Refused for a uid that no file can have, Unavailable when the folder cannot be changed.
        """
        target = self._claim_file(uid)
        return self._renew(target, document(*devices)) if devices else self.remove_claim(uid)

    def remove_claim(self, uid: str) -> bool:
        """Remove the CDI file of a claim; return whether it existed. Raise as `write_claim`."""
        path = self._claim_file(uid)
        with self._needed(path, "removed"), suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            return True
        return False

    def claims(self) -> tuple[str, ...]:
        """Return the uids of all claims that have a CDI file.

        Raise Unavailable when the folder cannot be listed.
        """
        return tuple(
            name.removeprefix(_CLAIM).removesuffix(_ENDING)
            for name in (path.name for path in self._listed())
            if name.startswith(_CLAIM) and name.endswith(_ENDING)
        )

    def _claim_file(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise Refused(
                f"no CDI file can be named after claim {uid[:60]!r}",
                remedy="A uid has up to 128 letters, digits and -, with a letter or digit first",
                where="CDI",
            )
        return self.path / f"{_CLAIM}{uid}{_ENDING}"

    def _renew(self, target: Path, content: bytes) -> bool:
        """Write a file unless it has this content; return whether it was written."""
        if self._content(target) == content:
            return False
        self._put(target, content)
        return True

    def _content(self, path: Path) -> bytes | None:
        """Return the content of a file, None without one."""
        with self._needed(path, "read"), suppress(FileNotFoundError, NotADirectoryError):
            return path.read_bytes()
        return None

    def _put(self, target: Path, content: bytes) -> None:
        with self._needed(target, "written"):
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            os_files.replace(target, content, 0o600)  # read by the runtime alone, which is root

    def remove(self, container: ContainerId, nonce: Nonce | None = None) -> None:
        """Remove the CDI files of a sandbox's bindings; with a `nonce` only that binding's file.

        Raise Unavailable when the folder cannot be changed.
        """
        for path in self._listed():
            match = _FILE.fullmatch(path.name.removeprefix(".").removesuffix(".tmp"))
            if match and match["container"] == container and nonce in (None, match["nonce"]):
                with self._needed(path, "removed"):
                    path.unlink(missing_ok=True)

    def present(self) -> tuple[CdiFile, ...]:
        """Return the CDI file of each binding; its age counts from when it was first seen.

        Raise Unavailable when the folder cannot be listed; return nothing when it does not exist.
        """
        files = []
        seen: dict[Identity, float] = {}
        for path in self._listed():
            match = _FILE.fullmatch(path.name)
            if match and (identity := _identity(path)):
                since = seen[identity] = self._seen.get(identity, self._clock())
                files.append(CdiFile(Nonce(match["nonce"]), ContainerId(match["container"]), since))
        self._seen = seen
        return tuple(files)

    def _listed(self) -> list[Path]:
        with self._needed(self.path, "listed"), suppress(FileNotFoundError):
            return sorted(self.path.iterdir())
        return []

    def _needed(self, path: Path, verb: str) -> AbstractContextManager[None]:
        """Return a context that raises Unavailable for an OSError of its block."""
        needs = f"{self.path} has to be the host's folder of CDI files, writable and with room"
        return os_files.needed(path, verb, needs)


def file_name(container: ContainerId, nonce: Nonce) -> str:
    """Return `kube-rdma-<container>-<nonce>.json`; raise Refused for invalid ids."""
    if not (_CONTAINER.fullmatch(container) and _NONCE.fullmatch(nonce)):
        raise Refused(
            f"no CDI file can be named after container {container[:60]!r}, nonce {nonce[:60]!r}",
            remedy="A container id has up to 128 letters, digits and . _ -, no sign first",
            where="CDI",
        )
    return f"{_PREFIX}{container}-{nonce}{_ENDING}"


def document(*devices: tuple[str, Edits]) -> bytes:
    """Return the file's content: devices of one kind, by their qualified names, with their edits.

    A device node has the host's path, and the type and number that the runtime finds there. It may
    be read and written, but not made (rw without m), so that a container makes no nodes.
    """
    (kind,) = {cdi.partition("=")[0] for cdi, _ in devices}
    spec = {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": [
            {"name": cdi.partition("=")[2], "containerEdits": _container_edits(edits)}
            for cdi, edits in devices
        ],
    }
    return json.dumps(spec, indent=1).encode()


def _container_edits(edits: Edits) -> dict[str, object]:
    given: dict[str, object] = {
        "deviceNodes": [{"path": path, "permissions": "rw"} for path in edits.char_paths],
        "env": [f"{key}={value}" for key, value in edits.env],
        "mounts": [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
            for mount in edits.mounts
        ],
        "hooks": [
            {"hookName": hook.stage, "path": hook.path, "args": list(hook.args)}
            for hook in edits.hooks
        ],
    }
    return {key: value for key, value in given.items() if value}


def _identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return path.name, status.st_ino, status.st_ctime_ns
