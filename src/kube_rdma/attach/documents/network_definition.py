"""NetworkAttachmentDefinitions: the CNI configuration in one becomes a Network.

Manifests that were written for Multus with macvlan, ipvlan, ipoib, host-device, sriov, ib-sriov,
tuning, sbr and rdma work as they are: kube-rdma reads these configurations and does the same
(network_plugins). Any other plugin is kept as it is, its binary will be called; so is the binary of
an IPAM plugin that ip_conf does not read. A key that nobody knows is ignored by those plugins, and
here with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen, field, replace
from kube_rdma.attach.documents.network_plugins import (
    CHAINED,
    COMMON,
    MAIN,
    IbSriov,
    Plugin,
    Tuning,
)
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import Document, Path, Section, section, shown
from kube_rdma.lib.text.faults import near, no_fields, validate
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.words import partition
from kube_rdma.model.attach.attachment import InterfaceAddress, Network, NetworkKind, NetworkRoute

LONGEST = 64 << 10  # bytes of spec.config, read with all its positions at every ADD
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"
"""The annotation that ties a network to shares."""


class NetworkDefinition(Frozen):
    """What the object means; `ipam` says which addresses to ask for, `warnings` are sentences."""

    network: Network
    ipam: IpamConf = field(default_factory=IpamConf)
    warnings: tuple[str, ...] = ()


def load(
    namespace: str, name: str, config: bytes, resource: str | None, host: bytes | None = None
) -> NetworkDefinition:
    """What the object `namespace`/`name` with this spec.config means.

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
    document = read(config, source)
    parts = _plugins(document)
    base = Network(
        name=f"{namespace}/{name}",
        kind=NetworkKind.OTHER,
        source=source,
        resource=resource or None,
        config=config,
        plugin=_type(parts[0]),
    )
    return _definition(base, parts)


def _plugins(document: Document) -> list[Section]:
    """The plugins of a list, or the only one."""
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


def _definition(base: Network, parts: Sequence[Section]) -> NetworkDefinition:
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
        return NetworkDefinition(
            base, warnings=(f"{first.where(('type',))}: {warning}",) if meant else ()
        )
    plugins = [(first, validate(MAIN[kind][1], first))]
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
    network = _network(replace(base, ipam_plugin=other), MAIN[kind][0], plugins[0][1], ipam)
    for _, plugin in plugins[1:]:
        network = _tuned(network, plugin)
    return NetworkDefinition(network, ipam, tuple(warnings))


def _foreign(base: Network, part: Section, why: str) -> NetworkDefinition:
    text = f"{why}, so the plugins themselves are called and no RDMA device comes along"
    return NetworkDefinition(base, warnings=(f"{part.where(('type',))}: {text}",))


def _network(base: Network, kind: NetworkKind, plugin: Plugin, ipam: IpamConf) -> Network:
    fields: dict[str, Any] = dict(plugin)
    names = [ipam.pool.name] if ipam.pool else [name for _, name in ipam.pools]
    any_rail = any(rail is None for rail, _ in ipam.pools)
    return replace(
        base,
        kind=kind,
        master=fields.get("master") or None,
        mode=fields.get("mode") or "",
        mtu=fields.get("mtu") or None,
        mac=fields.get("mac"),
        device=plugin.device,
        function=plugin.function,
        infiniband=isinstance(plugin, IbSriov),
        guid=plugin.args.cni.guid if isinstance(plugin, IbSriov) else None,
        isolated=fields.get("isolated", False),
        configured=fields.get("configured", False),
        pkey=partition(fields["pkey"]) if fields.get("pkey") else None,
        rdma=fields.get("rdma", True),
        accept_ra=fields.get("accept_ra", False),
        lends=plugin.capabilities.get("deviceID") is True,
        rails=() if any_rail else tuple(rail for rail, _ in ipam.pools if rail is not None),
        pools=tuple(dict.fromkeys(names)),
        static=tuple(
            InterfaceAddress(one.address.ip, one.address.network.prefixlen, one.gateway)
            for one in ipam.addresses
        ),
        yields_to=_yields_to(plugin, ipam),
        routes=tuple(NetworkRoute(route.to, route.via) for route in ipam.routes),
        dns=ipam.dns,
    )


def _yields_to(plugin: Plugin, ipam: IpamConf) -> tuple[str, ...]:
    """Of static: args replace its addresses, and runtimeConfig, which takes a capability."""
    if not ipam.yields:
        return ()
    return ("cni-args", "ips") if plugin.capabilities.get("ips") is True else ("cni-args",)


def _tuned(network: Network, plugin: Plugin) -> Network:
    if not isinstance(plugin, Tuning):
        return network
    settings = plugin.settings
    return replace(
        network,
        mac=settings.mac or network.mac,
        mtu=settings.mtu or network.mtu,
        sysctls=(*network.sysctls, *settings.sysctls),
    )


def _unknown(part: Section, plugin: Plugin) -> Iterator[str]:
    """A sentence for each key that is ignored, with why, or the one that was perhaps meant."""
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
