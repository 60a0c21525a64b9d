"""What images of the cards' driver are called, and what they need of their pod, by release.

    image and version of a policy ─► contract_of ─► operator/rules/driver_sets

The rows are NVIDIA's operator's at its tags: manifests/sta(g|t)e-ofed-driver and state_ofed.go of
Mellanox/network-operator. An image's name and version tell the row, as no field of a policy does.
"""

from __future__ import annotations

import re

from kube_base.frozen import Frozen
from kube_rdma.model.operator.cluster_policy import ComponentImage

VENDOR_LABEL = "nvidia.com/ofed-driver"  # by it the vendor's own drivers keep off a node
_FIRST_NAME = "ofed-driver"
_LATER_NAMES = ("mofed", "doca-driver")
_NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})(?:[.-]|$)")


class HostFolder(Frozen):
    """A folder or file of the node, and where the container has it; `kind` as of a hostPath."""

    name: str
    host: str
    mount: str
    propagation: str = ""
    read_only: bool = False
    kind: str = "DirectoryOrCreate"


class DriverContract(Frozen):
    """One row: the forms of an image's name, and the pod that the image is made for.

    `kernel_form` is that of images that were built for one kernel, "" where `form` has the kernel
    already, or no such images are known. `ready` is the file that an image makes when its modules
    are loaded.
    """

    releases: str
    form: str
    container: str
    ready: str
    folders: tuple[HostFolder, ...]
    kernel_form: str = ""
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    levelled: bool = True  # the container has the SELinux level s0


DRIVER_FILES = "/run/mellanox/drivers"  # headers and modules, for the peer-memory driver
_SHARED = HostFolder("run-mofed", DRIVER_FILES, DRIVER_FILES, "Bidirectional")
_NETWORK = HostFolder("etc-network", "/etc/network", "/etc/network")
_OF_1 = (
    _SHARED,
    _NETWORK,
    HostFolder("host-etc", "/etc", "/host/etc", kind=""),
    HostFolder("host-usr", "/usr", "/host/usr", kind=""),
    HostFolder("host-udev", "/lib/udev", "/host/lib/udev", kind=""),
)
_OF_23 = (
    *_OF_1,
    HostFolder("host-run-udev", "/run/udev", "/run/udev", read_only=True, kind=""),
    HostFolder("host-lib-modules", "/lib/modules", "/host/lib/modules", kind=""),
)
_INVENTORY = "/mnt/drivers-inventory"
_IB_CORE = "/etc/modprobe.d/ib_core.conf"
_OF_26 = (
    *_OF_23,
    HostFolder("drivers-inventory", "/var/opt/mofed-container/inventory", _INVENTORY),
    HostFolder("host-ib-core", _IB_CORE, _IB_CORE, kind="FileOrCreate"),
    HostFolder("dev-infiniband", "/dev/infiniband", "/dev/infiniband"),
)
_BY_VERSION = "{repository}/{image}-{version}"
_BY_TAG = "{repository}/{image}:{version}"
_LABELS = ((VENDOR_LABEL, ""),)

OF_0_1 = DriverContract(
    "0.1.0",
    f"{_BY_VERSION}:{{architecture}}-{{system}}-kver{{kernel}}",
    "ofed-driver-container",
    "/.driver-ready",
    (_SHARED, _NETWORK),
    levelled=False,
)
OF_1 = DriverContract(
    "0.2 to 1.2",
    f"{_BY_VERSION}:{{system}}-{{architecture}}",
    "mofed-container",
    "/.driver-ready",
    _OF_1,
    labels=_LABELS,
)
OF_23 = DriverContract(
    "1.3 to 24.1",
    f"{_BY_TAG}-{{system}}-{{architecture}}",
    "mofed-container",
    "/.driver-ready",
    _OF_23,
    env=(("CREATE_IFNAMES_UDEV", "true"),),
    labels=_LABELS,
)
OF_26 = DriverContract(
    "24.4 to 26.7",
    f"{_BY_TAG}-{{system}}-{{architecture}}",
    "mofed-container",
    f"{DRIVER_FILES}/.driver-ready",
    _OF_26,
    kernel_form=f"{_BY_TAG}-{{kernel}}-{{system}}-{{architecture}}",
    env=(
        ("CREATE_IFNAMES_UDEV", "true"),
        ("NVIDIA_NIC_DRIVERS_INVENTORY_PATH", _INVENTORY),
    ),
    labels=_LABELS,
)
CONTRACTS = (OF_0_1, OF_1, OF_23, OF_26)
CONTAINERS = tuple(dict.fromkeys(row.container for row in CONTRACTS))

# From which version of an image a row counts: 24.04-0.4.0.0-0 moved the file (a92dae57 of
# Mellanox/network-operator), 5.7-0.1.2.0 the version (newMofedImageFormatVersion of its v1.3.0).
_SINCE = (((24, 4), OF_26), ((5, 7), OF_23))


def contract_of(image: ComponentImage) -> DriverContract:
    """The row of an image: by its name where that was used for one row alone, else by its version.

    A digest says no version: then doca-driver is of the last row, and mofed of the one before. An
    image of another name, as people build them, is of 0.1.0 unless its version is a later one's.
    """
    if image.image == _FIRST_NAME:
        return OF_0_1
    if image.digest:
        return {"doca-driver": OF_26, "mofed": OF_23}.get(image.image, OF_0_1)
    if image.version.startswith("doca"):  # doca3.5.0-26.07-0.7.0.0-0, since 25.7
        return OF_26
    numbers = _NUMBERS.match(image.version)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    for first, row in _SINCE:
        if version >= first:
            return row
    return OF_1 if image.image in _LATER_NAMES else OF_0_1
