"""Which card serves which network of a pod: the shares that it holds, met with its annotation.

Second of the rules of an attachment, before addresses are taken: the card's rail says from which
pool they come. The kubelet has chosen shares near to a container's GPUs; the n-th network of a
resource gets the n-th share, so that this choice is kept and the order of the annotation holds. A
network that names an interface or a device gets the share of that very card, and a network whose
pools are of single rails that of a card on them. The deviceID of an entry is the pod's word: it
chooses among the pod's shares, and among cards of the node only where the network's document lends
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from shlex import quote

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.infiniband import refuse_infiniband, refuse_isolation
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.vf import UNTIL_IT_ENDS, no_link, refuse_function, refuse_late_mac
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import (
    Attachment,
    GrantedShare,
    HostLink,
    HostNetwork,
    NetworkKind,
    NetworkSeat,
    Way,
    Wish,
)
from kube_rdma.model.attach.steps import TakeLink
from kube_rdma.model.card import Card
from kube_rdma.model.device import Device
from kube_rdma.model.pools import Bind
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.modes import MODES

_WAYS = {
    NetworkKind.MACVLAN: Way.MACVLAN,
    NetworkKind.IPVLAN: Way.IPVLAN,
    NetworkKind.IPOIB: Way.IPOIB,
    NetworkKind.DEVICE: Way.TAKE,
}
_FOLLOW = "Ask for all cards of the node, or name a network with a pool for each rail"
_INFINIBAND = "infiniband"
_IWARP = "RNIC"  # what sysfs node_type calls a device that speaks it

Choice = tuple[GrantedShare, Card]


def seats(
    wishes: Sequence[Wish], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[NetworkSeat, ...]:
    """Where each network goes, in the order of the annotation; other plugins' are left out.

    `granted` are the pod's shares, container by container. Raise Refused when shares, cards or
    links do not fit.
    """
    placed = tuple(
        _seat(number, wish, choice, node)
        for number, (wish, choice) in enumerate(choices(wishes, granted, node), 1)
        if wish.network.kind is not NetworkKind.OTHER
    )
    _refuse_taken_twice(placed)
    return placed


def choices(
    wishes: Sequence[Wish], granted: Sequence[GrantedShare], node: HostNetwork
) -> tuple[tuple[Wish, Choice | None], ...]:
    """Each network with its share and card, in the order of the annotation; raise as seats.

    A network of other plugins has its turn too: it may be made of a card that kube-rdma gave.
    """
    _refuse_too_many(wishes, granted)
    desk = _Desk(granted, node, set())
    # Who names a card or a rail comes first, or its share could be given to one who takes any.
    order = sorted(enumerate(wishes), key=lambda each: _freedom(each[1]))
    chosen = {number: desk.choose(wish) for number, wish in order}
    return tuple((wish, chosen[number]) for number, wish in enumerate(wishes))


def _freedom(wish: Wish) -> tuple[bool, bool, bool, int]:
    """How many cards a wish can have: that of its claim or name, those of its rails, or any."""
    rails = wish.network.rails
    return wish.ask.held is None, named(wish) is None, not rails, len(rails)


def named(wish: Wish) -> str | None:
    """The card that entry or network say: interface, PCI address, MAC or identity."""
    return wish.ask.device_id or wish.network.device or wish.network.master


def word_alone(wish: Wish) -> bool:
    """Whether the card is named by the pod, and by nothing that an administrator wrote."""
    network = wish.network
    return wish.ask.device_id is not None and not (network.device or network.master)


def not_lent(wish: Wish) -> Refused:
    """The refusal of a card that the pod names, holds no share of and is not let have."""
    problem = (
        f"the network lends no cards, and the pod holds no share of {wish.ask.device_id} for it"
    )
    remedy = (
        "Remove deviceID, or ask for a share of the card; an administrator may write "
        '"capabilities": {"deviceID": true} into a network without master and device'
    )
    return refused(wish, "deviceID", problem, remedy)


def _refuse_overruled(wish: Wish, node: HostNetwork) -> None:
    """A pod's word that is not the network's own: who wrote the network has the last one."""
    word, own = wish.ask.device_id, wish.network.device or wish.network.master
    if word is None or own is None or word.lower() == own.lower():
        return
    if not any(is_link(link, word) and is_link(link, own) for link in node.links):
        problem = f"the network is on {own}, and a pod cannot put it on {word}"
        raise refused(wish, "deviceID", problem, "Remove deviceID, or name another network")


def _named_by(wish: Wish) -> str:
    """The field that says it."""
    if wish.ask.device_id:
        return "deviceID"
    return "device" if wish.network.device else "master"


def link_of(card: Card, node: HostNetwork) -> HostLink | None:
    """The card's interface on the node; None while another namespace has it.

    By name: a function may have several interfaces, and that of a sub-function has no address.
    """
    ports = [port.netdev for device in card.devices for port in device.ports]
    others = [netdev.name for netdev in card.function.netdevs] if card.function else []
    by_name = {link.name: link for link in node.links}
    return next((by_name[name] for name in (*ports, *others) if name in by_name), None)


def base_of(link: HostLink, way: Way, node: HostNetwork) -> HostLink:
    """What a virtual interface on this card stands on: the bond that the card's link is in, if any.

    A slave takes no macvlan and no ipvlan itself (macvlan_port_create, drivers/net/macvlan.c:
    netdev_is_rx_handler_busy).
    """
    if not link.bonded or way not in (Way.MACVLAN, Way.IPVLAN):
        return link
    return next((one for one in node.links if one.name == link.master), link)


class _Desk(Frozen):
    """Gives the shares out; `used` are places of those that count one by one."""

    granted: Sequence[GrantedShare]
    node: HostNetwork
    used: set[tuple[int, int]]  # place of the share, and of its card

    def choose(self, wish: Wish) -> Choice | None:
        """The share and card for a wish; None where it needs none and names none of them."""
        resource, name = wish.network.resource, named(wish)
        if wish.network.kind is NetworkKind.OTHER and not self._concerns(resource):
            return None
        needs = resource is not None or wish.network.kind is NetworkKind.CARD
        _refuse_overruled(wish, self.node)
        if name is None:
            if not needs and wish.network.kind is not NetworkKind.DEVICE:
                problem = "it says neither the interface that it is on nor a resource"
                remedy = 'Add "master": "ens2f0", or the annotation k8s.v1.cni.cncf.io/resourceName'
                raise refused(wish, "master", problem, remedy)
            return self._next(wish, self._on_rails(wish.network.rails))
        match = self._matcher(name)
        if needs:
            return self._next(wish, match)
        choice = next(((g, c) for _, _, g, c in self._offers(resource) if match(c)), None)
        if choice is None and word_alone(wish) and not wish.network.lends:
            raise not_lent(wish)
        return choice

    def _concerns(self, resource: str | None) -> bool:
        """Whether kube-rdma offers this resource: other plugins are used with foreign ones too."""
        return resource is not None and any(self._offers(resource))

    def _offers(self, resource: str | None) -> Iterator[tuple[int, int, GrantedShare, Card]]:
        for place, share in enumerate(self.granted):
            if resource in (None, share.resource):
                for at, card in enumerate(share.cards):
                    yield place, at, share, card

    def _next(self, wish: Wish, match: Callable[[Card], bool]) -> Choice:
        for place, at, share, card in self._offers(wish.network.resource):
            pooled = share.bind is Bind.POOL
            taken = (place, at) in self.used and not (pooled and named(wish))
            other = wish.ask.held not in (None, share.held)
            if match(card) and not taken and not other:
                self.used.add((place, at))
                return share, card
        raise self._none_left(wish)

    def _matcher(self, name: str) -> Callable[[Card], bool]:
        def match(card: Card) -> bool:
            link = link_of(card, self.node)
            if name.lower() == card.id.lower() or (link is not None and is_link(link, name)):
                return True
            bond = base_of(link, Way.MACVLAN, self.node) if link else None
            return bond is not None and is_link(bond, name)

        return match

    def _on_rails(self, wanted: Sequence[int]) -> Callable[[Card], bool]:
        """Any card where the network is for every rail, or nobody asked for those of cards."""
        rails = dict(self.node.rails)
        return lambda card: not (wanted and rails) or rails.get(card.id) in wanted

    def _none_left(self, wish: Wish) -> Refused:
        offers = tuple(self._offers(wish.network.resource))
        what = wish.network.resource or "an RDMA resource"
        name = named(wish)
        if not offers:
            problem = f"the network needs a share of {what}, and the pod holds none"
            return refused(wish, "resource", problem, f"Add {what} to the limits of a container")
        cards = listed(list(dict.fromkeys(_called(card, self.node) for *_, card in offers)))
        if name is None and not any(
            self._on_rails(wish.network.rails)(card) for *_, card in offers
        ):
            rails = listed([str(rail) for rail in wish.network.rails])
            problem = f"the network is for rail {rails}, and of {what} the pod was given {cards}"
            return refused(wish, "resource", problem, _FOLLOW)
        if name is None:
            problem = f"every card that the pod holds of {what} has its network already: {cards}"
            return refused(wish, "resource", problem, "Remove a network, or ask for more")
        return refused(
            wish,
            _named_by(wish),
            f"the network is on {name}, and the pod was given {cards} for {what}",
            "Leave the interface out of the network, which then follows the card that was given; "
            "or make a resource of this card alone",
        )


def with_pods(node: HostNetwork, attachments: Iterable[Attachment]) -> HostNetwork:
    """The node with the links that its pods have; `attachments` are theirs."""
    taken = [
        (step.link.name, step.pci, str(one.sandbox.pod))
        for one in attachments
        for plan in one.plans
        for step in plan.steps
        if isinstance(step, TakeLink)
    ]
    return replace(node, inside=tuple(taken))


def is_link(link: HostLink, name: str) -> bool:
    """Whether an interface is meant by this name, PCI address or MAC."""
    return name == link.name or name.lower() in (link.pci, link.mac.lower())


def _seat(number: int, wish: Wish, choice: Choice | None, node: HostNetwork) -> NetworkSeat:
    share, card = choice or (None, None)
    link = _link(wish, card, node)
    way = _way(wish, share, link)
    if card is not None:
        link = base_of(link, way, node)
    _refuse_link(wish, way, link)
    if way is Way.TAKE:
        _refuse_enslaved(wish, link, card)
    if card is None and word_alone(wish):
        _refuse_virtual(wish, link)
    if card is None and (way is Way.TAKE or word_alone(wish)):
        _refuse_owned(wish, link, node)
    refuse_function(wish, link, card)
    refuse_infiniband(wish, way, link, card, share)
    refuse_late_mac(wish, link, card)
    refuse_isolation(wish, node.namespace_mode)
    if way is Way.TAKE and share and not MODES[share.mode].owns:
        problem = f"{link.name} cannot move into one pod: other pods share its card"
        remedy = "Use a network of type macvlan or kube-rdma, or a pool of mode exclusive"
        raise refused(wish, "type", problem, remedy)
    mtu = _mtu(wish, way, link, node)
    if card is None or share is None:
        return NetworkSeat(wish, number, way, link, mtu=mtu)
    if not wish.network.rdma:
        return NetworkSeat(wish, number, way, link, card, share, mtu=mtu)
    soft, devices = _rdma(wish, way, card, link, node)
    iwarp = soft == "siw" or (devices and all(d.node_type == _IWARP for d in card.devices))
    roce = bool(soft or devices) and link.link_type != _INFINIBAND and not iwarp
    return NetworkSeat(wish, number, way, link, card, share, soft, devices, roce, mtu=mtu)


def _mtu(wish: Wish, way: Way, link: HostLink, node: HostNetwork) -> int | None:
    """The network's, or for a virtual function that of its physical one, where that is larger.

    Drivers make functions with 1500 whatever the physical one has (mlx5e_build_nic_netdev), and
    RoCE would cut its messages into packets of 1024 bytes on a fabric of 9000.
    """
    if wish.network.mtu is not None or way is not Way.TAKE or link.virtual is None:
        return wish.network.mtu
    if link.link_type == _INFINIBAND:
        return None
    name = link.virtual.physical.name
    physical = next((one for one in node.links if one.name == name), None)
    return physical.mtu if physical and physical.mtu > link.mtu else None


def _link(wish: Wish, card: Card | None, node: HostNetwork) -> HostLink:
    if card is not None:
        link = link_of(card, node)
        if link is None:
            netdevs = card.function.netdevs if card.function else ()
            raise no_link(wish, card, _holder(node, card.pci, *(each.name for each in netdevs)))
        return link
    name = named(wish) or ""
    link = next((each for each in node.links if is_link(each, name)), None)
    if link is None and (pod := _holder(node, name.lower(), name)):
        raise refused(wish, _named_by(wish), f"{name} is in the pod {pod}", UNTIL_IT_ENDS)
    if link is None:
        interfaces = listed([each.name for each in node.links]) or "none"
        problem = f"the node has no interface {name}; it has {interfaces}"
        raise refused(
            wish, _named_by(wish), problem, "Write one that every node of the network has"
        )
    return link


def _holder(node: HostNetwork, pci: str | None, *names: str) -> str | None:
    """The pod that has a link, by its function or, where it has none, by its name on the node."""
    return next(
        (pod for name, at, pod in node.inside if (at == pci if at else name in names)), None
    )


def _refuse_owned(wish: Wish, link: HostLink, node: HostNetwork) -> None:
    """A card that is the kubelet's to give: taking it otherwise takes it from somebody."""
    owner = next((of for card, of in node.owned if link_of(card, node) is link), None)
    if owner:
        problem = f"{link.name} belongs to {owner}, and the pod holds no share of it"
        raise refused(wish, _named_by(wish), problem, f"Add {owner} to the limits of a container")


