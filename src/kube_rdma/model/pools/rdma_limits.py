"""What a share may take of an RDMA device, and what a pod takes of one.

The kernel counts two things (kernel/cgroup/rdma.c): handles, one for each time that a program opens
a device, and objects. An object is a queue pair, memory region, completion queue, protection
domain, or any other that verbs make on the device; all kinds have one limit together. A NodePolicy
has the limits (pools/documents/policy_limits), pools/rules/share_limits adds up those of a pod's
shares, adapters/kernel/cgroups/rdma writes them and reads them back.
"""

from __future__ import annotations

from kube_base.frozen import Frozen

MOST = 2**31 - 2
"""The largest limit: the kernel keeps an int, and its largest one means no limit (S32_MAX)."""


class RdmaLimits(Frozen):
    """How many handles and objects; None: no limit."""

    handles: int | None = None
    objects: int | None = None


class DeviceLimits(Frozen):
    """What a pod may take of a device, by its current name."""

    device: str
    limits: RdmaLimits


class DeviceUse(Frozen):
    """What a pod takes of a device now."""

    device: str
    handles: int
    objects: int


class PodDeviceUse(Frozen):
    """The same of a pod by its name, with what it may take."""

    namespace: str
    pod: str
    use: DeviceUse
    limits: RdmaLimits
