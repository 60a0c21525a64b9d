"""The documents that programs write for each other: IPBlock, a node's lease, an IPPool's status.

An IPBlock says which node holds which addresses of a block, in texts that people can read with
kubectl. A node's lease is a coordination.k8s.io Lease; what that kind has no field for stands in
its annotations. If an object cannot be understood, the error names the field. In a pool's status
nodes write `wants`, the controller the rest; it also removes stale `wants`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.lib.phrases import short_count
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.words import LABEL, address, bits_of, span, spans_of, written
from kube_rdma.model import ipam, kubernetes
from kube_rdma.model.ipam import BorrowRequest, FamilyName, IPPool, Usage

T = TypeVar("T")

LEASE_PREFIX = "ipam."  # of the object's name, before the node's: kubelets have leases too
LEASE_LABEL = ("kube-rdma.io/lease", "ipam")
# Prefixes of the labels of an IPBlock, by which nodes find theirs; policies.yaml makes them too.
HOLDER, PINNED = "holder.kube-rdma.io/", "pinned.kube-rdma.io/"
_LABEL_NAME = 63  # characters after the prefix (apimachinery, IsQualifiedName)
_ANNOTATION = "kube-rdma.io/ipam-"
_NODE = "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_POD = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"  # with its namespace, as in its DNS name
_UNDO = "Restore the former value"
_REPAIR = "Delete the block only when no pod uses an address of it; else restore the former value"
_ADDRESS = "an IP address"
_SPAN = "an address, a subnet or a range of addresses"
_EACH = Meta(max_length=ipam.BLOCK_ADDRESSES)
Address = Annotated[str, Meta(max_length=45)]
Span = Annotated[str, Meta(max_length=91)]
_WHY = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class BlockHolding(kubernetes.SparsePart, forbid_unknown_fields=True):
    """A node and the addresses of the block that it holds."""

    node: Annotated[str, Meta(pattern=_NODE, max_length=253)]
    """node is the name of the node."""
    addresses: Annotated[tuple[Span, ...], _EACH] = ()
    """addresses are the addresses that only this node can give to pods: single addresses, or two
    ends with a dash. Example: 10.0.0.64-10.0.0.70.
    """


class BlockPin(kubernetes.SparsePart, forbid_unknown_fields=True):
    """The address that a pod's interface, or a node for its slice, had last."""

    owner: Annotated[str, Meta(max_length=384)]
    """owner is the interface of a pod, as namespace/pod/interface, or a node and its slice, as
    node/name/address. Example: default/train-0/net1.
    """
    address: Address
    """address is the address that the owner had last. Example: 10.0.0.70."""


class IPBlockSpec(kubernetes.SparsePart, forbid_unknown_fields=True):
    """The addresses of a block, and which node holds which of them."""

    network: Annotated[str, Meta(pattern=f"^{LABEL.form}$", max_length=63)]
    """network is the address space of the block, as in spec.network of an IPPool."""
    first: Address
    """first is the first of the 64 addresses. Example: 10.0.0.64."""
    edition: Annotated[int, Meta(ge=0)] = 0
    """edition is a number that every write of the block raises by one."""
    holdings: Annotated[tuple[BlockHolding, ...], _EACH] = ()
    """holdings say which node holds which addresses of the block. An address in no entry is free.
    """
    pins: Annotated[tuple[BlockPin, ...], _EACH] = ()
    """pins are the last addresses of pods of StatefulSets, and the last slices of nodes. A pod or
    node that comes again gets its last ones if possible; others get pinned addresses only when no
    other is free.
    """


