"""Devices of dynamic resource allocation: as drivers publish them, and as containers hold them.

adapters/cluster/kinds reads slices and claims, adapters/kubelet what containers hold; claims/rules
joins them with the survey. The three names of a device are what KEP-4381 makes it unique by.
"""

from __future__ import annotations

from kube_base.frozen import Frozen

DRIVER = "rdma.kube-rdma.io"
"""The name of kube-rdma's own driver, in slices, claims and their configuration."""


class SliceDevice(Frozen):
    """A device of a ResourceSlice: its driver, its pool, and its name in the pool."""

    driver: str  # gpu.nvidia.com
    pool: str  # often the node's name
    name: str  # gpu-0


class PublishedCard(Frozen):
    """What a driver's attributes say of a network card; "" is not said.

    `name` is the device's in its pool, `pci` its function in the form of sysfs, `rdma` its RDMA
    device and `interface` its interface as the driver saw them before a pod had the card. `capable`
    says whether it has RDMA, None where the driver does not.
    """

    name: str
    pci: str = ""
    rdma: str = ""  # mlx5_0
    interface: str = ""  # ens1f0np0
    capable: bool | None = None


class DeviceSlice(Frozen):
    """A ResourceSlice of a node, as far as it says where devices sit.

    `addresses` has for each device the PCI addresses among its attributes, lower case, in the form
    of sysfs (``0000:81:00.0``). A slice counts only while no other of its pool has a higher
    `generation`. `cards` are those of its devices that may be network cards.
    """

    driver: str
    pool: str
    generation: int
    addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cards: tuple[PublishedCard, ...] = ()


class ClaimedDevice(Frozen):
    """A device that a container holds by a ResourceClaim, as the kubelet knows it."""

    namespace: str
    pod: str
    container: str
    device: SliceDevice


class ClaimedPod(Frozen):
    """A pod that names ResourceClaims: the claims by name, and the extended resources it asks for.

    A claim that is not made yet has no name and is left out.
    """

    namespace: str
    name: str
    claims: tuple[str, ...]
    resources: tuple[str, ...] = ()
