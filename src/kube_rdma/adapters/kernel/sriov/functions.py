"""Makes and removes the virtual functions of a card, and gives them addresses.

pools/rules/functions plans a SetFunctions, the agent runs it here in a thread, one change of a card
at a time. The kernel takes a number in sriov_numvfs only while that is 0 (sriov_numvfs_store,
drivers/pci/iov.c), so a change goes by way of zero. A function that gets an address gets its driver
afterwards, for a driver asks for the address once. Other programs can lock the card's folder in
sysfs too; against those that do not, the number is read again under the lock. The files are in
Documentation/ABI/testing/sysfs-bus-pci. The fake is kube_rdma_testing/kernel/sriov.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.os_files import closed_after
from kube_rdma.adapters.kernel import locks
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface, interfaces, open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_vf import set_function
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.model import pools
from kube_rdma.model.device import PlannedHostLink

NUMBER, AUTOPROBE = "sriov_numvfs", "sriov_drivers_autoprobe"
PROBE = "drivers_probe"  # of the bus: binds a driver to the function whose address is written
PATIENCE = 30.0  # seconds for the drivers of new functions, whose module udev may have to load

_MADE = ("net", "infiniband")  # what a driver makes of a network function, as folders in it

log = structlog.get_logger()


def write_attribute(path: Path, text: str) -> None:
    """Write a file of sysfs in one system call; raise OSError if the kernel refuses."""
    with closed_after(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as descriptor:
        os.write(descriptor, text.encode())


class SriovCards(Frozen):
    """The cards in one sysfs whose virtual functions can be made and removed.

    `write` and the patience, in seconds, are for tests. `give` sets the addresses of the functions
    with the given numbers, and may raise KubeError. Without `give`, drivers choose addresses.
    """

    root: Path = Path("/sys")
    write: Callable[[Path, str], None] = write_attribute
    give: Callable[[pools.SetFunctions, Sequence[int]], None] | None = None
    patience: float = PATIENCE
    lock_patience: float = 10.0

    def make(self, act: pools.SetFunctions) -> None:
        """Make or remove virtual functions, until a card has as many as wanted.

        A second call only gives addresses and drivers to functions that have no driver. Raise
        Refused for what the card, its driver or the machine cannot do, and where /sys cannot be
        written. Raise Unavailable when the card is gone or busy, has another number than `act`
        says, or its functions do not come up in time. Functions that are late stay.
        """
        place = self.root / "bus/pci/devices" / act.physical
        with locked(place, act.name, self.lock_patience):
            now = _number(place, act)
            if now not in {act.now, act.wanted}:
                raise Unavailable(
                    f"{act.name} has {now} virtual functions by now, not {act.now}: another "
                    "program changes them too."
                )
            if now != act.wanted:
                self._change(place, act, now)
            existing = [n for n in range(act.wanted) if (place / f"virtfn{n}").exists()]
            waiting = [n for n in existing if not (place / f"virtfn{n}/driver").exists()]
            if self.give and waiting:
                try:
                    self.give(act, waiting)
                except KubeError as error:
                    log.warning("function addresses not set", card=act.name, why=str(error))
            if act.autoprobe:
                self._bind(place, act, waiting)
            if (made := _number(place, act)) != act.wanted:
                raise Unavailable(
                    f"the driver of {act.name} made {made} of {act.wanted} virtual functions: "
                    "dmesg may say why."
                )
            self._await(place, act, set(waiting if now == act.wanted else range(act.wanted)))

    def _change(self, place: Path, act: pools.SetFunctions, now: int) -> None:
        """Set the number of virtual functions; ones that get addresses stay without drivers."""
        try:
            self._switch(place, act, on=act.autoprobe and not (self.give and act.wanted))
            if now:
                self.write(place / NUMBER, "0")
            if act.wanted:
                self.write(place / NUMBER, str(act.wanted))
        except OSError as error:
            with suppress(OSError):
                self._switch(place, act, on=act.autoprobe)
            raise _judged(place, act, error) from error

    def _bind(self, place: Path, act: pools.SetFunctions, waiting: Sequence[int]) -> None:
        """Let the kernel bind drivers to all functions, also to those that have none yet."""
        try:
            self._switch(place, act, on=True)
        except OSError as error:
            raise _judged(place, act, error) from error
        for index in waiting:
            try:
                self.write(self.root / "bus/pci" / PROBE, (place / f"virtfn{index}").resolve().name)
            except OSError as error:
                if error.errno in (errno.EROFS, errno.EACCES):
                    raise _judged(place, act, error) from error
                # Its driver does not like it; that is found out in a moment.

    def _switch(self, place: Path, act: pools.SetFunctions, *, on: bool) -> None:
        """Set whether the kernel binds drivers to new functions; before 4.12 it always does."""
        wanted, switch = str(int(on)), place / AUTOPROBE
        try:
            now = switch.read_text().strip()
        except FileNotFoundError:
            if not act.autoprobe:
                problem = "this kernel always binds drivers to virtual functions"
                remedy = 'Remove "autoprobe": false, or take Linux 4.12 or newer'
                raise Refused(problem, remedy=remedy, where=act.name) from None
            return
        if now != wanted:
            self.write(switch, wanted)

    def _await(self, place: Path, act: pools.SetFunctions, missing: set[int]) -> None:
        """Wait until each of these functions has been ready once: a pod may have taken one since.

        The kernel announces functions, but a wait for all of them has to look at each anyway.
        """

        def ready() -> bool:
            missing.difference_update([n for n in missing if _ready(place, n, act.autoprobe)])
            return not missing

        if not locks.waited(ready, self.patience):
            raise _unready(place, act, missing, self.patience)


def _ready(place: Path, index: int, autoprobe: bool) -> bool:
    function = place / f"virtfn{index}"
    if not autoprobe:
        return function.exists()
    return (function / "driver").exists() and any(
        next((function / folder).glob("*"), None) for folder in _MADE
    )


def _unready(
    place: Path, act: pools.SetFunctions, missing: set[int], patience: float
) -> Unavailable:
    first = min(missing)
    function = place / f"virtfn{first}"
    lacks = "no driver" if not (function / "driver").exists() else "neither interface nor RDMA"
    lacks = lacks if function.exists() else "no PCI function"
    return Unavailable(
        f"{len(missing)} of {act.wanted} virtual functions of {act.name} are not ready after "
        f"{patience:g} s, number {first} has {lacks}: load the module of its driver, dmesg may say "
        "why it does not bind."
    )


def locked(place: Path, name: str, patience: float) -> AbstractContextManager[None]:
    """Lock a card against other processes that change its virtual functions.

    The lock ends with the process that has it.
    """
    busy = (
        f"another process has changed the virtual functions of {name} for {patience:g} s; it is "
        "tried again."
    )
    return locks.locked(place, patience, busy, _gone(name))


def _number(place: Path, act: pools.SetFunctions) -> int:
    try:
        return int((place / NUMBER).read_text())
    except (OSError, ValueError) as error:
        raise _gone(act.name) from error


def _gone(name: str) -> Unavailable:
    return Unavailable(f"{name} is gone, or shows no SR-IOV any more.")


def _judged(place: Path, act: pools.SetFunctions, error: OSError) -> KubeError:
    """Return the error for an errno of the sysfs files that change virtual functions."""
    if not (place / NUMBER).exists():
        return _gone(act.name)
    if error.errno == errno.EBUSY:
        return Unavailable(f"{act.name} is busy: a program changes or uses its virtual functions.")
    if error.errno not in _MEANINGS:
        return Unavailable(
            f"the kernel does not give {act.name} {act.wanted} virtual functions "
            f"({error.strerror}): dmesg may say why."
        )
    problem, remedy = _MEANINGS[error.errno]
    return Refused(f"{problem} ({error.strerror})", remedy=remedy, where=act.name)


_READ_ONLY = (
    "the virtual functions of a card are changed in /sys, which may not be written",
    "Mount the host's /sys into the agent's container for writing, without AppArmor's profile",
)
_NO_ROOM = (
    "the machine does not have the addresses or bus numbers for so many virtual functions",
    "Turn on SR-IOV and large BARs in the machine's firmware, boot with pci=realloc, or write less",
)
_NO_DRIVER = (
    "its driver makes no virtual functions",
    "Turn SR-IOV on in the card's firmware, or load a driver that makes them",
)
_MEANINGS = {
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: (
        "its driver does not allow it now",
        "End the virtual machines that have one of its functions, dmesg may say more",
    ),
    errno.ENOMEM: _NO_ROOM,  # sriov_enable: "not enough MMIO resources", bus number out of range
    errno.ENOSPC: _NO_ROOM,
    errno.ENOENT: _NO_DRIVER,  # no driver, or one without sriov_configure; ENOSYS before 4.18
    errno.ENOSYS: _NO_DRIVER,
    errno.ERANGE: ("it cannot have so many virtual functions", "Write what sriov_totalvfs says"),
}


# Addresses of virtual functions: a MAC, on InfiniBand the GUIDs.

_MAC, _GUID = 6, 8  # octets
_PORT = 23  # characters of the GUID at the end of an IPoIB interface's address


def give_addresses(act: pools.SetFunctions, numbers: Sequence[int]) -> None:
    """Set the addresses of the virtual functions of these numbers, at the physical function.

    Raise Refused for what its driver does not take, Unavailable when it has no interface here.
    """
    with open_rtnl() as node:
        tell(node, act, numbers)


def tell(node: Netlink, act: pools.SetFunctions, numbers: Sequence[int]) -> None:
    """Set addresses of virtual functions through the node's netlink socket, as give_addresses."""
    above = _interface(node, act)
    for number in numbers:
        place = pools.FunctionPlace(
            PlannedHostLink(above.seen.index, above.seen.name), act.physical, number
        )
        set_function(
            node, pools.SetFunction(place, settings(above, number), pools.FunctionSettings())
        )


