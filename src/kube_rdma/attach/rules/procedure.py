"""The one order in which a pod's networks come to be, from what is asked for to what is told.

    NetworkRequest ─ shares ─► Wished ─ node ─► Seated ─ settings, GUIDs ─► Placed ─ addresses
      ─► Addressed ─ answers of IPAM plugins ─► FullPlan ─ the pod as it is ─► Made ─ devices
      ─► Outcome

Above all other rules of an attachment. Each stage is a value that is made of the stage before it
and of answers (on the arrows) that somebody has to fetch. attach/attach
fetches them from the kubelet, the kernel, its journal and IPAM; explain/rules/planning has
stand-ins, and stops at FullPlan. So neither can leave a rule out, nor take two in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules import addresses, foreign_plugins, requests, result, vf
from kube_rdma.attach.rules.infiniband import refuse_taken
from kube_rdma.attach.rules.late_binding import refuse_renumbered
from kube_rdma.attach.rules.plan import begun, plans
from kube_rdma.attach.rules.seats import seats, with_pods
from kube_rdma.model.attach.attachment import (
    Attached,
    Attachment,
    Given,
    GrantedShare,
    HostNetwork,
    Network,
    NetworkAsk,
    NetworkSeat,
    Plan,
    PluginResult,
    PodView,
    Sandbox,
    Wish,
)
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.attach.steps import CallPlugin
from kube_rdma.model.device import Device
from kube_rdma.model.ipam import Address, InterfaceName, IPPool
from kube_rdma.model.late_binding import Edits, HeldShare
from kube_rdma.model.pools import FunctionPlace, FunctionSettings

NO_CLAIMS: Mapping[str, str] = MappingProxyType({})


class NetworkRequest(Frozen):
    """What a pod asks for: entries of its annotation, and the networks that they mean.

    `others` are networks that no entry names: one of them may be meant by an entry without network.
    `called`: a meta-plugin calls for this network alone, and the pod may get more by other calls;
    it may lead what comes from the interface's addresses through a `table` of its own choice.
    """

    asks: tuple[NetworkAsk, ...]
    networks: tuple[Network, ...]
    others: tuple[str, ...] = ()
    called: bool = False
    table: int | None = None


class Wished(Frozen):
    """First stage: every entry has its network, for a pod that holds these shares."""

    request: NetworkRequest
    granted: tuple[GrantedShare, ...]
    wishes: tuple[Wish, ...]

    @property
    def needs_plugins(self) -> bool:
        """Whether binaries of others are called for it, if only for addresses."""
        return bool(foreign_plugins.called_for(self.wishes))

    @property
    def unpooled(self) -> tuple[tuple[Wish, Address], ...]:
        """The addresses that the pod asks for and no pool gives; IPAM looks at those of pools."""
        return addresses.unpooled(self.wishes)


class Seated(Frozen):
    """Second stage: every network of kube-rdma's has its card and link.

    `beside` are the plans of the sandbox's other interfaces.
    """

    wished: Wished
    host: HostNetwork
    seats: tuple[NetworkSeat, ...]
    beside: tuple[Plan, ...]

    @property
    def functions(self) -> tuple[FunctionPlace, ...]:
        """The virtual functions whose settings the next stage needs."""
        return vf.places(self.seats)


class Placed(Seated):
    """Third stage: all that is known before anything is taken for the pod.

    `called` is what other plugins make.
    """

    called: tuple[Plan, ...]

    @property
    def plugin_calls(self) -> tuple[CallPlugin, ...]:
        """What binaries of others are going to be asked."""
        ipam = (seat.ipam for seat in self.seats if seat.ipam)
        return (*foreign_plugins.plugin_calls(self.called), *ipam)

    @property
    def sole(self) -> tuple[str, ...]:
        """What interfaces of the pod are given and no other may have: GUIDs, keys of claims."""
        asked = (requests.asked_guid(seat.wish) for seat in self.seats)
        keys = (key for seat in self.seats for key in addresses.sole(seat))
        return (*(guid for _, guid in filter(None, asked)), *keys)


class Addressed(Frozen):
    """Fourth stage: IPAM and the cards have given their addresses.

    `begun` are the first Steps of interfaces whose addresses an IPAM plugin gives, with its call.
    """

    placed: Placed
    sandbox: Sandbox
    addresses: tuple[Given, ...]
    begun: tuple[Plan, ...]


class FullPlan(Frozen):
    """Fifth stage: all Steps. `own` are kube-rdma's, one for each seat, `plans` those of others too
    in the order of the annotation."""

    placed: Placed
    seats: tuple[NetworkSeat, ...]
    own: tuple[Plan, ...]
    plans: tuple[Plan, ...]


class Made(Frozen):
    """Sixth stage: the Steps were run; `used` are the RDMA devices of each interface, by their
    current names."""

    planned: FullPlan
    view: PodView
    seats: tuple[NetworkSeat, ...]
    used: tuple[tuple[Plan, tuple[str, ...]], ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """All RDMA devices that the pod uses."""
        return tuple(dict.fromkeys(name for _, names in self.used for name in names))


class Outcome(Frozen):
    """Last stage: what the pod is told of its interfaces, and what its containers get by share."""

    interfaces: tuple[Attached, ...]
    edits: Mapping[HeldShare, Edits]


def match(request: NetworkRequest, granted: tuple[GrantedShare, ...]) -> Wished:
    """Match entries with networks; raise Refused with all entries that cannot be met."""
    # Who calls for one network has chosen the plugin, so it is kube-rdma's without a share too.
    holding = request.called or bool(granted)
    wishes = requests.wishes(request.asks, request.networks, holding=holding, others=request.others)
    if any(ask.by_pod_networks for ask in request.asks):
        requests.refuse_traffic(wishes)
        requests.refuse_count(wishes, granted)
    return Wished(request, granted, wishes)


def seat(
    before: Wished,
    host: HostNetwork,
    attachments: Iterable[Attachment] = (),
    beside: tuple[Plan, ...] = (),
) -> Seated:
    """Find card and link for each network; raise Refused when shares, cards or links do not fit.

    `attachments` are those of the node.
    """
    host = with_pods(host, attachments)
    if before.request.called:
        (wish,) = before.wishes
        seat = foreign_plugins.seat(wish, before.granted, beside, host, before.request.table)
        return Seated(before, host, (seat,), beside)
    return Seated(before, host, seats(before.wishes, before.granted, host), beside)


def place(
    before: Seated,
    settings: Iterable[tuple[FunctionPlace, FunctionSettings]] | None = None,
    others: Sequence[Attachment] = (),
    claimed: Mapping[str, str] = NO_CLAIMS,
) -> Placed:
    """Settle all that needs no address; raise Refused for GUIDs and addresses of claims that are
    taken, and for documents that plugins do not understand.

    `settings` are those of `functions`; None: the links of the host have them. `others` are the
    attachments of other keys, `claimed` says by GUID or key who is about to get it.
    """
    asked, host, placed_seats = before.wished, before.host, before.seats
    if settings is not None:
        placed_seats = vf.with_settings(placed_seats, settings)
    placed_seats = addresses.with_calls(placed_seats)
    refuse_taken(placed_seats, others, host, claimed)
    addresses.refuse_doubled(placed_seats, others, claimed)
    called: tuple[Plan, ...] = ()
    if foreign_plugins.foreign(asked.wishes):
        called = foreign_plugins.plans(asked.wishes, asked.granted, host)
    return Placed(asked, host, placed_seats, before.beside, called)


def address(
    before: Placed, sandbox: Sandbox, leased: Sequence[Given], pools: Iterable[IPPool] = ()
) -> Addressed:
    """Add what cards bring along to what IPAM has `leased`; raise Refused where a card should bring
    addresses and has none, and for `unpooled` ones of `pools` that are for other namespaces.
    """
    # Before a link is made for an IPAM plugin: what is refused here costs only addresses.
    addresses.refuse_reserved(before.wished.unpooled, sandbox.pod.namespace, pools)
    given = addresses.with_card_addresses(before.seats, leased)
    alone = not before.wished.request.called
    first = begun(sandbox, before.seats, before.host, before.called, alone=alone)
    return Addressed(before, sandbox, given, first)


def plan(before: Addressed, answers: Mapping[InterfaceName, CniResult] | None = None) -> FullPlan:
    """Plan all Steps; raise Refused when addresses or routes contradict each other.

    `answers` are those of IPAM plugins by interface; None: nobody has asked them.
    """
    place, given = before.placed, before.addresses
    if answers is not None:
        asked = [seat for seat in place.seats if seat.ipam]
        given += tuple(addresses.of_answer(s, answers[s.wish.ask.interface]) for s in asked)
    # The gateways of a default route are known only with the last address.
    routed = addresses.with_default_routes(place.seats, given)
    request = place.wished.request
    alone = not request.called
    own = plans(before.sandbox, routed, given, place.host, place.called, alone=alone)
    if request.table is not None:
        own = tuple(map(foreign_plugins.without_rules, own))
    return FullPlan(
        place, routed, own, requests.in_order(place.wished.wishes, (*own, *place.called))
    )


def observe(before: FullPlan, view: PodView) -> Made:
    """Take note of what the pod shows since the plans were run."""
    place = before.placed
    named = result.as_named(before.seats, view)
    used = [
        (plan, result.rdma_names((plan,), (seat,)))
        for plan, seat in zip(before.own, named, strict=True)
    ]
    # Interfaces of earlier calls belong to the same containers, whose files are written as a whole.
    used += [
        (plan, foreign_plugins.device_names(plan, place.wished.granted)) for plan in place.beside
    ]
    return Made(before, view, named, tuple(used))


def conclude(
    before: Made,
    devices: Sequence[Device],
    rdma_cm: str | None,
    results: Sequence[PluginResult] = (),
) -> Outcome:
    """Say what became of it all; raise Outdated for device nodes that are another device's by now,
    Broken for plugins that reported success and made nothing.

    `devices` are those of `Made.devices` as they are now, `results` what other plugins answered.
    """
    plan, wishes = before.planned, before.planned.placed.wished.wishes
    refuse_renumbered(plan.own, before.seats, devices)
    called = foreign_plugins.attached(wishes, plan.placed.called, before.view, results)
    dns = {one.interface: one.dns for one in results}
    own = (
        replace(one, dns=dns.get(one.interface, seat.wish.network.dns))
        for one, seat in zip(
            result.attached(plan.own, before.seats, before.view, devices), before.seats, strict=True
        )
    )
    return Outcome(
        requests.in_order(wishes, (*own, *called)),
        result.edits(before.used, plan.placed.wished.granted, devices, rdma_cm),
    )
