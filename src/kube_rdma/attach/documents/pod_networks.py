"""Reads the annotation ``k8s.volcengine.com/pod-networks``: the second way to ask for networks.

It is a JSON list, one block for each card that the pod asks for. Form and meaning are as in
Cello, the network plugin of Volcengine's VKE (volcengine/cello, pkg/cni/plugins/meta). A block
names a CNI configuration of the node, or else what attach/annotated_networks finds. The cluster's
own network is eth0, and the first other block eth1. What only the provider's own cloud can do is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field, field_validator

from kube_base.errors import Refused, Unavailable
from kube_rdma.attach.documents.networks import AnnotationAsks, AskedIp, Mac, PodInterface, entries
from kube_rdma.lib.text.document import Document, shown
from kube_rdma.lib.text.faults import Slip, raise_slips, validate
from kube_rdma.lib.text.typed import GoTyped, Many, Typed
from kube_rdma.lib.text.words import TextForm, address
from kube_rdma.model.attach.attachment import NetworkAsk, NetworkRoute
from kube_rdma.model.ipam import Address, InterfaceName, Subnet

ANNOTATION = "k8s.volcengine.com/pod-networks"
DEFINITION = "k8s.volcengine.com/pod-networks-definition"
CHAINER = "cello-chainer"
"""The name of the cluster's own network where Cello makes it."""

_FIELD = "pod-networks"  # what an entry is called in messages: pod-networks[2].deviceConf.ips[0]
_OLD = {
    "ipv4": "deviceConf.ips",
    "mac": "deviceConf.mac",
    "route": "traffic.routes.extraRoutes",
    "vlanID": "deviceConf.options.vlanID",
}
_CLOUD = {
    "trunkMac": "trunk interfaces exist in the provider's own network only",
    "vlanID": "the VLANs of trunk interfaces exist in the provider's own network only",
}


def _destination(text: str) -> Subnet:
    """Return a subnet without host bits, as Go reads it; raise ValueError for another form."""
    if "/" not in text or "%" in text:
        raise ValueError(text)
    return ip_network(text, strict=False)


ConfName: TypeAlias = Annotated[
    str,
    TextForm(
        r"[a-zA-Z0-9][-a-zA-Z0-9_.]{0,252}",
        "the name of a CNI configuration: letters, digits, dashes, dots and underscores",
        "rdma",
    ),
]
Local: TypeAlias = Annotated[
    str, TextForm("(local)?", "where a configuration is: it is always the node's own", "local")
]
Destination: TypeAlias = Annotated[Subnet, TextForm(_destination, "a subnet", "10.0.0.0/8")]
Gateway: TypeAlias = Annotated[
    Address | None, TextForm(lambda t: address(t) if t else None, "an IP address", "10.0.0.1")
]


class CniConf(GoTyped):
    """The network of a pod-networks block: the `name` inside of a CNI configuration."""

    name: ConfName = Field(examples=["rdma"])
    from_: Local = Field("", alias="from")


class CelloOptions(GoTyped):
    """Options of a pod-networks block for the provider's cloud."""

    trunk_mac: str = ""
    vlan_id: str = Field("", alias="vlanID")


class DeviceConf(GoTyped):
    """Settings of a pod-networks block for the interface in the pod."""

    options: CelloOptions = CelloOptions.model_construct()
    ips: Many[AskedIp] = ()
    if_name: PodInterface | None = None
    mac: Mac | None = None


class ExtraRoute(GoTyped):
    """A route in a pod-networks block; without `gw` it uses the interface's gateway, if any."""

    dst: Destination = Field(examples=["10.0.0.0/8"])
    gw: Gateway = None


class Routes(GoTyped):
    """The routes of a pod-networks block over its interface."""

    extra_routes: Many[ExtraRoute] = ()
    default: bool = False  # the pod's default route leads through this interface


class Traffic(GoTyped):
    """Settings of a pod-networks block for traffic, with its routes."""

    routes: Routes = Routes.model_construct()


