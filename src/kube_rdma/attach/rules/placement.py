"""Decides which card and link each network of a pod gets, by the shares that the pod holds.

These are the second rules of an attachment, before addresses are taken: the card's rail says from
which pool they come. The kubelet may have chosen shares near to a container's GPUs. The n-th
network of a resource gets the n-th card of its shares, which keeps this choice and the order of the
annotation. A network that names an interface or a device gets the share of that very card. A
network whose pools are of single rails gets the share of a card on them. The deviceID of an entry
is the pod's own choice among its shares. Other cards of the node it can name only where the
network's document lends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import quote

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.infiniband import refuse_infiniband
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.vf import UNTIL_IT_ENDS, no_link, refuse_function, refuse_late_mac
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    Attachment,
    GrantedShare,
    HostLink,
    HostNetwork,
    MatchedEntry,
    PodNic,
    Way,
)
from kube_rdma.model.attach.steps import TakeLink
from kube_rdma.model.card import Card
from kube_rdma.model.pools import Bind
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.modes import MODES

_FOLLOW = "Ask for all cards of the node, or name a network with a pool for each rail"
_INFINIBAND = "infiniband"
_IWARP = "RNIC"  # what sysfs node_type calls a device that speaks it

Choice = tuple[GrantedShare, Card]


def pod_nics(
    entries: Sequence[MatchedEntry], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[PodNic, ...]:
    """Return a NIC for each network of kube-rdma's, in the order of the annotation.

    `granted` are the pod's shares, container by container. Raise Refused when shares, cards or
    links do not fit.
    """
    placed = tuple(
        _nic(number, entry, choice, node)
        for number, (entry, choice) in enumerate(choices(entries, granted, node), 1)
        if not isinstance(entry.network, kinds.ForeignNetwork)
    )
    _refuse_taken_twice(placed)
    _refuse_two_kinds(placed)
    return placed


def choices(
    entries: Sequence[MatchedEntry], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[tuple[MatchedEntry, Choice | None], ...]:
    """Return each network with the share and card chosen for it; raise Refused where none fits.

    A network of other plugins has its turn too: it may be made of a card that kube-rdma gave.
    """
    _refuse_too_many(entries, granted)
    chooser = _CardChooser(granted, node, set())
    # Who names a card or a rail comes first, or its share could be given to one who takes any.
    order = sorted(enumerate(entries), key=lambda each: _freedom(each[1]))
    chosen = {number: chooser.choose(entry) for number, entry in order}
    return tuple((entry, chosen[number]) for number, entry in enumerate(entries))


def _freedom(entry: MatchedEntry) -> tuple[bool, bool, bool, int]:
    """Return the sort key of choice: claims first, then named cards, single rails, any card."""
    rails = entry.network.rails
    return entry.ask.held is None, named(entry) is None, not rails, len(rails)


def named(entry: MatchedEntry) -> str | None:
    """Return the card that the entry or its network names; None if none is named.

    The name is an interface, a PCI address, a MAC or the id of a card.
    """
    return entry.ask.device_id or entry.network.device


def is_named_by_pod(entry: MatchedEntry) -> bool:
    """Return whether the pod, and not the network, names the card."""
    return entry.ask.device_id is not None and not entry.network.device


def not_lent(entry: MatchedEntry) -> Refused:
    """Return the refusal for a named card of which the pod has no share, and that is not lent."""
    device = entry.ask.device_id
    problem = f"the network lends no cards, and the pod holds no share of {device} for it"
    remedy = (
        "Remove deviceID, or ask for a share of the card; an administrator may write "
        '"capabilities": {"deviceID": true} into a network without master and device'
    )
    return refused(entry, "deviceID", problem, remedy)


def _refuse_overruled(entry: MatchedEntry, node: HostNetwork) -> None:
    """Raise Refused where the pod names a card other than its network's."""
    word, own = entry.ask.device_id, entry.network.device
    if word is None or own is None or word.lower() == own.lower():
        return
    if not any(is_link(link, word) and is_link(link, own) for link in node.links):
        problem = f"the network is on {own}, and a pod cannot put it on {word}"
        raise refused(entry, "deviceID", problem, "Remove deviceID, or name another network")


def _named_by(entry: MatchedEntry) -> str:
    """Return the field in which the card is named."""
    if entry.ask.device_id:
        return "deviceID"
    return "device" if isinstance(entry.network, kinds.DeviceNetwork) else "master"


