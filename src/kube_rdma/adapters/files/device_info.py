"""Writes device-info files: a meta-plugin reads in them which card was granted.

They follow the Device Information Specification 1.1.0 of the Network Plumbing Working Group. The
device plugin writes a file for each granted share, anew at each grant, as the RDMA device may have
another name by then. Multus copies it for the CNI plugin of the pod, and into the pod's
network-status. What the CNI plugin knows better or alone, it writes into the copy. Files of shares
that are gone are removed. At the agent's end all others stay: most ends are updates, and a pod's
network may be made in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from kube_base import os_files
from kube_base.errors import Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.model.pools import DeviceInfo, ShareId

FOLDER = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
VERSION = "1.1.0"

_PLUGINS = "cni"  # beside it, the folder of the copies
_END = "-device.json"

# Ids of shares of a card: its PCI address or auxiliary device, perhaps with a number.
# It distinguishes the files of rdma/vf from those of rdma/vf-2, which is another resource.
_SHARE = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|\w+\.\w+\.\d+)(-\d+)?")


class DeviceInfoFolder:
    """The host's folder of device info files, which CNI plugins read; made if missing."""

    def __init__(self, path: Path = FOLDER) -> None:
        self._path = path

    def write(self, resource: str, share: ShareId, info: DeviceInfo) -> None:
        """Write the device info file of a share, over an earlier one.

        Raise Unavailable when it cannot be written.
        """
        _replace(self._path / file_name(resource, share), document(info), 0o644)

    def write_for_plugin(self, path: str, info: DeviceInfo) -> None:
        """Write the device info file at the path that a CNI plugin's caller names.

        The path's folder is replaced by the agent's mount of it. A file about another device stays
        as it is. A file about this device keeps the keys that kube-rdma does not know. Raise
        Unavailable for a path outside of devinfo/cni, or when the file cannot be written.
        """
        plugin_path = PurePosixPath(path)
        if plugin_path.parts[-3:-1] != ("devinfo", _PLUGINS):
            raise Unavailable(
                f"{path} is not in the folder devinfo/{_PLUGINS} of the device information."
            )
        target = self._path.parent / _PLUGINS / plugin_path.name
        wanted = decoded(document(info))
        current = _read(target)
        if current is not None:
            pci = current.get("pci")
            if not isinstance(pci, dict) or pci.get("pci-address") != info.pci:
                return
            wanted = current | {"pci": pci | wanted["pci"]}
        if wanted != current:
            _replace(target, json.dumps(wanted, indent=1).encode(), 0o444)

    def keep(self, resource: str, shares: Collection[ShareId]) -> None:
        """Remove a resource's device info files of all shares other than `shares`."""
        prefix, wanted = _prefix(resource), {file_name(resource, one) for one in shares}
        for path in self._path.glob(f"*{_END}"):
            middle = path.name.removeprefix(prefix).removesuffix(_END)
            is_ours = path.name.startswith(prefix) and _SHARE.fullmatch(middle)
            if is_ours and path.name not in wanted:
                with suppress(OSError):
                    path.unlink()


def file_name(resource: str, share: ShareId) -> str:
    """Return ``RESOURCE-SHARE-device.json``, with - for each / in the two names."""
    return f"{_prefix(resource)}{share.replace('/', '-')}{_END}"


def document(info: DeviceInfo) -> bytes:
    """Return a device info file of type pci; fields without a value are left out."""
    pci = {
        "pci-address": info.pci,
        "rdma-device": ",".join(info.rdma_devices),
        "pf-pci-address": info.physical,
    }
    fields = {key: value for key, value in pci.items() if value}
    return json.dumps({"type": "pci", "version": VERSION, "pci": fields}, indent=1).encode()


def _prefix(resource: str) -> str:
    return f"{resource.replace('/', '-')}-"


def _read(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None for other JSON, and where no file can be read."""
    with suppress(OSError, Undecodable):
        device_info = decoded(path.read_bytes())
        return device_info if isinstance(device_info, dict) else None
    return None


def _replace(target: Path, content: bytes, mode: int) -> None:
    """Write a file in one step, over an earlier one; raise Unavailable when that fails."""
    needs = "networks of this pod would not find their device; mount the host's folder writable"
    with os_files.needed(target, "written", needs):
        target.parent.mkdir(parents=True, exist_ok=True)
        os_files.replace(target, content, mode)