def _refuse_virtual(wish: Wish, link: HostLink) -> None:
    """What leads to other networks or other pods: only an administrator may give it away."""
    if link.kind or link.pci is None:
        what = f"a virtual link ({link.kind})" if link.kind else "no card's own link"
        problem = f"{link.name} is {what}, and a pod may name cards alone"
        raise refused(wish, "deviceID", problem, "Write the PCI address of a card")


def _refuse_enslaved(wish: Wish, link: HostLink, card: Card | None) -> None:
    """A bond or a bridge would lose the interface, and giving it back makes no slave of it.

    RoCE LAG may name the bond itself as the interface of its port, so the card's own count too.
    """
    own = (
        (one.name, one.master) for one in (card.function.netdevs if card and card.function else ())
    )
    for name, master in ((link.name, link.master), *own):
        if master:
            problem = f"{name} is enslaved to {master}, which would not get it back"
            raise refused(wish, "device", problem, f"Take it out of {master}, or use macvlan")


def _way(wish: Wish, share: GrantedShare | None, link: HostLink) -> Way:
    if wish.network.kind in _WAYS:
        return _WAYS[wish.network.kind]
    if share and MODES[share.mode].owns:
        return Way.TAKE
    return Way.IPOIB if link.link_type == _INFINIBAND else Way.MACVLAN