def link_of(card: Card, node: HostNetwork) -> HostLink | None:
    """Return the card's interface on the node; None if it has none, or has it in a pod.

    It is found by name, as a function may have several interfaces, and that of a sub-function has
    no PCI address.
    """
    ports = [port.netdev for device in card.devices for port in device.own_ports]
    others = [netdev.name for netdev in card.function.own_netdevs] if card.function else []
    by_name = {link.name: link for link in node.links}
    return next((by_name[name] for name in (*ports, *others) if name in by_name), None)


def base_of(link: HostLink, way: Way, node: HostNetwork) -> HostLink:
    """Return the link on which a virtual one is made: the card's, or the bond that it is in.

    A slave takes no macvlan and no ipvlan itself (macvlan_port_create, drivers/net/macvlan.c:
    netdev_is_rx_handler_busy).
    """
    if not link.bonded or way not in (Way.MACVLAN, Way.IPVLAN):
        return link
    return next((one for one in node.links if one.name == link.master), link)


class _CardChooser(Frozen):
    """A distribution of a pod's shares and their cards among its networks."""

    granted: Sequence[GrantedShare]
    node: HostNetwork
    used: set[tuple[int, int]]  # places of shares and, within them, of cards that were given

    def choose(self, entry: MatchedEntry) -> Choice | None:
        """Return share and card for a network; None if it needs no share and names no card of one.

        Raise Refused if it needs one that is not left, or names a card that it may not use.
        """
        resource, name = entry.network.resource, named(entry)
        if isinstance(entry.network, kinds.ForeignNetwork) and (
            resource is None or not any(self._offers(resource))
        ):
            return None  # other plugins are used with resources of others too
        needs = resource is not None or isinstance(entry.network, kinds.CardNetwork)
        _refuse_overruled(entry, self.node)
        if name is None:
            if not needs and not isinstance(entry.network, kinds.DeviceNetwork):
                problem = "it says neither the interface that it is on nor a resource"
                remedy = 'Add "master": "ens2f0", or the annotation k8s.v1.cni.cncf.io/resourceName'
                raise refused(entry, "master", problem, remedy)
            return self._next(entry, self._on_rails(entry.network.rails))
        match = self._matcher(name)
        if needs:
            return self._next(entry, match)
        choice = next(((g, c) for _, _, g, c in self._offers(resource) if match(c)), None)
        if choice is None and is_named_by_pod(entry) and not entry.network.lends:
            raise not_lent(entry)
        return choice

    def _offers(self, resource: str | None) -> Iterator[tuple[int, int, GrantedShare, Card]]:
        for place, share in enumerate(self.granted):
            if resource in (None, share.resource):
                for at, card in enumerate(share.cards):
                    yield place, at, share, card

    def _next(self, entry: MatchedEntry, match: Callable[[Card], bool]) -> Choice:
        for place, at, share, card in self._offers(entry.network.resource):
            pooled = share.bind is Bind.POOL
            taken = (place, at) in self.used and not (pooled and named(entry))
            other = entry.ask.held not in (None, share.held)
            if match(card) and not taken and not other:
                self.used.add((place, at))
                return share, card
        raise self._none_left(entry)

    def _matcher(self, name: str) -> Callable[[Card], bool]:
        def match(card: Card) -> bool:
            link = link_of(card, self.node)
            if name.lower() == card.id.lower() or (link is not None and is_link(link, name)):
                return True
            bond = base_of(link, Way.MACVLAN, self.node) if link else None
            return bond is not None and is_link(bond, name)

        return match

    def _on_rails(self, wanted: Sequence[int]) -> Callable[[Card], bool]:
        """Return a test for cards on these rails; without known or wanted rails any passes."""
        rails = dict(self.node.rails)
        return lambda card: not (wanted and rails) or rails.get(card.id) in wanted

    def _none_left(self, entry: MatchedEntry) -> Refused:
        offers = tuple(self._offers(entry.network.resource))
        what = entry.network.resource or "an RDMA resource"
        name = named(entry)
        if not offers:
            problem = f"the network needs a share of {what}, and the pod holds none"
            return refused(entry, "resource", problem, f"Add {what} to the limits of a container")
        shown: dict[str, None] = {}
        for *_, card in offers:
            link = link_of(card, self.node)
            shown[f"{card.name} ({link.name})" if link else card.name] = None
        cards = listed(list(shown))
        if name is None and not any(
            self._on_rails(entry.network.rails)(card) for *_, card in offers
        ):
            rails = listed([str(rail) for rail in entry.network.rails])
            problem = f"the network is for rail {rails}, and of {what} the pod was given {cards}"
            return refused(entry, "resource", problem, _FOLLOW)
        if name is None:
            problem = f"every card that the pod holds of {what} has its network already: {cards}"
            return refused(entry, "resource", problem, "Remove a network, or ask for more")
        return refused(
            entry,
            _named_by(entry),
            f"the network is on {name}, and the pod was given {cards} for {what}",
            "Leave the interface out of the network, which then follows the card that was given; "
            "or make a resource of this card alone",
        )


