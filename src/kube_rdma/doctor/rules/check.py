"""Defines a check of the doctor: a code, the parts that it needs, and a look at them.

The docstring of a look begins with what people notice when its check finds something: it is the
sentence of docs/doctor.md (kube_rdma_tools/doctor_page).

The modules beside it have the checks, diagnose runs them. A check whose parts were not
all seen is not run, so what could not be read is never taken for missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from kube_base.frozen import Frozen, replace
from kube_rdma.model.device import Device, PciPosition
from kube_rdma.model.doctor import Observation, ObservedLink, ObservedRoute
from kube_rdma.model.finding import Finding
from kube_rdma.model.survey import NamespaceMode, Survey

Look = Callable[[Observation], Iterator[Finding]]


class Check(Frozen):
    """A check of the doctor: its code and title, the parts it needs, and the rule that it runs."""

    code: str  # never given to another check
    title: str
    needs: tuple[str, ...]  # parts of the Observation, by dotted path (pod.links)
    look: Look
    explains: tuple[str, ...] = ()  # codes of Findings about the same subject that follow from it
    spreads: tuple[str, ...] = ()  # codes of Findings that follow whatever they are about

    def findings(self, seen: Observation) -> Iterator[Finding]:
        """Yield the check's Findings about an Observation that has all parts in `needs`."""
        return (replace(one, code=self.code) for one in self.look(seen))

    def missing(self, seen: Observation) -> tuple[str, ...]:
        """Return the names of the parts that the check needs and that were not seen."""
        return tuple(part for part in self.needs if part_of(seen, part) is None)


def interfaces_of(texts: Iterable[str]) -> list[IPv4Interface | IPv6Interface]:
    """Return the texts as addresses with prefix lengths; leave out texts that are none."""
    parsed = []
    for text in texts:
        with suppress(ValueError):
            parsed.append(ip_interface(text))
    return parsed


def unrouted(link: ObservedLink, routes: Iterable[ObservedRoute]) -> Iterator[str]:
    """Yield a link's addresses, with prefix length, whose subnet has no route over the link.

    Link-local addresses, /32 and /128 are left out.
    """
    ways = {(route.interface, route.to) for route in routes}
    for at in interfaces_of(link.addresses):
        alone = at.network.prefixlen == at.max_prefixlen
        if not at.is_link_local and not alone and (link.name, str(at.network)) not in ways:
            yield str(at)


def whole_cards(survey: Survey) -> Iterator[tuple[Device, PciPosition]]:
    """Yield each device that is a whole PCI function, no VF or SF, with its PCI position."""
    for device in survey.devices:
        position = device.position
        if position is None or position.physical_function is not None:
            continue
        if device.pci and not device.auxiliary:
            yield device, position


def part_of(seen: Observation, part: str) -> object:
    """Return the value at a dotted path of an Observation, such as `pod.links`.

    Return None where any value on the path was not seen. For several values, such as containers,
    return a tuple, or None if one of them was not seen.
    """
    value: object = seen
    for name in part.split("."):
        value = _field(value, name)
    return value


def _field(value: object, name: str) -> object:
    if isinstance(value, tuple):
        parts = tuple(_field(one, name) for one in value)
        return None if any(one is None for one in parts) else parts
    part = None if value is None else getattr(value, name)
    return None if part is NamespaceMode.UNKNOWN else part
