"""How a container gets its settings: THE decision, and what of them is known at Allocate.

    CDI and the shim there,  bound late         with its device: merged with the container's own
    CDI and the shim there,  given at Allocate  by a CDI device of the pool, merged likewise
    else                                        a folder of kube-rdma's own, mounted at Allocate

At Allocate the pod is not known: no annotation, no network, no GID index. What is known is the same
for all who hold such shares, so it lies in one folder for them. docs/settings.md has the table.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum

from kube_rdma.model.late_binding.binding import SETTINGS_KIND, UsedDevice
from kube_rdma.model.pools.pool import Attach, FileMount

OWN_FOLDER = "/usr/share/kube-rdma"  # in containers: no image and no pod has anything there
BIN = "bin"  # what holds nccl_env.sh, for their PATH
_LONGEST = 100  # characters of a folder's name that people read


class SettingsWay(StrEnum):
    """How the settings come into a container."""

    BOUND = "bound"
    NAMED = "named"
    MOUNTED = "mounted"


def way(attach: Attach, *, cdi: bool, shim: bool) -> SettingsWay:
    """That of a container with such shares; `shim`: the host has it, for the runtime to run.

    Without CDI nothing is bound late, whatever the wish says.
    """
    if not (cdi and shim):
        return SettingsWay.MOUNTED
    return SettingsWay.NAMED if attach is Attach.NONE else SettingsWay.BOUND


def folder_name(resource: str, used: Sequence[UsedDevice]) -> str:
    """Of the settings of such shares; without device names there is one folder for all."""
    names = ",".join(dict.fromkeys(one.name for one in used))
    text = f"{resource.replace('/', '_')}@{names}" if names else resource.replace("/", "_")
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}-{_digest(text)}"


def cdi_device(folder: str) -> str:
    """The qualified CDI device that stands for a folder of settings."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", folder).strip("-")
    return f"{SETTINGS_KIND}={readable}-{_digest(folder)}"


def mounts(resource: str, folder: str, script: str) -> tuple[FileMount, ...]:
    """Where a container sees a folder of the host, and that of the script."""
    return (
        FileMount(script, f"{OWN_FOLDER}/{BIN}"),
        FileMount(folder, f"{OWN_FOLDER}/{resource}"),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