def _refuse_two_kinds(placed: Sequence[PodNic]) -> None:
    """Raise Refused for macvlan and ipvlan on one interface, which the kernel forbids.

    Both have the interface's rx_handler: macvlan_port_create, ipvlan_port_create say EBUSY.
    """
    on_links: dict[str, PodNic] = {}
    for nic in (one for one in placed if one.way in (Way.MACVLAN, Way.IPVLAN)):
        first = on_links.setdefault(nic.link.name, nic)
        if first.way is not nic.way:
            other = f"{first.way} of {first.entry.ask.source}"
            problem = f"{nic.link.name} carries {other}, and no {nic.way} beside it"
            remedy = "Use one type for both networks, or put one of them on another card"
            raise refused(nic.entry, "type", problem, remedy)


def with_pods(node: HostNetwork, attachments: Iterable[Attachment]) -> HostNetwork:
    """Return the node with the links that attachments have moved into pods."""
    taken = [
        (step.link.name, step.pci, str(one.sandbox.pod))
        for one in attachments
        for plan in one.plans
        for step in plan.steps
        if isinstance(step, TakeLink)
    ]
    return replace(node, inside=tuple(taken))


def is_link(link: HostLink, name: str) -> bool:
    """Return whether this name, PCI address or MAC is the interface's."""
    return name == link.name or name.lower() in (link.pci, link.mac.lower())


def _nic(number: int, entry: MatchedEntry, choice: Choice | None, node: HostNetwork) -> PodNic:
    share, card = choice or (None, None)
    link = _link(entry, card, node)
    way = _way(entry, share, link)
    if card is not None:
        link = base_of(link, way, node)
    if way is Way.TAKE:
        _refuse_moved(entry, link, choice, node)
        mtu = _moved_mtu(entry, link, node)
    else:
        _refuse_parent(entry, way, link)
        if card is None and is_named_by_pod(entry):
            _refuse_virtual(entry, link)
            _refuse_owned(entry, link, node)
        if isinstance(entry.network, kinds.CardNetwork):
            refuse_infiniband(entry, way, link, card, share)
        mtu = entry.network.mtu
    if card is None or share is None or not entry.network.rdma:
        return PodNic(entry, number, way, link, card, share, mtu=mtu)
    soft, devices = _rdma(entry, way, card, link, node)
    iwarp = soft == "siw" or (devices and all(d.node_type == _IWARP for d in card.devices))
    roce = bool(soft or devices) and link.link_type != _INFINIBAND and not iwarp
    return PodNic(entry, number, way, link, card, share, soft, devices, roce, mtu=mtu)


def _refuse_moved(
    entry: MatchedEntry, link: HostLink, choice: Choice | None, node: HostNetwork
) -> None:
    """Raise Refused for a card's own link that may not move into the pod as the entry asks."""
    share, card = choice or (None, None)
    if link.default_route:
        problem = f"the node itself is reached through {link.name}, it cannot move into a pod"
        raise refused(entry, "device", problem, "Use another card, or a network of type macvlan")
    _refuse_enslaved(entry, link, card)
    if card is None:
        if is_named_by_pod(entry):
            _refuse_virtual(entry, link)
        _refuse_owned(entry, link, node)
        _refuse_shared(entry, link, node)
    network = entry.network
    if isinstance(network, kinds.DeviceNetwork) and network.function:
        refuse_function(entry, link, card)
    refuse_infiniband(entry, Way.TAKE, link, card, share)
    if link.virtual:
        refuse_late_mac(entry, link, card)
    isolated = isinstance(network, kinds.IbSriovNetwork) and network.isolated
    mode = node.namespace_mode
    if isolated and mode is not NamespaceMode.EXCLUSIVE:
        problem = f"the node is in RDMA namespace mode {mode}, so every pod sees the RDMA device"
        remedy = "Boot it with ib_core.netns_mode=0, or remove rdmaIsolation"
        raise refused(entry, "rdmaIsolation", problem, remedy)
    if share and not MODES[share.mode].owns:
        raise _moved_shared(entry, link)


