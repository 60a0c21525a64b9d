"""What people read in a claim: whether its devices are prepared, and what the network made.

    booking, interfaces of the pod ─► DeviceStatus ─► status.devices of the ResourceClaim

An interface belongs to the device whose card it stands on. The device of a whole pool may have
several: the first counts for the network data, which has room for one, and the message names all.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.claims.prepared import ClaimShare, PreparedClaim
from kube_rdma.model.claims.status import DeviceCondition, DeviceStatus

READY, NETWORK_READY = "Ready", "NetworkReady"
MOST_ADDRESSES = 16  # of networkData.ips


def statuses(
    prepared: PreparedClaim, interfaces: Sequence[Attached] = ()
) -> tuple[DeviceStatus, ...]:
    """The status of every device of a booking whose pod has these interfaces."""
    return tuple(_status(share, _of(share, interfaces)) for share in prepared.shares)


def addresses(interface: Attached) -> tuple[str, ...]:
    """The addresses of an interface, as networkData has them."""
    texts = (f"{one.address}/{one.prefix}" for one in interface.addresses)
    return tuple(dict.fromkeys(texts))[:MOST_ADDRESSES]


def _of(share: ClaimShare, interfaces: Sequence[Attached]) -> list[Attached]:
    """The interfaces on cards of the share; of a look at a device (adminAccess) there is none."""
    return [] if share.admin else [one for one in interfaces if one.card in share.cards]


def _status(share: ClaimShare, interfaces: Sequence[Attached]) -> DeviceStatus:
    conditions = (_prepared(share), _attached(share, interfaces))
    status = DeviceStatus(share.pool, share.device, share.share_id, conditions)
    if not interfaces:
        return status
    first = interfaces[0]
    return DeviceStatus(
        share.pool,
        share.device,
        share.share_id,
        conditions,
        first.interface,
        addresses(first),
        first.mac,
    )


def _prepared(share: ClaimShare) -> DeviceCondition:
    if share.cdi and not share.char_paths:
        message = "Its containers get the device nodes when the pod's network is attached."
        return DeviceCondition(READY, holds=False, reason="WaitsForNetwork", message=message)
    nodes = ", ".join(share.char_paths) or "no device node"
    message = f"Containers get {nodes} of {', '.join(share.cards)}."
    return DeviceCondition(READY, holds=True, reason="Prepared", message=message)


def _attached(share: ClaimShare, interfaces: Sequence[Attached]) -> DeviceCondition:
    if not interfaces:
        message = f"No network of its pod is attached to {', '.join(share.cards)}."
        return DeviceCondition(NETWORK_READY, holds=False, reason="NotAttached", message=message)
    message = "; ".join(
        f"{one.interface} of network {one.network} has {', '.join(addresses(one)) or 'no address'}"
        for one in interfaces
    )
    return DeviceCondition(NETWORK_READY, holds=True, reason="Attached", message=f"{message}.")
