"""Networks of other plugins' types: which plugins are called for them, and what they get to read.

Beside attach/rules/plan, which plans what kube-rdma makes itself. A pod's entry and the network's
document become the configuration of each plugin as libcni and Multus would give it: what the entry
asks for goes to the plugins that declare the capability, the card of the share to all of them. What
no plugin would do is refused before anything is done, and so is a card that the pod may not name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from ipaddress import ip_interface, ip_network
from itertools import count, filterfalse
from typing import Any

from kube_base.errors import Broken, Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import replace
from kube_rdma.attach.rules.plan import FIRST_TABLE
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.seats import Choice, choices, not_lent, seats, soft_links
from kube_rdma.model.attach.attachment import (
    Attached,
    GrantedShare,
    HostNetwork,
    InterfaceAddress,
    Network,
    NetworkKind,
    NetworkSeat,
    Plan,
    PluginResult,
    PodView,
    Wish,
)
from kube_rdma.model.attach.cni import (
    CHAINED,
    PLUGIN,
    CniInterface,
    CniResult,
    LinkAddress,
    LinkRoute,
)
from kube_rdma.model.attach.steps import AddRoute, AddRule, CallPlugin, MakeRdma, PluginConf
from kube_rdma.model.card import Card
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import is_default
from kube_rdma.model.pools import Bind
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


def foreign(wishes: Sequence[Wish]) -> tuple[Wish, ...]:
    """The networks that other plugins make."""
    return tuple(wish for wish in wishes if wish.network.kind is NetworkKind.OTHER)


def called_for(wishes: Sequence[Wish]) -> tuple[Wish, ...]:
    """The networks for which binaries are called, if only for their addresses."""
    others = foreign(wishes)
    return tuple(wish for wish in wishes if wish in others or wish.network.ipam_plugin)


def plugin_calls(plans: Sequence[Plan]) -> tuple[CallPlugin, ...]:
    """What binaries of others do of these plans."""
    steps = (step for plan in plans for step in plan.steps)
    return tuple(step for step in steps if isinstance(step, CallPlugin))


def refuse_missing(wishes: Sequence[Wish], folder: str, installed: Sequence[str]) -> None:
    """Raise Refused for networks whose plugins are not in the node's folder of CNI binaries."""
    names = frozenset(installed)
    faults = [fault for wish in called_for(wishes) for fault in _missing(wish, folder, names)]
    if faults:
        raise Refused.all(faults)


