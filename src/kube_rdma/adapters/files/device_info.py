"""Device-info files: what a meta-plugin learns of a granted function without asking us.

Device Information Specification 1.1.0 of the Network Plumbing Working Group: the device plugin
writes one file per device when it gives it away, Multus copies it for the CNI plugin and into the
pod's network-status. Written anew at each grant, for the RDMA device may have another name by then.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from kube_rdma.model.errors import Unavailable
from kube_rdma.model.pool import DeviceInfo, ShareId

FOLDER = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
VERSION = "1.1.0"


class DeviceInfoFolder:
    """The host's folder of these files; it is made if missing."""

    def __init__(self, path: Path = FOLDER) -> None:
        self._path = path

    def write(self, resource: str, share: ShareId, info: DeviceInfo) -> None:
        """Write the file of a share, in place of an earlier one; raise Unavailable."""
        target = self._path / file_name(resource, share)
        temporary = target.with_suffix(".tmp")
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(document(info))
            temporary.chmod(0o644)
            os.replace(temporary, target)  # noqa: PTH105  in one step, over an earlier one
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise Unavailable(
                f"{target} cannot be written ({error.strerror}): networks of this pod would not "
                "find their device; mount the host's folder writable."
            ) from error

    def remove(self, resource: str) -> None:
        """Remove every file of a resource that is offered no more; what cannot be, stays."""
        for path in self._path.glob(f"{_prefix(resource)}*-device.json"):
            with suppress(OSError):
                path.unlink()


def file_name(resource: str, share: ShareId) -> str:
    """``<resource, / as ->-<device id>-device.json``."""
    return f"{_prefix(resource)}{share}-device.json"


def document(info: DeviceInfo) -> bytes:
    """The file's content; a block of type pci, without the fields that are not known."""
    pci = {
        "pci-address": info.pci,
        "rdma-device": ",".join(info.rdma_devices),
        "pf-pci-address": info.physical,
    }
    known = {key: value for key, value in pci.items() if value}
    return json.dumps({"type": "pci", "version": VERSION, "pci": known}, indent=1).encode()


def _prefix(resource: str) -> str:
    return f"{resource.replace('/', '-')}-"
