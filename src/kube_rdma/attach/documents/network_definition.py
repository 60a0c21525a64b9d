"""Reads NetworkAttachmentDefinitions: the CNI configuration in one becomes a Network.

Manifests that were written for Multus with macvlan, ipvlan, ipoib, host-device, sriov, ib-sriov,
tuning, sbr and rdma work as they are. kube-rdma reads these configurations and does the same. Where
it cannot, and for all other plugins, their binaries are called (attach/rules/foreign_plugins), as
are IPAM plugins that ip_conf does not read. An unknown key is ignored by these plugins, and here
with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from kube_base.errors import Refused
from kube_base.frozen import Frozen, field, replace
from kube_rdma.attach.documents.networks import Guid, Mac
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import Document, Path, Section, section, shown
from kube_rdma.lib.text.faults import Slip, near, no_fields, raise_slips, slips, validate
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import GoTyped
from kube_rdma.lib.text.words import Pci, PKey, TextForm, partition
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import InterfaceAddress, Network, NetworkRoute
from kube_rdma.model.pools import FunctionSettings, LinkState, VlanProtocol

# The CNI plugins whose configurations kube-rdma reads and serves itself.

Mtu: TypeAlias = Annotated[int, Field(ge=0, le=65535)]  # 0: that of the link below
Master: TypeAlias = Annotated[
    str, TextForm(r"[^\s/:]{0,15}", "the name of an interface, at most 15 characters", "ens2f0")
]

# What every configuration may have: the specification's own keys, and what callers put in.
COMMON = frozenset(
    (
        *("type", "name", "cniVersion", "cniVersions", "ipam", "dns", "args", "capabilities"),
        *("runtimeConfig", "prevResult", "disableCheck", "disableGC", "plugins"),
        *("deviceID", "pciBusID", "logLevel", "logFile", "meta"),
    )
)

_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_SYSCTL = re.compile(r"net[./](ipv[46])[./](conf|neigh)[./]IFNAME[./]([a-z0-9_]+)")


_LOWER = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)

Switch: TypeAlias = Literal["on", "off"]
Rate: TypeAlias = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]  # a u32 of struct ifla_vf_rate


class Plugin(GoTyped):
    """The configuration of one CNI plugin."""

    model_config = ConfigDict(extra="ignore")

    capabilities: dict[str, Any] = Field({})

    @property
    def foreign(self) -> str:
        """Return why only the plugin itself can make this network; empty if kube-rdma can."""
        return ""

    @property
    def plain(self) -> str:
        """Return why only the plugin can make this network if it has no resource; else empty."""
        return ""

    @property
    def device(self) -> str | None:
        """Return the interface, PCI address or MAC of the card that is named; None if none is."""
        return None

    @property
    def ignored(self) -> Mapping[str, str]:
        """Return valid fields that have no effect here, each with the reason."""
        return {}


class LinkPlugin(Plugin):
    """A plugin that makes a link on an interface of the node, or on that of the granted card."""

    master: Master = ""
    mtu: Mtu = 0
    link_in_container: bool = False

    @property
    def device(self) -> str | None:
        """Return the node's interface on which the link is made; None if none is named."""
        return self.master or None

    @property
    def foreign(self) -> str:
        """Return a reason if the link is to be made on another interface of the pod; else empty."""
        return "linkInContainer is true" if self.link_in_container else ""


class Macvlan(LinkPlugin):
    """The configuration of the CNI plugin macvlan."""

    mode: Literal["bridge", "private", "vepa", "passthru"] = "bridge"
    mac: Mac | None = None
    bcqueuelen: int = 0


class Ipvlan(LinkPlugin):
    """The configuration of the CNI plugin ipvlan."""

    mode: Literal["l2", "l3", "l3s"] = "l2"

    @property
    def plain(self) -> str:
        """Return a reason if the mode (not l2) hides the link from RDMA peers; else empty."""
        return "" if self.mode == "l2" else f"mode is {self.mode}"


class Ipoib(LinkPlugin):
    """The CNI plugin ipoib: a child of an InfiniBand interface, perhaps in its own partition."""

    pkey: PKey | None = None


