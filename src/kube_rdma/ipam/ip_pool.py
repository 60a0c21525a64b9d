"""The document ``kind: IPPool`` (kube-rdma.io/v1alpha1): what people write, checked and compiled.

The same check serves files and what the API server has. Each caller gets the IPPool value, or a
Refused with all faults. Whether anything is left to give is decided in
ipam/rules/subpools.subpools. A CIDRPool or an IPPool of nv-ipam is read too, and becomes an IPPool
of kube-rdma.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.ipam.objects import IPPoolStatus
from kube_rdma.lib.text import words
from kube_rdma.lib.text.document import Document, Value, of_json, of_value, shown
from kube_rdma.lib.text.faults import Slip, raise_slips, slips, validate
from kube_rdma.lib.text.typed import GoTyped, Many, OfPrograms, Typed
from kube_rdma.model import ipam

MOST_NODES = 10_000  # whose slices a range names
MOST_AT_ONCE = 1024  # addresses that a node acquires at once
LONGEST_REST = 86_400  # seconds
MOST_RANGES, MOST_EXCLUDES, MOST_NAMESPACES = 64, 4096, 1024
MOST_EXCLUDED = 1024  # addresses that perNodeExclusions of a CIDRPool come to in all slices
NV_IPAM = "nv-ipam.nvidia.com"

_NODE = words.TextForm(
    "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?",
    "a node's name: lower-case letters, digits, dashes and dots",
    "worker-1",
)


class ChosenSlice(Typed):
    """The slice of one node, as the routers of the fabric have it."""

    node: Annotated[str, _NODE] = Field(examples=["worker-1"])
    """node is the name of the node. Example: worker-1."""
    subnet: words.Cidr = Field(examples=["10.0.0.0/31"])
    """subnet is the slice of the node. No other node gets it. Example: 10.0.0.0/31."""
    gateway: words.IpAddress | None = None
    """gateway is the address of the router in subnet. Left out: the one that gatewayIndex says.
    Example: 10.0.0.0.
    """


class PoolSlices(Typed):
    """The division of a range between nodes."""

    prefix: int = Field(ge=1, le=128, examples=[31])
    """prefix is the prefix length of each node's slice. The pods of a node get addresses of its
    slice alone, with this length unless oneSubnet is true. Example: 31.
    """
    gateway_index: int | None = Field(None, ge=0, le=2**31 - 1)
    """gatewayIndex is the place of the router's address in each slice, counted from 0. No pod gets
    this address. Left out: the router that gateway names, if any. Example: 0.
    """
    nodes: Many[ChosenSlice] = Field((), max_length=MOST_NODES)
    """nodes are the slices of certain nodes. Every other node takes a free slice with its first pod
    and keeps it until deleted or tainted out-of-service. Left out: all nodes take a free slice.
    """
    one_subnet: bool = False
    """oneSubnet says whether the slices are parts of one subnet. If true, the pod's address has the
    prefix length of subnet, and gateway of the range is the router of all nodes. Left out: false,
    each slice is a subnet of its own.
    """

    @property
    def value(self) -> ipam.PerNode:
        """Return the division of a range as a PerNode."""
        nodes = (ipam.NodeSlice(ipam.NodeName(n.node), n.subnet, n.gateway) for n in self.nodes)
        return ipam.PerNode(self.prefix, self.gateway_index, tuple(nodes), self.one_subnet)

    def faults(
        self, subnet: ipam.Subnet, ends: Sequence[tuple[str, ipam.Address | None]]
    ) -> Iterator[Slip]:
        """Yield the faults of this division for a range of the subnet.

        `ends` are fields of the range that have no meaning beside perNode, except gateway
        with oneSubnet.
        """
        if not subnet.prefixlen <= self.prefix <= subnet.max_prefixlen:
            limits = f"{subnet.prefixlen} to {subnet.max_prefixlen}"
            problem = f"{subnet} has no slices of length {self.prefix}"
            yield Slip(problem, f"Write a prefix of {limits}", ("prefix",))
            return
        for name, end in ends:
            if end is not None and not (name == "gateway" and self.one_subnet):
                remedy = "Write gatewayIndex" if name == "gateway" else "Write a smaller subnet"
                yield Slip(f"{name} has no meaning beside perNode", f"{remedy} in its place")
        yield from self._gateway_faults(subnet)
        yield from self._node_faults(subnet)

    def _gateway_faults(self, subnet: ipam.Subnet) -> Iterator[Slip]:
        size = 1 << (subnet.max_prefixlen - self.prefix)
        index = self.gateway_index
        if index is None:
            return
        reserved = (0, size - 1) if subnet.version == 4 and size > 2 else ()
        if self.one_subnet:
            problem = "the slices of one subnet share a router"
            yield Slip(problem, "Write gateway of the range in its place", ("gatewayIndex",))
        elif index >= size or index in reserved or size == 1:
            lowest, highest = (1, size - 2) if reserved else (0, size - 1)
            remedy = f"Write {lowest} to {highest}" if size > 1 else "Leave it out"
            problem = f"a router cannot have address {index} of a /{self.prefix}"
            yield Slip(problem, remedy, ("gatewayIndex",))

    def _node_faults(self, subnet: ipam.Subnet) -> Iterator[Slip]:
        names: set[str] = set()
        slices: set[ipam.Subnet] = set()
        for index, chosen in enumerate(self.nodes):
            at = ("nodes", index)
            first, last = chosen.subnet.network_address, chosen.subnet.broadcast_address
            if not (first in subnet and last in subnet):
                remedy = f"Write a /{self.prefix} of {subnet}"
                yield Slip(f"{chosen.subnet} is outside of {subnet}", remedy, (*at, "subnet"))
            elif chosen.subnet.prefixlen != self.prefix:
                problem = f"{chosen.subnet} is no /{self.prefix}, as prefix says"
                yield Slip(problem, f"Write a /{self.prefix}", (*at, "subnet"))
            if chosen.gateway is not None and chosen.gateway not in chosen.subnet:
                problem = f"{chosen.gateway} is outside of {chosen.subnet}"
                yield Slip(problem, "Write an address of the slice", (*at, "gateway"))
            if chosen.node in names:
                remedy = "Write each node once in a range"
                yield Slip(f"node {chosen.node} has two slices", remedy, (*at, "node"))
            if chosen.subnet in slices:
                yield Slip(f"two nodes have {chosen.subnet}", "Write another slice", at)
            names.add(chosen.node)
            slices.add(chosen.subnet)


def written_slices(per_node: ipam.PerNode) -> dict[str, Value]:
    """Return the division of a range between nodes as JSON values, as `PoolSlices` reads them."""
    fields: dict[str, Value] = {"prefix": per_node.prefix}
    if per_node.gateway is not None:
        fields["gatewayIndex"] = per_node.gateway
    if per_node.nodes:
        fields["nodes"] = [entry(n.node, n.subnet, n.gateway) for n in per_node.nodes]
    return fields | ({"oneSubnet": True} if per_node.is_one_subnet else {})


def entry(node: str, subnet: ipam.Subnet, gateway: ipam.Address | None) -> Value:
    """Return the slice chosen for a node, an entry of `nodes`, as JSON values."""
    fields: dict[str, Value] = {"node": node, "subnet": str(subnet)}
    return fields | ({"gateway": str(gateway)} if gateway else {})


Rail: TypeAlias = Annotated[int, Field(ge=0, le=1023)]


class PoolRange(Typed):
    """A part of a subnet from which the pool gives addresses."""

    subnet: words.Cidr = Field(examples=["10.0.0.0/24"])
    """subnet is where the addresses are taken from. Its prefix length becomes that of the pod's
    address, unless perNode divides subnet without oneSubnet. Example: 10.0.0.0/24.
    """
    start: words.IpAddress | None = None
    """start is the first address of subnet that pods can get. Left out: the first of subnet."""
    end: words.IpAddress | None = None
    """end is the last address of subnet that pods can get. Left out: the last of subnet."""
    gateway: words.IpAddress | None = None
    """gateway is the address of the router of subnet; no pod gets it. Packets from a pod's address
    leave subnet over gateway, and routes without gw lead to gateway. Left out: subnet has no
    router.
    """
    rail: Rail | None = None
    """rail is the rail of the cards whose NICs get these addresses, counted from 0. Left out: for
    NICs whose rail has no range of its own.
    """
    per_node: PoolSlices | None = Field(None, examples=[{"prefix": 31, "gatewayIndex": 0}])
    """perNode gives each node a slice of subnet for itself, for rails that are routed between
    nodes. Ranges of one family and rail need the same perNode, except its field nodes. Left out:
    the nodes share subnet.
    """

    @field_validator("start", "end", "gateway")
    @classmethod
    def _inside(cls, address: ipam.Address | None, info: ValidationInfo) -> ipam.Address | None:
        subnet: ipam.Subnet | None = info.data.get("subnet")
        if address is None or subnet is None:
            return address
        if address.version != subnet.version:
            problem = f"{address} is IPv{address.version}, the subnet {subnet} IPv{subnet.version}"
            raise slips(Slip(problem, "Make a range of its own for each family"))
        if address not in subnet:
            remedy = f"Write an address inside of {subnet}"
            raise slips(Slip(f"{address} is outside of {subnet}", remedy))
        return address

    @field_validator("end")
    @classmethod
    def _ascending(cls, end: ipam.Address | None, info: ValidationInfo) -> ipam.Address | None:
        start: ipam.Address | None = info.data.get("start")
        if end is None or start is None or end.version != start.version or int(start) <= int(end):
            return end
        problem = f"the range ends at {end}, before its start {start}"
        raise slips(Slip(problem, "Exchange start and end"))

    @field_validator("gateway")
    @classmethod
    def _a_host(cls, gateway: ipam.Address | None, info: ValidationInfo) -> ipam.Address | None:
        subnet: ipam.Subnet | None = info.data.get("subnet")
        if gateway is None or subnet is None or gateway.version == 6:
            return gateway
        own = {"network": subnet.network_address, "broadcast": subnet.broadcast_address}
        for what, reserved in own.items():
            if subnet.prefixlen < 31 and gateway == reserved:
                problem = f"{gateway} is the {what} address of {subnet}, no router can have it"
                raise slips(Slip(problem, "Write the router's address, or leave gateway out"))
        return gateway

    @field_validator("per_node")
    @classmethod
    def _divides(cls, per_node: PoolSlices | None, info: ValidationInfo) -> PoolSlices | None:
        subnet: ipam.Subnet | None = info.data.get("subnet")
        ends = [(name, info.data.get(name)) for name in ("start", "end", "gateway")]
        raise_slips(per_node.faults(subnet, ends) if per_node and subnet else ())
        return per_node

    @property
    def has_router(self) -> bool:
        """Return whether addresses of the range have a gateway."""
        index = self.per_node.gateway_index if self.per_node else None
        return self.gateway is not None or index is not None

    @property
    def span(self) -> ipam.Span:
        """Return the addresses of the range, from the first to the last."""
        first, last = self.subnet.network_address, self.subnet.broadcast_address
        return ipam.Span(self.start or first, self.end or last)


class PoolRoute(Typed):
    """A route for the NICs of the pool."""

    dst: words.Cidr = Field(examples=["10.0.0.0/8"])
    """dst is the subnet that the route leads to. Example: 10.0.0.0/8."""
    gw: words.IpAddress | None = None
    """gw is the address of the next router, in a subnet of ranges. Left out: the gateway of the
    range that the pod's address is from.
    """

    @field_validator("gw")
    @classmethod
    def _one_family(cls, gw: ipam.Address | None, info: ValidationInfo) -> ipam.Address | None:
        dst: ipam.Subnet | None = info.data.get("dst")
        if gw is None or dst is None or gw.version == dst.version:
            return gw
        problem = f"{gw} is IPv{gw.version}, the destination {dst} IPv{dst.version}"
        raise slips(Slip(problem, "Write a gateway of the same family"))


class IPPoolSpec(Typed):
    """A pool of addresses as an administrator writes it."""

    network: words.Label = Field("default", examples=["default"])
    """network is the address space of the pool. Pools of one network share no address; pools of
    different networks can. Left out: default.
    """
    ranges: Many[PoolRange] = Field(
        min_length=1, max_length=MOST_RANGES, examples=[[{"subnet": "10.0.0.0/24"}]]
    )
    """ranges are the subnets, or parts of them, that pods get addresses of. A NIC gets one address
    of each family that the ranges for its rail have. Ranges of one pool cannot overlap. IPv4
    addresses that end in .0 are left out unless perNode is set.
    """
    excludes: Many[words.IpSpan] = Field((), max_length=MOST_EXCLUDES)
    """excludes are addresses that no pod gets: single addresses, subnets, or two ends with a dash.
    Network, broadcast and gateway addresses need no entry. Left out: none. Example:
    10.0.0.1-10.0.0.9.
    """
    routes: Many[PoolRoute] = Field((), max_length=MOST_RANGES)
    """routes are added to every NIC of the pool that can reach their gateway; a default route is in
    the table of the interface alone. Left out: none.
    """
    block_size: int = Field(32, ge=1, le=MOST_AT_ONCE)
    """blockSize is the largest number of addresses that a node takes in advance at once. A node
    takes fewer if the pool has few free addresses. Left out: 32.
    """
    rest_seconds: int = Field(60, ge=0, le=LONGEST_REST)
    """restSeconds is how many seconds a freed address is left alone before another pod can get it.
    Left out: 60.
    """
    probe: bool = False
    """probe says whether the network is asked for each address before a pod uses it, by ARP or
    neighbour solicitation. If another machine answers, the pod does not start with this address. It
    has no effect on InfiniBand and ipvlan. Left out: false.
    """
    namespaces: Many[words.Label] = Field(
        (), min_length=1, max_length=MOST_NAMESPACES, examples=[["team-a"]]
    )
    """namespaces are the namespaces whose pods can get addresses of the pool. Left out: all
    namespaces. Example: [team-a].
    """

    @field_validator("ranges")
    @classmethod
    def _apart(cls, ranges: tuple[PoolRange, ...]) -> tuple[PoolRange, ...]:
        raise_slips(_overlaps(ranges))
        return ranges

    @field_validator("excludes")
    @classmethod
    def _of_use(
        cls, excludes: tuple[ipam.Span, ...], info: ValidationInfo
    ) -> tuple[ipam.Span, ...]:
        ranges: tuple[PoolRange, ...] | None = info.data.get("ranges")
        remedy = "Correct it, or remove it; other addresses are not assigned anyway"
        of_use = words.meeting(one.span for one in ranges or ())
        raise_slips(
            Slip(f"{words.written(each)} is outside of every range", remedy, (index,))
            for index, each in enumerate(excludes)
            if ranges and not of_use(each)
        )
        return excludes

    @field_validator("routes")
    @classmethod
    def _reachable(
        cls, routes: tuple[PoolRoute, ...], info: ValidationInfo
    ) -> tuple[PoolRoute, ...]:
        ranges: tuple[PoolRange, ...] | None = info.data.get("ranges")
        raise_slips(_unreachable(routes, ranges) if ranges else ())
        return routes


class PoolMetadata(Typed):
    """The name; other metadata of the object is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: words.Label = Field(examples=["rail-0"])
    """name is the name of the pool, by which networks refer to it."""


