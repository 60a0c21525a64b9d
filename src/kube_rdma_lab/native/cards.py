"""The cards of a native node: a machine's tree as its /sys, with device nodes and interfaces.

Written by the supervisor before the node starts; node/native/init mounts the folder, makes the
device nodes and takes the interfaces. The folder stays writable from outside, so what happens to a
card later is a change of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import CharDevice
from kube_rdma_lab.native import trees

NETDEVS = "class/net"
VIRTUAL = "devices/virtual/net"
# Interfaces of every node, with or without a tree. Their folders are empty: netlink describes them.
OWN = ("lo", "eth0")
# What programs look for besides cards: node/native/init mounts it from the kernel's own /sys.
PARTS = ("devices/system", "kernel", "module")
CGROUPS = "fs/cgroup"


@dataclass(frozen=True, slots=True)
class Cards:
    """The network interfaces and device nodes that a native node needs for its sysfs tree."""

    interfaces: tuple[str, ...] = ()
    devices: tuple[CharDevice, ...] = ()


def write(tree: str, folder: Path) -> Cards:
    """Write the tree `tree` as a node's /sys into the new folder `folder`; return its cards."""
    trees.write(tree, folder)
    cards = read(folder)
    for path in (*PARTS, CGROUPS, VIRTUAL, NETDEVS):
        (folder / path).mkdir(parents=True, exist_ok=True)
    for name in OWN:
        link = folder / NETDEVS / name
        if not link.is_symlink():
            (folder / VIRTUAL / name).mkdir(exist_ok=True)
            link.symlink_to(f"../../{VIRTUAL}/{name}")
    return cards


def read(folder: Path) -> Cards:
    """Return the interfaces and device nodes that a written sysfs tree needs.

    Bonds, bridges and other virtual interfaces are left out.
    """
    survey = read_survey(folder)
    interfaces = [
        path.name
        for path in sorted((folder / NETDEVS).glob("*"))
        if path.name not in OWN and not path.resolve().is_relative_to((folder / VIRTUAL).resolve())
    ]
    devices = [char for device in survey.devices for char in device.char_devices]
    manager = (survey.rdma_cm,) if survey.rdma_cm else ()
    return Cards(tuple(interfaces), (*devices, *manager))
