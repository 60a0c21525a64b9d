"""The texts in documents: the forms of addresses, names and ranges, and their values.

The dialects use the same texts under different names of fields. Here each has its one form, with
the sentence for a text that does not have it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import Address, Bits, BlockKey, Span, Subnet
from kube_rdma.model.pools import NAME, PREFIX, RESOURCE, ExtraInfo, FunctionRange

_LONGEST_VALUE = 128  # characters: two addresses of IPv6 with a dash have 79


class TextForm(Frozen):
    """The form of a text in documents, its name in a sentence, and an example."""

    # A pattern of the whole text, or a function that reads its value: it raises ValueError for
    # another form, or slips where it can say more.
    form: str | Callable[[str], object]
    what: str
    example: str
    longest: int = 253  # characters, of a text with a pattern

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner: CoreSchema = core_schema.str_schema(max_length=_LONGEST_VALUE)
        if isinstance(self.form, str):
            inner = handler(source)
        return core_schema.no_info_after_validator_function(self.check, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if not isinstance(self.form, str):
            return {"type": "string", "maxLength": _LONGEST_VALUE, "examples": [self.example]}
        form = {"pattern": f"^{self.form}$", "examples": [self.example]}
        return {"maxLength": self.longest, **handler(schema), **form}

    def check(self, text: str) -> object:
        """Return the value that a text stands for; raise an error with Slips for another form."""
        try:
            if not isinstance(self.form, str):
                return self.form(text)
            if len(text) <= self.longest and re.fullmatch(self.form, text):
                return text
        except PydanticCustomError:
            raise
        except ValueError:
            pass
        remedy = f"Write it like {shown(self.example)}"
        raise slips(Slip(f"{shown(text)} is not {self.what}", remedy))


_INTERFACE = r"[^\s/:]{1,15}"  # dev_valid_name in net/core/dev.c
_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_INDEX = "[0-9]{1,5}"
_SPAN = f"{_INDEX}(?:-{_INDEX})?"
_LONGEST_RANGES = 4096  # characters
_RANGES = f"(?:#{_SPAN}(?:,{_SPAN})*)?"


def _ascending(text: str) -> str:
    for first, last in function_range(text).indexes:
        if first > last:
            problem = f"the range {first}-{last} has its larger end first"
            raise slips(Slip(problem, f"Write {last}-{first}"))
    return text


def _cards(facts: Mapping[str, object]) -> Mapping[str, object]:
    wrong = [card for card in facts if card != "*" and not re.fullmatch(_PCI, card)]
    if wrong:
        remedy = 'Write "*" for every card, or an address like "0000:81:00.1"'
        raise slips(*(Slip(f"{shown(w)} is not a PCI address", remedy, (w,)) for w in wrong))
    return facts


Vendor = Annotated[str, TextForm("[0-9a-fA-F]{4}", "a number of four hexadecimal digits", "15b3")]
DeviceId = Annotated[str, TextForm("[0-9a-fA-F]{4}", "a number of four hexadecimal digits", "1017")]
Driver = Annotated[str, TextForm(r"[^\s/]{1,63}", "the name of a driver", "mlx5_core")]
Interface = Annotated[
    str,
    TextForm(_INTERFACE, "the name of an interface, which has at most 15 characters", "ens2f0np0"),
]
LinkType = Literal["ether", "infiniband"]
Pci = Annotated[str, TextForm(_PCI, "a full PCI address", "0000:81:00.1")]
AcpiIndex = Annotated[str, TextForm("[0-9]{1,9}", "an index in digits", "101")]
PKey = Annotated[str, TextForm("0x[0-9a-fA-F]{1,4}", "a partition key in hexadecimal", "0x8001")]
RdmaDevice = Annotated[str, TextForm(r"[^\s/]{1,63}", "the name of an RDMA device", "mlx5_0")]
PhysicalFunction = Annotated[
    str,
    TextForm(
        r"[^\s/:#]{1,15}" + _RANGES,
        "the interface of a physical function, perhaps with ranges of its virtual ones",
        "ens2f0#0,2-7",
        _LONGEST_RANGES,
    ),
    AfterValidator(_ascending),
]
RootDevice = Annotated[
    str,
    TextForm(
        _PCI + _RANGES,
        "the address of a physical function, perhaps with ranges of its virtual ones",
        "0000:81:00.0#0,2-7",
        _LONGEST_RANGES,
    ),
    AfterValidator(_ascending),
]
PhysicalCard = Annotated[
    str,
    TextForm(
        rf"(?:{_PCI}|{_INTERFACE})",
        "the PCI address or the interface of a physical card",
        "0000:81:00.0",
    ),
]
Prefix = Annotated[str, TextForm(PREFIX, "what the kubelet takes before the slash", "rdma")]
Name = Annotated[
    str, TextForm(NAME, "what the kubelet takes after the slash", "hca_shared_devices_a")
]
Resource = Annotated[
    str, TextForm(RESOURCE, "a name that the kubelet takes for a resource", "rdma/hca")
]
Fact = Annotated[str, Field(max_length=4096)]
Facts = Annotated[
    dict[str, Annotated[dict[str, Fact], Field(max_length=64)]],
    Field(max_length=1024, examples=[{"*": {"token": "rail-1"}}]),
    AfterValidator(_cards),
]
ObjectName = Annotated[str, Field(max_length=253)]
LabelValue = Annotated[str, Field(max_length=63)]
Labels = Annotated[dict[str, LabelValue], Field(max_length=64)]
"""Labels that a node or a pod needs, or gets."""


def function_range(text: str) -> FunctionRange:
    """Return a physical function with ranges, from a text as ``ens2f0#0,2-7``."""
    parent, _, ranges = text.partition("#")
    spans = (span.partition("-") for span in ranges.split(",") if span)
    return FunctionRange(parent, tuple((int(a), int(b or a)) for a, _, b in spans))