class IPPoolObject(Typed):
    """IPPool defines address ranges that pods of the cluster share."""

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["IPPool"]
    metadata: PoolMetadata = Field(examples=[{"name": "rail-0"}])
    spec: IPPoolSpec = Field(examples=[{"ranges": [{"subnet": "10.0.0.0/24"}]}])
    """spec says which addresses the pool has, and which pods get them."""
    status: OfPrograms[IPPoolStatus] | None = None
    """status says how full the pool is and whether it can be used. kube-rdma writes it."""


def load(document: Document) -> ipam.IPPool:
    """Return the pool that a document describes; raise Refused with all of its faults."""
    manifest = validate(IPPoolObject, document)
    return _compiled(manifest.spec, manifest.metadata.name, document, ("spec", "ranges"))


def decode(data: bytes) -> ipam.IPPool:
    """Return the pool that a spec describes, without name; raise Refused with all of its faults."""
    document = of_json(data, base=("spec",))
    return _compiled(validate(IPPoolSpec, document), "", document, ("ranges",))


def named(pool: ipam.IPPool, name: str) -> ipam.IPPool:
    """Return a decoded pool with the name of its object, also in the `source` of its ranges."""
    ranges = tuple(replace(each, source=f"IPPool {name}: {each.source}") for each in pool.ranges)
    return replace(pool, name=ipam.PoolName(name), ranges=ranges)


