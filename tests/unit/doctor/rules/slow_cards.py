"""Worlds in which a card is up and slow, for the tests of what the doctor says of them."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.model.device import PciAddress
from kube_rdma.model.doctor import ObservedBridge, ObservedErrors, ObservedFlowControl
from tests.unit.doctor.rules.healthy import (
    DEVICES,
    FUNCTIONS,
    GPUS,
    HEALTHY,
    RESOURCE,
    SURVEY,
    card,
)

PORTS = tuple(PciAddress(f"0000:{bus}:00.0") for bus in ("10", "11", "12", "13"))


def codes(seen):
    """What the doctor finds, by its codes."""
    return [one.code for one in diagnose(seen).findings]


def rising(*counters, device="mlx5_0", **facts):
    """The same where these counters of a port rise by 7 while they are watched."""
    rises = tuple((name, 7) for name in counters)
    return replace(HEALTHY, errors=(ObservedErrors(device, 1, 2.0, rises),), **facts)


def flow_control(**facts):
    """The same where the first port does otherwise about congestion."""
    first, *others = HEALTHY.flow_control
    return (replace(first, **facts), *others)


def four_ports(**facts):
    """A node of four RoCE ports, the first of which does otherwise about congestion."""
    made = [card(number, 0x81 + number) for number in range(4)]
    controls = [ObservedFlowControl(f"eth{number}", (3,), "dscp", (3,)) for number in range(4)]
    controls[0] = replace(controls[0], **facts)
    whole = replace(
        SURVEY, functions=tuple(f for f, _ in made), devices=tuple(d for _, d in made), gpus=()
    )
    return replace(
        HEALTHY,
        survey=whole,
        flow_control=tuple(controls),
        pcie=(),
        rails=(),
        kubelet=replace(HEALTHY.kubelet, allocatable=((RESOURCE, 4),)),
    )


def below_a_switch(acs, **facts):
    """The same where the first card and the first GPU are below one switch."""
    root, upper, *sides = PORTS
    seats = [
        replace(one.seat, path=(root, upper, side, one.seat.pci))
        for one, side in zip((FUNCTIONS[0], GPUS[0]), sides, strict=True)
    ]
    made = replace(
        SURVEY,
        functions=(replace(FUNCTIONS[0], seat=seats[0]), FUNCTIONS[1]),
        devices=(replace(DEVICES[0], seat=seats[0]), DEVICES[1]),
        gpus=(replace(GPUS[0], seat=seats[1]), GPUS[1]),
    )
    bridges = tuple(ObservedBridge(pci, control) for pci, control in zip(sides, acs, strict=True))
    return replace(HEALTHY, survey=made, bridges=bridges, **facts)
