"""The documents that programs write for each other: IPBlock, and a node's lease.

An IPBlock says which node holds which addresses of a cell, in texts that people can read with
kubectl. A node's lease is a coordination.k8s.io Lease; what that kind has no field for stands in
its annotations. Whoever edits one by hand gets a sentence that names object and field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from kube_base.errors import Refused
from kube_rdma.api.ipam.ip_words import IpAddress, IpSpan, Label, bits_of, spans_of, written
from kube_rdma.api.text.document import Value, shown
from kube_rdma.api.text.faults import Slip, slips, validate
from kube_rdma.api.text.object_document import of_json, of_value
from kube_rdma.api.text.typed import Many, Typed
from kube_rdma.api.text.words import TextForm
from kube_rdma.model.ipam import (
    CELL,
    Address,
    Block,
    BootId,
    Cell,
    CellHolding,
    Family,
    JournalId,
    NetworkName,
    NodeLease,
    NodeName,
    Owner,
    Pin,
    Span,
    Version,
)

LEASE_PREFIX = "ipam."  # of the object's name, before the node's: kubelets have leases too
LEASE_LABEL = ("kube-rdma.io/lease", "ipam")
_LONGEST_BEAT = 20  # digits; one a second for longer than there are clusters
_ANNOTATION = "kube-rdma.io/ipam-"
_NODE = TextForm("[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "the name of a node", "node-1")
_REPAIR = "Delete the block only when no pod uses an address of it; else write back what it was"


class BlockHolding(Typed):
    """A node and its part of the block."""

    node: Annotated[str, _NODE] = Field(examples=["node-1"])
    """node is the name of the node."""
    addresses: Many[IpSpan] = ()
    """addresses are the addresses that only this node can give to pods: single addresses, or two
    ends with a dash. Example: 10.0.0.64-10.0.0.70.
    """


class BlockPin(Typed):
    """The last address of an owner."""

    owner: str = Field(examples=["default/train-0/net1"])
    """owner is the interface of a pod, as namespace/pod/interface. Example: default/train-0/net1.
    """
    address: IpAddress = Field(examples=["10.0.0.70"])
    """address is the address that the owner had last. Example: 10.0.0.70."""


class IPBlockSpec(Typed):
    """CELL addresses of a network, and who holds which of them."""

    network: Label = Field(examples=["default"])
    """network is the address space of the block, as in spec.network of an IPPool."""
    first: IpAddress = Field(examples=["10.0.0.64"])
    """first is the first of the 64 addresses. Example: 10.0.0.64."""
    edition: int = Field(0, ge=0)
    """edition is a number that every write of the block raises by one."""
    holdings: Many[BlockHolding] = ()
    """holdings say which node holds which addresses of the block. An address in no entry is free.
    """
    pins: Many[BlockPin] = ()
    """pins are the last addresses of pods of StatefulSets. A pod that comes again gets its address
    back if possible; other pods get it only when no other is free.
    """

    @field_validator("first")
    @classmethod
    def _aligned(cls, first: Address) -> Address:
        if int(first) % CELL:
            below = ip_address(int(first) - int(first) % CELL)
            problem = f"{first} is not the first of {CELL} addresses"
            raise slips(Slip(problem, f"Write back what it was, perhaps {below}"))
        return first

    @field_validator("holdings")
    @classmethod
    def _held_inside(
        cls, holdings: tuple[BlockHolding, ...], info: ValidationInfo
    ) -> tuple[BlockHolding, ...]:
        strays = [
            Slip(f"{written(each)} is outside of the block", _REPAIR, (n, "addresses", m))
            for n, holding in enumerate(holdings)
            for m, each in enumerate(holding.addresses)
            if _is_stray(each, info)
        ]
        if strays:
            raise slips(*strays)
        return holdings

    @field_validator("pins")
    @classmethod
    def _pinned_inside(
        cls, pins: tuple[BlockPin, ...], info: ValidationInfo
    ) -> tuple[BlockPin, ...]:
        strays = [
            Slip(f"{pin.address} is outside of the block", "Remove the pin", (n, "address"))
            for n, pin in enumerate(pins)
            if _is_stray(Span(pin.address, pin.address), info)
        ]
        if strays:
            raise slips(*strays)
        return pins


class IPBlockObject(Typed):
    """IPBlock records which node holds which of 64 addresses of a network.

    Only kube-rdma writes it: a change by hand can give an address to two pods.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["IPBlock"]
    spec: IPBlockSpec
    """spec says which addresses the block has, and which nodes hold them."""