def encode(pool: ipam.IPPool) -> bytes:
    """Return the pool's spec as JSON that `decode` reads; a cool-down is rounded up to seconds."""
    return json.dumps(spec(pool)).encode()


def manifest(pool: ipam.IPPool) -> dict[str, Value]:
    """Return the pool as an IPPool object, in JSON values."""
    head: dict[str, Value] = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "IPPool"}
    return head | {"metadata": {"name": pool.name}, "spec": spec(pool)}


def spec(pool: ipam.IPPool) -> dict[str, Value]:
    """Return the pool's spec as JSON values, without empty lists."""
    fields: dict[str, Value] = {
        "network": pool.network,
        "ranges": [_range(each) for each in pool.ranges],
        "excludes": [words.written(each) for each in pool.excludes],
        "routes": [
            {"dst": str(each.to), **({"gw": str(each.via)} if each.via else {})}
            for each in pool.routes
        ],
        "blockSize": pool.block_size,
        "restSeconds": math.ceil(pool.cooldown),
        "probe": pool.probe,
        "namespaces": list(pool.namespaces),
    }
    return {key: value for key, value in fields.items() if value != []}


def content(pool: ipam.IPPool) -> dict[str, Value]:
    """Return the fields that are hashed to name a pool made from an ipam block.

    Never add a field, for that would rename pools.
    """
    fields = spec(pool)
    return {key: fields.get(key) for key in ("network", "ranges", "excludes")}