class HostDevice(Plugin):
    """The CNI plugin host-device, which moves an interface of the node, named in five ways."""

    name_on_node: Master = Field("", alias="device")
    hwaddr: Mac | None = None
    kernelpath: str = ""
    pci_bus_id: str = Field("", alias="pciBusID")
    device_id: str = Field("", alias="deviceID")
    dpdk_mode: bool = False

    @field_validator("pci_bus_id", "device_id")
    @classmethod
    def _an_address(cls, text: str) -> str:
        if text and not _PCI.fullmatch(text):
            raise slips(Slip(f'"{text}" is not a PCI address', 'Write it like "0000:81:00.1"'))
        return text

    @field_validator("kernelpath")
    @classmethod
    def _has_an_address(cls, text: str) -> str:
        if text and not _PCI.findall(text):
            problem = "no PCI address is in this path"
            raise slips(Slip(problem, "Write device, hwaddr or pciBusID instead"))
        return text

    @property
    def foreign(self) -> str:
        """Return a reason if a user-space driver is to get the function; else empty."""
        return "dpdkMode is true" if self.dpdk_mode else ""

    @property
    def device(self) -> str | None:
        """Return the card's name from the first field that is set; None if none is."""
        path = _PCI.findall(self.kernelpath)[-1:]
        names = (self.name_on_node, self.hwaddr, *path, self.pci_bus_id, self.device_id)
        return next((name for name in names if name), None)


class FunctionPlugin(Plugin):
    """A plugin that moves a virtual function."""

    model_config = ConfigDict(alias_generator=None)

    device_id: Pci | None = Field(None, alias="deviceID")
    link_state: Literal["auto", "enable", "disable"] | None = None
    log_level: Any = Field(None, alias="logLevel")
    log_file: Any = Field(None, alias="logFile")

    @property
    def device(self) -> str | None:
        """Return the function's PCI address; None if none is named."""
        return self.device_id

    @property
    def ignored(self) -> dict[str, str]:
        """Return the fields for the plugin's log, which have no effect here."""
        reason = "it is ignored, what is done is in the log of the agent"
        fields = {"logLevel": self.log_level, "logFile": self.log_file}
        return {name: reason for name, value in fields.items() if value}


class SriovNetwork(FunctionPlugin):
    """The CNI plugin sriov, which moves a virtual function after its setup; rates are in Mbit/s."""

    vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    vlan_qos: Annotated[int, Field(ge=0, le=7)] | None = Field(None, alias="vlanQoS")
    vlan_protocol: Annotated[Literal["802.1q", "802.1ad"] | None, _LOWER] = Field(
        None, alias="vlanProto"
    )
    mac: Mac | None = None
    mtu: Mtu = 0
    spoofchk: Switch | None = None
    trust: Switch | None = None
    min_tx_rate: Rate | None = None
    max_tx_rate: Rate | None = None

    @model_validator(mode="after")
    def _agrees(self) -> SriovNetwork:
        problems = []
        for name, value, plain in (
            ("vlanQoS", self.vlan_qos, 0),
            ("vlanProto", self.vlan_protocol, "802.1q"),
        ):
            if value not in (None, plain) and not self.vlan:
                remedy = f'Add "vlan": 100, or remove {name}'
                problems.append(Slip(f"{name} belongs to a VLAN, and none is set", remedy, (name,)))
        least, most = self.min_tx_rate or 0, self.max_tx_rate or 0
        if most and least > most:
            problem = f"the least rate, {least}, is above the highest, {most}"
            problems.append(Slip(problem, f"Write {most} or less", ("min_tx_rate",)))
        raise_slips(problems)
        return self

    @property
    def function(self) -> FunctionSettings:
        """Return the settings of the virtual function, except the MAC, which the pod may set."""
        tagged = self.vlan is not None
        return FunctionSettings(
            vlan=self.vlan,
            qos=self.vlan_qos or 0 if tagged else None,
            protocol=VlanProtocol(self.vlan_protocol or "802.1q") if tagged else None,
            spoof_check=None if self.spoofchk is None else self.spoofchk == "on",
            trust=None if self.trust is None else self.trust == "on",
            link_state=LinkState(self.link_state) if self.link_state else None,
            min_rate=self.min_tx_rate,
            max_rate=self.max_tx_rate,
        )


class _CniArgs(Plugin):
    guid: Guid | None = None