class PodNetworksEntry(GoTyped):
    """One block of a pod's annotation pod-networks."""

    name: str = ""  # matched with the definition
    namespace: str = ""
    cni_conf: CniConf = Field(examples=[{"name": "rdma"}])
    device_conf: DeviceConf = DeviceConf.model_construct()
    traffic: Traffic = Traffic.model_construct()
    master: bool = False  # it is the cluster's own network
    # The old fields.
    ipv4: AskedIp | None = None
    mac: Mac | None = None
    route: ExtraRoute | None = None
    vlan_id: str = Field("", alias="vlanID")

    @property
    def device(self) -> DeviceConf:
        """Return the interface's settings, with old fields where the new ones are empty."""
        old = {"ips": (self.ipv4,) if self.ipv4 else (), "mac": self.mac}
        new = {"ips": self.device_conf.ips, "mac": self.device_conf.mac}
        both = {key: new[key] or old[key] for key in new}
        return self.device_conf.model_copy(update=both)

    @property
    def routes(self) -> tuple[NetworkRoute, ...]:
        """Return the block's routes, with a gateway that may be outside of all subnets."""
        routes = self.traffic.routes.extra_routes or ((self.route,) if self.route else ())
        return tuple(NetworkRoute(one.dst, one.gw, onlink=bool(one.gw)) for one in routes)

    @property
    def old(self) -> tuple[str, ...]:
        """Return the deprecated fields that are set, by their names in the document."""
        fields = {"ipv4": self.ipv4, "mac": self.mac, "route": self.route, "vlanID": self.vlan_id}
        return tuple(key for key, value in fields.items() if value)


class PodNetworksList(Typed):
    """All blocks of a pod's annotation, as a list in a field, so that they have a path."""

    entries: Many[PodNetworksEntry] = Field(
        alias="pod-networks", examples=[[{"cniConf": {"name": "rdma"}}]]
    )

    @field_validator("entries")
    @classmethod
    def _fit(cls, networks: tuple[PodNetworksEntry, ...]) -> tuple[PodNetworksEntry, ...]:
        checks = (_unserved, _masters, _defaults, _clashes)
        raise_slips(slip for check in checks for slip in check(networks))
        return networks


class DefinedEntry(GoTyped):
    """One entry of the annotation that defines a pod's networks, as far as it is read."""

    model_config = ConfigDict(extra="ignore")

    name: str = ""
    namespace: str = ""


class Definitions(Typed):
    """The annotation that defines a pod's networks, which other programs write."""

    entries: Many[DefinedEntry] = Field(alias="pod-networks-definition")


def load(text: str, definition: str, namespace: str, cluster: str) -> AnnotationAsks:
    """Return the networks of pod-networks blocks of a pod in `namespace`; none for a blank text.

    `definition` is the annotation pod-networks-definition, which may be empty; `cluster` is the
    name of the cluster's own CNI configuration. Raise Refused with all faults, Unavailable while
    definition and annotation do not agree: whoever writes them has not finished.
    """
    wanted = None
    if definition.strip():
        defined = entries(definition, DEFINITION, "pod-networks-definition")
        wanted = validate(Definitions, defined).entries
    document = entries(text if text.strip() else "[]", ANNOTATION, _FIELD)
    networks = validate(PodNetworksList, document).entries
    if wanted is not None:
        _await_agreement(wanted, networks)
    if networks and networks[0].master:
        _refuse_master(document, networks[0], cluster)
    warnings = tuple(
        f"{document.where((_FIELD, number, key), key=True)}: the field is old, write {_OLD[key]}"
        for number, entry in enumerate(networks)
        for key in entry.old
    )
    return AnnotationAsks(_asks(networks, namespace), warnings)


def blocks(text: str, namespace: str) -> tuple[NetworkAsk, ...]:
    """Return the networks of pod-networks blocks before the pod's node is known.

    The entry of the cluster's own network is passed over, whatever its name. Raise Refused with all
    faults.
    """
    document = entries(text if text.strip() else "[]", ANNOTATION, _FIELD)
    return _asks(validate(PodNetworksList, document).entries, namespace)


def _asks(networks: tuple[PodNetworksEntry, ...], namespace: str) -> tuple[NetworkAsk, ...]:
    ahead = 0 if networks and networks[0].master else 1
    return tuple(
        NetworkAsk(
            namespace=namespace,
            network=entry.cni_conf.name,
            interface=InterfaceName(device.if_name or f"eth{number + ahead}"),
            source=f"{_FIELD}[{number}]",
            addresses=device.ips,
            mac=device.mac.lower() if device.mac else None,
            routes=entry.routes,
            default=entry.traffic.routes.default,
            by_pod_networks=True,
        )
        for number, entry in enumerate(networks)
        for device in (entry.device,)
        if not entry.master
    )


