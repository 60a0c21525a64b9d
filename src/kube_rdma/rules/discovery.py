"""Which devices can be given to a pod, and why the others cannot.

Judges a Survey for the table of `kube-rdma devices`, for pools and for the node report. The rules
are about what verbs need, never about a vendor: an open door (uverbs) and a port that carries
traffic. A missing rdma_cm is said about the node and refuses nothing: RoCE and InfiniBand
applications may exchange addresses by themselves, and EFA has no connection manager at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.model.device import CharKind, Device, LinkLayer, PhysicalState, Port, PortState
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict

_NO_CONNECTION_MANAGER = frozenset({"unspecified", "usNIC", "usNIC UDP"})  # node types


def judge(survey: Survey) -> tuple[Verdict, ...]:
    """A verdict on each device, in the order of the survey."""
    return tuple(Verdict(device, tuple(_reasons(device))) for device in survey.devices)


def notes(survey: Survey) -> tuple[str, ...]:
    """What a person should know about the node as a whole; none of it makes a device unusable."""
    return tuple(_notes(survey))


def _reasons(device: Device) -> Iterator[str]:
    if not any(char.kind is CharKind.UVERBS for char in device.char_devices):
        yield "no uverbs device, so no program can open it: modprobe ib_uverbs"
    if not device.ports:
        yield "no port: the driver has registered none, dmesg may say why"
    elif not any(port.state is PortState.ACTIVE for port in device.ports):
        yield "no port is ACTIVE; " + "; ".join(_inactive(port) for port in device.ports)


def _inactive(port: Port) -> str:
    """One port that carries no traffic: what it is instead, and the usual remedy."""
    return f"port {port.number} is {port.state} ({port.physical_state}): {_remedy(port)}"


def _remedy(port: Port) -> str:
    if port.state is PortState.UNKNOWN:
        return "its state could not be read, see the faults"
    if port.physical_state is PhysicalState.DISABLED and port.link_layer is LinkLayer.ETHERNET:
        if port.netdev is None:
            return "set its interface up"
        return f"ip link set {port.netdev} up"
    if port.physical_state is PhysicalState.DISABLED:
        return "enable the port (ibportstate)"
    if port.physical_state is PhysicalState.LINK_UP and port.link_layer is LinkLayer.INFINIBAND:
        return "the cable is fine, no subnet manager has activated it; start opensm or ask for one"
    behind = f" behind {port.netdev}" if port.netdev else ""
    return f"check the cable and the switch port{behind}"


def _notes(survey: Survey) -> Iterator[str]:
    managed = any(d.node_type not in _NO_CONNECTION_MANAGER for d in survey.devices)
    if survey.rdma_cm is None and managed:
        yield (
            "/dev/infiniband/rdma_cm is missing, so iWARP and programs that connect through "
            "librdmacm will not work: modprobe rdma_ucm"
        )
    if survey.namespace_mode is NamespaceMode.EXCLUSIVE:
        yield (
            "RDMA devices belong to one network namespace each: a pod sees a card only after it "
            "was moved there, and Soft-RoCE does not work in pods"
        )