class _Args(Plugin):
    cni: _CniArgs = _CniArgs.model_construct()


class IbSriov(FunctionPlugin):
    """The CNI plugin ib-sriov, which moves a virtual function of an InfiniBand card."""

    pkey: PKey | None = None
    isolated: bool = Field(False, alias="rdmaIsolation")
    configured: bool = Field(False, alias="ibKubernetesEnabled")
    vfio: bool = Field(False, alias="vfioPciMode")
    publish: bool = Field(False, alias="publishPfGuid")
    kubeconfig: str = ""
    args: _Args = _Args.model_construct()

    @property
    def foreign(self) -> str:
        """Return a reason if a user-space driver is to get the function; else empty."""
        return "vfioPciMode is true" if self.vfio else ""

    @property
    def function(self) -> FunctionSettings:
        """Return the settings of the virtual function, without GUIDs."""
        return FunctionSettings(link_state=LinkState(self.link_state) if self.link_state else None)

    @property
    def ignored(self) -> dict[str, str]:
        """Return fields that have no effect here, as for the plugin's log, with the reason."""
        reasons = super().ignored
        for name, value in (("publishPfGuid", self.publish), ("kubeconfig", self.kubeconfig)):
            if value:
                reasons[name] = "kube-rdma ignores it and publishes no GUID"
        return reasons


class KubeRdmaNetwork(LinkPlugin):
    """The CNI plugin kube-rdma, which makes what the mode of the granted card says."""

    mac: Mac | None = None
    pkey: PKey | None = None
    rdma: bool = True
    accept_ra: bool = Field(False, alias="acceptRA")


class TuningSettings(Plugin):
    """The settings of the CNI plugin tuning; None leaves a setting unchanged."""

    mac: Mac | None = None
    mtu: Mtu | None = None
    sysctl: dict[str, str] = Field({})
    promisc: bool | None = None
    allmulti: bool | None = None
    tx_queue_len: int | None = Field(None, alias="txQLen")

    @property
    def foreign(self) -> str:
        """Return a reason if settings change more than MAC, MTU and the interface's sysctls."""
        others = [key for key in self.sysctl if not _SYSCTL.fullmatch(key)]
        if others:
            return f"{others[0]} is not a sysctl of the interface (net.ipv4.conf.IFNAME. …)"
        wanted = {"promisc": self.promisc, "allmulti": self.allmulti, "txQLen": self.tx_queue_len}
        set_ = [key for key, value in wanted.items() if value]
        return f"{set_[0]} is set" if set_ else ""

    @property
    def sysctls(self) -> tuple[tuple[str, str, str], ...]:
        """Return the interface's sysctls as tree, key and value: ipv4/conf, arp_ignore, 1."""
        settings: list[tuple[str, str, str]] = []
        for key, value in self.sysctl.items():
            if match := _SYSCTL.fullmatch(key):
                tree, kind, name = match.groups()
                settings.append((f"{tree}/{kind}", name, value))
        return tuple(settings)


class _TuningArgs(Plugin):
    cni: TuningSettings = TuningSettings.model_construct()


class Tuning(TuningSettings):
    """The CNI plugin tuning, behind another plugin; `args.cni` overrides its settings."""

    data_dir: str = ""
    args: _TuningArgs = _TuningArgs.model_construct()

    @property
    def settings(self) -> TuningSettings:
        """Return the settings in effect: args.cni overrides the plugin's own."""
        argued = {name: value for name, value in self.args.cni if value is not None}
        own = {name: getattr(self, name) for name in TuningSettings.model_fields}
        sysctl = self.sysctl | self.args.cni.sysctl
        return TuningSettings.model_construct(**{**own, **argued, "sysctl": sysctl})

    @property
    def foreign(self) -> str:
        """Return a reason if settings change more than MAC, MTU and the interface's sysctls."""
        return self.settings.foreign


class NoEffectPlugin(Plugin):
    """A CNI plugin that is not needed, as kube-rdma does its work: rdma and sbr."""

    table: Any = None


