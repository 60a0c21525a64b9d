"""Shows how near GPUs and NICs are: `kube-rdma devices --topology` and its picture.

Rows, columns, marks and the two-space ``NIC0: mlx5_0`` lines are like those of `nvidia-smi topo
-m`. The NUMA node of NICs is added, and a legend of the GPUs, for their numbers follow the PCI
address here. rules/node_picture finds the marks; they
come as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from kube_rdma.lib.svg import STYLE, BoxLook, NestedBox, drawn, size
from kube_rdma.model import survey as model
from kube_rdma.model.device import LinkLayer, Port, PortState

Marks = Sequence[Sequence[str | None]]  # GPUs, then devices, as rows and as columns

_UNKNOWN = "-"
_SELF = "X"
_NUMA = "NUMA Affinity"
_GAP = "  "

_LEGEND = {
    _SELF: "itself, or another device of the same PCI function",
    "PIX": "at most one PCIe bridge or switch in between",
    "PXB": "several PCIe bridges in between, no host bridge",
    "PHB": "through the PCIe host bridge, as a rule the CPU",
    "NODE": "through two host bridges of one NUMA node",
    "SYS": "through the interconnect of NUMA nodes",
}
_LEGEND_UNKNOWN = f"  {_UNKNOWN:<4} = not known, for the device sits on no PCI function"
_NVLINK = "NVLink is not shown: it is not part of the PCIe tree."
_NOTHING = "No GPUs and no RDMA devices, so there is nothing to be near to."


def topology_text(survey: model.Survey, marks: Marks) -> str:
    """Return the matrix of nearness as text, with legends.

    `marks` are in the order of rules/node_picture.matrix.
    """
    gpus, nics = _labels(survey)
    if not marks:
        return _NOTHING
    nodes = [gpu.position.numa_node for gpu in survey.gpus]
    nodes += [device.numa_node for device in survey.devices]
    lines = [*_matrix([*gpus, *nics], marks, nodes), "", "Legend:", ""]
    lines += [f"  {mark:<4} = {meaning}" for mark, meaning in _LEGEND.items()]
    if any(mark is None for row in marks for mark in row):
        lines.append(_LEGEND_UNKNOWN)
    if nics:
        lines += ["", "NIC Legend:", ""]
        lines += [
            f"  {nic}: {device.name}" for nic, device in zip(nics, survey.devices, strict=True)
        ]
    if gpus:
        lines += ["", "GPU Legend:", ""]
        lines += [
            f"  {label}: {gpu.position.pci} [{gpu.vendor:04x}:{gpu.device:04x}] "
            f"{gpu.driver or 'no driver'}"
            for label, gpu in zip(gpus, survey.gpus, strict=True)
        ]
        lines += ["", _NVLINK]
    return "\n".join(lines)


def topology_document(survey: model.Survey, marks: Marks) -> dict[str, object]:
    """Return the matrix as JSON values, null where a mark is not known. Keys are stable.

    ``gpus``: label to PCI address; ``nics``: label to device name; ``nearness``: label to label to
    mark, so that GPU 0 and NIC 1 are ``.nearness.GPU0.NIC1``.
    """
    gpus, nics = _labels(survey)
    labels = [*gpus, *nics]
    return {
        "gpus": {label: gpu.position.pci for label, gpu in zip(gpus, survey.gpus, strict=True)},
        "nics": {label: nic.name for label, nic in zip(nics, survey.devices, strict=True)},
        "nearness": {
            label: dict(zip(labels, (mark and str(mark) for mark in row), strict=True))
            for label, row in zip(labels, marks, strict=True)
        },
    }


def _labels(survey: model.Survey) -> tuple[list[str], list[str]]:
    gpus = [f"GPU{i}" for i in range(len(survey.gpus))]
    return gpus, [f"NIC{i}" for i in range(len(survey.devices))]


def _matrix(labels: Sequence[str], marks: Marks, nodes: Sequence[int | None]) -> Iterator[str]:
    first = max(map(len, labels))
    widths = [max(len(label), 4) for label in labels]

    def line(head: str, cells: Sequence[str], tail: str) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return _GAP.join([head.ljust(first), *padded, tail])

    yield line("", labels, _NUMA)
    for label, row, node in zip(labels, marks, nodes, strict=True):
        # The short ones a little to the right, as nvidia-smi has its X.
        texts = (_UNKNOWN if mark is None else str(mark) for mark in row)
        cells = [f" {text}" if len(text) == 1 else text for text in texts]
        yield line(label, cells, _UNKNOWN if node is None else str(node))


# The picture: `kube-rdma devices --svg`.

# Okabe and Ito's colours; white is read on the dark ones.
_RAILS = (
    *(("#0072b2", "#ffffff"), ("#e69f00", "#000000"), ("#009e73", "#ffffff")),
    *(("#cc79a7", "#000000"), ("#d55e00", "#ffffff"), ("#56b4e9", "#000000")),
    *(("#f0e442", "#000000"), ("#000000", "#ffffff")),
)
_SOCKET, _BRIDGE = BoxLook(fill="#f5f7fa", edge="#7b8794"), BoxLook(fill="#e4e7eb", edge="#9aa5b1")
_SWITCH = BoxLook(fill="#cbd2d9", edge="#52606d")
_GPU = BoxLook(fill="#e3f9e5", edge="#3f9142")
_PLAIN = BoxLook(fill="#ffffff", edge="#9aa5b1")
_ILL_FILL = "#ffe3e3"
_ACROSS = 4  # boxes of GPUs or cards in a row
_WIDEST = 1400  # pixels that sockets take beside each other
_MARGIN, _HEAD, _BOX_GAP = 20, 44, 16
_PICTURE_LEGEND = (
    "GPUs and cards in one inner box are near. Pods cannot get a dashed card; its tip says why.",
    "Rails are numbered by PCI address where no policy lists the cards. NVLink is not shown.",
)


def topology_svg(topology: Sequence[model.TopologySocket], name: str) -> str:
    """Return the picture of a node's topology as SVG; `name` is the node's."""
    sockets = []
    for socket in topology:
        node = socket.numa_node
        title = "socket not known" if node is None else f"socket, NUMA node {node}"
        rows = (tuple(map(_bridge, socket.bridges)),)
        sockets.append(NestedBox(title, rows=rows, look=_SOCKET))
    sockets = sockets or [NestedBox("no GPU and no network card", look=_PLAIN)]
    parts: list[str] = []
    width, height = 0, _HEAD
    for row in _rows(sockets):
        left = _MARGIN
        for box in row:
            parts += drawn(box, left, height)
            left += size(box)[0] + _BOX_GAP
        width = max(width, left - _BOX_GAP + _MARGIN)
        height += max(size(box)[1] for box in row) + _BOX_GAP
    width = max(width, 2 * _MARGIN + 6 * max(map(len, _PICTURE_LEGEND)))
    legend = [
        f'<text x="{_MARGIN}" y="{height + 8 + 18 * number}" style="font-size: 11px">'
        f"{escape(text)}</text>"
        for number, text in enumerate(_PICTURE_LEGEND)
    ]
    height += 18 * len(_PICTURE_LEGEND) + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    title = f'<text x="{_MARGIN}" y="28" style="font-size: 16px">{escape(name)}</text>'
    ground = '<rect class="page" width="100%" height="100%" fill="white"/>'
    style = f"<style>{STYLE}</style>"
    return "\n".join((head, style, ground, title, *parts, *legend, "</svg>\n"))


def _rows(sockets: Sequence[NestedBox]) -> Iterator[list[NestedBox]]:
    """Yield the boxes of sockets in rows that fit the width of the page."""
    row: list[NestedBox] = []
    for box in sockets:
        if row and sum(size(one)[0] + _BOX_GAP for one in (*row, box)) > _WIDEST:
            yield row
            row = []
        row.append(box)
    yield row


def _bridge(bridge: model.TopologyBridge) -> NestedBox:
    title = f"host bridge {bridge.root}" if bridge.root else "on no PCI function"
    rows: list[tuple[NestedBox, ...]] = []
    switches = []
    for group in bridge.groups:
        if group.switch is None:
            rows += _tenants(group)
        else:
            title_of_switch = f"PCIe switch {group.switch}"
            switches.append(NestedBox(title_of_switch, rows=tuple(_tenants(group)), look=_SWITCH))
    if switches:
        rows.append(tuple(switches))
    return NestedBox(title, rows=tuple(rows), look=_BRIDGE)


def _tenants(group: model.TopologyGroup) -> Iterator[tuple[NestedBox, ...]]:
    """Yield rows of boxes: the GPUs of a group, then its cards."""
    for boxes in (list(map(_gpu, group.gpus)), list(map(_card, group.cards))):
        for start in range(0, len(boxes), _ACROSS):
            yield tuple(boxes[start : start + _ACROSS])


def _gpu(placed: model.PlacedGpu) -> NestedBox:
    gpu = placed.gpu
    lines = (gpu.position.pci, f"{gpu.vendor:04x}:{gpu.device:04x}", gpu.driver or "no driver")
    return NestedBox(f"GPU{placed.number}", lines, look=_GPU)


def _card(placed: model.PlacedCard) -> NestedBox:
    card = placed.card
    lines = tuple(_card_lines(placed))
    if placed.rail is None:
        return NestedBox(card.name, lines, look=_PLAIN, tip="no RDMA device")
    edge, ink = _RAILS[placed.rail % len(_RAILS)]
    look = BoxLook(edge=edge, ink=ink)
    if card.reasons:
        look = BoxLook(fill=_ILL_FILL, edge=edge, ink=ink, dashed=True)
    strip, tip = f"rail {placed.rail}", "; ".join(card.reasons)
    return NestedBox(card.name, lines, look=look, strip=strip, tip=tip)


def _card_lines(placed: model.PlacedCard) -> Iterator[str]:
    card = placed.card
    if card.position and card.name != card.position.pci:
        yield card.position.pci
    ports = [port for device in card.devices for port in device.own_ports]
    yield from dict.fromkeys(map(_port, ports))
    interfaces = [netdev.name for netdev in card.function.own_netdevs] if card.function else []
    interfaces += [port.netdev for port in ports if port.netdev]
    names = [name for name in dict.fromkeys(interfaces) if name != card.name]
    if names:
        yield "on " + " ".join(names)
    if not card.devices:
        yield "no RDMA device"
    if placed.functions:
        yield f"{placed.functions} virtual functions"
    for part in placed.parts:
        kind = "VF" if part.position and part.position.physical_function else "SF"
        yield f"{kind} {part.name}"


def _port(port: Port) -> str:
    """Return a few words on a port: link layer and rate, and its state unless it is active."""
    layer = "" if port.link_layer is LinkLayer.UNKNOWN else port.link_layer.value
    rate = "" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
    state = "" if port.state is PortState.ACTIVE else port.state.value
    return " ".join(filter(None, (layer, rate, state)))