class IPBlockObject(kubernetes.StatusPart):
    """IPBlock records which node holds which of 64 addresses of a network.

    Only kube-rdma writes IPBlocks: a change by hand can give an address to two pods.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["IPBlock"]
    spec: IPBlockSpec
    """spec says which addresses the block has, and which nodes hold them."""


class LeaseSpec(kubernetes.SparsePart, forbid_unknown_fields=True):
    """The fields that the Lease of a node has for IPAM; any other is a fault."""

    # An int32 of the API server, which others may fill too.
    duration: Annotated[int, Meta(ge=1, le=2**31 - 1)] = field(name="leaseDurationSeconds")
    journal: ipam.JournalId = field(name="holderIdentity", default=ipam.JournalId(""))


class _LeaseNotes(kubernetes.StatusPart, forbid_unknown_fields=True):
    """The annotations of a Lease that belong to IPAM, without their prefix."""

    boot: ipam.BootId
    beat: str
    fenced: Literal["true", "false"] = "false"


def decode_block(data: bytes) -> ipam.Block:
    """Return the block that a spec describes, without version.

    Raise Refused that names the field.
    """
    spec = _part(data, IPBlockSpec, "spec")
    first = _value(address, spec.first, _ADDRESS, "spec.first")
    if int(first) % ipam.BLOCK_ADDRESSES:
        below = ip_address(int(first) - int(first) % ipam.BLOCK_ADDRESSES)
        problem = f"{first} does not begin a block of {ipam.BLOCK_ADDRESSES} addresses"
        raise Refused(problem, remedy=f"{_UNDO}, perhaps {below}", where="spec.first")
    key = ipam.BlockKey(ipam.NetworkName(spec.network), ipam.Family(first.version), int(first))
    holdings = (
        ipam.NodeHolding(
            ipam.NodeName(holding.node),
            bits_of(key, _spans(key, holding.addresses, f"spec.holdings[{n}].addresses")),
        )
        for n, holding in enumerate(spec.holdings)
    )
    pins = (
        ipam.Pin(ipam.Owner(pin.owner), _place(key, pin.address, f"spec.pins[{n}].address"))
        for n, pin in enumerate(spec.pins)
    )
    plain = sorted((holding for holding in holdings if holding.bits), key=lambda each: each.node)
    block = ipam.Block(key, tuple(plain), tuple(pins), spec.edition)
    return replace(block, is_plain=_block_spec(block) == spec)


def encode_block(block: ipam.Block) -> bytes:
    """Return the spec of a block as JSON, as `decode_block` reads it."""
    return msgspec.json.encode(_block_spec(block))


def _block_spec(block: ipam.Block) -> IPBlockSpec:
    key = block.key
    holdings = (BlockHolding(h.node, tuple(spans_of(key, h.bits))) for h in block.holdings)
    pins = (BlockPin(pin.owner, str(key.address(pin.offset))) for pin in block.pins)
    first = str(key.address(0))
    return IPBlockSpec(key.network, first, block.edition, tuple(holdings), tuple(pins))


def block_labels(block: ipam.Block) -> tuple[tuple[str, str], ...]:
    """Return the labels of a block, for the nodes that hold addresses and the owners of pins."""
    keys = {holder_label(holding.node) for holding in block.holdings}
    keys |= {key for pin in block.pins if (key := pin_label(pin.owner))}
    return tuple((key, "") for key in sorted(keys))


def holder_label(node: ipam.NodeName) -> str:
    """Return the label of the blocks in which a node holds addresses.

    Nodes with long names may share a label.
    """
    return HOLDER + _cut(node)


def pin_label(owner: ipam.Owner) -> str:
    """Return the label of blocks with a pin of an owner's pod, or of the node that owns a slice.

    Return "" for a name of another form. Pods with long names may share a label.
    """
    namespace, _, rest = owner.partition("/")
    pod = f"{rest.partition('/')[0]}.{namespace}"
    return PINNED + _cut(pod) if re.fullmatch(_POD, pod) else ""


def _cut(name: str) -> str:
    """Return a name, cut to 63 characters if it is longer: the last one is then z."""
    return name if len(name) <= _LABEL_NAME else f"{name[: _LABEL_NAME - 1]}z"


def lease_name(node: ipam.NodeName) -> str:
    """Return the name of the Lease object of a node."""
    return f"{LEASE_PREFIX}{node}"


def decode_lease(data: bytes) -> LeaseSpec:
    """Return journal id and duration of a Lease's spec; raise Refused that names the field."""
    return _part(data, LeaseSpec, "spec")


def lease_spec(lease: ipam.NodeLease) -> LeaseSpec:
    """Return the spec of the Lease that stores a node lease, its duration rounded up to seconds."""
    return LeaseSpec(math.ceil(lease.duration), lease.journal)


