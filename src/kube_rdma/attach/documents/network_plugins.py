"""The CNI plugins whose configurations kube-rdma reads and serves itself, each as a model.

Names and meanings are those of the reference plugins (containernetworking/plugins, v1.9) and of
sriov-cni, ib-sriov-cni, rdma-cni and ipoib-cni. They ignore what they do not know, so do these
models; network_definition warns of it. `foreign` says why a configuration is left to the plugin
itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from kube_rdma.attach.documents.networks import Guid, Mac
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.go_typed import GoTyped
from kube_rdma.lib.text.words import Pci, PKey, TextForm
from kube_rdma.model.attach.attachment import NetworkKind
from kube_rdma.model.functions.step import FunctionSettings, LinkState, VlanProtocol

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


def _logs(level: object, file: object) -> dict[str, str]:
    reason = "it is ignored, what is done is in the log of the agent"
    fields = {"logLevel": level, "logFile": file}
    return {name: reason for name, value in fields.items() if value}


class Plugin(GoTyped):
    """One plugin of a configuration. `device` is an interface, a PCI address or a MAC."""

    model_config = ConfigDict(extra="ignore")

    capabilities: dict[str, Any] = Field({})

    @property
    def foreign(self) -> str:
        """Why only the plugin itself can do this; empty when kube-rdma can."""
        return ""

    @property
    def plain(self) -> str:
        """Why only the plugin itself can do this for a network without RDMA, else empty."""
        return ""

    @property
    def device(self) -> str | None:
        """The card that it names, where it names one by something else than `master`."""
        return None

    @property
    def function(self) -> FunctionSettings | None:
        """What a virtual function is set to; None where another card would do as well."""
        return None

    @property
    def ignored(self) -> Mapping[str, str]:
        """Fields that are right and have no effect here, with the reason."""
        return {}


class Linked(Plugin):
    """What stands on an interface of the node, or, without `master`, on that of a card."""

    master: Master = ""
    mtu: Mtu = 0
    link_in_container: bool = False

    @property
    def foreign(self) -> str:
        """A link that stands on another one of the pod."""
        return "linkInContainer is true" if self.link_in_container else ""


class Macvlan(Linked):
    """type macvlan."""

    mode: Literal["bridge", "private", "vepa", "passthru"] = "bridge"
    mac: Mac | None = None
    bcqueuelen: int = 0


class Ipvlan(Linked):
    """type ipvlan."""

    mode: Literal["l2", "l3", "l3s"] = "l2"

    @property
    def plain(self) -> str:
        """A link that answers no neighbour, which RDMA needs."""
        return "" if self.mode == "l2" else f"mode is {self.mode}"


class Ipoib(Linked):
    """type ipoib: a child of an InfiniBand interface, perhaps in a partition of its own."""

    pkey: PKey | None = None


class HostDevice(Plugin):
    """type host-device: an interface of the node moves, named in one of five ways."""

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
        """A function that leaves the kernel's hands."""
        return "dpdkMode is true" if self.dpdk_mode else ""

    @property
    def device(self) -> str | None:
        """In the order in which the reference plugin looks; the last address of a path."""
        path = _PCI.findall(self.kernelpath)[-1:]
        names = (self.name_on_node, self.hwaddr, *path, self.pci_bus_id, self.device_id)
        return next((name for name in names if name), None)


class SriovNetwork(Plugin):
    """type sriov: a virtual function moves, set up by its physical one. Rates are in Mbit/s."""

    model_config = ConfigDict(alias_generator=None)

    device_id: Pci | None = Field(None, alias="deviceID")
    vlan: Annotated[int, Field(ge=0, le=4094)] | None = None
    vlan_qos: Annotated[int, Field(ge=0, le=7)] | None = Field(None, alias="vlanQoS")
    vlan_protocol: Annotated[Literal["802.1q", "802.1ad"] | None, _LOWER] = Field(
        None, alias="vlanProto"
    )
    mac: Mac | None = None
    mtu: Mtu = 0
    spoofchk: Switch | None = None
    trust: Switch | None = None
    link_state: Literal["auto", "enable", "disable"] | None = None
    min_tx_rate: Rate | None = None
    max_tx_rate: Rate | None = None
    log_level: Any = Field(None, alias="logLevel")
    log_file: Any = Field(None, alias="logFile")

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
        if problems:
            raise slips(*problems)
        return self

    @property
    def device(self) -> str | None:
        """The function."""
        return self.device_id

    @property
    def function(self) -> FunctionSettings:
        """All but the MAC, which the pod may ask for too. A VLAN says the whole of its tag."""
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

    @property
    def ignored(self) -> Mapping[str, str]:
        """The plugin's own log."""
        return _logs(self.log_level, self.log_file)


class _CniArgs(Plugin):
    guid: Guid | None = None