def root_range(text: str) -> FunctionRange:
    """Return a physical function with ranges of its virtual ones, from a text with its address."""
    functions = function_range(text)
    return FunctionRange(PciAddress(functions.parent), functions.indexes)


def extra_info(facts: Mapping[str, Mapping[str, str]]) -> tuple[ExtraInfo, ...]:
    """Return the additional facts for containers, one ExtraInfo for each card."""
    return tuple(ExtraInfo(card.lower(), tuple(each.items())) for card, each in facts.items())


def partition(key: str) -> int:
    """Return a partition key without the bit for full members: ``0x8001`` is partition 1."""
    return int(key, 16) & 0x7FFF


# Addresses: one, a subnet, a span of them.


def address(text: str) -> Address:
    """Return the IP address in a text; raise ValueError for another form or a zone (%eth0)."""
    if "%" in text:
        raise ValueError(text)
    return ip_address(text)


def subnet(text: str) -> Subnet:
    """Return the subnet in a text.

    Raise ValueError for another form, an error with Slips if bits are set beyond its length.
    """
    if "/" not in text or "%" in text:
        raise ValueError(text)
    network = ip_network(text, strict=False)
    if network.network_address != ip_address(text.partition("/")[0]):
        problem = f"{shown(text)} has bits set behind its length /{network.prefixlen}"
        raise slips(Slip(problem, f"Write {shown(str(network))}"))
    return network


@lru_cache(4096)  # each event of a block brings all of its spans again, and few are new
def span(text: str) -> Span:
    """Return the span of an address, a subnet, or two ends with a dash.

    Raise the errors of `address` and `subnet`, and one with Slips if the larger end comes first.
    """
    if "/" in text:
        network = subnet(text)
        return Span(network.network_address, network.broadcast_address)
    first, dash, last = text.partition("-")
    ends = Span(address(first.strip()), address((last if dash else first).strip()))
    if ends.first.version != ends.last.version:
        raise ValueError(text)
    if int(ends.first) > int(ends.last):
        problem = f"{shown(text)} has its larger end first"
        raise slips(Slip(problem, f'Write "{ends.last}-{ends.first}"'))
    return ends


def written(ends: Span) -> str:
    """Return a span as text in the form that `span` parses."""
    return str(ends.first) if ends.first == ends.last else f"{ends.first}-{ends.last}"


def bounds(ends: Span) -> tuple[int, int, int]:
    """Return IP version, first and last address of a span as numbers, to sort and compare spans."""
    return ends.first.version, int(ends.first), int(ends.last)


def meets(ends: Span, other: Span) -> bool:
    """Return whether two spans have an address in common."""
    (family, first, last), (family_2, first_2, last_2) = bounds(ends), bounds(other)
    return family == family_2 and first <= last_2 and first_2 <= last


def meeting(ranges: Iterable[Span]) -> Callable[[Span], bool]:
    """Return a function that tells whether a span shares an address with any of these ranges."""
    parts: list[tuple[int, int, int]] = []  # of the union: family, last and first address
    for family, first, last in sorted(map(bounds, ranges)):
        if parts and parts[-1][0] == family and first <= parts[-1][1]:
            _, end, begin = parts.pop()
            parts.append((family, max(end, last), begin))
        else:
            parts.append((family, last, first))

    def meets_any(ends: Span) -> bool:
        family, first, last = bounds(ends)
        at = bisect_left(parts, (family, first))
        return at < len(parts) and parts[at][0] == family and parts[at][2] <= last

    return meets_any


def spans_of(key: BlockKey, bits: Bits) -> Iterator[str]:
    """Yield the addresses of a set as texts for people; a run of neighbours is one text."""
    offset, left = 0, int(bits)
    while left:
        gap = (left & -left).bit_length() - 1
        left >>= gap
        length = (~left & (left + 1)).bit_length() - 1
        offset += gap
        yield written(Span(key.address(offset), key.address(offset + length - 1)))
        left >>= length
        offset += length


def bits_of(key: BlockKey, spans: Iterable[Span]) -> Bits:
    """Return the addresses of spans inside a block as a set of its bits."""
    bits = 0
    for ends in spans:
        first, last = int(ends.first) - key.first, int(ends.last) - key.first
        bits |= (1 << (last + 1)) - (1 << first)
    return Bits(bits)


LABEL = TextForm(
    "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    "a DNS label: lower-case letters, digits and dashes, at most 63",
    "rail-0",
)
Label: TypeAlias = Annotated[str, LABEL]
IpAddress: TypeAlias = Annotated[Address, TextForm(address, "an IP address", "10.0.0.10")]
Cidr: TypeAlias = Annotated[Subnet, TextForm(subnet, "a subnet", "10.0.0.0/24")]
IpSpan: TypeAlias = Annotated[
    Span, TextForm(span, "an address, a subnet or a range of addresses", "10.0.0.1-10.0.0.9")
]