def _moved_mtu(entry: MatchedEntry, link: HostLink, node: HostNetwork) -> int | None:
    """Return the MTU of a moved link: the network's, else a larger one of the physical function.

    Only virtual functions get the larger one. mlx5 makes functions with 1500 whatever the physical
    one has (mlx5e_build_nic_netdev). On a fabric of 9000 RoCE would then cut its messages into
    packets of 1024 bytes.
    """
    if entry.network.mtu is not None or link.virtual is None:
        return entry.network.mtu
    if link.link_type == _INFINIBAND:
        return None
    name = link.virtual.physical.name
    physical = next((one for one in node.links if one.name == name), None)
    return physical.mtu if physical and physical.mtu > link.mtu else None


def _link(entry: MatchedEntry, card: Card | None, node: HostNetwork) -> HostLink:
    if card is not None:
        link = link_of(card, node)
        if link is None:
            netdevs = card.function.netdevs if card.function else ()
            raise no_link(entry, card, _holder(node, card.pci, *(each.name for each in netdevs)))
        return link
    name = named(entry) or ""
    link = next((each for each in node.links if is_link(each, name)), None)
    if link is None and (pod := _holder(node, name.lower(), name)):
        raise refused(entry, _named_by(entry), f"{name} is in the pod {pod}", UNTIL_IT_ENDS)
    if link is None:
        interfaces = listed([each.name for each in node.links]) or "none"
        problem = f"the node has no interface {name}; it has {interfaces}"
        remedy = "Write one that every node of the network has"
        raise refused(entry, _named_by(entry), problem, remedy)
    return link


def _holder(node: HostNetwork, pci: str | None, *names: str) -> str | None:
    """Return the pod that has a card's link, by PCI function or by name; None without one."""
    return next(
        (pod for name, at, pod in node.inside if (at == pci if at else name in names)), None
    )


def _refuse_owned(entry: MatchedEntry, link: HostLink, node: HostNetwork) -> None:
    """Raise Refused for a card that only holders of a share may use, if the pod has none."""
    owner = next((of for card, of in node.owned if link_of(card, node) is link), None)
    if owner:
        problem = f"{link.name} belongs to {owner}, and the pod holds no share of it"
        raise refused(entry, _named_by(entry), problem, f"Add {owner} to the limits of a container")


def _refuse_shared(entry: MatchedEntry, link: HostLink, node: HostNetwork) -> None:
    """Raise Refused for moving a card that several pods may have shares of."""
    if any(link_of(card, node) is link for card, _ in node.shared):
        raise _moved_shared(entry, link)


def _moved_shared(entry: MatchedEntry, link: HostLink) -> Refused:
    problem = f"{link.name} cannot move into one pod: other pods share its card"
    remedy = "Use a network of type macvlan or kube-rdma, or a pool of mode exclusive"
    return refused(entry, "type", problem, remedy)


def _refuse_virtual(entry: MatchedEntry, link: HostLink) -> None:
    """Raise Refused for a link that is not a card's: it may lead to other networks or pods."""
    if link.kind or link.pci is None:
        what = f"a virtual link ({link.kind})" if link.kind else "no card's own link"
        problem = f"{link.name} is {what}, and a pod may name cards alone"
        raise refused(entry, "deviceID", problem, "Write the PCI address of a card")


def _refuse_enslaved(entry: MatchedEntry, link: HostLink, card: Card | None) -> None:
    """Raise Refused for a link in a bond or bridge, which would lose it for good.

    RoCE LAG may name the bond itself as the interface of its port. So the interfaces of the card's
    function count too.
    """
    netdevs = card.function.netdevs if card and card.function else ()
    own = ((one.name, one.master) for one in netdevs)
    for name, master in ((link.name, link.master), *own):
        if master:
            problem = f"{name} is enslaved to {master}, which would not get it back"
            raise refused(entry, "device", problem, f"Take it out of {master}, or use macvlan")


