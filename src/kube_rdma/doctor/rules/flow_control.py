"""KR126: trust, PFC and ECN of a RoCE port that are otherwise than on most ports of the node.

One of the checks of cards.py, which has its place among them. No setting is wrong by itself: a
fabric is lossless or lossy as people build it. But all ports that carry the same jobs have to be
alike. doctor/rules/outliers compares the same words among nodes, doctor/rules/errors says what
follows where packets get lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from kube_rdma.doctor.rules.check import whole_cards
from kube_rdma.doctor.rules.majority import majority
from kube_rdma.model.device import Device, LinkLayer, Port, PortState
from kube_rdma.model.doctor import Observation, ObservedFlowControl
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.survey import Survey

PFC, TRUST, ECN = "PFC", "trust", "ECN"
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        PFC: "dcb pfc set dev INTERFACE prio-pfc all:off N:on, or mlnx_qos -i INTERFACE --pfc …",
        TRUST: "mlnx_qos -i INTERFACE --trust dscp, or dcb apptrust set dev INTERFACE order dscp",
        ECN: "echo 1 > /sys/class/net/INTERFACE/ecn/roce_np/enable/N, and the same in roce_rp",
    }
)


def unlike_others(seen: Observation) -> Iterator[Finding]:
    """RoCE ports with another trust, PFC or ECN than most ports of the node with their driver."""
    controls = {one.interface: one for one in seen.flow_control or ()}
    rows = [
        (device, word, value)
        for device, port in roce_ports(seen)
        if port.netdev in controls
        for word, value in words(controls[port.netdev]).items()
    ]
    for device, word, value in rows:
        alike = (v for d, w, v in rows if w == word and d.driver == device.driver)
        usual = majority(alike)
        if usual and value != usual.value:
            yield Finding(
                device.name,
                f"{word} is {value}, and {usual.value} on {usual.agreeing} of {usual.every} RoCE "
                "ports of this node",
                f"{word} of this port was not set as on the others, or was reset",
                REMEDIES[word],
                Severity.WARNING,
            )


def roce_ports(seen: Observation) -> Iterator[tuple[Device, Port]]:
    """Ports of hardware that are up and speak Ethernet."""
    for device, port in active_ports(seen):
        if port.link_layer is LinkLayer.ETHERNET:
            yield device, port


def active_ports(seen: Observation) -> Iterator[tuple[Device, Port]]:
    """Ports of hardware that are up."""
    for device in seen.survey.devices if seen.survey else ():
        for port in device.ports:
            if device.pci and port.state is PortState.ACTIVE:
                yield device, port


def roce_interfaces(survey: Survey) -> tuple[tuple[str, str], ...]:
    """The interfaces of whole RoCE cards, each with its driver."""
    return tuple(
        dict.fromkeys(
            (port.netdev, device.driver or "")
            for device, _ in whole_cards(survey)
            for port in device.ports
            if port.netdev and port.link_layer is LinkLayer.ETHERNET
        )
    )


def words(control: ObservedFlowControl) -> Mapping[str, str]:
    """What is told of an interface, for people."""
    values = {
        PFC: None if control.pfc is None else priorities(control.pfc),
        TRUST: control.trust or None,
        ECN: None if control.ecn is None else priorities(control.ecn),
    }
    return {word: value for word, value in values.items() if value is not None}


def priorities(which: Sequence[int]) -> str:
    """``off``, ``on for priority 3`` or ``on for priorities 3, 5``."""
    if not which:
        return "off"
    noun = "priority" if len(which) == 1 else "priorities"
    return f"on for {noun} {', '.join(map(str, which))}"