class _Args(Plugin):
    cni: _CniArgs = _CniArgs.model_construct()


class IbSriov(Plugin):
    """type ib-sriov: a virtual function of an InfiniBand card moves."""

    model_config = ConfigDict(alias_generator=None)

    device_id: Pci | None = Field(None, alias="deviceID")
    pkey: PKey | None = None
    link_state: Literal["auto", "enable", "disable"] | None = None
    isolated: bool = Field(False, alias="rdmaIsolation")
    configured: bool = Field(False, alias="ibKubernetesEnabled")
    vfio: bool = Field(False, alias="vfioPciMode")
    publish: bool = Field(False, alias="publishPfGuid")
    kubeconfig: str = ""
    args: _Args = _Args.model_construct()
    log_level: Any = Field(None, alias="logLevel")
    log_file: Any = Field(None, alias="logFile")

    @property
    def foreign(self) -> str:
        """A function that leaves the kernel's hands."""
        return "vfioPciMode is true" if self.vfio else ""

    @property
    def device(self) -> str | None:
        """The function."""
        return self.device_id

    @property
    def function(self) -> FunctionSettings:
        """All but the GUIDs, which are the pod's."""
        return FunctionSettings(link_state=LinkState(self.link_state) if self.link_state else None)

    @property
    def ignored(self) -> Mapping[str, str]:
        """What the plugin does for others, and its own log."""
        reasons = _logs(self.log_level, self.log_file)
        for name, value in (("publishPfGuid", self.publish), ("kubeconfig", self.kubeconfig)):
            if value:
                reasons[name] = "kube-rdma ignores it and publishes no GUID"
        return reasons


class KubeRdmaNetwork(Linked):
    """type kube-rdma: what the mode of the granted card means."""

    mac: Mac | None = None
    pkey: PKey | None = None
    rdma: bool = True
    accept_ra: bool = Field(False, alias="acceptRA")


class TuningSettings(Plugin):
    """What tuning sets; None is left as it is."""

    mac: Mac | None = None
    mtu: Mtu | None = None
    sysctl: dict[str, str] = Field({})
    promisc: bool | None = None
    allmulti: bool | None = None
    tx_queue_len: int | None = Field(None, alias="txQLen")

    @property
    def foreign(self) -> str:
        """What is not a MAC, an MTU or a sysctl of the interface."""
        others = [key for key in self.sysctl if not _SYSCTL.fullmatch(key)]
        if others:
            return f"{others[0]} is not a sysctl of the interface (net.ipv4.conf.IFNAME. …)"
        wanted = {"promisc": self.promisc, "allmulti": self.allmulti, "txQLen": self.tx_queue_len}
        set_ = [key for key, value in wanted.items() if value]
        return f"{set_[0]} is set" if set_ else ""

    @property
    def sysctls(self) -> tuple[tuple[str, str, str], ...]:
        """As Network has them."""
        settings: list[tuple[str, str, str]] = []
        for key, value in self.sysctl.items():
            if match := _SYSCTL.fullmatch(key):
                tree, kind, name = match.groups()
                settings.append((f"{tree}/{kind}", name, value))
        return tuple(settings)


class _TuningArgs(Plugin):
    cni: TuningSettings = TuningSettings.model_construct()


class Tuning(TuningSettings):
    """type tuning, behind another plugin: what `args.cni` says comes before the rest."""

    data_dir: str = ""
    args: _TuningArgs = _TuningArgs.model_construct()

    @property
    def settings(self) -> TuningSettings:
        """What is set in the end."""
        argued = {name: value for name, value in self.args.cni if value is not None}
        own = {name: getattr(self, name) for name in TuningSettings.model_fields}
        sysctl = self.sysctl | self.args.cni.sysctl
        return TuningSettings.model_construct(**{**own, **argued, "sysctl": sysctl})

    @property
    def foreign(self) -> str:
        """What is not a MAC, an MTU or a sysctl of the interface."""
        return self.settings.foreign


class Nothing(Plugin):
    """What is done anyway: rdma brings the card's RDMA device, sbr routes by source address."""

    table: Any = None


MAIN: Mapping[str, tuple[NetworkKind, type[Plugin]]] = {
    "macvlan": (NetworkKind.MACVLAN, Macvlan),
    "ipvlan": (NetworkKind.IPVLAN, Ipvlan),
    "ipoib": (NetworkKind.IPOIB, Ipoib),
    "host-device": (NetworkKind.DEVICE, HostDevice),
    "sriov": (NetworkKind.DEVICE, SriovNetwork),
    "ib-sriov": (NetworkKind.DEVICE, IbSriov),
    "kube-rdma": (NetworkKind.CARD, KubeRdmaNetwork),
}
CHAINED: Mapping[str, type[Plugin]] = {"rdma": Nothing, "sbr": Nothing, "tuning": Tuning}
