"""Decides which plugins are called for networks of other types, and what they get to read.

attach/rules/plan plans what kube-rdma makes itself. A pod's entry and the network's document become
the configuration of each plugin as libcni and Multus would give it. What the entry asks for goes to
the plugins that declare the capability, a card that only this pod holds goes to all. What no plugin
would do is refused before anything is done, and so is a card that the pod may not name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from ipaddress import ip_network
from itertools import filterfalse
from typing import Any

from kube_base.errors import Broken, Refused, refuse_all
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.attach.rules.placement import Choice, choices, not_lent
from kube_rdma.attach.rules.plan import everywhere
from kube_rdma.attach.rules.requests import refused
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    AttachedInterface,
    GrantedShare,
    HostNetwork,
    InterfaceAddress,
    MatchedEntry,
    Network,
    NetworkKind,
    Plan,
    PluginResult,
    PodView,
)
from kube_rdma.model.attach.cni import CHAINED, PLUGIN
from kube_rdma.model.attach.steps import AddRoute, CallPlugin, PluginConf
from kube_rdma.model.card import Card
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import is_default
from kube_rdma.pools.rules.modes import MODES

OURS = tuple(kind.value for kind in NetworkKind if kind is not NetworkKind.OTHER)

_NEWEST = (1, 1, 0)
_OLDEST = "0.1.0"  # what a configuration without a version has (libcni)

# What an entry may ask for -> the capability that a plugin declares (CNI CONVENTIONS.md).
_CAPABILITIES = {
    "ips": "ips",
    "mac": "mac",
    "infiniband-guid": "infinibandGUID",
    "portMappings": "portMappings",
    "bandwidth": "bandwidth",
}

_OWN_CARD = ("master", "device", "hwaddr", "kernelpath", "deviceID", "pciBusID")
_PCI = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")

Json = dict[str, Any]


def refuse_missing(entries: Sequence[MatchedEntry], folder: str, installed: Sequence[str]) -> None:
    """Raise Refused for networks with plugins that the node lacks, or that cannot be called."""
    names = frozenset(installed)
    called = (
        one for one in entries if one.network.ipam_plugin or one.network.kind is NetworkKind.OTHER
    )
    refuse_all(fault for entry in called for fault in _missing(entry, folder, names))


def plans(
    entries: Sequence[MatchedEntry], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[Plan, ...]:
    """Return a plan for each network that other plugins make, in the order of the annotation.

    Raise Refused for a document that plugins cannot read. Raise it too for an entry that asks for
    what no plugin does, or for a card that the pod may not have.
    """
    return tuple(
        _plan(entry, choice, _lent(entry, granted, node))
        for entry, choice in choices(entries, granted, node)
        if isinstance(entry.network, kinds.ForeignNetwork)
    )


def attached(
    entries: Sequence[MatchedEntry],
    planned: Sequence[Plan],
    view: PodView,
    results: Sequence[PluginResult],
) -> tuple[AttachedInterface, ...]:
    """Return the interfaces that other plugins made, as the pod shows them.

    Raise Broken when plugins reported success, and an interface is not there.
    """
    asks = {entry.ask.interface: entry.ask for entry in entries}
    links = {link.name: link for link in view.links}
    dns = {one.interface: one.dns for one in results}
    interfaces = []
    for plan in planned:
        link = links.get(plan.interface)
        if link is None:
            raise Broken(
                f"The plugins of {plan.network} reported success, and made no interface "
                f"{plan.interface} in the pod."
            )
        interfaces.append(
            AttachedInterface(
                network=plan.network,
                interface=plan.interface,
                mac=link.mac,
                mtu=link.mtu,
                addresses=tuple(
                    InterfaceAddress(address, prefix)
                    for address, prefix in link.addresses
                    if not address.is_link_local
                ),
                card=plan.card,
                default_routes=asks[plan.interface].default_routes,
                dns=dns.get(plan.interface),
            )
        )
    return tuple(interfaces)


def _plan(entry: MatchedEntry, choice: Choice | None, lent: str | None) -> Plan:
    share, card = choice or (None, None)
    pci = given_to_plugins(share, card)
    _refuse_untaken(entry, _plugins(_document(entry)), _asked(entry))
    name = entry.ask.interface
    if entry.ask.default:
        problem = "which gateways this network has is known to its plugins alone"
        remedy = "Remove default, or write the route with its gateway"
        raise refused(entry, "traffic.routes.default", problem, remedy)
    wanted = [(route.to, route.via) for route in entry.ask.routes]
    wanted += [(everywhere(via), via) for via in entry.ask.default_routes]
    return Plan(
        interface=name,
        network=entry.network.name,
        card=card.id if card else None,
        steps=(call(entry, pci, lent=lent), *(AddRoute(name, to, via) for to, via in wanted)),
        held=share.held if share else None,
    )


def call(
    entry: MatchedEntry, pci: PciAddress | None, oldest: str = _OLDEST, lent: str | None = None
) -> CallPlugin:
    """Return the call of all plugins of a network, in the document's version, at least `oldest`.

    `pci` is a card that only this pod holds; all plugins get it. `lent` is one that the pod names,
    for plugins with the capability deviceID. Raise Refused for a document that they cannot read.
    """
    document = _document(entry)
    plugins = _plugins(document)
    asked = _asked(entry)
    if isinstance(entry.network, kinds.ForeignNetwork):
        plugins = list(map(_without_default_routes, plugins))
    if pci:
        for plugin in plugins:
            plugin.update(deviceID=pci, pciBusID=pci)
    if device := pci or lent:
        asked["deviceID"] = device
    version = max(_version(document), oldest, key=numbers)
    name = document.get("name") or entry.network.name.rpartition("/")[2]
    common = {"name": name, "cniVersion": version}
    return CallPlugin(
        entry.ask.interface,
        tuple(
            PluginConf(str(plugin["type"]), _plugin_configuration(plugin, common, asked, entry))
            for plugin in plugins
        ),
        version,
        document.get("disableCheck") is not True,
    )


def has_default_route(network: Network) -> bool:
    """Return whether a network's document asks for a default route in the pod's main table."""
    try:
        plugins = _plugins(decoded(network.config))
    except (Undecodable, TypeError):
        plugins = []
    is_written = any(_without_default_routes(one) != one for one in plugins)
    return is_written or any(is_default(route.to) for route in network.routes)


def _without_default_routes(plugin: Json) -> Json:
    """Return a plugin's configuration without default routes in the main table."""
    block = _object(plugin, "ipam")
    if isinstance(routes := block.get("routes"), list):
        plugin = plugin | {"ipam": block | {"routes": [*filterfalse(_is_default, routes)]}}
    if plugin.get("isDefaultGateway"):
        plugin = plugin | {"isDefaultGateway": False, "isGateway": True}
    return plugin


