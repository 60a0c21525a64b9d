"""KR441 to KR443: judges the cards that a pod has by ResourceClaims, whatever driver gave them.

doctor/rules/pod judges devices, links, GIDs and locked memory of all cards of a pod, and asks here
which containers have one by a claim. Only a driver knows what its parameters mean, so only the
facts that node and pod show of a card are judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.frozen import Frozen
from kube_rdma.doctor.rules.check import Check
from kube_rdma.model.device import Device, LinkLayer, PortState
from kube_rdma.model.doctor import CardByClaim, Observation, ObservedLink
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.claimed_cards import ClaimedCard, claimed_cards, rdma_devices


class PodCard(Frozen):
    """A card that a container holds by a claim, with its RDMA device on the node and in the pod."""

    claimed: ClaimedCard
    on_node: Device | None
    in_pod: Device | None

    @property
    def device(self) -> Device | None:
        """Return the card's RDMA device as seen in the pod, else as seen on the node, else None."""
        return self.in_pod or self.on_node

    @property
    def container(self) -> str:
        """Return the name of the container that holds the card."""
        return self.claimed.held.container

    @property
    def pci(self) -> str:
        """Return the card's PCI address, "" if unknown."""
        return self.claimed.card.pci or (self.device.pci if self.device else "") or ""

    @property
    def title(self) -> str:
        """Return the card's name for people: its RDMA device, else its PCI address or interface."""
        card = self.claimed.card
        name = self.device.name if self.device else card.rdma
        return name or card.pci or card.interface

    def __str__(self) -> str:
        """Return the card's title and the driver that gave the card, for a sentence."""
        return f"{self.title} of driver {self.claimed.driver}"


def pod_cards(seen: Observation) -> tuple[PodCard, ...]:
    """Return the RDMA cards that the pod holds by claims.

    A claimed device counts if its RDMA device is seen or named, or its driver calls it capable of
    RDMA.
    """
    pod, kubelet = seen.pod, seen.kubelet
    if pod is None or kubelet is None:
        return ()
    held = [one for one in kubelet.devices if (one.namespace, one.pod) == (pod.namespace, pod.name)]
    cards = []
    for claimed in claimed_cards(held, seen.slices or ()):
        card = PodCard(claimed, _device(claimed, seen.survey), _device(claimed, pod.survey))
        if card.device or claimed.card.rdma or claimed.card.capable:
            cards.append(card)
    return tuple(cards)


def listed_cards(seen: Observation) -> tuple[CardByClaim, ...]:
    """Return the cards that the pod holds by claims, as they are shown to people."""
    return tuple(
        CardByClaim(
            one.container,
            one.claimed.driver,
            one.claimed.held.device.pool,
            one.claimed.held.device.name,
            one.pci,
            one.device.name if one.device else "",
        )
        for one in pod_cards(seen)
    )


def _device(claimed: ClaimedCard, survey: Survey | None) -> Device | None:
    return next(iter(rdma_devices(claimed.card, survey.devices if survey else ())), None)


def _gone(seen: Observation) -> Iterator[Finding]:
    """A container with an allocated claim finds no RDMA device."""
    for card in pod_cards(seen):
        if card.device is None:
            device = card.claimed.held.device
            yield Finding(
                card.container,
                f"Driver {device.driver} gave it {device.name} ({card.title}), and neither the "
                "node nor the pod has this RDMA device",
                "The card or its driver is gone, or its ResourceSlice is outdated",
                f"See the card on the node (kube-rdma devices), and driver {device.driver}",
            )


def _port_down(seen: Observation) -> Iterator[Finding]:
    """Connections over a card that came by a claim fail.

    Cards that are on the node too are judged there.
    """
    for card in pod_cards(seen):
        ports = card.in_pod.ports if card.in_pod and not card.on_node else ()
        if ports and not any(port.state is PortState.ACTIVE for port in ports):
            states = ", ".join(f"port {port.number} is {port.state}" for port in ports)
            cause = "The card's link is down, or no subnet manager has brought it up"
            remedy = "Check the cable and the switch port; for InfiniBand, the subnet manager"
            yield Finding(card.title, f"{states} in the pod", cause, remedy)


def _left_behind(seen: Observation) -> Iterator[Finding]:
    """The pod runs, and its rail has no interface or address.

    Where a driver attaches in a hook of the runtime (NRI) that is late or fails, pods start without
    the interface. See kubernetes-sigs/dranet issue 310 and containerd/nri issue 316. kube-rdma's
    own driver attaches by CNI, which KR403 and KR404 are about.
    """
    pod = seen.pod
    assert pod is not None
    if pod.host_network:
        return
    inside = {name for link in pod.links or () for name in (link.pci, link.parent) if name}
    for card in pod_cards(seen):
        link = None if card.claimed.is_own else _interface(card, seen)
        if link and not {link.pci, link.name} & inside:
            yield Finding(
                card.title,
                f"Its interface {link.name} is on the node, and the pod has none of this card",
                f"Driver {card.claimed.driver} did not attach the interface, or leaves "
                "interfaces on the node",
                "If the claim asks for an interface, see the driver's log, and delete the pod",
                Severity.WARNING,
            )


def _interface(card: PodCard, seen: Observation) -> ObservedLink | None:
    """Return the node's interface of an Ethernet card; None for other cards, and in a bond."""
    ports = card.device.ports if card.device else ()
    if not any(port.link_layer is LinkLayer.ETHERNET for port in ports):
        return None
    if any(port.bond for port in ports):
        return None
    return next((link for link in seen.links or () if card.pci and link.pci == card.pci), None)


_CARDS = ("pod", "kubelet", "kubelet.holdings", "slices", "survey")

CHECKS = (
    Check("KR441", "cards of claims", (*_CARDS, "pod.survey"), _gone),
    Check("KR442", "ports of claims' cards", (*_CARDS, "pod.survey"), _port_down),
    Check("KR443", "interfaces of claims' cards", (*_CARDS, "links", "pod.links"), _left_behind),
)
