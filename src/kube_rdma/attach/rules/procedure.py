"""The one order in which a pod's networks come to be, from what is asked for to what is reported.

    NetworkRequest ─ shares ─► MatchedNetworks ─ node ─► LocatedNics ─ settings, GUIDs
      ─► SettledNics ─ addresses ─► AddressedNics ─ answers of IPAM plugins ─► FullPlan
      ─ the pod as it is ─► MadeNics ─ devices ─► Outcome

Above all other rules of an attachment. Each stage is a value that is made of the stage before it
and of answers (on the arrows) that somebody has to fetch. attach/attach fetches them from the
kubelet, the kernel, its journal and IPAM; explain/rules/planning has stand-ins, and stops at
FullPlan. So neither can leave a rule out, nor take two in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules import addresses, delegated, foreign_plugins, requests, result, vf
from kube_rdma.attach.rules.infiniband import refuse_taken
from kube_rdma.attach.rules.late_binding import refuse_renumbered
from kube_rdma.attach.rules.placement import pod_nics, with_pods
from kube_rdma.attach.rules.plan import begun, plans, plugin_calls
from kube_rdma.model.attach import attachment, kinds
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.steps import CallPlugin
from kube_rdma.model.device import Device
from kube_rdma.model.ipam import Address, InterfaceName, IPPool
from kube_rdma.model.late_binding import Edits, HeldShare
from kube_rdma.model.pools import FunctionPlace, FunctionSettings

NO_CLAIMS: Mapping[str, str] = MappingProxyType({})


class NetworkRequest(Frozen):
    """A pod's request: entries of its annotation, and the networks that they mean."""

    asks: tuple[attachment.NetworkAsk, ...]
    networks: tuple[attachment.Network, ...]
    others: tuple[str, ...] = ()  # named by no entry; an entry without network may mean one
    called: bool = False  # a meta-plugin calls for this network alone; there may be more calls
    table: int | None = None  # that the caller leads the interface's own traffic through


class MatchedNetworks(Frozen):
    """First stage: every entry has its network, for a pod that holds these shares."""

    request: NetworkRequest
    granted: tuple[attachment.GrantedShare, ...]
    entries: tuple[attachment.MatchedEntry, ...]

    @property
    def needs_plugins(self) -> bool:
        """Return whether binaries of others are called, if only for addresses."""
        return bool(self.foreign) or any(entry.network.ipam_plugin for entry in self.entries)

    @property
    def foreign(self) -> tuple[attachment.MatchedEntry, ...]:
        """Return the entries whose networks other plugins make."""
        return tuple(one for one in self.entries if isinstance(one.network, kinds.ForeignNetwork))

    @property
    def unpooled(self) -> tuple[tuple[attachment.MatchedEntry, Address], ...]:
        """Return the asked addresses that no pool gives; IPAM looks at those of pools."""
        return addresses.unpooled(self.entries)


class LocatedNics(Frozen):
    """Second stage: every network of kube-rdma's has its card and link."""

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
    """Third stage: all that is known before anything is taken for the pod."""

    called: tuple[attachment.Plan, ...]  # of other plugins

    @property
    def plugin_calls(self) -> tuple[CallPlugin, ...]:
        """Return the calls of other plugins, in the order in which they are made."""
        return (*plugin_calls(self.called), *(nic.ipam for nic in self.nics if nic.ipam))

    @property
    def sole(self) -> tuple[str, ...]:
        """Return what no other interface may be given: GUIDs, and keys of claims."""
        asked = (requests.asked_guid(nic.entry) for nic in self.nics)
        keys = (key for nic in self.nics for key in addresses.sole(nic))
        return (*(guid for _, guid in filter(None, asked)), *keys)


class AddressedNics(Frozen):
    """Fourth stage: IPAM and the cards have given their addresses."""

    placed: SettledNics
    sandbox: attachment.Sandbox
    addresses: tuple[attachment.AssignedAddresses, ...]
    begun: tuple[attachment.Plan, ...]  # up to the call of the IPAM plugin that gives the addresses


class FullPlan(Frozen):
    """Fifth stage: all Steps."""

    placed: SettledNics
    nics: tuple[attachment.PodNic, ...]
    own: tuple[attachment.Plan, ...]  # kube-rdma's, one for each NIC
    plans: tuple[attachment.Plan, ...]  # those of other plugins too, in the order of the annotation