def _is_default(route: Any) -> bool:
    """Return whether a route in a document is a default route; False for a malformed one."""
    try:
        to = route["dst"]
        return isinstance(to, str) and is_default(ip_network(to, strict=False))
    except (KeyError, TypeError, ValueError):
        return False


def _lent(entry: MatchedEntry, granted: Sequence[GrantedShare], node: HostNetwork) -> str | None:
    """Return the card that the pod names and may have; None if it names none.

    Raise Refused for one that it may not have. Return None too for a resource of kube-rdma, where
    the pod's shares have decided already (placement.choices).
    """
    device, resource = entry.ask.device_id, entry.network.resource
    if device is None or any(share.resource == resource for share in granted):
        return None
    mine = [card.pci for one in granted if MODES[one.mode].owns for card in one.cards]
    plugins = _plugins(_document(entry))
    lends = not resource and any(_object(one, "capabilities").get("deviceID") for one in plugins)
    if own := next((one[key] for one in plugins for key in _OWN_CARD if one.get(key)), None):
        problem = f"the network is on {own}, and a pod cannot put it on {device}"
        raise refused(entry, "deviceID", problem, "Remove deviceID, or name another network")
    if not lends:
        raise not_lent(entry)
    if device.lower() not in mine:
        _refuse_unlendable(entry, device, node)
    return device


def _refuse_unlendable(entry: MatchedEntry, device: str, node: HostNetwork) -> None:
    """Raise Refused for a card of a pool, one that the node needs, or what is no PCI address."""
    remedy = "Write the PCI address of a card that is free, like 0000:81:00.1"
    links = [link for link in node.links if link.pci == device.lower()]
    owner = next((of for card, of in node.owned if card.pci == device.lower()), None)
    if not _PCI.fullmatch(device):
        raise refused(entry, "deviceID", f"{device} is not the PCI address of a card", remedy)
    if owner:
        problem = f"{device} belongs to {owner}, and the pod holds no share of it"
        raise refused(entry, "deviceID", problem, f"Add {owner} to the limits of a container")
    if of := next((of for card, of in node.shared if card.pci == device.lower()), None):
        problem = (
            f"{device} belongs to {of}, and a plugin could take it from the pods that share it"
        )
        raise refused(entry, "deviceID", problem, remedy)
    if any(link.default_route for link in links):
        problem = f"the node itself is reached through {device}, it cannot move into a pod"
        raise refused(entry, "deviceID", problem, remedy)


def given_to_plugins(share: GrantedShare | None, card: Card | None) -> PciAddress | None:
    """Return the PCI function of a card that only this pod holds; None for a shared one."""
    return card.pci if card and share and MODES[share.mode].owns else None


