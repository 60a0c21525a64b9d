"""How documents write addresses: one address, a subnet, a span of addresses, a DNS label.

The readers of addresses in api use it (ip_pool, ip_objects, ip_conf). Each word is read to its
value at once; a text that has another form gets a sentence with an example.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.words import TextForm
from kube_rdma.model.ipam import Address, Bits, BlockKey, Span, Subnet

LONGEST = 128  # characters: two addresses of IPv6 with a dash have 79


class Word(Frozen):
    """A text and its value: how it is read, what it is called, an example.

    `read` raises ValueError for another form, or slips where it can say more.
    """

    read: Callable[[str], object]
    what: str
    example: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        text = core_schema.str_schema(max_length=LONGEST)
        return core_schema.no_info_after_validator_function(self.check, text)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "maxLength": LONGEST, "examples": [self.example]}

    def check(self, text: str) -> object:
        """The value of a text; raise slips when it has another form."""
        try:
            return self.read(text)
        except PydanticCustomError:
            raise
        except ValueError:
            problem = f"{shown(text)} is not {self.what}"
            raise slips(Slip(problem, f"Write it like {shown(self.example)}")) from None


def address(text: str) -> Address:
    """An address; ValueError for another form, and for one with a zone (fe80::1%eth0)."""
    if "%" in text:
        raise ValueError(text)
    return ip_address(text)


def subnet(text: str) -> Subnet:
    """A subnet by its first address and length; raise slips when bits are set behind the length."""
    if "/" not in text or "%" in text:
        raise ValueError(text)
    network = ip_network(text, strict=False)
    if network.network_address != ip_address(text.partition("/")[0]):
        problem = f"{shown(text)} has bits set behind its length /{network.prefixlen}"
        raise slips(Slip(problem, f"Write {shown(str(network))}"))
    return network


@lru_cache(4096)  # each event of a block brings all of its spans again, and few are new
def span(text: str) -> Span:
    """One address, a subnet, or two ends with a dash; ValueError for another form."""
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
    """A span as a text that `span` reads."""
    return str(ends.first) if ends.first == ends.last else f"{ends.first}-{ends.last}"


def bounds(ends: Span) -> tuple[int, int, int]:
    """Family and both ends as numbers, so that spans can be sorted and compared."""
    return ends.first.version, int(ends.first), int(ends.last)


def meets(ends: Span, other: Span) -> bool:
    """Whether two spans have an address in common."""
    (family, first, last), (family_2, first_2, last_2) = bounds(ends), bounds(other)
    return family == family_2 and first <= last_2 and first_2 <= last


def meeting(ranges: Iterable[Span]) -> Callable[[Span], bool]:
    """Whether a span has an address in common with any of these, which are sorted once."""
    parts: list[tuple[int, int, int]] = []  # of the union: family, last and first address
    for family, first, last in sorted(map(bounds, ranges)):
        if parts and parts[-1][0] == family and first <= parts[-1][1]:
            _, end, begin = parts.pop()
            parts.append((family, max(end, last), begin))
        else:
            parts.append((family, last, first))

    def meets_any(ends: Span) -> bool:
        family, first, last = bounds(ends)
        at = bisect_left(parts, (family, first, -1))
        return at < len(parts) and parts[at][0] == family and parts[at][2] <= last

    return meets_any


def spans_of(key: BlockKey, bits: Bits) -> Iterator[str]:
    """The addresses of a set as texts that people read, neighbours in one."""
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
    """The spans as a set of addresses of the block; they lie inside of it."""
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
IpAddress: TypeAlias = Annotated[Address, Word(address, "an IP address", "10.0.0.10")]
Cidr: TypeAlias = Annotated[Subnet, Word(subnet, "a subnet", "10.0.0.0/24")]
IpSpan: TypeAlias = Annotated[
    Span, Word(span, "an address, a subnet or a range of addresses", "10.0.0.1-10.0.0.9")
]
