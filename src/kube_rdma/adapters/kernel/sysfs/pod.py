"""Finds the sysfs that shows an RDMA device: the node's, or that of the pod that it was moved into.

A sysfs shows the namespace of whoever mounted it (fs/sysfs/mount.c, sysfs_init_fs_context). In
exclusive mode a moved device is gone from the node's. So a sysfs is mounted in the pod's namespace,
attached to no directory, and read through its descriptor.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_base.os_files import closed_after
from kube_rdma.adapters.kernel.pod.gids import pci_of
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside
from kube_rdma.model.device import PciAddress

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # the same on every machine, since Linux 5.2
_CLOEXEC, _CREATE, _READ_ONLY = 1, 6, 0x1 | 0x2 | 0x4 | 0x8  # FSCONFIG_CMD_CREATE, MOUNT_ATTR_*


class PodSysfs:
    """The sysfs that shows a pod's RDMA devices: the node's, or one mounted for the pod.

    `node` is the node's /sys/class/infiniband, `namespace` a descriptor of the pod's.
    """

    def __init__(self, namespace: int, node: Path) -> None:
        self._namespace = namespace
        self.node = node
        self._mount: int | None = None

    def close(self) -> None:
        """Unmount the pod's sysfs, if one was mounted."""
        if self._mount is not None:
            os.close(self._mount)

    def devices(self, device: str) -> Path:
        """Return the class/infiniband folder that shows `device`: the node's, else the pod's.

        The node's is returned too where none can be mounted for the pod. Raise as open_inside where
        the pod's namespace cannot be entered.
        """
        if (self.node / device).exists():
            return self.node
        try:
            if self._mount is None:
                self._mount = mount_inside(self._namespace)
        except OSError:
            return self.node
        return Path(f"/proc/self/fd/{self._mount}/class/infiniband")

    def pci_of(self, device: str) -> PciAddress | None:
        """Return the function that a device sits on, by its sysfs; None without one."""
        return pci_of(self.devices(device), device)


def mount_inside(namespace: Namespace) -> int:
    """Mount a new sysfs of this namespace and return its root, which the caller closes.

    Raise as open_inside does, and OSError where none can be mounted: it takes Linux 5.2 and
    CAP_SYS_ADMIN.
    """
    return open_inside(namespace, _mount)


@contextmanager
def sysfs_inside(namespace: Namespace) -> Iterator[Path]:
    """Mount a new sysfs of this namespace and yield its path, until the context ends."""
    with closed_after(mount_inside(namespace)) as mount:
        yield Path(f"/proc/self/fd/{mount}")


def _mount() -> int:
    """Return the root of a new sysfs of this thread's namespace; raise OSError as mount(2)."""
    with closed_after(_call(_FSOPEN, b"sysfs", _CLOEXEC)) as context:
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _CLOEXEC, _READ_ONLY)


def _call(number: int, *arguments: bytes | int | None) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
