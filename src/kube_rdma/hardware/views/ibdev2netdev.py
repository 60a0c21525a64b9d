"""RDMA devices and their interfaces in the lines that people's scripts already read.

`kube-rdma devices -o ibdev2netdev` prints what Mellanox's script of that name prints. What it does
was learned from the copy in Mellanox/docker-sriov-plugin and from output that users have published:

- ``<device> port <n> ==> <interface> (Up|Down)``, a line for each interface of each device;
- devices in the order of `ls`, so mlx5_10 stands before mlx5_2, and so do a device's interfaces;
- a port without an interface has no line, and a node without any prints nothing and exits with 0;
- a port in a bond names the bond: ``mlx5_bond_0 port 1 ==> bond0 (Up)``;
- Up when the interface has a carrier. On Ethernet that is when the port is ACTIVE (the drivers
  make it so); an IPoIB interface that was set down on an ACTIVE port is Down there and Up here.

The script knows Mellanox's cards only; here every device with an interface has its line.
"""

from __future__ import annotations

from kube_rdma.model.device import Device, PortState
from kube_rdma.model.survey import Survey


def ibdev2netdev(survey: Survey) -> str:
    """One line, with its end, for each port that has an interface; empty when none has."""
    devices = sorted(survey.devices, key=lambda device: device.name)
    return "".join(line for device in devices for line in _lines(device))


def _lines(device: Device) -> list[str]:
    shown = sorted(
        (port.bond or port.netdev, port.number, port.state)
        for port in device.ports
        if port.netdev is not None
    )
    return [
        f"{device.name} port {number} ==> {netdev} ({_word(state)})\n"
        for netdev, number, state in shown
    ]


def _word(state: PortState) -> str:
    return "Up" if state is PortState.ACTIVE else "Down"