def _plugin_configuration(plugin: Json, common: Json, asked: Json, entry: MatchedEntry) -> bytes:
    """Return the full configuration for one plugin, without prevResult."""
    plugin = plugin | common
    declared = _object(plugin, "capabilities")
    runtime = {key: value for key, value in asked.items() if declared.get(key)}
    if runtime:
        plugin["runtimeConfig"] = _object(plugin, "runtimeConfig") | runtime
    if arguments := decoded(entry.ask.arguments):
        args = _object(plugin, "args")
        plugin["args"] = args | {"cni": _object(args, "cni") | arguments}
    return json.dumps(plugin, sort_keys=True).encode()


def _asked(entry: MatchedEntry) -> Json:
    """Return the values that the entry asks for, by capability of CNI."""
    ask = entry.ask
    ips = [
        str(one.address) if one.prefix is None else f"{one.address}/{one.prefix}"
        for one in ask.addresses
    ]
    more = {name: decoded(value) for name, value in ask.capabilities}
    wanted = {"ips": ips, "mac": ask.mac, "infiniband-guid": ask.guid, **more}
    return {_CAPABILITIES[field]: value for field, value in wanted.items() if value}


def _refuse_untaken(entry: MatchedEntry, plugins: Sequence[Json], asked: Json) -> None:
    faults = []
    for field, key in _CAPABILITIES.items():
        if key in asked and not any(_object(one, "capabilities").get(key) for one in plugins):
            problem = f"no plugin of this network takes it: none declares the capability {key}"
            remedy = (
                f'Write "capabilities": {{"{key}": true}} into the plugin that can do it, or '
                f"remove {field} from this entry"
            )
            faults.append(refused(entry, field, problem, remedy))
    refuse_all(faults)


def _missing(entry: MatchedEntry, folder: str, installed: frozenset[str]) -> Iterator[Refused]:
    if not isinstance(entry.network, kinds.ForeignNetwork):
        if (kind := entry.network.ipam_plugin) not in installed:
            yield _absent(entry, "ipam.type", kind, (folder, installed))
        return
    plugins = _plugins(_document(entry))
    if any(one.get(CHAINED) is True for one in plugins):
        problem = "it is the cluster's own network, which every pod has already"
        remedy = "Remove this entry"
        if entry.ask.by_pod_networks:
            remedy = f'{remedy}, or make it the first one with "master": true'
        yield refused(entry, "name", problem, remedy)
        return
    pairs = ((one["type"], _object(one, "ipam").get("type") or "") for one in plugins)
    types = [str(kind) for pair in pairs for kind in pair]
    for kind in dict.fromkeys(filter(None, types)):
        if kind == PLUGIN:
            problem = f"{PLUGIN} cannot be called for this network: it does not make such a link"
            remedy = "Remove linkInContainer, or the plugins that are not kube-rdma's"
            yield refused(entry, "type", problem, remedy)
        elif kind not in installed:
            yield _absent(entry, "type", kind, (folder, {*OURS, *installed}))


def _absent(
    entry: MatchedEntry, field: str, kind: str, folder: tuple[str, Collection[str]]
) -> Refused:
    """Return the refusal for a plugin that is not installed, with a similar name that is."""
    path, names = folder
    meant = get_close_matches(kind, sorted(names), n=1)
    guess = f"Did you mean {meant[0]}? " if meant else ""
    problem = f"the node has no CNI plugin {kind} in {path}"
    remedy = f"{guess}Install it there on every node, or write a type that is there"
    return refused(entry, field, problem, remedy)


def _document(entry: MatchedEntry) -> Json:
    try:
        document = decoded(entry.network.config)
    except Undecodable:
        document = None
    if not isinstance(document, dict):
        plugin = entry.network.plugin
        problem = f"the configuration is not a JSON object, and {plugin} reads nothing else"
        raise refused(entry, "config", problem, "Write spec.config as JSON")
    return document


def _plugins(document: Json) -> list[Json]:
    """Return a document's plugins: all of a list, or the single one."""
    return list(document["plugins"]) if "plugins" in document else [document]


def _object(whole: Json, key: str) -> Json:
    """Return the object under a key; empty without one."""
    nested = whole.get(key)
    return nested if isinstance(nested, dict) else {}


def _version(document: Json) -> str:
    """Return the newest CNI version of a document that kube-rdma supports, else _OLDEST."""
    more = document.get("cniVersions")
    versions = [document.get("cniVersion"), *(more if isinstance(more, list) else ())]
    supported = [one for one in versions if isinstance(one, str) and numbers(one) <= _NEWEST]
    return max(supported, key=numbers, default="") or _OLDEST


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as a sortable key, by the first nine digits of each part; text is 0."""
    return tuple(int(part[:9]) if part.isdecimal() else 0 for part in version.split("."))