class MadeNics(Frozen):
    """Sixth stage: the Steps were run."""

    planned: FullPlan
    view: attachment.PodView
    nics: tuple[attachment.PodNic, ...]
    used: tuple[tuple[attachment.Plan, tuple[str, ...]], ...]  # RDMA devices by their current names

    @property
    def devices(self) -> tuple[str, ...]:
        """Return all RDMA devices that the pod uses."""
        return tuple(dict.fromkeys(name for _, names in self.used for name in names))


class Outcome(Frozen):
    """Last stage: the pod's interfaces, and what its containers get by share."""

    interfaces: tuple[attachment.AttachedInterface, ...]
    edits: Mapping[HeldShare, Edits]


def match(request: NetworkRequest, granted: tuple[attachment.GrantedShare, ...]) -> MatchedNetworks:
    """Match entries with networks; raise Refused with all entries that cannot be met."""
    # Who calls for one network has chosen the plugin, so it is kube-rdma's without a share too.
    holding = request.called or bool(granted)
    entries = requests.match_entries(
        request.asks, request.networks, holding=holding, others=request.others
    )
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
    """Find card and link for each network; raise Refused when shares, cards or links do not fit.

    `attachments` are those of the node.
    """
    host = with_pods(host, attachments)
    if before.request.called:
        (entry,) = before.entries
        nic = delegated.nic(entry, before.granted, beside, host, before.request.table)
        return LocatedNics(before, host, (nic,), beside)
    return LocatedNics(before, host, pod_nics(before.entries, before.granted, host), beside)


def settle(
    before: LocatedNics,
    settings: Iterable[tuple[FunctionPlace, FunctionSettings]] | None = None,
    others: Sequence[attachment.Attachment] = (),
    claimed: Mapping[str, str] = NO_CLAIMS,
) -> SettledNics:
    """Settle all that needs no address.

    Raise Refused for GUIDs and addresses of claims that are taken, and for documents that plugins
    do not understand. `settings` are those of `functions`; None: the links of the host have them.
    `others` are the attachments of other keys, `claimed` says by GUID or key who is about to get
    it.
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
    """Add what cards bring along to what IPAM has `leased`.

    Raise Refused where a card should bring addresses and has none, and for `unpooled` ones of
    `pools` that are for other namespaces.
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
    """Plan all Steps; raise Refused when addresses or routes contradict each other.

    `answers` are those of IPAM plugins by interface; None: nobody has asked them.
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
    return FullPlan(
        place, routed, own, requests.in_order(place.matched.entries, (*own, *place.called))
    )


def observe(before: FullPlan, view: attachment.PodView) -> MadeNics:
    """Take note of what the pod shows since the plans were run."""
    place = before.placed
    named = result.as_named(before.nics, view)
    used = [
        (plan, result.rdma_names((plan,), (nic,)))
        for plan, nic in zip(before.own, named, strict=True)
    ]
    # Interfaces of earlier calls belong to the same containers, whose files are written as a whole.
    used += [(plan, delegated.device_names(plan, place.matched.granted)) for plan in place.beside]
    return MadeNics(before, view, named, tuple(used))


def conclude(
    before: MadeNics,
    devices: Sequence[Device],
    rdma_cm: str | None,
    results: Sequence[attachment.PluginResult] = (),
) -> Outcome:
    """Return what became of it all.

    Raise Outdated for device nodes that are another device's by now, Broken for plugins that
    reported success and made nothing. `devices` are those of `before` as they are now.
    """
    plan, entries = before.planned, before.planned.placed.matched.entries
    refuse_renumbered(plan.own, before.nics, devices)
    called: tuple[attachment.AttachedInterface, ...] = ()
    if plan.placed.called:
        called = foreign_plugins.attached(entries, plan.placed.called, before.view, results)
    dns = {one.interface: one.dns for one in results}
    own = (
        replace(one, dns=dns.get(one.interface, nic.network.dns))
        for one, nic in zip(
            result.attached(plan.own, before.nics, before.view, devices), before.nics, strict=True
        )
    )
    return Outcome(
        requests.in_order(entries, (*own, *called)),
        result.edits(before.used, plan.placed.matched.granted, devices, rdma_cm),
    )