def lease(
    name: str, spec: LeaseSpec, annotations: Mapping[str, str], version: ipam.Version | None = None
) -> ipam.NodeLease:
    """Return the node lease that a Lease object stores.

    Raise Refused that names the Lease if it cannot be understood or is not of IPAM.
    """
    if not name.startswith(LEASE_PREFIX):
        remedy = f"Take its label {LEASE_LABEL[0]} away"
        raise Refused("it is not a node's lease for IPAM", remedy=remedy, where=f"Lease {name}")
    marked = [pair for pair in annotations.items() if pair[0].startswith(_ANNOTATION)]
    ours = {key.removeprefix(_ANNOTATION): value for key, value in marked}
    place = f"Lease {name}: metadata.annotations"
    notes = _part(msgspec.json.encode(ours), _LeaseNotes, place)
    return ipam.NodeLease(
        ipam.NodeName(name.removeprefix(LEASE_PREFIX)),
        spec.journal,
        notes.boot,
        _value(_count, notes.beat, "a number", f"{place}.beat"),
        float(spec.duration),
        notes.fenced == "true",
        version,
    )


def lease_annotations(lease: ipam.NodeLease) -> dict[str, str]:
    """Return the annotations for values of a node lease that have no field in a Lease's spec."""
    notes = {"boot": lease.boot, "beat": str(lease.heartbeat), "fenced": str(lease.fenced).lower()}
    return {_ANNOTATION + key: value for key, value in notes.items()}


def _part(data: bytes, kind: type[T], where: str) -> T:
    """Decode a part of an object as `kind`; `where` is its path.

    Raise Refused whose path leads to the field with the fault.
    """
    try:
        return decoded(data, kind)
    except Undecodable as error:
        match = _WHY.fullmatch(error.why)
        problem, path = (match["problem"], match["path"] or "") if match else (error.why, "")
        if unknown := _UNKNOWN.fullmatch(problem):
            problem, path = "there is no such field", f"{path}.{unknown[1]}"
        raise Refused(problem, remedy=_UNDO, where=where + path) from None


def _value(read: Callable[[str], T], text: str, what: str, where: str) -> T:
    try:
        return read(text)
    except ValueError:
        raise Refused(f"{shown(text)} is not {what}", remedy=_UNDO, where=where) from None


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text):  # enough for heartbeats
        raise ValueError(text)
    return int(text)


def _spans(key: ipam.BlockKey, texts: Iterable[str], where: str) -> Iterator[ipam.Span]:
    for n, text in enumerate(texts):
        place = f"{where}[{n}]"
        yield _inside(key, _value(span, text, _SPAN, place), place)


def _place(key: ipam.BlockKey, text: str, where: str) -> int:
    pinned = _value(address, text, _ADDRESS, where)
    return int(_inside(key, ipam.Span(pinned, pinned), where).first) - key.first


def _inside(key: ipam.BlockKey, ends: ipam.Span, where: str) -> ipam.Span:
    """Return the addresses `ends` if all of them are in the block; else raise Refused."""
    family_fits = ends.first.version == key.family
    if (
        family_fits
        and key.first <= int(ends.first)
        and int(ends.last) < key.first + ipam.BLOCK_ADDRESSES
    ):
        return ends
    raise Refused(f"{written(ends)} is outside of the block", remedy=_REPAIR, where=where)


# The status of an IPPool.

MOST = 2**53 - 1  # a /64 has more; then the number means: at least so many
MOST_USAGES = 2 * 1025  # families and rails
MOST_WANTS = 16_384  # what an object has room for
MOST_CONFLICTS = 64  # that are written; earlier releases wrote all
LongText = Annotated[str, Meta(max_length=4096)]  # 64 subnets