def _unserved(networks: tuple[PodNetworksEntry, ...]) -> Iterator[Slip]:
    """Yield faults for fields that need the provider's cloud, and for contradictory old fields."""
    for number, entry in enumerate(networks):
        options = entry.device_conf.options
        cloud_fields = {
            ("deviceConf", "options", "trunkMac"): options.trunk_mac,
            ("deviceConf", "options", "vlanID"): options.vlan_id,
            ("vlanID",): entry.vlan_id,
        }
        for path, value in cloud_fields.items():
            if value:
                remedy = f"Remove {path[-1]}, or let Cello make this network"
                yield Slip(_CLOUD[path[-1]], remedy, (number, *path))
        both = {
            "ipv4": (entry.ipv4, entry.device_conf.ips, (entry.ipv4,)),
            "mac": (entry.mac, entry.device_conf.mac, entry.mac),
            "route": (entry.route, entry.traffic.routes.extra_routes, (entry.route,)),
        }
        for key, (old, new, same) in both.items():
            if old and new and new != same:
                problem = f"{_OLD[key]} says something else than this old field"
                yield Slip(problem, f"Keep {_OLD[key]}", (number, key))


def _masters(networks: tuple[PodNetworksEntry, ...]) -> Iterator[Slip]:
    """Yield faults in entries for the cluster's own network, which its own plugins have made."""
    for number, entry in enumerate(networks):
        if not entry.master:
            continue
        if number:
            problem = "only the first entry can be the cluster's own network"
            yield Slip(problem, "Move it to the front, or remove master", (number, "master"))
        device = entry.device
        wrong: dict[tuple[str, ...], bool] = {
            ("deviceConf", "ips"): bool(device.ips),
            ("deviceConf", "mac"): bool(device.mac),
            ("deviceConf", "ifName"): device.if_name not in (None, "eth0"),
            ("traffic", "routes", "extraRoutes"): bool(entry.routes),
        }
        for path, is_said in wrong.items():
            if is_said:
                problem = "the cluster's own network is made before, and cannot be changed here"
                yield Slip(problem, f"Remove {path[-1]} from this entry", (number, *path))


def _defaults(networks: tuple[PodNetworksEntry, ...]) -> Iterator[Slip]:
    """Yield a fault for each block that asks for a default route after another one has."""
    asking = [number for number, entry in enumerate(networks) if entry.traffic.routes.default]
    for number in asking[1:]:
        problem = f"{_FIELD}[{asking[0]}] has the default route already"
        path = (number, "traffic", "routes", "default")
        yield Slip(problem, "Keep one of the two", path)


def _clashes(networks: tuple[PodNetworksEntry, ...]) -> Iterator[Slip]:
    """Yield faults for interface names that two entries ask for, or that every pod has."""
    ahead = 0 if networks and networks[0].master else 1
    first: dict[str, int] = {}
    for number, entry in enumerate(networks):
        if entry.master:
            continue
        name = entry.device.if_name or f"eth{number + ahead}"
        path = (number, "deviceConf", "ifName")
        if name in ("lo", "eth0"):
            remedy = f"Write another name, or none for eth{number + ahead}"
            yield Slip(f"every pod has an interface {name} already", remedy, path)
        if (other := first.setdefault(name, number)) != number:
            problem = f"{_FIELD}[{other}] has the interface {name} too"
            yield Slip(problem, "Give each its own name", path)


def _refuse_master(document: Document, entry: PodNetworksEntry, cluster: str) -> None:
    name = entry.cni_conf.name
    if name not in (cluster, CHAINER):
        raise Refused(
            f"the cluster's own network is called {shown(cluster)} here, not {shown(name)}",
            remedy=f"Write {shown(cluster)}, or remove this entry: a pod has that network anyway",
            where=document.where((_FIELD, 0, "cniConf", "name")),
        )


def _await_agreement(
    wanted: tuple[DefinedEntry, ...], networks: tuple[PodNetworksEntry, ...]
) -> None:
    if len(wanted) != len(networks):
        raise Unavailable(
            f"The annotation {ANNOTATION} has {len(networks)} entries and {DEFINITION} has "
            f"{len(wanted)}: the program that writes {ANNOTATION} has not finished."
        )
    for number, (defined, entry) in enumerate(zip(wanted, networks, strict=True)):
        if (defined.namespace, defined.name) != (entry.namespace, entry.name):
            raise Unavailable(
                f"The entry {_FIELD}[{number}] is {entry.namespace}/{entry.name}, and {DEFINITION} "
                f"says {defined.namespace}/{defined.name}: the program that writes {ANNOTATION} "
                "has not finished."
            )
