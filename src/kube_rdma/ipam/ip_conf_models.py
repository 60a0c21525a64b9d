"""The shapes of ipam blocks, key by key, as each plugin documents them; ip_conf says their meaning.

Sources: whereabouts doc/extended-configuration.md and pkg/types; the host-local and static pages of
the CNI plugins. A key that only steers how the other plugin works is read and has no effect.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Interface, IPv6Interface, ip_interface, ip_network
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.go_typed import GoTyped
from kube_rdma.lib.text.ip_words import Cidr, IpAddress, Label, Word, address, span
from kube_rdma.lib.text.typed import Many
from kube_rdma.model.attach.cni import Dns
from kube_rdma.model.ipam import Address, Span, Subnet

WrittenRange = tuple[Subnet, Address | None, Address | None]


def _interface(text: str) -> IPv4Interface | IPv6Interface:
    if "/" not in text or "%" in text:
        raise ValueError(text)
    return ip_interface(text)


def _range(text: str) -> WrittenRange:
    """``10.0.0.0/24``, host bits ignored as whereabouts does, or ``10.0.0.5-10.0.0.9/24``."""
    first, dash, rest = text.partition("-")
    if not dash:
        if "/" not in text:
            raise ValueError(text)
        return ip_network(text, strict=False), None, None
    last = _interface(rest)
    return last.network, address(first.strip()), address(rest.partition("/")[0].strip())


def _decimal(text: str) -> str:
    """The text without leading zeros of numbers, which whereabouts ignores and others refuse."""
    return text if ":" in text else re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def _length(text: str) -> int:
    """``/24`` or ``24``, as whereabouts reads its node_slice_size."""
    match = re.fullmatch("/?([0-9]{1,3})", text)
    if match is None:
        raise ValueError(text)
    return int(match[1])


def _unmapped(written: Address) -> Address:
    """An IPv4 address in the form of IPv6 (``::ffff:10.0.0.1``) is the IPv4 address, as in Go."""
    return getattr(written, "ipv4_mapped", None) or written


def _network(text: str) -> Subnet:
    """A destination: the bits behind its length do not count, as in the CNI plugins."""
    if "/" not in text:
        raise ValueError(text)
    return ip_network(text, strict=False)


def _loose_span(text: str) -> Span:
    """An exclude: an address or a subnet."""
    if "/" in text:
        subnet = _network(text)
        return Span(subnet.network_address, subnet.broadcast_address)
    return span(text)


WithLength: TypeAlias = Annotated[
    IPv4Interface | IPv6Interface, Word(_interface, "an address with its length", "10.0.0.10/24")
]
Destination: TypeAlias = Annotated[Subnet, Word(_network, "a subnet", "10.0.0.0/8")]
Exclude: TypeAlias = Annotated[Span, Word(_loose_span, "an address or a subnet", "10.0.0.0/28")]
RangeText: TypeAlias = Annotated[
    WrittenRange,
    Word(
        lambda text: _range(_decimal(text)),
        "a subnet, or a range with its length",
        "10.0.0.5-10.0.0.9/24",
    ),
]
SliceSize: TypeAlias = Annotated[int, Word(_length, "the length of a subnet", "/24")]
ZeroedAddress: TypeAlias = Annotated[
    Address, Word(lambda text: _unmapped(address(_decimal(text))), "an IP address", "10.0.0.10")
]


class _Block(GoTyped):
    """A configuration of which only the ipam block is read; the other keys belong to others."""

    model_config = ConfigDict(extra="ignore")


class PlainRoute(GoTyped):
    """A route of a CNI configuration."""

    model_config = ConfigDict(extra="ignore")  # mtu, priority and the like of newer versions

    dst: Destination = Field(examples=["10.0.0.0/8"])
    gw: IpAddress | None = None


class PlainDns(GoTyped):
    """The dns part of a CNI configuration."""

    nameservers: Many[str] = ()
    domain: str = ""
    search: Many[str] = ()
    options: Many[str] = ()

    def value(self) -> Dns:
        """The value as a CNI result has it."""
        return Dns(self.nameservers, self.domain, self.search, self.options)


class StaticAddressConf(GoTyped):
    """An address that is set as it is."""

    address: WithLength = Field(examples=["10.0.0.10/24"])
    gateway: IpAddress | None = None


class WhereaboutsRange(GoTyped):
    """One entry of ipRanges."""

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
    """The block of whereabouts, with all keys that it reads."""

    IGNORED: ClassVar[frozenset[str]] = frozenset(
        (
            *("leader_lease_duration", "leader_renew_deadline", "leader_retry_period"),
            *("sleep_for_race", "kubernetes", "configuration_path"),
            *("log_file", "log_level", "reconciler_cron_expression", "datastore"),
            *("exclude_gateway", "optimistic_ipam"),  # a pool's gateway is never given
            *("etcd_host", "etcd_username", "etcd_password", "etcd_key_file", "etcd_cert_file"),
            "etcd_ca_cert_file",
        )
    )

    type: Literal["whereabouts"]
    ip_ranges: Many[WhereaboutsRange] = Field((), alias="ipRanges")
    gateway: ZeroedAddress | None = None
    routes: Many[PlainRoute] = ()
    addresses: Many[StaticAddressConf] = ()
    dns: PlainDns | None = None
    enable_overlapping_ranges: bool = True
    network_name: Label | None = None
    node_slice_size: SliceSize | None = None
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


class WhereaboutsConf(_Block):
    """A configuration whose addresses whereabouts gave."""

    ipam: Whereabouts


class HostLocalRange(GoTyped):
    """One range of host-local."""

    subnet: Cidr | None = Field(None, examples=["10.0.0.0/24"])
    range_start: IpAddress | None = None
    range_end: IpAddress | None = None
    gateway: IpAddress | None = None


class HostLocal(HostLocalRange):
    """The block of host-local; the keys of a range may stand in it directly."""

    type: Literal["host-local"]
    ranges: Many[Many[HostLocalRange]] = ()
    routes: Many[PlainRoute] = ()
    data_dir: str = ""
    resolv_conf: str = ""


class HostLocalRuntime(GoTyped):
    """What a caller adds for host-local, for which the plugin declares the capability ipRanges."""

    model_config = ConfigDict(extra="ignore")

    ip_ranges: Many[Many[HostLocalRange]] = ()


class HostLocalConf(_Block):
    """A configuration whose addresses host-local gave."""

    ipam: HostLocal
    runtime_config: HostLocalRuntime = HostLocalRuntime.model_construct()


class Static(GoTyped):
    """The block of static."""

    type: Literal["static"]
    addresses: Many[StaticAddressConf] = ()
    routes: Many[PlainRoute] = ()
    dns: PlainDns | None = None


class StaticConf(_Block):
    """A configuration with addresses of its own."""

    ipam: Static


class KubeRdmaIpam(GoTyped):
    """The block of kube-rdma-ipam: a pool, or one for each rail."""

    type: Literal["kube-rdma-ipam"]
    pool: Label | None = Field(None, examples=["rail-0"])
    pools: dict[str, Label] = Field(default_factory=dict)
    routes: Many[PlainRoute] = ()

    @field_validator("pools")
    @classmethod
    def _by_rail(cls, pools: dict[str, str]) -> dict[str, str]:
        wrong = [rail for rail in pools if not re.fullmatch("[0-9]{1,4}", rail)]
        if wrong:
            remedy = 'Write the index of the NIC, such as "0"'
            raise slips(*(Slip(f"{shown(w)} is not a rail", remedy, (w,)) for w in wrong))
        return pools


class KubeRdmaConf(_Block):
    """A configuration that names IPPools."""

    ipam: KubeRdmaIpam
