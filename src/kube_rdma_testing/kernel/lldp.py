"""Fake interfaces on which switches send LLDP, in place of kernel/lldp.py."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from contextlib import suppress

from kube_rdma.adapters.kernel.lldp import GROUPS, LLDP, MOST_BYTES, LldpSocket


class FakeLldp:
    """Fake interfaces by name; `permitted` False stands for an agent without CAP_NET_RAW."""

    def __init__(self, interfaces: Iterable[str] = (), *, permitted: bool = True) -> None:
        self.interfaces = set(interfaces)
        self.permitted = permitted
        self.sockets: list[_FakeSocket] = []  # those that are open

    def opened(self, interface: str) -> LldpSocket:
        """Open a socket; raise OSError as the kernel does."""
        if not self.permitted:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        if interface not in self.interfaces:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self.sockets.append(_FakeSocket(self, interface))
        return self.sockets[-1]

    def send(self, interface: str, frame: bytes) -> None:
        """Let a switch send a frame; the interface's sockets get it if it fits and is LLDP."""
        ours = frame[:6] in GROUPS and frame[12:14] == LLDP.to_bytes(2)
        for one in self.sockets:
            if one.interface == interface and ours and len(frame) <= MOST_BYTES:
                with suppress(OSError):  # no room, as in a flood; or a thread closes the socket
                    one.wire.send(frame)

    def rename(self, interface: str, name: str) -> None:
        """Give an interface another name; its sockets follow it."""
        self.interfaces.remove(interface)
        self.interfaces.add(name)
        for one in self.sockets:
            if one.name == interface:
                one.name = name

    def leave(self, interface: str) -> None:
        """Delete an interface, or give it to a pod; its sockets then have no name."""
        self.interfaces.remove(interface)
        for one in self.sockets:
            one.name = "" if one.name == interface else one.name


class _FakeSocket(LldpSocket):
    def __init__(self, kernel: FakeLldp, name: str) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self.wire, self._socket = socket.socketpair(socket.AF_UNIX, kind)
        self.name = name
        self._kernel = kernel

    @property
    def interface(self) -> str:
        return self.name

    def close(self) -> None:
        self._kernel.sockets.remove(self)
        self.wire.close()
        super().close()
