"""The one order in which a pod's networks come to be, from what is asked for to what is reported.

    NetworkRequest ─ shares ─► MatchedNetworks ─ node ─► LocatedNics ─ settings, GUIDs
      ─► SettledNics ─ addresses ─► AddressedNics ─ answers of IPAM plugins ─► FullPlan
      ─ the pod as it is ─► MadeNics ─ devices ─► Outcome

It stands above the other rules of an attachment. Each stage is a value, made of the stage before it
and of answers (on the arrows) that somebody has to fetch. attach/attach fetches them from the
kubelet, the kernel, its journal and IPAM. explain/rules/planning has stand-ins, and stops at
FullPlan. So neither can leave a rule out, nor take two in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules import addresses, delegated, foreign_plugins, requests, vf
from kube_rdma.attach.rules.infiniband import refuse_taken
from kube_rdma.attach.rules.late_binding import refuse_renumbered
from kube_rdma.attach.rules.placement import pod_nics, with_pods
from kube_rdma.attach.rules.plan import begun, plans, plugin_calls
from kube_rdma.model.attach import attachment, kinds
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.steps import CallPlugin, MakeRdma
from kube_rdma.model.card import Card
from kube_rdma.model.device import CharKind, Device, Gid, GidType, LinkLayer
from kube_rdma.model.ipam import Address, InterfaceName, IPPool, gid_of
from kube_rdma.model.late_binding import Edits, HeldShare, UsedDevice
from kube_rdma.model.pools import FunctionPlace, FunctionReports
from kube_rdma.model.settings import PlacedNet

NO_CLAIMS: Mapping[str, str] = MappingProxyType({})


class NetworkRequest(Frozen):
    """The input of attaching: entries of a pod's annotation and claims, and their networks."""

    asks: tuple[attachment.NetworkAsk, ...]
    networks: tuple[attachment.Network, ...]
    others: tuple[str, ...] = ()  # further names, one of which an entry may have misspelled
    called: bool = False  # a meta-plugin calls for this network alone; there may be more calls
    table: int | None = None  # by which the caller routes what comes from the interface's addresses


class MatchedNetworks(Frozen):
    """The first stage of attaching: every entry has its network, and the pod's shares are known."""

    request: NetworkRequest
    granted: tuple[attachment.GrantedShare, ...]
    entries: tuple[attachment.MatchedEntry, ...]

    @property
    def needs_plugins(self) -> bool:
        """Return whether plugins of others are called, for networks or addresses."""
        return bool(self.foreign) or any(entry.network.ipam_plugin for entry in self.entries)

    @property
    def foreign(self) -> tuple[attachment.MatchedEntry, ...]:
        """Return the entries whose networks are made by other plugins."""
        return tuple(one for one in self.entries if isinstance(one.network, kinds.ForeignNetwork))

    @property
    def unpooled(self) -> tuple[tuple[attachment.MatchedEntry, Address], ...]:
        """Return the addresses asked for in networks without a pool, each with its entry."""
        return addresses.unpooled(self.entries)


class LocatedNics(Frozen):
    """The second stage of attaching: every network of kube-rdma has its card and link."""

    matched: MatchedNetworks
    host: attachment.HostNetwork
    nics: tuple[attachment.PodNic, ...]
    beside: tuple[attachment.Plan, ...]  # of the sandbox's other interfaces

    @property
    def functions(self) -> tuple[FunctionPlace, ...]:
        """Return the virtual functions whose settings the next stage needs."""
        moved = (nic.link.virtual for nic in self.nics if nic.way is attachment.Way.TAKE)
        return tuple(place for place in moved if place)


class SettledNics(LocatedNics):
    """The third stage of attaching: all that can be known before addresses are taken."""

    called: tuple[attachment.Plan, ...]  # of other plugins

    @property
    def plugin_calls(self) -> tuple[CallPlugin, ...]:
        """Return the calls of other plugins, in the order in which they are made."""
        return (*plugin_calls(self.called), *(nic.ipam for nic in self.nics if nic.ipam))

    @property
    def sole(self) -> tuple[str, ...]:
        """Return values that no other interface may get: GUIDs, and keys of `addresses.sole`."""
        asked = (requests.asked_guid(nic.entry) for nic in self.nics)
        keys = (key for nic in self.nics for key in addresses.sole(nic))
        return (*(guid for _, guid in filter(None, asked)), *keys)


