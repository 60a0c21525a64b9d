"""Binds the driver of a virtual function anew, and awaits its port and partitions: InfiniBand.

pod/steps.py calls it. mlx5 asks for the GUIDs of a function when it probes, so new ones count from
the next binding on. Unbinding ends the RDMA device and the interface, wherever they are, and
binding makes them on the node, under names that udev may change yet. The lock of functions.py
allows one change of a card at a time. The files are in Documentation/ABI/testing/sysfs-bus-pci
(bind, unbind) and stable/sysfs-class-infiniband (node_guid, state, pkeys). The fake is
kube_rdma_testing/kernel/network_rdma.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.kernel.locks import waited
from kube_rdma.adapters.kernel.netlink.rtnl_vf import NO_GUIDS
from kube_rdma.adapters.kernel.pod.errors import inactive_port, no_partition
from kube_rdma.adapters.kernel.pod.gids import DEVICES
from kube_rdma.adapters.kernel.sriov.functions import locked, write_attribute
from kube_rdma.model.attach.steps import AwaitPartition
from kube_rdma.model.device import PciAddress, PortState
from kube_rdma.model.pools import RebindFunction

PATIENCE = 30.0  # seconds; a function of mlx5 takes one to three
FABRIC_PATIENCE = 10.0  # seconds; a subnet manager sweeps every few seconds


class FunctionDrivers(Frozen):
    """Access to virtual functions' drivers in the sysfs whose class/infiniband is `devices`.

    `write` and the patience, in seconds, are for tests.
    """

    devices: Path = DEVICES
    write: Callable[[Path, str], None] = write_attribute
    patience: float = PATIENCE
    fabric_patience: float = FABRIC_PATIENCE
    lock_patience: float = 60.0  # many functions of the card may be bound just now

    @property
    def _bus(self) -> Path:
        return self.devices.parent.parent / "bus/pci"

    def rebind(self, step: RebindFunction) -> None:
        """Unbind and bind a function's driver, unless its RDMA device has the wanted GUID.

        Wait until it has that GUID and an interface. Raise Refused when /sys may not be written,
        Unavailable when the function is gone, busy, or does not come up in time.
        """
        devices = self._bus / "devices"
        with locked(devices / step.physical, step.physical, self.lock_patience):
            if not (devices / step.pci).exists():
                raise Unavailable(f"the virtual function {step.pci} is gone")
            bound = self._driver(step)
            if bound not in (None, step.driver):
                raise Unavailable(
                    f"the driver of {step.pci} is {bound} by now, not {step.driver}: another "
                    "program uses this function"
                )
            if not (bound and self._has(step)):
                if bound:
                    self._write_driver(step, "unbind")
                self._write_driver(step, "bind")
            self._await(step)

    def await_partition(self, step: AwaitPartition, inside: Path | None) -> None:
        """Wait until a port of the function is a member of an InfiniBand partition.

        `inside` is the device's folder where a pod has it. Raise Refused if no port is a member in
        time.
        """

        def joined() -> bool:
            return step.pkey in {key & 0x7FFF for key in self._partitions(step, inside)}

        if not waited(joined, self.fabric_patience):
            raise no_partition(step, sorted(set(self._partitions(step, inside)) - {0}))

    def await_port(self, pci: PciAddress, inside: Path | None) -> None:
        """Wait until a port of the function is ACTIVE; raise Refused with its state if not in time.

        `inside` is the device's folder where a pod has it.
        """
        if not waited(lambda: PortState.ACTIVE in self._states(pci, inside), self.fabric_patience):
            raise inactive_port(pci, tuple(self._states(pci, inside)), self.fabric_patience)

    def _states(self, pci: PciAddress, inside: Path | None) -> Iterator[str]:
        """Yield the state of each port of the function, such as ACTIVE."""
        for file in self._port_files(pci, inside, "state"):
            with suppress(OSError):
                yield file.read_text().strip().partition(": ")[2]

    def _port_files(self, pci: PciAddress, inside: Path | None, name: str) -> Iterator[Path]:
        """Yield the files of this name of the function's ports, on the node and in the pod."""
        yield from (self._bus / "devices" / pci / "infiniband").glob(f"*/ports/*/{name}")
        yield from inside.glob(f"ports/*/{name}") if inside else ()

    def _driver(self, step: RebindFunction) -> str | None:
        try:
            return (self._bus / "devices" / step.pci / "driver").resolve(strict=True).name
        except OSError:
            return None

    def _write_driver(self, step: RebindFunction, file: str) -> None:
        try:
            self.write(self._bus / "drivers" / step.driver / file, step.pci)
        except OSError as error:
            bound = self._driver(step) is not None
            if bound is not (file == "bind"):  # as it should be: somebody was faster
                raise _judged(step, file, error) from error

    def _has(self, step: RebindFunction) -> bool:
        # Zeros and ones both mean that there is no GUID.
        wanted = NO_GUIDS if step.guid in NO_GUIDS else {step.guid}
        return not wanted.isdisjoint(self._guids(step))

    def _guids(self, step: RebindFunction) -> Iterator[str]:
        folder = self._bus / "devices" / step.pci / "infiniband"
        with suppress(OSError):
            for device in folder.iterdir():
                digits = (device / "node_guid").read_text().strip().replace(":", "")
                yield ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))

    def _await(self, step: RebindFunction) -> None:
        interfaces = self._bus / "devices" / step.pci / "net"

        def ready() -> bool:
            return self._has(step) and interfaces.is_dir() and any(interfaces.iterdir())

        if not waited(ready, self.patience):
            guids = ", ".join(self._guids(step))
            has = f"an RDMA device with the GUID {guids}" if guids else "no RDMA device"
            raise Unavailable(
                f"{step.pci} is not ready {self.patience:g} s after its driver was bound: it has "
                f"{has}, and it should have the GUID {step.guid} and an interface; dmesg may say "
                "why"
            )

    def _partitions(self, step: AwaitPartition, inside: Path | None) -> Iterator[int]:
        for table in self._port_files(step.pci, inside, "pkeys"):
            for name in os.listdir(table):  # noqa: PTH208  # only the names
                with suppress(OSError, ValueError):
                    yield int((table / name).read_text(), 16)


def _judged(step: RebindFunction, file: str, error: OSError) -> KubeError:
    if error.errno in (errno.EROFS, errno.EACCES):
        return Refused(
            f"the driver of {step.pci} is bound again in /sys, which may not be written "
            f"({error.strerror})",
            remedy="Mount the host's /sys into the agent's container for writing, without "
            "AppArmor's profile",
            where=step.pci,
        )
    return Unavailable(
        f"the kernel does not {file} {step.driver} for {step.pci} ({error.strerror}): dmesg may "
        "say why"
    )
