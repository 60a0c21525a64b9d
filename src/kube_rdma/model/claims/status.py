"""What the status of a claim says of a device that kube-rdma gave for it (status.devices).

claims/rules/status says it of a booking and of what its pod's networks made; adapters/cluster
writes it. Fields are those of AllocatedDeviceStatus (k8s.io/api@v0.36.3, resource/v1/types.go).
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class DeviceCondition(Frozen):
    """A condition of a device. `reason` is one word for programs, `message` a sentence."""

    type: str
    holds: bool
    reason: str
    message: str


class DeviceStatus(Frozen):
    """One device of a claim. `interface` "" is none in a pod; `addresses` are CIDRs."""

    pool: str
    device: str
    share_id: str | None
    conditions: tuple[DeviceCondition, ...]
    interface: str = ""
    addresses: tuple[str, ...] = ()
    mac: str = ""