class AddressedNics(Frozen):
    """The fourth stage of attaching: IPPools and cards have given their addresses."""

    placed: SettledNics
    sandbox: attachment.Sandbox
    addresses: tuple[attachment.AssignedAddresses, ...]
    begun: tuple[attachment.Plan, ...]  # up to the call of the IPAM plugin that gives the addresses


class FullPlan(Frozen):
    """The fifth stage of attaching: all Steps are planned."""

    placed: SettledNics
    nics: tuple[attachment.PodNic, ...]
    own: tuple[attachment.Plan, ...]  # kube-rdma's, one for each NIC
    plans: tuple[attachment.Plan, ...]  # those of other plugins too, in the order of the annotation


class MadeNics(Frozen):
    """The sixth stage of attaching: the Steps were run, and the pod was looked at."""

    planned: FullPlan
    view: attachment.PodView
    nics: tuple[attachment.PodNic, ...]
    used: tuple[tuple[attachment.Plan, tuple[str, ...]], ...]  # RDMA devices by their current names

    @property
    def devices(self) -> tuple[str, ...]:
        """Return all RDMA devices that the pod uses."""
        return tuple(dict.fromkeys(name for _, names in self.used for name in names))


class Outcome(Frozen):
    """The last stage of attaching: the pod's interfaces, and devices for containers by share."""

    interfaces: tuple[attachment.AttachedInterface, ...]
    edits: Mapping[HeldShare, Edits]


def match(request: NetworkRequest, granted: tuple[attachment.GrantedShare, ...]) -> MatchedNetworks:
    """Return the entries with their networks; raise Refused for entries that cannot be met."""
    # Who calls for one network has chosen the plugin, so it is kube-rdma's without a share too.
    holding = request.called or bool(granted)
    asks, networks, others = request.asks, request.networks, request.others
    entries = requests.match_entries(asks, networks, holding=holding, others=others)
    if any(ask.by_pod_networks for ask in request.asks):
        requests.refuse_traffic(entries)
        requests.refuse_count(entries, granted)
    return MatchedNetworks(request, granted, entries)


def locate(
    before: MatchedNetworks,
    host: attachment.HostNetwork,
    attachments: Iterable[attachment.Attachment] = (),
    beside: tuple[attachment.Plan, ...] = (),
) -> LocatedNics:
    """Return card and link of each network; raise Refused if shares, cards or links do not fit.

    `attachments` are all of the node.
    """
    host = with_pods(host, attachments)
    if before.request.called:
        (entry,) = before.entries
        nic = delegated.nic(entry, before.granted, beside, host, before.request.table)
        return LocatedNics(before, host, (nic,), beside)
    return LocatedNics(before, host, pod_nics(before.entries, before.granted, host), beside)


def settle(
    before: LocatedNics,
    settings: FunctionReports | None = None,
    others: Sequence[attachment.Attachment] = (),
    claimed: Mapping[str, str] = NO_CLAIMS,
) -> SettledNics:
    """Return the NICs with all that can be decided without addresses.

    Raise Refused for GUIDs, or MACs and addresses of claims, that are taken, and for what other
    plugins cannot do. `settings` are of the virtual functions; None: the links of the host have
    them. `others` are the attachments of other keys, `claimed` says by GUID or key who is about to
    get it.
    """
    asked, host, nics = before.matched, before.host, before.nics
    if settings is not None and before.functions:
        nics = vf.with_settings(nics, settings)
    nics = addresses.with_calls(nics)
    if any(requests.asked_guid(nic.entry) for nic in nics):
        refuse_taken(nics, others, host, claimed)
    addresses.refuse_doubled(nics, others, claimed)
    called: tuple[attachment.Plan, ...] = ()
    if asked.foreign:
        called = foreign_plugins.plans(asked.entries, asked.granted, host)
    return SettledNics(asked, host, nics, before.beside, called)