MAIN: Mapping[str, type[Plugin]] = {
    "macvlan": Macvlan,
    "ipvlan": Ipvlan,
    "ipoib": Ipoib,
    "host-device": HostDevice,
    "sriov": SriovNetwork,
    "ib-sriov": IbSriov,
    "kube-rdma": KubeRdmaNetwork,
}
CHAINED: Mapping[str, type[Plugin]] = {
    "rdma": NoEffectPlugin,
    "sbr": NoEffectPlugin,
    "tuning": Tuning,
}


LONGEST = 64 << 10  # bytes of spec.config, read with all its positions at every ADD
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
"""The annotation that ties a network to shares."""


class NetworkDefinition(Frozen):
    """The meaning of a NetworkAttachmentDefinition or CNI configuration."""

    network: Network
    ipam: IpamConf = field(default_factory=IpamConf)  # which addresses to ask for
    warnings: tuple[str, ...] = ()  # sentences


def load(
    namespace: str, name: str, config: bytes, resource: str | None, host: bytes | None = None
) -> NetworkDefinition:
    """Return the network that a NetworkAttachmentDefinition with this spec.config describes.

    `host` is the node's own CNI configuration of that name, which an empty config stands for. Raise
    Refused with all faults of the configuration.
    """
    source = f"NetworkAttachmentDefinition {namespace}/{name}"
    if not config.strip():
        if host is None:
            raise Refused(
                f"spec.config is empty, and the node has no CNI configuration named {name}",
                remedy="Write a configuration into spec.config, or install one on every node",
                where=source,
            )
        config, source = host, f"CNI configuration {name}"
    if len(config) > LONGEST:
        problem = f"spec.config has {len(config)} bytes, of which {LONGEST} are read"
        raise Refused(problem, remedy="Shorten it: an IPPool can hold its excludes", where=source)
    parts = _plugins(read(config, source))
    base = kinds.ForeignNetwork(
        name=f"{namespace}/{name}",
        source=source,
        resource=resource or None,
        config=config,
        plugin=_type(parts[0]),
    )
    return _definition(base, parts)


def _plugins(document: Document) -> list[Section]:
    """Return a document's plugins: all of a list, or the single one."""
    value = document.value
    if not isinstance(value, dict):
        raise no_fields(document, 'Write {"cniVersion": "1.0.0", "type": "macvlan"}')
    if value.get("plugins") is None:
        return [_part(document, ())]
    plugins = value["plugins"]
    if not isinstance(plugins, list) or not plugins:
        remedy = 'Write "plugins": [{"type": "macvlan"}]'
        where = document.where(("plugins",))
        raise Refused("plugins is not a list of plugins", remedy=remedy, where=where)
    return [_part(document, ("plugins", number)) for number in range(len(plugins))]


def _part(document: Document, base: Path) -> Section:
    part = section(document, base)
    if not isinstance(part.value, dict) or not isinstance(part.value.get("type"), str):
        problem = "nothing says which plugin this is"
        where = part.where(("type",))
        raise Refused(problem, remedy=f'Add "type", one of {", ".join(MAIN)}', where=where)
    return part


def _type(part: Section) -> str:
    assert isinstance(part.value, dict)
    return str(part.value["type"])


def _definition(base: kinds.ForeignNetwork, parts: Sequence[Section]) -> NetworkDefinition:
    first, *chained = parts
    kind = _type(first)
    if kind in CHAINED:
        problem = f"{kind} changes what another plugin made, and none is before it"
        remedy = f"Put one of {', '.join(MAIN)} before it in plugins"
        raise Refused(problem, remedy=remedy, where=first.where(("type",)))
    if kind not in MAIN:
        meant = near(kind, list(MAIN))
        if meant and kind.endswith(f"-{meant}"):
            meant = None  # a plugin of its own, such as amd-host-device
        guess = f"; did you mean {shown(meant)}?" if meant else ""
        warning = f"kube-rdma does not serve {kind} itself, its binary is called{guess}"
        notes = (f"{first.where(('type',))}: {warning}",) if meant else ()
        return NetworkDefinition(base, warnings=notes)
    plugins = [(first, validate(MAIN[kind], first))]
    for part in chained:
        if (model := CHAINED.get(_type(part))) is None:
            return _foreign(base, part, f"{_type(part)} is in the chain")
        plugins.append((part, validate(model, part)))
    for part, plugin in plugins:
        if why := plugin.foreign or (not base.resource and plugin.plain):
            return _foreign(base, part, why)
    other = ip_conf.foreign(first)
    ipam = IpamConf() if other else ip_conf.load(first)
    warnings = [warning for part, plugin in plugins for warning in _unknown(part, plugin)]
    warnings += [f"{first.where(('ipam',))}: {note}" for note in ipam.notes]
    network = _network(replace(base, ipam_plugin=other), plugins[0][1], ipam)
    for _, plugin in plugins[1:]:
        if isinstance(plugin, Tuning):
            settings = plugin.settings
            mac, mtu = settings.mac or network.mac, settings.mtu or network.mtu
            sysctls = (*network.sysctls, *settings.sysctls)
            network = replace(network, mac=mac, mtu=mtu, sysctls=sysctls)
    return NetworkDefinition(network, ipam, tuple(warnings))