class _LeaseSpec(Typed):
    """The fields of a coordination.k8s.io Lease that kube-rdma writes; any other is a fault."""

    holder_identity: str = Field("", examples=["a journal id"])
    lease_duration_seconds: int = Field(ge=1, examples=[600])


class _LeaseNotes(Typed):
    """The annotations, without their prefix."""

    boot: str = Field(examples=["a boot id"])
    beat: str = Field(examples=["1"])
    fenced: Literal["true", "false"] = "false"

    @field_validator("beat")
    @classmethod
    def _counts(cls, beat: str) -> str:
        if not (beat.isascii() and beat.isdecimal() and len(beat) <= _LONGEST_BEAT):
            raise slips(Slip(f"{shown(beat)} is not a number", "Write back what it was"))
        return beat


def decode_block(data: bytes) -> Block:
    """The spec of an IPBlock, still without its version; raise Refused with all of its faults."""
    spec = validate(IPBlockSpec, of_json(data, base=("spec",)))
    cell = Cell(NetworkName(spec.network), Family(spec.first.version), int(spec.first))
    return Block(
        cell,
        tuple(CellHolding(NodeName(h.node), bits_of(cell, h.addresses)) for h in spec.holdings),
        tuple(Pin(Owner(pin.owner), int(pin.address) - cell.first) for pin in spec.pins),
        spec.edition,
    )


def encode_block(block: Block) -> bytes:
    """The spec that `decode_block` reads."""
    cell = block.cell
    spec: dict[str, Value] = {
        "network": cell.network,
        "first": str(cell.address(0)),
        "edition": block.edition,
        "holdings": [
            {"node": each.node, "addresses": list(spans_of(cell, each.bits))}
            for each in block.holdings
        ],
        "pins": [
            {"owner": pin.owner, "address": str(cell.address(pin.place))} for pin in block.pins
        ],
    }
    return json.dumps({key: value for key, value in spec.items() if value != []}).encode()


def lease_name(node: NodeName) -> str:
    """The name of a node's lease."""
    return f"{LEASE_PREFIX}{node}"


def decode_lease(data: bytes) -> tuple[JournalId, float]:
    """Journal and duration in a Lease's spec; raise Refused with all faults."""
    spec = validate(_LeaseSpec, of_json(data, base=("spec",)))
    return JournalId(spec.holder_identity), float(spec.lease_duration_seconds)


def encode_lease(spec: tuple[JournalId, float]) -> bytes:
    """The Lease's spec that `decode_lease` reads; a part of a second becomes a whole one."""
    journal, duration = spec
    holder = {"holderIdentity": journal} if journal else {}
    return json.dumps({**holder, "leaseDurationSeconds": math.ceil(duration)}).encode()


def lease(
    name: str,
    spec: tuple[JournalId, float],
    annotations: Mapping[str, str],
    version: Version | None = None,
) -> NodeLease:
    """The value of a Lease object; raise Refused that names object and annotation."""
    if not name.startswith(LEASE_PREFIX):
        remedy = f"Take its label {LEASE_LABEL[0]} away"
        raise Refused("it is not a node's lease for IPAM", remedy=remedy, where=f"Lease {name}")
    ours = {
        key.removeprefix(_ANNOTATION): value
        for key, value in annotations.items()
        if key.startswith(_ANNOTATION)
    }
    notes = validate(
        _LeaseNotes, of_value(dict(ours), f"Lease {name}", ("metadata", "annotations"))
    )
    journal, duration = spec
    return NodeLease(
        NodeName(name.removeprefix(LEASE_PREFIX)),
        journal,
        BootId(notes.boot),
        int(notes.beat),
        duration,
        notes.fenced == "true",
        version,
    )


def lease_annotations(lease: NodeLease) -> dict[str, str]:
    """What a Lease's spec has no field for."""
    notes = {"boot": lease.boot, "beat": str(lease.beat), "fenced": str(lease.fenced).lower()}
    return {_ANNOTATION + key: value for key, value in notes.items()}


def _is_stray(span: Span, info: ValidationInfo) -> bool:
    """Whether it leads out of the block; not so when the block itself is not understood."""
    first: Address | None = info.data.get("first")
    if first is None:
        return False
    inside = span.first.version == first.version and int(span.first) >= int(first)
    return not (inside and int(span.last) < int(first) + CELL)