def address(
    before: SettledNics,
    sandbox: attachment.Sandbox,
    leased: Sequence[attachment.AssignedAddresses],
    pools: Iterable[IPPool] = (),
) -> AddressedNics:
    """Return the NICs with the addresses in `leased` and those that cards bring along.

    Raise Refused if a card has to bring addresses and cannot, or if RoCE of the built-in network
    would have no GID. Raise it too for an asked address in a pool for other namespaces.
    """
    # Before a link is made for an IPAM plugin: what is refused here costs only addresses.
    addresses.refuse_reserved(before.matched.unpooled, sandbox.pod.namespace, pools)
    given = addresses.with_card_addresses(before.nics, leased)
    alone = not before.matched.request.called
    first = begun(sandbox, before.nics, before.host, before.called, alone=alone)
    return AddressedNics(before, sandbox, given, first)


def plan(
    before: AddressedNics, answers: Mapping[InterfaceName, CniResult] | None = None
) -> FullPlan:
    """Return all Steps; raise Refused when addresses, routes or gateways do not fit.

    `answers` are from IPAM plugins, by interface; None: nobody has asked them. Raise Refused too if
    one lacks an address that the pod asks for.
    """
    place, given = before.placed, before.addresses
    if answers is not None:
        asked = [nic for nic in place.nics if nic.ipam]
        given += tuple(addresses.of_answer(n, answers[n.interface]) for n in asked)
    # The gateways of a default route are known only with the last address.
    routed = addresses.with_default_routes(place.nics, given)
    request = place.matched.request
    alone = not request.called
    own = plans(before.sandbox, routed, given, place.host, place.called, alone=alone)
    if request.table is not None:
        own = tuple(map(delegated.without_rules, own))
    every = requests.in_order(place.matched.entries, (*own, *place.called))
    return FullPlan(place, routed, own, every)


def observe(before: FullPlan, view: attachment.PodView) -> MadeNics:
    """Return the NICs as the pod shows them after the Steps were run."""
    place = before.placed
    named = as_named(before.nics, view)
    used = [(p, rdma_names((p,), (nic,))) for p, nic in zip(before.own, named, strict=True)]
    # Interfaces of earlier calls belong to the same containers, whose files are written as a whole.
    used += [(plan, delegated.device_names(plan, place.matched.granted)) for plan in place.beside]
    return MadeNics(before, view, named, tuple(used))


def conclude(
    before: MadeNics,
    devices: Sequence[Device],
    rdma_cm: str | None,
    results: Sequence[attachment.PluginResult] = (),
) -> Outcome:
    """Return the pod's interfaces and its containers' devices, after all Steps.

    Raise Outdated for device nodes that are another device's by now, Broken for plugins that
    reported success and made nothing. `devices` are the ones of `before` as they are now.
    """
    plan, entries = before.planned, before.planned.placed.matched.entries
    refuse_renumbered(plan.own, before.nics, devices)
    called: tuple[attachment.AttachedInterface, ...] = ()
    if plan.placed.called:
        called = foreign_plugins.attached(entries, plan.placed.called, before.view, results)
    dns = {one.interface: one.dns for one in results}
    made = attached(plan.own, before.nics, before.view, devices)
    seen = zip(made, before.nics, strict=True)
    own = (replace(one, dns=dns.get(one.interface, nic.network.dns)) for one, nic in seen)
    interfaces = requests.in_order(entries, (*own, *called))
    by_share = edits(before.used, plan.placed.matched.granted, devices, rdma_cm)
    return Outcome(interfaces, by_share)


# What became of an attachment, for status and late binding: its plan, and a fresh look at the pod.
# Which GID index an address has is known only now, and differs from pod to pod.


def as_named(
    placed: Sequence[attachment.PodNic], view: attachment.PodView
) -> tuple[attachment.PodNic, ...]:
    """Return the NICs with the present names of their RDMA devices.

    A driver that was bound again has made them again, and the old name may be another device's.
    """
    return tuple(replace(nic, devices=tuple(_names(nic, view))) for nic in placed)


def rdma_names(
    plans: Sequence[attachment.Plan], nics: Sequence[attachment.PodNic]
) -> tuple[str, ...]:
    """Return the RDMA devices that the pod uses: made for it, or its cards' own."""
    made = [step.name for plan in plans for step in plan.steps if isinstance(step, MakeRdma)]
    return tuple(dict.fromkeys((*made, *(name for nic in nics for name in nic.devices))))