def _foreign(base: kinds.ForeignNetwork, part: Section, why: str) -> NetworkDefinition:
    text = f"{why}, so the plugins themselves are called, and kube-rdma brings no RDMA device"
    return NetworkDefinition(base, warnings=(f"{part.where(('type',))}: {text}",))


def _network(base: kinds.ForeignNetwork, plugin: Plugin, ipam: IpamConf) -> Network:
    """Return the network that kube-rdma itself makes of this plugin's configuration."""
    fields: dict[str, Any] = dict(plugin)
    names = [ipam.pool.name] if ipam.pool else [name for _, name in ipam.pools]
    any_rail = any(rail is None for rail, _ in ipam.pools)
    yields_to: tuple[str, ...] = ()
    if ipam.yields:  # of static: args replace its addresses, and runtimeConfig by a capability
        yields_to = ("cni-args", "ips") if plugin.capabilities.get("ips") is True else ("cni-args",)
    shared: dict[str, Any] = {name: getattr(base, name) for name in base.__struct_fields__} | {
        "device": plugin.device,
        "mtu": fields.get("mtu") or None,
        "mac": fields.get("mac"),
        "lends": plugin.capabilities.get("deviceID") is True,
        "rails": () if any_rail else tuple(rail for rail, _ in ipam.pools if rail is not None),
        "pools": tuple(dict.fromkeys(names)),
        "static": tuple(
            InterfaceAddress(one.address.ip, one.address.network.prefixlen, one.gateway)
            for one in ipam.addresses
        ),
        "yields_to": yields_to,
        "routes": tuple(NetworkRoute(route.to, route.via) for route in ipam.routes),
        "dns": ipam.dns,
    }
    match plugin:
        case Macvlan():
            return kinds.MacvlanNetwork(**shared, mode=plugin.mode)
        case Ipvlan():
            return kinds.IpvlanNetwork(**shared, mode=plugin.mode)
        case Ipoib():
            return kinds.IpoibNetwork(
                **shared, pkey=partition(plugin.pkey) if plugin.pkey else None
            )
        case SriovNetwork():
            return kinds.DeviceNetwork(**shared, function=plugin.function)
        case IbSriov():
            return kinds.IbSriovNetwork(
                **shared,
                function=plugin.function,
                guid=plugin.args.cni.guid,
                pkey=partition(plugin.pkey) if plugin.pkey else None,
                isolated=plugin.isolated,
                configured=plugin.configured,
            )
        case KubeRdmaNetwork():
            shared |= {"rdma": plugin.rdma, "accept_ra": plugin.accept_ra}
            return kinds.CardNetwork(**shared, pkey=partition(plugin.pkey) if plugin.pkey else None)
    return kinds.DeviceNetwork(**shared)


def _unknown(part: Section, plugin: Plugin) -> Iterator[str]:
    """Yield a sentence for each key that is ignored, perhaps with the key that was meant."""
    assert isinstance(part.value, dict)
    for key, reason in plugin.ignored.items():
        yield f"{part.where((key,), key=True)}: {reason}"
    fields = [one.alias or name for name, one in type(plugin).model_fields.items()]
    for key in part.value:
        if key not in COMMON and key not in fields:
            meant = near(key, fields)
            guess = f"; did you mean {shown(meant)}?" if meant else ""
            where = part.where((key,), key=True)
            yield f"{where}: {_type(part)} knows no such field, it is ignored{guess}"
