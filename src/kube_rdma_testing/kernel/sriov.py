"""A fake of what the kernel does when a card's virtual functions are asked for, in a fake tree.

kernel/sriov/functions.py writes its three files through `write` here and sets addresses through
`give`. It refuses what sriov_numvfs_store and sriov_enable (drivers/pci/iov.c) and drivers
(igb_disable_sriov) refuse. A driver binds where pci_device_can_probe allows it
(drivers/pci/pci-driver.c).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import count as numbers
from pathlib import Path

from kube_rdma.adapters.kernel.sriov.functions import AUTOPROBE, NUMBER, PROBE, made_of
from kube_rdma.adapters.kernel.sysfs.pci import PciTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.pools import SetFunctions
from kube_rdma_testing.kernel.tree import add_virtual, remove_virtual

_OFFSET, _STRIDE = 0x10, 2  # of routing ids; two cards of one slot do not meet
_DRIVERS = {"igb": "igbvf", "ixgbe": "ixgbevf", "ice": "iavf"}  # others drive both


class FakeSriov:
    """The fake SR-IOV behaviour of cards in a tree of write_tree, with faults that a test sets.

    With `readonly` /sys is mounted read-only. A card gets at most `room` functions (ENOMEM). Cards
    in `assigned` have a function in a virtual machine. While `slow`, a driver binds only when
    `probe` is called. Drivers in `unable` make no functions. `addresses` are the MACs that drivers
    found when they were bound, or chose themselves.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._functions = root / "bus/pci/devices"
        self.readonly = False
        self.room = 0xFFFF
        self.assigned: set[PciAddress] = set()
        self.unable: set[str] = set()
        self.slow = False
        self.addresses: dict[PciAddress, str] = {}
        self._given_addresses: dict[PciAddress, str] = {}
        self._random = numbers(1)
        self._driverless: dict[PciAddress, Function] = {}  # as they are once they have a driver
        self._waiting: list[Function] = []
        self.writes: list[tuple[str, str]] = []  # file and text of each that was tried
        for total in self._functions.glob("*/sriov_totalvfs"):
            count = len(tuple(total.parent.glob("virtfn*")))
            (total.parent / NUMBER).write_text(f"{count}\n")
            (total.parent / AUTOPROBE).write_text("1\n")
        (root / "bus/pci" / PROBE).touch()

    def give(self, act: SetFunctions, numbers: Sequence[int]) -> None:
        """Give virtual functions the addresses that vf_addresses.give_addresses would give."""
        for number in numbers:
            function = self._functions / act.physical / f"virtfn{number}"
            own = PciAddress(function.resolve(strict=True).name)
            self._given_addresses[own] = made_of(act.physical, number, 6)

    def write(self, path: Path, text: str) -> None:
        """Write a text to a file of /sys, with the kernel's effects or its OSError."""
        self.writes.append((path.name, text))
        if self.readonly:
            raise _error(errno.EROFS)
        if not path.exists():
            raise _error(errno.ENOENT)
        if path.name == AUTOPROBE:
            if text not in {"0", "1"}:
                raise _error(errno.EINVAL)
            path.write_text(f"{text}\n")
        elif path.name == NUMBER:
            self._set(path.parent, text)
        elif path.name == PROBE:
            self._probe(PciAddress(text))
        else:
            raise _error(errno.EACCES)

    def probe(self) -> None:
        """Bind drivers to the functions that wait because the drivers were `slow`."""
        waiting, self._waiting = self._waiting, []
        for function in waiting:
            self._bind(function)

    def reboot(self) -> None:
        """Reboot the node, which removes every virtual function."""
        for number in self._functions.glob(f"*/{NUMBER}"):
            self._remove(number.parent)
            number.write_text("0\n")
            (number.parent / AUTOPROBE).write_text("1\n")

    def _set(self, card: Path, text: str) -> None:
        if not text.isdecimal() or int(text) > 0xFFFF:
            raise _error(errno.EINVAL)
        count, now = int(text), int((card / NUMBER).read_text())
        if count > int((card / "sriov_totalvfs").read_text()):
            raise _error(errno.ERANGE)
        if count == now:
            return
        driver = card / "driver"
        if not driver.exists() or driver.resolve().name in self.unable:
            raise _error(errno.ENOENT)
        if count and now:
            raise _error(errno.EBUSY)
        if count > self.room:
            raise _error(errno.ENOMEM)
        if now and card.name in self.assigned:
            raise _error(errno.EPERM)
        if count:
            self._add(card, count)
        else:
            self._remove(card)
        (card / NUMBER).write_text(f"{count}\n")

    def _add(self, card: Path, count: int) -> None:
        place = card.resolve().relative_to(self._root.resolve()).as_posix()
        pci = PciTree(SysfsTree(self._root))
        above, ids = pci.position(place), pci.ids(place)
        assert above
        assert ids
        name = next((path.name for path in card.glob("net/*")), None)
        driver = (card / "driver").resolve().name
        probed = (card / AUTOPROBE).read_text() == "1\n"
        for index in range(count):
            own = _address(above.pci, index)
            position = PciPosition(
                own, above.root, (*above.path[:-1], own), above.numa_node, above.pci
            )
            netdevs = (Netdev(f"{name}v{index}", "ether", False, None),) if name else ()
            bound = Function(
                position, ids[0], ids[1] + 1, _DRIVERS.get(driver, driver), netdevs, vf_index=index
            )
            add_virtual(self._root, Function(position, ids[0], ids[1] + 1, None, vf_index=index))
            self._driverless[own] = bound
            if probed:
                self._probe(own)

    def _probe(self, own: PciAddress) -> None:
        """Let a driver bind a function, if the function is there and its card allows it."""
        function = self._driverless.get(own)
        if function is None or (self._card(function) / AUTOPROBE).read_text() != "1\n":
            return
        if self.slow:
            self._waiting.append(function)
        else:
            self._bind(function)

    def _bind(self, function: Function) -> None:
        own = function.position.pci
        if self._driverless.pop(own, None):
            remove_virtual(self._root, self._link(function))
            add_virtual(self._root, function)
            self.addresses[own] = self._given_addresses.get(own) or f"random {next(self._random)}"

    def _remove(self, card: Path) -> None:
        for link in sorted(card.glob("virtfn*")):
            for by_function in (self._driverless, self._given_addresses, self.addresses):
                by_function.pop(PciAddress(link.resolve().name), None)
            remove_virtual(self._root, link)
        self._waiting = [one for one in self._waiting if self._link(one).is_symlink()]

    def _card(self, function: Function) -> Path:
        return self._functions / str(function.position.physical_function)

    def _link(self, function: Function) -> Path:
        return self._card(function) / f"virtfn{function.vf_index}"


def _address(card: PciAddress, index: int) -> PciAddress:
    """Return a virtual function's address: its card's plus an offset and `index` strides."""
    bus, _, last = card.rpartition(":")
    slot, _, number = last.partition(".")
    devfn = (int(slot, 16) << 3 | int(number)) + _OFFSET + _STRIDE * index
    return PciAddress(f"{bus}:{devfn >> 3:02x}.{devfn & 7}")


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
