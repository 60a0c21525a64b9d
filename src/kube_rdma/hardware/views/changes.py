"""Shows the differences of two surveys, a line for each: `kube-rdma devices --watch`.

hardware/watch takes a new Survey whenever the kernel announces something and compares it with the
last one here. The comparison goes through all fields of RDMA devices, ports and GPUs. Of the node
it compares the RDMA namespace mode and the device file of the RDMA CM. PCI functions, interfaces
and faults are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from kube_base.frozen import Frozen
from kube_rdma.hardware.views.documents import plain
from kube_rdma.lib.json_values import camel_case
from kube_rdma.model.device import CharDevice, Device, Gpu, PciPosition, Port
from kube_rdma.model.survey import Survey

T = TypeVar("T")
K = TypeVar("K", str, int)

_NODE = "node"
_OF_NODE = ("rdma_cm", "namespace_mode")
_WORDS = {
    "physical_state": "physical state",
    "rate_gbps": "rate",
    "gids": "GIDs",
    "lid": "LID",
    "sm_lid": "LID of the subnet manager",
    "char_devices": "character devices",
    "node_guid": "node GUID",
    "node_type": "node type",
    "numa_node": "NUMA node",
    "pci": "PCI address",
    "seat": "PCI position",
    "link_layer": "link layer",
    "namespace_mode": "RDMA namespace mode",
    "pci_class": "PCI class",
}


class ChangeKind(StrEnum):
    """The subject of a change: a device, a port, a GPU or the node."""

    DEVICE = "device"
    PORT = "port"
    GPU = "gpu"
    NODE = "node"


class SurveyChange(Frozen):
    """One difference between two Surveys.

    `before` and `after` are values of the model, None where there was none.
    """

    kind: ChangeKind
    subject: str  # name of the device, PCI address of the GPU, "node"
    port: int | None
    what: str  # the key of the document; empty when the thing itself appeared or vanished
    before: object
    after: object

    @property
    def event(self) -> str:
        """Return whether the subject appeared, vanished or changed."""
        if self.what:
            return "changed"
        return "appeared" if self.before is None else "vanished"


def changes(before: Survey, after: Survey) -> tuple[SurveyChange, ...]:
    """Return the differences between two Surveys, in the order of devices, GPUs, node."""
    found: list[SurveyChange] = []
    for name, was, now in _pairs(before.devices, after.devices, lambda device: device.name):
        found += _differences(ChangeKind.DEVICE, name, None, was, now, ("name", "ports"))
        if was and now:
            for number, old, new in _pairs(was.ports, now.ports, lambda port: port.number):
                found += _differences(ChangeKind.PORT, name, number, old, new, ("number",))
    for pci, old_gpu, new_gpu in _pairs(before.gpus, after.gpus, lambda gpu: gpu.position.pci):
        found += _differences(ChangeKind.GPU, pci, None, old_gpu, new_gpu, ())
    others = [name for name in Survey.__struct_fields__ if name not in _OF_NODE]
    found += _differences(ChangeKind.NODE, _NODE, None, before, after, others)
    return tuple(found)


def line(change: SurveyChange, at: datetime) -> str:
    """Return a change as a line for people, with the time of day to the millisecond."""
    who = change.subject if change.port is None else f"{change.subject} port {change.port}"
    if change.kind is ChangeKind.GPU:
        who = f"GPU {who}"
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {who}: {_sentence(change)}"


def entry(change: SurveyChange, at: datetime) -> dict[str, object]:
    """Return a change as JSON values. Keys are stable.

    ``time`` is in ISO 8601 with offset; ``event`` is appeared, vanished or changed. ``kind`` is
    device, port, gpu or node. ``subject`` is a device's name, a GPU's PCI address, or node.
    ``port`` is a number, or null. ``what`` is a key of the document, null unless changed.
    ``before`` and ``after`` are as the document has them, null where there was nothing.
    """
    return {
        "time": at.isoformat(timespec="milliseconds"),
        "event": change.event,
        "kind": change.kind.value,
        "subject": change.subject,
        "port": change.port,
        "what": camel_case(change.what) or None,
        "before": plain(change.before),
        "after": plain(change.after),
    }


def _pairs(
    before: Sequence[T], after: Sequence[T], key: Callable[[T], K]
) -> Iterator[tuple[K, T | None, T | None]]:
    """Yield each key in order with its item before and after; None where one side lacks it."""
    old, new = {key(one): one for one in before}, {key(one): one for one in after}
    yield from ((name, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys()))


def _differences(
    kind: ChangeKind,
    subject: str,
    port: int | None,
    was: Frozen | None,
    now: Frozen | None,
    skipped: Collection[str],
) -> Iterator[SurveyChange]:
    """Yield a change where the item appeared or vanished, else one for each field that differs."""
    if was is None or now is None:
        yield SurveyChange(kind, subject, port, "", was, now)
        return
    keys = zip(was.__struct_fields__, was.__struct_encode_fields__, strict=True)
    for name, key in keys:
        before, after = getattr(was, name), getattr(now, name)
        if name not in skipped and before != after:
            yield SurveyChange(kind, subject, port, key, before, after)


def _sentence(change: SurveyChange) -> str:
    if change.event == "vanished":
        return "vanished"
    if change.event == "appeared":
        return f"appeared, {_text(change.after)}"
    word = _WORDS.get(change.what, change.what)
    before, after = change.before, change.after
    if change.what == "gids" and isinstance(before, tuple) and isinstance(after, tuple):
        # Also what came and went, for the length may stay the same.
        new, gone = len({*after} - {*before}), len({*before} - {*after})
        return f"{word} {len(before)} → {len(after)} ({new} new, {gone} gone)"
    return f"{word} {_text(change.before)} → {_text(change.after)}"


def _text(value: object) -> str:
    """Return a changed value as a few words."""
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return " ".join(_text(each) for each in value)
    form = _TEXTS.get(type(value))
    return form(value) if form else str(value)


def _device(device: Device) -> str:
    ports = [f"port {port.number} {_port(port)}" for port in device.ports]
    return ", ".join([device.driver or "no driver", device.pci or "no PCI function", *ports])


def _port(port: Port) -> str:
    return f"{port.state} on {port.netdev}" if port.netdev else str(port.state)


def _position(position: PciPosition) -> str:
    count = len(position.virtual_functions)
    return f"{position.pci} with {count} VF{'' if count == 1 else 's'}"


_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Device: _device,
    Port: _port,
    PciPosition: _position,
    Gpu: lambda gpu: gpu.driver or "no driver",
    CharDevice: lambda char: char.path.rpartition("/")[2],
    float: lambda rate: f"{rate:g}G",
}