def attached(
    plans: Sequence[attachment.Plan],
    nics: Sequence[attachment.PodNic],
    view: attachment.PodView,
    devices: Sequence[Device],
) -> tuple[attachment.AttachedInterface, ...]:
    """Return the pod's interfaces with addresses and devices, in the order of the annotation."""
    links = {link.name: link for link in view.links}
    by_name = {device.name: device for device in devices}
    interfaces = []
    for plan, nic in zip(plans, nics, strict=True):
        link = links[plan.interface]
        names = [name for name in rdma_names((plan,), (nic,)) if name in by_name]
        device = by_name[names[0]] if names else None
        gid = _gid(device, plan) if device else None
        place = nic.card.position if nic.card else None
        interfaces.append(
            attachment.AttachedInterface(
                network=plan.network,
                interface=plan.interface,
                mac=link.mac,
                mtu=link.mtu,
                addresses=plan.addresses,
                rdma_device=device.name if device else None,
                gid=gid.value if gid else None,
                gid_index=gid.index if gid else None,
                card=plan.card,
                pci=place.pci if place else None,
                physical=place.physical_function if place else None,
                default_routes=nic.entry.ask.default_routes,
            )
        )
    return tuple(interfaces)


def char_paths(
    devices: Sequence[Device], rdma_cm: str | None, gives: Collection[CharKind]
) -> tuple[str, ...]:
    """Return the sorted device nodes of these kinds; rdma_cm only if there are others."""
    nodes = (char for device in devices for char in device.char_devices)
    paths = {char.path for char in nodes if char.kind in gives}
    if rdma_cm and paths and CharKind.RDMA_CM in gives:
        paths.add(rdma_cm)
    return tuple(sorted(paths))


def edits(
    interfaces: Iterable[tuple[attachment.Plan, Sequence[str]]],
    granted: Sequence[attachment.GrantedShare],
    devices: Sequence[Device],
    rdma_cm: str | None,
) -> dict[HeldShare, Edits]:
    """Return each share's device nodes, and how its RDMA devices are used.

    So each container gets its own. `granted` and `devices` are all of the pod's, as they are now.
    """
    gives = {share.held: share.device_files for share in granted}
    cards = [card for share in granted for card in share.cards]
    by_share: dict[HeldShare, Edits] = {}
    for plan, names in interfaces:
        own = [device for device in devices if device.name in names]
        if plan.held in gives and own:
            before = by_share.get(plan.held, Edits())
            paths = {*before.char_paths, *char_paths(own, rdma_cm, gives[plan.held])}
            place = next((card for card in cards if card.id == plan.card), None)
            used = (*before.used, *(_used(device, plan, place) for device in own if device.ports))
            by_share[plan.held] = Edits(tuple(sorted(paths)), used=used)
    return by_share


def _used(device: Device, plan: attachment.Plan, card: Card | None) -> UsedDevice:
    """Return how the pod uses an RDMA device: port, GID, interface and place.

    One that was made on an interface of the pod sits where the card does.
    """
    gid = _gid(device, plan)
    ports = [port for port in device.ports if gid in port.gids] or list(device.ports)
    return UsedDevice(
        device.name,
        ports[0].number,
        plan.interface,
        infiniband=ports[0].link_layer is LinkLayer.INFINIBAND,
        gid_index=gid.index if gid else None,
        place=PlacedNet(
            device.name,
            device.position or (card.position if card else None),
            card.numa_node if card else device.numa_node,
        ),
    )


def _names(nic: attachment.PodNic, view: attachment.PodView) -> Iterator[str]:
    pci = {device.name: device.pci for device in nic.card.devices} if nic.card else {}
    for name in nic.devices:
        current = [one.name for one in view.rdma if one.pci and one.pci == pci.get(name)]
        yield name if name in current or not current else current[0]


def _gid(device: Device, plan: attachment.Plan) -> Gid | None:
    """Return the RoCE v2 GID of the interface's first address that has one; None without one."""
    for address in plan.addresses:
        for port in device.ports:
            for gid in port.gids:
                if gid.type is GidType.ROCE_V2 and gid.value == gid_of(address.address):
                    return gid
    return None
