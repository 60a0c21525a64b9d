"""Shows the differences of two surveys, a line for each: `kube-rdma devices --watch`.

hardware/watch takes a new Survey whenever the kernel announces something and compares it with the
last one here. The comparison goes through the fields of the model, so a field that is new there is
watched from its first day. Faults are left out: a card that leaves while it is read has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.hardware.views.documents import plain
from kube_rdma.lib.json_values import camel_case
from kube_rdma.model.device import CharDevice, Device, Gpu, PciPosition, Port
from kube_rdma.model.survey import Survey

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
    "link_layer": "link layer",
    "namespace_mode": "RDMA namespace mode",
    "pci_class": "PCI class",
}


class ChangeKind(StrEnum):
    """The kind of thing that has changed."""

    DEVICE = "device"
    PORT = "port"
    GPU = "gpu"
    NODE = "node"


class SurveyChange(Frozen):
    """One difference. `before` and `after` are values of the model, None where there was none."""

    kind: ChangeKind
    subject: str  # name of the device, PCI address of the GPU, "node"
    port: int | None
    what: str  # the field of the model; empty when the thing itself appeared or vanished
    before: object
    after: object

    @property
    def event(self) -> str:
        """Return the change in a word: appeared, vanished or changed."""
        if self.what:
            return "changed"
        return "appeared" if self.before is None else "vanished"


def changes(before: Survey, after: Survey) -> tuple[SurveyChange, ...]:
    """Return everything that became different, in the order of devices, GPUs, node."""
    return (
        *_devices(before, after),
        *_gpus(before, after),
        *_fields(ChangeKind.NODE, _NODE, None, (before, after), _OF_NODE),
    )


def line(change: SurveyChange, at: datetime) -> str:
    """Return a change for people, with the time of day to the millisecond."""
    who = change.subject if change.port is None else f"{change.subject} port {change.port}"
    if change.kind is ChangeKind.GPU:
        who = f"GPU {who}"
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}  {who}: {_sentence(change)}"


def entry(change: SurveyChange, at: datetime) -> dict[str, object]:
    """Return a change as JSON values. Keys are stable.

    ``time`` (ISO 8601 with offset), ``event`` (appeared, vanished, changed), ``kind`` (device,
    port, gpu, node), ``subject`` (device name, PCI address of a GPU, or node), ``port`` or null,
    ``what`` (a key of the document, null unless changed), ``before`` and ``after`` as the document
    has them, null where there was nothing.
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


def _devices(before: Survey, after: Survey) -> Iterator[SurveyChange]:
    old = {device.name: device for device in before.devices}
    new = {device.name: device for device in after.devices}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            yield SurveyChange(ChangeKind.DEVICE, name, None, "", was, now)
            continue
        names = [f for f in Device.__struct_fields__ if f not in {"name", "ports"}]
        yield from _fields(ChangeKind.DEVICE, name, None, (was, now), names)
        yield from _ports(name, was, now)


def _ports(device: str, was: Device, now: Device) -> Iterator[SurveyChange]:
    old = {port.number: port for port in was.ports}
    new = {port.number: port for port in now.ports}
    names = [f for f in Port.__struct_fields__ if f != "number"]
    for number in sorted(old.keys() | new.keys()):
        before, after = old.get(number), new.get(number)
        if before is None or after is None:
            yield SurveyChange(ChangeKind.PORT, device, number, "", before, after)
        else:
            yield from _fields(ChangeKind.PORT, device, number, (before, after), names)


def _gpus(before: Survey, after: Survey) -> Iterator[SurveyChange]:
    old = {gpu.seat.pci: gpu for gpu in before.gpus}
    new = {gpu.seat.pci: gpu for gpu in after.gpus}
    names = list(Gpu.__struct_fields__)
    for pci in sorted(old.keys() | new.keys()):
        was, now = old.get(pci), new.get(pci)
        if was is None or now is None:
            yield SurveyChange(ChangeKind.GPU, pci, None, "", was, now)
        else:
            yield from _fields(ChangeKind.GPU, pci, None, (was, now), names)


def _fields(
    kind: ChangeKind,
    subject: str,
    port: int | None,
    pair: tuple[object, object],
    names: Sequence[str],
) -> Iterator[SurveyChange]:
    for name in names:
        before, after = (getattr(each, name) for each in pair)
        if before != after:
            yield SurveyChange(kind, subject, port, name, before, after)


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
    """Return a value in a few words."""
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


def _seat(seat: PciPosition) -> str:
    count = len(seat.virtual_functions)
    return f"{seat.pci} with {count} VF{'' if count == 1 else 's'}"


_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Device: _device,
    Port: _port,
    PciPosition: _seat,
    Gpu: lambda gpu: gpu.driver or "no driver",
    CharDevice: lambda char: char.path.rpartition("/")[2],
    float: lambda rate: f"{rate:g}G",
}