def _range(ip_range: ipam.IPRange) -> Value:
    ends = {"start": ip_range.first, "end": ip_range.last, "gateway": ip_range.gateway}
    fields: dict[str, Value] = {"subnet": str(ip_range.subnet)}
    fields |= {key: str(end) for key, end in ends.items() if end is not None}
    if ip_range.rail is not None:
        fields["rail"] = ip_range.rail
    return fields | ({"perNode": written_slices(ip_range.per_node)} if ip_range.per_node else {})


def _compiled(
    spec: IPPoolSpec, name: str, document: Document, path: tuple[str, ...]
) -> ipam.IPPool:
    return ipam.IPPool(
        ipam.PoolName(name),
        tuple(
            ipam.IPRange(
                each.subnet,
                each.start,
                each.end,
                each.gateway,
                each.rail,
                source=document.where((*path, index)),
                per_node=each.per_node.value if each.per_node else None,
            )
            for index, each in enumerate(spec.ranges)
        ),
        ipam.NetworkName(spec.network),
        spec.excludes,
        tuple(ipam.Route(each.dst, each.gw) for each in spec.routes),
        spec.block_size,
        float(spec.rest_seconds),
        spec.probe,
        tuple(spec.namespaces),
    )


def _overlaps(ranges: tuple[PoolRange, ...]) -> Iterator[Slip]:
    """Yield a fault for each range that begins before an earlier one has ended."""
    order = sorted(range(len(ranges)), key=lambda index: words.bounds(ranges[index].span))
    widest = None
    for index in order:
        current = ranges[index]
        if widest is not None and words.meets(ranges[widest].span, current.span):
            late, early = max(widest, index), min(widest, index)
            yield Slip(
                f"{words.written(ranges[late].span)} and ranges[{early}], "
                f"{words.written(ranges[early].span)}, have addresses in common",
                "Set start and end so that each address is in one range",
                (late,),
            )
        if (
            widest is None
            or words.bounds(current.span)[::2] >= words.bounds(ranges[widest].span)[::2]
        ):
            widest = index