def _way(entry: MatchedEntry, share: GrantedShare | None, link: HostLink) -> Way:
    match entry.network:
        case kinds.MacvlanNetwork():
            return Way.MACVLAN
        case kinds.IpvlanNetwork():
            return Way.IPVLAN
        case kinds.IpoibNetwork():
            return Way.IPOIB
        case kinds.DeviceNetwork():
            return Way.TAKE
    if share and MODES[share.mode].owns:
        return Way.TAKE
    return Way.IPOIB if link.link_type == _INFINIBAND else Way.MACVLAN


def _refuse_parent(entry: MatchedEntry, way: Way, link: HostLink) -> None:
    """Raise Refused for an interface on which no virtual link of this kind can be made or work."""
    mtu = entry.network.mtu
    if link.bonded and way in (Way.MACVLAN, Way.IPVLAN):
        problem = f"{link.name} is enslaved to {link.master}, so the kernel makes no {way} on it"
        raise refused(entry, "master", problem, f'Write "master": "{link.master}"')
    if link.link_type == _INFINIBAND and way is not Way.IPOIB:
        problem = f"{way} does not work on {link.name}, which is InfiniBand"
        raise refused(entry, "type", problem, 'Write "type": "ipoib"')
    if link.link_type != _INFINIBAND and way is Way.IPOIB:
        problem = f"ipoib does not work on {link.name}, which is not InfiniBand"
        raise refused(entry, "type", problem, 'Write "type": "macvlan"')
    if not link.up:
        problem = f"{link.name} is down, so no interface on it would work"
        raise refused(entry, "master", problem, f"Run: ip link set {quote(link.name)} up")
    if mtu is not None and mtu > link.mtu:
        problem = f"an MTU of {mtu} does not fit on {link.name}, which has {link.mtu}"
        remedy = f"Write {link.mtu} or less, or run: ip link set {quote(link.name)} mtu {mtu}"
        raise refused(entry, "mtu", problem, remedy)


def _rdma(
    entry: MatchedEntry, way: Way, card: Card, link: HostLink, node: HostNetwork
) -> tuple[str | None, tuple[str, ...]]:
    """Return the kind of soft RDMA link to make, if any, and the RDMA devices that the pod uses."""
    own = [device for device in card.devices if not device.is_soft]
    exclusive = node.namespace_mode is NamespaceMode.EXCLUSIVE
    if own:
        if exclusive and way is not Way.TAKE:
            raise refused(
                entry,
                "rdma",
                f"card {card.name} is shared, and in RDMA namespace mode exclusive no pod sees it",
                "Use mode exclusive or virtual functions on this node, or boot it with "
                "ib_core.netns_mode=1",
            )
        return None, tuple(device.name for device in own)
    soft = next((kind for _, kind in soft_links(card)), node.soft)
    if soft is None or link.link_type == _INFINIBAND:
        return None, ()
    if exclusive:
        raise refused(
            entry,
            "rdma",
            f"{soft} does not work in RDMA namespace mode exclusive: a link made for a pod stays "
            "on the node",
            "Boot the node with ib_core.netns_mode=1",
        )
    return soft, ()


def soft_links(card: Card) -> tuple[tuple[str, str], ...]:
    """Return name and kind of a card's soft RDMA devices: siw is iWARP, rxe is RoCE."""
    soft = (one for one in card.devices if one.is_soft)
    return tuple((one.name, "siw" if one.node_type == _IWARP else "rxe") for one in soft)


def _refuse_too_many(entries: Sequence[MatchedEntry], granted: Sequence[GrantedShare]) -> None:
    for resource in dict.fromkeys(entry.network.resource for entry in entries):
        asking = [entry for entry in entries if entry.network.resource == resource]
        shares = [one for one in granted if one.resource == resource]
        if resource is None or any(one.bind is Bind.POOL for one in shares):
            continue
        if shares and len(asking) > len(shares):
            need = f"{len(asking)} networks need a share of {resource} each"
            problem = f"{need}, and the pod holds {len(shares)}"
            remedy = f"Ask for {resource}: {len(asking)}, or remove networks"
            raise refused(asking[len(shares)], "resource", problem, remedy)


def _refuse_taken_twice(placed: Sequence[PodNic]) -> None:
    first: dict[int, PodNic] = {}
    for nic in placed:
        other = first.setdefault(nic.link.index, nic)
        if other is not nic and Way.TAKE in (other.way, nic.way):
            problem = f"{nic.link.name} is meant by {other.entry.ask.source} too, and can move once"
            raise refused(nic.entry, "device", problem, "Remove one of the two, or use macvlan")