def _refuse_link(wish: Wish, way: Way, link: HostLink) -> None:
    """What the kernel would refuse, or what would cut the node off."""
    mtu = wish.network.mtu
    if way is Way.TAKE:
        if link.default_route:
            problem = f"the node itself is reached through {link.name}, it cannot move into a pod"
            raise refused(wish, "device", problem, "Use another card, or a network of type macvlan")
        return
    if link.bonded and way in (Way.MACVLAN, Way.IPVLAN):
        problem = f"{link.name} is enslaved to {link.master}, so the kernel makes no {way} on it"
        raise refused(wish, "master", problem, f'Write "master": "{link.master}"')
    if link.link_type == _INFINIBAND and way is not Way.IPOIB:
        problem = f"{way} does not work on {link.name}, which is InfiniBand"
        raise refused(wish, "type", problem, 'Write "type": "ipoib"')
    if link.link_type != _INFINIBAND and way is Way.IPOIB:
        problem = f"ipoib does not work on {link.name}, which is not InfiniBand"
        raise refused(wish, "type", problem, 'Write "type": "macvlan"')
    if not link.up:
        problem = f"{link.name} is down, so no interface on it would work"
        raise refused(wish, "master", problem, f"Run: ip link set {quote(link.name)} up")
    if mtu is not None and mtu > link.mtu:
        problem = f"an MTU of {mtu} does not fit on {link.name}, which has {link.mtu}"
        remedy = f"Write {link.mtu} or less, or run: ip link set {quote(link.name)} mtu {mtu}"
        raise refused(wish, "mtu", problem, remedy)


