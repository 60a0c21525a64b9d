"""The shim on the host, by each of its names: put there, kept up to date, taken away.

A pod may start at any moment, so the file is replaced by a rename: a runtime runs the old or the
new one, never half of it and never none.
CDI files name it by a name of its own: an agent from before them, put back by a roll-back, has a
shim that knows no hooks, and would write it over the one that running pods need to start again.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.model.cni_conf import HOOK_PROGRAM, IPAM_PLUGIN, PLUGIN

NAMES = (PLUGIN, IPAM_PLUGIN, HOOK_PROGRAM)
SHIMS = Path(__file__).with_name("shim")  # filled when the package is built (hatch_build.py)


def shim(folder: Path = SHIMS) -> bytes:
    """The binary for this machine; raise Unavailable when this installation has none."""
    path = folder / platform.machine() / PLUGIN
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read ({error.strerror}): this installation of kube-rdma has no shim "
            f"for {platform.machine()}; the image and the wheel have one."
        ) from error


def install(content: bytes, folder: Path) -> bool:
    """Whether the host had another file or none; raise Unavailable when it cannot be written."""
    changed = [_install(content, folder / name) for name in NAMES]
    return any(changed)


def names(folders: Iterable[Path]) -> frozenset[str]:
    """What lies in these folders; in one that is not there, or cannot be read, nothing does."""
    file_names: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            file_names.update(path.name for path in folder.iterdir())
    return frozenset(file_names)


def _install(content: bytes, target: Path) -> bool:
    try:
        if _is_there(target, content):
            return False
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace(target, content, 0o755)
    except OSError as error:
        raise _unavailable(target, error) from error
    return True


def uninstall(folder: Path) -> None:
    """Remove it, after nothing names it any more; raise Unavailable when that is not possible."""
    for name in NAMES:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(folder / name, error) from error


def replace(target: Path, content: bytes, mode: int) -> None:
    """Let `target` be a file with this content, in one step and for good; may raise OSError."""
    temporary = target.with_name(f".{target.name}.kube-rdma")  # of no ending that a runtime reads
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "wb") as file:  # noqa: PTH123
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _is_there(target: Path, content: bytes) -> bool:
    try:
        return target.read_bytes() == content and target.stat().st_mode & 0o777 == 0o755
    except FileNotFoundError:
        return False


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"{path} cannot be changed ({error.strerror}): the folder of CNI binaries has to be the "
        "host's, writable and with room."
    )
