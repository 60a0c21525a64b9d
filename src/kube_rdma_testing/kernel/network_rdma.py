"""RDMA devices of network.py: made, removed, moved, and bound anew.

network_pod.py runs its Steps with it. An InfiniBand device has its own IPoIB interface. When the
device moves or is bound anew, the interface ends. A new one appears on the node under the next free
number (ipoib_add_port in drivers/infiniband/ulp/ipoib/ipoib_main.c).
"""

from __future__ import annotations

import errno

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.rtnl_vf import NO_GUIDS
from kube_rdma.adapters.kernel.pod.errors import (
    INFINIBAND,
    inactive_port,
    judged,
    no_device,
    no_partition,
    rdma_taken,
    unmovable,
)
from kube_rdma.adapters.kernel.sriov.rebind import FABRIC_PATIENCE
from kube_rdma.model.attach.steps import (
    AwaitPartition,
    GiveBackRdma,
    MoveRdma,
    RemoveLink,
    RemoveLinks,
    RemoveRdma,
    RestoreRdma,
)
from kube_rdma.model.device import PciAddress, PortState
from kube_rdma.model.pools import FunctionSettings, LinkState, RebindFunction
from kube_rdma_testing.kernel.network import FakeLink, FakeNetwork, FakeRdma, FakeSpace, refusal


def named(net: FakeNetwork, name: str) -> FakeRdma | None:
    """Return the RDMA device of this name, None without one."""
    return next((device for device in net.rdma if device.name == name), None)


def make(net: FakeNetwork, name: str, link: FakeLink) -> None:
    """Make a soft RDMA device on a link, unless it exists.

    Raise Refused if another one has its name or link.
    """
    for device in net.rdma:
        if device.name == name and device.on is link:
            return
        if device.on is link or device.name == name:
            raise rdma_taken(name, link.name, device.name if device.on is link else None)
    net.rdma.append(FakeRdma(name, link, True, net.node))
    net.message()


def restore(net: FakeNetwork, undo: RestoreRdma) -> None:
    """Make a soft RDMA device on a node's link, unless it exists.

    Raise Refused as `make` does, and KubeError without the link.
    """
    link = net.named(net.node, undo.link.name)
    if link is None:
        raise judged(f"the soft RDMA device {undo.name}", refusal(errno.ENODEV))
    make(net, undo.name, link)


def remove(net: FakeNetwork, undo: RemoveRdma, pod: FakeSpace) -> None:
    """Remove a soft RDMA device whose link is in the pod."""
    device = named(net, undo.name)
    if device and device.soft and device.on.space is pod:
        net.rdma.remove(device)
        net.message()


def move(net: FakeNetwork, step: MoveRdma, pod: FakeSpace) -> None:
    """Move an RDMA device to the pod, as in kernel/netlink/rdma_write.py."""
    device = _find(net, step)
    if device.space is pod:
        return
    if device.soft or net.shared:
        raise unmovable(step.device)
    _change(net, device, pod)


def give_back(net: FakeNetwork, undo: GiveBackRdma, pod: FakeSpace) -> None:
    """Move an RDMA device from the pod to the node, as in kernel/netlink/rdma_write.py."""
    device = _find(net, undo)
    if device.space is pod:
        _change(net, device, net.node)


def rebind(net: FakeNetwork, act: RebindFunction, pod: FakeSpace | None = None) -> None:
    """Rebind a function to its driver, unless its device in node or `pod` has the wanted GUID."""
    device = _at(net, act.pci)
    if device is None and act.pci not in net.bare:
        raise Unavailable(f"the virtual function {act.pci} is gone")
    if device:
        reachable = device.space in (net.node, pod)
        if reachable and (device.guid == act.guid or {device.guid, act.guid} <= NO_GUIDS):
            return
        net.bare[act.pci] = device
        net.remove(device.on)
        net.rdma.remove(device)
        net.message()
    before = net.bare.pop(act.pci)
    link = _new_link(net, before.on)
    assert link.physical
    node_guid = link.physical.functions[link.number].node_guid
    guid = before.guid if node_guid in (None, min(NO_GUIDS)) else node_guid
    new = FakeRdma(f"mlx5_{link.index}", link, False, net.node, act.pci, before.size)
    new.guid, new.partitions, new.managed = str(guid), before.partitions, before.managed
    net.rdma.append(new)
    net.message()


def await_partition(net: FakeNetwork, step: AwaitPartition, pod: FakeSpace) -> None:
    """Raise Refused if the port lacks the partition, without the wait of kernel/sriov/rebind.py."""
    device = _at(net, step.pci)
    table = device.partitions if device and device.space in (net.node, pod) else ()
    if step.pkey not in {key & 0x7FFF for key in table}:
        raise no_partition(step, table)


def await_port(net: FakeNetwork, pci: PciAddress, pod: FakeSpace) -> None:
    """Raise Refused if no port is active, without the wait of kernel/sriov/rebind.py."""
    device = _at(net, pci)
    states = [_state(device)] if device and device.space in (net.node, pod) else []
    if PortState.ACTIVE not in states:
        raise inactive_port(pci, states, FABRIC_PATIENCE)


def _state(device: FakeRdma) -> PortState:
    """Return the state of an RDMA device's port, which its physical function can hold down."""
    link = device.on
    settings = link.physical.functions[link.number] if link.physical else FunctionSettings()
    if settings.link_state is LinkState.DISABLE:
        return PortState.DOWN
    return PortState.ACTIVE if device.managed else PortState.INIT


def return_home(net: FakeNetwork, space: FakeSpace) -> None:
    """Move the RDMA devices of an ending namespace to the node."""
    for device in [one for one in net.rdma if one.space is space]:
        device.space = net.node
        _renew(net, device)


def remove_returned(net: FakeNetwork, undo: RemoveLink | RemoveLinks) -> None:
    """Remove links of a pod that are on the node now, as in kernel/pod/links.py."""
    marks = {one.mark for one in (undo.links if isinstance(undo, RemoveLinks) else (undo,))}
    for link in net.within(net.node):
        if link.parent and any(map(link.interface().ours, marks)):
            net.remove(link)
            net.message()


def _at(net: FakeNetwork, pci: PciAddress) -> FakeRdma | None:
    return next((device for device in net.rdma if device.pci == pci), None)


def _find(net: FakeNetwork, act: MoveRdma | GiveBackRdma) -> FakeRdma:
    device = _at(net, act.pci) if act.pci else named(net, act.device)
    if device is None:
        raise no_device(act.device)
    return device


def _change(net: FakeNetwork, device: FakeRdma, space: FakeSpace) -> None:
    device.space = space
    _renew(net, device)
    net.message()


def _renew(net: FakeNetwork, device: FakeRdma) -> None:
    """Replace the link of an InfiniBand device, as rdma_dev_change_netns does (core/device.c)."""
    if device.on.hardware == INFINIBAND:
        net.remove(device.on)
        device.on = _new_link(net, device.on)


def _new_link(net: FakeNetwork, old: FakeLink) -> FakeLink:
    index = net.next_index()
    guid = old.mac[-23:]
    if old.physical:
        port_guid = old.physical.functions[old.number].port_guid
        guid = guid if port_guid in (None, min(NO_GUIDS)) else str(port_guid)
    mac = f"00:00:{index >> 8:02x}:{index & 255:02x}:fe:80:00:00:00:00:00:00:{guid}"
    link = FakeLink(f"ib{index}", index, mac, net.node, mtu=2044, kind="ipoib", pci=old.pci)
    link.hardware, link.permanent_mac = INFINIBAND, mac
    link.physical, link.number = old.physical, old.number
    net.links.append(link)
    return link
