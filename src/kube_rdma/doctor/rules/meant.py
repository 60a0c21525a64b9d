"""Decides which cards of a node the doctor judges: those that pools select, or that are in use.

A node has cards that no pod is to get: for storage, for the traffic of a virtual machine, or
without a cable. Nothing is wrong with such cards. cards, errors, kubelet and network ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from kube_rdma.doctor.rules.check import whole_cards
from kube_rdma.model.device import Device, LinkLayer, PhysicalState, PortState
from kube_rdma.model.doctor import Observation
from kube_rdma.model.pools import PoolSpec
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules import node_health
from kube_rdma.pools.rules.discovery import judge
from kube_rdma.pools.rules.selection import accelerates, why_not


def survey_of(seen: Observation) -> Survey:
    """Return the Survey of an Observation whose check needs one, so that it is there."""
    assert seen.survey is not None
    return seen.survey


def verdict(seen: Observation) -> node_health.NodeVerdict:
    """Return the verdict of pools/rules/node_health on the node's cards in an Observation."""
    return _judged(survey_of(seen), seen.specs or (), seen.absent or ())


@lru_cache(1)  # a dozen checks ask in turn, and a node may have thousands of functions
def _judged(
    survey: Survey, specs: tuple[PoolSpec, ...], missing: tuple[str, ...]
) -> node_health.NodeVerdict:
    cards = node_health.node_cards(survey)
    return node_health.evaluate(node_health.NodeFacts(survey, cards, specs, missing=missing))


def meant(seen: Observation) -> Mapping[str, tuple[str, ...]]:
    """Return by device the resources of the pools that select it.

    Where pools were not seen, it has all devices except those that every pool leaves out by rule.
    """
    return _meant(survey_of(seen), seen.specs)


@lru_cache(1)  # likewise
def _meant(survey: Survey, pools: tuple[PoolSpec, ...] | None) -> Mapping[str, tuple[str, ...]]:
    functions = {one.position.pci: one for one in survey.functions}
    found: dict[str, tuple[str, ...]] = {}
    for card in node_health.node_cards(survey):
        specs = [one for one in pools or () if why_not(one, card, functions) is None]
        if specs or (pools is None and accelerates(card, functions) is None):
            found |= {one.name: tuple(spec.resource for spec in specs) for one in card.devices}
    return found


def complaints(seen: Observation) -> Iterator[tuple[Device, str]]:
    """Yield each device that the doctor judges with each reason why it cannot be used.

    Reasons that do not count for the device's card are left out.
    """
    survey, names = survey_of(seen), meant(seen)
    reasons = {one.name: card.reasons for card in verdict(seen).cards for one in card.devices}
    waiting = set(_waiting(survey)) if seen.specs is None else ()
    for judged in judge(survey):
        name = judged.device.name
        mine = reasons[name] if name in names and name not in waiting else ()
        yield from ((judged.device, one) for one in judged.reasons if one in mine)


def _waiting(survey: Survey) -> Iterator[str]:
    """Yield the devices that may rightly be idle, where no pool was seen.

    A part of a card is down until a pod gets it, as is one whose interface is away. A card without
    a cable is at fault in a bond, and where another one of its kind, or no card at all, is active.
    In a bond, or in switchdev mode, GIDs are another device's. A part on InfiniBand without an
    interface here is a pod's by now, and should be up.
    """
    kinds = kinds_of(survey)
    ports = [(device, port) for device in survey.devices for port in device.own_ports]
    busy = {kinds.get(one.name) for one, port in ports if port.state is PortState.ACTIVE} - {None}
    for device, port in ports:
        kind = kinds.get(device.name)
        away = port.netdev is None and port.link_layer is LinkLayer.ETHERNET
        no_cable = kind is None or port.physical_state is not PhysicalState.LINK_UP
        given = port.link_layer is LinkLayer.INFINIBAND and kind is None and port.netdev is None
        needed = (kind in busy and not away) or port.bond or not (busy and device.pci) or given
        without_gid = not port.gids and (port.bond or device.switchdev)
        if without_gid or (port.state is PortState.DOWN and no_cable and not needed):
            yield device.name


def kinds_of(survey: Survey) -> Mapping[str, str]:
    """Return the kind of each card that is no VF or SF, by which like is compared with like.

    A kind is driver, model, functions of the slot and link layers. So two cards of one chip are of
    two kinds if only one of them has two functions.
    """
    found = {}
    for device, position in whole_cards(survey):
        slot = [one for one in survey.functions if one.position.pci[:-1] == position.pci[:-1]]
        whole = "".join(one.position.pci[-1] for one in slot if not one.position.physical_function)
        own = (
            f"{one.vendor:04x}:{one.device:04x}" for one in slot if one.position.pci == position.pci
        )
        layers = [str(port.link_layer) for port in device.own_ports]
        found[device.name] = f"{device.driver} {next(own, '')} {whole}/{position.pci[-1]} {layers}"
    return found