def _unreachable(routes: tuple[PoolRoute, ...], ranges: tuple[PoolRange, ...]) -> Iterator[Slip]:
    """Yield the faults of the routes.

    No range is of its family, or its gw is in no subnet of the ranges. Without gw, a range of its
    family has no gateway.
    """
    for index, route in enumerate(routes):
        same = [each for each in ranges if each.subnet.version == route.dst.version]
        if not same:
            problem = f"{route.dst} is IPv{route.dst.version}, and no range is"
            yield Slip(problem, "Remove the route, or add a range of its family", (index, "dst"))
        elif route.gw is not None and not any(route.gw in each.subnet for each in same):
            problem = f"{route.gw} is in no subnet of the ranges, so no pod can reach it"
            remedy = "Write a router inside of a subnet of the ranges"
            yield Slip(problem, remedy, (index, "gw"))
        elif route.gw is None and not all(each.has_router for each in same):
            problem = f"the route to {shown(str(route.dst))} has no gw, and a range no gateway"
            yield Slip(problem, "Write gw, or give each range of this family a gateway", (index,))


# The document ``kind: CIDRPool`` of nv-ipam.


class IndexRange(GoTyped):
    """Addresses that are left out of each node's prefix, by their index in it."""

    start_index: int = Field(ge=0)
    end_index: int = Field(ge=0)


