"""Reads the ``"ipam": {…}`` block of a CNI configuration, and says what it means here.

Configurations for whereabouts, host-local and static are read too. Ranges become an IPPool whose
name follows from the plugin and the pool's content. So every node and every attachment with the
same block means the same pool. `notes` are sentences about what is different here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import IPv4Interface, IPv6Interface, ip_interface, ip_network
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, field_validator, model_validator

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text import words
from kube_rdma.lib.text.document import Document, shown
from kube_rdma.lib.text.faults import Slip, near, raise_slips, slips, validate
from kube_rdma.lib.text.typed import GoTyped, Many
from kube_rdma.model import ipam
from kube_rdma.model.attach.cni import Dns, LinkAddress, LinkRoute

# The shapes of ipam blocks, key by key, as each plugin documents them.

WrittenRange = tuple[ipam.Subnet, ipam.Address | None, ipam.Address | None]


def _interface(text: str) -> IPv4Interface | IPv6Interface:
    if "/" not in text or "%" in text:
        raise ValueError(text)
    return ip_interface(text)


def _range(text: str) -> WrittenRange:
    """Return subnet and ends of ``10.0.0.5-10.0.0.9/24``; for ``10.0.0.0/24`` the ends are None.

    Host bits are ignored. Raise ValueError for another text.
    """
    first, dash, rest = text.partition("-")
    if not dash:
        if "/" not in text:
            raise ValueError(text)
        return ip_network(text, strict=False), None, None
    last = _interface(rest)
    return last.network, words.address(first.strip()), words.address(rest.partition("/")[0].strip())


def _decimal(text: str) -> str:
    """Return a text of IPv4 without leading zeros in its numbers, and a text of IPv6 as it is."""
    return text if ":" in text else re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def _length(text: str) -> int:
    """Parse the length of a subnet, ``/24`` or ``24``; raise ValueError for another text."""
    match = re.fullmatch("/?([0-9]{1,3})", text)
    if match is None:
        raise ValueError(text)
    return int(match[1])


def _go_address(text: str) -> ipam.Address:
    """Parse an address, ignoring leading zeros of IPv4 numbers.

    An IPv4-mapped address (``::ffff:10.0.0.1``) becomes the IPv4 address.
    """
    written = words.address(_decimal(text))
    return getattr(written, "ipv4_mapped", None) or written


def _network(text: str) -> ipam.Subnet:
    """Parse a subnet, ignoring bits beyond its length; raise ValueError for another text."""
    if "/" not in text:
        raise ValueError(text)
    return ip_network(text, strict=False)


def _loose_span(text: str) -> ipam.Span:
    """Parse an entry of `exclude` into a span: an address, a subnet, or two ends with a dash.

    Raise ValueError for another text.
    """
    if "/" in text:
        subnet = _network(text)
        return ipam.Span(subnet.network_address, subnet.broadcast_address)
    return words.span(text)


WithLength: TypeAlias = Annotated[
    IPv4Interface | IPv6Interface,
    words.TextForm(_interface, "an address with its length", "10.0.0.10/24"),
]
Destination: TypeAlias = Annotated[ipam.Subnet, words.TextForm(_network, "a subnet", "10.0.0.0/8")]
Exclude: TypeAlias = Annotated[
    ipam.Span, words.TextForm(_loose_span, "an address or a subnet", "10.0.0.0/28")
]
RangeText: TypeAlias = Annotated[
    WrittenRange,
    words.TextForm(
        lambda text: _range(_decimal(text)),
        "a subnet, or a range with its length",
        "10.0.0.5-10.0.0.9/24",
    ),
]
SliceSize: TypeAlias = Annotated[int, words.TextForm(_length, "the length of a subnet", "/24")]
ZeroedAddress: TypeAlias = Annotated[
    ipam.Address, words.TextForm(_go_address, "an IP address", "10.0.0.10")
]


B = TypeVar("B", bound=GoTyped)


class WithIpam(GoTyped, Generic[B]):
    """A CNI configuration of which only the ipam block is read; its other keys are ignored."""

    model_config = ConfigDict(extra="ignore")

    ipam: B


class PlainRoute(GoTyped):
    """A route in a CNI configuration."""

    model_config = ConfigDict(extra="ignore")  # mtu, priority and the like of newer versions

    dst: Destination = Field(examples=["10.0.0.0/8"])
    gw: words.IpAddress | None = None


class PlainDns(GoTyped):
    """The DNS settings in a CNI configuration."""

    nameservers: Many[str] = ()
    domain: str = ""
    search: Many[str] = ()
    options: Many[str] = ()

    def value(self) -> Dns:
        """Return the DNS settings as a CNI result has them."""
        return Dns(self.nameservers, self.domain, self.search, self.options)


class StaticAddressConf(GoTyped):
    """An entry of addresses in the ipam block of the plugin static or whereabouts."""

    address: WithLength = Field(examples=["10.0.0.10/24"])
    gateway: words.IpAddress | None = None


class WhereaboutsRange(GoTyped):
    """An entry of ipRanges in the ipam block of the plugin whereabouts."""

    model_config = ConfigDict(alias_generator=None)

    range: RangeText | None = Field(None, examples=["10.0.0.0/24"])
    range_start: ZeroedAddress | None = None
    range_end: ZeroedAddress | None = None
    exclude: Many[Exclude] = ()
    enable_l3: bool = False

    @model_validator(mode="after")
    def _whole(self) -> WhereaboutsRange:
        if self.range is None and type(self) is WhereaboutsRange:
            raise slips(Slip("the field is missing", 'Add "range": "10.0.0.0/24"', ("range",)))
        return self


class Whereabouts(WhereaboutsRange):
    """The ipam block of the plugin whereabouts."""

    type: Literal["whereabouts"]
    ip_ranges: Many[WhereaboutsRange] = Field((), alias="ipRanges")
    gateway: ZeroedAddress | None = None
    routes: Many[PlainRoute] = ()
    addresses: Many[StaticAddressConf] = ()
    dns: PlainDns | None = None
    enable_overlapping_ranges: bool = True
    network_name: words.Label | None = None
    node_slice_size: SliceSize | None = None
    # Any: keys without effect here; no pod gets the gateway of a pool.
    leader_lease_duration: Any = None
    leader_renew_deadline: Any = None
    leader_retry_period: Any = None
    sleep_for_race: Any = None
    exclude_gateway: Any = None
    optimistic_ipam: Any = None
    kubernetes: Any = None
    configuration_path: Any = None
    log_file: Any = None
    log_level: Any = None
    reconciler_cron_expression: Any = None
    datastore: Any = None
    etcd_host: Any = None
    etcd_username: Any = None
    etcd_password: Any = None
    etcd_key_file: Any = None
    etcd_cert_file: Any = None
    etcd_ca_cert_file: Any = None


class HostLocalRange(GoTyped):
    """A range in the ipam block of the plugin host-local."""

    subnet: words.Cidr | None = Field(None, examples=["10.0.0.0/24"])
    range_start: words.IpAddress | None = None
    range_end: words.IpAddress | None = None
    gateway: words.IpAddress | None = None


class HostLocal(HostLocalRange):
    """The ipam block of the plugin host-local; keys of a single range may be in it directly."""

    type: Literal["host-local"]
    ranges: Many[Many[HostLocalRange]] = ()
    routes: Many[PlainRoute] = ()
    data_dir: str = ""
    resolv_conf: str = ""


class HostLocalRuntime(GoTyped):
    """The runtimeConfig that host-local gets by its capability ipRanges."""

    model_config = ConfigDict(extra="ignore")

    ip_ranges: Many[Many[HostLocalRange]] = ()


class HostLocalConf(WithIpam[HostLocal]):
    """A CNI configuration whose ipam block names the plugin host-local."""

    runtime_config: HostLocalRuntime = HostLocalRuntime.model_construct()


class Static(GoTyped):
    """The ipam block of the plugin static."""

    type: Literal["static"]
    addresses: Many[StaticAddressConf] = ()
    routes: Many[PlainRoute] = ()
    dns: PlainDns | None = None


class KubeRdmaIpam(GoTyped):
    """The ipam block of the plugin kube-rdma-ipam: pools by rail, and a pool for other rails."""

    type: Literal["kube-rdma-ipam"]
    pool: words.Label | None = Field(None, examples=["rail-0"])
    pools: dict[str, words.Label] = Field(default_factory=dict)
    routes: Many[PlainRoute] = ()

    @field_validator("pools")
    @classmethod
    def _by_rail(cls, pools: dict[str, str]) -> dict[str, str]:
        wrong = (rail for rail in pools if not re.fullmatch("[0-9]{1,4}", rail))
        remedy = 'Write the index of the NIC, such as "0"'
        raise_slips(Slip(f"{shown(w)} is not a rail", remedy, (w,)) for w in wrong)
        return pools


_NAME_BYTES = 5
_CLUSTER_WIDE = (
    "host-local counts addresses on each node for itself, so where its own binary gives them, pods "
    "of two nodes get the same ones; kube-rdma gives them from one pool for the cluster. Write "
    "kube-rdma-ipam with an IPPool that is large enough for the pods of all nodes"
)


class IpamConf(Frozen):
    """The meaning of an ipam block: pools, addresses, routes and DNS settings of an interface."""

    pools: tuple[tuple[int | None, ipam.PoolName], ...] = ()  # by rail; None: for every other rail
    pool: ipam.IPPool | None = None  # to create, made from the block's own ranges
    addresses: tuple[LinkAddress, ...] = ()  # set as they are, besides addresses of pools
    routes: tuple[LinkRoute, ...] = ()
    dns: Dns | None = None
    notes: tuple[str, ...] = ()
    yields: bool = False  # addresses that a pod asks for replace `addresses`

    def pool_for(self, rail: int | None) -> ipam.PoolName | None:
        """Return the name of the pool for an interface of this rail; None without one."""
        if self.pool:
            return self.pool.name
        names = dict(self.pools)
        return names.get(rail) or names.get(None)


def load(document: Document) -> IpamConf:
    """Return what the ipam block of a configuration means; raise Refused if it has faults."""
    conf = document.value
    block = conf.get("ipam") if isinstance(conf, dict) else None
    kind = block.get("type", 0) if isinstance(block, dict) else 0
    if block in (None, {}) or kind in (None, ""):  # the plugins take these for no ipam at all
        return IpamConf()
    if not isinstance(kind, str) or kind not in _LOADERS:
        meant = near(str(kind), list(_LOADERS))
        guess = f"Did you mean {shown(meant)}? " if meant else ""
        raise Refused(
            f"{shown(kind or None)} is not an IPAM type that kube-rdma reads",
            remedy=f"{guess}Known: {', '.join(_LOADERS)}",
            where=document.where(("ipam", "type")),
        )
    return _LOADERS[kind](document)


def foreign(document: Document) -> str:
    """Return the IPAM plugin that a configuration names, if kube-rdma does not know it; else "".

    A name that resembles a known one is probably a typing error: return "", for `load` refuses it.
    """
    block = document.value.get("ipam") if isinstance(document.value, dict) else None
    kind = block.get("type") if isinstance(block, dict) else None
    is_other = isinstance(kind, str) and kind not in _LOADERS and not near(kind, list(_LOADERS))
    return kind if is_other and isinstance(kind, str) else ""


def requested_addresses(
    args: Iterable[tuple[str, str]], ips: Iterable[str], where: str
) -> tuple[ipam.Address, ...]:
    """Return the addresses in `ips` and in values of the key IP of `args`, each once.

    A prefix length is left out. Raise Refused for a text that is no address; `where` is its place.
    """
    texts = [text for key, value in args if key == "IP" for text in value.split(",")]
    addresses = []
    for text in (*texts, *ips):
        try:
            ip_interface(text.strip())  # a length has to be one, although the pool's is taken
            addresses.append(words.address(text.partition("/")[0].strip()))
        except ValueError:
            raise Refused(
                f"{shown(text)} is not an IP address",
                remedy='Write it like "10.0.0.10" or "10.0.0.10/24"',
                where=where,
            ) from None
    return tuple(dict.fromkeys(addresses))


def nic_request(
    conf: IpamConf,
    interface: ipam.InterfaceName,
    rail: int | None = None,
    addresses: tuple[ipam.Address, ...] = (),
    owner: ipam.Owner | None = None,
) -> ipam.NicRequest | None:
    """Return the request to the pools for one interface; None if it takes no address of a pool.

    Raise Refused if no pool is for the rail, for addresses without a pool, or for two addresses of
    a family.
    """
    where = f"interface {interface}"
    name = conf.pool_for(rail)
    if name is None and conf.pools:
        rails = ", ".join(str(each) for each, _ in conf.pools)
        remedy = f"Add a pool for rail {rail} to ipam.pools, which has {rails}"
        raise Refused(f"ipam names no pool for rail {rail}", remedy=remedy, where=where)
    if name is None and addresses:
        problem = (
            f"{', '.join(map(str, addresses))} is asked for, and ipam names no pool to take it from"
        )
        remedy = 'Write "ipam": {"type": "kube-rdma-ipam", "pool": NAME}, or ask for no address'
        raise Refused(problem, remedy=remedy, where=where)
    if len({each.version for each in addresses}) < len(addresses):
        problem = f"{', '.join(map(str, addresses))} are asked for, one of each family is given"
        raise Refused(problem, remedy="Ask for one IPv4 and one IPv6 address", where=where)
    return ipam.NicRequest(interface, name, rail, addresses, owner) if name else None


def _whereabouts(document: Document) -> IpamConf:
    block = validate(WithIpam[Whereabouts], document).ipam
    network = ipam.NetworkName(block.network_name or "default")
    wanted = (block, *block.ip_ranges) if block.range else block.ip_ranges
    if not wanted and not block.addresses:
        raise Refused(
            "it has neither range nor ipRanges nor addresses",
            remedy='Add "range": "10.0.0.0/24"',
            where=document.where(("ipam",)),
        )
    ranges = tuple(_range_of(each, block) for each in wanted)
    excludes = tuple(span for each in wanted for span in each.exclude)
    notes = [
        f"{key} is not needed and is ignored"
        for key in sorted(block.model_fields_set)
        if Whereabouts.model_fields[key].annotation is Any
    ]
    if not block.enable_overlapping_ranges:
        notes.append(
            "enable_overlapping_ranges is ignored: an address of a network is never given twice; "
            "for ranges that may repeat addresses write another network_name"
        )
    notes += [
        f"{key} {end} is ignored, as by whereabouts: the range in {one.subnet} has other ends"
        for entry, one in zip(wanted, ranges, strict=True)
        for key, end in (("range_start", entry.range_start), ("range_end", entry.range_end))
        if end and end not in (one.first, one.last)
    ]
    if any(each.enable_l3 for each in (block, *block.ip_ranges)):
        notes.append(
            "enable_l3 is ignored: the first and the last address of a subnet are not assigned"
        )
    notes += _one_of_each([each.subnet for each in ranges], "range")
    if block.gateway and ranges and not any(each.gateway for each in ranges):
        subnets = ", ".join(str(each.subnet) for each in ranges)
        notes.append(_unreachable(block.gateway, subnets))
    size = block.node_slice_size
    notes += [
        f"node_slice_size /{size} is ignored for {one.subnet}, which has no slices of this length"
        for one in ranges
        if size is not None and one.per_node is None
    ]
    addresses = _addresses(block.addresses)
    gateways = (*(each.gateway for each in ranges), *(each.gateway for each in addresses))
    routes, left_out = _with_gateway(_routes(block.routes), gateways, [block.gateway])
    notes += left_out
    dns = block.dns.value() if block.dns else None
    base = IpamConf(addresses=addresses, routes=routes, dns=dns, notes=tuple(notes))
    pool = ipam.IPPool(ipam.PoolName(block.type), ranges, network, excludes)
    return _with_pool(base, pool, document)


def _host_local(document: Document) -> IpamConf:
    conf = validate(HostLocalConf, document)
    block = conf.ipam
    # In this order, as host-local puts them: the caller's, the one beside the type, the list.
    beside: tuple[tuple[HostLocalRange, ...], ...] = ((block,),) if block.subnet else ()
    sets = (*conf.runtime_config.ip_ranges, *beside, *block.ranges)
    subnets = _subnets(sets, document)
    wanted = [each for group in sets for each in group]
    ranges = tuple(
        ipam.IPRange(subnet, each.range_start, each.range_end, _gateway(subnet, each.gateway))
        for subnet, each in zip(subnets, wanted, strict=True)
    )
    ignored = {"dataDir": block.data_dir, "resolvConf": block.resolv_conf}
    notes = [f"{key} is not needed and is ignored" for key, value in ignored.items() if value]
    notes += _one_of_each([group[0].subnet for group in sets if group[0].subnet], "range set")
    notes += [
        _unreachable(each.gateway, str(subnet))
        for subnet, each in zip(subnets, wanted, strict=True)
        if each.gateway and each.gateway not in subnet
    ]
    if not block.subnet and (block.range_start or block.range_end or block.gateway):
        notes.append("rangeStart, rangeEnd and gateway are ignored: no subnet is beside them")
    gateways, configured = [each.gateway for each in ranges], [each.gateway for each in wanted]
    routes, left_out = _with_gateway(_routes(block.routes), gateways, configured)
    base = IpamConf(routes=routes, notes=(_CLUSTER_WIDE, *notes, *left_out))
    return _with_pool(base, ipam.IPPool(ipam.PoolName(block.type), ranges), document)


def _subnets(
    sets: tuple[tuple[HostLocalRange, ...], ...], document: Document
) -> tuple[ipam.Subnet, ...]:
    """Return the subnet of each range; raise Refused if a subnet is missing, or a set is empty."""
    subnets = [each.subnet for group in sets for each in group]
    problem = ""
    if not sets:
        problem = "it has neither a subnet nor ranges"
    elif not all(sets):
        problem = "a range set is empty"
    elif None in subnets:
        problem = "a range has no subnet"
    if problem:
        remedy = 'Write "ranges": [[{"subnet": "10.0.0.0/24"}]]'
        raise Refused(problem, remedy=remedy, where=document.where(("ipam", "ranges")))
    return tuple(subnet for subnet in subnets if subnet is not None)


def _gateway(subnet: ipam.Subnet, gateway: ipam.Address | None) -> ipam.Address | None:
    """Return the gateway of a host-local range; None for one outside of the subnet.

    By default it is the second address of a subnet, if that has more than two.
    """
    if gateway is not None:
        return gateway if gateway in subnet else None
    return subnet.network_address + 1 if subnet.num_addresses > 2 else None


def _static(document: Document) -> IpamConf:
    block = validate(WithIpam[Static], document).ipam
    return IpamConf(
        addresses=_addresses(block.addresses),
        routes=_routes(block.routes),
        dns=block.dns.value() if block.dns else None,
        notes=("kube-rdma does not check that these addresses are free: no pool has them",),
        yields=True,
    )


def _kube_rdma(document: Document) -> IpamConf:
    block = validate(WithIpam[KubeRdmaIpam], document).ipam
    named: list[tuple[int | None, str]] = [(None, block.pool)] if block.pool else []
    named += [(int(rail), name) for rail, name in block.pools.items()]
    if not named:
        raise Refused(
            "it names no pool",
            remedy='Add "pool": "rail-0", or "pools": {"0": "rail-0", "1": "rail-1"}',
            where=document.where(("ipam",)),
        )
    by_rail = tuple((rail, ipam.PoolName(name)) for rail, name in named)
    return IpamConf(pools=by_rail, routes=_routes(block.routes))


def _with_pool(base: IpamConf, draft: ipam.IPPool, document: Document) -> IpamConf:
    """Return `base` with the pool that an ipam block of another plugin describes.

    `draft` is this pool with the plugin's name; if it has no ranges, return `base`. Raise Refused
    with all faults of the pool.
    """
    if not draft.ranges:
        return base
    of_use = words.meeting(each.span for each in draft.ranges)
    used = tuple(each for each in draft.excludes if of_use(each))
    others = (words.written(each) for each in draft.excludes if not of_use(each))
    idle = [f"exclude {text} is outside of every range" for text in others]
    pool = replace(draft, excludes=used)
    spec = ip_pool.spec(pool)
    try:
        ip_pool.decode(json.dumps(spec).encode())
    except Refused as error:
        where = document.where(("ipam",))  # not of the made pool, but of the block it is made from
        faults = (error, *error.more)
        placed = [Refused(each.problem, remedy=each.remedy, where=where) for each in faults]
        raise Refused.all(placed) from None
    named = json.dumps(ip_pool.content(pool)).encode()
    name = ipam.PoolName(f"{draft.name}-{blake2b(named, digest_size=_NAME_BYTES).hexdigest()}")
    source = document.where(("ipam",))
    ranges = tuple(replace(each, source=source) for each in pool.ranges)
    return replace(base, pool=replace(pool, name=name, ranges=ranges), notes=(*base.notes, *idle))


def _range_of(entry: WhereaboutsRange, block: Whereabouts) -> ipam.IPRange:
    """Return the IPRange for an entry of ipRanges, or for the block itself.

    Ends in `range` overrule range_start and range_end, which are ignored outside of the subnet.
    A last address before the first one is ignored too. With a node_slice_size that fits, ends have
    no meaning, and each node has a slice of the subnet.
    """
    assert entry.range is not None
    subnet, first, last = entry.range
    gateway = block.gateway if block.gateway and block.gateway in subnet else None
    size = block.node_slice_size
    if size is not None and subnet.prefixlen <= size <= subnet.max_prefixlen:
        per_node = ipam.PerNode(size, is_one_subnet=True)
        return ipam.IPRange(subnet, gateway=gateway, per_node=per_node)
    start, end = entry.range_start, entry.range_end
    first = first or (start if start and start in subnet else None)
    last = last or (end if end and end in subnet else None)
    if first and last and int(last) < int(first):
        last = None
    return ipam.IPRange(subnet, first, last, gateway)


def _one_of_each(subnets: Sequence[ipam.Subnet], what: str) -> list[str]:
    """Return a note in a list if two of the `subnets` are of one family, else an empty list."""
    if len({subnet.version for subnet in subnets}) == len(subnets):
        return []
    rest = f"from whichever range has room, not one of each {what}"
    return [f"an interface gets one address of each family, {rest}"]


def _unreachable(gateway: ipam.Address, subnets: str) -> str:
    return f"gateway {gateway} is outside of {subnets}, and no route leads over it"


def _with_gateway(
    routes: Sequence[LinkRoute],
    gateways: Iterable[ipam.Address | None],
    configured: Iterable[ipam.Address | None],
) -> tuple[tuple[LinkRoute, ...], list[str]]:
    """Return the routes that can be set, and a note for each that is left out.

    A route without gw takes a gateway of its family. It is left out if such a gateway was
    `configured`, but none is among the usable `gateways`.
    """
    have = {gateway.version for gateway in gateways if gateway}
    lost = {gateway.version for gateway in configured if gateway} - have
    led, notes = [], []
    for route in routes:
        if route.via or route.to.version not in lost:
            led.append(route)
        else:
            why = "there is no gateway to lead it over"
            notes.append(f"the route to {route.to} is left out: {why}")
    return tuple(led), notes


def _addresses(entries: Iterable[StaticAddressConf]) -> tuple[LinkAddress, ...]:
    return tuple(LinkAddress(each.address, each.gateway) for each in entries)


def _routes(entries: Iterable[PlainRoute]) -> tuple[LinkRoute, ...]:
    return tuple(LinkRoute(each.dst, each.gw) for each in entries)


_LOADERS: Mapping[str, Callable[[Document], IpamConf]] = {
    "whereabouts": _whereabouts,
    "host-local": _host_local,
    "static": _static,
    "kube-rdma-ipam": _kube_rdma,
}
