"""Enters another network namespace for a moment; no other module of kube_rdma does.

No thread of kube-rdma stays inside a pod's namespace. A thread of its own enters, opens descriptors
or reads there, and ends; a descriptor stays bound to that namespace and is used from outside.
setns(2) with CLONE_NEWNET moves the calling thread alone (nsproxy, per task), so a thread that ends
has nothing to go back to.
"""

from __future__ import annotations

import ctypes
import errno
import os
from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import TypeVar

from kube_base.errors import Refused, Unavailable
from kube_base.os_files import closed_after
from kube_rdma.adapters.kernel.netlink.rtnl_read import interfaces, open_rtnl
from kube_rdma.model.device import PodLink

T = TypeVar("T")
Namespace = int | Path
"""A descriptor of a network namespace, or its file: /proc/PID/ns/net, /run/netns/NAME."""

_HERE = "/proc/thread-self/ns/net"
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.EBADF})
_DENIED = frozenset({errno.EPERM, errno.EACCES})


def open_inside(namespace: Namespace, opener: Callable[[], T]) -> T:
    """Call `opener` inside of a network namespace, and return what it opened or read there.

    `opener` must not start threads, which would stay in the namespace. Raise Unavailable when the
    namespace is gone, Refused when it may not be entered or is not one, and whatever `opener`
    raises.
    """
    return _apart(lambda: _enter(namespace), opener)


def make_namespace() -> int:
    """Make a network namespace that lasts as long as its descriptor; return the descriptor.

    Raise Refused when none may be made.
    """
    return _apart(_leave, lambda: os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC))


def _apart(enter: Callable[[], None], opener: Callable[[], T]) -> T:
    """Call `opener` in a new thread, after `enter` there, and return what it opened."""
    opened: Future[T] = Future()

    def inside() -> None:
        try:
            enter()
            opened.set_result(opener())
        except BaseException as error:  # noqa: BLE001  # it is raised again outside
            opened.set_exception(error)

    # threading.Thread would wait twice, for its start and for its end; a pod waits for neither.
    start_new_thread(inside, ())
    return opened.result()


def links_inside(namespace: Namespace) -> tuple[PodLink, ...]:
    """Return the interfaces of a network namespace; raise as open_inside does.

    Raise Unavailable when the kernel does not answer. A card in a pod is found by its PCI address,
    whatever its name. The kernel tells the address since Linux 5.14, of interfaces directly on a
    function.
    """
    with open_inside(namespace, open_rtnl) as netlink:
        return tuple(
            PodLink(one.seen.name, one.seen.up, one.carrier, one.seen.pci)
            for one in interfaces(netlink)
        )


def _enter(namespace: Namespace) -> None:
    """Move this thread into a network namespace.

    Raise the error of namespace_fault when the kernel refuses.
    """
    try:
        if isinstance(namespace, int):
            _setns(namespace)
            return
        with closed_after(os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            _setns(descriptor)
    except OSError as error:
        raise namespace_fault(namespace, error) from error


def _leave() -> None:
    """Move this thread into a new namespace (os.unshare, which Python has since 3.12)."""
    if _libc().unshare(_CLONE_NEWNET):
        raise Refused(
            f"no network namespace can be made ({os.strerror(ctypes.get_errno())})",
            remedy="Run it as root, with CAP_SYS_ADMIN",
        )


def _setns(descriptor: int) -> None:
    """Move this thread into an open namespace (os.setns, which Python has since 3.12)."""
    if _libc().setns(descriptor, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library, opened once: opening it takes longer than the calls."""
    return ctypes.CDLL(None, use_errno=True)


def namespace_fault(namespace: Namespace, error: OSError) -> Unavailable | Refused:
    """Return the error for a namespace that the kernel refused to enter."""
    if error.errno in _GONE:
        return Unavailable(f"the network namespace {_name(namespace)} is gone")
    if error.errno in _DENIED:
        return Refused(
            f"the network namespace {_name(namespace)} may not be entered",
            remedy="Give the agent CAP_SYS_ADMIN, and CAP_SYS_PTRACE where it enters by process",
        )
    return Refused(
        f"{_name(namespace)} is not a network namespace",
        remedy="Name one by its file, as /proc/PID/ns/net or /run/netns/NAME",
    )


def _name(namespace: Namespace) -> str:
    return f"behind descriptor {namespace}" if isinstance(namespace, int) else str(namespace)