class ExcludedRange(GoTyped):
    """Addresses that are left out of a pool, from the first to the last."""

    start_ip: words.IpAddress
    end_ip: words.IpAddress


class StaticAllocation(GoTyped):
    """A prefix that is fixed for a node; without a node's name it is reserved."""

    node_name: str = ""
    gateway: words.IpAddress | None = None
    prefix: words.Cidr


class CidrRoute(GoTyped):
    """A route that each pod gets."""

    dst: words.Cidr


class NvPoolSpec(GoTyped):
    """The fields that both kinds of pools of nv-ipam have."""

    exclusions: Many[ExcludedRange] = ()
    per_node_exclusions: Many[IndexRange] = ()
    node_selector: Any = None
    default_gateway: bool = False
    routes: Many[CidrRoute] = ()


class CidrPoolSpec(NvPoolSpec):
    """The fields of the spec of nv-ipam's CIDRPool."""

    cidr: words.Cidr
    gateway_index: int | None = Field(None, ge=0)
    per_node_network_prefix: int = Field(ge=1, le=128)
    static_allocations: Many[StaticAllocation] = ()


class NvIpPoolSpec(NvPoolSpec):
    """The fields of the spec of nv-ipam's IPPool, whose nodes have blocks of one subnet."""

    subnet: words.Cidr
    gateway: words.IpAddress | None = None
    per_node_block_size: int = Field(ge=1)


class CidrPoolMetadata(GoTyped):
    """The name; other metadata of the object is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: words.Label


class NvPoolObject(GoTyped):
    """A pool object of nv-ipam, whose kind was read before."""

    api_version: Literal["nv-ipam.nvidia.com/v1alpha1"]
    kind: str
    metadata: CidrPoolMetadata
    status: Any = None


class CidrPoolObject(NvPoolObject):
    """A CIDRPool object of nv-ipam."""

    spec: CidrPoolSpec


class NvIpPoolObject(NvPoolObject):
    """An IPPool object of nv-ipam."""

    spec: NvIpPoolSpec


class TranslatedPool(Frozen):
    """An IPPool made of another project's pool, and sentences about what has no effect here."""

    pool: ipam.IPPool
    notes: tuple[str, ...] = ()


