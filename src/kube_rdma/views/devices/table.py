"""The node's RDMA devices for people: a table.

The last step of `kube-rdma devices`: everything shown was found by the survey and judged by
rules/health/discovery. Plain text, because importing a table library would cost more than the
survey. views/devices/documents has the same for programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_rdma.model.device import Device, PciAddress, Port
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict
from kube_rdma.views.text import aligned, widths, wrapped

_COLUMNS = (
    "DEVICE",
    "PORT",
    "STATE",
    "LINK",
    "RATE",
    "NETDEV",
    "NUMA",
    "PCI",
    "GIDS",
    "USABLE",
)
_RIGHT = frozenset(map(_COLUMNS.index, ("PORT", "RATE", "NUMA", "GIDS")))
_NONE = "-"

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


def table(
    verdicts: Sequence[Verdict], survey: Survey, notes: Sequence[str] = (), width: int = 100
) -> str:
    """The devices, one line a port, and below what is worth saying about the node.

    RATE is in Gb/s (100G), GIDS counts the used entries of the port's table, NETDEV names the bond
    of an interface in parentheses, PCI how a function is divided or what it is a part of. The
    reasons against a device stand under it. `width` (columns) wraps sentences, never the table.
    """
    lines = [*_table_lines(verdicts, width), ""] if verdicts else [*_NO_DEVICES.splitlines(), ""]
    if verdicts:
        usable = sum(verdict.usable for verdict in verdicts)
        lines.append(f"{usable} of {len(verdicts)} devices usable.")
    lines.append(f"RDMA namespace mode: {_MODES[survey.namespace_mode]}.")
    for note in notes:
        lines += wrapped(f"Note: {note}.", width, "      ")
    lines += _fault_lines(survey, width, every=not verdicts)
    return "\n".join(lines)


def _table_lines(verdicts: Sequence[Verdict], width: int) -> Iterator[str]:
    names = {v.device.pci: v.device.name for v in reversed(verdicts) if v.device.pci}
    blocks = [(list(_rows(verdict, names)), verdict.reasons) for verdict in verdicts]
    rows = [_COLUMNS, *(row for block, _ in blocks for row in block)]
    columns = widths(rows)
    yield aligned(_COLUMNS, columns, _RIGHT)
    for block, reasons in blocks:
        for row in block:
            yield aligned(row, columns, _RIGHT)
        for reason in reasons:
            yield from wrapped(f"  └ {reason}", width, "    ")


def _rows(verdict: Verdict, names: Mapping[PciAddress, str]) -> Iterator[tuple[str, ...]]:
    """One row a port; what belongs to the whole device stands in the first."""
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
    """The PCI address and what it is: a sub-function, a VF of a card (`names`), a card with VFs."""
    if device.pci is None:
        return _NONE
    seat = device.seat
    if device.subfunction is not None:
        return f"{device.pci} (SF {device.subfunction})"
    if seat and seat.physical_function:
        card = names.get(seat.physical_function, seat.physical_function)
        return f"{device.pci} (VF of {card})"
    if seat and seat.virtual_functions:
        count = len(seat.virtual_functions)
        return f"{device.pci} ({count} VF{'s' if count > 1 else ''})"
    return device.pci


def _fault_lines(survey: Survey, width: int, *, every: bool) -> list[str]:
    """How much could not be read; `every` fault in full where they explain an empty table."""
    count = len(survey.faults)
    if not count:
        return []
    what = "1 thing" if count == 1 else f"{count} things"
    if not every:
        return [f"{what} could not be read; see faults in -o json."]
    lines = [f"{what} could not be read:"]
    for fault in survey.faults:
        lines += wrapped(f"  {fault.path}: {fault.reason}", width, "    ")
    return lines
