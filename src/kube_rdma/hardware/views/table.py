"""Shows the node's RDMA devices: a table for people, and the lines of ibdev2netdev.

The last step of `kube-rdma devices`: everything shown was found by the survey and judged by
pools/rules/discovery. hardware/views/documents has the same for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.lib.page import Block, Line, Page, PageRow, PageState, PageTable, Sentence, lines_of
from kube_rdma.model.device import Device, PciAddress, Port, PortState
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict

_COLUMNS = ("DEVICE", "PORT", "STATE", "LINK", "RATE", "NETDEV", "NUMA", "PCI", "GIDS", "USABLE")
_MORE = ("DRIVER", "FIRMWARE", "NODE GUID")  # of -o wide
_RIGHT = tuple(map(_COLUMNS.index, ("PORT", "RATE", "NUMA", "GIDS")))
_USABLE = _COLUMNS.index("USABLE")
_NONE = "-"
_FEW = 3  # faults that are shown beside devices

_NO_DEVICES = """\
No RDMA devices.

  Is there a card?   lspci -nn lists it; dmesg says why its driver (mlx5_ib,
                     bnxt_re, irdma, efa, ...) did not register it.
  No card at hand?   Soft-RoCE runs on any Ethernet interface:
                         modprobe rdma_rxe
                         rdma link add rxe0 type rxe netdev eth0
"""

_MODES = {
    NamespaceMode.SHARED: "shared (every network namespace sees every device)",
    NamespaceMode.EXCLUSIVE: "exclusive (each device belongs to one network namespace)",
    NamespaceMode.UNKNOWN: "unknown",
}


def devices_page(
    verdicts: Sequence[Verdict], survey: Survey, notes: Sequence[str] = (), *, wide: bool = False
) -> Page:
    """Return the table of RDMA devices, a line for each port, with remarks on the node below it.

    RATE is in Gb/s (100G). GIDS counts the used entries of the port's table. NETDEV names the bond
    of an interface in parentheses, PCI how a function is divided or what it is a part of. The
    reasons against a device stand under it. A `wide` table says more of each device. SWITCH is what
    ports are plugged into, if that is known of any.
    """
    usable = sum(verdict.usable for verdict in verdicts)
    below: Block = (
        *((Line(f"{usable} of {len(verdicts)} devices usable."),) if verdicts else ()),
        Line(f"RDMA namespace mode: {_MODES[survey.namespace_mode]}."),
        *(Sentence(f"Note: {note}.", "      ") for note in notes),
        *_fault_lines(survey, every=not verdicts),
    )
    if not verdicts:
        return lines_of(_NO_DEVICES), below
    names = {v.device.pci: v.device.name for v in reversed(verdicts) if v.device.pci}
    rows = tuple(_row(verdict, names, wide=wide) for verdict in verdicts)
    head = (*_COLUMNS, *(_MORE if wide else ()))
    if any(port.neighbour for verdict in verdicts for port in verdict.device.ports):
        rows = tuple(map(_with_switches, rows, verdicts))
        head = (*head, "SWITCH")
    return (PageTable(head, rows, _RIGHT, stated=_USABLE),), below


def device_names(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the names of the devices, as `-o name` prints them."""
    return [verdict.device.name for verdict in verdicts]


def _row(verdict: Verdict, names: Mapping[PciAddress, str], *, wide: bool) -> PageRow:
    """Return the row of a device with its ports, and the reasons why it cannot be used."""
    first, *others = _lines(verdict, names)
    if wide:
        device = verdict.device
        more = (device.driver, device.firmware, device.node_guid)
        first = (*first, *(text or _NONE for text in more))
        others = [(*cells, *("" for _ in more)) for cells in others]
    state = PageState.HEALTHY if verdict.usable else PageState.UNHEALTHY
    return PageRow(first, state, tuple(others), verdict.reasons)


def _with_switches(row: PageRow, verdict: Verdict) -> PageRow:
    """Return a row with one more cell for each port, the switch that it is plugged into."""
    switches = [port.neighbour or _NONE for port in verdict.device.ports] or [_NONE]
    first, *parts = (
        (*cells, switch) for cells, switch in zip((row.cells, *row.parts), switches, strict=True)
    )
    return replace(row, cells=first, parts=tuple(parts))


def _lines(verdict: Verdict, names: Mapping[PciAddress, str]) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for each port; cells of the whole device are in the first row only."""
    device = verdict.device
    node = _NONE if device.numa_node is None else str(device.numa_node)
    whole = (device.name, node, _place(device, names), "yes" if verdict.usable else "no")
    for port in device.ports or (None,):
        name, numa, pci, usable = whole
        number, state, link, rate, netdev, gids = _port_cells(port)
        yield name, number, state, link, rate, netdev, numa, pci, gids, usable
        whole = ("", "", "", "")


def _port_cells(port: Port | None) -> tuple[str, str, str, str, str, str]:
    if port is None:
        return (_NONE,) * 6
    rate = _NONE if port.rate_gbps is None else f"{port.rate_gbps:g}G"
    gids = str(len(port.gids))
    return str(port.number), port.state, port.link_layer, rate, _netdev(port), gids


def _netdev(port: Port) -> str:
    if port.netdev and port.bond and port.bond != port.netdev:
        return f"{port.netdev} ({port.bond})"
    return port.netdev or port.bond or _NONE


def _place(device: Device, names: Mapping[PciAddress, str]) -> str:
    """Return the PCI address, and in parentheses which part of a card it is or how many VFs it has.

    `names` are the names of cards by PCI address.
    """
    if device.pci is None:
        return _NONE
    position = device.position
    if device.subfunction is not None:
        return f"{device.pci} (SF {device.subfunction})"
    if position and position.physical_function:
        card = names.get(position.physical_function, position.physical_function)
        return f"{device.pci} (VF of {card})"
    if position and position.virtual_functions:
        count = len(position.virtual_functions)
        return f"{device.pci} ({count} VF{'s' if count > 1 else ''})"
    return device.pci


def _fault_lines(survey: Survey, *, every: bool) -> Block:
    """Return the lines about what could not be read.

    Many faults are only counted, unless `every` one is wanted.
    """
    count = len(survey.faults)
    if not count:
        return ()
    what = "1 thing" if count == 1 else f"{count} things"
    if count > _FEW and not every:
        return (Line(f"{what} could not be read; see faults in -o json."),)
    faults = (Sentence(f"  {fault.path}: {fault.reason}", "    ") for fault in survey.faults)
    return Line(f"{what} could not be read:"), *faults


# The lines of ibdev2netdev, which people's scripts read.


def ibdev2netdev(survey: Survey) -> str:
    """Return a line such as ibdev2netdev prints for each port that has an interface."""
    ports = sorted(
        (device.name, port.bond or port.netdev, port.number, port.state is PortState.ACTIVE)
        for device in survey.devices
        for port in device.ports
        if port.netdev is not None
    )
    return "".join(
        f"{name} port {number} ==> {netdev} ({'Up' if is_up else 'Down'})\n"
        for name, netdev, number, is_up in ports
    )