class IPPoolStatus(kubernetes.StatusPart):
    """The status of an IPPool, which nodes and the controller write."""

    observed_generation: int = kubernetes.NOT_OBSERVED
    """observedGeneration is metadata.generation of the pool that this status is about. -1: no
    controller has looked at the pool.
    """
    ranges: LongText = ""
    """ranges is the list of the pool's subnets as one text, for kubectl get."""
    used: kubernetes.Word = ""
    """used is the number of addresses that nodes hold, as a text for kubectl get. With two families
    it has both numbers. Example: 12 v4, 8 v6.
    """
    free: kubernetes.Word = ""
    """free is the number of addresses that no node holds, as a text for kubectl get. With two
    families it has both numbers. Example: 12 v4, 8 v6.
    """
    usage: Annotated[tuple[Usage, ...], Meta(max_length=MOST_USAGES)] = ()
    """usage says how full the pool is, in one entry for each address family and rail."""
    wants: Annotated[tuple[BorrowRequest, ...], Meta(max_length=MOST_WANTS)] = ()
    """wants are the requests of nodes that lack addresses for pods. Nodes with spare addresses give
    them back. A node removes its entries when it no longer waits.
    """
    conditions: Annotated[tuple[kubernetes.Condition, ...], Meta(max_length=16)] = ()
    """conditions are Ready and NearlyFull. Ready: the pool can be used, and conflicts is empty.
    NearlyFull: nodes hold at least 90 percent of the addresses of a family and rail. A pool that
    cannot be used as it is written has Stalled too.
    """
    conflicts: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=16 * MOST_CONFLICTS)] = ()
    """conflicts are at most 64 sentences about addresses that two nodes hold by their IPBlocks, and
    about IPBlocks that cannot be read. While an IPBlock cannot be read, usage stays as it was.
    Empty: there are none.
    """


class PoolFindings(Frozen):
    """The findings of the controller about one pool, for the pool's status."""

    generation: int  # of the object that it looked at
    usages: Sequence[Usage] = ()
    broken: str = ""  # why the pool cannot be used at all
    scarce: Sequence[str] = ()  # sentences about parts that are nearly full
    # Sentences about addresses that two nodes hold, and about IPBlocks that cannot be read.
    conflicts: Sequence[str] = ()


def pool_status(
    old: IPPoolStatus | None, pool: IPPool | None, findings: PoolFindings, now: str
) -> IPPoolStatus:
    """Return a pool's new status with the findings; the requests in `wants` stay as they are.

    `now` is a time as in RFC 3339, for conditions that change. `pool` is None where its spec is not
    understood or work on it failed, as `findings` say.
    """
    before = old or IPPoolStatus()
    usage = tuple(
        replace(
            each, size=min(each.size, MOST), held=min(each.held, MOST), free=min(each.free, MOST)
        )
        for each in findings.usages
    )
    return replace(
        before,
        observed_generation=findings.generation,
        ranges=kubernetes.cut(
            ", ".join(str(each.subnet) for each in (pool.ranges if pool else ())), 4096
        ),
        used=counted((each.family, each.held) for each in findings.usages),
        free=counted((each.family, each.free) for each in findings.usages),
        usage=usage,
        conditions=kubernetes.observed(
            _conditions(before.conditions, findings, now), findings.generation
        ),
        conflicts=tuple(kubernetes.cut(each) for each in findings.conflicts[:MOST_CONFLICTS]),
    )


def counted(parts: Iterable[tuple[FamilyName, int]]) -> str:
    """Return a number of addresses as text, by family if there are two: ``12``, ``12 v4, 8 v6``."""
    sums: dict[str, int] = {}
    for family, count in parts:
        sums[family] = sums.get(family, 0) + count
    if len(sums) == 1:
        return "".join(map(short_count, sums.values()))
    texts = ((short_count(count), family) for family, count in sorted(sums.items()))
    return ", ".join(f"{count} {family.removeprefix('IP')}" for count, family in texts)


def _conditions(
    old: tuple[kubernetes.Condition, ...], findings: PoolFindings, now: str
) -> tuple[kubernetes.Condition, ...]:
    """Return the conditions Ready and NearlyFull, and Stalled where the pool cannot be used."""
    ready = ("Usable", "Nodes give addresses of it.")
    if findings.broken:
        ready = ("Refused", findings.broken)
    elif findings.conflicts:
        ready = ("Conflict", findings.conflicts[0])
    full = ("Room", "There is room.")
    if findings.scarce:
        full = ("Scarce", " ".join(f"{each}." for each in findings.scarce))
    usable = not (findings.broken or findings.conflicts)
    return (
        kubernetes.condition(old, now, "Ready", usable, ready),
        kubernetes.condition(old, now, "NearlyFull", bool(findings.scarce), full),
        *kubernetes.stalled(old, now, ready if findings.broken else None),
    )