def plans(
    wishes: Sequence[Wish], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[Plan, ...]:
    """A plan for each network of other plugins, in the order of the annotation.

    Raise Refused when a document is not one that plugins read, or asks for what none of them does.
    """
    return tuple(
        _plan(wish, choice, _lent(wish, granted, node))
        for wish, choice in choices(wishes, granted, node)
        if wish.network.kind is NetworkKind.OTHER
    )


def attached(
    wishes: Sequence[Wish], planned: Sequence[Plan], view: PodView, results: Sequence[PluginResult]
) -> tuple[Attached, ...]:
    """Each interface of other plugins as the pod shows it, in the order of the plans.

    Raise Broken when plugins reported success, and made none of this name.
    """
    asks = {wish.ask.interface: wish.ask for wish in wishes}
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
            Attached(
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


def _plan(wish: Wish, choice: Choice | None, lent: str | None) -> Plan:
    share, card = choice or (None, None)
    pci = given_to_plugins(share, card)
    _refuse_untaken(wish, _plugins(_document(wish)), _asked(wish))
    name = wish.ask.interface
    if wish.ask.default:
        problem = "which gateways this network has is known to its plugins alone"
        remedy = "Remove default, or write the route with its gateway"
        raise refused(wish, "traffic.routes.default", problem, remedy)
    wanted = [(route.to, route.via) for route in wish.ask.routes]
    wanted += [
        (ip_network("0.0.0.0/0" if via.version == 4 else "::/0"), via)
        for via in wish.ask.default_routes
    ]
    return Plan(
        interface=name,
        network=wish.network.name,
        card=card.id if card else None,
        steps=(call(wish, pci, lent=lent), *(AddRoute(name, to, via) for to, via in wanted)),
        held=share.held if share else None,
    )


def call(
    wish: Wish, pci: PciAddress | None, oldest: str = _OLDEST, lent: str | None = None
) -> CallPlugin:
    """All plugins of a network with what each gets to read, in the document's version, or `oldest`.

    `pci` is the card that is theirs, `lent` one that the pod names: who declares the capability
    deviceID hears of it. Raise Refused for a document that plugins cannot read.
    """
    document = _document(wish)
    plugins = _plugins(document)
    asked = _asked(wish)
    if wish.network.kind is NetworkKind.OTHER:
        plugins = list(map(_without_default_routes, plugins))
    if pci:
        for plugin in plugins:
            plugin.update(deviceID=pci, pciBusID=pci)
    if device := pci or lent:
        asked["deviceID"] = device
    version = max(_version(document), oldest, key=numbers)
    common = {
        "name": document.get("name") or wish.network.name.rpartition("/")[2],
        "cniVersion": version,
    }
    return CallPlugin(
        wish.ask.interface,
        tuple(
            PluginConf(_type(plugin), _plugin_configuration(plugin, common, asked, wish))
            for plugin in plugins
        ),
        version,
        document.get("disableCheck") is not True,
    )


def has_default_route(network: Network) -> bool:
    """Whether a network has a default route by its document, also if a plugin alone reads that."""
    try:
        plugins = _plugins(decoded(network.config))
    except (Undecodable, TypeError):
        plugins = []
    is_written = any(_without_default_routes(one) != one for one in plugins)
    return is_written or any(is_default(route.to) for route in network.routes)


def _without_default_routes(plugin: Json) -> Json:
    """The configuration without default routes, which a plugin puts into the pod's main table."""
    block = _object(plugin, "ipam")
    if isinstance(routes := block.get("routes"), list):
        plugin = plugin | {"ipam": block | {"routes": [*filterfalse(_is_default, routes)]}}
    if plugin.get("isDefaultGateway"):
        plugin = plugin | {"isDefaultGateway": False, "isGateway": True}
    return plugin


def _is_default(route: Any) -> bool:
    """Whether it is such a route; of what is none, the plugin complains."""
    try:
        return is_default(ip_network(route["dst"], strict=False))
    except (KeyError, TypeError, ValueError):
        return False


def _lent(wish: Wish, granted: Sequence[GrantedShare], node: HostNetwork) -> str | None:
    """The card that the pod names and may have; raise Refused for one that it may not.

    Of a resource of kube-rdma's the pod's shares have decided already (seats.choices).
    """
    device, resource = wish.ask.device_id, wish.network.resource
    if device is None or any(share.resource == resource for share in granted):
        return None
    mine = [card.pci for one in granted if MODES[one.mode].owns for card in one.cards]
    plugins = _plugins(_document(wish))
    lends = not resource and any(_object(one, "capabilities").get("deviceID") for one in plugins)
    if own := next((one[key] for one in plugins for key in _OWN_CARD if one.get(key)), None):
        problem = f"the network is on {own}, and a pod cannot put it on {device}"
        raise refused(wish, "deviceID", problem, "Remove deviceID, or name another network")
    if not lends:
        raise not_lent(wish)
    if device.lower() not in mine:
        _refuse_unlendable(wish, device, node)
    return device


def _refuse_unlendable(wish: Wish, device: str, node: HostNetwork) -> None:
    """A card that is somebody's, or no card: a plugin would take whatever a path leads to."""
    remedy = "Write the PCI address of a card that is free, like 0000:81:00.1"
    links = [link for link in node.links if link.pci == device.lower()]
    owner = next((of for card, of in node.owned if card.pci == device.lower()), None)
    if not _PCI.fullmatch(device):
        raise refused(wish, "deviceID", f"{device} is not the PCI address of a card", remedy)
    if owner:
        problem = f"{device} belongs to {owner}, and the pod holds no share of it"
        raise refused(wish, "deviceID", problem, f"Add {owner} to the limits of a container")
    if any(link.default_route for link in links):
        problem = f"the node itself is reached through {device}, it cannot move into a pod"
        raise refused(wish, "deviceID", problem, remedy)


def given_to_plugins(share: GrantedShare | None, card: Card | None) -> PciAddress | None:
    """The function of a card that no other pod has; another's, a plugin might move or configure."""
    return card.pci if card and share and MODES[share.mode].owns else None


def _plugin_configuration(plugin: Json, common: Json, asked: Json, wish: Wish) -> bytes:
    """All that one plugin gets to read, but the previous result."""
    plugin = plugin | common
    declared = _object(plugin, "capabilities")
    runtime = {key: value for key, value in asked.items() if declared.get(key)}
    if runtime:
        plugin["runtimeConfig"] = _object(plugin, "runtimeConfig") | runtime
    if arguments := decoded(wish.ask.arguments):
        args = _object(plugin, "args")
        plugin["args"] = args | {"cni": _object(args, "cni") | arguments}
    return json.dumps(plugin, sort_keys=True).encode()


def _asked(wish: Wish) -> Json:
    """What the entry asks for, by capability."""
    ask = wish.ask
    ips = [
        str(one.address) if one.prefix is None else f"{one.address}/{one.prefix}"
        for one in ask.addresses
    ]
    wanted = {
        "ips": ips,
        "mac": ask.mac,
        "infiniband-guid": ask.guid,
        **{name: decoded(value) for name, value in ask.capabilities},
    }
    return {_CAPABILITIES[field]: value for field, value in wanted.items() if value}


def _refuse_untaken(wish: Wish, plugins: Sequence[Json], asked: Json) -> None:
    faults = []
    for field, key in _CAPABILITIES.items():
        if key in asked and not any(_object(one, "capabilities").get(key) for one in plugins):
            problem = f"no plugin of this network takes it: none declares the capability {key}"
            remedy = (
                f'Write "capabilities": {{"{key}": true}} into the plugin that can do it, or '
                f"remove {field} from this entry"
            )
            faults.append(refused(wish, field, problem, remedy))
    if faults:
        raise Refused.all(faults)


def _missing(wish: Wish, folder: str, installed: frozenset[str]) -> Iterator[Refused]:
    if wish.network.kind is not NetworkKind.OTHER:
        yield from _missing_ipam(wish, folder, installed)
        return
    if any(one.get(CHAINED) is True for one in _plugins(_document(wish))):
        problem = "it is the cluster's own network, which every pod has already"
        remedy = "Remove this entry"
        if wish.ask.by_pod_networks:
            remedy = f'{remedy}, or make it the first one with "master": true'
        yield refused(wish, "name", problem, remedy)
        return
    for kind in _types(wish):
        if kind == PLUGIN:
            problem = f"{PLUGIN} cannot be called for this network: it does not make such a link"
            remedy = "Remove linkInContainer, or the plugins that are not kube-rdma's"
            yield refused(wish, "type", problem, remedy)
        elif kind not in installed:
            yield _absent(wish, "type", kind, (folder, {*OURS, *installed}))


def _missing_ipam(wish: Wish, folder: str, installed: frozenset[str]) -> Iterator[Refused]:
    """The binary by which a network's addresses come."""
    if (kind := wish.network.ipam_plugin) not in installed:
        yield _absent(wish, "ipam.type", kind, (folder, installed))


def _absent(wish: Wish, field: str, kind: str, folder: tuple[str, Collection[str]]) -> Refused:
    """A binary that is not in the folder, which comes with the names that may be written."""
    path, names = folder
    meant = get_close_matches(kind, sorted(names), n=1)
    guess = f"Did you mean {meant[0]}? " if meant else ""
    problem = f"the node has no CNI plugin {kind} in {path}"
    remedy = f"{guess}Install it there on every node, or write a type that is there"
    return refused(wish, field, problem, remedy)


def _types(wish: Wish) -> tuple[str, ...]:
    """The binaries that will be called, those of addresses too."""
    types = []
    for plugin in _plugins(_document(wish)):
        types += [_type(plugin), str(_object(plugin, "ipam").get("type") or "")]
    return tuple(dict.fromkeys(filter(None, types)))


def _document(wish: Wish) -> Json:
    try:
        document = decoded(wish.network.config)
    except Undecodable:
        document = None
    if not isinstance(document, dict):
        problem = (
            f"the configuration is not a JSON object, and {wish.network.plugin} reads nothing else"
        )
        raise refused(wish, "config", problem, "Write spec.config as JSON")
    return document


def _plugins(document: Json) -> list[Json]:
    """The plugins of a list, or the only one; network_definition has checked its form."""
    return list(document["plugins"]) if "plugins" in document else [document]


def _object(whole: Json, key: str) -> Json:
    """The object of this key; empty for anything but an object."""
    nested = whole.get(key)
    return nested if isinstance(nested, dict) else {}


def _type(plugin: Json) -> str:
    return str(plugin["type"])


def _version(document: Json) -> str:
    """The newest of the document's that kube-rdma speaks (cniVersions is of 1.1.0)."""
    more = document.get("cniVersions")
    versions = [document.get("cniVersion"), *(more if isinstance(more, list) else ())]
    supported = [one for one in versions if isinstance(one, str) and numbers(one) <= _NEWEST]
    return max(supported, key=numbers, default="") or _OLDEST


def numbers(version: str) -> tuple[int, ...]:
    """A version for comparison, by nine digits of each part; what is not a number counts as 0."""
    return tuple(int(part[:9]) if part.isdecimal() else 0 for part in version.split("."))


# One network of a pod at a time, as meta-plugins call for them: which card, and what is answered.


def seat(
    wish: Wish,
    granted: Sequence[GrantedShare],
    before: Sequence[Plan],
    node: HostNetwork,
    table: int | None = None,
) -> NetworkSeat:
    """Where the network goes, so that many calls come to what one for all of them would.

    `before` are the pod's other interfaces. `table` is the caller's own choice of a routing table.
    Raise Refused as attach_cards.seats does.
    """
    device, resource = wish.ask.device_id, wish.network.resource
    tied = [one for one in granted if resource in (None, one.resource)]
    shares = [one for one in tied if device and _is(one, device)]
    if len(resources := sorted({one.resource for one in shares})) > 1:
        problem = f"{device} is a share of {' and of '.join(resources)}"
        remedy = "Tie the network to one of them by the annotation k8s.v1.cni.cncf.io/resourceName"
        raise refused(wish, "deviceID", problem, remedy)
    if shares:
        # Of a pool that is bound as a whole any share stands for all of its cards.
        pooled = {one.resource for one in shares if one.bind is Bind.POOL}
        anywhere = _off_rails(wish, shares, node)
        shares = [one for one in tied if anywhere or one in shares or one.resource in pooled]
        wish = replace(wish, ask=replace(wish.ask, device_id=None))
    (placed,) = seats((wish,), tuple(_left(shares or granted, before)), node)
    return replace(placed, number=_number(before) if table is None else table - FIRST_TABLE)


def _off_rails(wish: Wish, shares: Sequence[GrantedShare], node: HostNetwork) -> bool:
    """Whether none of these cards is on a rail of the network.

    Meta-plugins give the n-th network the n-th share, and know no rails.
    """
    rails, wanted = dict(node.rails), wish.network.rails
    cards = (card for share in shares for card in share.cards)
    return bool(wanted and rails) and not any(rails.get(card.id) in wanted for card in cards)


def without_rules(plan: Plan) -> Plan:
    """For a caller that makes the rules to its tables itself, and fails where one is there."""
    return replace(plan, steps=tuple(one for one in plan.steps if not isinstance(one, AddRule)))


def device_names(plan: Plan, granted: Sequence[GrantedShare]) -> tuple[str, ...]:
    """The RDMA devices of an interface that was attached in an earlier call."""
    made = tuple(step.name for step in plan.steps if isinstance(step, MakeRdma))
    cards = (card for one in granted if one.held == plan.held for card in one.cards)
    return made or tuple(name for card in cards if card.id == plan.card for name in _own(card))


def result(plan: Plan, attached: Attached, netns: str) -> CniResult:
    """The answer to ADD: an interface of the pod, its addresses, and its routes in the main table.

    Default routes are the caller's to set.
    """
    routes = (step for step in plan.steps if isinstance(step, AddRoute) and step.table is None)
    return CniResult(
        links=(
            CniInterface(
                attached.interface, attached.mac, netns, attached.mtu, pci=attached.pci or ""
            ),
        ),
        addresses=tuple(
            LinkAddress(ip_interface((one.address, one.prefix)), one.gateway, 0)
            for one in plan.addresses
        ),
        routes=tuple(LinkRoute(step.to, step.via) for step in routes),
        dns=attached.dns,
    )


def _left(granted: Sequence[GrantedShare], before: Sequence[Plan]) -> Iterator[GrantedShare]:
    """The shares with those of their cards that no interface has yet."""
    taken = {(plan.held, plan.card) for plan in before}
    for share in granted:
        cards = tuple(card for card in share.cards if (share.held, card.id) not in taken)
        if cards:
            yield replace(share, cards=cards)


def _own(card: Card) -> Iterator[str]:
    soft = dict(soft_links(card))
    return (device.name for device in card.devices if device.name not in soft)


def _is(share: GrantedShare, device: str) -> bool:
    """Whether a caller means this share; Cello cuts ids off at the @."""
    return device in (share.share, share.share.partition("@")[0])


def _number(before: Sequence[Plan]) -> int:
    """The first place whose routing table nobody has."""
    steps = (step for plan in before for step in plan.steps)
    used = {step.table for step in steps if isinstance(step, AddRule | AddRoute)}
    return next(number for number in count(1) if FIRST_TABLE + number not in used)