def settings(above: Interface, number: int) -> pools.FunctionSettings:
    """Return the settings that give a virtual function its own MAC, or GUIDs on InfiniBand."""
    if above.hardware == INFINIBAND:
        guid = made_of(above.seen.mac[-_PORT:], number, _GUID)
        return pools.FunctionSettings(
            link_state=pools.LinkState.AUTO, node_guid=guid, port_guid=guid
        )
    return pools.FunctionSettings(mac=made_of(above.permanent_mac or above.seen.mac, number, _MAC))


def made_of(own: str, number: int, octets: int) -> str:
    """Return an address derived from a card's own and a number, marked as locally administered."""
    address = bytearray(blake2b(f"{own.lower()}/{number}".encode(), digest_size=octets).digest())
    address[0] = address[0] & 0xFC | 0x02
    return address.hex(":")


def _interface(node: Netlink, act: pools.SetFunctions) -> Interface:
    """Return the card's interface, by its name where the kernel tells no PCI function."""
    candidates = [one for one in interfaces(node) if not one.seen.virtual]
    at_function = (one for one in candidates if one.seen.pci == act.physical)
    by_name = (one for one in candidates if one.seen.pci is None and one.seen.name == act.name)
    if interface := next(chain(at_function, by_name), None):
        return interface
    raise Unavailable(f"{act.name} has no interface here, so the addresses cannot be set.")
