"""A pod's network sysctls, from outside: the file is opened inside, and used here.

Below /proc/sys/net a file is looked up in the namespace of whoever opens it (net/sysctl_net.c,
net_ctl_header_lookup), so the thread of open_inside opens it; writing needs no namespace any more.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside

# In a container /proc/sys is read-only; there the node's /proc is mounted beside it.
_ROOTS = (Path("/host/proc/sys"), Path("/proc/sys"))


def write_sysctl(namespace: Namespace, path: str, value: str) -> None:
    """Write ``net/ipv4/conf/net1/arp_ignore``.

    Raise Refused when there is no such sysctl, the kernel does not take the value or the file may
    not be written, Unavailable when the namespace is gone.
    """
    check_path(path)
    try:
        descriptor = open_inside(namespace, lambda: os.open(_root() / path, os.O_WRONLY))
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise judged(path, value, error) from error


def read_sysctl(namespace: Namespace, path: str) -> str | None:
    """The value of a sysctl, None when there is none of this name."""
    check_path(path)
    try:
        descriptor = open_inside(namespace, lambda: os.open(_root() / path, os.O_RDONLY))
        try:
            return os.read(descriptor, 4096).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _root() -> Path:
    return next((root for root in _ROOTS if root.is_dir()), _ROOTS[-1])


def check_path(path: str) -> None:
    """Refuse what is not a network sysctl: only those belong to a namespace."""
    first, *others = path.split("/")
    if first != "net" or not others or set(others) & {"", ".", ".."}:
        raise Refused(
            f"{path} is not a network sysctl", remedy="Name one like net/ipv4/conf/net1/arp_ignore"
        )


def judged(path: str, value: str, error: OSError) -> KubeError:
    """What the errno of a sysctl means."""
    if error.errno == errno.ENOENT:
        return Refused(f"the pod has no sysctl {path}", remedy="Name one that its kernel has")
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return Refused(
            f"the sysctl {path} may not be written ({error.strerror})",
            remedy="Mount /proc of the node where the agent can write to it",
        )
    if error.errno in {errno.EINVAL, errno.ERANGE}:
        return Refused(
            f"the sysctl {path} does not take the value {value!r}", remedy="Give one that it takes"
        )
    return Unavailable(f"the sysctl {path}: {error.strerror}")