def translate_cidr_pool(document: Document) -> TranslatedPool:
    """Return the IPPool for a CIDRPool of nv-ipam, with notes; raise Refused with its faults."""
    pool = validate(CidrPoolObject, document)
    named = (one for one in pool.spec.static_allocations if one.node_name)
    nodes = [entry(one.node_name, one.prefix, one.gateway) for one in named]
    per_node: dict[str, Value] = {"prefix": pool.spec.per_node_network_prefix}
    if nodes:
        per_node["nodes"] = nodes
    if (index := _index(pool.spec)) is not None:
        per_node["gatewayIndex"] = index
    ranges: Value = [{"subnet": str(pool.spec.cidr), "perNode": per_node}]
    routes: Value = [{"dst": dst} for dst in _routes(pool.spec, pool.spec.cidr)]
    excludes: list[Value] = [*_excludes(pool.spec, document)]
    made = _made(document, pool.metadata.name, ranges, excludes, routes)
    return TranslatedPool(made, tuple(_notes(pool.spec)))


def translate_nv_ip_pool(document: Document) -> TranslatedPool:
    """Return the IPPool for an IPPool of nv-ipam, with notes; raise Refused with its faults."""
    pool = validate(NvIpPoolObject, document)
    spec = pool.spec
    gateway: dict[str, Value] = {"gateway": str(spec.gateway)} if spec.gateway else {}
    notes = ["perNodeBlockSize is not translated: a node takes as many addresses as its pods need"]
    if spec.per_node_exclusions:
        notes.append("perNodeExclusions are not translated: no node has a block of its own")
    if spec.node_selector:
        notes.append(_NO_SELECTOR)
    ranges: Value = [{"subnet": str(spec.subnet), **gateway}]
    routes: Value = [{"dst": dst} for dst in _routes(spec, spec.subnet)]
    excludes: list[Value] = [f"{one.start_ip}-{one.end_ip}" for one in spec.exclusions]
    made = _made(document, pool.metadata.name, ranges, excludes, routes)
    return TranslatedPool(made, tuple(notes))


def _made(
    document: Document, name: str, ranges: Value, excludes: Value, routes: Value
) -> ipam.IPPool:
    made: Value = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": name},
        "spec": {"ranges": ranges, "excludes": excludes, "routes": routes},
    }
    return load(of_value(made, f"{document.where(())} as an IPPool"))


def _index(spec: CidrPoolSpec) -> int | None:
    """Return the index of the gateway in a node's prefix; None without a gateway.

    Index 0 means no gateway if the prefix has more than two addresses.
    """
    is_pair = spec.per_node_network_prefix >= spec.cidr.max_prefixlen - 1
    return spec.gateway_index if spec.gateway_index or is_pair else None


def _excludes(spec: CidrPoolSpec, document: Document) -> Iterator[str]:
    for reserved in spec.exclusions:
        yield f"{reserved.start_ip}-{reserved.end_ip}"
    for allocation in spec.static_allocations:
        if not allocation.node_name:
            yield str(allocation.prefix)
    if not spec.per_node_exclusions:
        return
    slices = 1 << max(0, spec.per_node_network_prefix - spec.cidr.prefixlen)
    if slices * len(spec.per_node_exclusions) > MOST_EXCLUDED:
        raise Refused(
            f"perNodeExclusions exclude addresses of {slices} prefixes, and an IPPool names each",
            remedy="Divide cidr into several pools, or leave perNodeExclusions out",
            where=document.where(("spec", "perNodeExclusions")),
        )
    for node_slice in spec.cidr.subnets(new_prefix=spec.per_node_network_prefix):
        for places in spec.per_node_exclusions:
            last = min(places.end_index, node_slice.num_addresses - 1)
            if places.start_index <= last:
                yield f"{node_slice[places.start_index]}-{node_slice[last]}"


def _routes(spec: NvPoolSpec, subnet: ipam.Subnet) -> Iterator[str]:
    if spec.default_gateway:
        yield "0.0.0.0/0" if subnet.version == 4 else "::/0"
    yield from (str(route.dst) for route in spec.routes)


_NO_SELECTOR = (
    "nodeSelector is not translated: nodes whose pods name the pool take addresses of it, and no "
    "others"
)


def _notes(spec: CidrPoolSpec) -> Iterator[str]:
    if spec.node_selector:
        yield _NO_SELECTOR
    if spec.gateway_index == 0 and _index(spec) is None:
        yield "gatewayIndex 0 names no router here, as in nv-ipam: it is the subnet's own address"
