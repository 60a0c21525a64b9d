"""The words of the configuration: how an address, a name or a range is written, and its meaning.

The dialects use the same words under different names of fields; here each has its one form, with
the sentence for a text that does not have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools.pool import ExtraInfo, FunctionRange
from kube_rdma.model.pools.resource_name import NAME, PREFIX, RESOURCE


class TextForm(Frozen):
    """The form of a text: the pattern of the whole of it, what that is called, an example."""

    pattern: str
    what: str
    example: str
    longest: int = 253  # characters

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        form = {"pattern": f"^{self.pattern}$", "examples": [self.example]}
        return {"maxLength": self.longest, **handler(schema), **form}

    def check(self, text: str) -> str:
        """The text itself; raise slips when it has another form."""
        if len(text) > self.longest or not re.fullmatch(self.pattern, text):
            raise slips(
                Slip(f"{shown(text)} is not {self.what}", f"Write it like {shown(self.example)}")
            )
        return text


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
    """What ``ens2f0#0,2-7`` means."""
    parent, _, ranges = text.partition("#")
    spans = (span.partition("-") for span in ranges.split(",") if span)
    return FunctionRange(parent, tuple((int(a), int(b or a)) for a, _, b in spans))


def root_range(text: str) -> FunctionRange:
    """The same of a PCI address."""
    functions = function_range(text)
    return FunctionRange(PciAddress(functions.parent), functions.indexes)


def extra_info(facts: Mapping[str, Mapping[str, str]]) -> tuple[ExtraInfo, ...]:
    """What containers are told besides, card by card."""
    return tuple(ExtraInfo(card.lower(), tuple(each.items())) for card, each in facts.items())


def partition(key: str) -> int:
    """A partition key without the bit for full members: ``0x8001`` is partition 1."""
    return int(key, 16) & 0x7FFF