def _rdma(
    wish: Wish, way: Way, card: Card, link: HostLink, node: HostNetwork
) -> tuple[str | None, tuple[str, ...]]:
    """The kind of soft link to make, or the devices of the card that the pod will use."""
    own = [device for device in card.devices if not device.is_soft]
    exclusive = node.namespace_mode is NamespaceMode.EXCLUSIVE
    if own:
        if exclusive and way is not Way.TAKE:
            raise refused(
                wish,
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
            wish,
            "rdma",
            f"{soft} does not work in RDMA namespace mode exclusive: a link made for a pod stays "
            "on the node",
            "Boot the node with ib_core.netns_mode=1",
        )
    return soft, ()


def soft_links(card: Card) -> tuple[tuple[str, str], ...]:
    """The soft RDMA devices of a card, name and kind."""
    return tuple((one.name, _soft_kind(one)) for one in card.devices if one.is_soft)


def _soft_kind(device: Device) -> str:
    """siw speaks iWARP, rxe RoCE."""
    return "siw" if device.node_type == _IWARP else "rxe"


def _refuse_too_many(wishes: Sequence[Wish], granted: Sequence[GrantedShare]) -> None:
    for resource in dict.fromkeys(wish.network.resource for wish in wishes):
        asking = [wish for wish in wishes if wish.network.resource == resource]
        shares = [one for one in granted if one.resource == resource]
        if resource is None or any(one.bind is Bind.POOL for one in shares):
            continue
        if shares and len(asking) > len(shares):
            problem = (
                f"{len(asking)} networks need a share of {resource} each, and the pod holds "
                f"{len(shares)}"
            )
            remedy = f"Ask for {resource}: {len(asking)}, or remove networks"
            raise refused(asking[len(shares)], "resource", problem, remedy)


def _refuse_taken_twice(placed: Sequence[NetworkSeat]) -> None:
    first: dict[int, NetworkSeat] = {}
    for seat in placed:
        other = first.setdefault(seat.link.index, seat)
        if other is not seat and Way.TAKE in (other.way, seat.way):
            problem = f"{seat.link.name} is meant by {other.wish.ask.source} too, and can move once"
            raise refused(seat.wish, "device", problem, "Remove one of the two, or use macvlan")


def _called(card: Card, node: HostNetwork) -> str:
    link = link_of(card, node)
    return f"{card.name} ({link.name})" if link else card.name
